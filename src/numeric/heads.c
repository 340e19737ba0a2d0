#include "numeric/heads.h"

#include <string.h>

static void norm_and_rotate(const mo_kernels *k, const mo_heads_rule *h, float *x, const float *norm,
                            const float *c, const float *s)
{
    if (norm) {
        k->rms_norm(x, x, norm, h->k_len, h->eps);
    }
    if (h->rotates) {
        k->rope(x, c, s, h->n_rot, h->neox);
    }
}

bool mo_heads_prepare(const mo_kernels *k, const mo_heads_rule *h, float *q, int queries, int64_t q_stride,
                      float *key, float *value, const float *c, const float *s, const mo_kv_head *kv,
                      int64_t position)
{
    for (int i = 0; i < queries; i++) {
        norm_and_rotate(k, h, q + i * q_stride, h->q_norm, c, s);
    }
    if (h->v_from_k) {
        memcpy(value, key, sizeof(float) * (size_t)h->v_len);
    }
    norm_and_rotate(k, h, key, h->k_norm, c, s);
    if (h->v_norm) {
        k->rms_norm(value, value, NULL, h->v_len, h->eps);
    }
    return k->kv_write(kv->type, key, h->k_len, mo_kv_key(kv, position)) &&
           k->kv_write(kv->type, value, h->v_len, mo_kv_value(kv, position));
}

void mo_heads_finish(const mo_kernels *k, float *M, float *L, float *O, const float *sink, const float *gate,
                     int64_t n, float *out)
{
    if (sink) {
        k->attend_merge(M, L, O, *sink, 1.0f, NULL, n);
    }
    k->attend_finish(O, *L, n);
    if (gate) {
        k->sigmoid(out, gate, n);
        k->multiply(out, O, n);
    } else {
        memcpy(out, O, sizeof(float) * (size_t)n);
    }
}
