/* Matrix: products with several tokens. Eight rows of weights are unpacked once into a panel, in the order
 * the multiply takes them; up to 32 tokens are laid out likewise once per stretch of columns; a tile of
 * eight rows and four tokens stays in registers along the stretch, and in y between stretches, which is
 * exact. Every output is still one accumulator that takes its blocks in ascending order.
 *
 * A tile is eight vectors. With i8mm, vector (i, j) is rows 2i, 2i+1 by tokens 2j, 2j+1; with dotprod alone
 * it is rows 4i .. 4i+3 of token j. `i` counts vectors of weights, `j` vectors of tokens. */
#ifndef MO_NUMERIC_ARM_NEON_MATRIX_H
#define MO_NUMERIC_ARM_NEON_MATRIX_H

#include "numeric/arm/neon_vector.h"

enum {
    MO_TILE_ROWS = 8,
    MO_TILE_TOKENS = 4,
    MO_STRETCH = 32,    /* blocks of 32 columns */
    MO_BATCH_QUADS = 8, /* tokens laid out at a time, in fours: 32 tokens of a stretch fit L1 with a panel */
    MO_PANEL_CODES = 256, /* bytes of codes of a block of eight rows */
    MO_PANEL_FIELDS = 6,
#if defined(__ARM_FEATURE_MATMUL_INT8)
    MO_TILE_I = 4,
    MO_TILE_J = 2,
#else
    MO_TILE_I = 2,
    MO_TILE_J = 4,
#endif
};

/* One block of 32 columns of a panel. Fields follow the codes, MO_TILE_I vectors each, in the order in
 * which mo_panel_scales() writes them; only those of the fold are there. */
typedef struct mo_panel {
    _Alignas(64) uint8_t bytes[MO_STRETCH * (MO_PANEL_CODES + MO_PANEL_FIELDS * MO_TILE_I * 16)];
} mo_panel;

MO_INLINE int mo_panel_fields(mo_fold fold)
{
    switch (fold) {
    case MO_FOLD_PLAIN: return 1;
    case MO_FOLD_HALVES: return 3;
    case MO_FOLD_HALF_MINIMA: return 6;
    default: return 2;
    }
}

MO_INLINE int mo_panel_bytes(mo_fold fold)
{
    return MO_PANEL_CODES + mo_panel_fields(fold) * MO_TILE_I * 16;
}

/* One block of 32 columns of four tokens. */
typedef struct mo_quad {
    _Alignas(64) int8_t q[128];
    float d[4], s[4];
    int32_t seed[2][4]; /* of the whole block or of each half; Q2_K: the sums of each half */
} mo_quad;

/* --- the panel --------------------------------------------------------------------------------------- */

/* As mo_codes_of(), with what the vector's fold adds later. */
MO_INLINE void mo_panel_codes_of(mo_type type, mo_layout layout, const mo_four *f, int n, int s, int i,
                                 int8x16_t out[4])
{
    mo_codes_of(type, layout, f, n, s, i, out);
    if (type == MO_IQ1_S) {
        MO_UNROLL
        for (int b = 0; b < 4; b++) {
            out[b] = vaddq_s8(out[b], mo_small_eighth(f->row[i], 4 * n + b));
        }
    }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* Codes of a block: columns 8c .. 8c+7 of rows 2i and 2i+1 are vector 4c + i. */
MO_INLINE void mo_panel_codes(mo_type type, mo_layout layout, const mo_four *f, int n, uint8_t *panel)
{
    const mo_shape shape = mo_shape_of(type);
    const int bytes = mo_panel_bytes(shape.fold);
    MO_UNROLL
    for (int s = 0; s < shape.steps; s++) {
        MO_UNROLL
        for (int i = 0; i < 4; i += 2) {
            int8x16_t a[4], b[4];
            mo_panel_codes_of(type, layout, f, n, s, i, a);
            mo_panel_codes_of(type, layout, f, n, s, i + 1, b);
            MO_UNROLL
            for (int k = 0; k < shape.outs; k++) {
                const mo_place at = mo_place_of(type, layout, s, k, i);
                int8_t *to = (int8_t *)panel + (shape.span * n + at.block) * bytes + 32 * f->half;
                if (layout == MO_FILED) {
                    const int64x2_t x = vreinterpretq_s64_s8(a[k]);
                    const int64x2_t y = vreinterpretq_s64_s8(b[k]);
                    vst1q_s8(to + 128 * at.half + 8 * i, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
                    vst1q_s8(to + 128 * at.half + 64 + 8 * i, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
                } else {
                    const int32x4_t x = vreinterpretq_s32_s8(a[k]);
                    const int32x4_t y = vreinterpretq_s32_s8(b[k]);
                    to += 128 * at.half + 32 * at.lane;
                    vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(x, y)));
                    vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(x, y)));
                }
            }
        }
    }
}

/* A field of four rows, each row twice. */
MO_INLINE void mo_panel_field(uint8_t *to, int half, uint32x4_t v)
{
    vst1q_u8(to + 32 * half, vreinterpretq_u8_u32(vzip1q_u32(v, v)));
    vst1q_u8(to + 32 * half + 16, vreinterpretq_u8_u32(vzip2q_u32(v, v)));
}

#else

/* Codes of a block: columns 4c .. 4c+3 of rows 4i .. 4i+3 are vector 2c + i. */
MO_INLINE void mo_panel_codes(mo_type type, mo_layout layout, const mo_four *f, int n, uint8_t *panel)
{
    const mo_shape shape = mo_shape_of(type);
    const int bytes = mo_panel_bytes(shape.fold);
    MO_UNROLL
    for (int s = 0; s < shape.steps; s++) {
        int8x16_t code[4][4];
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            mo_panel_codes_of(type, layout, f, n, s, i, code[i]);
        }
        MO_UNROLL
        for (int k = 0; k < shape.outs; k++) {
            uint32x4_t word[4];
            MO_UNROLL
            for (int i = 0; i < 4; i++) {
                word[i] = vreinterpretq_u32_s8(code[i][k]);
            }
            if (layout == MO_FILED) {
                mo_words_transpose(word);
            }
            MO_UNROLL
            for (int i = 0; i < 4; i++) {
                const mo_place at = mo_place_of(type, layout, s, k, i);
                uint8_t *to = panel + (shape.span * n + at.block) * bytes + 16 * f->half;
                vst1q_u8(to + 128 * at.half + 32 * at.lane, vreinterpretq_u8_u32(word[i]));
            }
        }
    }
}

MO_INLINE void mo_panel_field(uint8_t *to, int half, uint32x4_t v)
{
    vst1q_u8(to + 16 * half, vreinterpretq_u8_u32(v));
}

#endif

MO_INLINE uint32x4_t mo_bits_f32(float32x4_t v)
{
    return vreinterpretq_u32_f32(v);
}

MO_INLINE uint32x4_t mo_bits_s32(int32x4_t v)
{
    return vreinterpretq_u32_s32(v);
}

MO_INLINE void mo_panel_scales(mo_type type, const mo_head *head, int b, int half, uint8_t *panel)
{
    const mo_fold fold = mo_shape_of(type).fold;
    const mo_scales s = mo_scales_of(type, head, b);
    const int field = MO_TILE_I * 16;
    uint8_t *to = panel + b * mo_panel_bytes(fold) + MO_PANEL_CODES;
    mo_panel_field(to, half, mo_bits_f32(s.dw[0]));
    switch (fold) {
    case MO_FOLD_PLAIN: break;
    case MO_FOLD_MINIMUM: mo_panel_field(to + field, half, mo_bits_f32(s.min)); break;
    case MO_FOLD_TWO_STEPS: mo_panel_field(to + field, half, mo_bits_f32(s.dw[1])); break;
    case MO_FOLD_SCALED: mo_panel_field(to + field, half, mo_bits_s32(s.scale[0])); break;
    default:
        mo_panel_field(to + field, half, mo_bits_s32(s.scale[0]));
        mo_panel_field(to + 2 * field, half, mo_bits_s32(s.scale[1]));
        if (fold == MO_FOLD_HALF_MINIMA) {
            mo_panel_field(to + 3 * field, half, mo_bits_f32(s.min));
            mo_panel_field(to + 4 * field, half, mo_bits_s32(s.mcode[0]));
            mo_panel_field(to + 5 * field, half, mo_bits_s32(s.mcode[1]));
        }
        break;
    }
}

/* Unpacks `blocks` file blocks of the eight rows from r on, the first of them block `first`. */
MO_INLINE void mo_panel_unpack(mo_type type, mo_layout layout, const mo_weights *w, int64_t r, int64_t end,
                               int64_t first, int64_t blocks, mo_panel *panel)
{
    const mo_shape shape = mo_shape_of(type);
    const int64_t row_bytes = w->cols / shape.values * shape.bytes;
    const int64_t stride = layout == MO_GROUPED ? MO_GROUP * shape.bytes : shape.bytes;
    for (int half = 0; half < 2; half++) {
        const mo_four rows = mo_four_of(layout, w, row_bytes, r, end, half);
        uint8_t *to = panel->bytes;
        for (int64_t fb = first; fb < first + blocks; fb++) {
            const mo_four f = mo_four_at(&rows, fb * stride);
            const mo_head head = mo_head_of(type, layout, &f);
            MO_UNROLL
            for (int n = 0; n < shape.values / 32 / shape.span; n++) {
                mo_panel_codes(type, layout, &f, n, to);
            }
            MO_UNROLL
            for (int b = 0; b < shape.values / 32; b++) {
                mo_panel_scales(type, &head, b, half, to);
            }
            to += shape.values / 32 * mo_panel_bytes(shape.fold);
        }
    }
}

/* --- the tokens -------------------------------------------------------------------------------------- */

/* Lays out blocks first .. first+blocks-1 of four tokens; tokens past `count` repeat the last one. */
static inline void mo_quad_lay(const mo_neon_job *job, int64_t t, mo_fold fold, int offset, int64_t first,
                               int64_t blocks, mo_quad *out)
{
    mo_token x[4];
    for (int i = 0; i < 4; i++) {
        const int64_t last = t + i < job->count ? t + i : job->count - 1;
        x[i] = mo_token_at(job->acts, mo_neon_token(job, last), first);
    }
    const bool biased = fold <= MO_FOLD_MINIMUM || fold == MO_FOLD_TWO_STEPS;
    for (int64_t b = 0; b < blocks; b++) {
        mo_quad *to = &out[b];
        for (int i = 0; i < 4; i++) {
            to->d[i] = x[i].d[b];
            to->s[i] = x[i].s[b];
            for (int h = 0; h < 2; h++) {
                const int32_t half_sum = x[i].half_sum[2 * b + h];
                to->seed[h][i] = fold == MO_FOLD_HALF_MINIMA ? half_sum
                                 : mo_fold_halves(fold)      ? offset * half_sum + (biased ? MO_MAGIC : 0)
                                                             : offset * x[i].sum[b] + (biased ? MO_MAGIC : 0);
            }
        }
#if defined(__ARM_FEATURE_MATMUL_INT8)
        for (int j = 0; j < 2; j++) { /* columns 8c .. 8c+7 of tokens 2j, 2j+1 are vector 2c + j */
            for (int h = 0; h < 2; h++) {
                const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(x[2 * j].q + 32 * b + 16 * h));
                const int64x2_t c = vreinterpretq_s64_s8(vld1q_s8(x[2 * j + 1].q + 32 * b + 16 * h));
                vst1q_s8(to->q + 64 * h + 16 * j, vreinterpretq_s8_s64(vzip1q_s64(a, c)));
                vst1q_s8(to->q + 64 * h + 32 + 16 * j, vreinterpretq_s8_s64(vzip2q_s64(a, c)));
            }
        }
#else
        for (int i = 0; i < 4; i++) {
            memcpy(to->q + 32 * i, x[i].q + 32 * b, 32);
        }
#endif
    }
}

/* Fields of a quad are floats or integers; these read the bits of either. */
typedef uint32_t __attribute__((may_alias)) mo_word_bits;
typedef uint64_t __attribute__((may_alias)) mo_pair_bits;

/* --- the tile ---------------------------------------------------------------------------------------- */

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* Four values of the tokens as vector j of the tile wants them. */
MO_INLINE float32x4_t mo_tile_spread(const void *four, int j)
{
    return vreinterpretq_f32_u64(vdupq_n_u64(((const mo_pair_bits *)four)[j]));
}

/* Adds columns 16h .. 16h+15 of rows i_from .. i_from+i_count-1. */
MO_INLINE void mo_tile_half(const uint8_t *w, const mo_quad *x, int h, int i_from, int i_count,
                            int32x4_t sum[MO_TILE_I][MO_TILE_J])
{
    MO_UNROLL
    for (int c = 2 * h; c < 2 * h + 2; c++) {
        MO_UNROLL
        for (int i = i_from; i < i_from + i_count; i++) {
            const int8x16_t a = vld1q_s8((const int8_t *)w + 64 * c + 16 * i);
            MO_UNROLL
            for (int j = 0; j < MO_TILE_J; j++) {
                sum[i][j] = vmmlaq_s32(sum[i][j], a, vld1q_s8(x->q + 32 * c + 16 * j));
            }
        }
    }
}

MO_INLINE void mo_tile_load(float32x4_t acc[MO_TILE_I][MO_TILE_J], const float *y, int64_t stride)
{
    MO_UNROLL
    for (int j = 0; j < 2; j++) {
        MO_UNROLL
        for (int half = 0; half < 2; half++) {
            const float32x4_t a = vld1q_f32(y + 2 * j * stride + 4 * half);
            const float32x4_t b = vld1q_f32(y + (2 * j + 1) * stride + 4 * half);
            acc[2 * half][j] = vzip1q_f32(a, b);
            acc[2 * half + 1][j] = vzip2q_f32(a, b);
        }
    }
}

MO_INLINE void mo_tile_store(float32x4_t acc[MO_TILE_I][MO_TILE_J], float *y, int64_t stride)
{
    MO_UNROLL
    for (int j = 0; j < 2; j++) {
        MO_UNROLL
        for (int half = 0; half < 2; half++) {
            vst1q_f32(y + 2 * j * stride + 4 * half, vuzp1q_f32(acc[2 * half][j], acc[2 * half + 1][j]));
            vst1q_f32(y + (2 * j + 1) * stride + 4 * half,
                      vuzp2q_f32(acc[2 * half][j], acc[2 * half + 1][j]));
        }
    }
}

#else

MO_INLINE float32x4_t mo_tile_spread(const void *four, int j)
{
    return vreinterpretq_f32_u32(vdupq_n_u32(((const mo_word_bits *)four)[j]));
}

MO_INLINE void mo_tile_half(const uint8_t *w, const mo_quad *x, int h, int i_from, int i_count,
                            int32x4_t sum[MO_TILE_I][MO_TILE_J])
{
    MO_UNROLL
    for (int c = 0; c < 4; c++) {
        MO_UNROLL
        for (int i = i_from; i < i_from + i_count; i++) {
            const int8x16_t a = vld1q_s8((const int8_t *)w + 128 * h + 32 * c + 16 * i);
            MO_UNROLL
            for (int j = 0; j < MO_TILE_J; j++) {
                sum[i][j] = mo_dot_lane(sum[i][j], a, vld1q_s8(x->q + 32 * j + 16 * h), c);
            }
        }
    }
}

MO_INLINE void mo_tile_load(float32x4_t acc[MO_TILE_I][MO_TILE_J], const float *y, int64_t stride)
{
    MO_UNROLL
    for (int j = 0; j < MO_TILE_J; j++) {
        acc[0][j] = vld1q_f32(y + j * stride);
        acc[1][j] = vld1q_f32(y + j * stride + 4);
    }
}

MO_INLINE void mo_tile_store(float32x4_t acc[MO_TILE_I][MO_TILE_J], float *y, int64_t stride)
{
    MO_UNROLL
    for (int j = 0; j < MO_TILE_J; j++) {
        vst1q_f32(y + j * stride, acc[0][j]);
        vst1q_f32(y + j * stride + 4, acc[1][j]);
    }
}

#endif

MO_INLINE int32x4_t mo_tile_seed(mo_fold fold, const mo_quad *x, int half, int j)
{
    return fold == MO_FOLD_HALF_MINIMA || fold == MO_FOLD_SCALED
               ? vdupq_n_s32(0)
               : vreinterpretq_s32_f32(mo_tile_spread(x->seed[half], j));
}

/* acc = fma(dx, dw * sum, acc) */
MO_INLINE float32x4_t mo_tile_add(float32x4_t acc, float32x4_t dw, float32x4_t sum, float32x4_t dx)
{
    return vfmaq_f32(acc, dx, vmulq_f32(dw, sum));
}

/* One block of 32 columns. Where the halves are apart two vectors of weights are taken at a time, to keep
 * all sums in registers. */
MO_INLINE void mo_tile_block(mo_fold fold, const uint8_t *w, const mo_quad *x,
                             float32x4_t acc[MO_TILE_I][MO_TILE_J])
{
    const bool apart = mo_fold_halves(fold);
    const int together = apart ? MO_TILE_I / 2 : MO_TILE_I;
    const uint8_t *field = w + MO_PANEL_CODES;
    MO_UNROLL
    for (int i0 = 0; i0 < MO_TILE_I; i0 += together) {
        int32x4_t sum[2][MO_TILE_I][MO_TILE_J];
        MO_UNROLL
        for (int h = 0; h < 2; h++) {
            if (h == 0 || apart) {
                MO_UNROLL
                for (int i = i0; i < i0 + together; i++) {
                    MO_UNROLL
                    for (int j = 0; j < MO_TILE_J; j++) {
                        sum[h][i][j] = mo_tile_seed(fold, x, h, j);
                    }
                }
            }
            mo_tile_half(w, x, h, i0, together, sum[apart ? h : 0]);
        }
        MO_UNROLL
        for (int i = i0; i < i0 + together; i++) {
#define FIELD_F(k) vreinterpretq_f32_u8(vld1q_u8(field + ((k)*MO_TILE_I + i) * 16))
#define FIELD_I(k) vreinterpretq_s32_u8(vld1q_u8(field + ((k)*MO_TILE_I + i) * 16))
            MO_UNROLL
            for (int j = 0; j < MO_TILE_J; j++) {
                const float32x4_t dx = mo_tile_spread(x->d, j);
                if (fold <= MO_FOLD_MINIMUM) {
                    acc[i][j] = mo_tile_add(acc[i][j], FIELD_F(0), mo_float_unbias(sum[0][i][j]), dx);
                    if (fold == MO_FOLD_MINIMUM) {
                        acc[i][j] = vfmaq_f32(acc[i][j], FIELD_F(1), mo_tile_spread(x->s, j));
                    }
                } else if (fold == MO_FOLD_TWO_STEPS) {
                    acc[i][j] = mo_tile_add(acc[i][j], FIELD_F(0), mo_float_unbias(sum[0][i][j]), dx);
                    acc[i][j] = mo_tile_add(acc[i][j], FIELD_F(1), mo_float_unbias(sum[1][i][j]), dx);
                } else {
                    int32x4_t whole = vmulq_s32(sum[0][i][j], FIELD_I(1));
                    if (fold != MO_FOLD_SCALED) {
                        whole = vmlaq_s32(whole, sum[1][i][j], FIELD_I(2));
                    }
                    acc[i][j] = mo_tile_add(acc[i][j], FIELD_F(0), vcvtq_f32_s32(whole), dx);
                }
                if (fold == MO_FOLD_HALF_MINIMA) {
                    const int32x4_t half0 = vreinterpretq_s32_f32(mo_tile_spread(x->seed[0], j));
                    const int32x4_t half1 = vreinterpretq_s32_f32(mo_tile_spread(x->seed[1], j));
                    const int32x4_t msum = vmlaq_s32(vmulq_s32(half0, FIELD_I(4)), half1, FIELD_I(5));
                    acc[i][j] = mo_tile_add(acc[i][j], FIELD_F(3), vcvtq_f32_s32(msum), dx);
                }
            }
#undef FIELD_F
#undef FIELD_I
        }
    }
}

/* Eight rows by four tokens along a stretch; y holds what earlier stretches gave unless `fresh`. Rows and
 * tokens that are not there are computed and dropped. */
MO_INLINE void mo_tile_run(mo_fold fold, const mo_panel *panel, const mo_quad *x, int64_t blocks, bool fresh,
                           float *y, int64_t y_stride, int64_t rows, int64_t tokens)
{
    float32x4_t acc[MO_TILE_I][MO_TILE_J];
    float edge[MO_TILE_TOKENS][MO_TILE_ROWS] = {{0.0f}};
    const bool whole = rows >= MO_TILE_ROWS && tokens >= MO_TILE_TOKENS;
    if (!whole && !fresh) {
        for (int64_t t = 0; t < tokens && t < MO_TILE_TOKENS; t++) {
            for (int64_t r = 0; r < rows && r < MO_TILE_ROWS; r++) {
                edge[t][r] = y[t * y_stride + r];
            }
        }
    }
    if (whole && !fresh) {
        mo_tile_load(acc, y, y_stride);
    } else {
        mo_tile_load(acc, &edge[0][0], MO_TILE_ROWS);
    }
    const uint8_t *w = panel->bytes;
    for (int64_t b = 0; b < blocks; b++) {
        mo_tile_block(fold, w, &x[b], acc);
        w += mo_panel_bytes(fold);
    }
    if (whole) {
        mo_tile_store(acc, y, y_stride);
        return;
    }
    mo_tile_store(acc, &edge[0][0], MO_TILE_ROWS);
    for (int64_t t = 0; t < tokens && t < MO_TILE_TOKENS; t++) {
        for (int64_t r = 0; r < rows && r < MO_TILE_ROWS; r++) {
            y[t * y_stride + r] = edge[t][r];
        }
    }
}

typedef void mo_tile_runner(const mo_panel *panel, const mo_quad *x, int64_t blocks, bool fresh, float *y,
                            int64_t y_stride, int64_t rows, int64_t tokens);
typedef void mo_panel_unpacker(const mo_weights *w, int64_t r, int64_t end, int64_t first, int64_t blocks,
                               mo_panel *panel);

/* What a product with several tokens lays out. */
typedef struct mo_matrix_space {
    mo_panel panel;
    mo_quad quads[MO_BATCH_QUADS][MO_STRETCH];
} mo_matrix_space;

_Static_assert(sizeof(mo_matrix_space) <= sizeof(mo_scratch), "panel and tokens fit the scratch");

/* Rows [begin, end), all of one layout. */
static void mo_matrix_rows(mo_shape shape, mo_panel_unpacker *unpack, mo_tile_runner *run,
                           const mo_neon_job *job, int64_t begin, int64_t end)
{
    mo_matrix_space *space = (void *)job->scratch;
    const int64_t blocks = job->w->cols / 32;
    const int steps = shape.values / 32;
    for (int64_t t0 = 0; t0 < job->count; t0 += MO_BATCH_QUADS * MO_TILE_TOKENS) {
        const int64_t left = (job->count - t0 + MO_TILE_TOKENS - 1) / MO_TILE_TOKENS;
        const int64_t batch = left < MO_BATCH_QUADS ? left : MO_BATCH_QUADS;
        for (int64_t b0 = 0; b0 < blocks; b0 += MO_STRETCH) {
            const int64_t length = blocks - b0 < MO_STRETCH ? blocks - b0 : MO_STRETCH;
            for (int64_t k = 0; k < batch; k++) {
                mo_quad_lay(job, t0 + MO_TILE_TOKENS * k, shape.fold, shape.offset, b0, length,
                            space->quads[k]);
            }
            for (int64_t r = begin; r < end; r += MO_TILE_ROWS) {
                unpack(job->w, r, end, b0 / steps, length / steps, &space->panel);
                for (int64_t k = 0; k < batch; k++) {
                    const int64_t t = t0 + MO_TILE_TOKENS * k;
                    run(&space->panel, space->quads[k], length, b0 == 0, job->y + t * job->y_stride + r,
                        job->y_stride, end - r, job->count - t);
                }
            }
        }
    }
}

#endif
