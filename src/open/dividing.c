#include "open/dividing.h"

#include <stdlib.h>

#include "base/status.h"
#include "cluster/experts.h"
#include "plan/prompt.h"
#include "plan/share.h"

/* A layer's part of the sessions, of which windows hold less than others. */
static int64_t sessions_in(const mo_plan_model *m, int layer)
{
    double all = 0;
    for (int i = 0; i < m->layers; i++) {
        all += (double)m->layer[i].state_bytes;
    }
    return (int64_t)((double)m->kv_bytes *
                     (all > 0 ? (double)m->layer[layer].state_bytes / all : 1.0 / m->layers));
}

/* Every layer, with its part of the sessions, of adapters, and of what is never left on disk. */
static void weigh_layers(const mo_requirements *requirements, mo_division_layer *out)
{
    const mo_plan_model *m = &requirements->model;
    const int64_t fixed = m->vector_bytes + m->core_bytes - m->dense_bytes - (m->tied ? 0 : m->output_bytes);
    for (int i = 0; i < m->layers; i++) {
        const mo_plan_layer *l = &m->layer[i];
        const mo_lora_share *a = &requirements->adapters[i];
        const mo_plan_class *c = l->size_class >= 0 ? &m->classes[l->size_class] : NULL;
        const int used = c ? (c->used ? c->used : m->used) : 0;
        const int64_t all = c ? c->bytes * m->experts : 0, token = c ? c->bytes * used : 0;
        const int64_t stay =
            sessions_in(m, i) + (fixed > 0 ? fixed / m->layers : 0) + a->bytes - a->expert_bytes;
        out[i] = (mo_division_layer){.bytes = l->resident + stay + all + a->expert_bytes,
                                     .stay_bytes = stay,
                                     .token_bytes = l->resident + token + 1,
                                     .expert_bytes = all + a->expert_bytes,
                                     .expert_token_bytes = token,
                                     .slot_bytes = (c ? c->slot_bytes * m->experts : 0) + a->expert_bytes,
                                     .experts = c ? m->experts : 0,
                                     .used = used};
    }
}

/* For messages, whichever way the model is divided. */
static int64_t message_bytes(const mo_requirements *requirements, int ranks)
{
    const mo_plan_model *m = &requirements->model;
    const int64_t by_layers = mo_requirements_stream_bytes(m->batch, requirements->width);
    const int64_t by_experts =
        m->used ? mo_plan_times(m->batch, mo_experts_message_bytes(requirements->width, m->used, ranks - 1))
                : 0;
    return by_layers > by_experts ? by_layers : by_experts;
}

mo_status mo_dividing_of(const mo_requirements *requirements, int ranks, mo_dividing *out, mo_error *err)
{
    const mo_plan_model *m = &requirements->model;
    mo_division_layer *layers = calloc((size_t)m->layers + 1, sizeof *layers);
    if (!layers) {
        *out = (mo_dividing){0};
        return mo_fail(err, MO_ENOMEM, "out of memory while dividing a model");
    }
    weigh_layers(requirements, layers);
    int64_t cores = 0;
    for (int i = 0; i < m->layers; i++) {
        cores += m->layer[i].core_bytes;
    }
    *out = (mo_dividing){.layers = layers,
                         .rank_bytes = m->work_bytes + m->other_bytes - requirements->adapter_bytes +
                                       message_bytes(requirements, ranks) + MO_REQUIRED_RANK_BYTES,
                         .lead_bytes = m->tied ? m->table_bytes : m->output_bytes,
                         .host_bytes = m->device_host_bytes,
                         .buffer_bytes = MO_PLAN_LAYER_BUFFERS_LEAST * m->dense_buffer_bytes,
                         .device_bytes =
                             m->device_work_bytes - requirements->adapter_bytes + m->device_map_bytes,
                         .stage_bytes = m->device_stage_plain,
                         .end_bytes = m->device_core_bytes - cores};
    out->model = (mo_division_model){
        .layers = layers,
        .count = m->layers,
        .end_bytes = m->output_bytes,
        .stream_bytes = requirements->width * (int64_t)sizeof(float),
        .input_bytes = requirements->width +
                       requirements->width / 32 * (int64_t)sizeof(float), /* codes, and their scales */
        .output_bytes = requirements->width * (int64_t)sizeof(float),
        .piece = m->batch,
        .prompt = m->context < MO_PLAN_PROMPT_MOST ? m->context : MO_PLAN_PROMPT_MOST};
    return MO_OK;
}

/* What is left counts where RAM is short: then experts are in slots, as the file has them, and some are on their way. */
void mo_dividing_settle(const mo_dividing *d, int rank, mo_division_rank *machine)
{
    machine->other_bytes = d->rank_bytes + (rank ? 0 : d->lead_bytes);
    if (machine->vram_bytes > 0) {
        const int64_t all = machine->vram_bytes;
        const int64_t held = d->device_bytes + mo_plan_staging(d->stage_bytes, all, all, 0);
        machine->other_bytes += d->host_bytes;
        machine->vram_bytes = all > held ? all - held : 0;
        machine->vram_end_bytes = rank ? 0 : d->end_bytes;
        machine->buffer_bytes = d->buffer_bytes;
    }
}

void mo_dividing_drop(mo_dividing *dividing)
{
    free(dividing->layers);
    *dividing = (mo_dividing){0};
}
