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

typedef struct mo_attention {
    int heads, kv_heads;
    int64_t k_len, v_len; /* values of a key, of a value */
    float scale;          /* of the scores */
    int64_t window;       /* visible positions, the token's own included; 0: all */
    const mo_rope *rope;  /* NULL: no rotation */
    int64_t n_rot;
    bool neox; /* rotate (p, p + n_rot/2) instead of (2p, 2p+1) */

    mo_linear q, k, v, out;       /* v absent: the raw product of k serves (gemma4) */
    bool gated;                   /* q rows are [query | gate] per head; the result is times sigmoid(gate) */
    const float *q_norm, *k_norm; /* per head [k_len], or over all heads with norm_all; NULL: none */
    bool norm_all;
    bool norm_last;     /* heads are normed after their rotation (hunyuan) */
    bool v_norm;        /* values get a norm without weight, per head */
    const float *sinks; /* [heads], or NULL */
    mo_latent latent;
} mo_attention;

/* Values of a key that are no part of the value beside it in the cache: of latent attention; otherwise 0, and both are apart. */
static inline int64_t mo_attention_tail(const mo_attention *a)
{
    return a->latent.plain ? a->n_rot : 0;
}

/* Values of a token that the output product reads. */
static inline int64_t mo_attention_out(const mo_attention *a)
{
    return a->heads * (a->latent.plain ? a->latent.out_len : a->v_len);
}

/* The gated delta rule. Channels of the convolution are the rows of qkv: q heads, k heads, v heads. */
typedef struct mo_delta {
    int k_heads, v_heads;
    int64_t head; /* values of a head */
    int taps;
    bool tiled;     /* value head h belongs to key head h mod k_heads; otherwise h div (v_heads/k_heads) */
    mo_linear qkv;  /* [D -> 2*k_heads*head + v_heads*head] */
    mo_linear gate; /* z */
    mo_linear ba;   /* beta and alpha of each key head's value heads in turn; absent: the next two */
    mo_linear beta, alpha;
    const float *conv; /* [taps][channels], tap 0 the oldest */
    const float *dt, *a;
    const float *norm; /* [head] */
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
    mo_linear gate, up, down;
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
} mo_router;

/* One expert of one layer: the unit of residency. Scales and biases are single rows of their tensors. */
typedef struct mo_expert {
    mo_linear gate, up, down;
} mo_expert;

typedef struct mo_moe {
    int experts, used;
    int64_t width; /* hidden values of an expert */
    mo_activation activation;
    mo_router router;
    mo_expert *expert;     /* [experts] */
    mo_ffn shared;         /* shared.up absent: none */
    mo_linear shared_gate; /* [D -> 1], through a sigmoid; absent: 1 */
} mo_moe;

typedef enum mo_mixer { MO_MIXER_ATTENTION, MO_MIXER_DELTA, MO_MIXER_SHORT_CONV, MO_MIXER_MAMBA } mo_mixer;

/* A layer: x += post_mixer_norm(mixer(norm(x))), then the feed-forward part. With both dense and experts
 * (gemma4) each has its own norms before and after, and their sum goes through post_ffn_norm. */
typedef struct mo_layer {
    mo_mixer mixer;
    mo_attention attention;
    mo_delta delta;
    mo_short_conv short_conv;
    mo_mamba mamba;
    const float *mixer_norm;
    const float *post_mixer_norm; /* NULL: none */

    bool dense, routed;
    mo_ffn ffn;
    mo_moe moe;
    const float *mixer_norm_bias, *ffn_norm_bias; /* added after those norms; NULL: none */
    const float *ffn_norm; /* before the dense part, and before the experts unless they have their own */
    const float *moe_norm; /* NULL: ffn_norm */
    const float *post_ffn_norm_dense, *post_ffn_norm_moe; /* NULL: none */
    const float *post_ffn_norm;                           /* NULL: none */
    const float *out_scale;                               /* [1] times the whole stream at the end, or NULL */
} mo_layer;

/* Of every layer's routed experts, those that are here. */
typedef struct mo_expert_range {
    bool divided;   /* false: all are */
    int first, end; /* those from `first` to end - 1; none is allowed */
    bool alone;     /* nothing else of the model is here */
} mo_expert_range;

/* A whole model. */
typedef struct mo_model_spec {
    int layer_count;
    int mtp_layers;                /* layers of the file that would predict further tokens: left out */
    int64_t width, vocab, context; /* D, tokens, positions it was made for */
    float eps;
    float embed_scale; /* 1, or sqrt(D) */
    float softcap;     /* of the logits; 0: none */
    mo_weights embed;  /* rows are read, never multiplied unless tied */
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

/* Of the whole model, wherever they are. */
static inline int mo_spec_layers(const mo_model_spec *spec)
{
    return spec->all_count ? spec->all_count : spec->layer_count;
}

#endif
