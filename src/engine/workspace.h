/* Workspace: the working memory of a step, sized for the largest layer and the largest batch, allocated
 * once. */
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

/* Tokens whose queries share a pass over the keys; maximum tokens whose chunks are computed in parallel. */
enum { MO_QUERY_TILE = 8, MO_CHUNKED_TOKENS = 8 };
/* Heads of latent attention per piece of work; all heads have the same keys. */
enum { MO_LATENT_HEADS = 32 };
/* Maximum tokens of a step in which every pick is a product of its own, even if an expert has several
 * (gpu/cpu_lane.c). */
enum { MO_APART_TOKENS = 8 };
/* Tokens of several sessions per pass over the output matrix, and rows of the matrix per piece. */
enum { MO_LOGITS_TOKENS = 64, MO_LOGITS_ROWS = 128 };

/* Attention memory of one thread: queries, chunk results and the running merge. */
typedef struct mo_attend_space {
    float *q, *o, *O;             /* [queries][k_len], [queries][v_len] twice */
    int8_t *codes;                /* [queries][2 * mo_kv_padded(k_len)]: quantized queries */
    float *g, *m, *l, *r, *M, *L; /* [queries]; g has two values for latent rows */
    mo_scratch *scratch;          /* of the thread */
    uint8_t *gathered;            /* blocks of one chunk of the positions that an indexer keeps */
} mo_attend_space;

/* A value that one thread sets and others poll, on its own cache line. */
typedef struct mo_made {
    _Alignas(64) _Atomic int64_t at;
} mo_made;

/* Latent attention. */
typedef struct mo_latent_space {
    void *in;      /* acts [batch][rows of q_a]: input of q */
    float *q;      /* [batch][heads][plain and rotated]: products of q */
    void *plain;   /* acts [heads][batch]: the plain part of queries, */
    void *mixed;   /* and results before v_b */
    mo_acts *acts; /* [2][heads] views of these two, by head */
    mo_acts reads; /* input of the layer's q */
} mo_latent_space;

/* For experts with fewer inputs and outputs than the model's width. */
typedef struct mo_experts_latent {
    void *in;  /* acts [batch][io]: their input */
    void *sum; /* acts [batch][io]: the sum of a token's experts */
    float *up; /* [batch][D] product of the sum */
} mo_experts_latent;

/* Compressed attention. in, acts and results of groups are in mo_latent_space. */
typedef struct mo_compressed_space {
    float *pairs; /* [batch][compressor inputs of a token]: their products */
    /* One per thread: weights[MO_COMPRESS_ROWS][longest key], a key, a rotation, a row of the cache. */
    float *weights, *key, *turn;
    uint8_t *row;
    int64_t weight_floats, key_floats, turn_floats, row_bytes;
} mo_compressed_space;

/* Several residual streams. */
typedef struct mo_streams_space {
    float *x;                  /* [batch][streams][D] */
    void *in;                  /* acts [batch][streams * D]: all streams, normed */
    float *mix;                /* [batch][MO_STREAMS_MIX] products of in */
    mo_streams_shares *shares; /* [batch] */
} mo_streams_space;

/* Memory of one thread for the scores of some tokens: over one block of keys, and their best positions. */
typedef struct mo_index_place {
    float *products, *scores; /* [MO_QUERY_TILE][heads][MO_KV_BLOCK], [MO_QUERY_TILE][MO_KV_BLOCK] */
    uint32_t *rank;           /* [MO_QUERY_TILE][2 * top], like: */
    int32_t *position;
} mo_index_place;

/* Indexers. */
typedef struct mo_index_space {
    float *q, *k, *share; /* [batch][heads * length], [batch][length], [batch][heads] */
    float *scores;        /* [MO_CHUNKED_TOKENS][context] in a step of few tokens */
    int64_t context;
    /* [batch][top] of the last layer with an indexer, for tokens that keep only some positions: ascending */
    int32_t *kept;
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
    int32_t *token; /* [batch] tokens whose logits are requested */
    float **row;    /* [batch] destinations of their logits */
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
    /* For a model that reads pictures; otherwise NULL: */
    const float *
        *row_of;   /* [batch] the row of a picture that stands in the place of a token; NULL: it is a token */
    int64_t *sees; /* [batch] index after the last element that it sees in layers with a window */
    int64_t *chunk_first; /* [batch + 1] first attention partial of each token */

    float *x; /* [batch][D] the residual stream */
    /* Acts [batch][D]: input of mixers and experts; of a dense part; of gemma4's router. The last two also
     * hold parts of mixers. */
    void *in, *in_dense, *in_router;
    void *joined; /* acts [batch][2 * D]: input of an MTP head's first product */
    /* [batch][widest product of a mixer]. Delta: channels, z, betas with alphas or decays. Short convolution:
     * b, c and x. Mamba: channels or steps, z, steps or their parts. */
    float *q, *k, *v;
    float *gates; /* [batch][gates of an attention's heads]: their products */
    mo_latent_space latent;
    mo_index_space index;
    mo_compressed_space compressed;
    mo_streams_space streams;
    void *mixed;         /* acts [batch][widest mixer] */
    float *y;            /* [batch][D] a mixer's output */
    float *rope;         /* [ropes][2][batch][pairs] */
    int64_t rope_stride; /* floats of one token's c (or s) */
    float *q_factor;     /* [batch] if the model's queries have a temperature; otherwise NULL */
    float *partial;      /* chunk results: [chunks][heads](mo_kv_partial() floats) */
    int64_t partial_floats;
    int8_t *codes;           /* [MO_CHUNKED_TOKENS][heads][2 * mo_kv_padded(k_len)]: quantized queries */
    float *g;                /* [MO_CHUNKED_TOKENS][heads] */
    mo_attend_space *attend; /* [threads] */
    mo_made *made;           /* [heads] for a single token: KV heads that are ready */
    int64_t alone;           /* and the last mark that was used */

    float *scores;  /* [batch][experts] */
    mo_picks picks; /* of the layer; its rows are the rows of gate, up and down */
    /* [batch * used] 0, 1, 2, ...: picks for products that use an expert's rows as they are */
    int32_t *identity;
    int32_t *rows;       /* [batch * used] rows of a round, in any order */
    mo_need *needs;      /* [experts] */
    void *guess_in;      /* acts [1][D]: predicted input of the next layer's router */
    float *guess_scores; /* [experts] */
    uint8_t *row;        /* [threads][bytes of an embedding] */
    float *gate, *up;    /* [batch * used][F] */
    void *hidden;        /* acts [batch * used][F] */
    float *down;         /* [batch * used][outputs of an expert] */
    mo_experts_latent latent_experts;

    mo_side_space side;
    mo_logits_space logits;

    mo_adapting adapting; /* of the step */
    void *low_memory;     /* memory for adapters, while some are open: job lists, and u */
    size_t low_bytes;

    mo_phases phases;
    mo_flow flow; /* from ffn_in to ffn_out */
} mo_workspace;

/* Columns of the parts of latent attention, for all heads together. */
typedef struct mo_latent_extent {
    int64_t in, q, plain, mixed, heads;
} mo_latent_extent;

/* Columns of indexer products; positions kept, and bytes of a chunk of them, in any format. */
typedef struct mo_index_extent {
    int64_t q, k, heads, top, gathered;
    int64_t block; /* bytes of a block of such positions in any format */
} mo_index_extent;

/* Compressed attention: compressor inputs of a token, the longest key, groups of heads. */
typedef struct mo_compressed_extent {
    int64_t pairs, key, groups;
} mo_compressed_extent;

/* Maximum sizes over all layers of a model. */
typedef struct mo_extent {
    int64_t mixer_q, mixer_k, mixer_v, mixed; /* columns of the mixer's products and of its result */
    int64_t gates;                            /* of an attention's heads */
    int64_t parts;                            /* values between two products of a mixer */
    int64_t queries, k_len, v_len;            /* attention: query heads per piece of work, and lengths */
    mo_latent_extent latent;
    mo_index_extent index;
    mo_compressed_extent compressed;
    int64_t head_floats; /* partials of one chunk in any KV format */
    /* attention: query heads, their quantized bytes, and the bytes of one plane */
    int64_t heads, code_bytes, plane;
    int64_t pairs; /* of a rope */
    int64_t experts, used, expert_width, side_width;
    int64_t expert_io;     /* inputs and outputs of an expert */
    int64_t expert_latent; /* the same where it differs from the model's width */
} mo_extent;

/* Query heads per piece of work: those of a KV head, or some of latent attention. */
int64_t mo_attention_part(const mo_attention *a); /* attention.c */

mo_extent mo_extent_of(const mo_model_spec *spec);

size_t mo_workspace_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads, int ropes);
mo_status mo_workspace_init(mo_workspace *w, const mo_model_spec *spec, const mo_kernels *kernels,
                            int64_t batch, int64_t context, int threads, int ropes, mo_error *err);
void mo_workspace_drop(mo_workspace *w);

/* Additional memory of steps with adapters, if `adapters` are open whose ranks add up to `ranks`. */
size_t mo_workspace_low_bytes(const mo_model_spec *spec, int64_t batch, int adapters, int64_t ranks);
mo_status mo_workspace_lower(mo_workspace *w, const mo_model_spec *spec, int64_t batch, int adapters,
                             int64_t ranks, mo_error *err);

#endif
