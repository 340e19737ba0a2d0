/* Walk: one step on its way through the layers. Each part of a layer (mixer, router, feed-forward) turns its
 * description into phases; step.c runs them. Private to the room. */
#ifndef MO_ENGINE_WALK_H
#define MO_ENGINE_WALK_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/step.h"

/* Most phases one region may have. */
enum { MO_PHASES_MAX = 12 };

typedef struct mo_walk {
    mo_engine *engine;
    const mo_frame *frame;
    const mo_kernels *k;
    mo_workspace *w;
    const mo_slice *slices;
    int slice_count;
    int64_t tokens;

    const mo_layer *layer;
    int index; /* of the layer */
    mo_acts in, in_dense, in_router, mixed, hidden, side_hidden;
    int64_t tile;         /* attention: tokens that share a pass over the keys */
    int64_t rope_row;     /* floats before the layer's rope in w->rope; -1: none */
    atomic_bool overflow; /* a key or value does not fit the KV format */
    atomic_bool infinite; /* the residual stream is not finite */
} mo_walk;

/* Norms and quantises the residual stream of every token for the mixer: the first phase of a layer. */
mo_phase mo_walk_mixer_input(mo_walk *walk);

/* Quantises walk->mixed, the mixer's result before its output product. */
mo_phase mo_walk_mixed(mo_walk *walk);

/* Append phases from the mixer's normed input to x += mixer(...); return the new count. */
int mo_walk_attention(mo_walk *walk, mo_phase *phases, int count);
int mo_walk_delta(mo_walk *walk, mo_phase *phases, int count);

/* Appends the phases that norm the feed-forward part's input and, for routed layers, choose the experts. */
int mo_walk_route(mo_walk *walk, mo_phase *phases, int count);

/* Sorts the chosen experts' tokens (after mo_walk_route has run) and appends the phases of the feed-forward
 * part: gate and up, activation, down, merge into the stream. */
int mo_walk_feed(mo_walk *walk, mo_phase *phases, int count);

/* Quantises row t of acts if any product will read its codes (its length allows it). */
static inline void mo_walk_quantise(const mo_kernels *k, const mo_acts *a, int64_t t)
{
    if (a->cols % 32 == 0) {
        const int64_t blocks = a->cols / 32;
        k->quantise(a->x + t * a->cols, a->cols, a->q + t * a->cols, a->d + t * blocks, a->s + t * blocks,
                    a->sum + t * blocks, a->half_sum + 2 * t * blocks);
    }
}

#endif
