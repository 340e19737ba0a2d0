/* Start: where experts are on disk, slots in VRAM and RAM are filled during the first steps: hottest first by what a
 * profile knows, then those of one number in every layer, so that all layers get alike. Reads wait behind those that a step
 * needs; what has arrived in RAM crosses on a stream of its own, and its place in RAM is free for the next. What a layer's misses
 * drive out of RAM before that is not read again for the device's sake: slots that stay free so are filled with what RAM has
 * then. Used by the thread that has the turn. Private to the gpu's files. */
#ifndef MO_GPU_START_H
#define MO_GPU_START_H

#include "gpu/experts.h"

enum { GPU_START_MOVES = 16 }; /* experts on their way to VRAM at once */

typedef struct mo_gpu_start_expert {
    int32_t layer, expert;
    bool read; /* a read was begun for the device's sake */
} mo_gpu_start_expert;

typedef struct mo_gpu_start_move {
    mo_gpu_start_expert expert;
    mo_event *arrived;
    bool busy;
} mo_gpu_start_move;

typedef struct mo_gpu_start {
    mo_gpu_experts *experts;
    mo_dstream *stream;
    mo_gpu_start_expert *order; /* all experts; NULL: there is nothing to fill */
    int32_t count;
    int32_t to_device, to_ram; /* how far each tier has come in the order */
    bool known;                /* a profile said what comes first */
    bool again; /* all had their turn, and slots stayed free: what RAM has may take the device's */
    mo_gpu_start_move moves[GPU_START_MOVES];
    int under_way; /* of them */
} mo_gpu_start;

/* What the profile knows, hottest first, comes first. Nothing is opened where all experts are in RAM. */
mo_status mo_gpu_start_open(mo_gpu_start *s, const mo_store_request *requests, int32_t count, mo_error *err);
void mo_gpu_start_close(mo_gpu_start *s);

/* Checks what has arrived, and continues. Between steps, or between layers of a batch: the device's map must be sent
 * before a small step reads it. A copy that fails leaves its expert in RAM. */
mo_status mo_gpu_start_turn(mo_gpu_start *s, mo_error *err);

/* May a computed expert stay in a free slot? Not while those are reserved for others. */
bool mo_gpu_start_leaves(const mo_gpu_start *s);

/* A step was given up: what was on its way begins anew, and nothing of it is pinned. */
void mo_gpu_start_abort(mo_gpu_start *s);

#endif
