#include "numeric/merge.h"

#include <string.h>

/* Turned so that a NaN stays one. */
static void square_positive(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float positive = 0.0f > x[i] ? 0.0f : x[i];
        y[i] = positive * positive;
    }
}

/* min and max are turned so that a NaN stays one. */
static void clamped_swiglu(const mo_kernels *k, float *y, const float *gate, const float *up, int64_t n,
                           float limit)
{
    enum { SOME = 128 };
    float g[SOME], u[SOME];
    for (int64_t from = 0; from < n; from += SOME) {
        const int64_t count = n - from < SOME ? n - from : SOME;
        for (int64_t i = 0; i < count; i++) {
            const float top = limit < up[from + i] ? limit : up[from + i];
            g[i] = limit < gate[from + i] ? limit : gate[from + i];
            u[i] = -limit > top ? -limit : top;
        }
        k->swiglu(y + from, g, u, count);
    }
}

void mo_activate_row(const mo_kernels *k, mo_activation kind, float limit, float *y, const float *gate,
                     const float *up, int64_t n)
{
    switch (kind) {
    case MO_SWIGLU: k->swiglu(y, gate, up, n); break;
    case MO_GEGLU: k->geglu(y, gate, up, n); break;
    case MO_SWIGLU_OSS: k->swiglu_oss(y, gate, up, n, MO_OSS_ALPHA, MO_OSS_LIMIT); break;
    case MO_SWIGLU_LIMIT: k->swiglu_limit(y, gate, up, n, limit); break;
    case MO_RELU2: square_positive(y, up, n); break;
    case MO_SWIGLU_CLAMP: clamped_swiglu(k, y, gate, up, n, limit); break;
    }
}

void mo_finish_product(const float *scale, const float *bias, int64_t n, int64_t count, float *y,
                       int64_t stride)
{
    for (int64_t t = 0; t < count; t++, y += stride) {
        for (int64_t r = 0; scale && r < n; r++) {
            y[r] *= *scale;
        }
        for (int64_t r = 0; bias && r < n; r++) {
            y[r] += bias[r];
        }
    }
}

/* The experts' outputs in router order, then the shared expert: n values of a row from `from` on. */
static void merge_experts(const mo_kernels *k, const mo_merge *m, int64_t t, int64_t from, int64_t n,
                          float *out)
{
    memset(out, 0, sizeof(float) * (size_t)n);
    for (int r = 0; r < m->used; r++) {
        const int64_t i = t * m->used + r;
        if (m->ids[i] >= 0) {
            k->axpy(out, m->weights[i], m->down + (m->row_of ? m->row_of[i] : i) * m->n + from, n);
        }
    }
    if (m->shared) {
        float g = 1.0f;
        if (m->shared_gate) {
            k->sigmoid(&g, m->shared_gate + t, 1);
        }
        k->axpy(out, g, m->shared + t * m->n + from, n);
    }
}

void mo_merge_experts(const mo_kernels *k, const mo_merge *m, int64_t t, float *sum)
{
    merge_experts(k, m, t, 0, m->n, sum);
}

bool mo_merge_token(const mo_kernels *k, const mo_merge *m, int64_t t, float *sum, float *part, float *x)
{
    const int64_t n = m->n;
    const float *dense = m->dense ? m->dense + t * n : NULL;
    const bool routed = m->used > 0 || m->shared || !dense; /* a layer with neither adds zeros */
    float *experts = dense ? part : sum;
    if (dense && dense != sum) {
        memcpy(sum, dense, sizeof(float) * (size_t)n);
    }
    if (dense && m->dense_norm) {
        k->rms_norm(sum, sum, m->dense_norm, n, m->eps);
    }
    if (routed) {
        merge_experts(k, m, t, 0, n, experts);
        if (m->moe_norm) {
            k->rms_norm(experts, experts, m->moe_norm, n, m->eps);
        }
        if (dense) {
            k->add(sum, experts, n);
        }
    }
    if (m->post_norm) {
        k->rms_norm(sum, sum, m->post_norm, n, m->eps);
    }
    k->add(x, sum, n);
    if (m->out_scale) {
        k->scale(x, *m->out_scale, n);
    }
    return k->finite(x, n);
}

bool mo_merge_columns(const mo_kernels *k, const mo_merge *m, int64_t t, int64_t from, int64_t to, float *sum,
                      float *x)
{
    merge_experts(k, m, t, from, to - from, sum + from);
    k->add(x + from, sum + from, to - from);
    if (m->out_scale) {
        k->scale(x + from, *m->out_scale, to - from);
    }
    return k->finite(x + from, to - from);
}
