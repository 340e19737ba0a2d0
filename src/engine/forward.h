/* Forward: one step on its way through the layers. Each part of a layer (mixer, router, feed-forward) turns its
 * description into phases; layer.c runs them. For engine and gpu. */
#ifndef MO_ENGINE_FORWARD_H
#define MO_ENGINE_FORWARD_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/slice.h"
#include "engine/split.h"

/* Most phases one region may have. */
enum { MO_PHASES_MAX = 28 };

typedef struct mo_forward {
    mo_engine *engine;
    mo_tally *tally; /* the engine's; NULL: this step counts for nothing */
    const mo_model_spec *spec;
    const mo_kernels *k;
    mo_workspace *w;
    const mo_slice *slices;
    int slice_count;
    const struct mo_forward *whole; /* the step that this is a group of; NULL: it is all of it */
    int64_t tokens;

    const mo_layer *layer;
    int index; /* of the layer */
    int next; /* 1 + the layer whose products come after the region's, the output's after the last; 0: not known */
    mo_acts in, in_dense, in_router, parts, mixed, hidden, side_hidden;
    int64_t row_count;      /* of the round: rows of experts, in w->rows, */
    int64_t side_count;     /* and tokens of the dense or shared part */
    int64_t tile;           /* attention: tokens that share a pass over the keys */
    bool chunked;           /* attention: the step's chunks are made side by side */
    int head_parts;         /* attention of one token: parts of a KV head's queries */
    int64_t rope_row;       /* floats before the layer's rope in w->rope; -1: none */
    mo_split *split;        /* the step's time, part by part; NULL: not needed */
    int64_t routed_from;    /* when the router's product could begin; of the layer, where times are kept */
    int64_t routing_ns;     /* and what it took until the choice, */
    int64_t worklist_ns;    /* until the rows were sorted by expert, */
    int64_t merged_from;    /* when the merge began, */
    int64_t merge_ns;       /* and what it took; where times are wanted */
    mo_side_task side_task; /* the first thread does it in the next round, which ends after it */
    bool experts_only;      /* for another rank, which has the rest of the layer and merges */
    /* Regions stop at the next chunk when no slice is wanted any more. Set for the CPU's large steps alone: a layer of a
     * small one ends sooner than a thread could wait. */
    bool stoppable;
    bool
        forget; /* the step failed, and what other ranks had of its states is lost: nothing of them is of use */
    bool stale;           /* not done: a state is from before a device was lost */
    bool begun;           /* states are being written: a recurrent one is lost if the step fails */
    atomic_bool overflow; /* a key or value does not fit the KV format */
    atomic_bool infinite; /* the residual stream, or what is kept of it as floats, is not finite */
    atomic_bool unread;   /* an embedding could not be read; who sets it first writes read_error */
    mo_error read_error;
} mo_forward;

/* A key or value that has no codes, or is not finite: floats would do for the one and not for the other. */
static inline void mo_forward_refuse_key(mo_forward *forward, mo_kv_type kv)
{
    atomic_store_explicit(mo_kv_coded(kv) ? &forward->overflow : &forward->infinite, true,
                          memory_order_relaxed);
}

/* What the step counts as, for statistics. */
static inline mo_trace_phase mo_forward_phase(const mo_forward *forward)
{
    return forward->slices[0].prompt ? MO_TRACE_PROMPT : MO_TRACE_GENERATION;
}

/* Everybody has the blocks that the step writes, and it begins. */
void mo_forward_begin(mo_forward *forward);

/* Norms and quantizes the residual stream of every token for the mixer: the first phase of a layer. */
mo_phase mo_forward_mixer_input(mo_forward *forward);

/* Between two layers and after a region: MO_ECANCELLED when no slice is wanted any more. */
mo_status mo_forward_cancelled(const mo_forward *forward, mo_error *err);

/* Numbers of a layer (-1: the logits) are not finite, or exceed the range of the KV cache: the error of the step. The cause is its
 * adapters, where it has some, and otherwise the model's file. */
mo_status mo_forward_not_finite(const mo_forward *forward, int layer, mo_error *err);
mo_status mo_forward_no_codes(const mo_forward *forward, int layer, mo_error *err);

/* A whole layer on the CPU: the stream in w->x passes through it. */
mo_status mo_forward_run_layer(mo_forward *forward, int index, mo_error *err);

/* Quantizes forward->mixed, the mixer's result before its output product, if that was not done yet. */
mo_phase mo_forward_mixed(mo_forward *forward);

/* Append phases from the mixer's normed input to x += mixer(...); return the new count. */
int mo_forward_attention(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_delta(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_short_conv(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_mamba(mo_forward *forward, mo_phase *phases, int count);

/* Of latent attention: from the mixer's normed input to finished queries in w->q and keys in the cache; and, after the heads'
 * results, which are rows of w->latent.mixed, to forward->mixed. */
int mo_forward_latent_in(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_latent_out(mo_forward *forward, mo_phase *phases, int count);

/* Appends the phases that norm the feed-forward part's input and, for routed layers, choose the experts. */
int mo_forward_route(mo_forward *forward, mo_phase *phases, int count);

/* Sorts the chosen experts' tokens (after mo_forward_route has run) and computes the feed-forward part: gate and
 * up, activation, down, merge into the stream. Fails only when an expert cannot be read. */
mo_status mo_forward_feed_forward(mo_forward *forward, mo_error *err);

/* The routed experts alone, for who has forward->in and w->picks and sets experts_only: their outputs are rows of w->down. */
mo_status mo_forward_experts(mo_forward *forward, mo_error *err);

/* The CPU computes the experts of a layer that are `who` in the work, to rows of its out. They are in RAM for good. For workers, in
 * `end`. */
void mo_forward_compute(mo_forward *forward, const mo_expert_work *work, uint8_t who);

/* The step's first token of a slice. */
static inline int64_t mo_forward_first(const mo_forward *forward, int64_t slice)
{
    int64_t first = 0;
    for (int64_t i = 0; i < slice; i++) {
        first += forward->slices[i].count;
    }
    return first;
}

/* Does any slice listen? */
static inline bool mo_forward_listens(const mo_forward *forward)
{
    bool any = false;
    for (int i = 0; i < forward->slice_count; i++) {
        any |= forward->slices[i].routes != NULL;
    }
    return any;
}

/* Tells slices that listen which experts w->picks.ids holds for the layer. */
void mo_forward_tell_routes(const mo_forward *forward);

/* Rounds of that computation, for code that decides which experts the CPU computes: rows `row` and up of gate, up, hidden
 * and down belong to the expert's tokens, which `tokens` names. The matrices must be in RAM. After the last round
 * every token's outputs are merged. */
void mo_forward_begin_round(mo_forward *forward);
void mo_forward_add_in(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count);
void mo_forward_add_down(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count);
void mo_forward_run_round(mo_forward *forward, bool last);

/* Prefetches what the next routed layer will probably choose, predicted by its router from the current stream; if that comes
 * too late, for the layer behind it as well. Where the step is of several tokens and this layer needs nearly all experts (`needed` of
 * them), so will the next. Does nothing unless prediction is on. */
void mo_forward_guess(mo_forward *forward, int needed);
/* The same for other ranks that have experts on disk: sends them the prediction. */
void mo_forward_guess_remote(mo_forward *forward);
/* In such a rank: is the prediction useful? And the prediction. */
bool mo_guess_wanted(const mo_tiers *tiers);
void mo_guess_take(mo_tiers *tiers, int layer, const int32_t *experts, int count);

/* Leaves out, of the w->needs, those that are not in RAM, and lets the others have their weight: lossy. A token
 * of which nothing would remain keeps its best expert. */
void mo_forward_skip(mo_forward *forward, int count);

/* Are all slices cancelled? Once true it stays so for the step. */
bool mo_forward_unwanted(const mo_forward *forward);

/* Runs a region; that of a stoppable step may end early, which mo_forward_cancelled() then tells. What one item cannot share (norms and choices of a single token) the calling thread does
 * itself at the beginning and the end, instead of letting the others wait for it once more. */
void mo_forward_run(mo_forward *forward, mo_phase *phases, int count);

/* out = norm(x, weight) + bias, a row of the stream; bias may be NULL. */
static inline void mo_forward_norm(const mo_forward *forward, float *out, const float *x, const float *weight,
                                   const float *bias)
{
    const int64_t n = forward->spec->width;
    forward->k->rms_norm(out, x, weight, n, forward->spec->eps);
    if (bias) {
        forward->k->add(out, bias, n);
    }
}

/* Quantizes values from .. from + n - 1 of row t of acts, whole blocks. */
static inline void mo_forward_quantize_some(const mo_kernels *k, const mo_acts *a, int64_t t, int64_t from,
                                            int64_t n)
{
    const int64_t at = t * a->cols + from, block = t * (a->cols / 32) + from / 32;
    k->quantize(a->x + at, n, a->q + at, a->d + block, a->s + block, a->sum + block, a->half_sum + 2 * block);
}

/* Quantizes row t of acts if any product will read its codes (its length allows it). */
static inline void mo_forward_quantize(const mo_kernels *k, const mo_acts *a, int64_t t)
{
    if (a->cols % 32 == 0) {
        const int64_t blocks = a->cols / 32;
        k->quantize(a->x + t * a->cols, a->cols, a->q + t * a->cols, a->d + t * blocks, a->s + t * blocks,
                    a->sum + t * blocks, a->half_sum + 2 * t * blocks);
    }
}

#endif
