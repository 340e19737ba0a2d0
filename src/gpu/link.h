/* Link: the streams between host and device, the host memory that is pinned for them, and copies that must arrive.
 * Private to the gpu's files. */
#ifndef MO_GPU_LINK_H
#define MO_GPU_LINK_H

#include "gpu/memory.h"
#include "store/bricks.h"

enum {
    GPU_ADOPTED = 2 + MO_BRICK_CLASSES
}; /* host memory that was pinned in place: weights, layers from disk, slots */

/* What ops take, one at a time, when somebody asks: nothing overlaps then. */
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
    mo_dstream *main, *fetch,
        *lane; /* a step's; of experts that cross; of those that are computed beside it */
    mo_adopted adopted[GPU_ADOPTED];
    size_t pin_bytes;    /* of a piece that is pinned at once */
    mo_gpu_watch *watch; /* NULL: nobody asks */
    uint64_t failed;     /* copies that had to be made again, or were the CPU's after all */
} mo_gpu_link;

#endif
