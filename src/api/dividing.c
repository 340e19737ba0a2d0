#include "api/dividing.h"

#include <stdlib.h>

#include "base/status.h"
#include "plan/prompt.h"

/* Every layer, with its part of the sessions. */
static void weigh_layers(const mo_plan_model *m, mo_division_layer *out)
{
    for (int i = 0; i < m->layers; i++) {
        const mo_plan_layer *l = &m->layer[i];
        const mo_plan_class *c = l->size_class >= 0 ? &m->classes[l->size_class] : NULL;
        const int used = c ? (c->used ? c->used : m->used) : 0;
        const int64_t all = c ? c->bytes * m->experts : 0, token = c ? c->bytes * used : 0;
        out[i] = (mo_division_layer){.bytes = l->resident + all + m->kv_bytes / m->layers,
                                     .token_bytes = l->resident + token + 1,
                                     .expert_bytes = all,
                                     .expert_token_bytes = token,
                                     .experts = c ? m->experts : 0,
                                     .used = used};
    }
}

mo_status mo_dividing_of(const mo_needs *needs, mo_dividing *out, mo_error *err)
{
    const mo_plan_model *m = &needs->model;
    mo_division_layer *layers = calloc((size_t)m->layers + 1, sizeof *layers);
    if (!layers) {
        *out = (mo_dividing){0};
        return mo_fail(err, MO_ENOMEM, "no memory for dividing a model");
    }
    weigh_layers(m, layers);
    *out = (mo_dividing){.layers = layers,
                         .rank_bytes = m->work_bytes + m->other_bytes + MO_NEEDS_RANK_BYTES,
                         .lead_bytes = m->core_bytes - m->dense_bytes + (m->tied ? m->table_bytes : 0)};
    out->model = (mo_division_model){
        .layers = layers,
        .count = m->layers,
        .end_bytes = m->output_bytes,
        .stream_bytes = needs->width * (int64_t)sizeof(float),
        .input_bytes =
            needs->width + needs->width / 32 * (int64_t)sizeof(float), /* codes, and their scales */
        .output_bytes = needs->width * (int64_t)sizeof(float),
        .piece = m->batch,
        .prompt = m->context < MO_PLAN_PROMPT_MOST ? m->context : MO_PLAN_PROMPT_MOST};
    return MO_OK;
}

void mo_dividing_drop(mo_dividing *dividing)
{
    free(dividing->layers);
    *dividing = (mo_dividing){0};
}
