/* Forward: one step on its way through the layers. Each part of a layer (mixer, router, feed-forward) turns its
 * description into phases; layer.c runs them. For engine and gpu. */
#ifndef MO_ENGINE_FORWARD_H
#define MO_ENGINE_FORWARD_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/slice.h"
#include "engine/split.h"
#include "numeric/delta.h"
#include "numeric/mamba.h"

/* Most phases one region may have. */
enum { MO_PHASES_MAX = 36 };

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
    int index; /* of the layer: mo_forward_at() */
    int next; /* 1 + the layer whose products come after the region's, the output's after the last; 0: not known */
    mo_acts in, in_dense, in_router, in_experts, in_streams, parts[2], mixed, hidden, side_hidden, sum;
    int64_t row_count;      /* of the round: rows of experts, in w->rows, */
    int64_t side_count;     /* and tokens of the dense or shared part */
    int64_t tile;           /* attention: tokens that share a pass over the keys */
    bool chunked;           /* attention: the step's chunks are made side by side */
    bool features;          /* rows of pictures have some for the first layers, */
    bool ahead;             /* or see rows behind them */
    int left_out;           /* of a row of w->row_of: vectors that are not there, the first ones */
    int head_parts;         /* attention of one token: parts of a KV head's queries */
    int64_t rope_row;       /* floats before the layer's rope in w->rope; -1: none */
    mo_split *split;        /* the step's time, part by part; NULL: not needed */
    int64_t routed_from;    /* when the router's product could begin; of the layer, where times are kept */
    int64_t routing_ns;     /* and what it took until the choice, */
    int64_t worklist_ns;    /* until the rows were sorted by expert, */
    int64_t merged_from;    /* when the merge began, */
    int64_t merge_ns;       /* and what it took; where times are wanted */
    mo_side_task side_task; /* the first thread does it in the next round, which ends after it */
    int64_t
        side_waited_ns; /* for which rounds waited for it alone, their products being done; the owner's to clear */
    bool experts_only;       /* for another rank, which has the rest of the layer and merges, */
    const uint32_t *drafted; /* and says by expert how many of w->picks are guesses; NULL: none are */
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
void mo_forward_refuse_key(mo_forward *forward, mo_kv_type kv);

/* Counts of a layer that the step enters, for the profile; NULL: it counts for nothing. Then `picks` of an expert of it. */
mo_tally_layer *mo_forward_tally(const mo_forward *forward, int layer);
void mo_forward_tally_expert(const mo_forward *forward, mo_tally_layer *counts, mo_found found, int expert,
                             uint64_t picks);

/* What a token's queries are multiplied by; NULL: nothing. */
static inline const float *mo_forward_q_factor(const mo_forward *forward, int64_t t)
{
    return forward->w->q_factor ? forward->w->q_factor + t : NULL;
}

/* The position behind the last that token t sees in layers with a window. */
static inline int64_t mo_forward_end_seen(const mo_forward *forward, int64_t t)
{
    return forward->w->sees ? forward->w->sees[t] : forward->w->position[t] + 1;
}

/* Do rows of pictures add something behind layer `index`, of those that are here? */
static inline bool mo_forward_has_features(const mo_forward *forward, int index)
{
    return forward->features && forward->spec->first_layer + index < forward->spec->pictures.features;
}

/* What token t adds there, or NULL. */
static inline const float *mo_forward_feature(const mo_forward *forward, int index, int64_t t)
{
    const float *row = mo_forward_has_features(forward, index) ? forward->w->row_of[t] : NULL;
    const int vector = 1 + forward->spec->first_layer + index - forward->left_out;
    return row ? row + vector * forward->spec->width : NULL;
}

/* Does any slice of the step have drafts? */
static inline bool mo_forward_has_drafts(const mo_forward *forward)
{
    bool any = false;
    for (int i = 0; i < forward->slice_count; i++) {
        any |= forward->slices[i].drafts > 0;
    }
    return any;
}

/* Of a slice with drafts: the first of its rows in engine->drafts. */
static inline int64_t mo_forward_draft_row(const mo_forward *forward, int64_t slice)
{
    int64_t row = 0;
    for (int64_t i = 0; i < slice; i++) {
        row += forward->slices[i].drafts ? forward->slices[i].count : 0;
    }
    return row;
}

/* After the picks of a step with drafts: what was accepted enters recurrent states, but for those of layers that a device has applied, and
 * statistics. */
void mo_forward_commit(mo_forward *forward);

/* Notes what the drafts of the layer at hand chose: they count when they are accepted. Returns by expert how many of w->picks.ids are
 * theirs; NULL: the step has none. The second: of the layer that was noted last. */
const uint32_t *mo_forward_note_drafts(const mo_forward *forward);
const uint32_t *mo_forward_drafted(const mo_forward *forward);
/* Where an expert of the layer was when drafts chose it. */
void mo_forward_found(const mo_forward *forward, int layer, int expert, bool cold);

/* The rules of a layer's recurrence. */
mo_delta_rule mo_forward_delta_rule(const mo_model_spec *spec, const mo_layer *layer);
mo_mamba_rule mo_forward_mamba_rule(const mo_model_spec *spec, const mo_layer *layer);

/* Everybody has the blocks that the step writes, and it begins. */
void mo_forward_begin(mo_forward *forward);

/* Of an MTP head, after the embedding: the stream becomes what its layer reads. */
void mo_forward_join(mo_forward *forward);

/* Norms and quantizes the residual stream of every token for the mixer: the first phase of a layer. */
mo_phase mo_forward_mixer_input(mo_forward *forward);

/* Between two layers and after a region: MO_ECANCELLED when no slice is wanted any more. */
mo_status mo_forward_cancelled(const mo_forward *forward, mo_error *err);

/* Numbers of a layer (-1: the logits) are not finite, or exceed the range of the KV cache: the error of the step. The cause is its
 * adapters, where it has some, and otherwise the model's file. */
mo_status mo_forward_not_finite(const mo_forward *forward, int layer, mo_error *err);
mo_status mo_forward_no_codes(const mo_forward *forward, int layer, mo_error *err);

/* The step comes to a layer, whoever computes it. */
void mo_forward_at(mo_forward *forward, int index);

/* A whole layer on the CPU: the stream in w->x passes through it. */
mo_status mo_forward_run_layer(mo_forward *forward, int index, mo_error *err);
/* Layers from .. to - 1, as long as the step is wanted. */
mo_status mo_forward_run_layers(mo_forward *forward, int from, int to, mo_error *err);

/* Quantizes forward->mixed, the mixer's result before its output product, if that was not done yet. */
mo_phase mo_forward_mixed(mo_forward *forward);

/* Append phases from the mixer's normed input to forward->mixed; return the new count. */
int mo_forward_attention(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_delta(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_short_conv(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_mamba(mo_forward *forward, mo_phase *phases, int count);

/* Of latent attention: from the mixer's normed input to finished queries in w->q and keys in the cache; and, after the heads'
 * results, which are rows of w->latent.mixed, to forward->mixed. */
int mo_forward_latent_in(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_latent_out(mo_forward *forward, mo_phase *phases, int count);

/* Of compressed attention: from the mixer's normed input to finished queries in w->q, rows in the cache and keys of blocks that are
 * complete; how many rows a token attends to; `count` of them from `first` on, to places 0 .. of another cache; the place of a head's
 * result, which is rotated back; and from these results to forward->mixed. */
int mo_forward_compressed_in(mo_forward *forward, mo_phase *phases, int count);
int64_t mo_forward_compressed_rows(const mo_forward *forward, int64_t t);
void mo_forward_gather(const mo_forward *forward, int64_t t, int64_t first, int64_t count,
                       const mo_kv_head *to);
float *mo_forward_group_result(const mo_forward *forward, int64_t t, int64_t head);
void mo_forward_turn_back(const mo_forward *forward, int64_t t, float *result);
int mo_forward_compressed_out(mo_forward *forward, mo_phase *phases, int count);

/* Of a model with several streams. From these to what the mixer, or the feed-forward part, reads; what the mixer made goes to them first.
 * After the feed-forward part, whose result is in w->x. */
int mo_forward_streams_mixer(mo_forward *forward, mo_phase *phases, int count);
int mo_forward_streams_ffn(mo_forward *forward, mo_phase *phases, int count);
void mo_forward_streams_end(mo_forward *forward);

/* Of sparse attention: the products of an indexer that read what the mixer and what its queries read; the phases from these to
 * w->index.kept; and who listens hears it. */
void mo_forward_index_in(mo_forward *forward, mo_jobs *in, mo_jobs *queries, const mo_acts *reads);
int mo_forward_index(mo_forward *forward, mo_phase *phases, int count);
void mo_forward_tell_kept(const mo_forward *forward);
/* The same phases after those that make the indexer's keys, which are in the cache; and a token's queries, before them. */
int mo_forward_choose(mo_forward *forward, mo_phase *phases, int count);
void mo_forward_index_query(const mo_forward *forward, int64_t t);

/* Rows of which an indexer keeps the best: positions, or blocks that are complete. */
static inline int64_t mo_forward_candidates(const mo_forward *forward, int64_t t)
{
    const int64_t ratio = forward->layer->attention.compressed.ratio;
    return (forward->w->position[t] + 1) / (ratio ? ratio : 1);
}

/* Does the token attend to those that an indexer has kept? Otherwise it keeps all. */
static inline bool mo_forward_keeps_some(const mo_forward *forward, int64_t t)
{
    const int64_t top = forward->layer->attention.index.top;
    return top > 0 && mo_forward_candidates(forward, t) > top;
}

/* What was kept of the token's. */
static inline int32_t *mo_forward_kept(const mo_forward *forward, int64_t t)
{
    return forward->w->index.kept + t * forward->layer->attention.index.top;
}

/* Appends the phases that norm the feed-forward part's input and, for routed layers, choose the experts. */
int mo_forward_route(mo_forward *forward, mo_phase *phases, int count);

/* The experts of token t, where a router takes them from the token. */
const float *mo_forward_given(const mo_forward *forward, const mo_router *r, int used, int64_t t);

/* The part of a layer beside its routed experts: dense or shared; NULL: there is none. */
const mo_ffn *mo_forward_side(const mo_layer *l);

/* Sorts the chosen experts' tokens (after mo_forward_route has run) and computes the feed-forward part: gate and
 * up, activation, down, merge into the stream. Fails only when an expert cannot be read. */
mo_status mo_forward_feed_forward(mo_forward *forward, mo_error *err);

/* The routed experts alone, for who has forward->in_experts and w->picks and sets experts_only: their outputs are rows of w->down. */
mo_status mo_forward_experts(mo_forward *forward, mo_error *err);

/* The CPU computes the experts of a layer that are `who` in the work, to rows of its out. They are in RAM for good. For workers, in
 * `end`. */
void mo_forward_compute(mo_forward *forward, const mo_expert_work *work, uint8_t who);

/* The step's first token of a slice. */
int64_t mo_forward_first(const mo_forward *forward, int64_t slice);

/* Does any slice listen? */
bool mo_forward_listens(const mo_forward *forward);

/* Tells slices that listen which experts w->picks.ids holds for the layer. */
void mo_forward_tell_routes(const mo_forward *forward);

/* Rounds of that computation, for code that decides which experts the CPU computes: rows `row` and up of gate, up, hidden
 * and down belong to the expert's tokens, which `tokens` names. The matrices must be in RAM. After the last round
 * every token's outputs are merged. */
void mo_forward_begin_round(mo_forward *forward);
void mo_forward_add_in(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count);
void mo_forward_add_down(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count);
void mo_forward_run_round(mo_forward *forward, bool last);

/* Prefetches, at the beginning of a step, what its tokens have in layers whose experts they say: in all of these for few tokens, in the first
 * for more. Does nothing unless prediction is on. There is a store. */
void mo_forward_ask_known(const mo_forward *forward);
/* Prefetches what the next routed layer will probably choose, predicted by its router from the current stream; if that comes
 * too late, for the layer behind it as well. Where the step is of several tokens and this layer needs nearly all experts (`needed` of
 * them), so will the next. Where tokens say the next layer's experts, these, and no others. Does nothing unless prediction is on. */
void mo_forward_guess(mo_forward *forward, int needed);
/* The same for other ranks that have experts on disk: sends them the prediction. */
void mo_forward_guess_remote(mo_forward *forward);
/* In such a rank: is the prediction useful? And the prediction. */
bool mo_guess_wanted(const mo_tiers *tiers);
void mo_guess_take(mo_tiers *tiers, int layer, const int32_t *experts, int count);

/* Lossy: of the first `count` w->needs, which are what no device has of the layer's choice, leaves out those that are not in RAM
 * (mo_picks_skip). Before mo_store_want(). Returns how many are kept; they are first now, and the others follow. */
int mo_forward_skip(mo_forward *forward, int count);
/* After mo_store_want() of all: those that were left out are not waited for, but read behind the computation, so that the next token
 * finds them. */
void mo_forward_bring_skipped(mo_forward *forward, mo_need *needs, int count);

/* Are all slices cancelled? Once true it stays so for the step. */
bool mo_forward_unwanted(const mo_forward *forward);

/* Runs a region; that of a stoppable step may end early, which mo_forward_cancelled() then tells. What one item cannot share (norms and choices of a single token) the calling thread does
 * itself at the beginning and the end, instead of letting the others wait for it once more. */
void mo_forward_run(mo_forward *forward, mo_phase *phases, int count);

/* out = norm(x, weight) + bias, a row of the stream; bias may be NULL. */
void mo_forward_norm(const mo_forward *forward, float *out, const float *x, const float *weight,
                     const float *bias);

/* The model's last norm of a row of the stream. */
void mo_forward_out_norm(const mo_kernels *k, const mo_model_spec *spec, float *out, const float *x);

/* Quantizes values from .. from + n - 1 of row t of acts, whole blocks. */
void mo_forward_quantize_some(const mo_kernels *k, const mo_acts *a, int64_t t, int64_t from, int64_t n);

/* Quantizes row t of acts if any product will read its codes (its length allows it). */
void mo_forward_quantize(const mo_kernels *k, const mo_acts *a, int64_t t);

#endif
