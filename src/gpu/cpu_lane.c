/* The CPU's lane: computes experts of a layer, round by round as they arrive in RAM, and whole layers. */
#include <string.h>

#include "base/clock.h"
#include "gpu/lanes.h"

_Static_assert((int)MO_APART_TOKENS == (int)GPU_SMALL,
               "every pick of a small step may be a product of its own");

typedef struct lane {
    mo_gpu_lanes *lanes;
    mo_forward *forward;
    const mo_gpu_service *s;
} lane;

static void begin_round(void *owner)
{
    mo_forward_begin_round(((const lane *)owner)->forward);
}

static void add_expert(void *owner, const mo_need *n, bool down)
{
    const lane *l = owner;
    const mo_picks *p = &l->forward->w->picks;
    void (*const add)(mo_forward *, int, const int32_t *, int64_t, int64_t) =
        down ? mo_forward_add_down : mo_forward_add_in;
    if (!l->s->apart) {
        add(l->forward, n->expert, p->token_of + p->first[n->expert], p->first[n->expert], n->picks);
        return;
    }
    for (int64_t i = 0; i < mo_picks_rows(p); i++) {
        if (p->ids[i] == n->expert) {
            add(l->forward, n->expert, l->lanes->apart_tokens + i, i, 1);
        }
    }
}

static void run_round(void *owner, bool last)
{
    (void)last; /* the device merges */
    mo_forward_run_round(((const lane *)owner)->forward, false);
}

/* True if a transfer still needs the RAM slot: the CPU computes a failed one from there, and a queued one is
 * copied from there. */
static bool needs_its_slot(const mo_gpu_lanes *lanes, const mo_gpu_service *s, int need)
{
    for (int i = 0; i < s->sent; i++) {
        const mo_transfer *t = &lanes->transfers[i];
        if (t->need == need && (t->failed || t->queued)) {
            return true;
        }
    }
    return false;
}

/* Computed experts free slots for those still on disk. A slot that is being copied is free when the copy has
 * ended. */
static mo_status release_done(void *owner, mo_error *err)
{
    const lane *l = owner;
    const mo_gpu_service *s = l->s;
    const mo_status status = s->fetched || s->sent ? mo_event_wait(l->lanes->fetch_to, err) : MO_OK;
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &l->forward->w->needs[i];
        if (n->down_done && !n->released && !needs_its_slot(l->lanes, s, i)) {
            mo_store_release(l->forward->engine->tiers->store, n);
            n->released = true;
        }
    }
    return status;
}

static const mo_round_ops lane_rounds = {.begin_round = begin_round,
                                         .add_expert = add_expert,
                                         .run_round = run_round,
                                         .release_done = release_done};

mo_status mo_gpu_cpu_lane_run(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s,
                              mo_error *err)
{
    lane l = {.lanes = lanes, .forward = forward, .s = s};
    mo_rounds r = {.ops = &lane_rounds,
                   .owner = &l,
                   .store = s->stored ? forward->engine->tiers->store : NULL,
                   .needs = forward->w->needs,
                   .count = s->count,
                   .timed = true};
    const int64_t entered = mo_clock_ns();
    const mo_status status = mo_rounds_run(&r, err);
    lanes->waited_ns += (uint64_t)r.waiting_ns;
    lanes->cpu_ns += (uint64_t)r.computing_ns;
    if (r.rounds > 0) {
        mo_gpu_clock_computed(lanes->clock, s->layer, entered, mo_clock_ns());
    }
    return status;
}

/* ---- Whole layers -----------------------------------------------------------------------------
 *
 * Some layers that do not fit on the device, chosen so that CPU and link finish together. In small steps the
 * stream of hidden rows is copied to the host, passes through them, and is copied back. In a batch, where the
 * device is far ahead, these layers are streamed over the link like the others. */

mo_status mo_gpu_cpu_layers_meet(mo_gpu_lanes *lanes, mo_forward *forward, int from, mo_error *err)
{
    const mo_status status = mo_gpu_lanes_await(lanes, from, err);
    if (status == MO_OK) {
        memcpy(forward->w->x, lanes->scratch->pinned.x,
               sizeof(float) * (size_t)(forward->tokens * lanes->core->spec->width));
    }
    return status;
}

mo_status mo_gpu_cpu_layers_run(mo_gpu_lanes *lanes, mo_forward *forward, int from, int to, mo_error *err)
{
    mo_dreply *reply = mo_gpu_reply_of(lanes->scratch, from);
    const int64_t began = mo_clock_ns();
    const mo_status status = mo_forward_run_layers(forward, from, to, err);
    if (status != MO_OK) {
        return status;
    }
    lanes->host_ns += (uint64_t)(mo_clock_ns() - began);
    memcpy(lanes->scratch->pinned.x, forward->w->x,
           sizeof(float) * (size_t)(forward->tokens * lanes->core->spec->width));
    for (int64_t t = 0; t < forward->tokens; t++) {
        reply->row[t] = (int32_t)t;
    }
    reply->count = (int32_t)forward->tokens;
    __atomic_store_n(&reply->flag, lanes->scratch->sequence, __ATOMIC_RELEASE);
    mo_gpu_clock_hosted(lanes->clock, from, mo_clock_ns());
    return MO_OK;
}
