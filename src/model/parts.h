/* Parts: descriptions of layers and their parts. A family fills them in, and the engine computes from them.
 * Nothing here computes or knows where bytes are stored: loading sets the pointers. */
#ifndef MO_MODEL_PARTS_H
#define MO_MODEL_PARTS_H

#include "numeric/kinds.h"
#include "numeric/rope.h"
#include "numeric/weights.h"

/* Maximum experts of a layer, and maximum groups of them; families reject more. */
enum { MO_EXPERTS_MAX = 1024, MO_EXPERT_GROUPS_MAX = 64 };

/* A matrix, and the operations on its product: times the outer scale, then plus the bias. */
typedef struct mo_linear {
    mo_weights w;       /* w.rows 0: absent */
    const float *scale; /* [1], or NULL */
    const float *bias;  /* [rows], or NULL */
    float factor;       /* family's factor that scale and bias include; adapters need it too. 0: 1 */
} mo_linear;

static inline bool mo_linear_present(const mo_linear *l)
{
    return l->w.rows > 0;
}

/* Latent attention (deepseek2). All heads share one row of values per position, computed by a product and a
 * norm, plus a few rotated values. Together these are the key; the first v_len values are also the value.
 * Nothing else is cached. k_b maps queries to these rows, v_b maps results back. In mo_attention, kv_heads is
 * 1, v_len is the length of the row, k_len includes the n_rot rotated values, and k is the product that
 * computes both. A query head of q has `plain` values and n_rot rotated ones. */
typedef struct mo_latent {
    int64_t plain;       /* unrotated values of a query; 0: attention is not latent */
    int64_t out_len;     /* values of a head's result */
    mo_linear q_a;       /* computes q's input, through q_norm; absent: q reads what k reads */
    const float *q_norm; /* [q_a rows] */
    const float *norm;   /* [v_len], of the row */
    mo_linear k_b;       /* [heads][v_len] rows of `plain` values */
    mo_linear v_b;       /* [heads][out_len] rows of v_len values */
} mo_latent;

/* Sparse latent attention (glm-dsa, deepseek32). A token attends to the `top` earlier positions that an
 * indexer scores highest. A layer with its own indexer has a key per position in the cache, next to the
 * latent row. Other layers use the choice of the nearest such layer before them (docs/numerics.md: The
 * indexer). */
typedef struct mo_indexer {
    int64_t top;                   /* positions kept; 0: all, attention is not sparse */
    int heads;                     /* 0: the layer has no indexer */
    int64_t length;                /* values of a key, and of each head's query */
    bool neox;                     /* the first n_rot of them (of the attention) rotate, in halves */
    mo_linear q;                   /* [heads * length], from the input of the attention's q */
    mo_linear k;                   /* [length], from the mixer's input */
    mo_linear share;               /* [heads], from the mixer's input: weight of each head's score */
    float scale;                   /* factor of these weights */
    const float *norm, *norm_bias; /* [length], of keys */
} mo_indexer;

/* A compressor makes one key from a block of tokens: the mean of their values weighted by their gates, then a
 * norm (numeric/compress.h). */
typedef struct mo_compressor {
    int64_t length;         /* values of a key; 0: no compressor */
    mo_linear values, gate; /* from the mixer's input: [length], or [2 * length] if blocks overlap */
    const float *place;     /* [ratio][rows of gate]: added to a token's gate by its position in the block */
    const float *norm;      /* [length] */
} mo_compressor;

/* Compressed attention (deepseek4). One row per position is key and value of all heads. A token sees the rows
 * of its window and one row for each earlier block of `ratio` tokens; with an indexer, only the blocks it
 * scores highest. Results are rotated back, and reach the output product by groups (docs/numerics.md:
 * Compressed keys). In mo_attention, kv_heads is 1, v is absent, k computes the row, and the last n_rot
 * values of every row and query rotate. */
typedef struct mo_compressed {
    int groups;          /* groups of heads; 0: attention is not compressed */
    mo_linear q_a;       /* computes q's input, through q_norm; q's heads then have a norm without weight */
    const float *q_norm; /* [q_a rows] */
    const float *norm;   /* [k_len], of the row */
    /* [groups] of the output product's inputs each, from the results of a group's heads */
    mo_linear group_out;
    int64_t ratio; /* 0: the layer sees only its window */
    /* a block's key also includes the tokens of the previous block: the first half of their rows, the second
     * half of its own */
    bool overlaps;
    mo_compressor keys, index; /* index: for the indexer's keys */
} mo_compressed;

typedef struct mo_attention {
    int heads, kv_heads;
    int64_t k_len, v_len; /* values of a key, of a value */
    float scale;          /* of the scores */
    int64_t window;       /* visible positions, including the token's own; 0: all */
    const mo_rope *rope;  /* NULL: no rotation */
    int64_t n_rot;
    bool neox; /* rotate (p, p + n_rot/2) instead of (2p, 2p+1) */

    mo_linear q, k, v, out; /* v absent: the raw product of k is used (gemma4) */
    /* q rows are [query | gate] per head; the result is multiplied by sigmoid(gate) */
    bool gated;
    /* from q's input: [heads], or [heads][v_len] for one gate per value; absent: none */
    mo_linear gate;
    mo_gate_kind gate_kind;       /* function applied to the gate */
    const float *q_norm, *k_norm; /* per head [k_len], or over all heads with norm_all; NULL: none */
    bool norm_all;
    bool norm_last;     /* norms follow the rotation (hunyuan) */
    bool v_norm;        /* values have a norm without weight, per head */
    const float *sinks; /* [heads], or NULL */
    mo_latent latent;
    mo_indexer index;
    mo_compressed compressed;
} mo_attention;

/* Values of a cached key after those shared with the value: only for latent attention; 0: key and value are
 * separate. */
static inline int64_t mo_attention_tail(const mo_attention *a)
{
    return a->latent.plain ? a->n_rot : 0;
}

/* Compressor inputs of a token: values and gates of keys, then of the indexer's keys. */
static inline int64_t mo_attention_pairs(const mo_attention *a)
{
    return 2 * (a->compressed.keys.gate.w.rows + a->compressed.index.gate.w.rows);
}

/* Values per position in the cache for an indexer's key, or for compressor inputs. */
static inline int64_t mo_attention_index(const mo_attention *a)
{
    return a->compressed.groups ? mo_attention_pairs(a) : a->index.heads ? a->index.length : 0;
}

/* Positions that the cache must keep, including the token's own; 0: all. Compressors need those of unfinished
 * blocks. */
static inline int64_t mo_attention_window(const mo_attention *a)
{
    const int64_t blocks = (a->compressed.overlaps ? 2 : 1) * a->compressed.ratio;
    return blocks > a->window ? blocks : a->window;
}

/* Inputs of the output product per token. */
static inline int64_t mo_attention_out(const mo_attention *a)
{
    return a->compressed.groups ? a->out.w.cols : a->heads * (a->latent.plain ? a->latent.out_len : a->v_len);
}

/* Gates per head from a separate matrix: one per value, or one; 0: none. */
static inline int64_t mo_attention_gates(const mo_attention *a)
{
    return a->gate.w.rows / (a->heads ? a->heads : 1);
}

/* The gated delta rule, also with a decay per channel of a key (KDA). Channels of the convolution are the
 * rows of qkv: q heads, k heads, v heads. */
typedef struct mo_delta {
    int k_heads, v_heads;
    int64_t head; /* values of a head */
    int taps;
    mo_decay decay;
    float bound;    /* for MO_DECAY_BOUNDED; 0 otherwise */
    bool tiled;     /* value head h belongs to key head h mod k_heads; otherwise h div (v_heads/k_heads) */
    mo_linear qkv;  /* [D -> 2*k_heads*head + v_heads*head]; or only the q heads, */
    mo_linear k, v; /* if these are present */
    mo_linear gate; /* z */
    mo_linear ba;   /* beta and alpha of each key head's value heads in turn; absent: the next two */
    mo_linear beta, alpha;        /* alpha has v_heads rows, or one per value of all heads */
    mo_linear alpha_in, gate_in;  /* inputs of alpha and gate; absent: the mixer's input */
    const float *conv;            /* [taps][channels], tap 0 the oldest; or only for the q heads, */
    const float *k_conv, *v_conv; /* if these are present */
    const float *dt, *a;          /* dt: as many as alpha has rows */
    const float *norm;            /* [head] */
    mo_linear out;
} mo_delta;

/* The short convolution: rows of `in` are b, c and x, one of each per channel. The convolution runs over b *
 * x, and its result is multiplied by c. */
typedef struct mo_short_conv {
    int taps;
    int64_t channels;
    mo_linear in;
    const float *conv; /* [taps][channels], tap 0 the oldest */
    mo_linear out;
} mo_short_conv;

/* The selective state space of Mamba, first kind or, with heads, second kind (numeric/mamba.h). Channels of
 * the convolution are the rows of x, which in the second kind contain x, b and c. */
typedef struct mo_mamba {
    int heads;  /* second kind; 0: first kind */
    int groups; /* of b and c; 1 in the first kind */
    int taps;
    int64_t inner, states, rank; /* rank: values from which the first kind computes its steps */
    mo_linear x, z;              /* [D -> channels], [D -> inner] */
    mo_linear dt_in;             /* second: [D -> heads] */
    const float *conv;           /* [taps][channels], tap 0 the oldest */
    const float *conv_bias;      /* [channels] */
    mo_linear parts;             /* first: [inner -> rank + 2 * states], rows of dt, b and c */
    const float *dt_norm, *b_norm, *c_norm;
    mo_linear dt;         /* first: [rank -> inner] */
    const float *dt_bias; /* second: [heads] */
    const float *a, *d;   /* first: [states][inner], [inner]; second: [heads], [heads] */
    const float *norm;    /* second: [inner] */
    mo_linear out;
} mo_mamba;

static inline int64_t mo_mamba_channels(const mo_mamba *m)
{
    return m->inner + (m->heads ? 2 * m->groups * m->states : 0);
}

typedef struct mo_ffn {
    mo_activation activation;
    float limit;              /* for MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
    mo_linear gate, up, down; /* gate absent: the activation has none */
} mo_ffn;

typedef struct mo_router {
    mo_linear logits;
    mo_gating gating;
    bool normalize;
    float scale;              /* factor of the weights; 1: none */
    const float *select_bias; /* [experts], only for the selection, or NULL */
    int groups, groups_used;  /* 0: no groups */
    /* [D]: the router reads norm(residual) / sqrt(D) * input_scale (gemma4); NULL: it reads the experts'
     * input */
    const float *input_scale;
    const float *
        by_token; /* [tokens][used]: the experts of each token of the vocabulary, which only their weights are asked for; NULL: chosen */
} mo_router;

/* One expert of one layer: the unit of residency. Scales and biases are single rows of their tensors. */
typedef struct mo_expert {
    mo_linear gate, up, down;
} mo_expert;

/* True if the activation has a gate. */
static inline bool mo_gated(mo_activation activation)
{
    return activation != MO_RELU2;
}

typedef struct mo_moe {
    int experts, used;
    int64_t width; /* hidden values of an expert */
    int64_t io;    /* its inputs and outputs: D, or fewer between latent_down and latent_up */
    /* [D -> io] before the experts, [io -> D] for their sum; absent: none */
    mo_linear latent_down, latent_up;
    mo_activation activation;
    float limit; /* for MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
    mo_router router;
    mo_expert *expert;     /* [experts] */
    mo_ffn shared;         /* shared.up absent: none */
    mo_linear shared_gate; /* [D -> 1], through a sigmoid; absent: 1 */
} mo_moe;

/* MO_MIXER_NONE: the layer has only a feed-forward part, and is parallel: its one norm is mixer_norm. */
typedef enum mo_mixer {
    MO_MIXER_ATTENTION,
    MO_MIXER_DELTA,
    MO_MIXER_SHORT_CONV,
    MO_MIXER_MAMBA,
    MO_MIXER_NONE
} mo_mixer;

/* How a part of a layer reads several streams and writes its result: `product` of all streams, normed without
 * weight, times a scale for each of its sections, plus `base` (numeric/streams.h). */
typedef struct mo_streams_part {
    mo_linear product;
    const float *base, *scale;
} mo_streams_part;

/* A layer: x += post_mixer_norm(mixer(norm(x))), then the feed-forward part. With both dense and experts
 * (gemma4) each has its own norms before and after, and their sum passes through post_ffn_norm. In a parallel
 * layer (cohere2moe) the feed-forward part reads the mixer's input. A layer that is neither dense nor routed
 * has only its mixer. */
typedef struct mo_layer {
    mo_mixer mixer;
    mo_attention attention;
    mo_delta delta;
    mo_short_conv short_conv;
    mo_mamba mamba;
    const float *mixer_norm;
    const float *post_mixer_norm; /* NULL: none */

    bool dense, routed;
    bool parallel; /* ffn_norm and moe_norm are absent */
    mo_ffn ffn;
    mo_moe moe;
    const float *mixer_norm_bias, *ffn_norm_bias; /* added after those norms; NULL: none */
    /* before the dense part, and before the experts unless moe_norm is set */
    const float *ffn_norm;
    const float *moe_norm;                                /* NULL: ffn_norm */
    const float *post_ffn_norm_dense, *post_ffn_norm_moe; /* NULL: none */
    const float *post_ffn_norm;                           /* NULL: none */
    const float *out_scale;                               /* [1] times the whole stream at the end, or NULL */
    mo_streams_part mixer_streams, ffn_streams;           /* of a model with several streams */
} mo_layer;

/* True if the layer has a state that does not grow with the text. */
static inline bool mo_layer_recurrent(const mo_layer *l)
{
    return l->mixer != MO_MIXER_ATTENTION && l->mixer != MO_MIXER_NONE;
}

/* True if there are products around the layer's routed experts. */
static inline bool mo_layer_latent(const mo_layer *l)
{
    return l->routed && mo_linear_present(&l->moe.latent_down);
}

/* The norm of the experts' input, and the bias added after it. */
static inline const float *mo_layer_experts_norm(const mo_layer *l)
{
    return l->parallel ? l->mixer_norm : l->moe_norm ? l->moe_norm : l->ffn_norm;
}

static inline const float *mo_layer_experts_norm_bias(const mo_layer *l)
{
    return l->parallel ? l->mixer_norm_bias : l->moe_norm ? NULL : l->ffn_norm_bias;
}

/* The routed experts of every layer that are here. */
typedef struct mo_expert_range {
    bool divided;   /* false: all */
    int first, end; /* `first` to end - 1; may be empty */
    bool alone;     /* nothing else of the model is here */
} mo_expert_range;

/* The input of an MTP head in place of a token's embedding: the product of `join` with the normed embedding
 * followed by the normed output of the model at the previous token. */
typedef struct mo_head_input {
    mo_linear join; /* [2 * D -> D]; absent: not a head */
    const float *embed_norm, *state_norm;
} mo_head_input;

/* How a model reads rows of a picture in place of tokens. */
typedef struct mo_picture_rule {
    bool accepted;
    /* a row's position is that of the picture's first row plus its line and column; the token after the
     * picture gets the next free one */
    bool grid;
    bool both_ways; /* in layers with a window the rows of a picture also see its later rows */
    int features;   /* further vectors per row: each is added to the stream after one of the first layers */
} mo_picture_rule;

/* Several residual streams, initialized with the embedding. */
typedef struct mo_streams {
    int count; /* 0: one stream; otherwise MO_STREAMS */
    int iterations;
    float eps;
    mo_streams_part last; /* how the output reads them */
} mo_streams;

/* A whole model, or an MTP head with one layer. */
typedef struct mo_model_spec {
    int layer_count;
    int mtp_layers; /* MTP layers of the file, not part of this spec */
    bool has_head;  /* the first MTP layer is in the file, and its family's heads are supported */
    mo_head_input head;
    int64_t width, vocab, context; /* D, vocabulary size, training context */
    float eps;
    bool centered;     /* norms of the stream subtract the mean: LayerNorm */
    bool out_centered; /* the last norm does so */
    float out_eps;     /* epsilon of the last norm */
    float embed_scale; /* 1, or sqrt(D) */
    float softcap;     /* of the logits; 0: none */
    mo_temper temper;  /* of the queries in all layers */
    mo_picture_rule pictures;
    mo_streams streams;
    mo_weights embed; /* rows are read; multiplied only if tied */
    const float *out_norm;
    const float *out_norm_bias; /* NULL: none */
    mo_linear output;
    bool tied; /* output.w is a view of the embedding */
    mo_layer *layers;
    /* If other layers of the model are remote (mo_load_options.range): `layers` are those from first_layer on
     * of all_layers; the others are descriptions without weights. Otherwise 0 and the same. The parts before
     * and after the layers are on the rank with the first layer. */
    int first_layer, all_count;
    const mo_layer *all_layers;
    mo_expert_range experts; /* the other experts are only descriptions */
} mo_model_spec;

/* True if the weights of this expert, in every layer, are here. */
static inline bool mo_spec_has_expert(const mo_model_spec *spec, int expert)
{
    return !spec->experts.divided || (expert >= spec->experts.first && expert < spec->experts.end);
}

/* True if a device only gets routed experts. Another rank has the rest, or the CPU computes it because
 * devices have no ops for it: several residual streams and compressed attention. */
static inline bool mo_spec_device_experts(const mo_model_spec *spec)
{
    return spec->experts.alone || spec->streams.count > 0;
}

/* Layers of the whole model, local or remote. */
static inline int mo_spec_layers(const mo_model_spec *spec)
{
    return spec->all_count ? spec->all_count : spec->layer_count;
}

#endif
