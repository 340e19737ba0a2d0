/* Fit: the scale and minimum that bring a few values closest to the levels of a format. Least squares
 * around a grid of candidates, in doubles and in one fixed order, so every machine finds the same. */
#ifndef MO_NUMERIC_QUANTIZE_FIT_H
#define MO_NUMERIC_QUANTIZE_FIT_H

#include <stdbool.h>
#include <stdint.h>

/* The integers a code can stand for, ascending. Codes below are indices into them. */
typedef struct mo_levels {
    int count;
    int first; /* level i is first + i ... */
    const int8_t
        *table; /* ... or table[i] where this is not NULL: 16 ascending, those from count on unused */
} mo_levels;

static inline int mo_level_value(const mo_levels *l, int index)
{
    return l->table ? l->table[index] : l->first + index;
}

/* Chooses the best codes for scale d and minimum m and returns the squared error of d * level + m.
 * index may be NULL. n is a multiple of 4 everywhere; ties in a table go to the lower level. */
double mo_fit_codes(const mo_levels *l, const float *x, int n, double d, double m, uint8_t *index);

/* The scale of least squared error. With `half` only scales that a 16-bit float can hold are tried, and
 * the result is one of them. */
double mo_fit_scale(const mo_levels *l, const float *x, int n, bool half);

/* The scale (>= 0) and minimum of least squared error. With `negative` the minimum is at most 0; with
 * `half` both are 16-bit floats. */
typedef struct mo_affine {
    double d, m;
} mo_affine;
mo_affine mo_fit_affine(const mo_levels *l, const float *x, int n, bool negative, bool half);

/* The 16-bit float nearest to x, saturated instead of infinite. */
double mo_fit_half(double x);

#endif
