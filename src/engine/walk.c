#include "engine/walk.h"

static void norm_input(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    const int64_t n = walk->frame->width;
    for (int64_t t = begin; t < end; t++) {
        walk->k->rms_norm(walk->in.x + t * n, walk->w->x + t * n, walk->layer->mixer_norm, n,
                          walk->frame->eps);
        mo_walk_quantise(walk->k, &walk->in, t);
    }
}

mo_phase mo_walk_mixer_input(mo_walk *walk)
{
    return (mo_phase){norm_input, walk, walk->tokens, 1};
}

static void quantise_mixed(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    for (int64_t t = begin; t < end; t++) {
        mo_walk_quantise(walk->k, &walk->mixed, t);
    }
}

mo_phase mo_walk_mixed(mo_walk *walk)
{
    return (mo_phase){quantise_mixed, walk, walk->tokens, 1};
}

void mo_walk_run(mo_walk *walk, const mo_phase *phases, int count)
{
    int first = 0, last = count;
    for (; first < last && phases[first].count <= 1; first++) {
        phases[first].fn(phases[first].ctx, 0, phases[first].count, 0);
    }
    while (last > first && phases[last - 1].count <= 1) {
        last--;
    }
    mo_pool_region(walk->engine->pool, phases + first, last - first);
    for (; last < count; last++) {
        phases[last].fn(phases[last].ctx, 0, phases[last].count, 0);
    }
}
