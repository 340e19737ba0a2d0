#include "numeric/short_conv.h"

#include <string.h>

void mo_short_convolve(const mo_kernels *k, const mo_short_rule *r, int64_t piece, const float *in,
                       int64_t tokens, float *kept, float *out)
{
    float inputs[MO_SHORT_TAPS][MO_SHORT_PIECE]; /* the last of them, in turn */
    const float *rows[MO_SHORT_TAPS];
    const int64_t n = r->channels, first = piece * MO_SHORT_PIECE, keep = r->taps - 1;
    const int64_t count = n - first < MO_SHORT_PIECE ? n - first : MO_SHORT_PIECE;
    const size_t bytes = sizeof(float) * (size_t)count;
    for (int64_t j = 0; j < keep; j++) {
        memcpy(inputs[j], kept + j * n + first, bytes);
    }
    for (int64_t t = 0; t < tokens; t++) {
        const float *b = in + t * 3 * n + first, *c = b + n, *x = c + n;
        float *newest = inputs[(keep + t) % r->taps], *y = out + t * n + first;
        memcpy(newest, b, bytes);
        k->multiply(newest, x, count);
        for (int64_t j = 0; j < r->taps; j++) {
            rows[j] = inputs[(t + j) % r->taps];
        }
        k->convolve(y, rows, r->conv + first, r->taps, n, count);
        k->multiply(y, c, count);
    }
    for (int64_t j = 0; j < keep; j++) {
        memcpy(kept + j * n + first, inputs[(tokens + j) % r->taps], bytes);
    }
}
