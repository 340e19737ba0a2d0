/* Kinds: which of several functions a part of a model uses. Plain C, for the GPU's kernels as well. */
#ifndef MO_NUMERIC_KINDS_H
#define MO_NUMERIC_KINDS_H

typedef enum mo_activation { MO_SWIGLU, MO_GEGLU, MO_SWIGLU_OSS } mo_activation;

/* gpt-oss: slope and limit of its activation. */
#define MO_OSS_ALPHA 1.702f
#define MO_OSS_LIMIT 7.0f

typedef enum mo_gating {
    MO_GATING_SOFTMAX = 1, /* over all experts */
    MO_GATING_SIGMOID = 2,
    MO_GATING_SOFTMAX_SELECTED = 3 /* over the chosen ones' logits */
} mo_gating;

#endif
