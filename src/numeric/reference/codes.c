/* The definition of attention by exact sums: one value after the other. Floats take their steps in the order of
 * docs/numerics.md; integers are exact, so their order does not matter. */
#include "numeric/codes.h"

#include "numeric/math.h"
#include "numeric/reference/reference.h"

/* ---- Turning ----------------------------------------------------------------------------------- */

static void flip(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = mo_float_of(mo_bits_of(x[i]) ^ mo_turn_sign((uint32_t)i));
    }
}

static void butterflies(float *x, int64_t n)
{
    const int64_t block = mo_turn_block((int)n);
    const float root = mo_turn_root((int)block);
    for (int64_t distance = 1; distance < block; distance *= 2) {
        for (int64_t i = 0; i < n; i++) {
            if (!(i & distance)) {
                const float a = x[i], b = x[i + distance];
                x[i] = a + b;
                x[i + distance] = a - b;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] * root;
    }
}

void mo_reference_turn_back(float *x, int64_t n)
{
    butterflies(x, n);
    flip(x, n);
}

/* ---- Codes ------------------------------------------------------------------------------------- */

bool mo_reference_code(const float *x, int64_t n, int8_t *high, int8_t *low, float *scale)
{
    float row[MO_KV_LONGEST];
    float amax = 0.0f;
    memcpy(row, x, sizeof *x * (size_t)n);
    flip(row, n);
    butterflies(row, n);
    const bool finite = mo_reference_finite(row, n);
    for (int64_t i = 0; i < n; i++) {
        amax = fabsf(row[i]) > amax ? fabsf(row[i]) : amax;
    }
    const bool zero = !finite || amax < MO_CODE_TINY;
    const int planes = low ? 2 : 1;
    const float inverse = zero ? 0.0f : mo_code_inverse(amax, planes);
    for (int64_t i = 0; i < n; i++) {
        const int code = zero ? 0 : (int)rintf(row[i] * inverse);
        high[i] = (int8_t)(low ? mo_code_high(code) : code);
        if (low) {
            low[i] = (int8_t)mo_code_low(code);
        }
    }
    *scale = zero ? 0.0f : mo_code_scale(amax, planes);
    return finite;
}

/* ---- A chunk ----------------------------------------------------------------------------------- */

/* Without the product of the low planes, which would be below the 16 bits. */
static int64_t product(int query_high, int query_low, int high, int low)
{
    return 256 * query_high * high + query_high * low + query_low * high;
}

static float read_scale(const uint8_t *scales, int64_t u)
{
    float s;
    memcpy(&s, scales + sizeof s * (size_t)(u % MO_KV_BLOCK), sizeof s);
    return s;
}

/* s_k(u) * float(T) of every position seen; the largest. */
static float score(const mo_kv_head *kv, mo_seen seen, const int8_t *q, float *x)
{
    const uint8_t *block = mo_kv_block(kv, seen.begin);
    const int8_t *high = (const int8_t *)block + kv->k_at;
    const int pad = mo_kv_padded((int)kv->k_len);
    const bool both = mo_kv_planes(kv->type) == 2;
    float top = -INFINITY;
    for (int64_t u = seen.begin; u < seen.end; u++) {
        int64_t sum = 0;
        for (int i = 0; i < kv->k_len; i++) {
            const int at = mo_kv_key_code((int)(u % MO_KV_BLOCK), i);
            sum += product(q[i], q[pad + i], high[at], both ? high[at + MO_KV_BLOCK * pad] : 0);
        }
        x[u % MO_KV_BLOCK] = read_scale(block + kv->ks_at, u) * (float)sum;
        top = x[u % MO_KV_BLOCK] > top ? x[u % MO_KV_BLOCK] : top;
    }
    return top + 0.0f;
}

/* Sum over `n` channels from channel `first` of the key's row on, which the query's codes q stand for. */
static int64_t key_sum(const mo_kv_head *kv, int64_t u, const int8_t *q, int first, int64_t n)
{
    const int8_t *high = (const int8_t *)mo_kv_block(kv, u) + kv->k_at;
    const int plane = mo_kv_plane((int)kv->k_len, (int)kv->tail);
    const bool both = mo_kv_planes(kv->type) == 2;
    int64_t sum = 0;
    for (int i = first; i < first + n; i++) {
        const int at = mo_kv_key_code((int)(u % MO_KV_BLOCK), i);
        sum += product(q[i], q[plane + i], high[at], both ? high[at + MO_KV_BLOCK * plane] : 0);
    }
    return sum;
}

/* The same of latent rows, whose scores come with the query's factors. */
static float score_latent(const mo_kv_head *kv, mo_seen seen, const int8_t *q, const float *g, float *x)
{
    const uint8_t *block = mo_kv_block(kv, seen.begin);
    float top = -INFINITY;
    for (int64_t u = seen.begin; u < seen.end; u++) {
        const int64_t value = key_sum(kv, u, q, 0, kv->v_len);
        const int64_t tail = key_sum(kv, u, q, mo_kv_padded((int)kv->v_len), kv->tail);
        const float score = mo_latent_score(g[0], read_scale(block + kv->vs_at, u), (int32_t)value, g[1],
                                            read_scale(block + kv->ks_at, u), (int32_t)tail);
        x[u % MO_KV_BLOCK] = score;
        top = score > top ? score : top;
    }
    return top + 0.0f;
}

/* Shares of the positions, and their sum; x becomes share * s_v, the largest of which is returned. */
static float share(const mo_kv_head *kv, mo_seen seen, float g, float top, float *x, float *l)
{
    const uint8_t *scales = mo_kv_block(kv, seen.begin) + kv->vs_at;
    const float e = g * MO_SHARE_LOG2E, least = mo_share_least(e);
    uint32_t sum = 0;
    float most = 0.0f;
    for (int64_t u = seen.begin; u < seen.end; u++) {
        float *w = &x[u % MO_KV_BLOCK];
        const float p = *w == -INFINITY ? 0.0f : mo_share(*w - top, e, least);
        sum += (uint32_t)mo_weight_rint(p, MO_SHARE_UNIT);
        *w = p * read_scale(scales, u);
        most = *w > most ? *w : most;
    }
    *l = (float)(int32_t)sum * MO_SHARE_BACK;
    return most;
}

static void weigh_values(const mo_kv_head *kv, mo_seen seen, const float *w, float most, float *t)
{
    const int8_t *high = (const int8_t *)mo_kv_block(kv, seen.begin) + kv->v_at;
    const int low =
        MO_KV_BLOCK * (kv->tail ? mo_kv_plane((int)kv->k_len, (int)kv->tail) : mo_kv_padded((int)kv->v_len));
    const float inverse = most < MO_CODE_TINY ? 0.0f : MO_WEIGHT_MOST / most;
    const bool both = mo_kv_planes(kv->type) == 2;
    int weight[MO_KV_BLOCK];
    for (int64_t u = seen.begin; u < seen.end; u++) {
        const int at = (int)(u % MO_KV_BLOCK);
        weight[at] = (mo_weight_rint(w[at], inverse) + mo_weight_offset(at)) >> 8;
    }
    for (int j = 0; j < kv->v_len; j++) {
        int64_t sum = 0;
        for (int64_t u = seen.begin; u < seen.end; u++) {
            const int at = (int)(u % MO_KV_BLOCK);
            const int code =
                kv->tail || kv->shared ? mo_kv_key_code(at, j) : mo_kv_value_code(at, j, (int)kv->v_len);
            sum += product(mo_code_high(weight[at]), mo_code_low(weight[at]), high[code],
                           both ? high[code + low] : 0);
        }
        t[j] = (float)sum;
    }
}

void mo_reference_attend_codes(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                               const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                               mo_scratch *scratch)
{
    (void)scratch;
    const int64_t stride = 2 * (int64_t)mo_kv_plane((int)kv->k_len, (int)kv->tail);
    for (int64_t i = 0; i < count * heads; i++) {
        float x[MO_KV_BLOCK];
        const mo_seen seen = spans[i / heads];
        const float factor = kv->tail ? 1.0f : g[i];
        const float top = kv->tail ? score_latent(kv, seen, q + i * stride, g + 2 * i, x)
                                   : score(kv, seen, q + i * stride, x);
        m[i] = factor * top;
        const float most = share(kv, seen, factor, top, x, &l[i]);
        r[i] = (most * MO_WEIGHT_BACK) * MO_CODE_BASE;
        weigh_values(kv, seen, x, most, t + i * kv->v_len);
    }
}

void mo_reference_merge_codes(float *M, float *L, float *O, float m, float l, float r, const float *t,
                              int64_t n)
{
    const float top = *M > m ? *M : m;
    const float a = mo_exp(*M - top), b = mo_exp(m - top);
    *M = top;
    *L = fmaf(b, l, a * *L);
    for (int64_t j = 0; j < n; j++) {
        O[j] = fmaf(b * r, t[j], a * O[j]);
    }
}
