/* Scan body: the state-space kernels of numeric/kernels.h on lanes, a channel in each. Part of ops_body.h. */
#ifndef MO_NUMERIC_LANES_SCAN_BODY_H
#define MO_NUMERIC_LANES_SCAN_BODY_H

static void softplus(float *y, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, lanes_softplus(get(x + i, n - i)), n - i);
    }
}

static void scan(float *state, int64_t states, int64_t stride, const float *a, const float *dt,
                 const float *x, const float *b, const float *c, const float *d, float *y, int64_t n)
{
    EACH_LANES(i, n)
    {
        const int64_t left = n - i;
        const vf step = get(dt + i, left), in = get(x + i, left), change = vf_mul(step, in);
        vf o = vf_set(0.0f);
        for (int64_t j = 0; j < states; j++) {
            float *at = state + j * stride + i;
            const vf decay = lanes_exp(vf_mul(step, get(a + j * stride + i, left)));
            const vf s = vf_fma(change, vf_set(b[j]), vf_mul(decay, get(at, left)));
            put(at, s, left);
            o = vf_fma(s, vf_set(c[j]), o);
        }
        put(y + i, vf_fma(get(d + i, left), in, o), left);
    }
}

/* A strip of `regs` registers of channels: as many sums that do not wait for each other. */
MO_INLINE void scan_strip(float *state, int64_t states, int64_t n, const mo_scan_head *t, int64_t i, float *y,
                          int regs)
{
    vf change[LANES_STRIP], o[LANES_STRIP];
    const int64_t left = n - i;
    const vf decay = vf_set(t->decay);
    for (int r = 0; r < regs; r++) {
        change[r] = vf_mul(vf_set(t->dt), get(t->x + i + r * LANES, left - r * LANES));
        o[r] = vf_set(0.0f);
    }
    for (int64_t j = 0; j < states; j++) {
        float *at = state + j * n + i;
        const vf b = vf_set(t->b[j]), c = vf_set(t->c[j]);
        for (int r = 0; r < regs; r++) {
            const vf old = vf_mul(decay, get(at + r * LANES, left - r * LANES));
            const vf s = vf_fma(change[r], b, old);
            put(at + r * LANES, s, left - r * LANES);
            o[r] = vf_fma(s, c, o[r]);
        }
    }
    for (int r = 0; r < regs; r++) {
        const vf in = get(t->x + i + r * LANES, left - r * LANES);
        put(y + i + r * LANES, vf_fma(vf_set(t->d), in, o[r]), left - r * LANES);
    }
}

static void scan_head(float *state, int64_t states, int64_t n, const mo_scan_head *t, float *y)
{
    int64_t i = 0;
    for (; i + LANES_STRIP * LANES <= n; i += LANES_STRIP * LANES) {
        scan_strip(state, states, n, t, i, y, LANES_STRIP);
    }
    for (; i < n; i += LANES) {
        scan_strip(state, states, n, t, i, y, 1);
    }
}

#endif
