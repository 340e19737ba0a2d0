#include "numeric/heads.h"

#include <string.h>

#include "numeric/codes.h"

static void norm_and_rotate(const mo_kernels *k, const mo_heads_rule *h, float *x, const float *norm,
                            const float *c, const float *s)
{
    if (norm && !h->norm_last) {
        k->rms_norm(x, x, norm, h->k_len, h->eps);
    }
    if (h->rotates) {
        k->rope(x, c, s, h->n_rot, h->neox);
    }
    if (norm && h->norm_last) {
        k->rms_norm(x, x, norm, h->k_len, h->eps);
    }
}

/* mo_kv_bytes() bytes: the planes, then the scale. */
static bool code_row(const mo_kernels *k, mo_kv_type type, const float *x, int64_t n, uint8_t *row,
                     float *scale)
{
    const int planes = mo_kv_planes(type);
    const bool finite = k->code(x, n, (int8_t *)row, planes == 2 ? (int8_t *)row + n : NULL, scale);
    memcpy(row + planes * n, scale, sizeof *scale);
    return finite;
}

static bool write_codes(const mo_kernels *k, const mo_kv_head *kv, int64_t position, bool value,
                        const float *x, int64_t n, float *scale)
{
    uint8_t row[2 * MO_KV_LONGEST + sizeof(float)];
    const bool finite = code_row(k, kv->type, x, n, row, scale);
    mo_kv_codes_in(kv, position, value, row);
    return finite;
}

static bool write_floats(const mo_kernels *k, const float *x, int64_t n, uint8_t *out)
{
    memcpy(out, x, sizeof *x * (size_t)n);
    return k->finite(x, n);
}

void mo_heads_queries(const mo_kernels *k, const mo_heads_rule *h, float *q, int queries, int64_t q_stride,
                      const float *c, const float *s)
{
    for (int i = 0; i < queries; i++) {
        norm_and_rotate(k, h, q + i * q_stride, h->q_norm, c, s);
        if (h->q_factor) {
            k->scale(q + i * q_stride, *h->q_factor, h->k_len);
        }
    }
}

bool mo_heads_prepare(const mo_kernels *k, const mo_heads_rule *h, float *q, int queries, int64_t q_stride,
                      float *key, float *value, const float *c, const float *s, const mo_kv_head *kv,
                      int64_t position)
{
    mo_heads_queries(k, h, q, queries, q_stride, c, s);
    if (h->v_from_k) {
        memcpy(value, key, sizeof(float) * (size_t)h->v_len);
    }
    norm_and_rotate(k, h, key, h->k_norm, c, s);
    if (h->v_norm) {
        k->rms_norm(value, value, NULL, h->v_len, h->eps);
    }
    if (mo_kv_coded(kv->type)) {
        float scale;
        const bool fits = write_codes(k, kv, position, false, key, h->k_len, &scale);
        return write_codes(k, kv, position, true, value, h->v_len, &scale) && fits;
    }
    return write_floats(k, key, h->k_len, mo_kv_key(kv, position)) &&
           write_floats(k, value, h->v_len, mo_kv_value(kv, position));
}

void mo_heads_code(const mo_kernels *k, const float *q, int64_t n, float scale, int8_t *codes, float *g)
{
    const int64_t pad = mo_kv_padded((int)n);
    float s;
    memset(codes, 0, (size_t)(2 * pad));
    if (!k->code(q, n, codes, codes + pad, &s)) {
        s = NAN; /* the result is none either, and is reported where those are looked for */
    }
    *g = (s * scale) * MO_CODE_BASE;
}

/* ---- Latent rows ------------------------------------------------------------------------------ */

void mo_latent_query(const mo_kernels *k, const float *q, int64_t plain, int64_t n_rot, const float *c,
                     const float *s, const float *factor, float *plain_out, float *tail)
{
    memcpy(plain_out, q, sizeof *q * (size_t)plain);
    memcpy(tail, q + plain, sizeof *q * (size_t)n_rot);
    if (c) {
        k->rope(tail, c, s, n_rot, false);
    }
    if (factor) {
        k->scale(plain_out, *factor, plain);
        k->scale(tail, *factor, n_rot);
    }
}

/* Codes of at most MO_LATENT_SCALE, so that the two parts of a score have a sum. */
static bool code_part(const mo_kernels *k, const float *x, int64_t n, int8_t *high, int8_t *low, float *scale)
{
    return k->code(x, n, high, low, scale) && *scale <= MO_LATENT_SCALE;
}

static bool write_part(const mo_kernels *k, const mo_kv_head *kv, int64_t position, bool value,
                       const float *x, int64_t n)
{
    float scale;
    return write_codes(k, kv, position, value, x, n, &scale) && scale <= MO_LATENT_SCALE;
}

bool mo_latent_key(const mo_kernels *k, const float *norm, float eps, float *key, const float *c,
                   const float *s, const mo_kv_head *kv, int64_t position)
{
    k->rms_norm(key, key, norm, kv->v_len, eps);
    if (c) {
        k->rope(key + kv->v_len, c, s, kv->tail, false);
    }
    if (mo_kv_coded(kv->type)) {
        const bool fits = write_part(k, kv, position, true, key, kv->v_len);
        return write_part(k, kv, position, false, key + kv->v_len, kv->tail) && fits;
    }
    return write_floats(k, key, kv->k_len, mo_kv_key(kv, position));
}

/* ---- Shared rows ------------------------------------------------------------------------------ */

bool mo_shared_key(const mo_kernels *k, const mo_kv_head *kv, int64_t position, const float *x)
{
    float scale;
    return mo_kv_coded(kv->type) ? write_codes(k, kv, position, false, x, kv->k_len, &scale)
                                 : write_floats(k, x, kv->k_len, mo_kv_key(kv, position));
}

bool mo_shared_row(const mo_kernels *k, mo_kv_type type, const float *x, int64_t n, uint8_t *row)
{
    float scale;
    return mo_kv_coded(type) ? code_row(k, type, x, n, row, &scale) : write_floats(k, x, n, row);
}

void mo_shared_put(const mo_kv_head *kv, int64_t place, const uint8_t *row)
{
    if (mo_kv_coded(kv->type)) {
        mo_kv_codes_in(kv, place, false, row);
    } else {
        memcpy(mo_kv_key(kv, place), row, (size_t)kv->k_bytes);
    }
}

/* ---- Coded queries ---------------------------------------------------------------------------- */

void mo_latent_code(const mo_kernels *k, const float *q, int64_t v_len, int64_t tail, float scale,
                    int8_t *codes, float *g)
{
    const int64_t plane = mo_kv_plane((int)(v_len + tail), (int)tail), first = mo_kv_padded((int)v_len);
    float s[2];
    memset(codes, 0, (size_t)(2 * plane));
    const bool value_fits = code_part(k, q, v_len, codes, codes + plane, &s[0]);
    const bool tail_fits = code_part(k, q + v_len, tail, codes + first, codes + plane + first, &s[1]);
    for (int i = 0; i < 2; i++) {
        g[i] = value_fits && tail_fits ? (s[i] * scale) * MO_CODE_BASE : NAN; /* as in mo_heads_code() */
    }
}

void mo_heads_finish(const mo_kernels *k, mo_kv_type kv, float *M, float *L, float *O, const float *sink,
                     const float *gate, int64_t n, float *out)
{
    if (sink) {
        k->attend_merge(M, L, O, *sink, 1.0f, NULL, n);
    }
    k->attend_finish(O, *L, n);
    if (mo_kv_coded(kv)) {
        k->turn_back(O, n);
    }
    if (gate) {
        k->sigmoid(out, gate, n);
        k->multiply(out, O, n);
    } else {
        memcpy(out, O, sizeof(float) * (size_t)n);
    }
}

void mo_heads_gate(const mo_kernels *k, mo_gate_kind kind, const float *gate, bool each, int64_t n,
                   float *out)
{
    void (*const open)(float *y, const float *x, int64_t n) =
        kind == MO_GATE_SOFTPLUS ? k->softplus : k->sigmoid;
    float g[128];
    if (!each) {
        open(g, gate, 1);
        k->scale(out, g[0], n);
        return;
    }
    const int64_t some = (int64_t)(sizeof g / sizeof *g);
    for (int64_t i = 0; i < n; i += some) {
        const int64_t count = n - i < some ? n - i : some;
        open(g, gate + i, count);
        k->multiply(out + i, g, count);
    }
}
