/* The GPU's matrix-matrix kernels, emulated, against the definition, bit for bit: every format, every shape of tile,
 * uneven groups, picked rows, tails in every direction, scales and biases, hostile values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blocks.h"
#include "cuda_emulation/emulated.h"
#include "device/cuda/launch.h"
#include "device/cuda/panel.h"
#include "device/cuda/strip.h"
#include "numeric/half.h"
#include "numeric/reference/reference.h"
#include "random.h"

static const mo_type types[] = {MO_WEIGHT_TYPES};
enum { TYPES = sizeof types / sizeof *types, FLOATS = 3, GROUPS_MAX = 8 };

typedef enum flavour { ORDINARY, TINY, EXTREME, FLAVOURS } flavour;

/* ---- Data ---- */

static void *take(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, MO_OP_ALIGN, bytes ? bytes : 1), 0);
    return p;
}

static uint16_t random_half(uint64_t *seed, flavour kind)
{
    const uint64_t r = random_next(seed);
    switch (kind) {
    case TINY: return (uint16_t)(r & 0x83FF); /* zeros of both signs and subnormals */
    case EXTREME: return (uint16_t)(0x7BFF | (r & 0x8000));
    default: return (uint16_t)((r & 0x83FF) | (10 + (r >> 20) % 8) << 10);
    }
}

/* Random bytes, with sane numbers where the format has floats. */
static void fill_block(mo_type type, uint8_t *p, uint64_t *seed, flavour kind)
{
    static const int halves[MO_TYPE_LIMIT][2] = {
        [MO_Q4_0] = {0, 0},    [MO_Q4_1] = {0, 2},     [MO_Q5_0] = {0, 0},     [MO_Q5_1] = {0, 2},
        [MO_Q8_0] = {0, 0},    [MO_Q2_K] = {80, 82},   [MO_Q3_K] = {108, 108}, [MO_Q4_K] = {0, 2},
        [MO_Q5_K] = {0, 2},    [MO_Q6_K] = {208, 208}, [MO_IQ4_NL] = {0, 0},   [MO_IQ4_XS] = {0, 0},
        [MO_TQ1_0] = {52, 52}, [MO_TQ2_0] = {64, 64},
    };
    const mo_format *f = mo_format_of(type);
    if (f->kind == MO_KIND_FLOAT) {
        const float value = random_normal(seed);
        const uint32_t bits = mo_bits_of(value);
        const uint16_t half = type == MO_F16 ? mo_f32_to_f16(value) : (uint16_t)(bits >> 16);
        memcpy(p, type == MO_F32 ? (const void *)&bits : (const void *)&half, (size_t)f->block_bytes);
        return;
    }
    for (int i = 0; i < f->block_bytes; i++) {
        const uint8_t any = (uint8_t)random_next(seed);
        p[i] = kind == EXTREME ? (any & 1 ? 0xFF : (any & 2 ? 0x80 : 0x7F)) : any;
    }
    if (type == MO_MXFP4) {
        static const int base[FLAVOURS] = {[ORDINARY] = 120, [TINY] = 0, [EXTREME] = 197};
        p[0] = (uint8_t)(base[kind] + (int)random_below(seed, 4));
    } else if (type == MO_IQ1_M) {
        block_put_iq1_m(p, random_half(seed, kind));
    } else if (type != MO_NVFP4) {
        for (int i = 0; i < 2; i++) {
            const uint16_t half = random_half(seed, kind);
            memcpy(p + halves[type][i], &half, 2);
        }
    }
}

/* Exactly as many bytes as there are: a kernel that reads past them is caught by a sanitizer. */
static uint8_t *make_matrix(mo_type type, int64_t rows, int64_t cols, uint64_t *seed, flavour kind)
{
    const mo_format *f = mo_format_of(type);
    const int64_t bytes = rows * mo_format_row_bytes(f, cols);
    uint8_t *data = take((size_t)bytes);
    for (int64_t at = 0; at < bytes; at += f->block_bytes) {
        fill_block(type, data + at, seed, kind == EXTREME && random_below(seed, 3) == 0 ? ORDINARY : kind);
    }
    return data;
}

static mo_acts make_acts(int64_t rows, int64_t cols, uint64_t *seed, flavour kind)
{
    static const float magnitude[FLAVOURS] = {[ORDINARY] = 1.0f, [TINY] = 0x1p-99f, [EXTREME] = 0x1p20f};
    mo_acts acts = mo_acts_lay(take(mo_acts_bytes(rows, cols)), rows, cols);
    const int64_t blocks = cols / 32;
    for (int64_t i = 0; i < rows * cols; i++) {
        acts.x[i] = random_below(seed, 50) == 0 ? -0.0f : random_normal(seed) * magnitude[kind];
    }
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t b = 0; b < blocks && random_below(seed, 2); b++) { /* whole blocks of nothing */
            if (random_below(seed, 8) == 0) {
                memset(acts.x + t * cols + 32 * b, 0, 32 * sizeof(float));
            }
        }
        mo_reference_quantize(acts.x + t * cols, cols, acts.q + t * cols, acts.d + t * blocks,
                              acts.s + t * blocks, acts.sum + t * blocks, acts.half_sum + 2 * t * blocks);
    }
    return acts;
}

static mo_daddr address(const void *p)
{
    return (mo_daddr)(uintptr_t)p;
}

static mo_dacts device_acts(const mo_acts *a)
{
    return (mo_dacts){.x = address(a->x),
                      .q = address(a->q),
                      .d = address(a->d),
                      .s = address(a->s),
                      .sum = address(a->sum),
                      .half_sum = address(a->half_sum),
                      .cols = (int32_t)a->cols};
}

static float *make_floats(int64_t n, uint64_t *seed)
{
    float *x = take(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_normal(seed);
    }
    return x;
}

/* ---- Running and comparing ---- */

typedef int launcher(const mo_op *, int, int, mo_cuda_launch *, mo_error *);

/* Runs what the launcher wants and says which kernel came first. sms 1: wide tiles wherever there are many tokens. */
static const char *run(launcher *launch, const mo_op *op, int compute, int sms)
{
    mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
    mo_error err = {0};
    const int count = launch(op, compute, sms, launches, &err);
    if (count < 0) {
        fail_msg("%s", err.detail);
    }
    for (int i = 0; i < count; i++) {
        size_t bytes;
        mo_emulated_entry entry = mo_emulated_find(launches[i].kernel, &bytes);
        if (!entry) {
            fail_msg("there is no kernel %s", launches[i].kernel);
        }
        mo_emulated_launch(launches[i].kernel, entry, &op->stream, launches[i].grid, launches[i].block,
                           launches[i].shared);
    }
    return count > 0 ? launches[0].kernel : "nothing";
}

/* y of one matrix, and what the definition says: rows in order of y, -0 told from +0; the guard after each row. */
static void compare(const char *what, mo_type type, const float *y, const float *want, int64_t tokens,
                    int64_t rows, int64_t stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t r = 0; r < stride; r++) {
            const float expected = r < rows ? want[t * rows + r] : 12345.0f;
            if (mo_bits_of(y[t * stride + r]) != mo_bits_of(expected)) {
                fail_msg("%s %s: row %lld of %lld, token %lld of %lld: %a, not %a", what,
                         mo_format_of(type)->name, (long long)r, (long long)rows, (long long)t,
                         (long long)tokens, y[t * stride + r], expected);
            }
        }
    }
}

static float *guarded(int64_t n)
{
    float *y = take(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        y[i] = 12345.0f;
    }
    return y;
}

/* want = matrix times picked rows, then scale and bias. */
static void define(mo_type type, const uint8_t *data, int64_t rows, const mo_acts *acts, const int32_t *pick,
                   int64_t count, const float *scale, const float *bias, float *want)
{
    const mo_weights w = {.data = data, .type = type, .rows = rows, .cols = acts->cols};
    mo_reference_product(&w, 0, rows, acts, pick, count, want, rows, NULL);
    for (int64_t i = 0; i < count * rows; i++) {
        assert_true(isfinite(want[i])); /* the bits of a NaN differ between machines */
        want[i] = scale ? want[i] * *scale : want[i];
        want[i] = bias ? want[i] + bias[i % rows] : want[i];
    }
}

typedef struct grouping {
    int groups;
    int count[GROUPS_MAX];
    bool pick, dress; /* with scale and bias */
    flavour kind;
    int compute, sms;
} grouping;

/* Groups with matrices of their own, experts in another order than the groups, more rows of activations than used. */
static const char *check_grouped(mo_type type, int64_t rows, int64_t cols, const grouping *g)
{
    uint64_t seed = 77 * (uint64_t)type + (uint64_t)(rows + cols) + (uint64_t)g->kind;
    mo_dgroup *groups = take(sizeof *groups * GROUPS_MAX);
    uint8_t *matrix[GROUPS_MAX];
    int total = 0, most = 0;
    for (int i = 0; i < g->groups; i++) {
        matrix[i] = make_matrix(type, rows, cols, &seed, g->kind);
        groups[i] = (mo_dgroup){
            .data = address(matrix[i]), .expert = g->groups - 1 - i, .first = total, .count = g->count[i]};
        total += g->count[i];
        most = g->count[i] > most ? g->count[i] : most;
    }
    const int64_t sources = g->pick ? total / 2 + 3 : total;
    mo_acts acts = make_acts(sources, cols, &seed, g->kind);
    int32_t *pick = take(sizeof *pick * (size_t)total);
    for (int i = 0; i < total; i++) {
        pick[i] = g->pick ? (int32_t)random_below(&seed, sources) : i;
    }
    float *scale = make_floats(g->groups, &seed);
    float *bias = make_floats(g->groups * rows, &seed);
    float *want = take(sizeof(float) * (size_t)(total * rows));
    for (int i = 0; i < g->groups; i++) {
        const int e = groups[i].expert;
        define(type, matrix[i], rows, &acts, pick + groups[i].first, g->count[i], g->dress ? scale + e : NULL,
               g->dress ? bias + e * rows : NULL, want + groups[i].first * rows);
    }
    const int64_t stride = rows + 3;
    float *y = guarded(total * stride);
    const mo_op op = {.kind = MO_OP_GROUPED,
                      .grouped = {.in = device_acts(&acts),
                                  .pick = g->pick ? address(pick) : 0,
                                  .groups = address(groups),
                                  .count = g->groups,
                                  .rows = total,
                                  .most = most,
                                  .matrix = {.scale = g->dress ? address(scale) : 0,
                                             .bias = g->dress ? address(bias) : 0,
                                             .type = (int32_t)type,
                                             .rows = (int32_t)rows,
                                             .cols = (int32_t)cols},
                                  .y = address(y),
                                  .stride = stride}};
    const char *kernel = run(mo_cuda_launch_grouped, &op, g->compute, g->sms);
    compare(kernel, type, y, want, total, rows, stride);
    for (int i = 0; i < g->groups; i++) {
        free(matrix[i]);
    }
    free(groups);
    free(acts.x);
    free(pick);
    free(scale);
    free(bias);
    free(want);
    free(y);
    return kernel;
}

/* Not a multiple of the step where the format allows it. */
static int64_t odd_cols(mo_type type)
{
    const int block = mo_format_of(type)->block_values;
    return block == 256 ? 512 : block == 128 ? 384 : block == 64 ? 192 : block == 32 ? 416 : 171;
}

static bool has_panel(mo_type type)
{
    return type == MO_MXFP4 || type == MO_NVFP4 || type == MO_Q8_0 || type == MO_Q5_0 || type == MO_Q4_K ||
           type == MO_Q5_K || type == MO_Q6_K;
}

static void assert_shape(const char *kernel, mo_type type, const char *shape)
{
    if (mo_format_of(type)->kind == MO_KIND_QUANTIZED && !strstr(kernel, shape)) {
        fail_msg("%s: the test wants a %s tile, and %s ran", mo_format_of(type)->name, shape, kernel);
    }
}

/* ---- Tests ---- */

static void wide_tiles(void **state)
{
    (void)state;
    const grouping g = {
        .groups = 3, .count = {130, 0, 75}, .pick = true, .dress = true, .compute = 90, .sms = 1};
    for (int i = 0; i < TYPES; i++) {
        assert_shape(check_grouped(types[i], 150, odd_cols(types[i]), &g), types[i],
                     has_panel(types[i]) ? "panel" : "wide");
    }
}

static void middle_tiles(void **state)
{
    (void)state;
    const grouping g = {.groups = 4, .count = {1, 65, 60, 39}, .pick = true, .compute = 80, .sms = 1};
    const grouping old = {.groups = 1, .count = {100}, .dress = true, .compute = 75, .sms = 1};
    for (int i = 0; i < TYPES; i++) {
        assert_shape(check_grouped(types[i], 70, odd_cols(types[i]), &g), types[i],
                     has_panel(types[i]) ? "panel" : "middle");
        assert_shape(check_grouped(types[i], 64, odd_cols(types[i]), &old), types[i], "middle");
    }
}

static void strips(void **state)
{
    (void)state;
    const grouping g = {
        .groups = 6, .count = {1, 0, 2, 8, 16, 23}, .pick = true, .dress = true, .compute = 90, .sms = 1};
    for (int i = 0; i < TYPES; i++) {
        assert_shape(check_grouped(types[i], 67, odd_cols(types[i]), &g), types[i], "strip");
    }
}

static void hostile_values(void **state)
{
    (void)state;
    for (int i = FLOATS; i < TYPES; i++) {
        for (int kind = TINY; kind < FLAVOURS; kind++) {
            const grouping few = {
                .groups = 2, .count = {5, 12}, .kind = (flavour)kind, .compute = 90, .sms = 1};
            const grouping many = {
                .groups = 1, .count = {90}, .kind = (flavour)kind, .compute = 90, .sms = 1};
            check_grouped(types[i], 35, odd_cols(types[i]), &few);
            check_grouped(types[i], 35, odd_cols(types[i]), &many);
        }
    }
}

/* One block of 32 to several steps; every alignment of a row. */
static void short_and_long_rows(void **state)
{
    (void)state;
    const grouping g = {.groups = 2, .count = {3, 20}, .compute = 90, .sms = 1};
    for (int i = 0; i < TYPES; i++) {
        const int block = mo_format_of(types[i])->block_values;
        check_grouped(types[i], 20, block == 1 ? 32 : block, &g);
        check_grouped(types[i], 20, block == 1 ? 1 : block == 32 ? 160 : 3 * block, &g);
        check_grouped(types[i], 1, 1280, &g);
    }
}

/* Several matrices of one op, of all folds; and one that is absent. The first has `least` rows, each after it 45 more. */
static const char *check_rows(const mo_type *mix, int count, int64_t least, int64_t tokens, int64_t cols,
                              int compute, int sms)
{
    uint64_t seed = 9 + (uint64_t)tokens;
    mo_acts acts = make_acts(tokens, cols, &seed, ORDINARY);
    mo_op op = {.kind = MO_OP_PRODUCT,
                .product = {.in = device_acts(&acts), .tokens = (int32_t)tokens, .count = (int32_t)count}};
    uint8_t *data[MO_OP_MATRICES];
    float *y[MO_OP_MATRICES], *want[MO_OP_MATRICES], *scale[MO_OP_MATRICES], *bias[MO_OP_MATRICES];
    for (int i = 0; i < count; i++) {
        const int64_t rows = least + 45 * i;
        data[i] = make_matrix(mix[i], rows, cols, &seed, ORDINARY);
        scale[i] = make_floats(1, &seed);
        bias[i] = make_floats(rows, &seed);
        want[i] = take(sizeof(float) * (size_t)(tokens * rows));
        y[i] = guarded(tokens * (rows + i));
        define(mix[i], data[i], rows, &acts, NULL, tokens, i % 2 ? scale[i] : NULL, i > 1 ? bias[i] : NULL,
               want[i]);
        op.product.matrix[i] = (mo_dmatrix){.data = address(data[i]),
                                            .scale = i % 2 ? address(scale[i]) : 0,
                                            .bias = i > 1 ? address(bias[i]) : 0,
                                            .type = (int32_t)mix[i],
                                            .rows = (int32_t)rows,
                                            .cols = (int32_t)cols};
        op.product.y[i] = address(y[i]);
        op.product.stride[i] = rows + i;
    }
    const char *kernel = run(mo_cuda_launch_product_wide, &op, compute, sms);
    for (int i = 0; i < count; i++) {
        compare(kernel, mix[i], y[i], want[i], tokens, least + 45 * i, op.product.stride[i]);
        free(data[i]);
        free(scale[i]);
        free(bias[i]);
        free(want[i]);
        free(y[i]);
    }
    free(acts.x);
    return kernel;
}

static const char *check_product(const mo_type *mix, int count, int64_t tokens, int64_t cols, int compute,
                                 int sms)
{
    return check_rows(mix, count, 40, tokens, cols, compute, sms);
}

/* Every number of 16-token pieces that a panel has code for, groups without rows between others, rows that end anywhere. */
static void panels(void **state)
{
    (void)state;
    static const int64_t tokens[] = {33, 65, 96, 128, 150};
    const grouping g = {.groups = 7,
                        .count = {0, 200, 31, 0, 90, 17, 80},
                        .pick = true,
                        .dress = true,
                        .compute = 90,
                        .sms = 1};
    const grouping few = {.groups = 4, .count = {16, 48, 64, 5}, .compute = 80, .sms = 1};
    for (int i = FLOATS; i < TYPES; i++) {
        if (!has_panel(types[i])) {
            continue;
        }
        const int64_t cols = odd_cols(types[i]);
        assert_shape(check_grouped(types[i], 129, cols, &g), types[i], "panel");
        assert_shape(check_grouped(types[i], 15, mo_format_of(types[i])->block_values, &g), types[i],
                     "panel");
        const char *shape = types[i] == MO_Q4_K || types[i] == MO_Q6_K ? "narrow" : "panel";
        assert_shape(check_grouped(types[i], 20, cols, &few), types[i], shape);
        assert_shape(check_grouped(types[i], 129, cols, &few), types[i], shape);
        for (int t = 0; t < 5; t++) {
            const mo_type both[] = {types[i],
                                    mo_format_of(types[i])->block_values == 256 ? MO_Q6_K : MO_Q8_0};
            assert_non_null(strstr(check_product(both, 2, tokens[t], cols, 80, 1), "small"));
            assert_non_null(strstr(check_rows(both, 2, 128, tokens[t], cols, 90, 1),
                                   tokens[t] > 64 && tokens[t] <= 128 ? "wide" : "small"));
        }
    }
}

/* Float matrices whose rows are whole blocks: of any number, in groups and in products, of either size of panel. */
static void float_panels(void **state)
{
    (void)state;
    static const int64_t cols[] = {32, 96, 288, 512};
    const grouping wide = {
        .groups = 3, .count = {70, 0, 33}, .pick = true, .dress = true, .compute = 90, .sms = 1};
    const grouping small = {.groups = 2, .count = {17, 40}, .pick = true, .compute = 75, .sms = 1};
    for (int i = 0; i < FLOATS; i++) {
        for (int c = 0; c < 4; c++) {
            assert_string_equal(check_grouped(types[i], 70, cols[c], &wide), "mo_grouped_float_wide");
            assert_string_equal(check_grouped(types[i], 33, cols[c], &small), "mo_grouped_float_small");
            assert_string_equal(check_product(&types[i], 1, 65, cols[c], 90, 1), "mo_product_float_wide");
            assert_string_equal(check_product(&types[i], 1, 40, cols[c], 90, 7), "mo_product_float_small");
        }
    }
}

static void several_matrices(void **state)
{
    (void)state;
    static const mo_type same[] = {MO_Q4_K, MO_Q4_K, MO_Q5_K, MO_Q5_1, MO_Q4_1};
    static const mo_type mixed[] = {MO_Q8_0, MO_F32, MO_Q6_K, MO_MXFP4, MO_BF16};
    static const mo_type all[] = {MO_Q2_K, MO_F32, MO_Q6_K, MO_MXFP4, MO_BF16};
    static const mo_type rest[] = {MO_NVFP4, MO_Q2_K, MO_IQ4_XS};
    static const int64_t tokens[] = {9, 33, 140};
    for (int i = 0; i < 3; i++) {
        check_product(same, 5, tokens[i], 512, 90, 1);
        check_product(mixed, 5, tokens[i], 256, 90, 1);
        check_product(all, 5, tokens[i], 256, 90, 1);
        check_product(rest, 3, tokens[i], 256, 75, 100);
    }
}

/* Strips: every format, one for each warp (rows enough for the one multiprocessor) and one for all (for many). */
static void strips_of_products(void **state)
{
    (void)state;
    static const int64_t tokens[] = {2, 8, 11, 32};
    for (int i = FLOATS; i < TYPES; i++) {
        const int64_t cols = odd_cols(types[i]);
        for (int t = 0; t < 4; t++) {
            assert_string_equal(check_product(&types[i], 1, tokens[t], cols, 90, 1),
                                tokens[t] <= 16 ? "mo_strip_product_few" : "mo_strip_product");
            assert_string_equal(check_product(&types[i], 1, tokens[t], 3 * cols, 75, 1000),
                                "mo_strip_product_few");
        }
        const mo_type both[] = {types[i], types[i]};
        assert_string_equal(check_product(both, 2, 9, 2 * cols, 90, 1), "mo_strip_product");
    }
}

/* What no kernel can do is refused with a sentence, and nothing to do is no launch. */
static void refusals(void **state)
{
    (void)state;
    mo_cuda_launch out[MO_CUDA_KERNELS_PER_OP];
    mo_error err = {0};
    mo_op op = {
        .kind = MO_OP_GROUPED,
        .grouped = {.count = 1, .rows = 4, .most = 4, .matrix = {.type = MO_I32, .rows = 8, .cols = 256}}};
    assert_int_equal(mo_cuda_launch_grouped(&op, 90, 132, out, &err), -1);
    assert_int_equal(err.status, MO_EUNSUPPORTED);
    op.grouped.matrix.type = MO_Q4_K;
    op.grouped.matrix.cols = 128;
    assert_int_equal(mo_cuda_launch_grouped(&op, 90, 132, out, &err), -1);
    assert_int_equal(err.status, MO_EINVAL);
    op.grouped.matrix.cols = 256;
    assert_int_equal(mo_cuda_launch_grouped(&op, 90, 132, out, &err), 1);
    op.grouped.rows = op.grouped.most = 0;
    assert_int_equal(mo_cuda_launch_grouped(&op, 90, 132, out, &err), 0);
}

/* Shared memory that devices have, and the sizes of blocks that tile.h repeats. */
static void sizes(void **state)
{
    (void)state;
    for (int i = FLOATS; i < TYPES; i++) {
        const mo_format *f = mo_format_of(types[i]);
        const mo_span span = mo_span_of(types[i]);
        assert_int_equal(span.block_values, f->block_values);
        assert_int_equal(span.block_bytes, f->block_bytes);
        const mo_fold fold = mo_tile_fold_of(types[i]);
        assert_true(mo_tile_lay(128, 128, 1, fold, span.chunks).bytes <= 99 * 1024);
        assert_true(mo_tile_lay(64, 64, 1, fold, span.chunks).bytes <= 64 * 1024);
        if (has_panel(types[i])) {
            assert_true(mo_panel_lay(types[i], 16 * MO_PANEL_WIDE_DOWN, 16 * MO_PANEL_WIDE_N).bytes <=
                        99 * 1024);
        }
        assert_true(mo_strip_lay(types[i], MO_STRIP_ROWS).bytes <= 64 * 1024);
        assert_true(mo_strip_lay(types[i], MO_STRIP_SHARED_ROWS).bytes <= 64 * 1024);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(strips),
        cmocka_unit_test(strips_of_products),
        cmocka_unit_test(middle_tiles),
        cmocka_unit_test(wide_tiles),
        cmocka_unit_test(short_and_long_rows),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(several_matrices),
        cmocka_unit_test(panels),
        cmocka_unit_test(float_panels),
    };
    return cmocka_run_group_tests_name("cuda grouped", tests, NULL, NULL);
}
