#include "numeric/x86/avx2_float.h"

#include <immintrin.h>
#include <math.h>

#include "numeric/half.h"
#include "numeric/x86/pack.h"

#define VECTOR_INLINE MO_INLINE
#include "numeric/x86/vector256.h"

enum { ROWS = 2 };
#include "numeric/x86/float_many.h"

enum { OUTPUTS = 3 }; /* three rows with one token, or one row with three: twelve accumulators */

MO_INLINE __m256 weights8(mo_type type, const uint8_t *row, int64_t i)
{
    if (type == MO_F32) {
        return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(row + 4 * i)));
    }
    const __m128i halves = _mm_loadu_si128((const __m128i *)(row + 2 * i));
    if (type == MO_F16) {
        return _mm256_cvtph_ps(halves);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

static float weight(mo_type type, const uint8_t *row, int64_t i)
{
    if (type == MO_F32) {
        float value;
        memcpy(&value, row + 4 * i, sizeof value);
        return value;
    }
    const uint16_t half = mo_read_u16(row + 2 * i);
    return type == MO_F16 ? mo_f16_to_f32(half) : mo_bf16_to_f32(half);
}

/* ---- Many tokens ---- */

MO_INLINE vf weights(mo_type type, const uint8_t *row, int64_t i)
{
    return weights8(type, row, i);
}

MO_INLINE vf weights_some(mo_type type, const uint8_t *row, int64_t i, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t k = 0; k < n; k++) {
        lane[k] = weight(type, row, i + k);
    }
    return vf_load(lane);
}

MO_INLINE vf fma_some(vf w, vf v, vf a, int64_t n)
{
    return _mm256_blendv_ps(a, vf_fma(w, v, a), _mm256_castsi256_ps(lanes_first(n)));
}

MO_INLINE void store_trees(const sums *s, int t, float *y, int64_t rows)
{
    vf row[ROWS];
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        row[r] = vf_add(vf_add(s->of[0][r][t], s->of[2][r][t]), vf_add(s->of[1][r][t], s->of[3][r][t]));
    }
    vf sum =
        vf_add(_mm256_permute2f128_ps(row[0], row[1], 0x20), _mm256_permute2f128_ps(row[0], row[1], 0x31));
    sum = vf_add(sum, _mm256_permute_ps(sum, 0x4E));
    sum = vf_add(sum, _mm256_permute_ps(sum, 0xB1));
    _mm_store_ss(y, _mm256_castps256_ps128(sum));
    if (rows > 1) {
        _mm_store_ss(y + 1, _mm256_extractf128_ps(sum, 1));
    }
}

/* ---- Few tokens ---- */

/* The last n - i elements into their lanes. */
static void add_rest(mo_type type, const uint8_t *row, const float *x, int64_t i, int64_t n, __m256 acc[4])
{
    float lane[32];
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_ps(lane + 8 * k, acc[k]);
    }
    for (; i < n; i++) {
        lane[i % 32] = fmaf(weight(type, row, i), x[i], lane[i % 32]);
    }
    for (int k = 0; k < 4; k++) {
        acc[k] = _mm256_loadu_ps(lane + 8 * k);
    }
}

/* The tree 16, 8, 4, 2, 1. */
MO_INLINE float tree(const __m256 acc[4])
{
    const __m256 s8 = _mm256_add_ps(_mm256_add_ps(acc[0], acc[2]), _mm256_add_ps(acc[1], acc[3]));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* out[r * tokens + t] for `rows` rows and `tokens` tokens, OUTPUTS in all. */
MO_INLINE void run(mo_type type, int rows, int tokens, const uint8_t *const *row, const float *const *x,
                   int64_t n, float *out)
{
    __m256 acc[OUTPUTS][4];
    for (int o = 0; o < OUTPUTS; o++) {
        acc[o][0] = acc[o][1] = acc[o][2] = acc[o][3] = _mm256_setzero_ps();
    }
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        MO_UNROLL
        for (int k = 0; k < 4; k++) {
            MO_UNROLL
            for (int r = 0; r < rows; r++) {
                const __m256 w = weights8(type, row[r], i + 8 * k);
                MO_UNROLL
                for (int t = 0; t < tokens; t++) {
                    const int o = r * tokens + t;
                    acc[o][k] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[t] + i + 8 * k), acc[o][k]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int t = 0; t < tokens; t++) {
            const int o = r * tokens + t;
            if (i < n) {
                add_rest(type, row[r], x[t], i, n, acc[o]);
            }
            out[o] = tree(acc[o]);
        }
    }
}

/* Three rows at a time with one token. */
MO_INLINE void one_token(mo_type type, const mo_weights *w, int64_t row_bytes, int64_t begin, int64_t end,
                         const float *x, float *y)
{
    for (int64_t r = begin; r < end; r += OUTPUTS) {
        const uint8_t *row[OUTPUTS];
        float out[OUTPUTS];
        for (int i = 0; i < OUTPUTS; i++) { /* rows past the end repeat the last one and go nowhere */
            row[i] = w->data + (r + i < end ? r + i : end - 1) * row_bytes;
        }
        run(type, OUTPUTS, 1, row, &x, w->cols, out);
        const int64_t valid = end - r < OUTPUTS ? end - r : OUTPUTS;
        memcpy(y + r, out, (size_t)valid * sizeof(float));
    }
}

/* A band of rows stays in the cache while the tokens pass. */
MO_INLINE void typed(mo_type type, const mo_weights *w, int64_t row_begin, int64_t row_end,
                     const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t y_stride,
                     mo_scratch *scratch)
{
    if (count > FEW) {
        many_tokens(type, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t band = 30;
    for (int64_t r = row_begin; r < row_end; r += band) {
        const int64_t end = r + band < row_end ? r + band : row_end;
        int64_t t = 0;
        for (; t + OUTPUTS <= count; t += OUTPUTS) {
            const float *x[OUTPUTS];
            for (int i = 0; i < OUTPUTS; i++) {
                x[i] = acts->x + (pick ? pick[t + i] : t + i) * acts->cols;
            }
            for (int64_t k = r; k < end; k++) {
                const uint8_t *row = w->data + k * row_bytes;
                float out[OUTPUTS];
                run(type, 1, OUTPUTS, &row, x, w->cols, out);
                for (int i = 0; i < OUTPUTS; i++) {
                    y[(t + i) * y_stride + k] = out[i];
                }
            }
        }
        for (; t < count; t++) {
            one_token(type, w, row_bytes, r, end, acts->x + (pick ? pick[t] : t) * acts->cols,
                      y + t * y_stride);
        }
    }
}

MO_PRODUCT(mo_avx2_float_product)
{
    switch (w->type) {
    case MO_F32: typed(MO_F32, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    case MO_F16: typed(MO_F16, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    default: typed(MO_BF16, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    }
}
