/* Device: memory of its own, streams of work on it, and the ops of op.h. Implementations: host (synchronous, this
 * process's memory), sim (a GPU made of threads) and cuda (a real one, opened at run time).
 *
 * Calls that enqueue return at once; an error that happens later shows at the next call that waits. Once a device
 * has failed (MO_EDEVICE) every call fails in the same way, quickly: the caller then stops using the device. One thread
 * at a time calls a device, except mo_event_query() and the reading of pinned memory. */
#ifndef MO_DEVICE_DEVICE_H
#define MO_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "device/op.h"
#include "moraine.h"

typedef struct mo_device mo_device;
typedef struct mo_dstream mo_dstream;
typedef struct mo_event mo_event;
typedef struct mo_program mo_program; /* a list of ops, prepared */

typedef struct mo_device_info {
    char name[128];                  /* for people: "NVIDIA H200" */
    const char *kind;                /* "host", "sim", "cuda" */
    int index;                       /* among devices of its kind */
    int64_t total_bytes, free_bytes; /* memory of the device now */
    double link_bytes_s;             /* what is known about the wire; 0: to be measured */
    double link_copy_s;              /* and of the fixed cost of a copy */
    double memory_bytes_s;           /* 0: unknown */
    int compute;                     /* cuda: capability, 90 for 9.0; otherwise 0 */
    bool own_memory;                 /* copies are needed: false for host */
    bool bf16;                       /* MO_OP_BF16 is there */
} mo_device_info;

void mo_device_describe(mo_device *device, mo_device_info *out);
void mo_device_close(mo_device *device); /* everything made on it has been given back; NULL is allowed */

/* ---- Memory ---- */

/* Aligned to MO_OP_ALIGN, not cleared. MO_ENOMEM when the device has no space. */
mo_status mo_device_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err);
void mo_device_free(mo_device *device, mo_daddr address); /* 0 is allowed; waits for nothing */
/* What it failed with when it last refused memory, or a copy to it; MO_OK: it never has. Any thread. */
mo_status mo_device_refusal(mo_device *device);

/* Host memory that the device reaches, and copies fastest. MO_ENOMEM when the system refuses to pin that much. *seen is
 * its address on the device. Page-aligned. */
mo_status mo_device_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err);
void mo_device_unpin(mo_device *device, void *memory);

/* Pins memory that is there already (page-aligned), for copies. Refusal leaves it as it was. */
mo_status mo_device_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err);
void mo_device_release(mo_device *device, void *memory);

/* ---- Streams and events ---- */

mo_status mo_dstream_create(mo_device *device, mo_dstream **out, mo_error *err);
void mo_dstream_destroy(mo_dstream *stream);                  /* waits for its work; NULL is allowed */
mo_status mo_dstream_wait(mo_dstream *stream, mo_error *err); /* until everything enqueued is done */

/* Copies between host and device. Asynchronous when the host side is pinned; otherwise the call may take as long as
 * the copy. The host side stays untouched until the copy is done. */
mo_status mo_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err);
mo_status mo_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err);
mo_status mo_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err);
/* May streams of the device copy from the memory of another one, of its kind? Prepares that where the driver allows it. */
bool mo_device_reaches(mo_device *device, mo_device *other);
/* From the memory of another device that it can access; do not write there until the copy is done. A refusal (any status but
 * MO_EDEVICE) leaves both as they were. */
mo_status mo_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                         mo_error *err);
mo_status mo_device_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err); /* zeros */

mo_status mo_event_create(mo_device *device, mo_event **out, mo_error *err);
void mo_event_destroy(mo_event *event); /* NULL is allowed */
mo_status mo_event_record(mo_event *event, mo_dstream *stream, mo_error *err);
mo_status mo_dstream_after(mo_dstream *stream, mo_event *event,
                           mo_error *err); /* what follows waits for the event */
mo_status mo_event_query(mo_event *event, bool *done, mo_error *err);
mo_status mo_event_wait(mo_event *event, mo_error *err);
/* Seconds between two events that are done. */
mo_status mo_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err);

/* ---- Work ---- */

/* Enqueues one op; its description is copied. */
mo_status mo_op_launch(mo_dstream *stream, const mo_op *op, mo_error *err);

/* Prepares ops that will run many times in this order. */
mo_status mo_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out, mo_error *err);
void mo_program_destroy(mo_program *program); /* not under way; NULL is allowed */
mo_status mo_program_run(mo_program *program, mo_dstream *stream, mo_error *err);

#endif
