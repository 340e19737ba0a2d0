/* Everything here is plain f64 with fma() where it is written; floor, ceil and rint are exact. The
 * polynomials are Taylor series, long enough for f64 on their reduced ranges: this runs once per position,
 * not once per head, so there is no reason to be clever. */
#include "numeric/rope.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

#define LN2_HI 0x1.62e42fefa39efp-1
#define LN2_LO 0x1.abc9e3b39803fp-56
#define PI     0x1.921fb54442d18p+1

double mo_rope_ln(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t k = (int64_t)(bits - 0x3FE6A09E667F3BCD) >> 52; /* m in [sqrt(1/2), sqrt(2)) */
    bits -= (uint64_t)k << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    /* ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172 */
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.0;
    for (int n = 25; n >= 3; n -= 2) {
        p = fma(p, z, 2.0 / n);
    }
    const double tail = fma(p * z, s, (double)k * LN2_LO);
    return fma((double)k, LN2_HI, fma(2.0, s, tail));
}

double mo_rope_exp(double x)
{
    const double n = rint(x * 0x1.71547652b82fep+0);
    const double r = fma(n, -LN2_LO, fma(n, -LN2_HI, x));
    double p = 1.0;
    for (int i = 15; i >= 1; i--) {
        p = fma(p, r / i, 1.0);
    }
    const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* phi - n pi/2, with pi/2 in three parts: the first step is exact while phi is below 2^31. */
static void f64_sin_cos(double phi, double *sine, double *cosine)
{
    const double n = rint(phi * 0x1.45f306dc9c883p-1);
    double r = fma(n, -0x1.921fb54442d18p+0, phi);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
    const double z = r * r;
    double s = 1.0, c = 1.0;
    for (int i = 20; i >= 2; i -= 2) {
        s = fma(s * z, -1.0 / (i * (i + 1)), 1.0);
        c = fma(c * z, -1.0 / (i * (i - 1)), 1.0);
    }
    s = s * r;
    const int quarter = (int)((int64_t)n & 3);
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

/* The pair at which a wavelength has turned beta times over the first context. */
static double turned(const mo_rope_setup *setup, double beta)
{
    const double n = (double)setup->n_rot;
    return n * mo_rope_ln(setup->context / (2.0 * PI * beta)) / (2.0 * mo_rope_ln(setup->base));
}

/* How much of the unscaled rate pair p keeps: 1 for fast pairs, 0 for slow ones, a ramp between. */
static double ramp_of(double low, double high, int64_t p)
{
    const double width = high - low > 0.001 ? high - low : 0.001;
    double x = ((double)p - low) / width;
    x = x < 0.0 ? 0.0 : x;
    x = x > 1.0 ? 1.0 : x;
    return 1.0 - x;
}

static mo_status check(const mo_rope_setup *setup, mo_error *err)
{
    if (setup->n_rot < 2 || setup->n_rot % 2 || setup->n_rot > 2 * MO_ROPE_PAIRS_MAX) {
        return mo_fail(err, MO_EFORMAT, "rope.dimension_count is %lld; it must be even and between 2 and %d",
                       (long long)setup->n_rot, 2 * MO_ROPE_PAIRS_MAX);
    }
    if (!(setup->base > 1.0 && setup->base < 1e30)) {
        return mo_fail(err, MO_EFORMAT, "rope.freq_base is %g; it must be above 1 and below 1e30",
                       setup->base);
    }
    if (!(setup->factor >= 1e-6 && setup->factor <= 1e6)) {
        return mo_fail(err, MO_EFORMAT, "rope.scaling.factor is %g; it must be between 1e-6 and 1e6",
                       setup->factor);
    }
    if (setup->yarn && !(setup->context >= 1.0 && setup->context < 1e15)) {
        return mo_fail(err, MO_EFORMAT, "rope.scaling.original_context_length is %g; YaRN needs at least 1",
                       setup->context);
    }
    if (!(setup->beta_fast >= 0.0 && setup->beta_fast <= 1e6 && setup->beta_slow >= 0.0 &&
          setup->beta_slow <= 1e6)) {
        return mo_fail(
            err, MO_EFORMAT,
            "rope.scaling.yarn_beta_fast and yarn_beta_slow are %g and %g; they must be between 0 and 1e6",
            setup->beta_fast, setup->beta_slow);
    }
    if (!(setup->magnitude >= 0.0 && setup->magnitude < 1e6)) {
        return mo_fail(err, MO_EFORMAT, "the rope magnitude %g is invalid", setup->magnitude);
    }
    for (int64_t p = 0; setup->factors && p < setup->n_rot / 2; p++) {
        if (!(setup->factors[p] >= 1e-6f && setup->factors[p] <= 1e6f)) {
            return mo_fail(err, MO_EFORMAT,
                           "rope_freqs.weight: factor %lld is %g; it must be between 1e-6 and 1e6",
                           (long long)p, (double)setup->factors[p]);
        }
    }
    return MO_OK;
}

mo_status mo_rope_prepare(const mo_rope_setup *setup, mo_rope *out, mo_error *err)
{
    const mo_status status = check(setup, err);
    if (status != MO_OK) {
        return status;
    }
    double low = 0.0, high = 0.0;
    if (setup->yarn) {
        low = floor(turned(setup, setup->beta_fast > 0.0 ? setup->beta_fast : 32.0));
        high = ceil(turned(setup, setup->beta_slow > 0.0 ? setup->beta_slow : 1.0));
        low = low < 0.0 ? 0.0 : low;
        high = high > (double)setup->n_rot - 1.0 ? (double)setup->n_rot - 1.0 : high;
    }
    const double ln_base = mo_rope_ln(setup->base);
    out->pairs = setup->n_rot / 2;
    out->several = setup->sections[1] > 0 || setup->sections[2] > 0;
    for (int64_t p = 0; p < out->pairs; p++) {
        out->axis[p] = out->several && p < 3 * setup->sections[p % 3] ? (uint8_t)(p % 3) : 0;
        const double power = mo_rope_exp(-((double)(2 * p) / (double)setup->n_rot) * ln_base);
        const double rate = setup->factors ? power / (double)setup->factors[p] : power;
        const double slow = rate / setup->factor;
        if (setup->yarn) {
            const double ramp = ramp_of(low, high, p);
            out->rate[p] = fma(rate, ramp, slow * (1.0 - ramp));
        } else {
            out->rate[p] = slow;
        }
    }
    out->magnitude = setup->magnitude > 0.0 ? setup->magnitude
                     : setup->yarn          ? fma(0.1, mo_rope_ln(setup->factor), 1.0)
                                            : 1.0;
    return MO_OK;
}

void mo_rope_fill(const mo_rope *rope, int64_t position, float *c, float *s)
{
    const int64_t at[3] = {position, position, position};
    mo_rope_fill_at(rope, at, c, s);
}

void mo_rope_fill_at(const mo_rope *rope, const int64_t at[3], float *c, float *s)
{
    for (int64_t p = 0; p < rope->pairs; p++) {
        double sine, cosine;
        f64_sin_cos((double)at[rope->axis[p]] * rope->rate[p], &sine, &cosine);
        c[p] = (float)(rope->magnitude * cosine);
        s[p] = (float)(rope->magnitude * sine);
    }
}

float mo_temper_at(const mo_temper *temper, int64_t position)
{
    const int64_t period = position / temper->length;
    return (float)fma(temper->scale, mo_rope_ln((double)(period + 1)), 1.0);
}
