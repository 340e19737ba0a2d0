#include "gpu/requirements.h"

#include "experts/vram.h"
#include "gpu/core.h"
#include "gpu/drafts.h"
#include "gpu/piece.h"
#include "gpu/scratch.h"
#include "plan/share.h"

_Static_assert((int)MO_PLAN_GRAIN == (int)MO_OP_ALIGN, "plans count as devices do");

int64_t mo_gpu_matrix_bytes(int64_t bytes)
{
    return mo_vram_slot_bytes(bytes);
}

int64_t mo_gpu_layer_bytes(const mo_model_spec *spec, int layer)
{
    return mo_gpu_core_layer_bytes(spec, layer);
}

int64_t mo_gpu_layer_core_bytes(const mo_model_spec *spec, int layer)
{
    const int64_t output = mo_gpu_core_bytes(spec, spec->layer_count, spec->layer_count);
    const int64_t bytes = mo_gpu_core_bytes(spec, layer, layer + 1);
    return layer + 1 < spec->layer_count ? bytes : bytes - output;
}

int64_t mo_gpu_map_bytes(const mo_model_spec *spec)
{
    int64_t entries = 1;
    for (int i = 0; i < spec->layer_count; i++) {
        entries += spec->layers[i].routed ? spec->layers[i].moe.experts : 0;
    }
    return entries * (int64_t)sizeof(mo_daddr);
}

int64_t mo_gpu_session_table_bytes(const mo_model_spec *spec, int64_t context, int64_t batch)
{
    return spec->layer_count * (int64_t)sizeof(mo_dstate) +
           mo_state_entries(spec, context, batch) * (int64_t)sizeof(mo_daddr);
}

/* The largest sum of an expert's matrices from `first` on: gate 0, up 1, down 2. */
static int64_t largest_from(const mo_model_spec *spec, int first)
{
    int64_t largest = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        if (l->routed) {
            const mo_expert *b = &l->moe.expert[0];
            const mo_weights *w[] = {&b->gate.w, &b->up.w, &b->down.w};
            int64_t bytes = 0;
            for (int j = first; j < 3; j++) {
                bytes += mo_vram_slot_bytes(w[j]->rows *
                                            mo_format_row_bytes(mo_format_of(w[j]->type), w[j]->cols));
            }
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

int64_t mo_gpu_largest_expert(const mo_model_spec *spec)
{
    return largest_from(spec, 0);
}

int64_t mo_gpu_largest_down(const mo_model_spec *spec)
{
    return largest_from(spec, 2);
}

mo_gpu_requirements mo_gpu_requirements_of(const mo_model_spec *spec, int64_t batch, int64_t context,
                                           const mo_precision_rule *precision, int64_t drafts)
{
    mo_gpu_core core;
    mo_gpu_core_describe(&core, spec);
    mo_gpu_requirements n = {.core = mo_gpu_core_bytes(spec, 0, spec->layer_count),
                             .group = mo_gpu_core_group(spec),
                             .expert_bytes = mo_gpu_largest_expert(spec),
                             .down_bytes = mo_gpu_largest_down(spec),
                             .map = mo_gpu_matrix_bytes(mo_gpu_map_bytes(spec)),
                             .table = mo_gpu_matrix_bytes(mo_gpu_session_table_bytes(spec, context, batch))};
    const mo_gpu_scratch_size scratch = mo_gpu_scratch_bytes(&core, batch, context, precision);
    const int64_t rows = drafts ? mo_gpu_drafts_rows(spec, drafts, batch) : 0;
    n.work = scratch.device + mo_gpu_matrix_bytes(mo_gpu_drafts_bytes(spec, 0, spec->layer_count, rows));
    n.idle = scratch.idle;
    n.host = scratch.pinned;
    n.piece = mo_gpu_piece_bytes(spec, batch);
    n.host += mo_gpu_map_bytes(spec); /* the host's copy of the map */
    return n;
}
