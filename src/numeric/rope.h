/* Rope: the angles of rotary positions, made once per position on the host in f64 with own functions and
 * shared by every device, so that no library decides a bit. The rotation itself is mo_kernels.rope. */
#ifndef MO_NUMERIC_ROPE_H
#define MO_NUMERIC_ROPE_H

#include "moraine.h"

enum { MO_ROPE_PAIRS_MAX = 512 };

/* What a model file says. */
typedef struct mo_rope_setup {
    int64_t n_rot;        /* values of a head that rotate: even, at most 2 * MO_ROPE_PAIRS_MAX */
    double base;          /* above 1 */
    const float *factors; /* [n_rot / 2] frequency factors, or NULL */
    double factor;        /* scaling factor; 1 without scaling. Linear: angles are divided by it */
    bool yarn;            /* YaRN instead of linear scaling */
    double context;       /* YaRN: the context length the model was trained with first */
    double magnitude;     /* what c and s are multiplied by; 0: 1 + 0.1 ln(factor) with YaRN, else 1 */
} mo_rope_setup;

/* Ready for any position. Constant after mo_rope_prepare(): any thread may read it. */
typedef struct mo_rope {
    int64_t pairs;
    double magnitude;
    double rate[MO_ROPE_PAIRS_MAX]; /* radians per position */
} mo_rope;

/* Checks the numbers (they come from a file) and fills out, which the caller owns. MO_EFORMAT says which
 * number makes no sense. */
mo_status mo_rope_prepare(const mo_rope_setup *setup, mo_rope *out, mo_error *err);

/* c[p] = magnitude * cos(phi), s[p] = magnitude * sin(phi), phi = position * rate[p], for every pair;
 * 0 <= position < 2^31. Absolute error before the rounding to f32 below 2^-40 up to position 2^20. */
void mo_rope_fill(const mo_rope *rope, int64_t position, float *c, float *s);

/* The natural logarithm of a positive, finite, normal x, within 2 units in the last place; the same bits
 * everywhere. For the constants a family derives from its scaling factor. */
double mo_rope_ln(double x);

/* e^x for -700 < x < 700, likewise. */
double mo_rope_exp(double x);

#endif
