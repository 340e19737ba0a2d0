/* Drafts: what a device keeps of a step some of whose tokens are guesses. Its recurrent layers leave their states as they were, and put what
 * these were given, row by row, where it stays until the picks are known; then the accepted rows are applied, in the same order, without
 * waiting for the host. Private to the gpu's files. */
#ifndef MO_GPU_DRAFTS_H
#define MO_GPU_DRAFTS_H

#include "device/device.h"
#include "gpu/core.h"
#include "gpu/memory.h"
#include "gpu/scratch.h"

/* What a recurrent layer was given: as mo_draft_inputs of engine/drafts.h. 0: the layer is not recurrent. */
typedef struct mo_gpu_draft_inputs {
    mo_daddr before, after, gates, parts;
} mo_gpu_draft_inputs;

typedef struct mo_gpu_drafts {
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    int64_t rows;                /* most tokens of a step with drafts; 0: none */
    mo_gpu_draft_inputs *inputs; /* [layers] */
    int recurrent;               /* layers of them */
    mo_daddr memory, slices;     /* mo_dslice[rows] that are accepted */
    mo_dslice *accepted;         /* the same, pinned */
    mo_program *program;         /* applies one slice; NULL: not made yet */
    bool applying;               /* may still be at work */
} mo_gpu_drafts;

/* Most tokens of a step with up to that many drafts of a session, and the bytes on a device for layers [first, end). */
int64_t mo_gpu_drafts_rows(const mo_model_spec *spec, int64_t drafts, int64_t batch);
int64_t mo_gpu_drafts_bytes(const mo_model_spec *spec, int first, int end, int64_t rows);

/* For a core and a scratch that are open. */
mo_status mo_gpu_drafts_open(mo_gpu_drafts *d, const mo_gpu_core *core, const mo_gpu_scratch *scratch,
                             mo_gpu_memory *memory, int64_t drafts, mo_error *err);
void mo_gpu_drafts_close(mo_gpu_drafts *d, mo_device *device);

#endif
