/* Delta: one token of the gated delta rule: the causal convolution with what it looks back to, the gates, and a
 * value head's step with its norm and gate. With a decay for each channel of a key it is Kimi delta attention (KDA). */
#ifndef MO_NUMERIC_DELTA_H
#define MO_NUMERIC_DELTA_H

#include "numeric/kernels.h"
#include "numeric/kinds.h"

enum { MO_DELTA_TAPS = 16 }; /* most taps of a convolution */

/* Of a layer. A token's channels are its q heads, its k heads, its v heads. */
typedef struct mo_delta_rule {
    int k_heads, v_heads;
    int64_t head; /* values of a head */
    int taps;
    bool tiled; /* value head h belongs to key head h mod k_heads; otherwise h div (v_heads / k_heads) */
    bool
        paired; /* gates come per key head: its betas, then its alphas; otherwise all betas, then all alphas */
    mo_decay decay;
    float bound; /* of MO_DECAY_BOUNDED; 0 otherwise */
    float eps;
    const float *conv;            /* [taps][channels], tap 0 the oldest; */
    const float *k_conv, *v_conv; /* or that of the q heads alone, where these have the others' */
    const float *a, *dt;          /* [v_heads]; dt of MO_DECAY_HEADS, otherwise [v_heads][head] */
    const float *norm;            /* [head] */
} mo_delta_rule;

static inline int64_t mo_delta_channels(int k_heads, int v_heads, int64_t head)
{
    return (2 * (int64_t)k_heads + v_heads) * head;
}

/* A token's channels after the convolution, q and k heads normed. `before` is its row of those before it, `into` its
 * number in its slice; earlier tokens of the slice are before that row, and what came before the slice in kept[taps
 * - 1][channels]. */
void mo_delta_convolve(const mo_kernels *k, const mo_delta_rule *d, const float *before, int64_t into,
                       const float *kept, float *after);

/* A token's gates as they come from the products; where every channel has a decay, those are made of them here. */
void mo_delta_decays(const mo_kernels *k, const mo_delta_rule *d, float *gates);

/* After `count` tokens whose inputs begin at before[count][channels]: the last taps - 1 inputs stay for the next step. */
void mo_conv_keep(const float *before, int64_t channels, int taps, int64_t count, float *kept);
/* The same of a slice. */
void mo_delta_keep(const mo_delta_rule *d, const float *before, int64_t count, float *kept);

/* Value head h of one token: state[head][head] moves on, out[head] is the normed result times silu(z[head]) or sigmoid(z[head]). `after`
 * are the token's channels, `gates` what mo_delta_decays() leaves. */
void mo_delta_step(const mo_kernels *k, const mo_delta_rule *d, int h, const float *after, const float *gates,
                   const float *z, float scale, float *state, float *out);

#endif
