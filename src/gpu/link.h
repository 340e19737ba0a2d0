/* Link: the streams between host and device, the host memory pinned for them, and copies that must succeed.
 * Used by the thread that runs the step. Private to gpu/. */
#ifndef MO_GPU_LINK_H
#define MO_GPU_LINK_H

#include "device/device.h"
#include "experts/expert_table.h"
#include "numeric/weights.h"

/* Host memory pinned in place: weights, layers from disk, slots of each size. */
enum { GPU_ADOPTED = 2 + MO_EXPERT_CLASSES };

/* Times of ops, one at a time, on request: nothing overlaps then. */
typedef struct mo_gpu_watch {
    double seconds[MO_OP_KINDS];
    int count[MO_OP_KINDS];
} mo_gpu_watch;

/* Host memory that was pinned in place, piece by piece. */
typedef struct mo_adopted {
    uint8_t *memory;
    size_t bytes, piece;
} mo_adopted;

typedef struct mo_gpu_link {
    mo_device *device;
    mo_dstream *main, *fetch, *lane; /* of a step; of copied experts; of experts computed in parallel */
    mo_event *look; /* on the main stream, in a long step: the host waits for it before it continues */
    mo_adopted adopted[GPU_ADOPTED];
    size_t pin_bytes;    /* bytes pinned per call */
    mo_gpu_watch *watch; /* NULL: not needed */
    uint64_t failed;     /* copies that were repeated, or replaced by the CPU */
} mo_gpu_link;

/* pin_bytes 0: the default. */
mo_status mo_gpu_link_open(mo_gpu_link *link, mo_device *device, size_t pin_bytes, mo_error *err);
void mo_gpu_link_stop(mo_gpu_link *link);  /* ends its streams; pinned memory is no longer used */
void mo_gpu_link_close(mo_gpu_link *link); /* after mo_gpu_link_stop() */

/* Pins host memory in place, as entry `number` of adopted, as far as the system allows. */
void mo_gpu_link_adopt(mo_gpu_link *link, int number, uint8_t *memory, size_t bytes, const char *what);
bool mo_gpu_link_pinned(const mo_gpu_link *link, const uint8_t *at);

/* Enqueue copies from RAM: of bytes, of a matrix. */
mo_status mo_gpu_link_copy(const mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err);
mo_status mo_gpu_link_copy_matrix(const mo_gpu_link *link, mo_dstream *stream, const mo_weights *w,
                                  mo_daddr to, mo_error *err);
/* The same from the device to RAM. */
mo_status mo_gpu_link_copy_back(const mo_gpu_link *link, mo_dstream *stream, mo_daddr from, size_t bytes,
                                uint8_t *to, mo_error *err);

/* Vital copies, to and from host memory that must not change until the stream has completed them; repeated
 * once after a failure. MO_EDEVICE: failed twice, or the device is lost: the CPU continues without it. */
mo_status mo_gpu_link_put(mo_gpu_link *link, mo_dstream *stream, mo_daddr to, const void *from, size_t bytes,
                          mo_error *err);
mo_status mo_gpu_link_get(mo_gpu_link *link, mo_dstream *stream, void *to, mo_daddr from, size_t bytes,
                          mo_error *err);

/* Waits for enqueued copies, also if one of them failed (`status`): earlier ones may be in flight to or from
 * memory that is freed next. Returns the first failure. */
mo_status mo_gpu_link_settle(mo_dstream *stream, mo_status status, mo_error *err);

/* Like mo_gpu_link_copy(), repeated once after a failure; for opening a model or an adapter. */
mo_status mo_gpu_link_send(mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err);
/* The result of a vital copy after its repetition: MO_EDEVICE if it failed again. */
mo_status mo_gpu_link_vital(mo_status status, mo_error *err);
/* After a copy call: true if it failed and must be repeated; all earlier work has ended then. *tries starts
 * at 0. Counts failures. */
bool mo_gpu_link_again(mo_gpu_link *link, mo_dstream *stream, int *tries, mo_status *status, mo_error *err);

mo_status mo_gpu_link_launch(const mo_gpu_link *link, mo_dstream *stream, const mo_op *ops, int count,
                             mo_error *err);

#endif
