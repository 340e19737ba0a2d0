#include "gpu/needs.h"

#include "gpu/core.h"
#include "gpu/scratch.h"
#include "store/vram.h"

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
    return (spec->layer_count + 8) * (int64_t)sizeof(mo_dstate) +
           mo_state_entries(spec, context, batch) * (int64_t)sizeof(mo_daddr);
}

int64_t mo_gpu_largest_brick(const mo_model_spec *spec)
{
    int64_t largest = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        if (l->routed) {
            const mo_brick *b = &l->moe.bricks[0];
            const mo_weights *w[] = {&b->gate.w, &b->up.w, &b->down.w};
            int64_t bytes = 0;
            for (int j = 0; j < 3; j++) {
                bytes += mo_vram_slot_bytes(w[j]->rows *
                                            mo_format_row_bytes(mo_format_of(w[j]->type), w[j]->cols));
            }
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

mo_gpu_needs mo_gpu_measure(const mo_model_spec *spec, int64_t batch, int64_t context)
{
    mo_gpu_core core = {.spec = spec, .rope_count = 8};
    core.extent = mo_extent_of(spec);
    return (mo_gpu_needs){.core = mo_gpu_core_bytes(spec),
                          .work = mo_gpu_scratch_bytes(&core, batch, context),
                          .stage_room = 2 * mo_gpu_largest_brick(spec),
                          .map = mo_gpu_map_bytes(spec),
                          .gpu_session = mo_gpu_session_table_bytes(spec, context, batch)};
}
