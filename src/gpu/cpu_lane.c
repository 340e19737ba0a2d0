/* The CPU's lane: the experts of a layer that it computes, round by round as they come to RAM. */
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

/* A transfer that failed is computed by the CPU in the end, from the slot that it has; one that queues leaves from there. */
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

/* What is done frees slots for what is still on disk. A slot that was copied from is free when the copy has ended. */
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

static const mo_round_ops lane_rounds = {
    .begin = begin_round, .add = add_expert, .run = run_round, .release = release_done};

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
