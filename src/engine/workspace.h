/* Workspace: the memory one step works in, sized for the largest layer and the largest batch, allocated once. */
#ifndef MO_ENGINE_WORKSPACE_H
#define MO_ENGINE_WORKSPACE_H

#include "engine/jobs.h"
#include "experts/picks.h"
#include "experts/store.h"
#include "kv/state.h"
#include "model/parts.h"
#include "numeric/acts.h"
#include "numeric/index.h"
#include "numeric/streams.h"

/* Tokens whose queries share a pass over the keys; the most tokens whose chunks are made side by side. */
enum { MO_QUERY_TILE = 8, MO_CHUNKED_TOKENS = 8 };
/* Heads of latent attention, which all have the same keys, that are one piece of work. */
enum { MO_LATENT_HEADS = 32 };
/* The most tokens of a step whose picks are products of their own where one expert has several of them (gpu/cpu_lane.c). */
enum { MO_APART_TOKENS = 8 };
/* Tokens of several sessions whose logits one pass over the output matrix makes, and rows of the matrix in a piece of it. */
enum { MO_LOGITS_TOKENS = 64, MO_LOGITS_ROWS = 128 };

/* One thread's place for attention: queries, chunk results and the running merge. */
typedef struct mo_attend_space {
    float *q, *o, *O;             /* [queries][k_len], [queries][v_len] twice */
    int8_t *codes;                /* [queries][2 * mo_kv_padded(k_len)]: coded queries */
    float *g, *m, *l, *r, *M, *L; /* [queries]; g of latent rows twice */
    mo_scratch *scratch;          /* the thread's */
    uint8_t *gathered;            /* blocks of one chunk of positions that an indexer has kept */
} mo_attend_space;

/* Something that one thread sets and others look for, on a line of its own. */
typedef struct mo_made {
    _Alignas(64) _Atomic int64_t at;
} mo_made;

/* Latent attention. */
typedef struct mo_latent_space {
    void *in;      /* acts [batch][rows of q_a]: what q reads */
    float *q;      /* [batch][heads][plain and rotated]: its products */
    void *plain;   /* acts [heads][batch]: the plain part of queries, */
    void *mixed;   /* and results before v_b */
    mo_acts *acts; /* [2][heads] these two, head by head */
    mo_acts reads; /* what the layer's q reads */
} mo_latent_space;

/* Of experts that read and make fewer values than the model is wide. */
typedef struct mo_experts_latent {
    void *in;  /* acts [batch][io]: what they read; */
    void *sum; /* acts [batch][io]: the sum of what a token's experts made, */
    float *up; /* [batch][D] and its product */
} mo_experts_latent;

/* Compressed attention. in, acts and results of groups are those of latent attention. */
typedef struct mo_compressed_space {
    float *pairs; /* [batch][what compressors read of a token]: their products */
    /* One for each thread: weights[MO_COMPRESS_ROWS][longest key], a key, a rotation, a row of the cache. */
    float *weights, *key, *turn;
    uint8_t *row;
    int64_t weight_floats, key_floats, turn_floats, row_bytes;
} mo_compressed_space;

/* Several residual streams. */
typedef struct mo_streams_space {
    float *x;                  /* [batch][streams][D] */
    void *in;                  /* acts [batch][streams * D]: all of them, normed */
    float *mix;                /* [batch][MO_STREAMS_MIX] products of it */
    mo_streams_shares *shares; /* [batch] */
} mo_streams_space;

/* One thread's place for scores of some tokens: over one block of keys, and their best positions. */
typedef struct mo_index_place {
    float *products, *scores; /* [MO_QUERY_TILE][heads][MO_KV_BLOCK], [MO_QUERY_TILE][MO_KV_BLOCK] */
    uint32_t *rank;           /* [MO_QUERY_TILE][2 * top] as is: */
    int32_t *position;
} mo_index_place;

/* Indexers. */
typedef struct mo_index_space {
    float *q, *k, *share; /* [batch][heads * length], [batch][length], [batch][heads] */
    float *scores;        /* [MO_CHUNKED_TOKENS][context] of a step of few tokens */
    int64_t context;
    int32_t
        *kept; /* [batch][top] of the last layer with an indexer, of tokens that do not keep all: ascending */
    mo_index_place *place; /* [threads] */
} mo_index_space;

/* A dense or shared part. */
typedef struct mo_side_space {
    float *gate, *up; /* [batch][F] */
    void *hidden;     /* acts */
    float *down;      /* [batch][D] */
    float *weight;    /* [batch] */
} mo_side_space;

typedef struct mo_logits_space {
    int32_t *token; /* [batch] tokens whose logits are wanted, */
    float **row;    /* [batch] and where these go */
    float *piece;   /* [threads][MO_LOGITS_TOKENS][MO_LOGITS_ROWS] */
} mo_logits_space;

/* The products of a step, phase by phase. */
typedef struct mo_phases {
    mo_jobs join, streams[2], mixer_in, latent_queries, latent_absorb, latent_expand, mixer_parts, mixer_dt,
        mixer_out, router, ffn_in, ffn_out, ffn_latent, guess, output;
} mo_phases;

typedef struct mo_workspace {
    void *memory;
    size_t bytes;
    mo_scratch *scratch; /* [threads] for kernels */

    mo_state **state_of; /* [batch] the session of each token */
    int64_t *position;   /* [batch] */
    int32_t *slice_of;   /* [batch] which slice of the step a token belongs to */
    /* Of a model that reads pictures; otherwise NULL: */
    const float *
        *row_of;   /* [batch] the row of a picture that stands in the place of a token; NULL: it is a token */
    int64_t *sees; /* [batch] the number behind the last that it sees in layers with a window */
    int64_t *chunk_first; /* [batch + 1] first attention partial of each token */

    float *x; /* [batch][D] the residual stream */
    /* Acts [batch][D]: what mixers and experts read; what a dense part reads; gemma4's router. The last two also have the parts of mixers. */
    void *in, *in_dense, *in_router;
    void *joined; /* acts [batch][2 * D]: what the first product of an MTP head reads */
    float *q, *k,
        *v; /* [batch][widest product of a mixer]; delta: channels, z, betas with alphas or decays; short convolution: b, c and x;
             Mamba: channels or steps, z, steps or their parts */
    float *gates; /* [batch][gates of an attention's heads]: their products */
    mo_latent_space latent;
    mo_index_space index;
    mo_compressed_space compressed;
    mo_streams_space streams;
    void *mixed;         /* acts [batch][widest mixer] */
    float *y;            /* [batch][D] a mixer's output */
    float *rope;         /* [ropes][2][batch][pairs] */
    int64_t rope_stride; /* floats of one token's c (or s) */
    float *q_factor;     /* [batch] of a model whose queries have a temperature; otherwise NULL */
    float *partial;      /* chunk results: [chunks][heads](mo_kv_partial() floats) */
    int64_t partial_floats;
    int8_t *codes;           /* [MO_CHUNKED_TOKENS][heads][2 * mo_kv_padded(k_len)]: their coded queries, */
    float *g;                /* [MO_CHUNKED_TOKENS][heads] */
    mo_attend_space *attend; /* [threads] */
    mo_made *made;           /* [heads] of a token alone: KV heads that are there, */
    int64_t alone;           /* and the last mark that was given */

    float *scores;       /* [batch][experts] */
    mo_picks picks;      /* of the layer; its rows are those of gate, up and down */
    int32_t *identity;   /* [batch * used] 0, 1, 2, ...: picks that take an expert's rows as they are */
    int32_t *rows;       /* [batch * used] those of a round, in any order */
    mo_need *needs;      /* [experts] */
    void *guess_in;      /* acts [1][D]: what the next layer's router would read */
    float *guess_scores; /* [experts] */
    uint8_t *row;        /* [threads][bytes of an embedding] */
    float *gate, *up;    /* [batch * used][F] */
    void *hidden;        /* acts [batch * used][F] */
    float *down;         /* [batch * used][values an expert makes] */
    mo_experts_latent latent_experts;

    mo_side_space side;
    mo_logits_space logits;

    mo_adapting adapting; /* of the step */
    void *low_memory;     /* what adapters need, while some are open: lists of products, and u */
    size_t low_bytes;

    mo_phases phases;
    mo_flow flow; /* from ffn_in to ffn_out */
} mo_workspace;

/* Columns of latent attention's parts; all heads together. */
typedef struct mo_latent_extent {
    int64_t in, q, plain, mixed, heads;
} mo_latent_extent;

/* Columns of indexers' products; positions that are kept, bytes of a chunk of them in any format. */
typedef struct mo_index_extent {
    int64_t q, k, heads, top, gathered;
    int64_t block; /* bytes of a block of such positions in any format */
} mo_index_extent;

/* Of compressed attention: what its compressors read of a token, the longest key; groups of heads. */
typedef struct mo_compressed_extent {
    int64_t pairs, key, groups;
} mo_compressed_extent;

/* The largest sizes over all layers of a model. */
typedef struct mo_extent {
    int64_t mixer_q, mixer_k, mixer_v, mixed; /* columns of the mixer's products and of its result */
    int64_t gates;                            /* of the heads of an attention */
    int64_t parts;                            /* values between two products of a mixer */
    int64_t queries, k_len, v_len; /* attention: query heads that are one piece of work, and lengths */
    mo_latent_extent latent;
    mo_index_extent index;
    mo_compressed_extent compressed;
    int64_t head_floats;              /* partials of one chunk of any KV format */
    int64_t heads, code_bytes, plane; /* attention: query heads, bytes of them coded, and of a plane of one */
    int64_t pairs;                    /* of a rope */
    int64_t experts, used, expert_width, side_width;
    int64_t expert_io;     /* values that an expert reads and makes, */
    int64_t expert_latent; /* and where they are not those of the model */
} mo_extent;

/* Query heads that are one piece of work: those of a KV head, or some of latent attention. */
int64_t mo_attention_part(const mo_attention *a); /* attention.c */

mo_extent mo_extent_of(const mo_model_spec *spec);

size_t mo_workspace_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads, int ropes);
mo_status mo_workspace_init(mo_workspace *w, const mo_model_spec *spec, const mo_kernels *kernels,
                            int64_t batch, int64_t context, int threads, int ropes, mo_error *err);
void mo_workspace_drop(mo_workspace *w);

/* Additional memory of steps with adapters, while `adapters` of them are open whose ranks make up `ranks`. */
size_t mo_workspace_low_bytes(const mo_model_spec *spec, int64_t batch, int adapters, int64_t ranks);
mo_status mo_workspace_lower(mo_workspace *w, const mo_model_spec *spec, int64_t batch, int adapters,
                             int64_t ranks, mo_error *err);

#endif
