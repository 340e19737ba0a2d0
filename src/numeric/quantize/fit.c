#include "numeric/quantize/fit.h"

#include <math.h>

#include "numeric/half.h"

static const double half_max = 65504.0;

double mo_fit_half(double x)
{
    const double clamped = x > half_max ? half_max : x < -half_max ? -half_max : x;
    return mo_f16_to_f32(mo_f32_to_f16((float)clamped));
}

/* Nearest even, for |t| below 2^51: the sum leaves no bits for a fraction. Unlike rint() it is no call on
 * machines whose base instruction set cannot round. */
static inline double round_even(double t)
{
    return (t + 0x1.8p52) - 0x1.8p52;
}

static inline double clamp(const mo_levels *l, double t)
{
    const double low = mo_level_value(l, 0);
    const double high = mo_level_value(l, l->count - 1);
    return t > high ? high : t < low ? low : t;
}

/* Four comparisons with the middles between sixteen ascending levels. */
static inline int table_nearest(const int8_t *v, double clamped)
{
    const double t = 2.0 * clamped;
    int i = 0;
    i += t > v[i + 7] + v[i + 8] ? 8 : 0;
    i += t > v[i + 3] + v[i + 4] ? 4 : 0;
    i += t > v[i + 1] + v[i + 2] ? 2 : 0;
    i += t > v[i] + v[i + 1] ? 1 : 0;
    return i;
}

static inline double nearest_value(const mo_levels *l, double t)
{
    const double inside = clamp(l, t);
    return l->table ? l->table[table_nearest(l->table, inside)] : round_even(inside);
}

/* The sums below run in four lanes, lane i taking the values i, i + 4, ...: one fixed order that keeps a
 * processor busy. */
static double sum4(const double lane[4])
{
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static double fit_error(const mo_levels *l, const float *x, int n, double d, double m)
{
    const double inverse = d != 0.0 ? 1.0 / d : 0.0;
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < n; i += 4) {
        for (int j = 0; j < 4; j++) {
            const double value = nearest_value(l, ((double)x[i + j] - m) * inverse);
            const double miss = (double)x[i + j] - (d * value + m);
            lane[j] += miss * miss;
        }
    }
    return sum4(lane);
}

double mo_fit_codes(const mo_levels *l, const float *x, int n, double d, double m, uint8_t *index)
{
    const double inverse = d != 0.0 ? 1.0 / d : 0.0;
    for (int i = 0; index && i < n; i++) {
        const double t = clamp(l, ((double)x[i] - m) * inverse);
        index[i] = (uint8_t)(l->table ? table_nearest(l->table, t) : (int)round_even(t) - l->first);
    }
    return fit_error(l, x, n, d, m);
}

/* The value of largest magnitude, with its sign. */
static double extreme(const float *x, int n)
{
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        if (fabs((double)x[i]) > fabs(most)) {
            most = x[i];
        }
    }
    return most;
}

/* The least-squares scale for the codes that scale d chooses. */
static double refit_scale(const mo_levels *l, const float *x, int n, double d)
{
    const double inverse = 1.0 / d;
    double xq[4] = {0.0, 0.0, 0.0, 0.0};
    double qq[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < n; i += 4) {
        for (int j = 0; j < 4; j++) {
            const double q = nearest_value(l, (double)x[i + j] * inverse);
            xq[j] += q * (double)x[i + j];
            qq[j] += q * q;
        }
    }
    const double squares = sum4(qq);
    return squares > 0.0 ? sum4(xq) / squares : d;
}

typedef struct best_scale {
    double d, error;
} best_scale;

static void try_scale(const mo_levels *l, const float *x, int n, bool half, double d, best_scale *best)
{
    const double stored = half ? mo_fit_half(d) : d;
    const double error = fit_error(l, x, n, stored, 0.0);
    if (error < best->error) {
        *best = (best_scale){stored, error};
    }
}

double mo_fit_scale(const mo_levels *l, const float *x, int n, bool half)
{
    const double most = extreme(x, n);
    if (most == 0.0) {
        return 0.0;
    }
    const double low = fabs((double)mo_level_value(l, 0));
    const double high = mo_level_value(l, l->count - 1);
    const double top = low > high ? low : high;
    best_scale best = {0.0, fit_error(l, x, n, 0.0, 0.0)};
    /* The largest value is put on, below and above the outermost levels; 32 steps to a range contain
     * the integer levels of the 4-bit and 5-bit formats, so what was decoded is encoded to itself. */
    for (int step = 17; step <= 37 && best.error > 0.0; step++) {
        const double target = top * step / 32.0;
        for (int sign = -1; sign <= 1; sign += 2) {
            const double d = most / (sign * target);
            if (d == 0.0) {
                continue;
            }
            try_scale(l, x, n, half, d, &best);
            try_scale(l, x, n, half, refit_scale(l, x, n, d), &best);
        }
    }
    return best.d;
}

/* Least squares for x = d * q + m with the codes that `from` chooses. */
static mo_affine refit_affine(const mo_levels *l, const float *x, int n, bool negative, mo_affine from)
{
    const double inverse = 1.0 / from.d;
    double lane[4][4] = {{0.0}}; /* sums of q, q^2, x, x q */
    for (int i = 0; i < n; i += 4) {
        for (int j = 0; j < 4; j++) {
            const double value = x[i + j];
            const double q = nearest_value(l, (value - from.m) * inverse);
            lane[0][j] += q;
            lane[1][j] += q * q;
            lane[2][j] += value;
            lane[3][j] += value * q;
        }
    }
    const double sq = sum4(lane[0]);
    const double sqq = sum4(lane[1]);
    const double sx = sum4(lane[2]);
    const double sxq = sum4(lane[3]);
    const double determinant = n * sqq - sq * sq;
    if (determinant <= 0.0) {
        return from;
    }
    mo_affine to = {(n * sxq - sq * sx) / determinant, (sqq * sx - sq * sxq) / determinant};
    if (negative && to.m > 0.0) {
        to = (mo_affine){sxq / sqq, 0.0};
    }
    return to.d > 0.0 ? to : from;
}

typedef struct best_affine {
    mo_affine fit;
    double error;
} best_affine;

static void try_affine(const mo_levels *l, const float *x, int n, bool half, mo_affine fit, best_affine *best)
{
    if (half) {
        fit = (mo_affine){mo_fit_half(fit.d), mo_fit_half(fit.m)};
    }
    const double error = fit_error(l, x, n, fit.d, fit.m);
    if (error < best->error) {
        *best = (best_affine){fit, error};
    }
}

mo_affine mo_fit_affine(const mo_levels *l, const float *x, int n, bool negative, bool half)
{
    double low = x[0];
    double high = x[0];
    for (int i = 1; i < n; i++) {
        low = (double)x[i] < low ? (double)x[i] : low;
        high = (double)x[i] > high ? (double)x[i] : high;
    }
    if (negative && low > 0.0) {
        low = 0.0;
    }
    const double flat = half ? mo_fit_half(low) : low; /* one value for all: scale 0 */
    best_affine best = {{0.0, flat}, fit_error(l, x, n, 0.0, flat)};
    if (high <= low) {
        return best.fit;
    }
    const double last = l->count - 1;
    for (int step = 22; step <= 34 && best.error > 0.0; step += 2) {
        const double d = (high - low) / (last * step / 32.0);
        /* Past the range on either side, on both, or not at all: outliers are often one-sided. */
        const double spare = (high - low) - d * last;
        for (int side = 0; side <= 2; side++) {
            mo_affine fit = {d, low + spare * side / 2.0};
            if (d <= 0.0) {
                continue;
            }
            if (negative && fit.m > 0.0) {
                fit.m = 0.0;
            }
            try_affine(l, x, n, half, fit, &best);
            for (int again = 0; again < 2; again++) {
                fit = refit_affine(l, x, n, negative, fit);
                try_affine(l, x, n, half, fit, &best);
            }
        }
    }
    return best.fit;
}
