/* Attention by exact sums on the registers of lanes_*.h, a part of ops_body.h: the steps of reference/codes.c, the sums by the
 * set's sum_planes() (lanes/planes.h). */
#ifndef MO_NUMERIC_LANES_CODES_BODY_H
#define MO_NUMERIC_LANES_CODES_BODY_H

#include "numeric/codes.h"
#include "numeric/lanes/planes.h"

/* ---- Turning and coding ------------------------------------------------------------------------ */

/* Butterflies of a row, and the root. Each stage takes neighbours and leaves their sums in the first half, their differences in the
 * second, so that the next distance are neighbours again; after the last stage every value is back in its place. */
static void butterflies(float *x, int64_t n)
{
    const int64_t block = mo_turn_block((int)n);
    const vf root = vf_set(mo_turn_root((int)block));
    float other[MO_KV_LONGEST];
    for (int64_t at = 0; at < n; at += block) {
        float *from = x + at, *to = other;
        for (int64_t distance = 1; distance < block; distance *= 2) {
            int64_t i = 0;
            for (; i + LANES <= block / 2; i += LANES) {
                vf a, b;
                vf_unzip(vf_load(from + 2 * i), vf_load(from + 2 * i + LANES), &a, &b);
                vf_store(to + i, vf_add(a, b));
                vf_store(to + block / 2 + i, vf_sub(a, b));
            }
            for (; i < block / 2; i++) {
                const float a = from[2 * i], b = from[2 * i + 1];
                to[i] = a + b;
                to[block / 2 + i] = a - b;
            }
            float *swap = from;
            from = to;
            to = swap;
        }
        if (from != x + at) {
            memcpy(x + at, from, sizeof *x * (size_t)block);
        }
    }
    EACH_LANES(i, n)
    {
        put(x + i, vf_mul(get(x + i, n - i), root), n - i);
    }
}

static void flip(float *x, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = mo_float_of(mo_bits_of(from[i]) ^ mo_turn_sign((uint32_t)i));
    }
}

static void turn_back(float *x, int64_t n)
{
    butterflies(x, n);
    flip(x, x, n);
}

static bool code(const float *x, int64_t n, int8_t *high, int8_t *low, float *scale)
{
    float row[MO_KV_LONGEST];
    flip(row, x, n);
    butterflies(row, n);
    const bool finite = finite_row(row, n);
    vf most = vf_set(0.0f);
    EACH_LANES(i, n)
    {
        most = vf_max(most, vf_abs(get(row + i, n - i)));
    }
    const float amax = vf_largest(most);
    const bool zero = !finite || amax < MO_CODE_TINY;
    const int planes = low ? 2 : 1;
    const float inverse = zero ? 0.0f : mo_code_inverse(amax, planes);
    *scale = zero ? 0.0f : mo_code_scale(amax, planes);
    if (zero) {
        memset(high, 0, (size_t)n);
        if (low) {
            memset(low, 0, (size_t)n);
        }
        return finite;
    }
    for (int64_t i = 0; !low && i < n; i++) {
        high[i] = (int8_t)(uint8_t)mo_bits_of(row[i] * inverse + MO_SHARE_ROUND);
    }
    if (!low) {
        return true;
    }
    for (int64_t i = 0; i < n; i++) { /* adding 1.5 * 2^23 rounds and leaves the code in the last bits */
        const uint32_t c = mo_bits_of(row[i] * inverse + MO_SHARE_ROUND) + 128u;
        high[i] = (int8_t)(uint8_t)(c >> 8);
        low[i] = (int8_t)(uint8_t)(c ^ 128u);
    }
    return true;
}

/* ---- A chunk ----------------------------------------------------------------------------------- */

enum {
    CODE_ROWS = 64, /* queries that share a pass over the block */
    CODE_UNITS = 32 /* of which int32 holds the sum: 512 channels */
};

/* What one call keeps in its scratch: 224 KiB. */
typedef struct codes_space {
    _Alignas(64) uint8_t space[PLANES_SPACE];
    int32_t sum[CODE_ROWS][MO_KV_BLOCK];
    int32_t more[CODE_ROWS][MO_KV_BLOCK]; /* of the channels from 512 on */
    float x[CODE_ROWS][MO_KV_BLOCK];      /* scores, then share * s_v */
    int8_t weight[CODE_ROWS][2][MO_KV_BLOCK];
    int8_t turned[2][MO_KV_BLOCK * MO_KV_BLOCK]; /* 128 channels of latent rows as values are laid out */
} codes_space;

_Static_assert(sizeof(codes_space) <= sizeof(mo_scratch), "a chunk of codes fits the scratch");

/* Registers of a unit. */
enum { UNIT_PARTS = MO_KV_UNIT / LANES };

static const float weight_offsets[32] = {
#define OFFSET(u)                                                                                            \
    (float)(8388608 + 32768 + 4 + 8 * (((u)&1) << 4 | ((u)&2) << 2 | ((u)&4) | ((u)&8) >> 2 | (u) >> 4))
    OFFSET(0),  OFFSET(1),  OFFSET(2),  OFFSET(3),  OFFSET(4),  OFFSET(5),  OFFSET(6),  OFFSET(7),
    OFFSET(8),  OFFSET(9),  OFFSET(10), OFFSET(11), OFFSET(12), OFFSET(13), OFFSET(14), OFFSET(15),
    OFFSET(16), OFFSET(17), OFFSET(18), OFFSET(19), OFFSET(20), OFFSET(21), OFFSET(22), OFFSET(23),
    OFFSET(24), OFFSET(25), OFFSET(26), OFFSET(27), OFFSET(28), OFFSET(29), OFFSET(30), OFFSET(31),
#undef OFFSET
};

/* Positions of a block that a row sees, and the whole units around them. */
typedef struct code_span {
    int64_t begin, end, from, to;
} code_span;

MO_INLINE code_span span_of(mo_seen s)
{
    const int64_t begin = s.begin % MO_KV_BLOCK, end = begin + s.end - s.begin;
    return (code_span){.begin = begin,
                       .end = end,
                       .from = begin / MO_KV_UNIT * MO_KV_UNIT,
                       .to = (end + MO_KV_UNIT - 1) / MO_KV_UNIT * MO_KV_UNIT};
}

/* The largest lane of several registers. */
MO_INLINE float largest_of(const vf *parts)
{
    vf most = parts[0];
    for (int j = 1; j < UNIT_PARTS; j++) {
        most = vf_max(most, parts[j]);
    }
    return vf_largest(most) + 0.0f;
}

/* Sums to scores, of the units of a span; the largest. */
MO_INLINE float scale_scores(const codes_space *s, float *x, int64_t r, code_span span, const float *scales)
{
    vf most[UNIT_PARTS];
    for (int j = 0; j < UNIT_PARTS; j++) {
        most[j] = vf_set(-INFINITY);
    }
    for (int64_t i = span.from; i < span.to; i += MO_KV_UNIT) {
        MO_UNROLL
        for (int j = 0; j < UNIT_PARTS; j++) {
            const int64_t at = i + j * LANES;
            const vf score = vf_mul(vf_load(scales + at), vf_of_int(vi_load(s->sum[r] + at)));
            most[j] = vf_max(most[j], score);
            vf_store(x + at, score);
        }
    }
    return largest_of(most);
}

/* The same of keys with more than 512 channels. */
static void scale_wide_scores(const codes_space *s, float *x, int64_t r, code_span span, const float *scales)
{
    for (int64_t i = span.from; i < span.to; i++) {
        const int32_t a = s->sum[r][i], b = s->more[r][i];
        x[i] = scales[i] * fmaf(MO_CODE_BASE, (float)((a >> 8) + (b >> 8)), (float)((a & 255) + (b & 255)));
    }
}

/* The same of latent rows: `more` has the sums of the tails. */
MO_INLINE void scale_latent_scores(const codes_space *s, float *x, int64_t r, code_span span,
                                   const float *value_scales, const float *tail_scales, const float *g)
{
    const vf g_value = vf_set(g[0]), g_tail = vf_set(g[1]);
    for (int64_t i = span.from; i < span.to; i += LANES) {
        const vf value = vf_mul(vf_load(value_scales + i), vf_of_int(vi_load(s->sum[r] + i)));
        const vf tail = vf_mul(vf_load(tail_scales + i), vf_of_int(vi_load(s->more[r] + i)));
        vf_store(x + i, vf_fma(g_tail, tail, vf_mul(g_value, value)));
    }
}

/* What a row does not see becomes -infinity. The largest score. */
MO_INLINE float mask_row(float *x, code_span span)
{
    for (int64_t i = span.from; i < span.begin; i++) {
        x[i] = -INFINITY;
    }
    for (int64_t i = span.end; i < span.to; i++) {
        x[i] = -INFINITY;
    }
    return largest(x + span.from, span.to - span.from);
}

/* Scores of a row; what it does not see becomes -infinity. The largest. */
MO_INLINE float score_row(const codes_space *s, float *x, int64_t r, code_span span, const float *scales,
                          bool wide)
{
    float top = -INFINITY;
    if (wide) {
        scale_wide_scores(s, x, r, span, scales);
    } else {
        top = scale_scores(s, x, r, span, scales);
    }
    if (!wide && span.from == span.begin && span.to == span.end) {
        return top;
    }
    return mask_row(x, span);
}

/* What the shares of a row are made with. */
typedef struct share_rule {
    vf top, slope, least;
} share_rule;

/* Shares of the scores of a unit: written step by step for all of them, because each step waits for the one before it. */
MO_INLINE void shares_of(const vf *score, const share_rule *rule, vf *p)
{
    vf d[UNIT_PARTS], shifted[UNIT_PARTS];
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        d[j] = vf_max(rule->least, vf_sub(score[j], rule->top));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        shifted[j] = vf_fma(d[j], rule->slope, vf_set(MO_SHARE_ROUND));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        d[j] = vf_fma(d[j], rule->slope, vf_sub(vf_set(MO_SHARE_ROUND), shifted[j]));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        p[j] = vf_fma(vf_set(MO_SHARE_C4), d[j], vf_set(MO_SHARE_C3));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        p[j] = vf_fma(p[j], d[j], vf_set(MO_SHARE_C2));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        p[j] = vf_fma(p[j], d[j], vf_set(MO_SHARE_C1));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        p[j] = vf_fma(p[j], d[j], vf_set(1.0f));
    }
    MO_UNROLL
    for (int j = 0; j < UNIT_PARTS; j++) {
        p[j] = vf_of_bits(vi_add(vi_bits(p[j]), vi_to_exponent(vi_bits(shifted[j]))));
    }
}

/* Scores to share * s_v, the largest of which is returned; l is the shares' sum. whole: every position of the units is seen. */
MO_INLINE float share_out(float *x, code_span span, const float *scales, float top, float g, float *l,
                          bool whole)
{
    const float slope = g * MO_SHARE_LOG2E;
    const share_rule rule = {vf_set(top), vf_set(slope), vf_set(mo_share_least(slope))};
    const vf none = vf_set(0.0f);
    vi sum = vi_set(0);
    vf most = none;
    for (int64_t i = span.from; i < span.to; i += MO_KV_UNIT) {
        vf score[UNIT_PARTS], p[UNIT_PARTS];
        MO_UNROLL
        for (int j = 0; j < UNIT_PARTS; j++) {
            score[j] = vf_load(x + i + j * LANES);
        }
        shares_of(score, &rule, p);
        MO_UNROLL
        for (int j = 0; j < UNIT_PARTS; j++) {
            const vm seen = vf_less(vf_set(-INFINITY), score[j]);
            p[j] = vf_pick(seen, p[j], none);
            vf w = vf_mul(p[j], vf_load(scales + i + j * LANES));
            if (!whole) { /* an unwritten scale may be invalid */
                w = vf_pick(seen, w, none);
            }
            const vi counted = vi_bits(vf_fma(p[j], vf_set(MO_SHARE_UNIT), vf_set(MO_WEIGHT_ROUND)));
            sum = vi_add(sum, vi_sub(counted, vi_set(0x4B000000)));
            most = vf_max(most, w);
            vf_store(x + i + j * LANES, w);
        }
    }
    *l = (float)vi_total(sum) * MO_SHARE_BACK;
    return vf_largest(most) + 0.0f;
}

/* The weights of one row; returns r. */
MO_INLINE float weigh_row(codes_space *s, int64_t r, code_span span, float most)
{
    const float *w = s->x[r];
    const vf inverse = vf_set(most < MO_CODE_TINY ? 0.0f : MO_WEIGHT_MOST / most);
    if (span.to - span.from < MO_KV_BLOCK) {
        memset(s->weight[r], 0, sizeof s->weight[r]);
    }
    for (int64_t i = span.from; i < span.to; i += MO_KV_UNIT) {
        vf y[UNIT_PARTS];
        MO_UNROLL
        for (int j = 0; j < UNIT_PARTS; j++) {
            const vf offset = vf_load(weight_offsets + (i & 31) + j * LANES);
            y[j] = vf_fma(vf_load(w + i + j * LANES), inverse, offset);
        }
        lanes_weights(y, s->weight[r][0] + i, s->weight[r][1] + i);
    }
    return (most * MO_WEIGHT_BACK) * MO_CODE_BASE;
}

/* Sixteen rows of sixteen bytes become columns. */
typedef int8_t bytes16 __attribute__((vector_size(16)));

MO_INLINE void turn_tile(const int8_t *const *from, int8_t *to)
{
    bytes16 row[16], zipped[16];
    for (int i = 0; i < 16; i++) {
        memcpy(&row[i], from[i], sizeof row[i]);
    }
    MO_UNROLL
    for (int width = 1; width < 16; width *= 2) { /* rows i and i + 8 become 2i and 2i + 1 */
        MO_UNROLL
        for (int i = 0; i < 8; i++) {
            zipped[2 * i] = __builtin_shufflevector(row[i], row[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                                    21, 6, 22, 7, 23);
            zipped[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                        28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(row, zipped, sizeof row);
    }
    memcpy(to, row, sizeof row);
}

/* `some` channels from j on of the latent rows of [from, to): units of a channel of 16 positions. One pass serves all rows of weights. */
static void turn_values(codes_space *s, const mo_kv_head *kv, const int8_t *keys, int64_t from, int64_t to,
                        int64_t j, int64_t some)
{
    const int64_t low = MO_KV_BLOCK * (int64_t)mo_kv_plane((int)kv->k_len, (int)kv->tail);
    for (int plane = 0; plane < mo_kv_planes(kv->type); plane++) {
        for (int64_t u = from; u < to; u += MO_KV_UNIT) {
            for (int64_t i = 0; i < some; i += MO_KV_UNIT) {
                const int8_t *tile = keys + plane * low + mo_kv_key_code((int)u, (int)(j + i));
                const int8_t *rows[MO_KV_UNIT];
                for (int r = 0; r < MO_KV_UNIT; r++) {
                    rows[mo_kv_slot(r)] = tile + r * MO_KV_UNIT;
                }
                turn_tile(rows, s->turned[plane] + (u - from) * MO_KV_BLOCK + i * MO_KV_UNIT);
            }
        }
    }
}

/* t = the weighted sums of the values, 128 channels at a time, over the positions of [from, to). */
static void sum_values(codes_space *s, const mo_kv_head *kv, const int8_t *values, int64_t from, int64_t to,
                       int64_t rows, float *t)
{
    const int64_t n = kv->v_len, pad = mo_kv_padded((int)n);
    const bool both = mo_kv_planes(kv->type) == 2;
    const plane_rows a = {
        .codes = &s->weight[0][0][0] + from, .stride = sizeof s->weight[0], .low = MO_KV_BLOCK, .rows = rows};
    for (int64_t j = 0; j < n; j += MO_KV_BLOCK) {
        const int8_t *high = values + from * pad + j * MO_KV_UNIT;
        const int64_t some = pad - j < MO_KV_BLOCK ? pad - j : MO_KV_BLOCK;
        plane_block b = {
            .high = high, .low = both ? high + MO_KV_BLOCK * pad : NULL, .stride = pad * MO_KV_UNIT};
        if (kv->tail || kv->shared) {
            turn_values(s, kv, values, from, to, j, some);
            b = (plane_block){
                .high = s->turned[0], .low = both ? s->turned[1] : NULL, .stride = MO_KV_BLOCK * MO_KV_UNIT};
        }
        sum_planes(&a, &b, 0, some, (to - from) / MO_KV_UNIT, s->sum[0], s->space);
        for (int64_t r = 0; r < rows; r++) {
            float *row = t + r * n + j;
            int64_t i = 0;
            for (; i + MO_KV_UNIT <= some && j + i + MO_KV_UNIT <= n; i += MO_KV_UNIT) {
                MO_UNROLL
                for (int k = 0; k < UNIT_PARTS; k++) {
                    vf_store(row + i + k * LANES, vf_of_int(vi_load(s->sum[r] + i + k * LANES)));
                }
            }
            for (; i < some && j + i < n; i += LANES) {
                put(row + i, vf_of_int(vi_load(s->sum[r] + i)), n - j - i);
            }
        }
    }
}

/* Rows q + r * 2 * pad of at most CODE_ROWS queries. */
static void attend_code_rows(codes_space *s, const mo_kv_head *kv, const mo_seen *seen, const int8_t *q,
                             const float *g, int64_t rows, float *m, float *l, float *r, float *t)
{
    const uint8_t *block = mo_kv_block(kv, seen[0].begin);
    const int8_t *keys = (const int8_t *)block + kv->k_at;
    const float *key_scales = (const float *)(const void *)(block + kv->ks_at);
    const float *value_scales = (const float *)(const void *)(block + kv->vs_at);
    const int64_t pad = mo_kv_plane((int)kv->k_len, (int)kv->tail), units = pad / MO_KV_UNIT;
    const int64_t together = kv->tail ? mo_kv_padded((int)kv->v_len) / MO_KV_UNIT : CODE_UNITS;
    const bool wide = units > together;
    int64_t from = MO_KV_BLOCK, to = 0;
    for (int64_t i = 0; i < rows; i++) {
        const code_span span = span_of(seen[i]);
        from = span.from < from ? span.from : from;
        to = span.to > to ? span.to : to;
    }
    const plane_rows a = {.codes = q, .stride = 2 * pad, .low = pad, .rows = rows};
    const bool both = mo_kv_planes(kv->type) == 2;
    const plane_block b = {
        .high = keys, .low = both ? keys + MO_KV_BLOCK * pad : NULL, .stride = MO_KV_BLOCK * MO_KV_UNIT};
    sum_planes(&a, &b, from, to, wide ? together : units, s->sum[0], s->space);
    if (wide) {
        const int64_t first = together * MO_KV_UNIT;
        const plane_rows rest = {.codes = q + first, .stride = 2 * pad, .low = pad, .rows = rows};
        const plane_block tail = {.high = b.high + first * MO_KV_BLOCK,
                                  .low = both ? b.low + first * MO_KV_BLOCK : NULL,
                                  .stride = b.stride};
        sum_planes(&rest, &tail, from, to, units - together, s->more[0], s->space);
    }
    for (int64_t i = 0; i < rows; i++) {
        const code_span span = span_of(seen[i]);
        float top, factor = 1.0f;
        if (kv->tail) {
            scale_latent_scores(s, s->x[i], i, span, value_scales, key_scales, g + 2 * i);
            top = mask_row(s->x[i], span);
        } else {
            top = score_row(s, s->x[i], i, span, key_scales, wide);
            factor = g[i];
        }
        m[i] = factor * top;
        const bool whole = span.from == span.begin && span.to == span.end;
        const float most = whole ? share_out(s->x[i], span, value_scales, top, factor, &l[i], true)
                                 : share_out(s->x[i], span, value_scales, top, factor, &l[i], false);
        r[i] = weigh_row(s, i, span, most);
    }
    sum_values(s, kv, (const int8_t *)block + kv->v_at, from, to, rows, t);
}

static void attend_codes(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                         const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                         mo_scratch *scratch)
{
    codes_space *space = (void *)scratch;
    const int64_t all = count * heads, stride = 2 * (int64_t)mo_kv_plane((int)kv->k_len, (int)kv->tail);
    const int64_t factors = kv->tail ? 2 : 1;
    for (int64_t i = 0, some; i < all; i += some) {
        mo_seen seen[CODE_ROWS];
        some = all - i < CODE_ROWS ? all - i : CODE_ROWS;
        for (int64_t j = 0; j < some; j++) {
            seen[j] = spans[(i + j) / heads];
        }
        attend_code_rows(space, kv, seen, q + i * stride, g + i * factors, some, m + i, l + i, r + i,
                         t + i * kv->v_len);
    }
}

/* exp(x), which is exactly 1 at 0: of two chunks one always has the larger score. */
MO_INLINE float merge_share(float x)
{
    return x == 0.0f ? 1.0f : mo_exp(x);
}

static void merge_codes(float *M, float *L, float *O, float m, float l, float r, const float *t, int64_t n)
{
    const float top = *M > m ? *M : m;
    const float a = merge_share(*M - top), b = merge_share(m - top);
    const vf old = vf_set(a), new = vf_set(b * r);
    *M = top;
    *L = fmaf(b, l, a * *L);
    int64_t j = 0;
    for (; j + MO_KV_UNIT <= n; j += MO_KV_UNIT) {
        MO_UNROLL
        for (int k = 0; k < UNIT_PARTS; k++) {
            float *to = O + j + k * LANES;
            vf_store(to, vf_fma(new, vf_load(t + j + k * LANES), vf_mul(old, vf_load(to))));
        }
    }
    for (; j < n; j += LANES) {
        put(O + j, vf_fma(new, get(t + j, n - j), vf_mul(old, get(O + j, n - j))), n - j);
    }
}

#endif
