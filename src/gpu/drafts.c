#include "gpu/drafts.h"

#include <stdlib.h>

#include "base/status.h"
#include "engine/drafts.h"
#include "numeric/delta.h"

/* ---- Sizes ------------------------------------------------------------------------------------ */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* True if the device can work on a copy of the layer's state in a thread's own memory. */
static bool fits(const mo_layer *l)
{
    return (l->mixer != MO_MIXER_DELTA || l->delta.head <= MO_OP_STAYS) &&
           (l->mixer != MO_MIXER_MAMBA || l->mamba.states <= MO_OP_STAYS);
}

int64_t mo_gpu_drafts_rows(const mo_model_spec *spec, int64_t drafts, int64_t batch)
{
    for (int i = 0; i < spec->layer_count; i++) {
        if (!fits(&spec->layers[i])) {
            return 0;
        }
    }
    const int64_t rows = min64(min64(mo_drafts_rows(spec, drafts), GPU_SHARED), batch);
    return rows > 1 ? rows : 0;
}

typedef struct cutter {
    mo_daddr base;
    int64_t used;
} cutter;

/* 0 if the size is 0. */
static mo_daddr cut(cutter *c, int64_t bytes)
{
    const mo_daddr at = c->base + (mo_daddr)c->used;
    c->used += (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    return bytes ? at : 0;
}

static mo_gpu_draft_inputs lay_layer(cutter *c, const mo_layer *l, int64_t rows)
{
    const int64_t row = rows * (int64_t)sizeof(float);
    mo_gpu_draft_inputs in = {0};
    if (l->mixer == MO_MIXER_DELTA) {
        const mo_delta *d = &l->delta;
        in.before = cut(c, row * mo_delta_channels(d->k_heads, d->v_heads, d->head));
        in.after = cut(c, row * mo_delta_channels(d->k_heads, d->v_heads, d->head));
        in.gates = cut(c, row * mo_delta_gate_values(d->decay, d->v_heads, d->head));
    } else if (l->mixer == MO_MIXER_SHORT_CONV) {
        in.before = cut(c, row * 3 * l->short_conv.channels);
    } else if (l->mixer == MO_MIXER_MAMBA) {
        const mo_mamba *m = &l->mamba;
        in.before = cut(c, row * mo_mamba_channels(m));
        in.after = cut(c, m->heads ? row * mo_mamba_channels(m) : (int64_t)mo_acts_bytes(rows, m->inner));
        in.gates = cut(c, row * (m->heads ? m->heads : m->inner));
        in.parts = cut(c, m->heads ? 0 : row * (m->rank + 2 * m->states));
    }
    return in;
}

int64_t mo_gpu_drafts_bytes(const mo_model_spec *spec, int first, int end, int64_t rows)
{
    cutter c = {0};
    cut(&c, rows * (int64_t)sizeof(mo_dslice));
    for (int i = first; i < end; i++) {
        lay_layer(&c, &spec->layers[i], rows);
    }
    return rows ? c.used : 0;
}

/* ---- Life ------------------------------------------------------------------------------------- */

mo_status mo_gpu_drafts_open(mo_gpu_drafts *d, const mo_gpu_core *core, const mo_gpu_scratch *scratch,
                             mo_gpu_memory *memory, int64_t drafts, mo_error *err)
{
    const int layers = core->spec->layer_count;
    void *pinned = NULL;
    mo_daddr seen;
    *d = (mo_gpu_drafts){.core = core, .scratch = scratch};
    d->rows = drafts ? mo_gpu_drafts_rows(core->spec, drafts, scratch->batch) : 0;
    if (!d->rows) {
        return MO_OK;
    }
    d->inputs = calloc((size_t)layers + 1, sizeof *d->inputs);
    mo_status status = d->inputs ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the inputs of drafts");
    if (status == MO_OK) {
        const int64_t bytes = mo_gpu_drafts_bytes(core->spec, core->first, core->end, d->rows);
        status = mo_gpu_memory_alloc(memory, bytes, "working memory of drafts", &d->memory, err);
    }
    if (status == MO_OK) {
        status = mo_device_pin(memory->device, sizeof *d->accepted * (size_t)d->rows, &pinned, &seen, err);
        d->accepted = pinned;
    }
    if (status != MO_OK) {
        return status;
    }
    cutter c = {.base = d->memory};
    d->slices = cut(&c, d->rows * (int64_t)sizeof(mo_dslice));
    for (int i = core->first; i < core->end; i++) {
        d->inputs[i] = lay_layer(&c, &core->spec->layers[i], d->rows);
        d->recurrent += d->inputs[i].before != 0;
    }
    return MO_OK;
}

void mo_gpu_drafts_close(mo_gpu_drafts *d, mo_device *device)
{
    mo_program_destroy(d->program);
    free(d->inputs);
    mo_device_free(device, d->memory);
    if (d->accepted) {
        mo_device_unpin(device, d->accepted);
    }
    *d = (mo_gpu_drafts){0};
}
