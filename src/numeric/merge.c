#include "numeric/merge.h"

#include <string.h>

void mo_activate_row(const mo_kernels *k, mo_activation kind, float *y, const float *gate, const float *up,
                     int64_t n)
{
    switch (kind) {
    case MO_SWIGLU: k->swiglu(y, gate, up, n); break;
    case MO_GEGLU: k->geglu(y, gate, up, n); break;
    case MO_SWIGLU_OSS: k->swiglu_oss(y, gate, up, n, MO_OSS_ALPHA, MO_OSS_LIMIT); break;
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
