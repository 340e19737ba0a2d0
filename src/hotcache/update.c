#include "hotcache/update.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

typedef struct move {
    mo_exchange x;
    bool busy;
} move;

struct mo_hot_update {
    mo_hot_tier tier;
    mo_weighting_options weighting;
    double rate;
    int32_t layers, *layer, *experts; /* [layers] the routed ones, and how many experts each has */
    mo_exchange *list;                /* planned and not begun */
    size_t count;
    move moves[MO_HOT_MOVES];
    mo_profile *before; /* what was counted when the window began; NULL: nothing */
    int64_t tokens;     /* generated since */
    mo_hot_counters counters;
};

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory while planning exchanges; free some and try again");
}

/* ---- Life ---- */

mo_status mo_hot_update_open(const mo_hot_tier *tier, const mo_profile_shape *shape,
                             const mo_weighting_options *weighting, double rate, mo_hot_update **out,
                             mo_error *err)
{
    const size_t layers = (size_t)shape->layers;
    mo_hot_update *u = calloc(1, sizeof *u + 2 * layers * sizeof(int32_t));
    *out = u;
    if (!u) {
        return no_memory(err);
    }
    u->tier = *tier;
    u->weighting = *weighting;
    u->rate = rate;
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
        free(u->list);
        free(u);
    }
}

mo_hot_counters mo_hot_update_count(const mo_hot_update *u)
{
    mo_hot_counters c = u->counters;
    c.planned = u->count;
    for (int i = 0; i < MO_HOT_MOVES; i++) {
        c.under_way += u->moves[i].busy;
    }
    return c;
}

/* ---- Planning ---- */

static bool is_moving(const mo_hot_update *u, int layer, int expert, bool add)
{
    for (int i = 0; i < u->tier.moves; i++) {
        const move *m = &u->moves[i];
        if (m->busy && m->x.layer == layer && (add ? m->x.add : m->x.evict) == expert) {
            return true;
        }
    }
    return false;
}

/* What the tier holds, layer by layer; exchanges under way count as done, and stay. One block of memory: free() it. */
static mo_resident *list_residents(const mo_hot_update *u)
{
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
            const bool coming = is_moving(u, r->layer, e, true);
            if (coming || (u->tier.holds(u->tier.owner, r->layer, e) && !is_moving(u, r->layer, e, false))) {
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
    const mo_status status = residents ? mo_exchange_from_profile(profile, &u->weighting, residents,
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

/* Puts the plan in the place of what was not begun: that was planned from older counts. */
static mo_status adopt_plan(mo_hot_update *u, mo_exchange *list, size_t count, const mo_profile *window,
                            const mo_exchange_stats *stats, const mo_tally *tally, mo_error *err)
{
    size_t pay = count;
    if (u->tier.rates) {
        const mo_exchange_rates rates = u->tier.rates(u->tier.owner);
        pay = mo_exchange_pay_back(list, count, window, &rates);
    }
    free(u->list);
    u->list = list;
    u->count = pay;
    u->counters.updates++;
    mo_log(MO_LOG_INFO, u->tier.subsystem,
           "%.1f %% of the picks hit the hot cache; exchanging %zu of %" PRIu64 " experts in %" PRIu64
           " layers; %" PRIu64 " would have helped, %zu were not worth their cost",
           100.0 * stats->hit_rate, pay, stats->hot_experts, mo_exchange_layers(list, pay), stats->candidates,
           count - pay);
    /* Where copies have a price, short requests that show too little are looked at together. */
    const bool over = pay > 0 || u->tier.window == 0 || u->tokens > u->tier.window;
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
        status = plan(u, window, u->rate, &list, &count, &stats, err);
    }
    if (status == MO_OK && stats.hot_slots + stats.cold_slots > 0) {
        status = adopt_plan(u, list, count, window, &stats, tally, err);
    } else {
        free(list);
    }
    mo_profile_free(window);
    return status;
}

/* An update that cannot be planned costs hits, not the step. */
static void update(mo_hot_update *u, const mo_tally *tally)
{
    mo_error err = {0};
    if (plan_update(u, tally, &err) != MO_OK) {
        u->tokens = 0; /* try again later, not at every token */
        mo_log(MO_LOG_WARN, u->tier.subsystem, "the hot cache is unchanged: %s", err.detail);
    }
}

/* ---- Carrying out ---- */

static mo_status land(mo_hot_update *u, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < u->tier.moves && status == MO_OK; i++) {
        move *m = &u->moves[i];
        bool done = false;
        if (m->busy) {
            status = u->tier.landed(u->tier.owner, i, &m->x, &done, err);
        }
        if (status == MO_OK && done) {
            m->busy = false;
            u->counters.exchanged++;
        }
    }
    return status;
}

static mo_status begin(mo_hot_update *u, int number, const mo_exchange *x, mo_hot_begun *begun, mo_error *err)
{
    const mo_status status = u->tier.begin(u->tier.owner, number, x, begun, err);
    u->counters.exchanged += *begun == MO_HOT_DONE;
    u->counters.failed += *begun == MO_HOT_FAILED;
    return status;
}

static mo_status begin_some(mo_hot_update *u, mo_error *err)
{
    mo_status status = MO_OK;
    size_t kept = 0;
    for (size_t i = 0; i < u->count; i++) {
        mo_hot_begun begun = MO_HOT_LATER;
        int idle = 0;
        while (idle < u->tier.moves && u->moves[idle].busy) {
            idle++;
        }
        if (idle < u->tier.moves && status == MO_OK) {
            status = begin(u, idle, &u->list[i], &begun, err);
        }
        if (begun == MO_HOT_UNDER_WAY) {
            u->moves[idle] = (move){.x = u->list[i], .busy = true};
        } else if (begun == MO_HOT_LATER) {
            u->list[kept++] = u->list[i];
        }
    }
    u->count = kept;
    return status;
}

static mo_status switch_over(mo_hot_update *u, bool wait, mo_error *err)
{
    return u->tier.switch_over ? u->tier.switch_over(u->tier.owner, wait, err) : MO_OK;
}

mo_status mo_hot_update_turn(mo_hot_update *u, const mo_tally *tally, int64_t tokens, mo_error *err)
{
    mo_status status = MO_OK;
    if (u->tier.moves > 0) {
        status = land(u, err);
        u->tokens += tokens;
        if (status == MO_OK && u->tier.window > 0 && u->tokens > u->tier.window && tally) {
            update(u, tally);
        }
        if (status == MO_OK) {
            status = begin_some(u, err);
        }
    }
    return status == MO_OK ? switch_over(u, false, err) : status;
}

mo_status mo_hot_update_request_done(mo_hot_update *u, const mo_tally *tally, mo_error *err)
{
    if (u->tier.moves == 0 || !tally) {
        return MO_OK;
    }
    mo_status status = land(u, err);
    if (status == MO_OK) {
        update(u, tally);
        status = begin_some(u, err);
    }
    return status;
}

/* ---- By hand ---- */

static mo_status settle(mo_hot_update *u, mo_error *err)
{
    u->count = 0;
    const mo_status status = u->tier.settle(u->tier.owner, err);
    return status == MO_OK ? land(u, err) : status;
}

mo_status mo_hot_update_apply(mo_hot_update *u, const mo_profile *profile, double rate, const mo_tally *tally,
                              mo_exchange_stats *stats, mo_error *err)
{
    mo_exchange *list = NULL;
    size_t count = 0, done = 0;
    *stats = (mo_exchange_stats){0};
    mo_status status = settle(u, err);
    if (status == MO_OK) {
        status = plan(u, profile, rate, &list, &count, stats, err);
    }
    while (status == MO_OK && done < count) {
        mo_hot_begun begun = MO_HOT_LATER;
        status = begin(u, MO_HOT_NOW, &list[done], &begun, err);
        done += status == MO_OK;
    }
    stats->exchanged = done;
    stats->layers_changed = mo_exchange_layers(list, done);
    free(list);
    mo_error later = {0}; /* steps see what was done, whatever else went wrong */
    const mo_status switched = switch_over(u, true, &later);
    if (status == MO_OK && switched != MO_OK) {
        status = mo_fail(err, switched, "%s", later.detail);
    }
    return status == MO_OK && tally ? mo_hot_update_begin_window(u, tally, err) : status;
}
