/* Window: see window.h. */
#include "server/window.h"

#include "moraine_tools.h"

enum { USUAL_PARALLEL = 4, USUAL_CONTEXT = 8192 };

/* A window is made smaller rather than cost more than this share of the speed: keys and values take the place of experts. */
#define SPEED_KEPT 0.95

static mo_status plan(const char *path, const mo_model_options *loading, int64_t context, int parallel,
                      mo_plan_report *out, mo_error *err)
{
    mo_plan_options o = mo_plan_options_default();
    o.ram_bytes = loading->ram_bytes;
    o.context = context;
    o.batch = loading->batch;
    o.kv = loading->kv;
    o.sessions = parallel;
    o.device = loading->device;
    o.vram_bytes = loading->vram_bytes;
    o.cpu_moe = loading->cpu_moe;
    o.postfetch = loading->postfetch;
    o.hot_cache = loading->learning.hot_cache;
    o.threads = loading->threads;
    o.isa = loading->isa;
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

/* The most sequences, up to the usual number, that the plan allows with so many positions each. */
static mo_status choose_parallel(const char *path, const mo_model_options *loading, int64_t context,
                                 mo_plan_report *report, int *parallel, mo_error *err)
{
    mo_status status = MO_OK;
    for (*parallel = USUAL_PARALLEL; *parallel >= 1; *parallel /= 2) {
        status = plan(path, loading, context, *parallel, report, err);
        if (status == MO_OK) {
            return MO_OK;
        }
    }
    return status;
}

mo_status srv_window_choose(const char *path, const mo_model_options *loading, int64_t context,
                            int64_t context_all, int parallel, srv_window *out, mo_error *err)
{
    mo_plan_report least, report;
    *out = (srv_window){.context = context, .parallel = parallel};
    mo_status status = read_made_for(path, &out->made_for, err);
    if (status != MO_OK) {
        return status;
    }
    if (context_all && !context) {
        out->parallel = parallel ? parallel : USUAL_PARALLEL;
        out->context = context_all / out->parallel > 0 ? context_all / out->parallel : 1;
    } else if (context_all && !parallel) {
        out->parallel = (int)(context_all / context > 256 ? 256 : context_all / context);
        out->parallel = out->parallel < 1 ? 1 : out->parallel;
    }
    if (out->context && out->parallel) {
        return MO_OK;
    }
    const int64_t made_for = out->made_for ? out->made_for : USUAL_CONTEXT;
    const int64_t usual = made_for < USUAL_CONTEXT ? made_for : USUAL_CONTEXT;
    const int64_t first = out->context ? out->context : usual;
    if (loading->map) { /* nothing is planned: the system has the memory */
        out->context = first;
        out->parallel = out->parallel ? out->parallel : USUAL_PARALLEL;
        return MO_OK;
    }
    status = out->parallel ? plan(path, loading, first, out->parallel, &least, err)
                           : choose_parallel(path, loading, first, &least, &out->parallel, err);
    if (status != MO_OK || out->context) {
        return status;
    }
    out->context = first;
    for (int64_t c = made_for; c > first; c = c / 2 > first ? c / 2 : first) {
        if (plan(path, loading, c, out->parallel, &report, NULL) == MO_OK &&
            report.tokens_per_second >= SPEED_KEPT * least.tokens_per_second) {
            out->context = c;
            break;
        }
    }
    return MO_OK;
}
