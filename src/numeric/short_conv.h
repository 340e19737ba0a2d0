/* Short convolution: a causal convolution over b * x, whose result is times c, for a slice of tokens. */
#ifndef MO_NUMERIC_SHORT_CONV_H
#define MO_NUMERIC_SHORT_CONV_H

#include "numeric/kernels.h"

/* Most taps, and channels of a piece: what is looked back to stays on the stack. */
enum { MO_SHORT_TAPS = 16, MO_SHORT_PIECE = 64 };

typedef struct mo_short_rule {
    int taps;
    int64_t channels;
    const float *conv; /* [taps][channels], tap 0 the oldest */
} mo_short_rule;

static inline int64_t mo_short_pieces(int64_t channels)
{
    return (channels + MO_SHORT_PIECE - 1) / MO_SHORT_PIECE;
}

/* One piece of the channels of a slice: in[tokens][3 * channels] are the rows b, c and x, out[tokens][channels] is
 * c * convolution. kept[taps - 1][channels] is what came before the slice, and then what its next step looks back to.
 * Pieces do not touch each other. */
void mo_short_convolve(const mo_kernels *k, const mo_short_rule *r, int64_t piece, const float *in,
                       int64_t tokens, float *kept, float *out);

#endif
