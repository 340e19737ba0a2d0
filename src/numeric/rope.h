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
    double beta_fast,
        beta_slow; /* YaRN: turns over that context of pairs that keep their rate, and of those that are scaled; 0: 32 and 1 */
    /* Where a position has three coordinates: how many pairs turn by each; 0, 0 and 0: all by the first. They take turns: pair p turns by coordinate
     * p mod 3 if p is below three times its number, else by the first. */
    int64_t sections[3];
} mo_rope_setup;

/* Ready for any position. Constant after mo_rope_prepare(): any thread may read it. */
typedef struct mo_rope {
    int64_t pairs;
    double magnitude;
    double rate[MO_ROPE_PAIRS_MAX]; /* radians per position */
    bool several;                   /* pairs turn by several coordinates: */
    uint8_t axis[MO_ROPE_PAIRS_MAX];
} mo_rope;

/* Checks the numbers (they come from a file) and fills out, which the caller owns. MO_EFORMAT says which
 * number makes no sense. */
mo_status mo_rope_prepare(const mo_rope_setup *setup, mo_rope *out, mo_error *err);

/* c[p] = magnitude * cos(phi), s[p] = magnitude * sin(phi), phi = position * rate[p], for every pair;
 * 0 <= position < 2^31. Absolute error before the rounding to f32 below 2^-40 up to position 2^20. */
void mo_rope_fill(const mo_rope *rope, int64_t position, float *c, float *s);

/* The same for a position of three coordinates, each in that range. */
void mo_rope_fill_at(const mo_rope *rope, const int64_t at[3], float *c, float *s);

/* Temperature by position: finished queries are multiplied by 1 + scale * ln(floor(position / length) + 1). */
typedef struct mo_temper {
    double scale;   /* 0: none */
    int64_t length; /* at least 1, if there is a scale */
} mo_temper;

/* That factor, rounded once to f32. 1 for the positions below `length`. */
float mo_temper_at(const mo_temper *temper, int64_t position);

/* The natural logarithm of a positive, finite, normal x, within 2 units in the last place; the same bits
 * everywhere. For the constants a family derives from its scaling factor. */
double mo_rope_ln(double x);

/* e^x for -700 < x < 700, likewise. */
double mo_rope_exp(double x);

#endif
