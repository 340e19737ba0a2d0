/* The CPU's lane: the experts of a layer that it computes, round by round as they come to RAM. */
#include "base/clock.h"
#include "gpu/lanes.h"

_Static_assert((int)MO_APART_TOKENS == (int)GPU_SMALL,
               "every pick of a small step may be a product of its own");

static void add_part(const mo_gpu_lanes *lanes, mo_forward *forward, const mo_need *n, bool apart, bool down)
{
    void (*const add)(mo_forward *, int, const int32_t *, int64_t, int64_t) =
        down ? mo_forward_add_down : mo_forward_add_in;
    const mo_picks *p = &forward->w->picks;
    if (!apart) {
        add(forward, n->expert, p->token_of + p->first[n->expert], p->first[n->expert], n->picks);
        return;
    }
    for (int64_t i = 0; i < mo_picks_rows(p); i++) {
        if (p->ids[i] == n->expert) {
            add(forward, n->expert, lanes->apart_tokens + i, i, 1);
        }
    }
}

static bool add_ready(const mo_gpu_lanes *lanes, mo_forward *forward, int count, bool stored, bool apart,
                      int *left)
{
    mo_workspace *w = forward->w;
    bool some = false;
    *left = 0;
    for (int i = 0; i < count; i++) {
        mo_need *n = &w->needs[i];
        if ((!stored || n->in) && !n->in_done) {
            add_part(lanes, forward, n, apart, false);
            n->in_done = some = true;
        }
        if (n->in_done && (!stored || n->down) && !n->down_done) {
            add_part(lanes, forward, n, apart, true);
            n->down_done = some = true;
        }
        *left += !n->down_done;
    }
    return some;
}

/* A transfer that failed is computed by the CPU in the end, from the slot that it has. */
static bool transfer_failed(const mo_gpu_lanes *lanes, const mo_gpu_service *s, int need)
{
    for (int i = 0; i < s->sent; i++) {
        if (lanes->transfers[i].need == need && lanes->transfers[i].failed) {
            return true;
        }
    }
    return false;
}

/* What is done frees slots for what is still on disk. A slot that was copied from is free when the copy has ended. */
static mo_status release_done(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s,
                              mo_error *err)
{
    mo_store *store = forward->engine->tiers->store;
    mo_status status = s->fetched || s->sent ? mo_event_wait(lanes->fetch_to, err) : MO_OK;
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &forward->w->needs[i];
        if (n->down_done && !n->released && !transfer_failed(lanes, s, i)) {
            mo_store_release(store, n);
            n->released = true;
        }
    }
    return status;
}

/* Is something still on its way from disk? Looking costs a layer two microseconds. */
static bool awaits_bytes(const mo_forward *forward, int count)
{
    for (int i = 0; i < count; i++) {
        const mo_need *n = &forward->w->needs[i];
        if (!n->in || !n->down) {
            return true;
        }
    }
    return false;
}

mo_status mo_gpu_cpu_lane_run(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s,
                              mo_error *err)
{
    mo_store *store = s->stored ? forward->engine->tiers->store : NULL;
    mo_status status = MO_OK;
    const int64_t entered = mo_clock_ns();
    bool wait = false, any = false;
    for (int left = 1; left > 0 && status == MO_OK;) {
        if (store && awaits_bytes(forward, s->count)) {
            const int64_t began = mo_clock_ns();
            status = mo_store_look(store, wait, err);
            lanes->waited_ns += (uint64_t)(mo_clock_ns() - began);
        }
        if (status != MO_OK) {
            break;
        }
        mo_forward_begin_round(forward);
        const bool some = add_ready(lanes, forward, s->count, s->stored, s->apart, &left);
        wait = !some && left > 0;
        any |= some;
        if (some) {
            const int64_t began = mo_clock_ns();
            mo_forward_run_round(forward, false);
            lanes->cpu_ns += (uint64_t)(mo_clock_ns() - began);
        }
        if (store && left > 0) {
            const int64_t began = mo_clock_ns();
            status = release_done(lanes, forward, s, err);
            lanes->waited_ns += (uint64_t)(mo_clock_ns() - began);
        }
    }
    if (any) {
        mo_gpu_clock_computed(lanes->clock, s->layer, entered, mo_clock_ns());
    }
    return status;
}
