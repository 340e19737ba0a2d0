#include "profile/replay.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "experts/slots.h"

enum { CLASS_LIMIT = 16 }; /* the same as the store's: models with more sizes share the larger ones */

/* ---- Reading a trace ---- */

typedef struct need {
    int32_t expert;
    uint32_t picks;
} need;

/* The current layer of the current pass. */
typedef struct cursor {
    const mo_trace *trace;
    int64_t cut; /* maximum tokens of a pass */
    int64_t step;
    int64_t done;          /* tokens of the step in earlier passes */
    const uint16_t *first; /* ids of the pass' first token */
    /* The position: */
    uint64_t pass; /* from 1 */
    int64_t tokens;
    int layer; /* -1: before the first */
    need *needs;
    int count;
    int32_t *place; /* [experts] index of an expert in needs, or -1 */
} cursor;

static bool cursor_begin(cursor *w, mo_arena *memory, const mo_trace *trace, int cut)
{
    const size_t experts = (size_t)trace->shape.experts;
    *w = (cursor){.trace = trace, .cut = cut ? cut : INT64_MAX, .first = trace->ids, .layer = -1};
    w->needs = mo_arena_array(memory, experts, sizeof *w->needs);
    w->place = mo_arena_array(memory, experts, sizeof *w->place);
    if (!w->needs || !w->place) {
        return false;
    }
    memset(w->place, -1, experts * sizeof *w->place);
    return true;
}

static int by_expert(const void *left, const void *right)
{
    const need *a = left, *b = right;
    return (a->expert > b->expert) - (a->expert < b->expert);
}

/* Lists the layer's distinct experts in ascending order, as the engine does. */
static void gather(cursor *w)
{
    const mo_trace_shape *s = &w->trace->shape;
    const size_t token_ids = (size_t)s->layers * (size_t)s->used;
    for (int i = 0; i < w->count; i++) {
        w->place[w->needs[i].expert] = -1;
    }
    w->count = 0;
    for (int64_t t = 0; t < w->tokens; t++) {
        const uint16_t *ids = w->first + (size_t)t * token_ids + (size_t)w->layer * (size_t)s->used;
        for (int i = 0; i < s->used; i++) {
            int32_t *place = &w->place[ids[i]];
            if (*place < 0) {
                *place = w->count;
                w->needs[w->count++] = (need){.expert = ids[i]};
            }
            w->needs[*place].picks++;
        }
    }
    qsort(w->needs, (size_t)w->count, sizeof *w->needs, by_expert);
}

/* Advances to the next layer or pass. False at the end. */
static bool cursor_next(cursor *w)
{
    const mo_trace *t = w->trace;
    const size_t token_ids = (size_t)t->shape.layers * (size_t)t->shape.used;
    if (w->layer >= 0 && ++w->layer < t->shape.layers) {
        gather(w);
        return true;
    }
    if (w->layer >= 0) {
        w->first += (size_t)w->tokens * token_ids;
        w->done += w->tokens;
        if (w->done == t->steps[w->step].tokens) {
            w->step++;
            w->done = 0;
        }
    }
    if (w->step == t->step_count) {
        return false;
    }
    const int64_t left = t->steps[w->step].tokens - w->done;
    w->tokens = left < w->cut ? left : w->cut;
    w->pass++;
    w->layer = 0;
    gather(w);
    return true;
}

/* ---- Classes ------------------------------------------------------------------------------------ */

typedef struct class
{
    int64_t bytes; /* of one slot */
    int64_t all;   /* of all its experts */
    int32_t experts, slot_count;
    mo_slots *slots;
} class;

typedef struct replay {
    const mo_trace *trace;
    const mo_replay_setup *options;
    mo_replay_report *out;
    mo_error *err;
    mo_arena *memory;
    class classes[CLASS_LIMIT];
    int class_count;
    int *class_of;  /* [layers] */
    int32_t *first; /* [layers] number of the layer's expert 0 in its class */
    uint64_t *next; /* for the optimum: for each need, in trace order, when it is needed next */
    bool *pinned;   /* [experts] by index in the current needs */
    int *missing;   /* [experts] indices of missing experts */
} replay;

/* Chooses the class of a layer's experts. Sizes beyond the limit use the smallest class that fits. */
static void assign(replay *r, int layer, const int64_t *sizes, int count)
{
    const mo_trace_shape *s = &r->trace->shape;
    int at = 0; /* sizes descend */
    while (at + 1 < count && sizes[at + 1] >= s->expert_bytes[layer]) {
        at++;
    }
    class *c = &r->classes[at];
    r->class_of[layer] = at;
    r->first[layer] = c->experts;
    c->experts += s->experts;
    c->all += s->expert_bytes[layer] * s->experts;
}

static mo_status find_classes(replay *r)
{
    const mo_trace_shape *s = &r->trace->shape;
    int64_t sizes[CLASS_LIMIT] = {0};
    int64_t above = INT64_MAX;
    if ((int64_t)s->layers * s->experts > INT32_MAX) {
        return mo_fail(r->err, MO_EUNSUPPORTED, "a model of %d layers with %d experts each is too large",
                       s->layers, s->experts);
    }
    r->class_of = mo_arena_array(r->memory, (size_t)s->layers, sizeof *r->class_of);
    r->first = mo_arena_array(r->memory, (size_t)s->layers, sizeof *r->first);
    if (!r->class_of || !r->first) {
        return mo_fail(r->err, MO_ENOMEM, "out of memory while replaying a trace");
    }
    while (r->class_count < CLASS_LIMIT) {
        int64_t largest = 0;
        for (int i = 0; i < s->layers; i++) {
            const int64_t bytes = s->expert_bytes[i];
            largest = bytes < above && bytes > largest ? bytes : largest;
        }
        if (largest == 0) {
            break;
        }
        sizes[r->class_count] = above = largest;
        r->classes[r->class_count++].bytes = largest;
    }
    for (int i = 0; i < s->layers; i++) {
        assign(r, i, sizes, r->class_count);
    }
    return MO_OK;
}

/* Computes the slots of every class: its share of the budget, at least a token's experts, at most all. */
static mo_status split_budget(replay *r)
{
    const int used = r->trace->shape.used;
    int64_t all = 0, least = 0;
    for (int i = 0; i < r->class_count; i++) {
        all += r->classes[i].all;
        least += r->classes[i].bytes * used;
    }
    if (r->options->budget_bytes < least) {
        return mo_fail(r->err, MO_EINVAL,
                       "`budget_bytes` of %" PRId64 " is too small: the experts of "
                       "one layer that a token uses need %" PRId64,
                       r->options->budget_bytes, least);
    }
    /* Each class has its minimum; the rest is distributed. Products of two byte counts exceed 64 bits. */
    const unsigned __int128 spare = (unsigned __int128)(r->options->budget_bytes - least);
    const unsigned __int128 above = all > least ? (unsigned __int128)(all - least) : 1;
    for (int i = 0; i < r->class_count; i++) {
        class *c = &r->classes[i];
        const int64_t rest = c->all > c->bytes * used ? c->all - c->bytes * used : 0;
        const unsigned __int128 more = spare * (uint64_t)rest / (above * (uint64_t)c->bytes);
        c->slot_count = more >= (uint64_t)(c->experts - used) ? c->experts : used + (int32_t)more;
        r->out->slots += c->slot_count;
        r->out->experts += c->experts;
        r->out->slot_bytes += c->slot_count * c->bytes;
    }
    return MO_OK;
}

/* ---- The optimum -------------------------------------------------------------------------------- */

/* `now` is when the expert is needed next: the last needed have the lowest keys. */
static void touch_next(mo_policy_entry *entry, uint64_t now, uint32_t picks)
{
    (void)picks;
    entry->key = -(double)now;
}

static void seed_nothing(mo_policy_entry *entry, uint64_t hits, uint64_t most)
{
    (void)hits;
    (void)most;
    entry->key = -1e300;
}

static const mo_policy optimum = {
    .name = "optimum", .summary = "", .touch = touch_next, .seed = seed_nothing};

static uint64_t moment(const cursor *w)
{
    return w->pass * (uint64_t)w->trace->shape.layers + (uint64_t)w->layer;
}

/* Fills r->next: one pass forward lists the needs, one backward finds the next use of each. */
static mo_status look_ahead(replay *r)
{
    const mo_trace_shape *s = &r->trace->shape;
    cursor w;
    size_t count = 0, at = 0;
    uint64_t *seen = mo_arena_array(r->memory, (size_t)s->layers * (size_t)s->experts, sizeof *seen);
    uint32_t *expert_id = NULL;
    bool fine = seen && cursor_begin(&w, r->memory, r->trace, r->options->step);
    while (fine && cursor_next(&w)) {
        count += (size_t)w.count;
    }
    if (fine) {
        r->next = mo_arena_array(r->memory, count, sizeof *r->next);
        expert_id = mo_arena_array(r->memory, count, sizeof *expert_id);
        fine = r->next && expert_id && cursor_begin(&w, r->memory, r->trace, r->options->step);
    }
    if (!fine) {
        return mo_fail(r->err, MO_ENOMEM, "out of memory while looking ahead in the trace");
    }
    while (cursor_next(&w)) {
        for (int i = 0; i < w.count; i++, at++) {
            expert_id[at] = (uint32_t)(w.layer * s->experts + w.needs[i].expert);
            r->next[at] = moment(&w);
        }
    }
    while (at-- > 0) {
        const uint64_t here = r->next[at];
        r->next[at] = seen[expert_id[at]] ? seen[expert_id[at]] : UINT64_MAX;
        seen[expert_id[at]] = here;
    }
    return MO_OK;
}

/* ---- Warm start --------------------------------------------------------------------------------- */

/* Gives the seeds to the policy, then fills the slots, most frequent first. */
static mo_status warm(replay *r)
{
    const mo_trace_shape *s = &r->trace->shape;
    const uint64_t *seeds = r->options->seeds;
    const int64_t experts = (int64_t)s->layers * s->experts;
    uint64_t most = 0;
    for (int64_t i = 0; i < experts; i++) {
        most = seeds[i] > most ? seeds[i] : most;
    }
    for (int64_t i = 0; i < experts && most; i++) {
        const int layer = (int)(i / s->experts);
        mo_slots_seed(r->classes[r->class_of[layer]].slots, r->first[layer] + (int32_t)(i % s->experts),
                      seeds[i], most);
    }
    bool *in = mo_arena_array(r->memory, (size_t)experts, sizeof *in);
    if (!in) {
        return mo_fail(r->err, MO_ENOMEM, "out of memory for a warm start");
    }
    for (;;) { /* once for each slot, because replays are small */
        int64_t best = -1;
        for (int64_t i = 0; i < experts; i++) {
            const class *c = &r->classes[r->class_of[i / s->experts]];
            if (!in[i] && seeds[i] && mo_slots_free(c->slots) && (best < 0 || seeds[i] > seeds[best])) {
                best = i;
            }
        }
        if (best < 0) {
            return MO_OK;
        }
        const int layer = (int)(best / s->experts);
        const int32_t expert_id = r->first[layer] + (int32_t)(best % s->experts);
        int32_t evicted;
        in[best] = true;
        mo_slots_acquire(r->classes[r->class_of[layer]].slots, expert_id, &evicted);
        mo_slots_unpin(r->classes[r->class_of[layer]].slots, expert_id);
    }
}

/* ---- Running ------------------------------------------------------------------------------------ */

/* Allows the eviction of experts that have been computed. */
static void release(replay *r, const cursor *w, mo_slots *slots)
{
    for (int i = 0; i < w->count; i++) {
        if (r->pinned[i]) {
            mo_slots_unpin(slots, r->first[w->layer] + w->needs[i].expert);
            r->pinned[i] = false;
        }
    }
}

/* Processes a layer's needs: cached experts are pinned, others take slots, and all stay until the layer ends.
   If there are more needs than slots, computed experts are evicted. Returns the number of missing experts. */
static int serve(replay *r, const cursor *w)
{
    mo_slots *slots = r->classes[r->class_of[w->layer]].slots;
    const int32_t first = r->first[w->layer];
    int missing = 0;
    for (int i = 0; i < w->count; i++) {
        const int32_t expert_id = first + w->needs[i].expert;
        mo_slots_touch(slots, expert_id, r->next ? *r->next++ : w->pass, w->needs[i].picks);
    }
    for (int i = 0; i < w->count; i++) {
        const int32_t expert_id = first + w->needs[i].expert;
        r->pinned[i] = mo_slots_find(slots, expert_id) >= 0;
        if (r->pinned[i]) {
            mo_slots_pin(slots, expert_id);
        } else {
            r->missing[missing++] = i;
        }
    }
    for (int i = 0; i < missing; i++) {
        const int at = r->missing[i];
        const int32_t expert_id = first + w->needs[at].expert;
        int32_t evicted;
        if (mo_slots_acquire(slots, expert_id, &evicted) < 0) {
            release(r, w, slots);
            mo_slots_acquire(slots, expert_id, &evicted);
        }
        r->pinned[at] = true;
    }
    release(r, w, slots);
    return missing;
}

static void count(replay *r, const cursor *w, int missing)
{
    const mo_trace_shape *s = &r->trace->shape;
    const mo_rates *rates = &r->options->rates;
    mo_replay_phase *p = &r->out->phase[r->trace->steps[w->step].phase];
    const int64_t bytes = s->expert_bytes[w->layer];
    const double computing = (double)(w->count * bytes) / mo_rates_slots(rates);
    const double reading = (double)(missing * bytes) / rates->disk_bytes_s;
    if (w->layer == 0) {
        p->passes++;
        p->tokens += w->tokens;
        p->seconds += (double)s->core_bytes / mo_rates_products(rates);
    }
    p->needed += w->count;
    p->hits += w->count - missing;
    p->bytes_needed += w->count * bytes;
    p->bytes_read += missing * bytes;
    p->seconds += mo_rates_layer(computing, reading);
}

static mo_status prepare(replay *r)
{
    const mo_policy *policy = r->options->policy ? r->options->policy : &optimum;
    r->pinned = mo_arena_array(r->memory, (size_t)r->trace->shape.experts, sizeof *r->pinned);
    r->missing = mo_arena_array(r->memory, (size_t)r->trace->shape.experts, sizeof *r->missing);
    if (!r->pinned || !r->missing) {
        return mo_fail(r->err, MO_ENOMEM, "out of memory while replaying a trace");
    }
    mo_status status = find_classes(r);
    if (status == MO_OK) {
        status = split_budget(r);
    }
    for (int i = 0; i < r->class_count && status == MO_OK; i++) {
        class *c = &r->classes[i];
        status = mo_slots_create(policy, c->experts, c->slot_count, &c->slots, r->err);
    }
    for (int i = 0; i < r->trace->shape.layers && status == MO_OK; i++) {
        for (int32_t k = 0; k < r->trace->shape.experts; k++) {
            mo_slots_place(r->classes[r->class_of[i]].slots, r->first[i] + k,
                           r->trace->shape.layer[i]); /* as in the store, which counts dense layers too */
        }
    }
    if (status == MO_OK && r->options->seeds) {
        status = warm(r);
    }
    if (status == MO_OK && !r->options->policy) {
        status = look_ahead(r);
    }
    return status;
}

mo_status mo_replay_run(const mo_trace *trace, const mo_replay_setup *options, mo_replay_report *out,
                        mo_error *err)
{
    const mo_rates *rates = &options->rates;
    cursor w;
    *out = (mo_replay_report){.rates_measured = rates->measured};
    if (!(rates->ram_bytes_s > 0.0 && rates->compute_share > 0.0 && rates->disk_bytes_s > 0.0)) {
        return mo_fail(err, MO_EINVAL, "the rates of memory, computing and disk must be above 0");
    }
    replay r = {.trace = trace, .options = options, .out = out, .err = err, .memory = mo_arena_create(0)};
    if (!r.memory || !cursor_begin(&w, r.memory, trace, options->step)) {
        mo_arena_destroy(r.memory);
        return mo_fail(err, MO_ENOMEM, "out of memory while replaying a trace");
    }
    const mo_status status = prepare(&r);
    while (status == MO_OK && cursor_next(&w)) {
        count(&r, &w, serve(&r, &w));
    }
    for (int i = 0; i < r.class_count; i++) {
        mo_slots_destroy(r.classes[i].slots);
    }
    mo_arena_destroy(r.memory);
    return status;
}
