/* Parts: what layers are made of. A family fills these descriptions; the engine computes by them. Nothing here
 * computes, and nothing here knows where bytes are kept: pointers are set when the model is loaded. */
#ifndef MO_MODEL_PARTS_H
#define MO_MODEL_PARTS_H

#include "numeric/kinds.h"
#include "numeric/rope.h"
#include "numeric/weights.h"

/* Most experts of a layer, and most groups of them; families refuse more. */
enum { MO_EXPERTS_MAX = 1024, MO_EXPERT_GROUPS_MAX = 64 };

/* A matrix, and what is done to its finished product: times the outer scale, then plus the bias. */
typedef struct mo_linear {
    mo_weights w;       /* w.rows 0: absent */
    const float *scale; /* [1], or NULL */
    const float *bias;  /* [rows], or NULL */
    float factor; /* that scale and bias carry because the family asks for it; adapters need it too. 0: 1 */
} mo_linear;

static inline bool mo_linear_present(const mo_linear *l)
{
    return l->w.rows > 0;
}

/* Latent attention (deepseek2): all heads share one row of values a position, made by a product and a norm, and a few rotated values
 * beside it. That is the key, whose first v_len values are the value too; nothing else is kept. Queries come to those rows by k_b,
 * results leave them by v_b. Of the attention kv_heads is 1, v_len those of the row, k_len these and n_rot, and k the product that
 * makes both; a query head of q is `plain` values and n_rot rotated ones. */
typedef struct mo_latent {
    int64_t plain;       /* values of a query that do not rotate; 0: attention is not latent */
    int64_t out_len;     /* values of a head's result */
    mo_linear q_a;       /* what q reads, through q_norm; absent: q reads what k reads */
    const float *q_norm; /* [q_a rows] */
    const float *norm;   /* [v_len], of the row */
    mo_linear k_b;       /* [heads][v_len] rows of `plain` values */
    mo_linear v_b;       /* [heads][out_len] rows of v_len values */
} mo_latent;

/* Sparse latent attention (glm-dsa, deepseek32): a token attends to the `top` positions of those before it that an indexer scores highest.
 * A layer with an indexer of its own has a key for every position in the cache beside the latent row; one without takes what the nearest
 * such layer before it chose (docs/numerics.md: The indexer). */
typedef struct mo_indexer {
    int64_t top;                   /* positions that are kept; 0: all, attention is not sparse */
    int heads;                     /* 0: the layer has no indexer of its own */
    int64_t length;                /* values of a key, and of each head's query, */
    bool neox;                     /* of which the first n_rot of the attention rotate, in halves */
    mo_linear q;                   /* [heads * length] of what the attention's q reads */
    mo_linear k;                   /* [length] of what the mixer reads, */
    mo_linear share;               /* and [heads]: how much each head's score counts, */
    float scale;                   /* times this */
    const float *norm, *norm_bias; /* [length], of keys */
} mo_indexer;

/* A compressor makes one key of the tokens of a block: a mean of their values by their gates, then a norm (numeric/compress.h). */
typedef struct mo_compressor {
    int64_t length;         /* values of a key; 0: there is none */
    mo_linear values, gate; /* of what the mixer reads: [length], or where blocks overlap [2 * length] */
    const float *place; /* [ratio][rows of gate]: added to the gate of a token by its place in the block */
    const float *norm;  /* [length] */
} mo_compressor;

/* Compressed attention (deepseek4): one row of a position is key and value of all heads. A token sees those of its window, and beside them one
 * row of each block of `ratio` tokens behind it; where there is an indexer, those that it scores highest. Results are rotated back, and come
 * to the output product group by group (docs/numerics.md: Compressed keys). Of the attention kv_heads is 1, v is absent, k makes the row,
 * and the last n_rot values of every row and query rotate. */
typedef struct mo_compressed {
    int groups;          /* of heads; 0: attention is not compressed */
    mo_linear q_a;       /* what q reads, through q_norm; q's heads then have a norm without weight */
    const float *q_norm; /* [q_a rows] */
    const float *norm;   /* [k_len], of the row */
    mo_linear group_out; /* [groups] of the output product's inputs each, of the results of a group's heads */
    int64_t ratio;       /* 0: the layer sees its window alone */
    bool
        overlaps; /* a block's key has the tokens of the block before it, too: the first half of their rows, the second of its own */
    mo_compressor keys, index; /* index: of the indexer's keys */
} mo_compressed;

typedef struct mo_attention {
    int heads, kv_heads;
    int64_t k_len, v_len; /* values of a key, of a value */
    float scale;          /* of the scores */
    int64_t window;       /* visible positions, the token's own included; 0: all */
    const mo_rope *rope;  /* NULL: no rotation */
    int64_t n_rot;
    bool neox; /* rotate (p, p + n_rot/2) instead of (2p, 2p+1) */

    mo_linear q, k, v, out; /* v absent: the raw product of k serves (gemma4) */
    bool gated;             /* q rows are [query | gate] per head; the result is times sigmoid(gate) */
    mo_linear
        gate; /* of what q reads: [heads], or [heads][v_len] where each value has its own; absent: none */
    mo_gate_kind gate_kind;       /* what becomes of it before the result is times it */
    const float *q_norm, *k_norm; /* per head [k_len], or over all heads with norm_all; NULL: none */
    bool norm_all;
    bool norm_last;     /* heads are normed after their rotation (hunyuan) */
    bool v_norm;        /* values get a norm without weight, per head */
    const float *sinks; /* [heads], or NULL */
    mo_latent latent;
    mo_indexer index;
    mo_compressed compressed;
} mo_attention;

/* Values of a key that are no part of the value beside it in the cache: of latent attention; otherwise 0, and both are apart. */
static inline int64_t mo_attention_tail(const mo_attention *a)
{
    return a->latent.plain ? a->n_rot : 0;
}

/* What compressors read of a token: values and gates of keys, then of the indexer's. */
static inline int64_t mo_attention_pairs(const mo_attention *a)
{
    return 2 * (a->compressed.keys.gate.w.rows + a->compressed.index.gate.w.rows);
}

/* Values of an indexer's key, or what compressors read, that the cache has of every position. */
static inline int64_t mo_attention_index(const mo_attention *a)
{
    return a->compressed.groups ? mo_attention_pairs(a) : a->index.heads ? a->index.length : 0;
}

/* Positions that the cache has to keep behind a token, its own included; 0: all. Compressors need those of unfinished blocks. */
static inline int64_t mo_attention_window(const mo_attention *a)
{
    const int64_t blocks = (a->compressed.overlaps ? 2 : 1) * a->compressed.ratio;
    return blocks > a->window ? blocks : a->window;
}

/* Values of a token that the output product reads. */
static inline int64_t mo_attention_out(const mo_attention *a)
{
    return a->compressed.groups ? a->out.w.cols : a->heads * (a->latent.plain ? a->latent.out_len : a->v_len);
}

/* Gates of a head by a matrix of their own: as many as it has values, or one; 0: none. */
static inline int64_t mo_attention_gates(const mo_attention *a)
{
    return a->gate.w.rows / (a->heads ? a->heads : 1);
}

/* The gated delta rule, also with a decay for each channel of a key (KDA). Channels of the convolution are the rows of qkv: q heads, k
 * heads, v heads. */
typedef struct mo_delta {
    int k_heads, v_heads;
    int64_t head; /* values of a head */
    int taps;
    mo_decay decay;
    float bound;    /* of MO_DECAY_BOUNDED; 0 otherwise */
    bool tiled;     /* value head h belongs to key head h mod k_heads; otherwise h div (v_heads/k_heads) */
    mo_linear qkv;  /* [D -> 2*k_heads*head + v_heads*head]; or the q heads alone, */
    mo_linear k, v; /* where these are there */
    mo_linear gate; /* z */
    mo_linear ba;   /* beta and alpha of each key head's value heads in turn; absent: the next two */
    mo_linear beta, alpha;        /* alpha has v_heads rows, or as many as the values of all heads */
    mo_linear alpha_in, gate_in;  /* what alpha and gate read instead of what the mixer reads; absent: that */
    const float *conv;            /* [taps][channels], tap 0 the oldest; or of the q heads alone, */
    const float *k_conv, *v_conv; /* where these are there */
    const float *dt, *a;          /* dt: as the rows of alpha */
    const float *norm;            /* [head] */
    mo_linear out;
} mo_delta;

/* The short convolution: rows of `in` are b, c and x, as many of each as there are channels. The convolution runs over
 * b * x, and its result is times c. */
typedef struct mo_short_conv {
    int taps;
    int64_t channels;
    mo_linear in;
    const float *conv; /* [taps][channels], tap 0 the oldest */
    mo_linear out;
} mo_short_conv;

/* The selective state space of Mamba, of the first kind or, with heads, of the second (numeric/mamba.h). Channels of the
 * convolution are the rows of x, which in the second kind are x, b and c. */
typedef struct mo_mamba {
    int heads;  /* of the second kind; 0: the first */
    int groups; /* of b and c; 1 in the first kind */
    int taps;
    int64_t inner, states, rank; /* rank: values that the steps of the first kind are made of */
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
    float limit;              /* of MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
    mo_linear gate, up, down; /* gate absent: the activation has none */
} mo_ffn;

typedef struct mo_router {
    mo_linear logits;
    mo_gating gating;
    bool normalize;
    float scale;              /* of the weights; 1: none */
    const float *select_bias; /* [experts], for the choice only, or NULL */
    int groups, groups_used;  /* 0: no groups */
    const float *input_scale; /* [D]: the router reads norm(residual) / sqrt(D) * input_scale (gemma4); NULL:
                                 it reads what the experts read */
    const float *
        by_token; /* [tokens][used]: the experts of each token of the vocabulary, which only their weights are asked for; NULL: chosen */
} mo_router;

/* One expert of one layer: the unit of residency. Scales and biases are single rows of their tensors. */
typedef struct mo_expert {
    mo_linear gate, up, down;
} mo_expert;

/* Are both of what the activation reads there? */
static inline bool mo_gated(mo_activation activation)
{
    return activation != MO_RELU2;
}

typedef struct mo_moe {
    int experts, used;
    int64_t width; /* hidden values of an expert, */
    int64_t io;    /* and those that it reads and makes: D, or fewer between the two products */
    mo_linear latent_down, latent_up; /* [D -> io] before the experts, [io -> D] of their sum; absent: none */
    mo_activation activation;
    float limit; /* of MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP */
    mo_router router;
    mo_expert *expert;     /* [experts] */
    mo_ffn shared;         /* shared.up absent: none */
    mo_linear shared_gate; /* [D -> 1], through a sigmoid; absent: 1 */
} mo_moe;

/* MO_MIXER_NONE: the layer is a feed-forward part alone, and parallel: its one norm is mixer_norm. */
typedef enum mo_mixer {
    MO_MIXER_ATTENTION,
    MO_MIXER_DELTA,
    MO_MIXER_SHORT_CONV,
    MO_MIXER_MAMBA,
    MO_MIXER_NONE
} mo_mixer;

/* What a part of a layer reads of several streams, and where its result goes: `product` of all streams, normed without weight, is added to `base`
 * times a scale for each of its sections (numeric/streams.h). */
typedef struct mo_streams_part {
    mo_linear product;
    const float *base, *scale;
} mo_streams_part;

/* A layer: x += post_mixer_norm(mixer(norm(x))), then the feed-forward part. With both dense and experts
 * (gemma4) each has its own norms before and after, and their sum goes through post_ffn_norm. In a parallel layer (cohere2moe) the
 * feed-forward part reads what the mixer read. A layer that is neither dense nor routed is its mixer alone. */
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
    const float *ffn_norm; /* before the dense part, and before the experts unless they have their own */
    const float *moe_norm; /* NULL: ffn_norm */
    const float *post_ffn_norm_dense, *post_ffn_norm_moe; /* NULL: none */
    const float *post_ffn_norm;                           /* NULL: none */
    const float *out_scale;                               /* [1] times the whole stream at the end, or NULL */
    mo_streams_part mixer_streams, ffn_streams;           /* of a model with several */
} mo_layer;

/* Does the layer keep a state that grows no longer with the text? */
static inline bool mo_layer_recurrent(const mo_layer *l)
{
    return l->mixer != MO_MIXER_ATTENTION && l->mixer != MO_MIXER_NONE;
}

/* Are there products around the layer's routed experts? */
static inline bool mo_layer_latent(const mo_layer *l)
{
    return l->routed && mo_linear_present(&l->moe.latent_down);
}

/* The norm of the stream that the experts read, and what is added after it. */
static inline const float *mo_layer_experts_norm(const mo_layer *l)
{
    return l->parallel ? l->mixer_norm : l->moe_norm ? l->moe_norm : l->ffn_norm;
}

static inline const float *mo_layer_experts_norm_bias(const mo_layer *l)
{
    return l->parallel ? l->mixer_norm_bias : l->moe_norm ? NULL : l->ffn_norm_bias;
}

/* Of every layer's routed experts, those that are here. */
typedef struct mo_expert_range {
    bool divided;   /* false: all are */
    int first, end; /* those from `first` to end - 1; none is allowed */
    bool alone;     /* nothing else of the model is here */
} mo_expert_range;

/* What an MTP head reads instead of a token's embedding: the product of `join` with the normed embedding, and behind it the normed
 * output of the model at the token before. */
typedef struct mo_head_input {
    mo_linear join; /* [2 * D -> D]; absent: this is no head */
    const float *embed_norm, *state_norm;
} mo_head_input;

/* What rows of a picture are to a model whose family reads them in the place of tokens. */
typedef struct mo_picture_rule {
    bool accepted;
    bool
        grid; /* a row's position is that of the picture's first, plus its line and its column; the token behind has the next free one */
    bool both_ways; /* in layers with a window the rows of a picture see each other, also the later ones */
    int features;   /* further vectors of a row: each is added to the stream behind one of the first layers */
} mo_picture_rule;

/* Several residual streams, which begin as the embedding. */
typedef struct mo_streams {
    int count; /* 0: there is one, as usual; otherwise MO_STREAMS */
    int iterations;
    float eps;
    mo_streams_part last; /* what the output reads of them */
} mo_streams;

/* A whole model; or an MTP head, which has one layer. */
typedef struct mo_model_spec {
    int layer_count;
    int mtp_layers; /* layers of the file that would predict further tokens: no part of this */
    bool has_head;  /* the first of them is there, and its family's heads are known */
    mo_head_input head;
    int64_t width, vocab, context; /* D, tokens, positions it was made for */
    float eps;
    bool centered;     /* norms of the stream subtract its mean first: LayerNorm */
    bool out_centered; /* and so does the last norm, */
    float out_eps;     /* whose epsilon this is */
    float embed_scale; /* 1, or sqrt(D) */
    float softcap;     /* of the logits; 0: none */
    mo_temper temper;  /* of every layer's queries */
    mo_picture_rule pictures;
    mo_streams streams;
    mo_weights embed; /* rows are read, never multiplied unless tied */
    const float *out_norm;
    const float *out_norm_bias; /* NULL: none */
    mo_linear output;
    bool tied; /* output.w views the embedding */
    mo_layer *layers;
    /* For a model whose other layers are remote (mo_load_options.range): `layers` are those from first_layer on of all_layers,
     * of which the others are descriptions without weights. Otherwise 0 and the same. What is before and after the layers is
     * where the first is. */
    int first_layer, all_count;
    const mo_layer *all_layers;
    mo_expert_range experts; /* of the others there are descriptions alone */
} mo_model_spec;

/* Are the weights of this expert of any layer here? */
static inline bool mo_spec_has_expert(const mo_model_spec *spec, int expert)
{
    return !spec->experts.divided || (expert >= spec->experts.first && expert < spec->experts.end);
}

/* Does a device get routed experts alone? The rest is another rank's; or the CPU computes it, because devices have no ops for it: several
 * residual streams and compressed attention. */
static inline bool mo_spec_device_experts(const mo_model_spec *spec)
{
    return spec->experts.alone || spec->streams.count > 0;
}

/* Of the whole model, wherever they are. */
static inline int mo_spec_layers(const mo_model_spec *spec)
{
    return spec->all_count ? spec->all_count : spec->layer_count;
}

#endif
