#include "plan/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "plan/hosts.h"
#include "plan/make.h"
#include "plan/request.h"
#include "plan/share.h"

const char *mo_ranks_device(const char *device)
{
    return !device || strcmp(device, "auto") == 0 ? "none" : device;
}

mo_divide mo_ranks_way(mo_divide asked, bool skip_missing)
{
    return asked == MO_DIVIDE_AUTO && skip_missing ? MO_DIVIDE_LAYERS : asked;
}

/* ---- The model ---- */

/* A layer's part of the sessions. Layers with a window hold less than others. */
static int64_t sessions_in(const mo_plan_model *m, int layer)
{
    double all = 0;
    for (int i = 0; i < m->layers; i++) {
        all += (double)m->layer[i].state_bytes;
    }
    return (int64_t)((double)m->kv_bytes *
                     (all > 0 ? (double)m->layer[layer].state_bytes / all : 1.0 / m->layers));
}

/* Every layer with its part of the sessions, the adapters and everything that is never left on disk. */
static void weigh_layers(const mo_plan_model *m, mo_division_layer *out)
{
    const int64_t fixed = m->vector_bytes + m->core_bytes - m->dense_bytes - (m->tied ? 0 : m->output_bytes);
    for (int i = 0; i < m->layers; i++) {
        const mo_plan_layer *l = &m->layer[i];
        const mo_plan_class *c = l->size_class >= 0 ? &m->classes[l->size_class] : NULL;
        const int used = c ? (c->used ? c->used : m->used) : 0;
        const int64_t all = c ? c->bytes * m->experts : 0, token = c ? c->bytes * used : 0;
        const int64_t stay = sessions_in(m, i) + (fixed > 0 ? fixed / m->layers : 0) + l->adapter_bytes -
                             l->adapter_expert_bytes;
        out[i] = (mo_division_layer){
            .bytes = l->resident + stay + all + l->adapter_expert_bytes,
            .stay_bytes = stay,
            .token_bytes = l->resident + token + 1,
            .expert_bytes = all + l->adapter_expert_bytes,
            .expert_token_bytes = token,
            .slot_bytes = (c ? c->slot_bytes * m->experts : 0) + l->adapter_expert_bytes,
            .joined = l->joined || (m->core_on_cpu && i > 0), /* one session holds them all */
            .experts = c ? m->experts : 0,
            .used = used};
    }
}

mo_status mo_ranks_model(const mo_plan_model *m, mo_division_model *out, mo_error *err)
{
    *out = (mo_division_model){0};
    mo_division_layer *layers = calloc((size_t)m->layers + 1, sizeof *layers);
    if (!layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory while dividing a model");
    }
    weigh_layers(m, layers);
    *out = (mo_division_model){.layers = layers,
                               .count = m->layers,
                               .end_bytes = m->output_bytes,
                               .stream_bytes = m->width * (int64_t)sizeof(float),
                               /* codes and their scales */
                               .input_bytes = m->expert_io + m->expert_io / 32 * (int64_t)sizeof(float),
                               .output_bytes = m->expert_io * (int64_t)sizeof(float),
                               .piece = m->batch,
                               .prompt = mo_plan_request_prompt(m->context)};
    return MO_OK;
}

/* The device's remaining memory matters if RAM is short: experts are then in slots in the file's layout, and
 * some are in transit. */
void mo_ranks_settle(const mo_plan_model *m, int rank, mo_division_rank *machine)
{
    const int64_t lead = m->tied ? m->table_bytes : m->output_bytes, all = machine->vram_bytes;
    machine->other_bytes =
        m->work_bytes + m->other_bytes - m->adapter_bytes + m->rank_bytes + (rank ? 0 : lead);
    if (all > 0) {
        const int64_t held = m->device_work_bytes - m->adapter_bytes + m->device_map_bytes +
                             mo_plan_staging(m->device_stage_plain, all, all, 0);
        machine->other_bytes += m->device_host_bytes;
        machine->vram_bytes = all > held ? all - held : 0;
        machine->vram_end_bytes = rank ? 0 : m->device_core_bytes;
        for (int i = 0; i < m->layers && rank == 0; i++) {
            machine->vram_end_bytes -= m->layer[i].core_bytes;
        }
        machine->buffer_bytes = MO_PLAN_LAYER_BUFFERS_LEAST * m->dense_buffer_bytes;
    }
}

/* ---- The division ---- */

static mo_status divide(const mo_division_model *m, int experts, mo_divide unmeasured,
                        const mo_division_rank *machines, bool measured, int ranks, double *upto,
                        mo_ranks_parts *parts, mo_error *err)
{
    parts->why[0] = 0;
    if (parts->way == MO_DIVIDE_AUTO) {
        mo_division_choice c;
        const bool chosen = measured && mo_division_choose(m, machines, ranks, MO_DIVIDE_AUTO, parts->first,
                                                           upto, &c, NULL) == MO_OK;
        parts->way = chosen ? c.way : unmeasured;
        snprintf(parts->why, sizeof parts->why, "%s", chosen ? c.why : "");
    }
    if (parts->way == MO_DIVIDE_LAYERS) {
        for (int i = 0; i <= MO_RANKS_TOKENS; i++) {
            parts->groups[i] = (uint8_t)mo_division_groups(m, ranks, i);
        }
        return mo_division_make(m->layers, m->count, machines, ranks, parts->first, err);
    }
    const mo_status status = mo_division_make_experts(m, machines, ranks, upto, err);
    for (int r = 0; r <= ranks && status == MO_OK; r++) {
        parts->first[r] = mo_division_first_expert(upto, r, experts);
    }
    return status;
}

mo_status mo_ranks_divide(const mo_plan_model *model, mo_division_rank *machines, const char *const *names,
                          int ranks, mo_ranks_parts *parts, mo_error *err)
{
    mo_division_model m = {0};
    double *upto = calloc((size_t)ranks, sizeof *upto);
    mo_status status = upto ? mo_ranks_model(model, &m, err)
                            : mo_fail(err, MO_ENOMEM, "out of memory while dividing a model");
    if (status == MO_OK) {
        for (int r = 0; r < ranks; r++) {
            mo_ranks_settle(model, r, &machines[r]);
        }
        const bool measured = mo_hosts_wires(machines, names, ranks);
        status = divide(&m, model->experts, model->core_on_cpu ? MO_DIVIDE_EXPERTS : MO_DIVIDE_LAYERS,
                        machines, measured, ranks, upto, parts, err);
        free((mo_division_layer *)m.layers);
    }
    free(upto);
    return status;
}

int64_t mo_ranks_part(const mo_ranks_parts *parts, int ranks, int rank, int64_t bytes)
{
    if (parts->way == MO_DIVIDE_EXPERTS) {
        return rank ? 0 : bytes;
    }
    const int layers = parts->first[ranks], own = parts->first[rank + 1] - parts->first[rank];
    return (int64_t)((double)bytes * own / layers);
}

mo_status mo_ranks_check(const mo_plan_model *part, const mo_rates *rates, int64_t ram_bytes, bool device,
                         mo_error *err)
{
    const mo_plan_limits limits = {.ram_keeps = true, .plain = true, .ram_bytes = ram_bytes};
    mo_plan_model m = *part;
    mo_run_plan plan;
    m.work_bytes += device ? m.device_host_bytes : 0;
    return mo_plan_make(&m, &limits, rates, &plan, err);
}
