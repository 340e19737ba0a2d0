/* Shapes: published models by their hyperparameters, and what each architecture's file holds: metadata
 * keys, and tensors with name, size and role. Constant data; any thread may ask. */
#ifndef MO_SYNTH_SHAPES_H
#define MO_SYNTH_SHAPES_H

#include "gguf/write.h"

/* Which published mix of formats a model's file has. */
typedef enum mo_mix {
    MO_MIX_Q4_K_M,       /* Q4_K; Q6_K for the output and, in half of the layers, for values and down */
    MO_MIX_Q4_K_M_EIGHT, /* the same for eight experts, whose small attention gets more bits */
    MO_MIX_MXFP4,        /* experts MXFP4, other matrices Q8_0 */
} mo_mix;

/* Sizes that an architecture does not have are 0. */
typedef struct mo_shape {
    const char *name;  /* as in "gpt-oss-20b" */
    const char *title; /* as published */
    const char *architecture;
    int32_t layers;
    int32_t width;                 /* of the residual stream */
    int32_t heads, kv_heads, head; /* counts, and values of one head */
    int32_t value_head;            /* of its value; 0: as many */
    float value_scale;             /* of what attention adds to the stream, where a file says it */
    int32_t rotated;               /* values of a head that RoPE turns */
    int32_t experts, experts_used, expert_ffn;
    int32_t ffn, shared_ffn; /* widths of the dense and the shared feed-forward */
    int32_t vocabulary, context;
    float rope_base, epsilon;
    mo_mix mix;
    bool centered;   /* norms of the stream subtract its mean first */
    bool tied;       /* the output matrix is the embedding */
    bool head_norms; /* queries and keys are normed, where the architecture leaves that open */

    /* Routed models: dense layers at the beginning, and how experts are chosen. */
    int32_t dense_layers;
    bool odd_experts;     /* every other layer is dense too, from the first on */
    int32_t shared_count; /* the width of the shared expert in experts' widths, where a file says it so */
    int32_t gating;       /* mo_gating, where a file says it */
    bool normalized;      /* the file says that weights are normalized, where it says gating */
    float weights_scale;  /* of the weights */
    int32_t groups, groups_used;

    /* What is multiplied by numbers of the file: 0 for models that have none. */
    float embedding_scale, residual_scale, attention_scale, logit_scale;
    float linear_factor;  /* of positions, which are divided by it */
    float rope_magnitude; /* of cosines and sines, where a file says it */

    /* Latent attention: values of the row that heads share (head is these and the rotated ones, of one KV head), of what queries are made of (0: the
     * stream), of a query that do not rotate, and of a head's result. */
    int32_t latent, query_rank, plain, head_out;
    /* Its indexer: heads, values of a head, positions that are kept; 0: it reads all. Layers 0, 1, 2, 6, 10, ... alone have one of their own, or
     * each does. */
    int32_t index_heads, index_length, index_top;
    bool index_shared;
    float yarn_log; /* how much YaRN stretches scores, where a file says it */

    const char *blocks;    /* layers of one part each: M Mamba, * attention, E experts, - a dense part */
    int32_t expert_io;     /* values that experts read and make; 0: those of the stream */
    int32_t full_interval; /* period of layers with full attention; 0: all */
    uint64_t attends;      /* or a bit for each layer that attends, where others have no KV heads */

    /* Compressed attention: groups of heads, and values of each that the output product reads; the base of what rotates in layers with compressed
     * keys, of which layer 2 and every other one behind it has those of 4 tokens, layer 3 and every other those of 128. And what goes with it:
     * layers at the beginning whose experts follow from the token; a limit of all activations; residual streams, how often their shares are
     * balanced, and the epsilon of that. */
    int32_t out_groups, out_rank;
    float compressed_base;
    int32_t hashed;
    float limit;
    int32_t streams, balancings;
    float streams_epsilon;

    int32_t short_taps; /* of a short convolution, in layers that do not attend */

    /* Layers without full attention: the gated delta rule or Mamba ... */
    int32_t conv_kernel, state, key_groups, value_heads, inner;

    /* ... or a window, perhaps with heads of another size, other numbers of them, and other rotations. */
    int32_t window, window_head, window_heads, window_kv_heads, window_rotated;
    bool full_first; /* the first layer of a period is the one with full attention, not the last */
    bool flags;      /* the file has a flag for each layer in the place of the period */
    float window_rope_base;

    float expert_limit, shared_limit; /* of activations, in the last two layers and in the last one */

    float yarn_factor;
    int32_t yarn_context;  /* the context before stretching */
    float temper;          /* how much queries grow with their position, */
    int32_t temper_length; /* in periods of this many, where a file says it */
    float logit_cap;
} mo_shape;

/* What a tensor is for: decides its format and the size of its random values. */
typedef enum mo_shape_role {
    MO_SHAPE_EMBEDDING,
    MO_SHAPE_OUTPUT,
    MO_SHAPE_MATRIX,      /* reads the stream */
    MO_SHAPE_KEY,         /* attn_k */
    MO_SHAPE_VALUE,       /* attn_v */
    MO_SHAPE_FUSED,       /* attn_qkv */
    MO_SHAPE_BACK,        /* writes to the stream */
    MO_SHAPE_DOWN,        /* writes to the stream from a feed-forward's middle */
    MO_SHAPE_EXPERT,      /* gate, up or both of every expert */
    MO_SHAPE_EXPERT_DOWN, /* down of every expert */
    MO_SHAPE_SCALE,       /* what a matrix' outputs are multiplied by */
    /* F32 in every mix: */
    MO_SHAPE_ROUTER,
    MO_SHAPE_ROUTER_SCALE, /* of the router's inputs */
    MO_SHAPE_STREAMS,      /* reads all residual streams */
    MO_SHAPE_VECTOR,       /* one output of the stream */
    MO_SHAPE_NORM,
    MO_SHAPE_HEAD_NORM, /* of queries and keys */
    MO_SHAPE_POST_NORM, /* before adding to the stream */
    MO_SHAPE_BIAS,
    MO_SHAPE_SINK,
    MO_SHAPE_CONV,
    MO_SHAPE_DECAY, /* ssm_a */
    MO_SHAPE_STEP,  /* ssm_dt */
    MO_SHAPE_ONE,
    MO_SHAPE_ROPE_FACTORS,
    MO_SHAPE_ROPE_STRETCH, /* factors for short or for long contexts */
    MO_SHAPE_TOKENS,       /* I32: the experts of each token */
} mo_shape_role;

typedef struct mo_shape_tensor {
    char name[MO_GGUF_NAME];
    int dims;
    int64_t size[3]; /* first is fastest; missing ones are 1 */
    mo_shape_role role;
    int layer; /* -1: of the whole model */
} mo_shape_tensor;

/* The shapes by number; NULL past the last. */
const mo_shape *mo_shape_at(int index);

/* The shape of a name, in any case, or NULL. */
const mo_shape *mo_shape_named(const char *name);

/* Writes the tensors of the first `layers` layers, in file order, to out (at most capacity of them; out may
 * be NULL when that is 0). Returns how many there are. */
int64_t mo_shape_tensors(const mo_shape *s, int layers, mo_shape_tensor *out, int64_t capacity);

/* What a tensor of this architecture (or, where that is unknown, of any) is for, by its name, behind "blk.N." for one of a layer. False: no
 * shape has it. */
bool mo_shape_role_named(const char *architecture, const char *name, mo_shape_role *out);

/* Puts the metadata of a model with this many layers into w: all but the tokenizer. */
void mo_shape_keys(const mo_shape *s, int layers, mo_gguf_writer *w);

/* The published format of a tensor, with the fallback of below. */
mo_type mo_shape_format(const mo_shape *s, const mo_shape_tensor *t);

/* `type` for rows of `cols` values, or where cols is no multiple of its block what quantizers take
 * instead: a 32-block format of about its size, and F16 when that does not fit either. */
mo_type mo_shape_fallback(mo_type type, int64_t cols);

/* Does the role's format follow the mix? False for what is always F32. */
bool mo_shape_mixed(mo_shape_role role);

#endif
