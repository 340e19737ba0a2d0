/* The definition of every operation that is not a matrix product: one float after the other, in the order
 * of docs/numerics.md. Sums over a row take the 32-lane order: lane i adds up elements i, i+32, i+64, ...,
 * and a tree ends it. */
#include "numeric/reference/reference.h"

#include "numeric/math.h"

/* ---- Norms and softmax ------------------------------------------------------------------------ */

void mo_reference_rms_norm(float *y, const float *x, const float *w, int64_t n, float eps)
{
    const float ss = mo_reference_dot(x, x, n);
    const float r = 1.0f / sqrtf(ss / (float)n + eps);
    for (int64_t i = 0; i < n; i++) {
        y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
    }
}

void mo_reference_l2_norm(float *y, const float *x, int64_t n, float eps)
{
    const float length = sqrtf(mo_reference_dot(x, x, n));
    const float r = 1.0f / (length > eps ? length : eps);
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * r;
    }
}

/* The largest value; of zeros always +0, so that it does not matter in which order one looks. */
static float largest(const float *x, int64_t n)
{
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        m = x[i] > m ? x[i] : m; /* NOLINT(clang-analyzer-core.*): callers fill n values */
    }
    return m + 0.0f;
}

void mo_reference_softmax(float *x, int64_t n)
{
    const float m = largest(x, n);
    float lane[32] = {0.0f};
    for (int64_t i = 0; i < n; i++) {
        x[i] = mo_exp(x[i] - m);
        lane[i % 32] += x[i];
    }
    const float sum = mo_reference_lane_sum(lane);
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] / sum;
    }
}

/* ---- Element by element ----------------------------------------------------------------------- */

void mo_reference_add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = y[i] + x[i];
    }
}

void mo_reference_multiply(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = y[i] * x[i];
    }
}

void mo_reference_scale(float *y, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = y[i] * a;
    }
}

void mo_reference_axpy(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

void mo_reference_swiglu(float *y, const float *g, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_silu(g[i]) * u[i];
    }
}

void mo_reference_geglu(float *y, const float *g, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_gelu_tanh(g[i]) * u[i];
    }
}

/* The comparisons are turned so that a NaN stays one. */
void mo_reference_swiglu_oss(float *y, const float *g, const float *u, int64_t n, float alpha, float limit)
{
    for (int64_t i = 0; i < n; i++) {
        const float gate = limit < g[i] ? limit : g[i];
        float up = limit < u[i] ? limit : u[i];
        up = -limit > up ? -limit : up;
        y[i] = (gate * mo_sigmoid(alpha * gate)) * (up + 1.0f);
    }
}

void mo_reference_swiglu_limit(float *y, const float *g, const float *u, int64_t n, float limit)
{
    for (int64_t i = 0; i < n; i++) {
        float gate = mo_silu(g[i]), up = limit < u[i] ? limit : u[i];
        gate = limit < gate ? limit : gate;
        up = -limit > up ? -limit : up;
        y[i] = gate * up;
    }
}

void mo_reference_silu(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_silu(x[i]);
    }
}

void mo_reference_sigmoid(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_sigmoid(x[i]);
    }
}

void mo_reference_softcap(float *x, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = cap * mo_tanh(x[i] / cap);
    }
}

void mo_reference_low_rank(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                           int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float t = 0.0f;
        for (int64_t j = 0; j < rank; j++) {
            t = fmaf(b[j * stride + i], u[j], t);
        }
        y[i] = fmaf(f, t, y[i]);
    }
}

bool mo_reference_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if ((mo_bits_of(x[i]) & 0x7F800000) == 0x7F800000) {
            return false;
        }
    }
    return true;
}

void mo_reference_rope(float *x, const float *c, const float *s, int64_t n_rot, bool neox)
{
    for (int64_t p = 0; p < n_rot / 2; p++) {
        float *first = neox ? x + p : x + 2 * p;
        float *second = neox ? first + n_rot / 2 : first + 1;
        const float a = *first, b = *second;
        *first = fmaf(a, c[p], -(b * s[p]));
        *second = fmaf(a, s[p], b * c[p]);
    }
}

/* ---- Attention -------------------------------------------------------------------------------- */

static float read_value(const uint8_t *p, int64_t i)
{
    float x;
    memcpy(&x, p + 4 * i, sizeof x);
    return x;
}

static float score(const mo_kv_head *kv, const float *q, const uint8_t *key)
{
    float lane[32] = {0.0f};
    for (int64_t i = 0; i < kv->k_len; i++) {
        lane[i % 32] = fmaf(q[i], read_value(key, i), lane[i % 32]);
    }
    return mo_reference_lane_sum(lane);
}

static void attend_one(const mo_kv_head *kv, mo_seen seen, const float *q, float scale, float *m, float *l,
                       float *o)
{
    const int64_t begin = seen.begin, end = seen.end;
    float p[MO_CHUNK];
    for (int64_t u = begin; u < end; u++) {
        p[u - begin] = scale * score(kv, q, mo_kv_key(kv, u));
    }
    *m = largest(p, end - begin);
    float lane[32] = {0.0f};
    for (int64_t u = begin; u < end; u++) {
        p[u - begin] = mo_exp(p[u - begin] - *m);
        lane[u % 32] += p[u - begin];
    }
    *l = mo_reference_lane_sum(lane);
    for (int64_t j = 0; j < kv->v_len; j++) {
        o[j] = 0.0f;
        for (int64_t u = begin; u < end; u++) {
            o[j] = fmaf(p[u - begin], read_value(mo_kv_value(kv, u), j), o[j]);
        }
    }
}

void mo_reference_attend(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const float *q,
                         int64_t heads, float scale, float *m, float *l, float *o, mo_scratch *scratch)
{
    (void)scratch;
    for (int64_t i = 0; i < count * heads; i++) {
        attend_one(kv, spans[i / heads], q + i * kv->k_len, scale, m + i, l + i, o + i * kv->v_len);
    }
}

void mo_reference_attend_merge(float *M, float *L, float *O, float m, float l, const float *o, int64_t n)
{
    const float top = *M > m ? *M : m;
    const float a = mo_exp(*M - top), b = mo_exp(m - top);
    *M = top;
    *L = fmaf(b, l, a * *L);
    for (int64_t j = 0; j < n; j++) {
        O[j] = fmaf(b, o ? o[j] : 0.0f, a * O[j]);
    }
}

void mo_reference_attend_finish(float *O, float L, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        O[j] = O[j] / L;
    }
}

/* ---- Linear attention ------------------------------------------------------------------------- */

void mo_reference_convolve(float *y, const float *const *rows, const float *w, int64_t taps, int64_t stride,
                           int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        float acc = 0.0f;
        for (int64_t j = 0; j < taps; j++) {
            acc = fmaf(w[j * stride + c], rows[j][c], acc);
        }
        y[c] = acc;
    }
}

void mo_reference_delta(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                        const float *v, float decay, float beta, float scale, float *out)
{
    for (int64_t j = 0; j < v_len; j++) {
        float *column = state + j; /* S[i][j] is column[i * v_len] */
        float a = 0.0f;
        for (int64_t i = 0; i < k_len; i++) {
            column[i * v_len] = decay * column[i * v_len];
            a = fmaf(column[i * v_len], k[i], a);
        }
        const float d = beta * (v[j] - a);
        float o = 0.0f;
        for (int64_t i = 0; i < k_len; i++) {
            column[i * v_len] = fmaf(k[i], d, column[i * v_len]);
            o = fmaf(column[i * v_len], q[i], o);
        }
        out[j] = o * scale;
    }
}

void mo_reference_delta_rows(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                             const float *v, const float *decay, float beta, float scale, float *out)
{
    for (int64_t j = 0; j < v_len; j++) {
        float *column = state + j;
        float a = 0.0f;
        for (int64_t i = 0; i < k_len; i++) {
            column[i * v_len] = decay[i] * column[i * v_len];
            a = fmaf(column[i * v_len], k[i], a);
        }
        const float d = beta * (v[j] - a);
        float o = 0.0f;
        for (int64_t i = 0; i < k_len; i++) {
            column[i * v_len] = fmaf(k[i], d, column[i * v_len]);
            o = fmaf(column[i * v_len], q[i], o);
        }
        out[j] = o * scale;
    }
}

void mo_reference_decay(float *y, const float *dt, float a, float bound, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_decay_of(y[i] + dt[i], a, bound);
    }
}

/* ---- State spaces ----------------------------------------------------------------------------- */

void mo_reference_softplus(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = mo_softplus(x[i]);
    }
}

void mo_reference_scan(float *state, int64_t states, int64_t stride, const float *a, const float *dt,
                       const float *x, const float *b, const float *c, const float *d, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float change = dt[i] * x[i];
        float o = 0.0f;
        for (int64_t j = 0; j < states; j++) {
            float *s = &state[j * stride + i];
            *s = fmaf(change, b[j], mo_exp(dt[i] * a[j * stride + i]) * *s);
            o = fmaf(*s, c[j], o);
        }
        y[i] = fmaf(d[i], x[i], o);
    }
}

void mo_reference_scan_head(float *state, int64_t states, int64_t n, const mo_scan_head *t, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float change = t->dt * t->x[i];
        float o = 0.0f;
        for (int64_t j = 0; j < states; j++) {
            float *s = &state[j * n + i];
            *s = fmaf(change, t->b[j], t->decay * *s);
            o = fmaf(*s, t->c[j], o);
        }
        y[i] = fmaf(t->d, t->x[i], o);
    }
}

/* ---- Indexers --------------------------------------------------------------------------------- */

void mo_reference_rectified_sum(float *y, const float *x, int64_t stride, const float *w, int64_t rows,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int64_t j = 0; j < rows; j++) {
            const float product = x[j * stride + i];
            sum = fmaf(w[j], product > 0.0f ? product : 0.0f, sum);
        }
        y[i] = sum;
    }
}
