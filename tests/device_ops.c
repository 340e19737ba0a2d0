/* Cases of the ops of op.h that are not a mixer's. Each reference is written from the header's sentence with the
 * scalar kernels, row by row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/rank.h"
#include "device_case.h"
#include "numeric/block.h"
#include "numeric/center.h"
#include "numeric/half.h"
#include "numeric/kinds.h"

#define K mo_kernels_scalar

static float *scratch(int64_t count)
{
    float *x = malloc(sizeof(float) * (size_t)(count > 0 ? count : 1));
    assert_non_null(x);
    return x;
}

static void all_finite(const float *x, int64_t n)
{
    assert_true(K.finite(x, n));
}

static int tokens_of(const box *b, int variant)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 70};
    static const int few[] = {1, 2, 4, 9};
    return b->small ? few[variant % 4] : tokens[variant % 11];
}

/* ---- Stream ----------------------------------------------------------------------------------- */

static mo_daddr maybe(box *b, int64_t count, int percent, int flavour)
{
    return box_chance(b, percent) ? box_address(b, box_filled(b, count, flavour)) : 0;
}

static void build_feed(box *b, mo_op_stream *o, int flavour)
{
    const int64_t n = o->n, all = o->tokens * n;
    /* Experts; experts and shared; dense; dense and experts; dense and shared. */
    const int kind = (int)box_pick(b, 0, 4);
    if (kind != 2 && kind != 4) {
        static const int used[] = {1, 2, 4, 8, 10};
        o->used = used[box_pick(b, 0, 4)];
        const int64_t picks = (int64_t)o->tokens * o->used;
        int32_t *ids = box_alloc(b, 4 * picks);
        int32_t *row_of = box_chance(b, 50) ? box_alloc(b, 4 * picks) : NULL;
        for (int64_t i = 0; i < picks; i++) {
            ids[i] = box_chance(b, 15) ? -1 : (int32_t)box_pick(b, 0, 31);
            if (row_of) { /* every row once, in another order */
                row_of[i] = (int32_t)((i * 7 + 3) % picks);
                row_of[i] = picks % 7 == 0 ? (int32_t)(picks - 1 - i) : row_of[i];
            }
        }
        o->ids = box_address(b, ids);
        o->row_of = box_address(b, row_of);
        o->weights = box_address(b, box_filled(b, picks, 0));
        o->down = box_address(b, box_filled(b, picks * n, flavour));
        o->moe_norm = maybe(b, n, 30, 0);
    }
    if (kind == 1 || kind == 4) {
        o->shared = box_address(b, box_filled(b, all, flavour));
        o->shared_gate = maybe(b, o->tokens, 50, 0);
    }
    if (kind >= 2) {
        o->dense = box_address(b, box_filled(b, all, flavour));
        o->dense_norm = maybe(b, n, 50, 0);
    }
    o->post_norm = maybe(b, n, 40, 0);
}

static void build_stream(box *b, mo_op *op, int variant)
{
    static const int widths[] = {32, 96, 7, 64, 100, 288, 1, 512, 1056, 2880};
    mo_op_stream *o = &op->stream;
    op->kind = MO_OP_STREAM;
    o->tokens = tokens_of(b, variant);
    o->n = widths[variant / 3 % (b->small ? 6 : 10)];
    o->eps = variant % 2 ? 1e-6f : 1e-5f;
    o->feed = variant % 4 < 2 ? 0 : variant % 12 == 7 ? 2 : 1;
    o->x = box_address(b, box_filled(b, (int64_t)o->tokens * o->n, variant));
    if (o->feed) {
        build_feed(b, o, variant / 2);
    } else if (variant % 8 != 0) {
        o->y = box_address(b, box_filled(b, (int64_t)o->tokens * o->n, variant + 1));
        o->y_norm = maybe(b, o->n, 40, 0);
    }
    o->out_scale = maybe(b, 1, 30, 0);
    o->centered = variant % 7 == 3;
    uint32_t *bad = box_alloc(b, 4);
    *bad = variant % 5 == 0 ? 7 : 0; /* set, never cleared */
    o->bad = box_address(b, bad);
    if (variant % 3 == 1) {
        mo_dplace *places = box_alloc(b, o->tokens * (int64_t)sizeof *places);
        o->features = box_address(b, box_filled(b, (int64_t)o->tokens * o->n, variant + 2));
        o->places = box_address(b, places);
        for (int t = 0; t < o->tokens; t++) {
            places[t] = (mo_dplace){.position = t, .added = box_chance(b, 50)};
        }
    }
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (box_chance(b, 60)) {
            o->norm[i].out = box_acts(b, o->tokens, o->n);
            o->norm[i].weight = maybe(b, o->n, 70, 0);
            o->norm[i].multiply = maybe(b, o->n, 30, 1);
            o->norm[i].add = maybe(b, o->n, 30, 1);
            o->norm[i].scale = box_chance(b, 60) ? 1.0f : 1.0f / sqrtf((float)o->n);
        }
    }
}

/* What the feed-forward part adds to token t. */
static void feed_sum(const box *b, const mo_op_stream *o, int64_t t, float *sum)
{
    const int64_t n = o->n;
    float *experts = scratch(n);
    const float *dense = box_at(b, o->dense), *shared = box_at(b, o->shared);
    const float *gate = box_at(b, o->shared_gate), *weights = box_at(b, o->weights);
    const int32_t *ids = box_at(b, o->ids), *row_of = box_at(b, o->row_of);
    for (int64_t i = 0; i < n; i++) {
        experts[i] = 0.0f;
    }
    for (int64_t i = t * o->used; i < (t + 1) * o->used; i++) {
        if (ids[i] >= 0) {
            const float *down = box_at(b, o->down);
            K.axpy(experts, weights[i], down + (row_of ? row_of[i] : i) * n, n);
        }
    }
    if (shared) {
        float g = 1.0f;
        if (gate) {
            K.sigmoid(&g, gate + t, 1);
        }
        K.axpy(experts, g, shared + t * n, n);
    }
    if (o->moe_norm) {
        K.rms_norm(experts, experts, box_at(b, o->moe_norm), n, o->eps);
    }
    if (dense) {
        memcpy(sum, dense + t * n, sizeof(float) * (size_t)n);
        if (o->dense_norm) {
            K.rms_norm(sum, sum, box_at(b, o->dense_norm), n, o->eps);
        }
        if (o->used || shared) {
            K.add(sum, experts, n);
        }
    } else {
        memcpy(sum, experts, sizeof(float) * (size_t)n);
    }
    if (o->post_norm) {
        K.rms_norm(sum, sum, box_at(b, o->post_norm), n, o->eps);
    }
    free(experts);
}

static void stream_token(const box *b, const mo_op_stream *o, int64_t t, float *sum)
{
    const int64_t n = o->n;
    float *x = (float *)box_at(b, o->x) + t * n;
    if (o->feed == 2) {
        memset(x, 0, sizeof *x * (size_t)n);
    }
    if (o->feed) {
        feed_sum(b, o, t, sum);
        K.add(x, sum, n);
    } else if (o->y) {
        memcpy(sum, (const float *)box_at(b, o->y) + t * n, sizeof(float) * (size_t)n);
        if (o->y_norm) {
            K.rms_norm(sum, sum, box_at(b, o->y_norm), n, o->eps);
        }
        K.add(x, sum, n);
    }
    if (o->out_scale) {
        K.scale(x, *(const float *)box_at(b, o->out_scale), n);
    }
    all_finite(x, n);
    if (o->features && ((const mo_dplace *)box_at(b, o->places))[t].added) {
        K.add(x, (const float *)box_at(b, o->features) + t * n, n);
    }
    for (int i = 0; i < MO_OP_NORMS; i++) {
        const mo_op_norm *norm = &o->norm[i];
        if (norm->out.x) {
            const mo_acts a = box_acts_at(b, &norm->out);
            mo_norm_row(&K, o->centered, a.x + t * n, x, box_at(b, norm->weight), n, o->eps);
            if (norm->scale != 1.0f) {
                K.scale(a.x + t * n, norm->scale, n);
            }
            if (norm->multiply) {
                K.multiply(a.x + t * n, box_at(b, norm->multiply), n);
            }
            if (norm->add) {
                K.add(a.x + t * n, box_at(b, norm->add), n);
            }
            all_finite(a.x + t * n, n);
            box_quantize(&a, t);
        }
    }
}

static void reference_stream(box *b, const mo_op *op)
{
    float *sum = scratch(op->stream.n);
    for (int64_t t = 0; t < op->stream.tokens; t++) {
        stream_token(b, &op->stream, t, sum);
    }
    free(sum);
}

/* ---- Product ---------------------------------------------------------------------------------- */

/* Activations for the flavour of the weights: hostile ones together with hostile ones stay finite. */
static int acts_flavour(int variant, block_flavour kind)
{
    return kind == BLOCK_EXTREME ? variant % 3 : variant;
}

static void add_product(box *b, mo_op_product *o, mo_type type, int64_t rows, block_flavour kind)
{
    const int i = o->count++;
    o->matrix[i] = box_matrix(b, type, rows, o->in.cols, 0, kind);
    o->stride[i] = rows + (box_chance(b, 50) ? 0 : box_pick(b, 1, 9));
    o->y[i] = box_address(b, box_floats(b, o->tokens * o->stride[i]));
}

static void build_product(box *b, mo_op *op, int variant)
{
    static const int rows[] = {1, 7, 32, 33, 64, 5, 130, 40};
    static const int blocks[] = {1, 2, 3, 5, 8, 11};
    mo_op_product *o = &op->product;
    const mo_type type = block_types[variant % BLOCK_TYPES];
    const mo_format *f = mo_format_of((uint32_t)type);
    const block_flavour kind = (block_flavour)(variant / BLOCK_TYPES % BLOCK_FLAVOURS);
    const int round = variant / BLOCK_TYPES;
    int64_t cols = f->block_values * (int64_t)blocks[round % (b->small ? 2 : 6)];
    if (f->kind == MO_KIND_FLOAT) {
        cols = box_pick(b, 1, b->small ? 100 : 300);
    } else if (f->block_values < 256) {
        cols *= box_pick(b, 1, 3);
    }
    op->kind = MO_OP_PRODUCT;
    o->tokens = tokens_of(b, variant + round);
    o->in = box_acts_filled(b, o->tokens, cols, acts_flavour(round, kind));
    add_product(b, o, type, rows[(variant + round) % (b->small ? 4 : 8)], kind);
    /* Others beside it, of any type that such rows allow. */
    for (int i = (int)box_pick(b, 0, b->small ? 1 : MO_OP_MATRICES - 1); i > 0; i--) {
        const mo_type other = block_types[box_pick(b, 0, BLOCK_TYPES - 1)];
        const mo_format *g = mo_format_of((uint32_t)other);
        if (cols % g->block_values == 0 && (g->kind == MO_KIND_FLOAT || cols % 32 == 0)) {
            add_product(b, o, other, rows[box_pick(b, 0, 7)], kind);
        }
    }
}

static void reference_product(box *b, const mo_op *op)
{
    const mo_op_product *o = &op->product;
    const mo_acts in = box_acts_at(b, &o->in);
    for (int i = 0; i < o->count; i++) {
        for (int32_t t = 0; t < o->tokens; t++) {
            box_multiply(b, &o->matrix[i], o->matrix[i].data, 0, &in, t,
                         (float *)box_at(b, o->y[i]) + t * o->stride[i]);
        }
    }
}

/* ---- Grouped ---------------------------------------------------------------------------------- */

static int64_t grouped_cols(box *b, mo_type type)
{
    const mo_format *f = mo_format_of((uint32_t)type);
    const int each = f->block_values > 64 ? f->block_values : 64;
    return each * (each == 256 ? box_pick(b, 1, b->small ? 1 : 3) : box_pick(b, 1, b->small ? 2 : 9));
}

static void build_grouped(box *b, mo_op *op, int variant)
{
    static const int sizes[][6] = {{1, 0, 3, 0, 8, 2},  {33, 1, 0, 17, 5, 0}, {0, 0, 0, 0, 1, 0},
                                   {70, 4, 9, 0, 1, 1}, {0, 16, 16, 8, 0, 0}, {129, 0, 64, 2, 0, 3}};
    static const int few[][6] = {{1, 0, 3, 0, 2, 2}, {9, 1, 0, 4, 0, 0}, {0, 0, 0, 0, 1, 0}};
    static const int rows[] = {1, 33, 64, 40, 130, 7, 200};
    mo_op_grouped *o = &op->grouped;
    const mo_type type = block_types[variant % BLOCK_TYPES];
    const int round = variant / BLOCK_TYPES;
    const block_flavour kind = (block_flavour)((variant + round) % BLOCK_FLAVOURS);
    const int *size = b->small ? few[variant % 3] : sizes[(variant + round) % 6];
    const int64_t cols = grouped_cols(b, type);
    op->kind = MO_OP_GROUPED;
    o->count = 6;
    o->matrix = box_matrix(b, type, rows[(variant + round) % (b->small ? 4 : 7)], cols, 9, kind);
    mo_dgroup *groups = box_alloc(b, (int64_t)sizeof *groups * o->count);
    o->groups = box_address(b, groups);
    for (int g = 0; g < o->count; g++) {
        uint8_t *data = box_alloc(b, box_matrix_bytes(&o->matrix));
        blocks_fill(type, data, box_matrix_bytes(&o->matrix), &b->random, kind);
        groups[g] = (mo_dgroup){.data = size[g] ? box_address(b, data) : 0,
                                .expert = (int32_t)box_pick(b, 0, 8),
                                .first = o->rows,
                                .count = size[g]};
        o->rows += size[g] + (round % 3 == 2 ? g : 0); /* rows that no group names stay */
        o->most = size[g] > o->most ? size[g] : o->most;
    }
    const int64_t tokens = round % 2 ? o->rows : box_pick(b, 1, o->rows);
    if (round % 2 == 0) {
        int32_t *pick = box_alloc(b, 4 * (int64_t)o->rows);
        for (int i = 0; i < o->rows; i++) {
            pick[i] = -1 - i; /* what no group names is no row */
        }
        for (int g = 0; g < o->count; g++) {
            for (int i = 0; i < size[g]; i++) {
                pick[groups[g].first + i] = (int32_t)(i ? box_pick(b, 0, tokens - 1) : tokens - 1);
            }
        }
        o->pick = box_address(b, pick);
    }
    o->in = box_acts_filled(b, tokens, cols, acts_flavour(round, kind));
    o->stride = o->matrix.rows + (round % 3 ? 0 : 5);
    o->y = box_address(b, box_floats(b, o->rows * o->stride));
}

static void reference_grouped(box *b, const mo_op *op)
{
    const mo_op_grouped *o = &op->grouped;
    const mo_acts in = box_acts_at(b, &o->in);
    const mo_dgroup *groups = box_at(b, o->groups);
    const int32_t *pick = box_at(b, o->pick);
    for (int g = 0; g < o->count; g++) {
        for (int32_t i = groups[g].first; i < groups[g].first + groups[g].count; i++) {
            box_multiply(b, &o->matrix, groups[g].data, groups[g].expert, &in, pick ? pick[i] : i,
                         (float *)box_at(b, o->y) + i * o->stride);
        }
    }
}

/* ---- bfloat16 --------------------------------------------------------------------------------- */

static void build_round(box *b, mo_op *op, int variant)
{
    static const int counts[] = {32, 1, 4096, 100, 65, 20000};
    op->kind = MO_OP_ROUND;
    op->round.count = counts[variant % (b->small ? 5 : 6)];
    op->round.from = box_address(b, box_filled(b, op->round.count, variant % VALUE_FLAVOURS));
    op->round.to = box_address(b, box_alloc(b, 2 * op->round.count));
}

static void reference_round(box *b, const mo_op *op)
{
    const float *from = box_at(b, op->round.from);
    uint16_t *to = box_at(b, op->round.to);
    for (int64_t i = 0; i < op->round.count; i++) {
        to[i] = mo_f32_to_bf16(from[i]);
    }
}

/* One matrix, or one for each group, some of which have no rows. */
static void build_to_bf16(box *b, mo_op *op, int variant)
{
    static const int rows[] = {1, 33, 64, 5, 130};
    mo_op_to_bf16 *o = &op->to_bf16;
    const mo_type type = block_types[variant % BLOCK_TYPES];
    const int round = variant / BLOCK_TYPES;
    const block_flavour kind = (block_flavour)((variant + round) % BLOCK_FLAVOURS);
    const bool grouped = round % 2 == 1;
    op->kind = MO_OP_TO_BF16;
    o->matrix = box_matrix(b, type, rows[(variant + round) % (b->small ? 2 : 5)], grouped_cols(b, type),
                           grouped ? 9 : 0, kind);
    o->count = grouped ? 4 : 1;
    if (grouped) {
        mo_dgroup *groups = box_alloc(b, (int64_t)sizeof *groups * o->count);
        o->groups = box_address(b, groups);
        for (int g = 0; g < o->count; g++) {
            uint8_t *data = box_alloc(b, box_matrix_bytes(&o->matrix));
            blocks_fill(type, data, box_matrix_bytes(&o->matrix), &b->random, kind);
            groups[g] = (mo_dgroup){.data = g == 1 ? 0 : box_address(b, data), .count = g == 1 ? 0 : 1 + g};
        }
    }
    o->to = box_address(b, box_alloc(b, (int64_t)o->count * o->matrix.rows * o->matrix.cols * 2));
}

static void reference_to_bf16(box *b, const mo_op *op)
{
    const mo_op_to_bf16 *o = &op->to_bf16;
    const mo_dgroup *groups = box_at(b, o->groups);
    const int64_t cols = o->matrix.cols;
    float *values = malloc((size_t)cols * sizeof *values);
    for (int g = 0; g < o->count; g++) {
        const uint8_t *data = box_at(b, groups ? groups[g].data : o->matrix.data);
        uint16_t *to = (uint16_t *)box_at(b, o->to) + g * o->matrix.rows * cols;
        for (int64_t r = 0; data && r < o->matrix.rows; r++) {
            const int64_t bytes = mo_format_row_bytes(mo_format_of((uint32_t)o->matrix.type), cols);
            mo_row_dequantize((mo_type)o->matrix.type, data + r * bytes, cols, values);
            for (int64_t i = 0; i < cols; i++) {
                to[r * cols + i] = mo_f32_to_bf16(values[i]);
            }
        }
    }
    free(values);
}

/* Small integers, of which every sum is exact: whatever its order, it has the same bits. */
static uint16_t *bf16_integers(box *b, int64_t count)
{
    uint16_t *out = box_alloc(b, 2 * count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = mo_f32_to_bf16((float)box_pick(b, -9, 9));
    }
    return out;
}

static void build_bf16(box *b, mo_op *op, int variant)
{
    static const int sizes[][5] = {{1, 0, 70, 3, 0}, {129, 5, 0, 17, 64}, {0, 0, 0, 0, 1}, {300, 1, 0, 0, 8}};
    static const int few[][5] = {{1, 0, 9, 3, 0}, {2, 0, 0, 0, 1}}; /* alone it is the first */
    static const int rows[] = {1, 130, 64, 40, 300};
    mo_op_bf16 *o = &op->bf16;
    const int *size = b->small ? few[variant % 2] : sizes[variant % 4];
    const bool grouped = variant % 3 != 0;
    const int64_t cols = 32 * box_pick(b, 1, b->small ? 5 : 20);
    op->kind = MO_OP_BF16;
    o->count = grouped ? 5 : 1;
    o->matrix = box_matrix(b, MO_Q8_0, rows[variant % (b->small ? 2 : 5)], cols, 9, BLOCK_ORDINARY);
    o->matrix.scale = variant % 2 ? o->matrix.scale : 0;
    o->matrix.bias = variant % 4 < 2 ? o->matrix.bias : 0;
    mo_dgroup *groups = grouped ? box_alloc(b, (int64_t)sizeof *groups * o->count) : NULL;
    o->groups = box_address(b, groups);
    for (int g = 0; g < o->count; g++) {
        if (grouped) {
            groups[g] = (mo_dgroup){
                .expert = (int32_t)box_pick(b, 0, 8), .first = o->rows, .count = (int32_t)size[g]};
        }
        o->most = size[g] > o->most ? size[g] : o->most;
        o->rows += size[g] + (grouped ? g % 2 : 0); /* rows that no group names stay */
    }
    const int64_t tokens = variant % 5 < 2 ? box_pick(b, 1, o->rows + 1) : o->rows;
    if (variant % 5 < 2) {
        int32_t *pick = box_alloc(b, 4 * (int64_t)o->rows);
        for (int i = 0; i < o->rows; i++) {
            pick[i] = (int32_t)box_pick(b, 0, tokens - 1);
        }
        o->pick = box_address(b, pick);
    }
    o->in = box_address(b, bf16_integers(b, tokens * cols));
    o->bf16 = box_address(b, bf16_integers(b, o->count * o->matrix.rows * cols));
    o->stride = o->matrix.rows + (variant % 2 ? 3 : 0);
    o->y = box_address(b, box_floats(b, o->rows * o->stride));
}

static void reference_bf16(box *b, const mo_op *op)
{
    const mo_op_bf16 *o = &op->bf16;
    const mo_dgroup *groups = box_at(b, o->groups);
    const int32_t *pick = box_at(b, o->pick);
    const float *scale = box_at(b, o->matrix.scale), *bias = box_at(b, o->matrix.bias);
    const int64_t rows = o->matrix.rows, cols = o->matrix.cols;
    for (int g = 0; g < o->count; g++) {
        const mo_dgroup group = groups ? groups[g] : (mo_dgroup){.count = o->rows};
        for (int32_t i = group.first; i < group.first + group.count; i++) {
            const uint16_t *x = (const uint16_t *)box_at(b, o->in) + (pick ? pick[i] : i) * cols;
            for (int64_t r = 0; r < rows; r++) {
                const uint16_t *w = (const uint16_t *)box_at(b, o->bf16) + (g * rows + r) * cols;
                float y = 0.0f;
                for (int64_t k = 0; k < cols; k++) {
                    y += mo_bf16_to_f32(w[k]) * mo_bf16_to_f32(x[k]);
                }
                y = scale ? y * scale[group.expert] : y;
                y = bias ? y + bias[group.expert * rows + r] : y;
                ((float *)box_at(b, o->y))[i * o->stride + r] = y;
            }
        }
    }
}

/* ---- Activate --------------------------------------------------------------------------------- */

static void activate_row(int activation, float limit, float *y, const float *g, const float *u, int64_t n)
{
    if (activation == MO_SWIGLU) {
        K.swiglu(y, g, u, n);
    } else if (activation == MO_GEGLU) {
        K.geglu(y, g, u, n);
    } else if (activation == MO_SWIGLU_LIMIT) {
        K.swiglu_limit(y, g, u, n, limit);
    } else if (activation == MO_RELU2) {
        for (int64_t i = 0; i < n; i++) {
            const float positive = 0.0f > u[i] ? 0.0f : u[i];
            y[i] = positive * positive;
        }
    } else if (activation == MO_SWIGLU_CLAMP) {
        for (int64_t i = 0; i < n; i++) {
            const float gate = limit < g[i] ? limit : g[i];
            float up = limit < u[i] ? limit : u[i];
            up = -limit > up ? -limit : up;
            K.swiglu(y + i, &gate, &up, 1);
        }
    } else {
        K.swiglu_oss(y, g, u, n, MO_OSS_ALPHA, MO_OSS_LIMIT);
    }
    all_finite(y, n);
}

static void build_activate(box *b, mo_op *op, int variant)
{
    static const int widths[] = {32, 7, 96, 768, 100, 1, 288};
    mo_op_activate *o = &op->activate;
    op->kind = MO_OP_ACTIVATE;
    o->rows = tokens_of(b, variant);
    o->n = widths[variant % 7];
    o->activation = variant % 6;
    o->limit = variant % 8 < 4 ? 0.25f : 7.0f;
    o->gate = box_address(b, box_filled(b, (int64_t)o->rows * o->n, variant));
    o->up = box_address(b, box_filled(b, (int64_t)o->rows * o->n, variant / 3));
    o->hidden = box_acts(b, o->rows, o->n);
}

static void reference_activate(box *b, const mo_op *op)
{
    const mo_op_activate *o = &op->activate;
    const mo_acts hidden = box_acts_at(b, &o->hidden);
    const float *gate = box_at(b, o->gate), *up = box_at(b, o->up);
    for (int64_t i = 0; i < o->rows; i++) {
        activate_row(o->activation, o->limit, hidden.x + i * o->n, gate + i * o->n, up + i * o->n, o->n);
        box_quantize(&hidden, i);
    }
}

/* ---- Choose ----------------------------------------------------------------------------------- */

static void build_choose(box *b, mo_op *op, int variant)
{
    static const struct {
        int experts, used, groups, groups_used;
    } shapes[] = {{8, 2, 0, 0},    {32, 4, 1, 1},    {60, 4, 0, 0},   {128, 8, 8, 4},
                  {256, 8, 8, 4},  {512, 10, 0, 0},  {3, 3, 3, 2},    {1, 1, 0, 0},
                  {64, 6, 64, 40}, {1024, 64, 0, 0}, {160, 6, 16, 3}, {33, 32, 0, 0}};
    const int s = variant % (b->small ? 7 : 12);
    mo_op_choose *o = &op->choose;
    op->kind = MO_OP_CHOOSE;
    o->tokens = tokens_of(b, variant);
    o->experts = shapes[s].experts;
    o->used = shapes[s].used;
    o->groups = shapes[s].groups;
    o->groups_used = shapes[s].groups_used;
    o->gating = 1 + variant % 3;
    o->normalize = variant / 3 % 2;
    o->scale = variant % 4 ? 1.0f : 2.5f;
    const int64_t all = (int64_t)o->tokens * o->experts, picks = (int64_t)o->tokens * o->used;
    float *scores = box_filled(b, all, variant / 2); /* flavour 4 and 2 have many ties */
    o->scores = box_address(b, scores);
    box_ignore(b, scores, 4 * all);
    o->select_bias = maybe(b, o->experts, 40, variant % 3);
    o->ids = box_address(b, box_alloc(b, 4 * picks));
    o->weights = box_address(b, box_floats(b, picks));
    if (variant % 4 != 3) {
        mo_daddr *table = box_alloc(b, 8 * (int64_t)o->experts);
        for (int e = 0; e < o->experts; e++) {
            table[e] = variant % 4 == 1 || box_chance(b, 60) ? b->base + MO_OP_ALIGN * (mo_daddr)(e + 1) : 0;
        }
        o->table = box_address(b, table);
        const int64_t bytes = (int64_t)sizeof(mo_dwork) + picks * (int64_t)sizeof(mo_dwork_item);
        o->work = box_address(b, memset(box_alloc(b, bytes), 0, (size_t)bytes));
    }
}

/* The best one that is not taken yet: another way than mo_topk() goes. */
static int32_t best_left(const float *select, const bool *taken, int n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (!taken[i] && (best < 0 || select[i] > select[best])) {
            best = i;
        }
    }
    return best;
}

static void only_best_groups(const mo_op_choose *o, float *select)
{
    const int size = o->experts / o->groups;
    float score[MO_OP_GROUPS];
    bool taken[MO_OP_EXPERTS] = {false}, kept[MO_OP_GROUPS] = {false};
    for (int g = 0; g < o->groups; g++) {
        bool used[MO_OP_EXPERTS] = {false};
        const int32_t one = best_left(select + g * size, used, size);
        used[one] = true;
        const int32_t two = best_left(select + g * size, used, size);
        score[g] = select[g * size + one] + (two < 0 ? 0.0f : select[g * size + two]);
    }
    for (int i = 0; i < o->groups_used; i++) {
        const int32_t g = best_left(score, taken, o->groups);
        taken[g] = kept[g] = true;
    }
    for (int e = 0; e < o->experts; e++) {
        select[e] = kept[e / size] ? select[e] : -INFINITY;
    }
}

static void choose_token(const box *b, const mo_op_choose *o, int64_t t)
{
    float *probs = (float *)box_at(b, o->scores) + t * o->experts;
    int32_t *ids = (int32_t *)box_at(b, o->ids) + t * o->used;
    float *weights = (float *)box_at(b, o->weights) + t * o->used;
    float select[MO_OP_EXPERTS], sum = 0.0f;
    bool taken[MO_OP_EXPERTS] = {false};
    if (o->gating == MO_GATING_SOFTMAX) {
        K.softmax(probs, o->experts);
    } else if (o->gating == MO_GATING_SIGMOID) {
        K.sigmoid(probs, probs, o->experts);
    }
    memcpy(select, probs, sizeof(float) * (size_t)o->experts);
    if (o->select_bias) {
        K.add(select, box_at(b, o->select_bias), o->experts);
    }
    if (o->groups > 1) {
        only_best_groups(o, select);
    }
    for (int r = 0; r < o->used; r++) {
        ids[r] = best_left(select, taken, o->experts);
        taken[ids[r]] = true;
        weights[r] = probs[ids[r]];
    }
    if (o->gating == MO_GATING_SOFTMAX_SELECTED) {
        K.softmax(weights, o->used);
    }
    for (int r = 0; r < o->used; r++) {
        sum = sum + weights[r];
    }
    for (int r = 0; r < o->used; r++) {
        weights[r] = o->normalize ? weights[r] / (sum > 0x1p-14f ? sum : 0x1p-14f) : weights[r];
        weights[r] = o->scale != 1.0f ? weights[r] * o->scale : weights[r];
    }
    all_finite(weights, o->used);
}

static void reference_choose(box *b, const mo_op *op)
{
    const mo_op_choose *o = &op->choose;
    mo_dwork *work = box_at(b, o->work);
    const mo_daddr *table = box_at(b, o->table);
    const int32_t *ids = box_at(b, o->ids);
    for (int64_t t = 0; t < o->tokens; t++) {
        choose_token(b, o, t);
    }
    if (!table) {
        return;
    }
    mo_dwork_item *items = (mo_dwork_item *)(void *)(work + 1);
    const int32_t rows = o->tokens * o->used;
    const bool sorted = o->tokens > 1 && rows <= MO_OP_SORTED; /* once for every expert, or once for all */
    work->count = work->missing = 0;
    for (int32_t expert = 0; expert < (sorted ? o->experts : 1); expert++) {
        for (int32_t row = 0; row < rows; row++) {
            if (sorted && ids[row] != expert) {
                continue;
            }
            if (table[ids[row]]) {
                mo_dwork_item *item = &items[work->count++];
                item->base = table[ids[row]];
                item->expert = ids[row];
                item->token = row / o->used;
                item->row = row;
            } else {
                work->missing++;
            }
        }
    }
    /* What follows the list is nobody's business. */
    box_ignore(b, items + work->count, (int64_t)sizeof *items * ((int64_t)o->tokens * o->used - work->count));
}

/* ---- Arrange ---------------------------------------------------------------------------------- */

static void build_arrange(box *b, mo_op *op, int variant)
{
    static const struct {
        int experts, used;
    } shapes[] = {{8, 2}, {32, 4}, {1, 1}, {60, 4}, {128, 8}, {33, 32}, {512, 10}, {1024, 6}};
    mo_op_arrange *o = &op->arrange;
    op->kind = MO_OP_ARRANGE;
    o->tokens = tokens_of(b, variant) * (variant % 5 == 4 && !b->small ? 37 : 1);
    o->experts = shapes[variant % 8].experts;
    o->used = shapes[variant % 8].used;
    o->limit = o->experts + variant % 3;
    o->up_at = 4096 * (variant % 4);
    o->down_at = 8192 + variant;
    const int64_t rows = (int64_t)o->tokens * o->used;
    int32_t *ids = box_alloc(b, 4 * rows);
    for (int64_t i = 0; i < rows; i++) { /* some variants like a few experts best */
        const int all = variant % 3 && o->experts > 5 ? 5 : o->experts;
        ids[i] = 0;
        for (int bit = 0; bit < 10; bit++) {
            ids[i] += box_chance(b, 50) << bit;
        }
        ids[i] %= all;
    }
    mo_daddr *table = box_alloc(b, 8 * (int64_t)o->experts);
    for (int e = 0; e < o->experts; e++) {
        table[e] = b->base + MO_OP_ALIGN * (mo_daddr)(e + 1);
    }
    const int64_t bytes = 3 * o->limit * (int64_t)sizeof(mo_dgroup);
    o->ids = box_address(b, ids);
    o->table = box_address(b, table);
    o->groups = box_address(b, memset(box_alloc(b, bytes), 0, (size_t)bytes));
    o->picks = box_address(b, box_alloc(b, 4 * rows));
    o->row_of = box_address(b, box_alloc(b, 4 * rows));
    o->counts = box_address(b, memset(box_alloc(b, 4 * (int64_t)o->experts), 0, 4 * (size_t)o->experts));
}

/* Expert by expert, looking at all rows: another way than counting first. */
static void reference_arrange(box *b, const mo_op *op)
{
    const mo_op_arrange *o = &op->arrange;
    const int32_t *ids = box_at(b, o->ids);
    const mo_daddr *table = box_at(b, o->table);
    int32_t *picks = box_at(b, o->picks), *row_of = box_at(b, o->row_of), *counts = box_at(b, o->counts);
    mo_dgroup *groups = box_at(b, o->groups);
    const int32_t rows = o->tokens * o->used;
    int32_t next = 0;
    for (int e = 0; rows && e < o->experts; e++) {
        const int32_t first = next;
        for (int32_t i = 0; i < rows; i++) {
            if (ids[i] == e) {
                picks[next] = i / o->used;
                row_of[i] = next++;
            }
        }
        counts[e] = next - first;
        for (int part = 0; part < 3; part++) {
            groups[part * o->limit + e] = (mo_dgroup){.data = table[e] + (mo_daddr)(part == 0   ? 0
                                                                                    : part == 1 ? o->up_at
                                                                                                : o->down_at),
                                                      .expert = e,
                                                      .first = first,
                                                      .count = next - first};
        }
    }
}

/* ---- Experts ---------------------------------------------------------------------------------- */

static int64_t aligned(int64_t bytes)
{
    return (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

/* A type whose rows may have so many values, for the second and third matrix of an expert. */
static mo_type type_for(box *b, int64_t cols, mo_type first)
{
    const mo_type other = block_types[box_pick(b, 0, BLOCK_TYPES - 1)];
    const mo_format *f = mo_format_of((uint32_t)other);
    const mo_format *g = mo_format_of((uint32_t)first);
    return box_chance(b, 40) && cols % f->block_values == 0 ? other
           : cols % g->block_values == 0                    ? first
                                                            : MO_Q8_0;
}

static void build_experts(box *b, mo_op *op, int variant, bool down)
{
    static const int used_of[] = {1, 2, 4, 8};
    enum { EXPERTS = 4 };
    mo_op_experts *o = &op->experts;
    const mo_type type = block_types[variant % BLOCK_TYPES];
    const int round = variant / BLOCK_TYPES;
    const block_flavour kind = (block_flavour)(round % BLOCK_FLAVOURS);
    const int tokens = b->small ? 1 + round % 2 : 1 + (variant + round) % 5;
    const int used = used_of[(variant + round) % 4];
    const int64_t rows = (int64_t)tokens * used;
    const int block = mo_format_of((uint32_t)type)->block_values;
    const bool super = block == 256;
    const int64_t n = super ? 256 * box_pick(b, 1, b->small ? 1 : 2)
                            : (block == 128 ? 128 : 64) * box_pick(b, 1, b->small ? 2 : 4);
    const int64_t width =
        down && super ? 256 : (down && block > 32 ? block : 32) * box_pick(b, 1, b->small ? 2 : 5);
    op->kind = down ? MO_OP_EXPERTS_DOWN : MO_OP_EXPERTS_IN;
    o->activation = kind == BLOCK_EXTREME ? MO_SWIGLU_OSS : variant % 6; /* one with limits */
    o->limit = variant % 8 < 4 ? 0.25f : 7.0f;
    o->most = (int32_t)rows;
    o->gate = box_matrix(b, type, width, n, EXPERTS, kind);
    o->up = box_matrix(b, type_for(b, n, type), width, n, EXPERTS, kind);
    o->down = box_matrix(b, down ? type : type_for(b, width, type), b->small ? 33 : n, width, EXPERTS, kind);
    o->up_at = aligned(box_matrix_bytes(&o->gate));
    o->down_at = o->up_at + aligned(box_matrix_bytes(&o->up));
    mo_daddr expert_data[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        uint8_t *data = box_alloc(b, o->down_at + box_matrix_bytes(&o->down));
        blocks_fill((mo_type)o->gate.type, data, box_matrix_bytes(&o->gate), &b->random, kind);
        blocks_fill((mo_type)o->up.type, data + o->up_at, box_matrix_bytes(&o->up), &b->random, kind);
        blocks_fill((mo_type)o->down.type, data + o->down_at, box_matrix_bytes(&o->down), &b->random, kind);
        expert_data[e] = box_address(b, data);
    }
    mo_dwork *work = box_alloc(b, (int64_t)sizeof *work + rows * (int64_t)sizeof(mo_dwork_item));
    mo_dwork_item *items = (mo_dwork_item *)(void *)(work + 1);
    *work = (mo_dwork){0};
    memset(items, 0, sizeof *items * (size_t)rows);
    for (int32_t row = 0; row < rows; row++) {
        if (box_chance(b, 80)) {
            const int32_t e = (int32_t)box_pick(b, 0, EXPERTS - 1);
            items[work->count++] =
                (mo_dwork_item){.base = expert_data[e], .expert = e, .token = row / used, .row = row};
        }
    }
    o->work = box_address(b, work);
    const int flavour = acts_flavour(round, kind);
    o->in = box_acts_filled(b, tokens, n, kind == BLOCK_EXTREME ? 0 : flavour);
    o->hidden = down ? box_acts_filled(b, rows, width, flavour) : box_acts(b, rows, width);
    o->y = box_address(b, box_floats(b, rows * o->down.rows));
}

static void build_experts_in(box *b, mo_op *op, int variant)
{
    build_experts(b, op, variant, false);
}

static void build_experts_down(box *b, mo_op *op, int variant)
{
    build_experts(b, op, variant, true);
}

static void reference_experts(box *b, const mo_op *op)
{
    const mo_op_experts *o = &op->experts;
    const mo_dwork *work = box_at(b, o->work);
    const mo_dwork_item *items = (const mo_dwork_item *)(const void *)(work + 1);
    const mo_acts in = box_acts_at(b, &o->in), hidden = box_acts_at(b, &o->hidden);
    const int64_t n = o->gate.rows;
    float *gate = scratch(n), *up = scratch(n);
    for (int i = 0; i < work->count; i++) {
        const mo_dwork_item *item = &items[i];
        if (op->kind == MO_OP_EXPERTS_IN) {
            box_multiply(b, &o->gate, item->base, item->expert, &in, item->token, gate);
            box_multiply(b, &o->up, item->base + (mo_daddr)o->up_at, item->expert, &in, item->token, up);
            activate_row(o->activation, o->limit, hidden.x + item->row * n, gate, up, n);
            box_quantize(&hidden, item->row);
        } else {
            box_multiply(b, &o->down, item->base + (mo_daddr)o->down_at, item->expert, &hidden, item->row,
                         (float *)box_at(b, o->y) + (int64_t)item->row * o->down.rows);
        }
    }
    free(gate);
    free(up);
}

/* ---- Logits ----------------------------------------------------------------------------------- */

static void build_logits(box *b, mo_op *op, int variant)
{
    static const int counts[] = {1, 1000, 257, 64, 5001, 31};
    mo_op_logits *o = &op->logits;
    op->kind = MO_OP_LOGITS;
    o->count = counts[variant % 6];
    o->cap = variant % 2 ? 30.0f : 0.0f;
    if (variant % 3) {
        o->cols = (int32_t)o->count;
        o->count *= variant % 3;
    }
    float *x = box_filled(b, o->count, variant);
    if (variant % 3) { /* of several that are the best, or 0, the first */
        for (int64_t i = o->cols / 3; i < o->cols && variant % 4 < 2; i += 7) {
            x[i] = variant % 4 ? 40.0f : i % 2 ? -0.0f : 0.0f;
        }
        uint64_t *best = box_alloc(b, 8 * (o->count / o->cols));
        memset(best, 0, (size_t)(8 * (o->count / o->cols)));
        o->best = box_address(b, best);
    }
    x[o->count - 1] = variant % 8 == 4 ? INFINITY : x[o->count - 1];
    o->x = box_address(b, x);
    uint32_t *bad = box_alloc(b, 4);
    *bad = variant % 5 == 0 ? 9 : 0;
    o->bad = box_address(b, bad);
}

static void reference_logits(box *b, const mo_op *op)
{
    const mo_op_logits *o = &op->logits;
    float *x = box_at(b, o->x);
    if (o->cap > 0.0f) {
        K.softcap(x, o->count, o->cap);
    }
    for (int64_t i = 0; i < o->count; i++) {
        if (!isfinite(x[i])) {
            *(uint32_t *)box_at(b, o->bad) = 1;
        }
    }
    for (int64_t row = 0; o->best && row < o->count / o->cols; row++) {
        const float *of = x + row * o->cols;
        int64_t top = 0;
        for (int64_t i = 1; i < o->cols; i++) {
            top = of[i] > of[top] ? i : top;
        }
        ((uint64_t *)box_at(b, o->best))[row] = mo_rank_of(of[top], (uint32_t)top);
    }
}

/* ---- Restore ---------------------------------------------------------------------------------- */

static const uint8_t *restore_plain; /* the experts as the file has them, beside the image's others */

/* Part p of an expert, its place not yet known: its bytes. Some groups of rows, and mostly rows that fill none; short rows, and such as no tile holds. */
static int64_t restore_part(box *b, mo_op_restore *o, int p, int variant)
{
    static const int groups[] = {8, 16, 8, 16, 0, 32, 64};
    const mo_type type = block_types[p == 0 ? variant % BLOCK_TYPES : box_pick(b, 0, BLOCK_TYPES - 1)];
    const mo_format *f = mo_format_of((uint32_t)type);
    const int group =
        groups[variant / BLOCK_TYPES % 2 + (p == 0 && variant < 4 * BLOCK_TYPES ? 0 : box_pick(b, 0, 5))];
    const int64_t most = 40000 / (f->block_bytes * (group ? group : 8));
    o->type[p] = type;
    o->group[p] = group;
    o->rows[p] = (int32_t)((group ? group : 8) * box_pick(b, 0, 3) + box_pick(b, 0, 9));
    o->rows[p] += o->rows[p] == 0;
    o->cols[p] = (int32_t)(f->block_values * box_pick(b, 1, variant % 3 ? most : 5));
    return (o->rows[p] * mo_format_row_bytes(f, o->cols[p]) + MO_OP_ALIGN) / MO_OP_ALIGN * MO_OP_ALIGN;
}

static void build_restore(box *b, mo_op *op, int variant)
{
    static const int shifts[] = {0, 0, 8, 2, 0, 1};
    mo_op_restore *o = &op->restore;
    op->kind = MO_OP_RESTORE;
    o->parts = 1 + variant % 3;
    o->count = 1 + variant / 2 % 3;
    const bool by_part = variant % 5 < 2; /* otherwise expert by expert */
    int64_t data = 0;
    for (int p = 0; p < o->parts; p++) {
        o->at[p] = by_part ? o->count * data : data;
        o->stride[p] = restore_part(b, o, p, variant);
        data += o->stride[p];
    }
    for (int p = 0; p < o->parts && !by_part; p++) {
        o->stride[p] = data;
    }
    uint8_t *from = box_alloc(b, o->count * data), *plain = box_alloc(b, o->count * data);
    uint8_t *to = (uint8_t *)box_alloc(b, o->count * data) + shifts[variant / 3 % 6];
    for (int i = 0; i < o->count * o->parts; i++) {
        const int p = i % o->parts;
        const int64_t at = i / o->parts * o->stride[p] + o->at[p];
        const mo_weights w = {
            .data = plain + at, .type = (mo_type)o->type[p], .rows = o->rows[p], .cols = o->cols[p]};
        const int64_t bytes = w.rows * mo_format_row_bytes(mo_format_of(w.type), w.cols);
        blocks_fill(w.type, plain + at, bytes, &b->random, BLOCK_ORDINARY);
        if (o->group[p]) {
            mo_weights_interleave(&w, o->group[p], from + at);
        } else {
            memcpy(from + at, plain + at, (size_t)bytes);
        }
    }
    o->from = box_address(b, from);
    o->to = box_address(b, to);
    restore_plain = plain;
}

static void reference_restore(box *b, const mo_op *op)
{
    const mo_op_restore *o = &op->restore;
    uint8_t *to = box_at(b, o->to);
    for (int i = 0; i < o->count * o->parts; i++) {
        const int p = i % o->parts;
        const int64_t at = i / o->parts * o->stride[p] + o->at[p];
        const mo_format *f = mo_format_of((uint32_t)o->type[p]);
        memcpy(to + at, restore_plain + at, (size_t)(o->rows[p] * mo_format_row_bytes(f, o->cols[p])));
    }
}

const device_case op_cases[] = {
    {"stream", 132, build_stream, reference_stream},
    {"product", 10 * BLOCK_TYPES, build_product, reference_product},
    {"grouped", 6 * BLOCK_TYPES, build_grouped, reference_grouped},
    {"round", 24, build_round, reference_round},
    {"widen", 4 * BLOCK_TYPES, build_to_bf16, reference_to_bf16},
    {"wide", 40, build_bf16, reference_bf16},
    {"activate", 60, build_activate, reference_activate},
    {"choose", 120, build_choose, reference_choose},
    {"arrange", 80, build_arrange, reference_arrange},
    {"experts in", 8 * BLOCK_TYPES, build_experts_in, reference_experts},
    {"experts down", 8 * BLOCK_TYPES, build_experts_down, reference_experts},
    {"logits", 24, build_logits, reference_logits},
    {"restore", 8 * BLOCK_TYPES, build_restore, reference_restore},
    {NULL, 0, NULL, NULL},
};
