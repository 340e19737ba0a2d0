/* Streams of the simulated device: one thread each, which runs commands in order. A command carries the function that
 * runs it, so a stream knows neither events nor work. */
#ifndef MO_DEVICE_SIM_STREAM_H
#define MO_DEVICE_SIM_STREAM_H

#include "device/sim/state.h"

typedef struct mo_sim_command mo_sim_command;

typedef struct mo_sim_stream {
    mo_dstream base;
    pthread_t thread;
    pthread_cond_t work; /* there is a command, or the end */
    mo_scratch *scratch;
    mo_sim_command *queue;
    int limit, first, count;
    uint64_t enqueued, completed;
    int64_t over_ns; /* when the last command was over, by the link's clock if it was a transfer */
    bool closing;
} mo_sim_stream;

struct mo_sim_command {
    /* With the lock held: does it, or drops it when the device is lost. Sets the stream's over_ns. */
    void (*run)(mo_sim *sim, mo_sim_stream *stream, const mo_sim_command *command);
    int kind;         /* the function's own */
    int64_t ready_ns; /* when it could have begun: asked for, and what was before it in its stream over */
    union {
        struct {
            mo_daddr to, from; /* of the device's sides */
            void *host_to;
            const void *host_from;
            mo_sim *other; /* whose address `from` is, where it is another device's */
            size_t bytes;
        } copy;
        mo_op op;
        struct {
            void *object; /* an event or a program */
            uint64_t number;
        } on;
    };
};

/* With the lock held: appends a command; MO_ENOMEM when the queue cannot grow. */
mo_status mo_sim_push(mo_sim_stream *stream, const mo_sim_command *command, mo_error *err);

/* With the lock held: waits until the stream has done its command of that number. */
mo_status mo_sim_wait_number(mo_sim_stream *stream, uint64_t number, mo_error *err);

/* ---- The device's calls ---- */

mo_status mo_sim_stream_create(mo_device *device, mo_dstream **out, mo_error *err);
void mo_sim_stream_destroy(mo_dstream *stream);
mo_status mo_sim_stream_wait(mo_dstream *stream, mo_error *err);

#endif
