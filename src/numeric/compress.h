/* Compress: one key of the tokens of a block (deepseek4): of every channel a mean of their values, weighted by a softmax of their gates, then a
 * norm and the rotation of the block's first position (docs/numerics.md: Compressed keys). */
#ifndef MO_NUMERIC_COMPRESS_H
#define MO_NUMERIC_COMPRESS_H

#include "numeric/kernels.h"
#include "numeric/rope.h"

/* Most tokens that a key is made of. */
enum { MO_COMPRESS_ROWS = 128 };

typedef struct mo_compress_rule {
    int64_t length;      /* values of a key */
    const float *norm;   /* [length] */
    float eps;           /* of the norm */
    const mo_rope *rope; /* of the key's last values */
} mo_compress_rule;

/* From `rows` tokens in their order, whose values and gates are [length] each. position: of the block's first token; c, s: space for the
 * rotation's pairs; weights: for rows * length floats. False when a value is not finite. */
bool mo_compress(const mo_kernels *k, const mo_compress_rule *r, const float *const *values,
                 const float *const *gates, int64_t rows, int64_t position, float *c, float *s,
                 float *weights, float *key);

#endif
