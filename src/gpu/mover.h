/* Mover: copies experts from RAM to the device's slots on a separate stream, in parallel with steps
 * (experts/ahead.h decides which). Private to gpu/. */
#ifndef MO_GPU_MOVER_H
#define MO_GPU_MOVER_H

#include "experts/ahead.h"
#include "gpu/experts.h"

typedef struct mo_gpu_mover {
    mo_gpu_experts *experts;
    mo_dstream *stream;
    mo_event *ready[MO_AHEAD_MOVES];
    int count;
    /* If RAM has another layout, each copy passes through a stage. Without own stages it uses those of the
     * experts, which are free only between steps. */
    mo_daddr stages;
    int64_t stage_bytes; /* bytes of its own stages */
} mo_gpu_mover;

/* `moves` concurrent copies with stage_bytes for their stages; 0 moves: as many as the experts have stages,
 * between steps. */
mo_status mo_gpu_mover_open(mo_gpu_mover *m, mo_gpu_memory *memory, int moves, int64_t stage_bytes,
                            mo_error *err);
void mo_gpu_mover_close(mo_gpu_mover *m); /* a zeroed struct is allowed */

/* For experts/ahead.h. */
mo_mover mo_gpu_mover_of(mo_gpu_mover *m);

#endif
