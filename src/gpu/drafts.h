/* Drafts: data that a device keeps for a step with draft tokens. Its recurrent layers do not change their
 * states; they record their inputs, row by row, until the picks are known. Then the accepted rows are applied
 * in the same order, without waiting for the host. Private to gpu/. */
#ifndef MO_GPU_DRAFTS_H
#define MO_GPU_DRAFTS_H

#include "device/device.h"
#include "gpu/core.h"
#include "gpu/memory.h"
#include "gpu/scratch.h"

/* Recorded inputs of a recurrent layer, like mo_draft_inputs of engine/drafts.h. 0: the layer is not
 * recurrent. */
typedef struct mo_gpu_draft_inputs {
    mo_daddr before, after, gates, parts;
} mo_gpu_draft_inputs;

typedef struct mo_gpu_drafts {
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    int64_t rows;                /* maximum tokens of a step with drafts; 0: none */
    mo_gpu_draft_inputs *inputs; /* [layers] */
    int recurrent;               /* number of recurrent layers */
    mo_daddr memory, slices;     /* slices: mo_dslice[rows], the accepted ones */
    mo_dslice *accepted;         /* the same, pinned */
    mo_program *program;         /* applies one slice; NULL: not created yet */
    bool applying;               /* may still be running */
} mo_gpu_drafts;

/* Maximum tokens of a step with up to this many drafts per session; and the bytes on a device for layers
 * [first, end). */
int64_t mo_gpu_drafts_rows(const mo_model_spec *spec, int64_t drafts, int64_t batch);
int64_t mo_gpu_drafts_bytes(const mo_model_spec *spec, int first, int end, int64_t rows);

/* The core and the scratch must be open. */
mo_status mo_gpu_drafts_open(mo_gpu_drafts *d, const mo_gpu_core *core, const mo_gpu_scratch *scratch,
                             mo_gpu_memory *memory, int64_t drafts, mo_error *err);
void mo_gpu_drafts_close(mo_gpu_drafts *d, mo_device *device);

#endif
