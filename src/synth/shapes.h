/* Shapes: hyperparameters of published models, and the contents of each architecture's files: metadata keys,
   and tensors with name, size and role. Constant data; any thread may read it. */
#ifndef MO_SYNTH_SHAPES_H
#define MO_SYNTH_SHAPES_H

#include "gguf/write.h"

/* The published mix of formats of a model's file. */
typedef enum mo_mix {
    /* Q4_K; Q6_K for the output matrix and, in half of the layers, for values and down */
    MO_MIX_Q4_K_M,
    MO_MIX_Q4_K_M_EIGHT, /* the same for eight experts, where the small attention gets more bits */
    MO_MIX_MXFP4,        /* experts MXFP4, other matrices Q8_0 */
} mo_mix;

/* Sizes that an architecture does not use are 0. */
typedef struct mo_shape {
    const char *name;  /* as in "gpt-oss-20b" */
    const char *title; /* as published */
    const char *architecture;
    int32_t layers;
    int32_t width;                 /* of the residual stream */
    int32_t heads, kv_heads, head; /* counts, and values per head */
    int32_t value_head;            /* length of a head's value; 0: as `head` */
    float value_scale;             /* factor of attention's output, if the file has it */
    int32_t rotated;               /* values of a head that RoPE rotates */
    int32_t experts, experts_used, expert_ffn;
    int32_t ffn, shared_ffn; /* widths of the dense and the shared feed-forward */
    int32_t vocabulary, context;
    float rope_base, epsilon;
    mo_mix mix;
    bool centered;   /* norms subtract the mean first */
    bool tied;       /* the output matrix is the embedding */
    bool head_norms; /* queries and keys are normed, if that is optional in the architecture */

    /* Models with experts: dense layers at the beginning, and how experts are chosen. */
    int32_t dense_layers;
    bool odd_experts; /* every other layer is dense, starting with the first */
    /* width of the shared expert in multiples of an expert's width, if the file has it */
    int32_t shared_count;
    int32_t gating;      /* mo_gating, if the file has it */
    bool normalized;     /* weights are normalized; written if the file has gating */
    float weights_scale; /* factor of the experts' weights */
    int32_t groups, groups_used;

    /* Factors; 0: none. */
    float embedding_scale, residual_scale, attention_scale, logit_scale;
    float linear_factor;  /* positions are divided by it */
    float rope_magnitude; /* factor of cosines and sines, if the file has it */

    /* Latent attention: values of the row that heads share (head: these and the rotated ones, of one KV
       head), of the compressed query (0: queries come from the stream), of a query without its rotated
       part, and of a head's result. */
    int32_t latent, query_rank, plain, head_out;
    /* Its indexer: heads, values per head, positions that are kept; 0: no indexer. Either layers 0, 1, 2,
       6, 10, ... have their own, or all layers have. */
    int32_t index_heads, index_length, index_top;
    bool index_shared;
    float yarn_log; /* YaRN's factor of scores, if the file has it */

    const char *blocks;    /* layers with one part each: M Mamba, * attention, E experts, - dense */
    int32_t expert_io;     /* input and output width of experts; 0: that of the stream */
    int32_t full_interval; /* period of layers with full attention; 0: all */
    uint64_t attends;      /* alternatively, a bit for each layer with attention; others have no KV heads */

    /* Compressed attention: groups of heads, and values of each group that the output product reads; the
       RoPE base in layers with compressed keys (layers 2, 4, 6, ...: of 4 tokens each; layers 3, 5, 7,
       ...: of 128). For the same models: layers at the beginning whose experts depend on the token; a
       limit of all activations; residual streams, how often their shares are balanced, and its
       epsilon. */
    int32_t out_groups, out_rank;
    float compressed_base;
    int32_t hashed;
    float limit;
    int32_t streams, balancings;
    float streams_epsilon;

    int32_t short_taps; /* short convolution in layers without attention */

    /* Layers without full attention: the gated delta rule, Mamba, */
    int32_t conv_kernel, state, key_groups, value_heads, inner;

    /* or attention in a window, possibly with other head sizes, counts and rotations. */
    int32_t window, window_head, window_heads, window_kv_heads, window_rotated;
    bool full_first; /* the first layer of a period has full attention, not the last */
    bool flags;      /* the file has a flag for each layer instead of a period */
    float window_rope_base;

    float expert_limit, shared_limit; /* of activations, in the last two layers and in the last layer */

    float yarn_factor;
    int32_t yarn_context;  /* the context length before stretching */
    float temper;          /* how fast queries grow with their position, */
    int32_t temper_length; /* in periods of this many tokens, if the file has it */
    float logit_cap;
} mo_shape;

/* A tensor's role, which decides its format and the size of its random values. */
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
    MO_SHAPE_SCALE,       /* multiplies a matrix' outputs */
    /* F32 in every mix: */
    MO_SHAPE_ROUTER,
    MO_SHAPE_ROUTER_SCALE, /* multiplies the router's inputs */
    MO_SHAPE_STREAMS,      /* reads all residual streams */
    MO_SHAPE_VECTOR,       /* one output from the stream */
    MO_SHAPE_NORM,
    MO_SHAPE_HEAD_NORM, /* of queries and keys */
    MO_SHAPE_POST_NORM, /* before the result is added to the stream */
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
    int layer; /* -1: not in a layer */
} mo_shape_tensor;

/* The shapes by number. NULL past the last. */
const mo_shape *mo_shape_at(int index);

/* The shape with this name, ignoring case, or NULL. */
const mo_shape *mo_shape_named(const char *name);

/* Writes the tensors of the first `layers` layers, in file order (at most capacity; out may be NULL if that
   is 0). Returns the total number. */
int64_t mo_shape_tensors(const mo_shape *s, int layers, mo_shape_tensor *out, int64_t capacity);

/* The role of a tensor of this architecture (any, if it is unknown) by its name, after "blk.N." for a layer.
   False: no shape has it. */
bool mo_shape_role_named(const char *architecture, const char *name, mo_shape_role *out);

/* Adds the metadata of a model with this many layers to w, without the tokenizer. */
void mo_shape_keys(const mo_shape *s, int layers, mo_gguf_writer *w);

/* The published format of a tensor, with the fallback below. */
mo_type mo_shape_format(const mo_shape *s, const mo_shape_tensor *t);

/* Returns `type` if rows of `cols` values fit its block. Otherwise the format that quantizers use instead:
   one with 32-value blocks of about the same size, or F16. */
mo_type mo_shape_fallback(mo_type type, int64_t cols);

/* Does the role's format depend on the mix? False for roles that are always F32. */
bool mo_shape_mixed(mo_shape_role role);

#endif
