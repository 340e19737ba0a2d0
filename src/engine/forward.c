#include "engine/forward.h"

#include "base/clock.h"

static void norm_input(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int64_t n = forward->spec->width;
    for (int64_t t = begin; t < end; t++) {
        mo_forward_norm(forward, forward->in.x + t * n, forward->w->x + t * n, forward->layer->mixer_norm,
                        forward->layer->mixer_norm_bias);
        mo_forward_quantize(forward->k, &forward->in, t);
    }
}

mo_phase mo_forward_mixer_input(mo_forward *forward)
{
    return (mo_phase){
        .fn = norm_input, .ctx = forward, .count = forward->tokens, .grain = 1, .part = MO_PART_OTHER};
}

static void quantize_mixed(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        mo_forward_quantize(forward->k, &forward->mixed, t);
    }
}

mo_phase mo_forward_mixed(mo_forward *forward)
{
    return (mo_phase){.fn = quantize_mixed,
                      .ctx = forward,
                      .count = forward->tokens,
                      .grain = 1,
                      .part = MO_PART_ATTENTION};
}

static bool unwanted(const void *forward)
{
    return mo_forward_unwanted(forward);
}

/* One by one: there is a time of each. */
static void run_apart(mo_forward *forward, const mo_phase *phases, int count)
{
    for (int i = 0; i < count; i++) {
        const int64_t began = mo_clock_ns();
        mo_pool_region_until(forward->engine->pool, &phases[i], 1, forward->stoppable ? unwanted : NULL,
                             forward);
        forward->split->part_ns[phases[i].part] += mo_clock_ns() - began;
    }
}

void mo_forward_run(mo_forward *forward, const mo_phase *phases, int count)
{
    if (forward->split) {
        run_apart(forward, phases, count);
        return;
    }
    int first = 0, last = count;
    for (; first < last && phases[first].count <= 1; first++) {
        phases[first].fn(phases[first].ctx, 0, phases[first].count, 0);
    }
    while (last > first && phases[last - 1].count <= 1) {
        last--;
    }
    mo_pool_region_until(forward->engine->pool, phases + first, last - first,
                         forward->stoppable ? unwanted : NULL, forward);
    for (; last < count; last++) {
        phases[last].fn(phases[last].ctx, 0, phases[last].count, 0);
    }
}
