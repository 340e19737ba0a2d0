/* Kinds: which of several functions a part of a model uses. Plain C, for the GPU's kernels as well. */
#ifndef MO_NUMERIC_KINDS_H
#define MO_NUMERIC_KINDS_H

#include <stdint.h>

#include "numeric/half.h"

/* MO_SWIGLU_LIMIT: of a limit that the layer has; MO_SWIGLU_CLAMP: the same, where the gate is limited before it goes through silu. MO_RELU2
 * has no gate: up alone, where it is positive, squared. */
typedef enum mo_activation {
    MO_SWIGLU,
    MO_GEGLU,
    MO_SWIGLU_OSS,
    MO_SWIGLU_LIMIT,
    MO_RELU2,
    MO_SWIGLU_CLAMP
} mo_activation;

/* gpt-oss: slope and limit of its activation. */
#define MO_OSS_ALPHA 1.702f
#define MO_OSS_LIMIT 7.0f

/* What becomes of the product that gates a head's result. */
typedef enum mo_gate_kind { MO_GATE_SIGMOID, MO_GATE_SOFTPLUS } mo_gate_kind;

/* How the state of a delta rule decays: by one number for each head; or (KDA) by one for each channel of its keys, which is made like that
 * number, or is never below a bound's power of e. With these two a head's result is gated by a sigmoid instead of silu. */
typedef enum mo_decay { MO_DECAY_HEADS, MO_DECAY_CHANNELS, MO_DECAY_BOUNDED } mo_decay;

/* Values of a token's gates: two of each value head; or decays [v_heads][head], then the heads' betas, and space up to a multiple of four. */
MO_ANYWHERE int64_t mo_delta_gate_values(mo_decay decay, int v_heads, int64_t head)
{
    return decay == MO_DECAY_HEADS ? 2 * (int64_t)v_heads : v_heads * head + (v_heads + 3) / 4 * 4;
}

typedef enum mo_gating {
    MO_GATING_SOFTMAX = 1, /* over all experts */
    MO_GATING_SIGMOID = 2,
    MO_GATING_SOFTMAX_SELECTED = 3, /* over the chosen ones' logits */
    MO_GATING_ROOT_SOFTPLUS = 4     /* the square root of softplus */
} mo_gating;

#endif
