#include "hotcache/update.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

struct mo_hot_update {
    mo_hot_update_options options;
    int32_t layers, *layer, *experts; /* [layers] the routed layers, and the number of experts in each */
    mo_profile *before;               /* counts at the beginning of the window; NULL: zeros */
    int64_t tokens;                   /* generated since then */
    uint64_t updates;
};

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory while planning exchanges; free some and try again");
}

/* ---- Opening and closing ---- */

mo_status mo_hot_update_open(const mo_hot_update_options *options, const mo_profile_shape *shape,
                             mo_hot_update **out, mo_error *err)
{
    const size_t layers = (size_t)shape->layers;
    mo_hot_update *u = calloc(1, sizeof *u + 2 * layers * sizeof(int32_t));
    *out = u;
    if (!u) {
        return no_memory(err);
    }
    u->options = *options;
    u->layers = shape->layers;
    u->layer = (int32_t *)(u + 1);
    u->experts = u->layer + layers;
    if (layers > 0) {
        memcpy(u->layer, shape->layer, layers * sizeof *u->layer);
        memcpy(u->experts, shape->experts, layers * sizeof *u->experts);
    }
    return MO_OK;
}

void mo_hot_update_close(mo_hot_update *u)
{
    if (u) {
        mo_profile_free(u->before);
        free(u);
    }
}

mo_hot_counters mo_hot_update_count(const mo_hot_update *u)
{
    const mo_ahead *a = u->options.ahead;
    return (mo_hot_counters){.updates = u->updates,
                             .exchanged = a->counters.exchanged,
                             .failed = a->counters.failed,
                             .planned = a->queued,
                             .under_way = mo_ahead_exchanging(a)};
}

/* ---- Planning ---- */

/* Lists the cached experts by layer. Exchanges in progress count as done, and their experts must stay. One
   block of memory: free() it. */
static mo_resident *list_residents(const mo_hot_update *u)
{
    const mo_ahead *a = u->options.ahead;
    size_t cells = 0;
    for (int32_t i = 0; i < u->layers; i++) {
        cells += (size_t)u->experts[i];
    }
    mo_resident *list =
        calloc(1, (size_t)(u->layers + 1) * sizeof *list + cells * (sizeof(int32_t) + sizeof(bool)));
    int32_t *expert = (int32_t *)(list + u->layers + 1);
    bool *kept = (bool *)(expert + cells);
    for (int32_t i = 0; list && i < u->layers; i++) {
        mo_resident *r = &list[i];
        *r = (mo_resident){.layer = u->layer[i], .experts = u->experts[i], .expert = expert, .kept = kept};
        for (int32_t e = 0; e < r->experts; e++) {
            const bool coming = mo_ahead_comes(a, r->layer, e);
            if (coming || (mo_ahead_holds(a, r->layer, e) && !mo_ahead_goes(a, r->layer, e))) {
                kept[r->slots] = coming;
                expert[r->slots++] = e;
            }
        }
        expert += r->slots;
        kept += r->slots;
    }
    return list;
}

static mo_status plan(const mo_hot_update *u, const mo_profile *profile, double rate, mo_exchange **list,
                      size_t *count, mo_exchange_stats *stats, mo_error *err)
{
    mo_resident *residents = list_residents(u);
    *list = NULL;
    *count = 0;
    *stats = (mo_exchange_stats){0};
    const mo_status status = residents ? mo_exchange_from_profile(profile, &u->options.weighting, residents,
                                                                  u->layers, rate, list, count, stats, err)
                                       : no_memory(err);
    free(residents);
    return status;
}

mo_status mo_hot_update_begin_window(mo_hot_update *u, const mo_tally *tally, mo_error *err)
{
    mo_profile *now = NULL;
    const mo_status status = mo_tally_snapshot(tally, &now, err);
    if (status == MO_OK) {
        mo_profile_free(u->before);
        u->before = now;
        u->tokens = 0;
    }
    return status;
}

/* Replaces exchanges that have not begun, because they were planned from older counts. */
static mo_status adopt_plan(mo_hot_update *u, mo_exchange *list, size_t count, const mo_profile *window,
                            const mo_exchange_stats *stats, const mo_tally *tally, mo_error *err)
{
    const mo_hot_update_options *o = &u->options;
    size_t pay = count;
    if (o->rates) {
        const mo_exchange_rates rates = o->rates(o->owner);
        pay = mo_exchange_pay_back(list, count, window, &rates);
    }
    mo_move *moves = calloc(pay + 1, sizeof *moves);
    if (!moves) {
        return no_memory(err);
    }
    for (size_t i = 0; i < pay; i++) {
        moves[i] = (mo_move){list[i].layer, list[i].add, list[i].evict};
    }
    mo_ahead_queue(o->ahead, moves, pay);
    u->updates++;
    mo_log(MO_LOG_INFO, o->subsystem,
           "%.1f %% of the picks hit the hot cache; exchanging %zu of %" PRIu64 " experts in %" PRIu64
           " layers; %" PRIu64 " would have helped, %zu were not worth their cost",
           100.0 * stats->hit_rate, pay, stats->hot_experts, mo_exchange_layers(list, pay), stats->candidates,
           count - pay);
    /* If copies have a cost, short requests with little evidence are combined. */
    const bool over = pay > 0 || o->window == 0 || u->tokens > o->window;
    return over ? mo_hot_update_begin_window(u, tally, err) : MO_OK;
}

static mo_status plan_update(mo_hot_update *u, const mo_tally *tally, mo_error *err)
{
    mo_profile *window = NULL;
    mo_exchange *list = NULL;
    mo_exchange_stats stats = {0};
    size_t count = 0;
    mo_status status = mo_tally_snapshot(tally, &window, err);
    if (status == MO_OK && u->before) {
        mo_profile_subtract(window, u->before);
    }
    if (status == MO_OK) {
        status = plan(u, window, u->options.rate, &list, &count, &stats, err);
    }
    if (status == MO_OK && stats.hot_slots + stats.cold_slots > 0) {
        status = adopt_plan(u, list, count, window, &stats, tally, err);
    }
    free(list);
    mo_profile_free(window);
    return status;
}

/* A failed plan costs hits, but does not fail the step. */
static void update(mo_hot_update *u, const mo_tally *tally)
{
    mo_error err = {0};
    if (plan_update(u, tally, &err) != MO_OK) {
        u->tokens = 0; /* try again later, not at every token */
        mo_log(MO_LOG_WARN, u->options.subsystem, "the hot cache is unchanged: %s", err.detail);
    }
}

mo_status mo_hot_update_turn(mo_hot_update *u, const mo_tally *tally, int64_t tokens, mo_error *err)
{
    const mo_hot_update_options *o = &u->options;
    mo_status status = MO_OK;
    u->tokens += tokens;
    if (o->ahead->exchanges && o->window > 0 && u->tokens > o->window && tally) {
        status = mo_ahead_land(o->ahead, err);
        if (status == MO_OK) {
            update(u, tally);
        }
    }
    return status;
}

mo_status mo_hot_update_request_done(mo_hot_update *u, const mo_tally *tally, mo_error *err)
{
    mo_ahead *a = u->options.ahead;
    if (!a->exchanges || !tally) {
        return MO_OK;
    }
    const mo_status status = mo_ahead_land(a, err);
    if (status == MO_OK) {
        update(u, tally);
    }
    return status == MO_OK ? mo_ahead_exchange(a, err) : status;
}

/* ---- On request ---- */

mo_status mo_hot_update_apply(mo_hot_update *u, const mo_profile *profile, double rate, const mo_tally *tally,
                              mo_exchange_stats *stats, mo_error *err)
{
    mo_ahead *a = u->options.ahead;
    mo_exchange *list = NULL;
    size_t count = 0, done = 0;
    *stats = (mo_exchange_stats){0};
    mo_status status = mo_ahead_settle(a, err);
    if (status == MO_OK) {
        status = plan(u, profile, rate, &list, &count, stats, err);
    }
    while (status == MO_OK && done < count) {
        const mo_move move = {list[done].layer, list[done].add, list[done].evict};
        status = mo_ahead_exchange_now(a, &move, err);
        done += status == MO_OK;
    }
    stats->exchanged = done;
    stats->layers_changed = mo_exchange_layers(list, done);
    free(list);
    mo_error later = {0}; /* publish what was done even after an error */
    const mo_status published = mo_ahead_publish(a, &later);
    if (status == MO_OK && published != MO_OK) {
        status = mo_fail(err, published, "%s", later.detail);
    }
    return status == MO_OK && tally ? mo_hot_update_begin_window(u, tally, err) : status;
}
