/* Link: the streams between host and device, the host memory that is pinned for them, and copies that must arrive. Used by
 * the thread that runs the step. Private to the gpu's files. */
#ifndef MO_GPU_LINK_H
#define MO_GPU_LINK_H

#include "device/device.h"
#include "experts/expert_table.h"
#include "numeric/weights.h"

/* Host memory that is pinned in place: weights, layers from disk, slots of each size. */
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
    mo_dstream *main, *fetch, *lane; /* a step's; of copied experts; of those computed in parallel */
    mo_event *look; /* of the main stream, in a long step: what the host waits for before it goes on */
    mo_adopted adopted[GPU_ADOPTED];
    size_t pin_bytes;    /* of a piece that is pinned at once */
    mo_gpu_watch *watch; /* NULL: not needed */
    uint64_t failed;     /* copies that had to be made again, or were the CPU's after all */
} mo_gpu_link;

/* pin_bytes 0: the default. */
mo_status mo_gpu_link_open(mo_gpu_link *link, mo_device *device, size_t pin_bytes, mo_error *err);
void mo_gpu_link_stop(mo_gpu_link *link);  /* its streams end; pinned memory is no longer used */
void mo_gpu_link_close(mo_gpu_link *link); /* after that */

/* Pins host memory in place, as number `number` of what is adopted, as far as the system grants it. */
void mo_gpu_link_adopt(mo_gpu_link *link, int number, uint8_t *memory, size_t bytes, const char *what);
bool mo_gpu_link_pinned(const mo_gpu_link *link, const uint8_t *at);

/* Enqueue copies from RAM: of bytes, of a matrix. */
mo_status mo_gpu_link_copy(const mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err);
mo_status mo_gpu_link_copy_matrix(const mo_gpu_link *link, mo_dstream *stream, const mo_weights *w,
                                  mo_daddr to, mo_error *err);
/* The other way round, from the device. */
mo_status mo_gpu_link_copy_back(const mo_gpu_link *link, mo_dstream *stream, mo_daddr from, size_t bytes,
                                uint8_t *to, mo_error *err);

/* Copies that a step cannot do without, to and from memory of the host that stays as it is until the stream has come there; made
 * once more if they fail. MO_EDEVICE: twice, or the device is lost: the CPU goes on without it. */
mo_status mo_gpu_link_put(mo_gpu_link *link, mo_dstream *stream, mo_daddr to, const void *from, size_t bytes,
                          mo_error *err);
mo_status mo_gpu_link_get(mo_gpu_link *link, mo_dstream *stream, void *to, mo_daddr from, size_t bytes,
                          mo_error *err);

/* Waits for copies that were asked for with this status, also where one of them failed: those before it may be under way, to or from
 * memory that is freed next. The first failure counts. */
mo_status mo_gpu_link_settle(mo_dstream *stream, mo_status status, mo_error *err);

/* As mo_gpu_link_copy(), once more if it fails: of what is sent when a model or an adapter is opened. */
mo_status mo_gpu_link_send(mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err);
/* What a copy that a step cannot do without comes to, after it was made once more: MO_EDEVICE where it failed again. */
mo_status mo_gpu_link_vital(mo_status status, mo_error *err);
/* After a call for copies: true when it failed and has to be made once more, everything before it being done by now. *tries
 * begins at 0. Failures are counted. */
bool mo_gpu_link_again(mo_gpu_link *link, mo_dstream *stream, int *tries, mo_status *status, mo_error *err);

mo_status mo_gpu_link_launch(const mo_gpu_link *link, mo_dstream *stream, const mo_op *ops, int count,
                             mo_error *err);

#endif
