/* Window: see window.h. */
#include "server/models/context_choice.h"

#include <string.h>

enum { USUAL_PARALLEL = 4, USUAL_CONTEXT = 8192, KEPT_LEAST = 1 << 20 };

/* The context is reduced rather than cost more than this share of the speed: the KV cache takes memory from experts. */
#define SPEED_KEPT 0.95

mo_plan_options srv_context_plan_options(const mo_model_options *loading)
{
    mo_plan_options o = mo_plan_options_default();
    o.ram_bytes = loading->ram_bytes;
    o.batch = loading->batch;
    o.kv = loading->kv;
    o.device = loading->device;
    o.vram_bytes = loading->vram_bytes;
    memcpy(o.vram_each, loading->vram_each, sizeof o.vram_each);
    o.cpu_moe = loading->cpu_moe;
    o.postfetch = loading->postfetch;
    o.prompt_precision = loading->prompt_precision;
    o.hot_cache = loading->learning.hot_cache;
    o.threads = loading->threads;
    o.isa = loading->isa;
    o.adapters = loading->adapters;
    o.adapter_count = loading->adapter_count;
    o.adapter_bytes = loading->adapter_bytes;
    o.cluster = loading->cluster;
    o.divide = /* as the model will be opened: skipping experts needs layers */
        loading->skip_missing && loading->divide == MO_DIVIDE_AUTO ? MO_DIVIDE_LAYERS : loading->divide;
    return o;
}

static mo_status plan(const char *path, const mo_model_options *loading, const srv_context_choice *w,
                      mo_plan_report *out, mo_error *err)
{
    mo_plan_options o = srv_context_plan_options(loading);
    o.context = w->context;
    o.sessions = w->parallel;
    o.kept_bytes = w->kept_bytes;
    o.kept_device_bytes = w->kept_device_bytes;
    return mo_plan_file(path, &o, out, sizeof *out, err);
}

static mo_status read_made_for(const char *path, int64_t *out, mo_error *err)
{
    mo_file *file;
    mo_file_info info;
    mo_status status = mo_file_open(path, &file, err);
    if (status == MO_OK) {
        status = mo_file_summarize(file, &info, sizeof info, err);
        *out = status == MO_OK ? info.context_length : 0;
        mo_file_close(file);
    }
    return status;
}

/* What the options settle by themselves. */
static void take_asked(const srv_context_request *asked, srv_context_choice *out)
{
    out->context = asked->context;
    out->parallel = asked->parallel;
    if (asked->context_all && !asked->context) {
        out->parallel = asked->parallel ? asked->parallel : USUAL_PARALLEL;
        out->context = asked->context_all / out->parallel > 0 ? asked->context_all / out->parallel : 1;
    } else if (asked->context_all && !asked->parallel) {
        const int64_t fit = asked->context_all / asked->context;
        out->parallel = fit > 256 ? 256 : fit < 1 ? 1 : (int)fit;
    }
}

/* Is the plan possible, and hardly slower than it was without? */
static bool costs_little(const char *path, const mo_model_options *loading, const srv_context_choice *w,
                         double speed)
{
    mo_plan_report report;
    return plan(path, loading, w, &report, NULL) == MO_OK && report.tokens_per_second >= SPEED_KEPT * speed;
}

/* The most sequences, up to the usual number, that the plan allows with this many positions each. */
static mo_status choose_parallel(const char *path, const mo_model_options *loading, srv_context_choice *w,
                                 mo_plan_report *report, mo_error *err)
{
    mo_status status = MO_OK;
    for (w->parallel = USUAL_PARALLEL; w->parallel >= 1; w->parallel /= 2) {
        status = plan(path, loading, w, report, err);
        if (status == MO_OK) {
            return MO_OK;
        }
    }
    return status;
}

static void choose_context(const char *path, const mo_model_options *loading, srv_context_choice *w,
                           int64_t most, double speed)
{
    const int64_t least = w->context;
    for (int64_t c = most; c > least; c = c / 2 > least ? c / 2 : least) {
        w->context = c;
        if (costs_little(path, loading, w, speed)) {
            return;
        }
    }
    w->context = least;
}

/* As much as was asked for, or the half of it, or the half of that; on a device a quarter of it. */
static void choose_kept(const char *path, const mo_model_options *loading, srv_context_choice *w,
                        int64_t most, const mo_plan_report *without)
{
    for (int64_t bytes = most; bytes >= KEPT_LEAST; bytes /= 2) {
        w->kept_bytes = bytes;
        if (costs_little(path, loading, w, without->tokens_per_second)) {
            break;
        }
        w->kept_bytes = 0;
    }
    for (int64_t bytes = w->kept_bytes / 4; without->device.name[0] && bytes >= KEPT_LEAST; bytes /= 2) {
        w->kept_device_bytes = bytes;
        if (costs_little(path, loading, w, without->tokens_per_second)) {
            break;
        }
        w->kept_device_bytes = 0;
    }
}

mo_status srv_context_choose(const char *path, const mo_model_options *loading,
                             const srv_context_request *asked, srv_context_choice *out, mo_error *err)
{
    mo_plan_report least;
    *out = (srv_context_choice){0};
    mo_status status = read_made_for(path, &out->made_for, err);
    if (status != MO_OK) {
        return status;
    }
    const int64_t made_for = out->made_for ? out->made_for : USUAL_CONTEXT;
    take_asked(asked, out);
    const bool open = out->context == 0;
    if (open) {
        out->context = made_for < USUAL_CONTEXT ? made_for : USUAL_CONTEXT;
    }
    if (loading->map) { /* nothing is planned: the system has the memory */
        out->parallel = out->parallel ? out->parallel : USUAL_PARALLEL;
        out->kept_bytes = asked->kept_bytes;
        return MO_OK;
    }
    status = out->parallel ? plan(path, loading, out, &least, err)
                           : choose_parallel(path, loading, out, &least, err);
    if (status == MO_OK && open) {
        choose_context(path, loading, out, made_for, least.tokens_per_second);
    }
    if (status == MO_OK) {
        choose_kept(path, loading, out, asked->kept_bytes, &least);
    }
    return status;
}
