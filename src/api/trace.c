/* The public API of traces: translates between moraine_tools.h and modules. Recording, reading and drawing
 * are in profile/ under their public names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "gguf/fingerprint.h"
#include "gguf/summary.h"
#include "moraine_server.h"
#include "profile/replay.h"

/* ---- Recording ---------------------------------------------------------------------------------- */

/* Bytes of all experts of each layer, from the tensor names of the file. */
static void add_expert_bytes(const mo_gguf *g, int layers, int64_t *bytes)
{
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        int layer;
        const mo_tensor_role role = mo_tensor_role_of(t->name, layers, &layer);
        if ((role == MO_ROLE_EXPERTS || role == MO_ROLE_EXPERT) && layer >= 0 && layer < layers) {
            bytes[layer] += t->bytes;
        }
    }
}

/* The model's routed layers and the size of an expert in each. */
static mo_status make_tracer(const mo_gguf *g, const mo_model *model, const mo_model_info *info,
                             mo_tracer **out, mo_error *err)
{
    mo_file_format formats[MO_TYPE_LIMIT];
    mo_file_info summary;
    mo_status status = mo_gguf_summarize(g, &summary, formats, err);
    if (status != MO_OK) {
        return status;
    }
    mo_trace_shape shape = {.fingerprint = mo_gguf_fingerprint(g),
                            .used = info->experts_used,
                            .layer = calloc((size_t)info->layers, sizeof *shape.layer),
                            .expert_bytes = calloc((size_t)info->layers, sizeof *shape.expert_bytes),
                            .core_bytes = summary.token_other_bytes + summary.token_output_bytes +
                                          summary.token_embedding_bytes};
    int64_t *bytes = calloc((size_t)info->layers, sizeof *bytes);
    if (!shape.layer || !shape.expert_bytes || !bytes) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a trace");
    } else {
        add_expert_bytes(g, info->layers, bytes);
        for (int i = 0; i < info->layers; i++) {
            const int experts = mo_model_layer_experts(model, i);
            if (experts) {
                shape.layer[shape.layers] = i;
                shape.expert_bytes[shape.layers++] = bytes[i] / experts;
                shape.experts = experts > shape.experts ? experts : shape.experts;
            }
        }
        status = mo_tracer_create(&shape, out, err);
    }
    free(shape.layer);
    free(shape.expert_bytes);
    free(bytes);
    return status;
}

mo_status mo_tracer_open(const mo_model *model, mo_tracer **out, mo_error *err)
{
    mo_model_info info;
    mo_gguf *g = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    *out = NULL;
    mo_model_describe(model, &info, sizeof info);
    if (info.experts == 0) {
        return mo_fail(err, MO_EUNSUPPORTED, "%s: has no routed experts to trace", info.path);
    }
    mo_status status = mo_gguf_open(info.path, &g, err);
    if (status == MO_OK) {
        status = make_tracer(g, model, &info, out, err);
    }
    mo_gguf_close(g);
    return status;
}

/* ---- Queries ------------------------------------------------------------------------------------ */

void mo_trace_describe(const mo_trace *trace, mo_trace_info *out, size_t size)
{
    const mo_trace_shape *s = &trace->shape;
    mo_trace_info info = {.fingerprint = s->fingerprint,
                          .layers = s->layers,
                          .experts = s->experts,
                          .used = s->used,
                          .passes = trace->step_count,
                          .core_bytes = s->core_bytes};
    for (int i = 0; i < s->layers; i++) {
        info.expert_bytes += s->expert_bytes[i] * s->experts;
        info.token_bytes += s->expert_bytes[i] * s->used;
    }
    for (int64_t i = 0; i < trace->step_count; i++) {
        const mo_trace_step *step = &trace->steps[i];
        info.tokens[step->phase] += step->tokens;
        info.texts = step->text >= info.texts ? step->text + 1 : info.texts;
    }
    mo_report_write(out, size, &info, sizeof info);
}

/* ---- Replay ------------------------------------------------------------------------------------- */

static mo_status find_policy(const char *name, const mo_policy **out, mo_error *err)
{
    char names[128] = "";
    *out = mo_policy_find(name);
    if (*out || strcmp(name, "optimum") == 0) {
        return MO_OK;
    }
    for (int i = 0; mo_policy_at(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s, ", mo_policy_at(i)->name);
    }
    return mo_fail(err, MO_EINVAL, "unknown `policy` \"%.60s\"; choose %sor optimum", name, names);
}

/* The rates in the file; without a file this machine's, or defaults if it was never measured. */
static mo_status find_rates(const char *path, mo_rates *out, mo_error *err)
{
    char own[4096];
    if (path) {
        return mo_rates_load(path, out, err);
    }
    *out = mo_rates_default();
    if (mo_rates_path(own, sizeof own, NULL) != MO_OK) {
        return MO_OK;
    }
    const mo_status status = mo_rates_load(own, out, err);
    return status == MO_ENOENT ? MO_OK : status;
}

/* How often a trace of the same model picked each expert; the caller frees it. */
static mo_status find_seeds(const mo_trace *trace, const mo_trace *warm, uint64_t **out, mo_error *err)
{
    const mo_trace_shape *a = &trace->shape, *b = &warm->shape;
    if (a->fingerprint != b->fingerprint || a->layers != b->layers || a->experts != b->experts) {
        return mo_fail(err, MO_EINVAL, "`warm` was recorded with another model");
    }
    *out = calloc((size_t)a->layers * (size_t)a->experts, sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the warm-up");
    }
    mo_trace_picks(warm, *out);
    return MO_OK;
}

static const mo_replay_options defaults = {.size = sizeof(mo_replay_options)};

void mo_replay_options_init(mo_replay_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

mo_status mo_replay(const mo_trace *trace, const mo_replay_options *options, mo_replay_report *out,
                    size_t size, mo_error *err)
{
    mo_replay_options o = defaults;
    mo_replay_report report = {0};
    uint64_t *seeds = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, trace, out)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_replay_options", err);
    mo_replay_setup setup = {.budget_bytes = o.budget_bytes, .step = o.step};
    if (status == MO_OK) {
        status = find_policy(o.policy ? o.policy : mo_policy_at(0)->name, &setup.policy, err);
    }
    if (status == MO_OK && o.step < 0) {
        status = mo_fail(err, MO_EINVAL, "`step` must be 1 or more (or 0: as recorded), not %d", o.step);
    }
    if (status == MO_OK) {
        status = mo_check_file(o.rates, "rates", err);
    }
    if (status == MO_OK) {
        status = find_rates(o.rates, &setup.rates, err);
    }
    if (status == MO_OK && o.warm) {
        status = find_seeds(trace, o.warm, &seeds, err);
        setup.seeds = seeds;
    }
    if (status == MO_OK) {
        status = mo_replay_run(trace, &setup, &report, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, &report, sizeof report);
    }
    free(seeds);
    return status;
}
