#include "api/learning.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/output.h"
#include "base/status.h"
#include "profile/file.h"
#include "store/warm.h"

struct mo_learning {
    const mo_opened *opening;
    mo_store *store; /* NULL: all experts are in RAM */
    mo_profile_shape shape;
    mo_tally *tally;
    mo_profile_mode mode;
    mo_profile *base;       /* what is told begins here; NULL: at the opening */
    mo_profile *updated;    /* and what the next update looks at, here */
    char profile[PATH_MAX]; /* "": nothing is read or written */
    bool writes;            /* the profile is written at the end */
    char *warm_file, *perf_out;
    bool still; /* a hot set rules */
    mo_weighting_options weighting;
    double rate;
    bool *hot;                  /* [layers of the spec][experts] of the hot set; NULL without one */
    mo_store_request *requests; /* what the profile knew at the opening; NULL: there was none */
    int32_t wish_count;
};

/* ---- Small steps ---- */

mo_status mo_learning_mode_find(const char *name, mo_profile_mode *out, mo_error *err)
{
    *out = MO_PROFILE_FULL;
    for (int m = MO_PROFILE_OFF; name && m <= MO_PROFILE_FULL; m++) {
        if (strcmp(name, mo_profile_mode_name((mo_profile_mode)m)) == 0) {
            *out = (mo_profile_mode)m;
            return MO_OK;
        }
    }
    return name ? mo_fail(err, MO_EINVAL, "layers are counted in mode full, update or off, not %s", name)
                : MO_OK;
}

mo_tally *mo_learning_tally(const mo_learning *l)
{
    return l->mode == MO_PROFILE_OFF ? NULL : l->tally;
}

bool mo_learning_times(const mo_learning *l)
{
    return l->mode == MO_PROFILE_FULL;
}

mo_profile_mode mo_learning_mode(const mo_learning *l)
{
    return l->mode;
}

static void say(const mo_error *err)
{
    mo_log(MO_LOG_WARN, "learning", "%s", err->detail);
}

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "no memory for what is learned about the model; free some and try again");
}

static bool *hot_cell(const mo_learning *l, int layer, int expert)
{
    return &l->hot[(int64_t)layer * mo_store_bricks(l->store)->experts + expert];
}

/* ---- The profile that is there ---- */

/* A file that the user names is never moved or replaced unless it is this model's own. */
static void read_named(mo_learning *l, mo_profile **out)
{
    mo_error err = {0};
    uint64_t found = 0;
    const mo_status status = mo_profile_named(l->profile, &l->shape, out, &found, &err);
    if (status == MO_ENOENT) {
        return; /* it will be made */
    }
    l->writes = status == MO_OK && found == l->shape.fingerprint;
    if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "learning", "%s; this run learns nothing and leaves the file as it is",
               err.detail);
    } else if (!l->writes) {
        mo_log(MO_LOG_WARN, "learning",
               "%s: the profile does not say that it is this model's own, so it is used but not added to",
               l->profile);
    }
}

static void read_own(mo_learning *l, mo_profile **out)
{
    mo_error err = {0};
    mo_profile *read = NULL;
    mo_status status = mo_profile_file_path(l->shape.fingerprint, l->profile, sizeof l->profile, &err);
    if (status != MO_OK) {
        l->profile[0] = 0;
        l->writes = false;
        say(&err);
        return;
    }
    status = mo_profile_file_load(l->profile, l->shape.fingerprint, &read, &err);
    if (status == MO_OK) {
        status = mo_profile_fit(read, &l->shape, out, &err);
    }
    mo_profile_free(read);
    if (status != MO_OK && status != MO_ENOENT) {
        say(&err);
    }
}

/* NULL when there is none. */
static mo_profile *read_profile(mo_learning *l, const char *option)
{
    mo_profile *p = NULL;
    if (option && strcmp(option, "off") == 0) {
        return NULL;
    }
    l->writes = true;
    if (option) {
        snprintf(l->profile, sizeof l->profile, "%s", option);
        read_named(l, &p);
    } else {
        read_own(l, &p);
    }
    return p;
}

/* ---- Warming ---- */

/* The store counts experts, the user's bar bytes. */
typedef struct bar {
    mo_progress_fn progress;
    void *user;
    int64_t bytes; /* of an expert, about */
} bar;

static bool show(void *user, int64_t done, int64_t total)
{
    const bar *b = user;
    return !b->progress || b->progress(b->user, done * b->bytes, total * b->bytes);
}

static mo_status warm_store(const mo_learning *l, const mo_store_request *requests, int count, uint64_t most,
                            mo_progress_fn progress, void *user, mo_error *err)
{
    bar b = {progress, user, mo_store_bricks(l->store)->home[0].bytes};
    return mo_store_warm(l->store, requests, count, most, show, &b, err);
}

static int hottest_first(const void *left, const void *right)
{
    const mo_store_request *a = left, *b = right;
    if (a->hits != b->hits) {
        return a->hits > b->hits ? -1 : 1;
    }
    return a->layer != b->layer ? a->layer - b->layer : a->expert - b->expert;
}

/* Universal experts are kept, but at most a quarter of the slots: the rest belongs to the policy, and a layer's
 * misses must find room. */
static void limit_keeping(const mo_learning *l, mo_store_request *requests, int count)
{
    const mo_bricks *b = mo_store_bricks(l->store);
    int32_t left[MO_BRICK_CLASSES];
    for (int i = 0; i < b->class_count; i++) {
        left[i] = mo_store_class_slots(l->store, i) / 4;
    }
    for (int i = 0; i < count; i++) {
        const int32_t brick = mo_bricks_of(b, requests[i].layer, requests[i].expert);
        requests[i].keep = requests[i].keep && brick >= 0 && left[b->home[brick].size_class]-- > 0;
    }
}

/* What the profile knows, hottest first. */
static mo_status list_requests(mo_learning *l, const mo_profile *p, mo_error *err)
{
    size_t cells = 0;
    for (int32_t i = 0; i < p->layers; i++) {
        cells += (size_t)p->layer[i].experts;
    }
    l->requests = calloc(cells + 1, sizeof *l->requests);
    if (!l->requests) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < p->layers; i++) {
        const mo_profile_layer *layer = &p->layer[i];
        for (int32_t e = 0; e < layer->experts; e++) {
            const uint64_t heat = mo_profile_heat(layer, e);
            if (heat > 0) {
                l->requests[l->wish_count++] = (mo_store_request){.layer = layer->layer,
                                                                  .expert = e,
                                                                  .hits = heat,
                                                                  .keep = mo_profile_universal(p, layer, e)};
            }
        }
    }
    qsort(l->requests, (size_t)l->wish_count, sizeof *l->requests, hottest_first);
    return MO_OK;
}

const mo_store_request *mo_learning_requests(const mo_learning *l, int32_t *count)
{
    *count = l->wish_count;
    return l->requests;
}

static mo_status warm_from_profile(mo_learning *l, mo_progress_fn progress, void *user, mo_error *err)
{
    limit_keeping(l, l->requests, l->wish_count);
    return warm_store(l, l->requests, l->wish_count, l->wish_count ? l->requests[0].hits : 0, progress, user,
                      err);
}

static mo_status warm_from_file(const mo_learning *l, mo_progress_fn progress, void *user, mo_error *err)
{
    mo_warm_report report;
    const mo_status status =
        mo_warm_load(l->store, l->shape.fingerprint, l->warm_file, progress, user, &report, err);
    if (status == MO_OK) {
        mo_log(MO_LOG_INFO, "learning", "%s: %d experts, %.1f MiB in %.2f s", l->warm_file,
               (int)report.bricks, (double)report.bytes / (1 << 20), (double)report.time_ns * 1e-9);
    }
    return status == MO_ENOENT ? MO_OK : status;
}

static mo_status warm_hot_set(mo_learning *l, mo_progress_fn progress, void *user, mo_error *err)
{
    const mo_hot_set *set = &l->opening->hot;
    const mo_bricks *b = mo_store_bricks(l->store);
    l->hot = calloc((size_t)b->layers * (size_t)b->experts + 1, sizeof *l->hot);
    if (!l->hot) {
        return no_memory(err);
    }
    const mo_status status = warm_store(l, set->requests, set->count, 0, progress, user, err);
    for (int32_t i = 0; i < set->count; i++) {
        const mo_store_request *w = &set->requests[i];
        *hot_cell(l, w->layer, w->expert) = mo_store_resident(l->store, w->layer, w->expert);
    }
    return status;
}

/* What cannot be brought in now is read when it is needed: only a user who wants to stop is obeyed. */
static mo_status excuse(mo_status status, const mo_error *fault, mo_error *err)
{
    if (status == MO_ECANCELLED || status == MO_ENOMEM) {
        return mo_fail(err, status, "%s", fault->detail);
    }
    if (status != MO_OK) {
        say(fault);
    }
    return MO_OK;
}

static mo_status warm(mo_learning *l, mo_progress_fn progress, void *user, mo_error *err)
{
    mo_error fault = {0};
    if (!l->store) {
        return MO_OK;
    }
    if (l->still) {
        return excuse(warm_hot_set(l, progress, user, &fault), &fault, err);
    }
    mo_status status = MO_OK;
    if (l->warm_file) {
        status = excuse(warm_from_file(l, progress, user, &fault), &fault, err);
    }
    if (status == MO_OK && l->requests) { /* also tells the policy about what is there already */
        status = excuse(warm_from_profile(l, progress, user, &fault), &fault, err);
    }
    return status;
}

/* ---- Life ---- */

static mo_status check_options(const mo_opened *opening, const mo_learning_options *o, mo_error *err)
{
    if (o->profile && (!o->profile[0] || strlen(o->profile) >= PATH_MAX)) {
        return mo_fail(err, MO_EINVAL, "a profile is \"off\" or the path of a file");
    }
    if (o->warm_file && opening->hot.requests) {
        return mo_fail(err, MO_EINVAL,
                       "a warm-start file and a hot cache both say what lies in RAM; give --warm-file or "
                       "--moe-hot-cache, not both");
    }
    return MO_OK;
}

static mo_status open_learning(mo_learning *l, const mo_learning_options *o, mo_progress_fn progress,
                               void *user, mo_error *err)
{
    mo_status status = mo_learning_mode_find(o->perf_mode, &l->mode, err);
    if (status == MO_OK) {
        status = mo_shape_make(l->opening->model, &l->shape, err);
    }
    if (status == MO_OK) {
        status = mo_tally_create(&l->shape, &l->tally, err);
    }
    if (status != MO_OK) {
        return status;
    }
    l->warm_file = o->warm_file ? strdup(o->warm_file) : NULL;
    l->perf_out = o->perf_out ? strdup(o->perf_out) : NULL;
    if ((o->warm_file && !l->warm_file) || (o->perf_out && !l->perf_out)) {
        return no_memory(err);
    }
    if (l->perf_out && l->mode == MO_PROFILE_OFF) {
        l->mode = MO_PROFILE_FULL; /* a file of counts asks for counting */
    }
    if (l->rate > 0.0 && l->mode == MO_PROFILE_OFF) {
        mo_log(
            MO_LOG_WARN, "learning",
            "the hot cache has an update rate, but stays as it is: LLAMA_MOE_LAYER_PERF=off counts nothing");
    }
    if (l->warm_file && !l->store) {
        mo_log(MO_LOG_WARN, "learning",
               "%s is neither read nor written: the model has no experts that come and go", l->warm_file);
    }
    mo_profile *known = l->shape.layers > 0 ? read_profile(l, o->profile) : NULL;
    if (known) {
        status = list_requests(l, known, err);
    }
    mo_profile_free(known);
    return status == MO_OK ? warm(l, progress, user, err) : status;
}

static void destroy(mo_learning *l)
{
    mo_tally_destroy(l->tally);
    mo_profile_free(l->base);
    mo_profile_free(l->updated);
    mo_shape_drop(&l->shape);
    free(l->warm_file);
    free(l->perf_out);
    free(l->hot);
    free(l->requests);
    free(l);
}

mo_status mo_learning_open(const mo_opened *opening, const mo_learning_options *options,
                           const mo_hot_request *hot, mo_progress_fn progress, void *user, mo_learning **out,
                           mo_error *err)
{
    *out = NULL;
    mo_status status = check_options(opening, options, err);
    if (status != MO_OK) {
        return status;
    }
    mo_learning *l = calloc(1, sizeof *l);
    if (!l) {
        return no_memory(err);
    }
    l->opening = opening;
    l->store = opening->tiers ? opening->tiers->store : NULL;
    l->still = opening->hot.requests != NULL;
    l->weighting = hot->weighting;
    l->rate = hot->rate;
    status = open_learning(l, options, progress, user, err);
    if (status != MO_OK) {
        destroy(l);
        return status;
    }
    *out = l;
    return MO_OK;
}

static mo_status counted_since(const mo_learning *l, const mo_profile *before, mo_profile **out,
                               mo_error *err)
{
    const mo_status status = mo_tally_snapshot(l->tally, out, err);
    if (status == MO_OK && before) {
        mo_profile_subtract(*out, before);
    }
    return status;
}

static void save_profile(const mo_learning *l)
{
    mo_error err = {0}, moved = {0};
    mo_profile *counted = NULL;
    mo_status status = mo_tally_snapshot(l->tally, &counted, &err);
    if (status == MO_OK && mo_profile_usable(counted)) {
        status = mo_profile_file_add(l->profile, counted, &moved, &err);
        if (moved.status != MO_OK) {
            say(&moved);
        }
    }
    if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "learning", "what was learned in this run is lost: %s", err.detail);
    }
    mo_profile_free(counted);
}

static mo_status write_perf(const mo_learning *l, mo_error *err)
{
    char *text = NULL;
    size_t length = 0;
    mo_output *output = NULL;
    mo_status status = mo_learning_json(l, &text, &length, err);
    if (status == MO_OK) {
        text[length] = '\n'; /* in place of the terminator */
        status = mo_output_create(l->perf_out, length + 1, &output, err);
    }
    if (status == MO_OK) {
        status = mo_output_append(output, text, length + 1, err);
        if (status == MO_OK) {
            status = mo_output_commit(output, err);
        } else {
            mo_output_abort(output);
        }
    }
    free(text);
    return status;
}

void mo_learning_close(mo_learning *l)
{
    mo_error err = {0};
    mo_warm_report report;
    if (!l) {
        return;
    }
    if (l->writes && l->profile[0]) {
        save_profile(l);
    }
    if (l->perf_out && write_perf(l, &err) != MO_OK) {
        say(&err);
    }
    if (l->warm_file && l->store &&
        mo_warm_save(l->store, l->shape.fingerprint, l->warm_file, &report, &err) != MO_OK) {
        say(&err);
    }
    destroy(l);
}

/* ---- Telling ---- */

mo_status mo_learning_json(const mo_learning *l, char **text, size_t *length, mo_error *err)
{
    mo_profile *p = NULL;
    mo_status status = l->mode == MO_PROFILE_OFF ? MO_OK : counted_since(l, l->base, &p, err);
    if (status == MO_OK) {
        status = mo_profile_json_write(p, l->mode, text, length, err);
    }
    mo_profile_free(p);
    return status;
}

/* Puts a snapshot of now in the place of *before. */
static mo_status begin_anew(const mo_learning *l, mo_profile **before, mo_error *err)
{
    mo_profile *now = NULL;
    const mo_status status = mo_tally_snapshot(l->tally, &now, err);
    if (status == MO_OK) {
        mo_profile_free(*before);
        *before = now;
    }
    return status;
}

mo_status mo_learning_reset(mo_learning *l, mo_profile_mode mode, mo_error *err)
{
    mo_status status = begin_anew(l, &l->base, err);
    if (status == MO_OK) {
        status = begin_anew(l, &l->updated, err);
    }
    if (status == MO_OK) {
        l->mode = mode;
    }
    return status;
}

/* ---- Exchanging ---- */

/* Is the expert one of those that may be exchanged? */
static bool is_hot(const mo_learning *l, int layer, int expert)
{
    if (l->hot) {
        return *hot_cell(l, layer, expert);
    }
    return !l->store || mo_store_resident(l->store, layer, expert);
}

/* What lies in RAM, layer by layer. One block of memory: free() *out. */
static mo_status list_residents(const mo_learning *l, mo_resident **out, mo_error *err)
{
    size_t cells = 0;
    for (int32_t i = 0; i < l->shape.layers; i++) {
        cells += (size_t)l->shape.experts[i];
    }
    *out = calloc(1, (size_t)(l->shape.layers + 1) * sizeof **out + cells * sizeof(int32_t));
    if (!*out) {
        return no_memory(err);
    }
    int32_t *expert = (int32_t *)(*out + l->shape.layers + 1);
    for (int32_t i = 0; i < l->shape.layers; i++) {
        mo_resident *r = &(*out)[i];
        *r = (mo_resident){.layer = l->shape.layer[i], .experts = l->shape.experts[i], .expert = expert};
        for (int32_t e = 0; e < r->experts; e++) {
            if (is_hot(l, r->layer, e)) {
                expert[r->slots++] = e;
            }
        }
        expert += r->slots;
    }
    return MO_OK;
}

static mo_status exchange(mo_learning *l, const mo_exchange *x, mo_error *err)
{
    const mo_status status = mo_store_exchange(l->store, x->layer, x->evict, x->add, err);
    if (l->hot) {
        *hot_cell(l, x->layer, x->evict) = mo_store_resident(l->store, x->layer, x->evict);
        *hot_cell(l, x->layer, x->add) = status == MO_OK;
    }
    return status;
}

mo_status mo_learning_apply(mo_learning *l, mo_gpu *gpu, const mo_profile *profile, double rate,
                            mo_exchange_stats *stats, mo_error *err)
{
    mo_resident *residents = NULL;
    mo_exchange *list = NULL;
    size_t count = 0, done = 0;
    *stats = (mo_exchange_stats){0};
    if (gpu && mo_gpu_has_slots(gpu)) {
        return mo_gpu_apply(gpu, profile, &l->weighting, rate, mo_learning_tally(l), stats, err);
    }
    if (l->store) {
        mo_store_settle(l->store);
    }
    mo_status status = list_residents(l, &residents, err);
    if (status == MO_OK) {
        status = mo_exchange_from_profile(profile, &l->weighting, residents, l->shape.layers, rate, &list,
                                          &count, stats, err);
    }
    while (status == MO_OK && done < count) {
        status = exchange(l, &list[done], err);
        done += status == MO_OK;
    }
    stats->exchanged = done;
    stats->layers_changed = mo_exchange_layers(list, done);
    free(list);
    free(residents);
    return status;
}

mo_status mo_learning_apply_json(mo_learning *l, mo_gpu *gpu, const char *json, size_t length,
                                 mo_exchange_stats *stats, mo_error *err)
{
    mo_profile *read = NULL, *fitted = NULL;
    *stats = (mo_exchange_stats){0};
    mo_status status = mo_profile_json_read(json, length, &read, err);
    if (status == MO_OK) {
        status = mo_profile_fit(read, &l->shape, &fitted, err);
    }
    if (status == MO_OK && !mo_profile_usable(fitted)) {
        status =
            mo_fail(err, MO_EFORMAT, "the profile counts no experts at all, so there is nothing to apply");
    }
    if (status == MO_OK) {
        status = mo_learning_apply(l, gpu, fitted, 1.0, stats, err);
    }
    if (status == MO_OK) {
        status = begin_anew(l, &l->updated, err);
    }
    mo_profile_free(read);
    mo_profile_free(fitted);
    return status;
}

mo_status mo_learning_request_done(mo_learning *l, mo_gpu *gpu, mo_error *err)
{
    mo_status status = l->perf_out ? write_perf(l, err) : MO_OK;
    if (status == MO_OK && gpu) {
        status = mo_gpu_request_done(gpu, mo_learning_tally(l), err);
    }
    if (status == MO_OK && l->still && l->rate > 0.0 && l->mode != MO_PROFILE_OFF) {
        mo_profile *window = NULL;
        mo_exchange_stats stats;
        status = counted_since(l, l->updated, &window, err);
        if (status == MO_OK) {
            status = mo_learning_apply(l, NULL, window, l->rate, &stats, err);
        }
        if (status == MO_OK) {
            mo_log(MO_LOG_INFO, "learning",
                   "%.1f %% of the picks were hot; %" PRIu64 " of %" PRIu64 " experts exchanged, %" PRIu64
                   " would have helped",
                   100.0 * stats.hit_rate, stats.exchanged, stats.hot_experts, stats.candidates);
            status = begin_anew(l, &l->updated, err);
        }
        mo_profile_free(window);
    }
    return status;
}
