/* Spec: what an encoder of pictures is made of, as its file describes it. Pointers go into memory of the encoder (vision/encoder.h), or are
 * NULL where a file was described and not loaded. */
#ifndef MO_VISION_SPEC_H
#define MO_VISION_SPEC_H

#include "numeric/weights.h"
#include "picture/resize.h"

enum { MO_VISION_HEAD = 512 }; /* the longest head that is read */

typedef enum mo_projector {
    MO_PROJECTOR_QWEN3VL, /* qwen3vl_merger: Qwen3-VL, Qwen3.5, Qwen3.6 */
    MO_PROJECTOR_GEMMA4V, /* gemma4v: Gemma 4 */
} mo_projector;

typedef enum mo_vision_activation {
    MO_VISION_GELU,
    MO_VISION_SILU,
    MO_VISION_QUICK_GELU
} mo_vision_activation;

/* x is limited to in_low .. in_high, the product with its bias to out_low .. out_high; where a file has no limits they are infinite. */
typedef struct mo_vision_linear {
    mo_weights w;
    const float *bias; /* [rows], or NULL */
    bool limits_in, limits_out;
    float in_low, in_high, out_low, out_high;
} mo_vision_linear;

typedef struct mo_vision_norm {
    const float *w, *bias; /* [n]; bias NULL: RMSNorm, else LayerNorm */
    int64_t n;
} mo_vision_norm;

/* Patches that become one row: joined, fc1, tanh-GELU, fc2. */
typedef struct mo_vision_merger {
    mo_vision_norm norm; /* of the joined patches; n 0: none */
    mo_vision_linear fc1, fc2;
} mo_vision_merger;

typedef struct mo_vision_layer {
    mo_vision_norm ln1, ln2;
    mo_vision_linear q, k, v, out;
    mo_vision_linear gate, up, down;         /* gate without rows: none */
    mo_vision_norm q_norm, k_norm;           /* of each head; n 0: none */
    mo_vision_norm attention_post, ffn_post; /* n 0: none */
    const float *out_scale;                  /* [width], or NULL */
    int feature;                             /* that follows the layer (DeepStack), or -1 */
    mo_vision_merger deepstack;
} mo_vision_layer;

typedef struct mo_vision_spec {
    mo_projector projector;
    const char *projector_name; /* the file's */
    int64_t patch, merge;       /* pixels of a patch's side; patches of the side of what makes a row */
    int64_t width, ffn, heads, head_len;
    int layers;
    float eps;
    float mean[3], std[3];
    mo_vision_activation activation;
    double rope_base;
    int features; /* DeepStack: vectors of a row behind the first */
    int64_t out;  /* values of a vector: the text model's width */
    int64_t side; /* of the table of positions: side x side, or two tables of side rows */
    bool scored;  /* attention scores are multiplied by 1 / sqrt(head_len); else they stay as they are */
    int64_t min_rows, max_rows; /* of a picture, by default */

    mo_vision_linear kernel[2]; /* the second without rows: none */
    const float *positions;
    mo_vision_layer *layer; /* [layers] */
    mo_vision_norm post;    /* qwen3vl_merger */
    mo_vision_merger merger;
    const float *std_bias, *std_scale; /* gemma4v; [width], or NULL */
    mo_vision_linear projection;
} mo_vision_spec;

/* Values of one row of embeddings: the vector, and the features behind it. */
static inline int64_t mo_vision_row(const mo_vision_spec *s)
{
    return s->out * (1 + s->features);
}

#endif
