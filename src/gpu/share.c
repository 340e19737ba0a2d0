#include "gpu/share.h"

#include <string.h>

#include "base/clock.h"

/* A CPU that is this much slower than the link would get almost nothing, and without it experts can be
 * prefetched before they are chosen. */
#define SLOW_CPU 4.0

/* Pieces share the engine's workspace and threads. */
bool mo_gpu_share_may(const mo_gpu *gpu, const mo_forward *forward)
{
    return !gpu->lanes.serial && !mo_gpu_is_piece(gpu, forward) && !forward->w->adapting.count &&
           forward->tokens <= GPU_SHARED &&
           gpu->lanes.rates.cpu.s_per_byte < SLOW_CPU * gpu->lanes.rates.link.s_per_byte;
}

/* ---- Assignment -------------------------------------------------------------------------------- */

/* Number of prefetched experts that may not have arrived: half of those in a window in flight. */
static double still_crossing(mo_gpu *gpu, const mo_gpu_order *o)
{
    double experts = 0;
    for (int i = 0; i < o->sent; i++) {
        const mo_gpu_window *w = mo_gpu_window_at(&gpu->experts, o->portion[i].window);
        bool arrived = false;
        mo_error ignored = {0};
        if (mo_event_query(w->ready, &arrived, &ignored) == MO_OK && !arrived) {
            experts += 0.5 * w->count;
        }
    }
    return experts;
}

/* True if experts from disk fill free slots. */
static bool fills_slots(const mo_gpu *gpu, const mo_forward *forward, int layer)
{
    return forward->engine->tiers && forward->engine->tiers->store && mo_ahead_leaves(&gpu->ahead) &&
           mo_vram_free(gpu->experts.where.vram, layer) > 0;
}

int mo_gpu_share_choose(mo_gpu *gpu, const mo_forward *forward, int layer, const int32_t *left,
                        mo_gpu_order *o)
{
    const int experts = forward->layer->moe.experts;
    int32_t rows[MO_EXPERTS_MAX];
    int count = 0;
    if (fills_slots(gpu, forward, layer)) {
        return 0;
    }
    for (int e = 0; e < experts; e++) {
        if (left[e] > 0) {
            rows[count++] = left[e];
        }
    }
    const int64_t bytes = gpu->core.layers[layer].expert_bytes;
    int32_t most = 0; /* rows of an expert that the CPU gets; it gets `few` of those with exactly this many */
    int few = 0;
    const int chosen = mo_lane_split(&gpu->lanes.rates.cpu, &gpu->lanes.rates.link, bytes,
                                     still_crossing(gpu, o), rows, count, &most, &few);
    for (int e = 0; e < experts && chosen > 0; e++) {
        o->by_cpu[e] = left[e] > 0 && (left[e] < most || (left[e] == most && few-- > 0));
    }
    return chosen;
}

/* ---- The CPU's experts -------------------------------------------------------------------------- */

/* Prepares the experts' input of tokens, on all threads. */
typedef struct inputs {
    const float *from;
    const mo_forward *forward;
} inputs;

static void take_inputs(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const inputs *i = ctx;
    const mo_acts *in = &i->forward->in_experts;
    memcpy(in->x + begin * in->cols, i->from + begin * in->cols,
           sizeof(float) * (size_t)((end - begin) * in->cols));
    for (int64_t t = begin; t < end; t++) {
        mo_forward_quantize(i->forward->k, in, t);
    }
}

void mo_gpu_share_input(const mo_gpu *gpu, mo_forward *forward)
{
    inputs all = {.from = gpu->scratch.pinned.shared_in, .forward = forward};
    mo_pool_run(forward->engine->pool, forward->tokens, 1, take_inputs, &all);
}

void mo_gpu_share_begin(const mo_gpu *gpu, mo_forward *forward)
{
    const mo_moe *moe = &forward->layer->moe;
    if (gpu->lanes.claimed == 0) { /* workers have read it in another way */
        mo_gpu_share_input(gpu, forward);
    }
    forward->hidden = mo_acts_lay(forward->w->hidden, forward->tokens * moe->used, moe->width);
}

/* Returns the number of experts; *bytes: the bytes that would take as long with one row each. */
static int add_experts(mo_gpu *gpu, mo_forward *forward, int layer, const mo_gpu_order *o, const bool *ready,
                       int64_t *bytes)
{
    double sum = 0;
    int count = 0;
    mo_forward_begin_round(forward);
    for (int i = o->cpu_first; i < o->claimed_first; i++) {
        const mo_need *n = &forward->w->needs[i];
        const int64_t row = forward->w->picks.first[n->expert];
        const int32_t *tokens = forward->w->picks.token_of + row;
        if (ready && !ready[i]) {
            continue;
        }
        mo_forward_add_in(forward, n->expert, tokens, row, n->picks);
        mo_forward_add_down(forward, n->expert, tokens, row, n->picks);
        sum += (double)gpu->core.layers[layer].expert_bytes * mo_lane_rows_cost((int32_t)n->picks);
        count++;
    }
    *bytes = (int64_t)sum;
    return count;
}

void mo_gpu_share_round(mo_gpu *gpu, mo_forward *forward, int layer, const mo_gpu_order *o, const bool *ready,
                        mo_side_task beside)
{
    mo_workspace *w = forward->w;
    float *const down = w->down;
    int64_t bytes;
    w->down = gpu->scratch.pinned.shared_rows; /* the copy reads from there */
    const int count = add_experts(gpu, forward, layer, o, ready, &bytes);
    forward->side_task = beside; /* a copy from unpinned memory blocks it */
    forward->side_waited_ns = 0;
    const int64_t began = mo_clock_ns();
    mo_forward_run_round(forward, false);
    w->down = down;
    const int64_t took = mo_clock_ns() - began;
    mo_lane_rate_observe(&gpu->lanes.rates.cpu, (double)(took - forward->side_waited_ns) * 1e-9, bytes);
    gpu->lanes.cpu_ns += (uint64_t)took;
    gpu->lanes.cpu_bytes += (uint64_t)(count * gpu->core.layers[layer].expert_bytes);
    gpu->lanes.by_cpu += (uint64_t)count;
}

mo_status mo_gpu_share_put(mo_gpu *gpu, const mo_forward *forward, int64_t first, int64_t end, mo_error *err)
{
    const int64_t n = forward->layer->moe.io;
    return mo_gpu_link_put(
        &gpu->link, gpu->link.main, gpu->scratch.down + (mo_daddr)(first * n) * sizeof(float),
        gpu->scratch.pinned.shared_rows + first * n, sizeof(float) * (size_t)((end - first) * n), err);
}

mo_status mo_gpu_share_end(mo_gpu *gpu, const mo_forward *forward, const mo_gpu_order *o, mo_error *err)
{
    const int64_t first = forward->w->picks.first[o->expert[o->cpu_first]];
    const int64_t end = o->claimed_first < o->count ? forward->w->picks.first[o->expert[o->claimed_first]]
                                                    : forward->w->picks.first[forward->layer->moe.experts];
    return mo_gpu_share_put(gpu, forward, first, end, err);
}
