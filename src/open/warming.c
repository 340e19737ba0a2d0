#include "open/warming.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "experts/warm.h"

/* ---- Profile ---- */

static int hottest_first(const void *left, const void *right)
{
    const mo_store_request *a = left, *b = right;
    if (a->hits != b->hits) {
        return a->hits > b->hits ? -1 : 1;
    }
    return a->layer != b->layer ? a->layer - b->layer : a->expert - b->expert;
}

mo_status mo_warming_list(const mo_profile *p, mo_store_request **out, int32_t *count, mo_error *err)
{
    size_t cells = 0;
    for (int32_t i = 0; i < p->layers; i++) {
        cells += (size_t)p->layer[i].experts;
    }
    mo_store_request *list = *out = calloc(cells + 1, sizeof *list);
    *count = 0;
    if (!list) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the experts of a profile; free some and try again");
    }
    for (int32_t i = 0; i < p->layers; i++) {
        const mo_profile_layer *layer = &p->layer[i];
        for (int32_t e = 0; e < layer->experts; e++) {
            const uint64_t heat = mo_profile_heat(layer, e);
            if (heat > 0) {
                list[(*count)++] = (mo_store_request){.layer = layer->layer,
                                                      .expert = e,
                                                      .hits = heat,
                                                      .keep = mo_profile_universal(p, layer, e)};
            }
        }
    }
    qsort(list, (size_t)*count, sizeof *list, hottest_first);
    return MO_OK;
}

/* ---- Store ---- */

/* Converts the store's progress in experts to bytes for the user. */
typedef struct bar {
    mo_progress_fn progress;
    void *user;
    int64_t bytes; /* approximate size of an expert */
} bar;

static bool show(void *user, int64_t done, int64_t total)
{
    const bar *b = user;
    return !b->progress || b->progress(b->user, done * b->bytes, total * b->bytes);
}

static mo_status bring(const mo_warming *w, const mo_store_request *requests, int count, uint64_t most,
                       mo_error *err)
{
    bar b = {w->progress, w->user, mo_store_experts(w->store)->home[0].bytes};
    return mo_store_warm(w->store, requests, count, most, show, &b, err);
}

/* Keeps universal experts, but in at most a quarter of the slots: the policy needs the rest, and a layer's
 * misses must find slots. */
static void limit_keeping(const mo_warming *w)
{
    const mo_expert_table *b = mo_store_experts(w->store);
    int32_t left[MO_EXPERT_CLASSES];
    for (int i = 0; i < b->class_count; i++) {
        left[i] = mo_store_class_slots(w->store, i) / 4;
    }
    for (int i = 0; i < w->request_count; i++) {
        mo_store_request *r = &w->requests[i];
        const int32_t expert_id = mo_expert_table_id(b, r->layer, r->expert);
        r->keep = r->keep && expert_id >= 0 && left[b->home[expert_id].size_class]-- > 0;
    }
}

static mo_status from_profile(const mo_warming *w, mo_error *err)
{
    limit_keeping(w);
    return bring(w, w->requests, w->request_count, w->request_count ? w->requests[0].hits : 0, err);
}

static mo_status from_file(const mo_warming *w, mo_error *err)
{
    mo_warm_report report;
    const mo_status status = mo_warm_load(w->store, w->fingerprint, w->file, w->progress, w->user, w->order,
                                          w->order_count, &report, err);
    if (status == MO_OK) {
        mo_log(MO_LOG_INFO, "learning", "%s: %d experts, %.1f MiB in %.2f s%s", w->file, (int)report.experts,
               (double)report.bytes / (1 << 20), (double)report.time_ns * 1e-9,
               *w->order ? "; the device's are read from the model" : "");
    }
    return status == MO_ENOENT ? MO_OK : status;
}

/* Experts that cannot be loaded now are read on demand. Only cancellation and lack of memory are errors. */
static mo_status excuse(mo_status status, const mo_error *fault, mo_error *err)
{
    if (status == MO_ECANCELLED || status == MO_ENOMEM) {
        return mo_fail(err, status, "%s", fault->detail);
    }
    if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "learning", "%s", fault->detail);
    }
    return MO_OK;
}

mo_status mo_warming_run(const mo_warming *w, mo_error *err)
{
    mo_error fault = {0};
    if (w->hot->requests) {
        return excuse(bring(w, w->hot->requests, w->hot->count, 0, &fault), &fault, err);
    }
    mo_status status = MO_OK;
    if (w->file) {
        status = excuse(from_file(w, &fault), &fault, err);
    }
    if (status == MO_OK && w->requests && !w->later) {
        status = excuse(from_profile(w, &fault), &fault, err);
    }
    return status;
}
