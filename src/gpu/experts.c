#include "gpu/experts.h"

#include <stdlib.h>

#include "base/status.h"
#include "gpu/requirements.h"

/* ---- Stages ------------------------------------------------------------------------------------- */

static mo_status open_stages(mo_gpu_experts *x, mo_gpu_memory *memory, int64_t bytes, mo_error *err)
{
    const int64_t expert_bytes = mo_gpu_largest_expert(x->core->spec);
    if (expert_bytes == 0 || bytes == 0) { /* bytes: none of its layers has experts */
        return MO_OK;
    }
    const bool interleaved = mo_gpu_core_any_interleaved(x->core);
    const int64_t each = interleaved ? 2 * expert_bytes : expert_bytes;
    const int64_t count = bytes / each < GPU_STAGES ? bytes / each : GPU_STAGES;
    x->stage_bytes = expert_bytes;
    x->staging_bytes = bytes;
    mo_daddr at = 0;
    mo_status status = mo_gpu_memory_alloc(memory, bytes, "staging for experts", &at, err);
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        mo_gpu_stage *s = &x->stages[i];
        s->memory = at + (mo_daddr)(i * expert_bytes);
        s->plain = interleaved ? at + (mo_daddr)((count + i) * expert_bytes) : s->memory;
        x->stage_count++;
        status = mo_event_create(memory->device, &s->ready, err);
        if (status == MO_OK) {
            status = mo_event_create(memory->device, &s->done, err);
        }
    }
    return status;
}

mo_status mo_gpu_experts_open(mo_gpu_experts *x, mo_gpu_memory *memory, int64_t staging_bytes, mo_error *err)
{
    const mo_status status = open_stages(x, memory, staging_bytes, err);
    return status == MO_OK ? mo_gpu_windows_open(x, err) : status;
}

/* ---- Slots -------------------------------------------------------------------------------------- */

mo_vram_layer *mo_gpu_experts_shapes(const mo_gpu_experts *x, const mo_plan_model *model)
{
    const mo_model_spec *spec = x->core->spec;
    mo_vram_layer *shapes = calloc((size_t)spec->layer_count + 1, sizeof *shapes);
    for (int i = 0; shapes && i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        if (mo_gpu_core_routed(x->core, i)) {
            const int size_class = model->layer[i].size_class;
            shapes[i] = (mo_vram_layer){.bytes = model->device_slot_bytes[size_class],
                                        .experts = l->moe.experts,
                                        .size_class = size_class};
        }
    }
    return shapes;
}

mo_status mo_gpu_experts_open_slots(mo_gpu_experts *x, mo_gpu_memory *memory, const mo_vram_layer *shapes,
                                    const int32_t *class_slots, const mo_policy *policy, mo_error *err)
{
    const mo_model_spec *spec = x->core->spec;
    const mo_status status =
        mo_vram_open(memory->device, shapes, spec->layer_count, class_slots, policy, &x->where.vram, err);
    if (status == MO_OK) {
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(x->where.vram, &slots, &filled, &bytes);
        mo_gpu_memory_settle(memory, bytes + mo_gpu_matrix_bytes(mo_gpu_map_bytes(spec)));
    }
    return status;
}

/* A failure is retried at once, because the main stream may wait for the host. */
mo_status mo_gpu_experts_map(mo_gpu_experts *x, mo_error *err)
{
    mo_status status = mo_vram_switch(x->where.vram, x->link->main, err);
    if (status != MO_OK && status != MO_EDEVICE) {
        x->link->failed++;
        status = mo_vram_switch(x->where.vram, x->link->main, err);
        status = status == MO_OK || status == MO_EDEVICE
                     ? status
                     : mo_fail_prefix(err, MO_EDEVICE, "a copy to the device failed twice");
    }
    return status;
}

void mo_gpu_experts_close(mo_gpu_experts *x)
{
    mo_vram_close(x->where.vram);
    for (int i = 0; i < x->stage_count; i++) {
        mo_event_destroy(x->stages[i].ready);
        mo_event_destroy(x->stages[i].done);
    }
    mo_gpu_windows_close(x);
    mo_device_free(x->link->device, x->stage_count ? x->stages[0].memory : 0);
}
