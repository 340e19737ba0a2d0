/* Streams: hyper-connections (deepseek4). The residual is several streams; how much of each a part of a layer reads, to which its result goes,
 * and how they mix, a product says for each token (docs/numerics.md: Streams). */
#ifndef MO_NUMERIC_STREAMS_H
#define MO_NUMERIC_STREAMS_H

#include "numeric/kernels.h"

/* Streams of a model that has some. */
enum { MO_STREAMS = 4, MO_STREAMS_MIX = 2 * MO_STREAMS + MO_STREAMS * MO_STREAMS };

typedef struct mo_streams_rule {
    int64_t width;  /* values of a stream */
    int iterations; /* of the balancing; at least 1 */
    float eps;      /* of shares and sums */
} mo_streams_rule;

/* Of one token and a part of a layer. */
typedef struct mo_streams_shares {
    float in[MO_STREAMS];              /* of each stream in what the part reads */
    float out[MO_STREAMS];             /* of the part's result in each stream */
    float mix[MO_STREAMS][MO_STREAMS]; /* [of][to] */
} mo_streams_shares;

/* From the product mix[MO_STREAMS_MIX], base of the same length and scale[3]. */
void mo_streams_balance(const mo_kernels *k, const mo_streams_rule *r, const float *mix, const float *base,
                        const float *scale, mo_streams_shares *out);
/* At the end of the model, where nothing goes back: mix[MO_STREAMS], base likewise, scale[1]. */
void mo_streams_last(const mo_kernels *k, const mo_streams_rule *r, const float *mix, const float *base,
                     const float *scale, float in[MO_STREAMS]);

/* u[width] = the shares `in` of x[MO_STREAMS][width]. */
void mo_streams_read(const mo_kernels *k, const mo_streams_rule *r, const float *in, const float *x,
                     float *u);
/* x = what the part's result y[width] and the streams themselves give. False when a value is not finite. */
bool mo_streams_write(const mo_kernels *k, const mo_streams_rule *r, const mo_streams_shares *s,
                      const float *y, float *x);

#endif
