/* Walk: one step on its way through the layers. Each part of a layer (mixer, router, feed-forward) turns its
 * description into phases; step.c runs them. Private to the room. */
#ifndef MO_ENGINE_WALK_H
#define MO_ENGINE_WALK_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/step.h"

/* Most phases one region may have. */
enum { MO_PHASES_MAX = 12 };

/* Something that a thread does beside the others' products. */
typedef struct mo_errand {
    void (*fn)(void *ctx); /* NULL: nothing */
    void *ctx;
} mo_errand;

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
    int64_t row_count;    /* of the round: rows of experts, in w->rows, */
    int64_t side_count;   /* and tokens of the part beside them */
    int64_t tile;         /* attention: tokens that share a pass over the keys */
    int64_t rope_row;     /* floats before the layer's rope in w->rope; -1: none */
    mo_errand errand;     /* whoever comes first does it in the next round, which ends after it */
    atomic_bool overflow; /* a key or value does not fit the KV format */
    atomic_bool infinite; /* the residual stream is not finite */
    atomic_bool unread;   /* an embedding could not be read; who sets it first writes read_error */
    mo_error read_error;
} mo_walk;

/* What the step counts as, for statistics. */
static inline mo_trace_phase mo_walk_phase(const mo_walk *walk)
{
    return walk->slices[0].prompt ? MO_TRACE_PROMPT : MO_TRACE_GENERATION;
}

/* Norms and quantises the residual stream of every token for the mixer: the first phase of a layer. */
mo_phase mo_walk_mixer_input(mo_walk *walk);

/* A whole layer on the CPU: the stream in w->x passes through it. */
mo_status mo_walk_run_layer(mo_walk *walk, int index, mo_error *err);

/* Quantises walk->mixed, the mixer's result before its output product. */
mo_phase mo_walk_mixed(mo_walk *walk);

/* Append phases from the mixer's normed input to x += mixer(...); return the new count. */
int mo_walk_attention(mo_walk *walk, mo_phase *phases, int count);
int mo_walk_delta(mo_walk *walk, mo_phase *phases, int count);

/* Appends the phases that norm the feed-forward part's input and, for routed layers, choose the experts. */
int mo_walk_route(mo_walk *walk, mo_phase *phases, int count);

/* Sorts the chosen experts' tokens (after mo_walk_route has run) and computes the feed-forward part: gate and
 * up, activation, down, merge into the stream. Fails only when an expert cannot be read. */
mo_status mo_walk_feed(mo_walk *walk, mo_error *err);

/* Does any slice listen? */
static inline bool mo_walk_listens(const mo_walk *walk)
{
    bool any = false;
    for (int i = 0; i < walk->slice_count; i++) {
        any |= walk->slices[i].routes != NULL;
    }
    return any;
}

/* Tells slices that listen which experts w->ids holds for the layer. */
void mo_walk_tell_routes(const mo_walk *walk);

/* Rounds of that computation, for whoever decides which experts the CPU computes: rows `row` and up of gate, up, hidden
 * and down belong to the expert's tokens, named by w->by_expert. The matrices must be in RAM. After the last round
 * every token's outputs are merged. */
void mo_walk_begin_round(mo_walk *walk);
void mo_walk_add_in(mo_walk *walk, int expert, int64_t row, int64_t count);
void mo_walk_add_down(mo_walk *walk, int expert, int64_t row, int64_t count);
void mo_walk_run_round(mo_walk *walk, bool last);

/* Reads ahead what the next routed layer will probably choose, judged by its router on the stream as it is
 * now. Does nothing unless prediction is on and one token is computed. */
void mo_walk_guess(mo_walk *walk);

/* Leaves out, of the w->needs, those that are not in RAM, and lets the others have their weight: lossy. A token
 * of which nothing would remain keeps its best expert. */
void mo_walk_skip(mo_walk *walk, int count);

/* Runs a region. What one item cannot share (norms and choices of a single token) the calling thread does
 * itself at the beginning and the end, instead of letting the others wait for it once more. */
void mo_walk_run(mo_walk *walk, const mo_phase *phases, int count);

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
