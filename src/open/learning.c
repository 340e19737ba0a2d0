#include "open/learning.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/output.h"
#include "base/status.h"
#include "experts/warm.h"
#include "open/warming.h"
#include "profile/file.h"

struct mo_learning {
    const mo_opened *opened;
    mo_store *store; /* NULL: all experts are in RAM */
    mo_profile_shape shape;
    mo_tally *tally;
    mo_profile_mode mode;
    mo_profile *base;       /* starting point of reports; NULL: none */
    char profile[PATH_MAX]; /* "": nothing is read or written */
    bool writes;            /* the profile is written on close */
    char *warm_file, *perf_out;
    mo_store_request *vram; /* experts that only a device had when it was closed */
    int32_t vram_count;
    bool perf_failed;           /* and the caller was notified */
    mo_where where;             /* locations: RAM or disk */
    mo_ahead ahead;             /* exchanges between them, */
    mo_hot_update *hot;         /* planned by this */
    mo_store_request *requests; /* from the profile when the model was opened; NULL: none */
    int32_t request_count;
};

/* ---- Helpers ---- */

mo_status mo_learning_mode_find(const char *name, mo_profile_mode *out, mo_error *err)
{
    *out = MO_PROFILE_FULL;
    for (int m = MO_PROFILE_OFF; name && m <= MO_PROFILE_FULL; m++) {
        if (strcmp(name, mo_profile_mode_name((mo_profile_mode)m)) == 0) {
            *out = (mo_profile_mode)m;
            return MO_OK;
        }
    }
    return name ? mo_fail(err, MO_EINVAL, "`perf_mode` must be full, update or off, not \"%.60s\"", name)
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
    return mo_fail(err, MO_ENOMEM, "out of memory for expert usage statistics; free some and try again");
}

/* ---- Reading the profile ---- */

/* A file named by the user is never moved, and replaced only if it is this model's own. */
static void read_named(mo_learning *l, mo_profile **out)
{
    mo_error err = {0};
    uint64_t found = 0;
    const mo_status status = mo_profile_named(l->profile, &l->shape, out, &found, &err);
    if (status == MO_ENOENT) {
        return; /* it will be created */
    }
    l->writes = status == MO_OK && found == l->shape.fingerprint;
    if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "learning", "%s; this run records no expert usage, and the file is not changed",
               err.detail);
    } else if (!l->writes) {
        mo_log(MO_LOG_WARN, "learning",
               "%s: the profile is not marked as this model's, so it is used but not updated", l->profile);
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

/* NULL: none. */
static mo_profile *read_profile(mo_learning *l, const char *option)
{
    mo_profile *p = NULL;
    if (!option || strcmp(option, "off") == 0) {
        return NULL;
    }
    l->writes = true;
    if (strcmp(option, "auto") != 0) {
        snprintf(l->profile, sizeof l->profile, "%s", option);
        read_named(l, &p);
    } else {
        read_own(l, &p);
    }
    return p;
}

/* ---- Open and close ---- */

static mo_status check_options(const mo_opened *opened, const mo_learning_options *o, mo_error *err)
{
    if (o->profile && (!o->profile[0] || strlen(o->profile) >= PATH_MAX)) {
        return mo_fail(err, MO_EINVAL, "`profile` must be \"off\", \"auto\" or the path of a file");
    }
    if (o->warm_file && opened->hot.requests) {
        return mo_fail(err, MO_EINVAL,
                       "a warm-start file and a hot cache both choose the experts "
                       "in RAM; give `warm_file` or `hot_cache.file`, not both");
    }
    return MO_OK;
}

/* Enables exchanges of the store's experts. Without a hot set they happen only on request, with the experts
 * that the policy keeps. */
static mo_status open_exchanges(mo_learning *l, const mo_hot_request *hot, mo_error *err)
{
    const mo_hot_set *set = &l->opened->hot;
    const mo_hot_update_options options = {.ahead = &l->ahead,
                                           .subsystem = "learning",
                                           .rate = hot->rate,
                                           .weighting = mo_hot_request_weighting(hot, l->opened->model)};
    mo_status status = MO_OK;
    l->where = (mo_where){.spec = mo_checkpoint_spec(l->opened->model), .store = l->store};
    l->ahead.where = &l->where;
    if (l->store && set->requests) {
        l->ahead.exchanges = hot->rate > 0.0;
        status = mo_ahead_keep_hot(&l->ahead, set->requests, set->count, err);
    }
    return status == MO_OK ? mo_hot_update_open(&options, &l->shape, &l->hot, err) : status;
}

/* Puts a warm-start file's order before the profile's: experts from VRAM count as hot as the hottest, those
 * from RAM half. */
static mo_status put_first(mo_learning *l, const mo_store_request *order, int32_t count, mo_error *err)
{
    const uint64_t most = l->request_count && l->requests[0].hits > 2 ? l->requests[0].hits : 2;
    mo_store_request *list = calloc((size_t)count + (size_t)l->request_count + 1, sizeof *list);
    if (!list) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < count; i++) {
        list[i] = order[i];
        list[i].hits = order[i].hits > 1 ? most : most / 2;
        for (int32_t k = 0; k < l->request_count && !list[i].keep;
             k++) { /* universal experts of the profile */
            list[i].keep = l->requests[k].keep && l->requests[k].layer == order[i].layer &&
                           l->requests[k].expert == order[i].expert;
        }
    }
    if (l->request_count > 0) {
        memcpy(list + count, l->requests, sizeof *list * (size_t)l->request_count);
    }
    free(l->requests);
    l->requests = list;
    l->request_count += count;
    return MO_OK;
}

static mo_status open_store(mo_learning *l, const mo_hot_request *hot, mo_progress_fn progress, void *user,
                            mo_error *err)
{
    mo_store_request *order = NULL;
    int32_t order_count = 0;
    const mo_warming warming = {.store = l->store,
                                .order = &order,
                                .order_count = &order_count,
                                .hot = &l->opened->hot,
                                .file = l->warm_file,
                                .fingerprint = l->shape.fingerprint,
                                .requests = l->requests,
                                .request_count = l->request_count,
                                .later = l->opened->choice.plan.device.ceiling > 0,
                                .progress = progress,
                                .user = user};
    mo_status status = l->store ? mo_warming_run(&warming, err) : MO_OK;
    if (status == MO_OK && order && warming.later) {
        status = put_first(l, order, order_count, err);
    }
    free(order);
    if (status == MO_OK) {
        status = open_exchanges(l, hot, err);
    }
    return status;
}

mo_status mo_learning_warm_rest(mo_learning *l, const mo_where *(*where)(void *owner, int layer), void *owner,
                                mo_progress_fn progress, void *user, mo_error *err)
{
    if (!l->store || l->request_count == 0) {
        return MO_OK;
    }
    mo_store_request *rest = malloc(sizeof *rest * (size_t)l->request_count);
    mo_warming warming = {
        .store = l->store, .hot = &l->opened->hot, .requests = rest, .progress = progress, .user = user};
    if (!rest) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < l->request_count; i++) {
        const mo_store_request *r = &l->requests[i];
        const mo_where *w = where(owner, r->layer);
        if (!w || !mo_where_address(w, r->layer, r->expert)) {
            rest[warming.request_count++] = *r;
        }
    }
    const mo_status status = mo_warming_run(&warming, err);
    free(rest);
    return status;
}

static mo_status open_learning(mo_learning *l, const mo_learning_options *o, const mo_hot_request *hot,
                               mo_progress_fn progress, void *user, mo_error *err)
{
    mo_status status = mo_learning_mode_find(o->perf_mode, &l->mode, err);
    if (status == MO_OK) {
        status = mo_shape_make(l->opened->model, &l->shape, err);
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
        l->mode = MO_PROFILE_FULL; /* a perf file implies counting */
    }
    if (hot->rate > 0.0 && l->mode == MO_PROFILE_OFF) {
        mo_log(MO_LOG_WARN, "learning",
               "the update rate of the hot cache has no effect: LLAMA_MOE_LAYER_PERF=off disables counting");
    }
    if (l->warm_file && !l->store) {
        mo_log(MO_LOG_WARN, "learning", "%s is neither read nor written: %s", l->warm_file,
               l->shape.layers > 0 ? "all experts are loaded at the start" : "the model has no experts");
    }
    mo_profile *known = l->shape.layers > 0 ? read_profile(l, o->profile) : NULL;
    if (known) {
        status = mo_warming_list(known, &l->requests, &l->request_count, err);
    }
    mo_profile_free(known);
    return status == MO_OK ? open_store(l, hot, progress, user, err) : status;
}

static void destroy(mo_learning *l)
{
    mo_tally_destroy(l->tally);
    mo_profile_free(l->base);
    mo_shape_drop(&l->shape);
    free(l->warm_file);
    free(l->vram);
    free(l->perf_out);
    mo_hot_update_close(l->hot);
    mo_ahead_close(&l->ahead);
    free(l->requests);
    free(l);
}

mo_status mo_learning_open(const mo_opened *opened, const mo_learning_options *options,
                           const mo_hot_request *hot, mo_progress_fn progress, void *user, mo_learning **out,
                           mo_error *err)
{
    *out = NULL;
    mo_status status = check_options(opened, options, err);
    if (status != MO_OK) {
        return status;
    }
    mo_learning *l = calloc(1, sizeof *l);
    if (!l) {
        return no_memory(err);
    }
    l->opened = opened;
    l->store = opened->tiers ? opened->tiers->store : NULL;
    status = open_learning(l, options, hot, progress, user, err);
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
        mo_log(MO_LOG_WARN, "learning", "the expert usage recorded in this run is lost: %s", err.detail);
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

void mo_learning_note_vram(mo_learning *l, mo_store_request *list, int32_t count)
{
    free(l->vram);
    l->vram = list;
    l->vram_count = count;
}

bool mo_learning_saves_warm(const mo_learning *l)
{
    return l && l->warm_file && l->store;
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
    if (l->perf_out && write_perf(l, &err) != MO_OK && !l->perf_failed) {
        say(&err);
    }
    if (l->warm_file && l->store &&
        mo_warm_save(l->store, l->shape.fingerprint, l->warm_file, l->vram, l->vram_count, &report, &err) !=
            MO_OK) {
        say(&err);
    }
    destroy(l);
}

/* ---- Reports ---- */

const mo_store_request *mo_learning_requests(const mo_learning *l, int32_t *count)
{
    *count = l->request_count;
    return l->requests;
}

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

/* Cache number i; without device caches the first is RAM's. */
static mo_hot_update *cache_at(const mo_learning *l, const mo_hot_caches *hot, int i)
{
    return hot->count ? hot->of[i] : l->hot;
}

mo_status mo_learning_reset(mo_learning *l, const mo_hot_caches *hot, mo_profile_mode mode, mo_error *err)
{
    mo_profile *now = NULL;
    mo_status status = mo_tally_snapshot(l->tally, &now, err);
    if (status == MO_OK) {
        mo_profile_free(l->base);
        l->base = now;
    }
    for (int i = 0; status == MO_OK && (i == 0 || i < hot->count); i++) {
        status = mo_hot_update_begin_window(cache_at(l, hot, i), l->tally, err);
    }
    if (status == MO_OK) {
        l->mode = mode;
    }
    return status;
}

/* ---- The hot cache ---- */

/* Adds the exchanges of another cache. Each cache reports all picks, so these are not added. */
static void add_stats(mo_exchange_stats *sum, const mo_exchange_stats *s)
{
    sum->active |= s->active;
    sum->update_rate = s->update_rate;
    sum->candidates += s->candidates;
    sum->max_exchange += s->max_exchange;
    sum->exchanged += s->exchanged;
    sum->hot_experts += s->hot_experts;
    sum->layers_changed += s->layers_changed;
}

mo_status mo_learning_apply_json(mo_learning *l, const mo_hot_caches *hot, const char *json, size_t length,
                                 mo_exchange_stats *stats, mo_error *err)
{
    mo_profile *read = NULL, *fitted = NULL;
    *stats = (mo_exchange_stats){0};
    mo_status status = mo_profile_json_read(json, length, &read, err);
    if (status == MO_OK) {
        status = mo_profile_fit(read, &l->shape, &fitted, err);
    }
    if (status == MO_OK && !mo_profile_usable(fitted)) {
        status = mo_fail(err, MO_EFORMAT, "the profile has no expert counts, so there is nothing to apply");
    }
    for (int i = 0; status == MO_OK && (i == 0 || i < hot->count); i++) {
        mo_exchange_stats one = {0};
        status = mo_hot_update_apply(cache_at(l, hot, i), fitted, 1.0, mo_learning_tally(l), &one, err);
        add_stats(stats, &one);
    }
    mo_profile_free(read);
    mo_profile_free(fitted);
    return status;
}

mo_status mo_learning_request_done(mo_learning *l, const mo_hot_caches *hot, mo_error *err)
{
    mo_status status = l->perf_out ? write_perf(l, err) : MO_OK;
    l->perf_failed = status != MO_OK;
    for (int i = 0; status == MO_OK && (i == 0 || i < hot->count); i++) {
        status = mo_hot_update_request_done(cache_at(l, hot, i), mo_learning_tally(l), err);
    }
    return status;
}
