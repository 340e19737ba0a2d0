/* Parts of the simulated device. Private to sim*.c.
 *
 * Locks: `memory.lock` guards the table of allocations and is held only while looking something up; `lock` guards
 * everything else that is shared. Neither is taken while the other is held. */
#ifndef MO_DEVICE_SIM_PARTS_H
#define MO_DEVICE_SIM_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "device/host/run.h"
#include "device/sim/sim.h"

/* ---- Memory ---- */

typedef struct mo_sim_region {
    mo_daddr at;
    int64_t bytes;
    uint8_t *memory;
    bool pinned; /* host memory that the device sees; otherwise the device's own */
} mo_sim_region;

typedef struct mo_sim_range {
    uint8_t *memory;
    int64_t bytes;
} mo_sim_range;

typedef struct mo_sim_memory {
    pthread_mutex_t lock;
    mo_sim_region *regions; /* in the order of their addresses */
    int count, room;
    mo_sim_range *adopted;
    int adopted_count, adopted_room;
    mo_daddr next[2]; /* device, pinned: where the search for an address begins */
    int64_t limit, used, peak;
} mo_sim_memory;

void mo_sim_memory_open(mo_sim_memory *m, int64_t limit);
void mo_sim_memory_close(mo_sim_memory *m); /* asserts that everything was given back */

/* The memory behind a device address; NULL when not all of it is one allocation's. Any thread. */
void *mo_sim_memory_find(mo_sim_memory *m, mo_daddr address, int64_t bytes);

/* Is this host memory pinned or adopted, all of it? */
bool mo_sim_memory_pinned(mo_sim_memory *m, const void *memory, size_t bytes);

/* Is this "host pointer" an address of the device? */
bool mo_sim_memory_is_address(const void *pointer);

/* ---- The device ---- */

typedef struct mo_sim {
    mo_device base;
    mo_sim_options options;
    mo_op_host runner;
    mo_sim_memory memory;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a command was done, or the device was lost */
    mo_error failure;       /* status MO_OK: none */
    atomic_bool lost;       /* the same, for those who hold no lock */
    mo_sim_fault fault;     /* armed */
    int64_t left;           /* calls of its kind that still go well, */
    int64_t hits;           /* and after them those that do not */
    bool hung;              /* there is an event that will never be done */
    int executing;    /* commands that streams work on now; one that waits for an event is not counted */
    int64_t progress; /* commands done */
    int64_t link_free_ns[2];
    int streams, events, programs; /* not destroyed yet */
} mo_sim;

static inline mo_sim *mo_sim_of(mo_device *device)
{
    return (mo_sim *)device;
}

enum { MO_SIM_TO_DEVICE, MO_SIM_TO_HOST }; /* directions of the link */

/* With the lock held: MO_OK, or the failure that every call reports. */
mo_status mo_sim_state(mo_sim *sim, mo_error *err);

/* With the lock held: the device is lost, for this reason; the first one stays. */
void mo_sim_lose(mo_sim *sim, const mo_error *why);

/* With the lock held: does the armed fault hit now? Counts `calls` calls of this kind. */
bool mo_sim_hits(mo_sim *sim, mo_sim_fault kind, int64_t calls);

/* With the lock held: waits until no stream touches any memory. For a device that is lost. */
void mo_sim_quiet(mo_sim *sim);

/* With the lock held: waits until done(ctx), or fails as the device did. A hung event fails it after hang_ms. */
mo_status mo_sim_wait(mo_sim *sim, bool (*done)(void *ctx), void *ctx, mo_error *err);

/* ---- Events ---- */

typedef struct mo_sim_event {
    mo_event base;
    int refs;                /* the owner's, and one per command that names it */
    uint64_t recorded, done; /* numbers of recordings */
    uint64_t hung;           /* the recording that will never be done; 0: none */
    int64_t time_ns;         /* of the last one done */
} mo_sim_event;

/* With the lock held. */
void mo_sim_event_reach(mo_sim *sim, mo_sim_event *event, uint64_t number, int64_t time_ns);
void mo_sim_event_drop(mo_sim *sim, mo_sim_event *event);

/* ---- Programs ---- */

typedef struct mo_sim_program {
    mo_program base;
    int refs; /* the owner's, and one per run under way */
    int count;
    mo_op ops[];
} mo_sim_program;

void mo_sim_program_drop(mo_sim *sim, mo_sim_program *program); /* with the lock held */

/* ---- Streams ---- */

typedef enum mo_sim_kind {
    MO_SIM_DO_COPY_IN,
    MO_SIM_DO_COPY_OUT,
    MO_SIM_DO_COPY_WITHIN,
    MO_SIM_DO_CLEAR,
    MO_SIM_DO_OP,
    MO_SIM_DO_PROGRAM,
    MO_SIM_DO_RECORD,
    MO_SIM_DO_AFTER,
} mo_sim_kind;

typedef struct mo_sim_command {
    mo_sim_kind kind;
    int64_t ready_ns; /* when it could have begun: asked for, and what was before it in its stream over */
    union {
        struct {
            mo_daddr to, from; /* of the device's sides */
            void *host_to;
            const void *host_from;
            size_t bytes;
        } copy;
        mo_op op;
        mo_sim_program *program;
        struct {
            mo_sim_event *event;
            uint64_t number;
        } event;
    };
} mo_sim_command;

typedef struct mo_sim_stream {
    mo_dstream base;
    pthread_t thread;
    pthread_cond_t work; /* there is a command, or the end */
    mo_sim_command *queue;
    int room, first, count;
    uint64_t enqueued, completed;
    int64_t over_ns; /* when the last command was over, by the link's clock if it was a transfer */
    bool closing;
} mo_sim_stream;

/* With the lock held: appends a command; MO_ENOMEM when the queue cannot grow. */
mo_status mo_sim_push(mo_sim_stream *stream, const mo_sim_command *command, mo_error *err);

/* With the lock held: waits until the stream has done its command of that number. */
mo_status mo_sim_wait_number(mo_sim_stream *stream, uint64_t number, mo_error *err);

/* Runs a copy, a clearing, an op or a program, without the lock. *over_ns is when it was over. */
mo_status mo_sim_execute(mo_sim *sim, const mo_sim_command *command, int64_t *over_ns, mo_error *err);

/* ---- What the backend is made of ---- */

mo_status mo_sim_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err);
void mo_sim_free(mo_device *device, mo_daddr address);
mo_status mo_sim_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err);
void mo_sim_unpin(mo_device *device, void *memory);
mo_status mo_sim_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err);
void mo_sim_release(mo_device *device, void *memory);

mo_status mo_sim_stream_create(mo_device *device, mo_dstream **out, mo_error *err);
void mo_sim_stream_destroy(mo_dstream *stream);
mo_status mo_sim_stream_wait(mo_dstream *stream, mo_error *err);

mo_status mo_sim_event_create(mo_device *device, mo_event **out, mo_error *err);
void mo_sim_event_destroy(mo_event *event);
mo_status mo_sim_event_record(mo_event *event, mo_dstream *stream, mo_error *err);
mo_status mo_sim_stream_after(mo_dstream *stream, mo_event *event, mo_error *err);
mo_status mo_sim_event_query(mo_event *event, bool *done, mo_error *err);
mo_status mo_sim_event_wait(mo_event *event, mo_error *err);
mo_status mo_sim_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err);

mo_status mo_sim_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err);
mo_status mo_sim_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err);
mo_status mo_sim_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err);
mo_status mo_sim_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err);
mo_status mo_sim_launch(mo_dstream *stream, const mo_op *op, mo_error *err);
mo_status mo_sim_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                mo_error *err);
void mo_sim_program_destroy(mo_program *program);
mo_status mo_sim_program_run(mo_program *program, mo_dstream *stream, mo_error *err);

#endif
