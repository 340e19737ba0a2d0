/* Op: one piece of a layer's work on a device, with everything it needs to know. Addresses are the device's; an
 * op reads and writes device memory (or pinned memory by its device address) and nothing else. Every op but MO_OP_BF16 gives the
 * bits of the scalar definition (docs/numerics.md), whatever device runs it.
 *
 * Included by C and by CUDA C++: plain types only. What changes from token to token (positions, chosen experts,
 * counts of work) is in device memory, so that a list of ops can be made once and run again and again. */
#ifndef MO_DEVICE_OP_H
#define MO_DEVICE_OP_H

#include <stdint.h>

/* An address of a device. Never a host pointer; 0 is nothing. */
typedef uint64_t mo_daddr;

enum {
    MO_OP_MATRICES = 5,        /* products of one op */
    MO_OP_NORMS = 3,           /* normed copies of the stream that one op makes */
    MO_OP_RANGES = 4,          /* ranges of one publication */
    MO_OP_ALIGN = 256,         /* of matrices, vectors and the parts of an expert on a device */
    MO_OP_EXPERTS = 1024,      /* most experts of a layer, as MO_EXPERTS_MAX */
    MO_OP_USED = 64,           /* most experts that a token uses */
    MO_OP_SORTED = 512,        /* most rows of a worklist that is in the order of experts */
    MO_OP_SMALL = 8,           /* tokens whose attention has space for every chunk's result */
    MO_OP_GROUPS = 64,         /* most groups of experts */
    MO_OP_ROWS = 64,           /* most rows of a group that is interleaved */
    MO_OP_EXPERT_DATA = 65535, /* most experts that one op restores */
    MO_OP_ADAPTERS = 16,       /* adapters of one op, as MO_ADAPTERS_MAX */
    MO_OP_USES = 8,            /* adapters of a token, as MO_ADAPTERS_USED */
    MO_OP_STAYS = 256,         /* most values of a column of a recurrent state that stays */
    MO_OP_BF16_COLS = 32,      /* rows of matrices in bfloat16 are as many values, or a multiple */
};

/* A matrix, in the file's layout, and what is done to its finished product: times *scale, plus bias. */
typedef struct mo_dmatrix {
    mo_daddr data;  /* 0: absent */
    mo_daddr scale; /* float[1], or 0 */
    mo_daddr bias;  /* float[rows], or 0 */
    int32_t type;   /* mo_type */
    int32_t rows, cols;
    int32_t unused;
} mo_dmatrix;

/* Rows of activations, laid out as mo_acts (numeric/acts.h): values, codes, scales, d*sum, sums, half sums. */
typedef struct mo_dacts {
    mo_daddr x, q, d, s, sum, half_sum;
    int32_t cols; /* codes exist only when cols is a multiple of 32 */
    int32_t unused;
} mo_dacts;

/* One layer of one session's state. The KV cache is in blocks of 128 positions (numeric/kv.h) behind a table,
 * which stands while a step runs; where it is circular its length is even, so that a chunk's two blocks are
 * neighbours in it. */
typedef struct mo_dstate {
    mo_daddr blocks; /* mo_daddr[length]: where each block is */
    int64_t length;
    /* Where all blocks are at the same distance in the table's order, as those of a session that shares none do: the first
     * and the distance, which say the same as the table one look into memory sooner. stride 0: only the table says. */
    mo_daddr first;
    int64_t stride;
    mo_daddr conv;  /* float[taps - 1][channels], oldest first */
    mo_daddr delta; /* float[v_heads][head][head]; short convolution: none; Mamba: as in numeric/mamba.h */
} mo_dstate;

/* Where a token of the step belongs. */
typedef struct mo_dplace {
    mo_daddr layers; /* mo_dstate[] of its session, one per layer */
    int64_t position;
    int32_t slice; /* of the step */
    int32_t into;  /* its number in that slice */
    /* A row of a picture, where the model says so; 0 for tokens: */
    int32_t ahead; /* rows behind it that it sees too, in layers with a window */
    int32_t added; /* 1: MO_OP_STREAM adds its features */
} mo_dplace;

/* Consecutive tokens of one session. */
typedef struct mo_dslice {
    mo_daddr layers;
    int64_t position;     /* of its first token */
    int32_t first, count; /* tokens of the step */
} mo_dslice;

/* Experts to compute, by rows: (token, rank). In device memory: the head, then `count` items. */
typedef struct mo_dwork {
    int32_t count;
    int32_t missing; /* rows whose expert is not on the device; filled by MO_OP_CHOOSE */
    int32_t unused[2];
} mo_dwork;
typedef struct mo_dwork_item {
    mo_daddr base; /* of the expert: gate, then up, then down */
    int32_t expert;
    int32_t token; /* row of the activations that gate and up read */
    int32_t row;   /* of hidden and of the output: token * used + rank */
    int32_t unused;
} mo_dwork_item;

/* Rows that are together and are multiplied by one expert's matrix; or all rows and a core matrix. */
typedef struct mo_dgroup {
    mo_daddr data;        /* of the matrix */
    int32_t expert;       /* scale + expert, bias + expert * rows */
    int32_t first, count; /* rows */
    int32_t unused;
} mo_dgroup;

typedef enum mo_op_kind {
    MO_OP_STREAM,       /* adds to the residual stream, norms it */
    MO_OP_PRODUCT,      /* several matrices times the same rows */
    MO_OP_GROUPED,      /* groups of rows, each times a matrix of its own */
    MO_OP_ROUND,        /* rows to bfloat16 */
    MO_OP_TO_BF16,      /* matrices to bfloat16 */
    MO_OP_BF16,         /* the product of both */
    MO_OP_ACTIVATE,     /* gate and up to hidden */
    MO_OP_HEADS,        /* queries, keys and values: norms, rotation, into the cache */
    MO_OP_LATENT,       /* latent attention: queries and keys */
    MO_OP_INDEX,        /* its indexer: queries and keys */
    MO_OP_KEEP,         /* which positions it keeps */
    MO_OP_GATHER,       /* a cache of these alone */
    MO_OP_ATTEND,       /* attention */
    MO_OP_COLLECT,      /* rows of every head to rows of every token */
    MO_OP_CONVOLVE,     /* delta rule: causal convolution */
    MO_OP_RECUR,        /* delta rule: the recurrence */
    MO_OP_SHORT_CONV,   /* short convolution */
    MO_OP_SSM_CONVOLVE, /* Mamba: causal convolution */
    MO_OP_SSM_PARTS,    /* Mamba: norms of a step's parts */
    MO_OP_SSM_SCAN,     /* Mamba: the scan */
    MO_OP_CHOOSE,       /* the router's choice */
    MO_OP_ARRANGE,      /* what was chosen, expert by expert */
    MO_OP_EXPERTS_IN,   /* gate, up, activation of a worklist's rows */
    MO_OP_EXPERTS_DOWN, /* down of a worklist's rows */
    MO_OP_LOGITS,       /* soft cap, and a look for numbers that are none */
    MO_OP_PUBLISH,      /* ranges to the host, then a flag */
    MO_OP_AWAIT,        /* waits for the host, takes its rows */
    MO_OP_RESTORE,      /* interleaved matrices back to the file's layout */
    MO_OP_LOWER,        /* adapters: A x */
    MO_OP_ADAPT,        /* adapters: y + f B (A x) */
    MO_OP_KINDS
} mo_op_kind;

/* out = quantized((norm(x, weight) * scale) * multiply + add): weight 0: norm without weight; scale applied unless it is 1;
 * multiply or add 0: none. Codes are made when n is a multiple of 32. */
typedef struct mo_op_norm {
    mo_daddr weight, multiply, add;
    float scale;
    int32_t unused;
    mo_dacts out; /* out.x 0: this norm is absent */
} mo_op_norm;

/* The residual stream of each token. What is added:
 *   from the mixer: y, through y_norm where there is one;
 *   from the feed-forward part: as mo_merge_token() in numeric/merge.h: experts' rows with their weights in router order, the
 *   shared part, norms of each part, then post_norm.
 * Then x += that, x *= *out_scale, *bad is set to 1 where x is not finite, features of rows of pictures are added, and the norms are made of
 * x. */
typedef struct mo_op_stream {
    mo_daddr x; /* float[tokens][n] */
    int32_t tokens, n;
    float eps;
    int32_t
        feed; /* 0: y is added (or nothing when y is 0); 1: the feed-forward part is; 2: to zeros: x is not read */
    mo_daddr y;      /* float[tokens][n] */
    mo_daddr y_norm; /* float[n] or 0 */
    /* feed: */
    int32_t used;                             /* experts per token; 0: no experts */
    int32_t centered;                         /* the norms made of x subtract its mean first */
    mo_daddr weights;                         /* float[tokens][used] */
    mo_daddr ids;                             /* int32[tokens][used]; a negative one is passed over */
    mo_daddr down;                            /* float[rows][n] */
    mo_daddr row_of;                          /* int32[tokens][used], or 0: token * used + rank */
    mo_daddr shared;                          /* float[tokens][n] the shared expert's output, or 0 */
    mo_daddr shared_gate;                     /* float[tokens], through a sigmoid; or 0: 1 */
    mo_daddr dense;                           /* float[tokens][n] the dense part's output, or 0 */
    mo_daddr dense_norm, moe_norm, post_norm; /* float[n] or 0 */
    mo_daddr out_scale;                       /* float[1] or 0 */
    mo_daddr bad;                             /* uint32, set, never cleared; or 0 */
    mo_daddr features;                        /* float[tokens][n], of those whose place says so; or 0 */
    mo_daddr places;                          /* mo_dplace[tokens], with features */
    mo_op_norm norm[MO_OP_NORMS];
} mo_op_stream;

/* y[i][t * stride[i] + r] = matrix i, row r . row t of in; then scale and bias. */
typedef struct mo_op_product {
    mo_dacts in;
    int32_t tokens, count;
    mo_dmatrix matrix[MO_OP_MATRICES];
    mo_daddr y[MO_OP_MATRICES];
    int64_t stride[MO_OP_MATRICES]; /* floats */
} mo_op_product;

/* For every group g and row i in it: y[i * stride + r] = matrix of g, row r . row pick[i] of in. */
typedef struct mo_op_grouped {
    mo_dacts in;
    mo_daddr pick;   /* int32[rows], or 0: row i itself */
    mo_daddr groups; /* mo_dgroup[count] in device memory */
    int32_t count;   /* groups */
    int32_t rows;    /* that in (or pick) and y have; groups name some of them */
    int32_t most;    /* rows of the largest group */
    int32_t
        lossy_rows; /* rows of in, where the product may be in bfloat16 (gpu/bf16.h); devices do not look */
    mo_dmatrix matrix; /* shape; scale and bias of expert 0; data unused */
    mo_daddr y;
    int64_t stride; /* floats */
} mo_op_grouped;

/* Products in bfloat16 (docs/numerics.md) are three ops. ROUND: to = from, rounded. */
typedef struct mo_op_round {
    mo_daddr from; /* float[count] */
    mo_daddr to;   /* uint16[count] */
    int64_t count;
} mo_op_round;

/* Matrix i, decoded and rounded, goes to number i of `to`. Groups that have no rows have no matrix either, and their place stays as it is. */
typedef struct mo_op_to_bf16 {
    mo_dmatrix matrix; /* shape; and data, where there are no groups. Scale and bias are unread */
    mo_daddr groups;   /* mo_dgroup[count] in device memory; or 0: matrix.data alone */
    mo_daddr to;       /* uint16[count][rows][cols] */
    int32_t count;     /* groups; without them 1 */
    int32_t unused;
} mo_op_to_bf16;

/* As MO_OP_GROUPED of what the two others made, but that the order of the sums is the device's own. cols is a multiple of MO_OP_BF16_COLS. */
typedef struct mo_op_bf16 {
    mo_daddr in;   /* uint16[...][cols] */
    mo_daddr pick; /* int32[rows], or 0: row i itself */
    mo_daddr
        groups;    /* mo_dgroup[count] in device memory, of which data is not read; or 0: one, of all rows */
    mo_daddr bf16; /* uint16[count][rows of a matrix][cols] */
    int32_t count; /* groups; without them 1 */
    int32_t rows;  /* that in (or pick) and y have; groups name some of them */
    int32_t most;  /* rows of the largest group */
    int32_t unused;
    mo_dmatrix matrix; /* shape; scale and bias of expert 0; data and type unread */
    mo_daddr y;
    int64_t stride; /* floats */
} mo_op_bf16;

/* hidden = quantized(activation(gate, up)), rows of n values. gate may be up, where the activation does not look at it. */
typedef struct mo_op_activate {
    mo_daddr gate, up; /* float[rows][n] */
    mo_dacts hidden;
    int32_t rows, n;
    int32_t activation; /* mo_activation */
    float limit;        /* of MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
} mo_op_activate;

/* As mo_heads_prepare() in numeric/heads.h, for every token and KV head. q, k and v are the products and are changed
 * in place; a query head is k_len values (2 * k_len with its gate when gated). */
typedef struct mo_op_heads {
    mo_daddr q, k, v; /* float[tokens][...] */
    mo_daddr q_norm,
        k_norm;    /* or 0. norm_all: over all heads of a token together, before they are taken apart */
    mo_daddr rope; /* float[2][rope_rows][rope_stride]: c of every token, then s; or 0 */
    int64_t rope_rows, rope_stride;
    mo_daddr q_factor; /* float[tokens] that the finished queries are multiplied by; or 0 */
    mo_daddr places;   /* mo_dplace[tokens] */
    mo_daddr bad;      /* uint32: set to 1 when a value does not fit the KV format */
    int32_t tokens, layer;
    int32_t heads, kv_heads, k_len, v_len, n_rot;
    int32_t neox, gated, norm_all, v_norm;
    int32_t v_from_k; /* the raw product of k serves as v, before k is normed and rotated */
    int32_t kv;       /* mo_kv_type */
    float eps;
    int32_t norm_last; /* norms of heads come after the rotation */
    int32_t unused;
} mo_op_heads;

/* Latent attention, as mo_latent_query() and mo_latent_key() in numeric/heads.h: for every token and head the plain part of its query goes to the rows
 * that k_b multiplies, head by head, and the rotated tail to the finished query, whose beginning that product makes; every token's row goes
 * into the cache. rope 0: nothing rotates. And the groups of both products are written: the rows of head h, all tokens, with part h of the matrix. */
typedef struct mo_op_latent {
    mo_daddr q;    /* float[tokens][heads][plain.cols + n_rot]: the product */
    mo_daddr k;    /* float[tokens][v_len + n_rot]: the product, changed in place */
    mo_daddr norm; /* float[v_len] */
    mo_daddr rope; /* float[2][rope_rows][rope_stride]: c of every token, then s */
    int64_t rope_rows, rope_stride;
    mo_daddr q_factor; /* as of mo_op_heads */
    mo_daddr places;   /* mo_dplace[tokens] */
    mo_daddr bad;      /* uint32: set to 1 when a value does not fit the KV format */
    mo_dacts plain;    /* [heads][tokens] rows */
    mo_daddr query;    /* float[heads][tokens][v_len + n_rot] */
    mo_daddr groups;   /* mo_dgroup[2][heads]: of k_b, of v_b */
    mo_daddr data[2];
    int64_t part_bytes[2]; /* of one head's part */
    int32_t tokens, layer;
    int32_t heads, v_len, n_rot;
    int32_t kv; /* mo_kv_type */
    float eps;
    int32_t unused;
} mo_op_latent;

/* An indexer's part of a step (docs/numerics.md), as mo_index_query() and mo_index_key() in numeric/index.h: queries and shares in place, keys into the
 * blocks of the latent rows. */
typedef struct mo_op_index {
    mo_daddr q;          /* float[tokens][heads][length]: the product, changed in place, */
    mo_daddr k;          /* as float[tokens][length] */
    mo_daddr share;      /* and float[tokens][heads] */
    mo_daddr norm, bias; /* float[length] of keys */
    mo_daddr rope;       /* float[2][rope_rows][rope_stride]: c of every token, then s */
    int64_t rope_rows, rope_stride;
    mo_daddr places; /* mo_dplace[tokens] */
    mo_daddr bad;    /* uint32: set to 1 when a key is not finite */
    int32_t tokens, layer;
    int32_t heads, length, n_rot;
    int32_t neox;             /* halves rotate */
    int32_t kv, k_len, v_len; /* of the latent rows, before the indexer's keys in a block; */
    int32_t tail;             /* k_len - v_len */
    float scale;              /* of shares */
    int32_t unused;
} mo_op_index;

/* Of every token at position `top` and up: its scores over all positions it sees, and the `top` best of them, as mo_index_choose(). Other tokens
 * keep all, and nothing is written for them. */
typedef struct mo_op_keep {
    mo_daddr q, share; /* as MO_OP_INDEX left them */
    mo_daddr places;
    mo_daddr scores; /* space: float[tokens][stride] */
    mo_daddr kept;   /* int32[tokens][top], ascending */
    int64_t stride;
    int64_t most; /* positions that any token sees */
    int32_t tokens, layer;
    int32_t heads, length, top;
    int32_t kv, k_len, v_len, tail;
    int32_t unused;
} mo_op_keep;

/* For every token a place for MO_OP_ATTEND, as of a session of its own with one layer: the positions that were kept, one after the other in
 * blocks of its own; or, where it keeps all, those of its session. */
typedef struct mo_op_gather {
    mo_daddr places;
    mo_daddr kept;
    mo_daddr blocks; /* [tokens][mo_kv blocks for top positions] space */
    mo_daddr tables; /* mo_daddr[tokens][as many] */
    mo_daddr states; /* mo_dstate[tokens] */
    mo_daddr out;    /* mo_dplace[tokens] */
    int32_t tokens, layer;
    int32_t top;
    int32_t kv, k_len, v_len, tail;
    int32_t unused;
} mo_op_gather;

/* out[t] = the rows of all heads, one after the other, each times its gate, quantized. by_token: from may be out.x. */
typedef struct mo_op_collect {
    mo_daddr from; /* float[heads][tokens][n], or [tokens][heads][n] by_token */
    mo_daddr gate; /* float[tokens][heads], or [tokens][heads][n] where each value has its own; 0: none */
    mo_dacts out;  /* [tokens][heads * n] */
    int32_t tokens, heads, n;
    int32_t by_token, each;
    int32_t kind; /* mo_gate_kind */
} mo_op_collect;

/* Attention (docs/numerics.md): chunks of mo_kv_chunk() positions merged in ascending order, sinks, division, gate, then
 * the mixed row is quantized. Queries are floats for every KV format; where that has codes, this op codes them. */
typedef struct mo_op_attend {
    mo_daddr q;      /* as mo_op_heads left it */
    mo_daddr sinks;  /* float[heads] or 0 */
    mo_daddr places; /* mo_dplace[tokens] */
    mo_daddr
        partial; /* space for tokens * chunks * heads * mo_kv_partial() floats; of MO_OP_SMALL tokens unless they are apart */
    mo_dacts mixed; /* [tokens][heads * v_len] */
    int64_t window; /* visible positions up to the token's own; 0: all */
    int32_t tokens, layer;
    int32_t heads, kv_heads, k_len, v_len;
    int32_t gated;
    int32_t kv;     /* mo_kv_type */
    int32_t chunks; /* most chunks of mo_kv_chunk() positions that any of the tokens sees */
    float scale;
    int32_t apart; /* every token is of another session: they have no keys in common */
    int32_t made;  /* the op before makes places and blocks: they do not stand from the step's beginning */
    /* Latent rows: the values behind a key's value; kv_heads is 1, and queries and mixed are rows of k_len and of v_len values, head by head:
     * `between` rows from one head's first to the next one's. 0: they are not latent. */
    int32_t tail;
    int64_t between;
} mo_op_attend;

/* What becomes of the recurrent states of an op: they move on with its tokens; they stay as they were; or they move on, and what else the
 * op would have made is not of use: it may be left out, or be anything. */
typedef enum mo_state_use { MO_STATE_MOVES, MO_STATE_STAYS, MO_STATE_ONLY } mo_state_use;

/* As mo_delta_convolve(), mo_delta_decays() and mo_delta_keep() in numeric/delta.h. Decays of channels take the place of what they are made of. */
typedef struct mo_op_convolve {
    mo_daddr before; /* float[tokens][channels]: q heads, k heads, v heads */
    mo_daddr after;  /* the same shape; q and k heads are normed */
    mo_daddr weight; /* float[taps][channels] */
    mo_daddr places, slices;
    mo_daddr gates, a,
        dt; /* of decays of channels: float[tokens][mo_delta_gate_values()], float[v_heads], float[v_heads * head] */
    int32_t tokens, slice_count, layer;
    int32_t k_heads, v_heads, head, taps;
    float eps;
    int32_t state; /* mo_state_use */
    int32_t decay; /* mo_decay */
    float bound;   /* of MO_DECAY_BOUNDED; 0 otherwise */
    int32_t unused;
} mo_op_convolve;

/* As mo_delta_step() in numeric/delta.h: recurrence, norm, gate with silu(z) or sigmoid(z), then the mixed row is quantized. */
typedef struct mo_op_recur {
    mo_daddr after;
    mo_daddr z;     /* float[tokens][v_heads * head] */
    mo_daddr gates; /* float[tokens][2 * v_heads]: beta and alpha; or as MO_OP_CONVOLVE leaves them */
    mo_daddr a, dt; /* float[v_heads], of MO_DECAY_HEADS */
    mo_daddr norm;  /* float[head] */
    mo_daddr slices;
    mo_dacts mixed; /* [tokens][v_heads * head] */
    int32_t tokens, slice_count, layer;
    int32_t k_heads, v_heads, head;
    int32_t tiled;
    int32_t
        paired; /* gates come per key head: its betas, then its alphas; otherwise all betas, then all alphas */
    float eps, scale;
    int32_t state; /* mo_state_use */
    int32_t decay; /* mo_decay */
} mo_op_recur;

/* As mo_short_convolve() in numeric/short_conv.h, then the mixed row is quantized. */
typedef struct mo_op_short_conv {
    mo_daddr in;     /* float[tokens][3 * channels]: b, c, x */
    mo_daddr weight; /* float[taps][channels] */
    mo_daddr places, slices;
    mo_dacts mixed; /* [tokens][channels] */
    int32_t tokens, slice_count, layer;
    int32_t channels, taps;
    int32_t state; /* mo_state_use */
} mo_op_short_conv;

/* As mo_mamba_convolve() in numeric/mamba.h. */
typedef struct mo_op_ssm_convolve {
    mo_daddr before;       /* float[tokens][channels] */
    mo_daddr weight, bias; /* float[taps][channels], float[channels] */
    mo_daddr places, slices;
    mo_dacts after; /* [tokens][channels]; q 0: values alone */
    int32_t tokens, slice_count, layer;
    int32_t channels, taps;
    int32_t state; /* mo_state_use */
} mo_op_ssm_convolve;

/* As mo_mamba_parts() in numeric/mamba.h; dt is quantized. */
typedef struct mo_op_ssm_parts {
    mo_daddr rows; /* float[tokens][rank + 2 * states]: dt, b, c */
    mo_daddr dt_norm, b_norm, c_norm;
    mo_dacts dt; /* [tokens][rank] */
    int32_t tokens, rank, states;
    float eps;
} mo_op_ssm_parts;

/* As mo_mamba_scan() and mo_mamba_finish() in numeric/mamba.h, then the mixed row is quantized. */
typedef struct mo_op_ssm_scan {
    mo_daddr x;  /* float[tokens][x_stride], of which inner are read; may be mixed.x */
    mo_daddr bc; /* float[tokens][bc_stride]: b of each group, then c */
    int64_t x_stride, bc_stride;
    mo_daddr dt;      /* float[tokens][heads], or [inner] without heads */
    mo_daddr z;       /* float[tokens][inner] */
    mo_daddr a, d;    /* float[heads] each; without heads float[states][inner], float[inner] */
    mo_daddr dt_bias; /* float[heads], or 0 without heads */
    mo_daddr norm;    /* float[inner], or 0 without heads */
    mo_daddr slices;
    mo_dacts mixed; /* [tokens][inner] */
    int32_t tokens, slice_count, layer;
    int32_t inner, states, heads, groups;
    float eps;
    int32_t state; /* mo_state_use */
    int32_t unused;
} mo_op_ssm_scan;

/* As mo_route() in numeric/route.h. With a table, work gets the rows whose expert is on the device, in row order; of
 * several tokens with at most MO_OP_SORTED rows those of an expert follow each other, experts ascending: its bytes are read once from memory
 * and for the other tokens from a cache. */
typedef struct mo_op_choose {
    mo_daddr scores;      /* float[tokens][experts]: the router's products; changed */
    mo_daddr select_bias; /* float[experts] or 0 */
    mo_daddr ids;         /* int32[tokens][used] */
    mo_daddr weights;     /* float[tokens][used] */
    mo_daddr table;       /* mo_daddr[experts]: where each expert is, 0: not here; or 0: no work is made */
    mo_daddr work;        /* mo_dwork and space for tokens * used items */
    int32_t tokens, experts, used;
    int32_t gating; /* mo_gating */
    int32_t normalize;
    int32_t groups, groups_used;
    float scale;
} mo_op_choose;

/* The rows of a choice in the order of their experts, for MO_OP_GROUPED: a group for every expert, whose rows follow those
 * of the experts before, in the order of tokens. Every expert that was chosen is on the device. */
typedef struct mo_op_arrange {
    mo_daddr ids;    /* int32[tokens][used] */
    mo_daddr table;  /* mo_daddr[experts]: where each expert is */
    mo_daddr groups; /* mo_dgroup[3][limit] of gate, up and down: the first `experts` of each are written */
    mo_daddr picks;  /* int32[tokens * used]: the token of each row */
    mo_daddr row_of; /* int32[tokens][used]: the row of each choice */
    mo_daddr counts; /* int32[experts]: rows of each expert */
    int64_t up_at, down_at;
    int32_t tokens, experts, used;
    int32_t limit;
} mo_op_arrange;

/* For every item of the worklist. IN: hidden row = quantized(activation(gate . in[token], up . in[token])).
 * DOWN: y[row] = down . hidden row. Parts of an expert: gate at 0, up and down at their offsets. */
typedef struct mo_op_experts {
    mo_daddr work; /* mo_dwork and its items */
    int32_t most;  /* items there can be */
    int32_t activation;
    mo_dacts in, hidden;
    mo_dmatrix gate, up, down; /* shapes; scale and bias of expert 0; data unused */
    int64_t up_at, down_at;
    mo_daddr y;          /* float[rows][down.rows] */
    int32_t list_stands; /* a device's own note: the op before did not make the list. 0 from other callers */
    float limit;         /* of MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
} mo_op_experts;

/* x = softcap(x) when cap > 0; *bad is set to 1 where one is not finite. best: 0, or uint64[rows], each of which becomes the largest
 * of itself and of what mo_rank_of() says of the row; what it says of numbers that are not finite means nothing. */
typedef struct mo_op_logits {
    mo_daddr x; /* float[rows][cols] */
    int64_t count;
    mo_daddr bad;
    float cap;
    int32_t cols; /* with best alone: count is rows * cols */
    mo_daddr best;
} mo_op_logits;

/* Copies the ranges (multiples of 4 bytes), then writes *sequence into *flag, in this order for any observer. */
typedef struct mo_op_publish {
    mo_daddr from[MO_OP_RANGES], to[MO_OP_RANGES];
    int64_t bytes[MO_OP_RANGES];
    int32_t ranges;
    int32_t unused;
    mo_daddr sequence; /* uint32, device memory */
    mo_daddr flag;     /* uint32, pinned memory */
} mo_op_publish;

/* What the host leaves in pinned memory: which rows it computed. */
typedef struct mo_dreply {
    uint32_t flag;  /* written last: the sequence */
    uint32_t abort; /* nonzero: do not wait any more */
    int32_t count;
    int32_t unused;
    int32_t row[1]; /* [count] */
} mo_dreply;

/* Waits until reply->flag is *sequence (or abort is set, or ten seconds have passed: then *bad is set to 2), and
 * copies the rows named there from `from` to `to`, both float[rows][n]. */
typedef struct mo_op_await {
    mo_daddr reply; /* mo_dreply, pinned */
    mo_daddr sequence;
    mo_daddr from, to;
    int32_t n;
    int32_t most; /* rows there can be */
    mo_daddr bad;
    mo_daddr waited; /* uint32_t: nanoseconds it waited, saturated; 0: not needed */
} mo_op_await;

/* Matrices whose rows were interleaved in groups (numeric/weights.h) for the CPU, back in the file's layout: `count`
 * experts of up to three matrices each, matrix j of expert i from from + at[j] + i * stride[j] to to + the same: whole
 * experts one after another, or all first matrices, then all second ones. from and to do not overlap; from is a multiple
 * of MO_OP_ALIGN. A matrix whose group is 0 is copied as it is; other groups are powers of two from 8 to MO_OP_ROWS. */
typedef struct mo_op_restore {
    mo_daddr from, to;
    int32_t count, parts;
    int64_t at[3], stride[3]; /* multiples of MO_OP_ALIGN */
    int32_t type[3], rows[3], cols[3], group[3];
} mo_op_restore;

/* One adapter of a token; those of a token follow each other, and -1 ends them. */
typedef struct mo_dadapter_use {
    int32_t which; /* of the op's */
    float scale;
} mo_dadapter_use;

/* What one adapter has for a matrix: A, rank rows of floats, and B, column after column; of expert e strides away. */
typedef struct mo_dlow {
    mo_daddr a, b; /* a 0: nothing */
    int64_t a_stride, b_stride, a_bytes;
    int32_t u_at; /* of a row of u: its first value */
    int32_t rank, type;
    float alpha, factor; /* as in mo_lora_factor() of model/lora.h */
    int32_t unused;
} mo_dlow;

/* As there. */
#ifdef __CUDACC__
static __device__ __forceinline__
#else
static inline
#endif
    float
    mo_dlow_factor(const mo_dlow *l, float scale)
{
    const float f = l->alpha != 0.0f ? scale * l->alpha / (float)l->rank : scale;
    return l->factor != 0.0f ? f * l->factor : f;
}

/* What adapters add to the rows of a finished product (docs/numerics.md). LOWER makes u, ADAPT adds to y, both of the same struct. Rows belong
 * to tokens: pick[row], or first + row; and to experts: that of the group that has them, otherwise 0. Rows that no group has are left alone. */
typedef struct mo_op_adapt {
    mo_daddr in;   /* float[in_rows][cols] */
    mo_daddr pick; /* int32[rows], or 0 */
    mo_daddr
        groups; /* mo_dgroup[group_count] in device memory, of which data is not read; or 0: one, of all rows */
    mo_daddr uses; /* mo_dadapter_use[tokens][MO_OP_USES] */
    mo_daddr u;    /* float[rows][u_stride] */
    mo_daddr y;    /* float[rows][stride], n of each */
    int64_t stride, u_stride;
    int32_t in_rows, rows, tokens, first, group_count;
    int32_t gathers; /* row pick[row] of in is read, otherwise the row itself */
    int32_t cols, n;
    mo_dlow low[MO_OP_ADAPTERS];
} mo_op_adapt;

typedef struct mo_op {
    mo_op_kind kind;
    union {
        mo_op_stream stream;
        mo_op_product product;
        mo_op_grouped grouped;
        mo_op_round round;
        mo_op_to_bf16 to_bf16;
        mo_op_bf16 bf16;
        mo_op_activate activate;
        mo_op_heads heads;
        mo_op_latent latent;
        mo_op_index index;
        mo_op_keep keep;
        mo_op_gather gather;
        mo_op_attend attend;
        mo_op_collect collect;
        mo_op_convolve convolve;
        mo_op_recur recur;
        mo_op_short_conv short_conv;
        mo_op_ssm_convolve ssm_convolve;
        mo_op_ssm_parts ssm_parts;
        mo_op_ssm_scan ssm_scan;
        mo_op_choose choose;
        mo_op_arrange arrange;
        mo_op_experts experts; /* in and down */
        mo_op_logits logits;
        mo_op_publish publish;
        mo_op_await await;
        mo_op_restore restore;
        mo_op_adapt adapt; /* and lower */
    };
} mo_op;

#endif
