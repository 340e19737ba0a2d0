/* The GPU's products for few tokens, emulated, against the definition, bit for bit: every format, 1 to 8 tokens, rows
 * that end anywhere, rows cut in pieces, several matrices in one op, scales and biases, hostile values; and the experts
 * of a worklist. */
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
#include "device/cuda/pairs_launch.h"
#include "device/cuda/rows.h"
#include "device/cuda/slab.h"
#include "device/host/run.h"
#include "numeric/kinds.h"
#include "numeric/reference/reference.h"

enum { FLOATS = 3, TAKEN_MAX = 256 };

/* ---- Data ---- */

static void *taken[TAKEN_MAX];
static int taken_count;

static void *take(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, MO_OP_ALIGN, bytes ? bytes : 1), 0);
    assert_true(taken_count < TAKEN_MAX);
    taken[taken_count++] = p;
    return p;
}

static int free_blocks(void **state)
{
    (void)state;
    while (taken_count > 0) {
        free(taken[--taken_count]);
    }
    return 0;
}

static mo_daddr address(const void *p)
{
    return (mo_daddr)(uintptr_t)p;
}

static void *resolve(void *user, mo_daddr at, int64_t bytes)
{
    (void)user;
    (void)bytes;
    return (void *)(uintptr_t)at;
}

static void run_reference(const mo_op *op)
{
    static mo_scratch scratch;
    const mo_op_host host = {.kernels = &mo_kernels_scalar, .resolve = resolve};
    mo_error err;
    if (mo_op_run(&host, op, &scratch, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

static mo_acts make_acts(int64_t rows, int64_t cols, uint64_t *seed, block_flavour kind)
{
    static const float magnitude[BLOCK_FLAVOURS] = {1.0f, 1.0f, 0x1p-99f, 0x1p20f};
    mo_acts a = mo_acts_lay(take(mo_acts_bytes(rows, cols)), rows, cols);
    const int64_t blocks = cols / 32;
    for (int64_t i = 0; i < rows * cols; i++) {
        a.x[i] = random_normal(seed) * magnitude[kind];
        if (kind == BLOCK_EXTREME) { /* every code at its limit */
            a.x[i] = a.x[i] < 0 ? -0x1p20f : 0x1p20f;
        }
        if (random_below(seed, 40) == 0) {
            a.x[i] = random_below(seed, 2) ? 0.0f : -0.0f;
        }
    }
    for (int64_t t = 0; cols % 32 == 0 && t < rows; t++) {
        for (int64_t b = 0; b < blocks; b++) { /* whole blocks below the limit */
            for (int i = 0; random_below(seed, 12) == 0 && i < 32; i++) {
                a.x[t * cols + 32 * b + i] *= 0x1p-110f;
            }
        }
        mo_reference_quantize(a.x + t * cols, cols, a.q + t * cols, a.d + t * blocks, a.s + t * blocks,
                              a.sum + t * blocks, a.half_sum + 2 * t * blocks);
    }
    return a;
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

static int64_t matrix_bytes(mo_type type, int64_t rows, int64_t cols)
{
    return rows * mo_format_row_bytes(mo_format_of(type), cols);
}

static float *make_floats(int64_t n, uint64_t *seed)
{
    float *x = take(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_normal(seed);
    }
    return x;
}

/* Exactly as many bytes as there are: a sanitizer sees a kernel that reads past them. */
static mo_dmatrix make_matrix(mo_type type, int rows, int cols, uint64_t *seed, block_flavour kind,
                              bool finish)
{
    const int64_t bytes = matrix_bytes(type, rows, cols);
    uint8_t *data = take((size_t)bytes);
    blocks_fill(type, data, bytes, seed, kind);
    return (mo_dmatrix){.data = address(data),
                        .scale = finish ? address(make_floats(1, seed)) : 0,
                        .bias = finish ? address(make_floats(rows, seed)) : 0,
                        .type = type,
                        .rows = rows,
                        .cols = cols};
}

/* The columns that serve a type: `like`, or the next multiple of its block. */
static int cols_for(mo_type type, int like)
{
    const int each = mo_format_of(type)->block_values;
    return (like + each - 1) / each * each;
}

/* ---- Products ---- */

/* Fills y, runs the op on the definition and on the GPU's kernels, compares everything, gaps between rows included. */
static void check_product_on(mo_op *op, const char *what, int compute)
{
    mo_op_product *p = &op->product;
    const int count = p->count;
    float *expected[MO_OP_MATRICES], *got[MO_OP_MATRICES];
    size_t bytes[MO_OP_MATRICES];
    for (int i = 0; i < count; i++) {
        const int64_t n = (p->tokens - 1) * p->stride[i] + p->matrix[i].rows;
        bytes[i] = sizeof(float) * (size_t)n;
        expected[i] = take(bytes[i]);
        got[i] = take(bytes[i]);
        memset(expected[i], 0x55, bytes[i]);
        memset(got[i], 0x55, bytes[i]);
        p->y[i] = address(expected[i]);
    }
    run_reference(op);
    for (int i = 0; i < count; i++) {
        p->y[i] = address(got[i]);
    }
    mo_emulated_op(op, compute);
    for (int i = 0; i < count; i++) {
        if (memcmp(expected[i], got[i], bytes[i]) == 0) {
            continue;
        }
        for (size_t j = 0; j < bytes[i] / sizeof(float); j++) {
            if (memcmp(&expected[i][j], &got[i][j], sizeof(float)) != 0) {
                fail_msg("%s, %d tokens, matrix %d (%s), value %zu: %a, not %a", what, p->tokens, i,
                         mo_format_of((uint32_t)p->matrix[i].type)->name, j, (double)got[i][j],
                         (double)expected[i][j]);
            }
        }
    }
}

/* Old devices have kernels of their own for one token. */
static void check_product(mo_op *op, const char *what)
{
    check_product_on(op, what, 90);
    check_product_on(op, what, 86);
    check_product_on(op, what, 75);
}

static void check_one(mo_type type, int rows, int cols, int tokens, block_flavour kind)
{
    uint64_t seed = 7 + (uint64_t)type + 100 * (uint64_t)tokens + 1000 * (uint64_t)kind + (uint64_t)rows;
    const mo_acts acts = make_acts(tokens, cols, &seed, kind);
    mo_op op = {
        .kind = MO_OP_PRODUCT,
        .product = {.in = device_acts(&acts), .tokens = tokens, .count = 1, .stride = {rows + tokens}}};
    op.product.matrix[0] = make_matrix(type, rows, cols, &seed, kind, tokens % 2 == 0);
    check_product(&op, "one matrix");
    free_blocks(NULL);
}

static void test_every_format_and_number_of_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCK_TYPES; i++) {
        for (int tokens = 1; tokens <= MO_ROWS_TOKENS; tokens++) {
            check_one(block_types[i], 21, cols_for(block_types[i], 544), tokens, BLOCK_ORDINARY);
        }
    }
}

static void test_hostile_values(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCK_TYPES; i++) {
        for (block_flavour kind = BLOCK_ZEROS; kind < BLOCK_FLAVOURS; kind++) {
            check_one(block_types[i], 5, cols_for(block_types[i], 288), 1, kind);
            check_one(block_types[i], 5, cols_for(block_types[i], 288), 3, kind);
        }
    }
}

/* One block, one row; rows that end in the middle of a step; the widths of the models that matter. */
static void test_shapes(void **state)
{
    (void)state;
    static const int rows[] = {1, 8, 33, 70}, cols[] = {32, 768, 2880};
    for (int i = 0; i < BLOCK_TYPES; i++) {
        for (int r = 0; r < 4; r++) {
            check_one(block_types[i], rows[r], cols_for(block_types[i], cols[r % 3]), 1, BLOCK_ORDINARY);
        }
    }
    for (int n = 1; n < 100; n += 7) { /* float rows need no whole blocks */
        check_one(block_types[n % FLOATS], 9, n, 1 + n % 8, BLOCK_ORDINARY);
    }
}

/* Rows that do not fit a step are folded piece by piece. */
static void test_long_rows(void **state)
{
    (void)state;
    static const mo_type types[] = {MO_Q8_0, MO_Q4_K, MO_Q6_K, MO_MXFP4, MO_NVFP4, MO_Q2_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const int cols = cols_for(types[i], 40000);
        assert_true(mo_rows_cut(types[i], cols, 1).cuts > 1);
        check_one(types[i], 3, cols, 1, BLOCK_ORDINARY);
        check_one(types[i], 2, cols_for(types[i], 9000), 7, BLOCK_ORDINARY);
    }
}

static void test_several_matrices(void **state)
{
    (void)state;
    static const mo_type mixed[][MO_OP_MATRICES] = {
        {MO_Q4_K, MO_Q4_K, MO_Q6_K, MO_F32, MO_Q8_0},
        {MO_Q8_0, MO_BF16, MO_Q8_0, MO_Q8_0, MO_MXFP4},
        {MO_Q5_K, MO_Q3_K, MO_IQ4_XS, MO_F16, MO_Q2_K},
    };
    static const int rows[MO_OP_MATRICES] = {130, 40, 41, 7, 1};
    for (int c = 0; c < 3; c++) {
        for (int tokens = 1; tokens <= MO_ROWS_TOKENS; tokens += 1 + tokens % 3) {
            uint64_t seed = 99 + (uint64_t)(c + 10 * tokens);
            const mo_acts acts = make_acts(tokens, 512, &seed, BLOCK_ORDINARY);
            mo_op op = {.kind = MO_OP_PRODUCT,
                        .product = {.in = device_acts(&acts), .tokens = tokens, .count = MO_OP_MATRICES - c}};
            for (int i = 0; i < op.product.count; i++) {
                op.product.matrix[i] = make_matrix(mixed[c][i], rows[i], 512, &seed, BLOCK_ORDINARY, i % 2);
                op.product.stride[i] = rows[i] + i;
            }
            for (int again = 0; again < 3; again++) { /* other orders of threads */
                check_product(&op, "several");
            }
            free_blocks(NULL);
        }
    }
}

/* The kernels' idea of a format is the file's, and every cut fits. */
static void test_cuts(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCK_TYPES; i++) {
        const mo_format *f = mo_format_of(block_types[i]);
        assert_int_equal(mo_format_values(f->type), f->block_values);
        assert_int_equal(mo_format_bytes(f->type), f->block_bytes);
        assert_int_equal(mo_format_is_float(f->type), f->kind == MO_KIND_FLOAT);
        assert_int_equal(mo_rows_terms(f->type) == 2,
                         f->fold == MO_FOLD_MINIMUM || f->fold == MO_FOLD_HALF_MINIMA || f->type == MO_NVFP4);
        for (int cols = f->block_values; i >= FLOATS && cols < 120000;
             cols += cols / 9 / f->block_values * f->block_values + f->block_values) {
            for (int tokens = 1; tokens <= MO_ROWS_TOKENS; tokens = tokens == 1 ? 4 : tokens * 2) {
                const mo_rows_shape s = mo_rows_cut(f->type, cols, tokens);
                assert_int_equal(s.row_bytes, mo_format_row_bytes(f, cols));
                assert_in_range(s.shared, 1, MO_ROWS_BUDGET);
                assert_in_range(s.ahead, 2, MO_ROWS_AHEAD);
                assert_in_range(s.rows * tokens, 1, mo_rows_folders(tokens));
                assert_true(MO_ROWS_TILE % s.rows == 0);
                assert_true(s.cuts == 1 || s.rows <= MO_ROWS_LEAST);
                assert_true((s.cuts - 1) * s.cut_blocks < s.blocks && s.cuts * s.cut_blocks >= s.blocks);
                assert_true(s.cuts == 1 || s.cut_blocks * 32 % f->block_values == 0);
            }
        }
    }
}

/* Slabs: what threads share is within the room, and tiles leave room for three of their blocks where they can. */
static void test_slab_cuts(void **state)
{
    (void)state;
    for (int i = FLOATS; i < BLOCK_TYPES; i++) {
        const mo_format *f = mo_format_of(block_types[i]);
        for (int cols = f->block_values; cols < 60000;
             cols += cols / 9 / f->block_values * f->block_values + f->block_values) {
            for (int code = 80; code <= 120; code += 10) {
                const mo_slab_shape one = mo_slab_cut(f->type, cols, 1, mo_slab_most(code));
                assert_int_equal(one.row_bytes, mo_format_row_bytes(f, cols));
                assert_true(one.pitch >= mo_rows_terms(f->type) * one.blocks && one.pitch / 4 % 2 == 1);
                assert_in_range(mo_slab_threads(&one, MO_SLAB_THREADS), 64, MO_SLAB_THREADS);
            }
            for (int tiles = 1; tiles <= 1024; tiles *= 32) {
                const mo_slab_shape s = mo_slab_tile_cut(f->type, cols, tiles, 1);
                if (s.slots == 0) {
                    assert_true(cols > 7168);
                    continue;
                }
                const int slabs = 2 * MO_SLAB_TILE >> s.rows_log2;
                assert_in_range(s.rows_log2, 0, 5);
                assert_in_range(s.slots, 2, slabs < MO_SLAB_SLOTS ? slabs : MO_SLAB_SLOTS);
                assert_in_range(s.shared, 1, MO_SLAB_SHARED);
                assert_true(cols > 2048 ||
                            s.shared <= (tiles > MO_SLAB_FEW ? MO_SLAB_MANY_SHARED : MO_SLAB_FEW_SHARED));
                assert_in_range(mo_slab_threads(&s, MO_SLAB_TILE_THREADS), 64, MO_SLAB_TILE_THREADS);
            }
        }
    }
    const mo_slab_shape oss =
        mo_slab_tile_cut(MO_MXFP4, 2880, 360, 1); /* four experts of gpt-oss: one wave */
    assert_true(3 * (oss.shared + 1024) <= 228 * 1024);
    assert_int_equal(mo_slab_threads(&oss, MO_SLAB_TILE_THREADS), 384);
}

/* Formats that most files have are decoded by kernels that know few others; one matrix of another format is enough for those that know all. */
static void test_common_formats(void **state)
{
    (void)state;
    mo_cuda_launch out[MO_CUDA_KERNELS_PER_OP];
    mo_error err;
    mo_op op = {.kind = MO_OP_PRODUCT, .product = {.in = {.cols = 256}, .tokens = 1, .count = 2}};
    op.product.matrix[0] = (mo_dmatrix){.data = 256, .type = MO_Q4_K, .rows = 64, .cols = 256};
    op.product.matrix[1] = (mo_dmatrix){.data = 512, .type = MO_Q6_K, .rows = 64, .cols = 256};
    assert_int_equal(mo_cuda_launch_product(&op, 90, 132, out, &err), 1);
    assert_string_equal(out->kernel, "mo_slab_product");
    op.product.matrix[1].type = MO_IQ4_NL;
    assert_int_equal(mo_cuda_launch_product(&op, 90, 132, out, &err), 1);
    assert_string_equal(out->kernel, "mo_slab_product_all");
}

static void test_refusals(void **state)
{
    (void)state;
    mo_cuda_launch out[MO_CUDA_KERNELS_PER_OP];
    mo_error err;
    mo_op op = {.kind = MO_OP_PRODUCT, .product = {.in = {.cols = 64}, .tokens = 1, .count = 1}};
    op.product.matrix[0] = (mo_dmatrix){.data = 256, .type = MO_I32, .rows = 4, .cols = 64};
    assert_int_equal(mo_cuda_launch_product(&op, 90, 132, out, &err), -1);
    assert_int_equal(err.status, MO_EUNSUPPORTED);
    op.product.matrix[0] = (mo_dmatrix){.data = 256, .type = MO_Q4_K, .rows = 4, .cols = 64};
    assert_int_equal(mo_cuda_launch_product(&op, 90, 132, out, &err), -1);
    assert_int_equal(err.status, MO_EINVAL);
    op.product.tokens = 0;
    op.product.matrix[0].type = MO_Q8_0;
    assert_int_equal(mo_cuda_launch_product(&op, 90, 132, out, &err), 0);
}

/* ---- Experts ---- */

typedef struct layer {
    mo_type gate, up, down;
    int width, hidden, experts, used, tokens;
    mo_activation activation;
    bool finish; /* scales and biases */
} layer;

static int64_t aligned(int64_t bytes)
{
    return (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

static mo_dmatrix expert_matrix(const layer *l, mo_type type, int rows, int cols, uint64_t *seed)
{
    return (mo_dmatrix){.scale = l->finish ? address(make_floats(l->experts, seed)) : 0,
                        .bias = l->finish ? address(make_floats((int64_t)l->experts * rows, seed)) : 0,
                        .type = type,
                        .rows = rows,
                        .cols = cols};
}

/* A worklist that leaves out some rows, as when their experts are elsewhere, and has room for more. */
static mo_daddr make_work(const layer *l, uint8_t *const *expert_data, uint64_t *seed)
{
    const int most = l->tokens * l->used;
    mo_dwork *work = take(sizeof(mo_dwork) + sizeof(mo_dwork_item) * (size_t)most);
    mo_dwork_item *item = (mo_dwork_item *)(void *)(work + 1);
    memset(work, 0xEE, sizeof(mo_dwork) + sizeof(mo_dwork_item) * (size_t)most);
    work->count = 0;
    for (int row = 0; row < most; row++) {
        if (most > 1 && random_below(seed, 4) == 0) {
            continue;
        }
        const int expert = (int)random_below(seed, l->experts);
        item[work->count++] = (mo_dwork_item){
            .base = address(expert_data[expert]), .expert = expert, .token = row / l->used, .row = row};
    }
    return address(work);
}

static void compare(const char *what, const layer *l, const void *expected, const void *got, size_t bytes)
{
    if (memcmp(expected, got, bytes) != 0) {
        fail_msg("%s of %s/%s/%s, width %d, hidden %d", what, mo_format_of(l->gate)->name,
                 mo_format_of(l->up)->name, mo_format_of(l->down)->name, l->width, l->hidden);
    }
}

static void check_experts_on(const layer *l, int compute)
{
    uint64_t seed = 5 + (uint64_t)l->gate + 50 * (uint64_t)l->down + (uint64_t)l->width;
    const int64_t gate = matrix_bytes(l->gate, l->hidden, l->width),
                  up = matrix_bytes(l->up, l->hidden, l->width);
    const int64_t down = matrix_bytes(l->down, l->width, l->hidden);
    const int64_t up_at = aligned(gate), down_at = up_at + aligned(up);
    uint8_t *expert_data[8];
    for (int e = 0; e < l->experts; e++) {
        expert_data[e] = take((size_t)(down_at + down));
        blocks_fill(l->gate, expert_data[e], gate, &seed, BLOCK_ORDINARY);
        blocks_fill(l->up, expert_data[e] + up_at, up, &seed, BLOCK_ORDINARY);
        blocks_fill(l->down, expert_data[e] + down_at, down, &seed, BLOCK_ORDINARY);
    }
    const int rows = l->tokens * l->used;
    const mo_acts in = make_acts(l->tokens, l->width, &seed, BLOCK_ORDINARY);
    const size_t acts_bytes = mo_acts_bytes(rows, l->hidden),
                 y_bytes = sizeof(float) * (size_t)(rows * l->width);
    void *hidden[2] = {take(acts_bytes), take(acts_bytes)}, *y[2] = {take(y_bytes), take(y_bytes)};
    mo_op op = {.kind = MO_OP_EXPERTS_IN,
                .experts = {.work = make_work(l, expert_data, &seed),
                            .most = rows,
                            .activation = l->activation,
                            .limit = 0.25f,
                            .in = device_acts(&in),
                            .gate = expert_matrix(l, l->gate, l->hidden, l->width, &seed),
                            .up = expert_matrix(l, l->up, l->hidden, l->width, &seed),
                            .down = expert_matrix(l, l->down, l->width, l->hidden, &seed),
                            .up_at = up_at,
                            .down_at = down_at}};
    for (int i = 0; i < 2; i++) {
        memset(hidden[i], 0x55, acts_bytes);
        memset(y[i], 0x55, y_bytes);
        const mo_acts h = mo_acts_lay(hidden[i], rows, l->hidden);
        op.experts.hidden = device_acts(&h);
        op.experts.y = address(y[i]);
        for (mo_op_kind kind = MO_OP_EXPERTS_IN; kind <= MO_OP_EXPERTS_DOWN; kind++) {
            op.kind = kind;
            if (i == 0) {
                run_reference(&op);
            } else {
                mo_emulated_op(&op, compute);
            }
        }
    }
    compare("hidden rows", l, hidden[0], hidden[1], acts_bytes);
    compare("rows", l, y[0], y[1], y_bytes);
    free_blocks(NULL);
}

static void check_experts(const layer *l)
{
    check_experts_on(l, 90);
    check_experts_on(l, 86);
    check_experts_on(l, 75);
}

static void test_experts_of_every_format(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCK_TYPES; i++) {
        const mo_type type = block_types[i];
        const layer l = {.gate = type,
                         .up = type,
                         .down = type,
                         .width = cols_for(type, 96),
                         .hidden = cols_for(type, 64),
                         .experts = 3,
                         .used = 2,
                         .tokens = 2,
                         .activation = (mo_activation)(i % 6),
                         .finish = i % 2};
        check_experts(&l);
    }
}

/* Gate, up and down of different formats; one item; a hidden row that is no whole number of blocks. */
static void test_experts_of_odd_shapes(void **state)
{
    (void)state;
    static const layer layers[] = {
        {MO_Q4_K, MO_Q5_K, MO_Q6_K, 256, 256, 2, 1, 1, MO_SWIGLU, true},
        {MO_Q4_K, MO_Q4_K, MO_Q6_K, 512, 768, 4, 3, 1, MO_SWIGLU, false},
        {MO_MXFP4, MO_MXFP4, MO_MXFP4, 2880, 96, 2, 2, 1, MO_SWIGLU_OSS, true},
        {MO_F32, MO_F32, MO_F32, 40, 24, 4, 2, 3, MO_GEGLU, true},
        {MO_F16, MO_F32, MO_BF16, 33, 50, 4, 2, 2, MO_SWIGLU, false},
        {MO_Q8_0, MO_F16, MO_F32, 64, 70, 4, 2, 2, MO_SWIGLU, true},
        {MO_Q8_0, MO_Q8_0, MO_Q8_0, 20480, 32, 2, 1, 1, MO_GEGLU, false},
        {MO_Q8_0, MO_Q8_0, MO_Q8_0, 18432, 32, 2, 2, 1, MO_GEGLU, true}, /* a tile with two slots */
        {MO_Q4_K, MO_Q4_K, MO_Q6_K, 2048, 256, 2, 2, 1, MO_SWIGLU, false},
        {MO_Q5_1, MO_Q5_1, MO_Q4_1, 4128, 64, 2, 2, 1, MO_SWIGLU, true},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        check_experts(&layers[i]);
    }
    assert_int_equal(mo_slab_tile_cut(MO_Q8_0, 18432, 2, 1).slots, 2);
}

/* Many tiles: other slabs, and slots that are filled again and again. Rows of an odd number of bytes. */
static void test_many_tiles(void **state)
{
    (void)state;
    const layer l = {MO_MXFP4, MO_MXFP4, MO_Q8_0, 2080, 96, 8, 11, 8, MO_SWIGLU_OSS, true};
    const int tiles = l.hidden / MO_SLAB_TILE * l.used * l.tokens;
    const mo_slab_shape s = mo_slab_tile_cut(l.gate, l.width, tiles, 1);
    assert_true(tiles > MO_SLAB_FEW && s.slots < 2 * MO_SLAB_TILE >> s.rows_log2 && s.row_bytes % 2 == 1);
    check_experts_on(&l, 90);
}

/* Tokens that meet the same expert, in pairs and one that is left: formats that have such slabs, and one that has none; more items than a
 * warp has lanes; rows with more units than a block has threads. */
static void test_pairs(void **state)
{
    (void)state;
    static const layer layers[] = {
        {MO_MXFP4, MO_MXFP4, MO_MXFP4, 288, 64, 8, 9, 4, MO_SWIGLU_OSS, true},
        {MO_Q8_0, MO_Q8_0, MO_Q8_0, 64, 32, 1, 1, 17, MO_GEGLU, true},
        {MO_Q4_0, MO_Q4_0, MO_IQ4_NL, 96, 160, 3, 6, 3, MO_SWIGLU, false},
        {MO_IQ4_NL, MO_IQ4_NL, MO_Q4_0, 8256, 32, 2, 6, 3, MO_SWIGLU, true},
        {MO_Q4_K, MO_Q4_K, MO_Q8_0, 256, 256, 3, 5, 4, MO_SWIGLU, false},
    };
    mo_cuda_launch out[MO_CUDA_KERNELS_PER_OP];
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        check_experts(&layers[i]);
    }
    mo_op_experts op = {.most = 17, .gate = {.type = MO_MXFP4, .rows = 64, .cols = 288}};
    op.up = op.down = op.gate;
    assert_int_equal(mo_cuda_launch_pairs_in(&op, out), 1);
    assert_int_equal(mo_cuda_launch_pairs_down(&op, 90, out), 1);
    op.most = 16; /* one token may have so many, none of them twice */
    assert_int_equal(mo_cuda_launch_pairs_in(&op, out), 0);
    assert_int_equal(mo_cuda_launch_pairs_down(&op, 90, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_cuts, free_blocks),
        cmocka_unit_test_teardown(test_slab_cuts, free_blocks),
        cmocka_unit_test_teardown(test_common_formats, free_blocks),
        cmocka_unit_test_teardown(test_refusals, free_blocks),
        cmocka_unit_test_teardown(test_every_format_and_number_of_tokens, free_blocks),
        cmocka_unit_test_teardown(test_hostile_values, free_blocks),
        cmocka_unit_test_teardown(test_shapes, free_blocks),
        cmocka_unit_test_teardown(test_long_rows, free_blocks),
        cmocka_unit_test_teardown(test_several_matrices, free_blocks),
        cmocka_unit_test_teardown(test_experts_of_every_format, free_blocks),
        cmocka_unit_test_teardown(test_experts_of_odd_shapes, free_blocks),
        cmocka_unit_test_teardown(test_many_tiles, free_blocks),
        cmocka_unit_test_teardown(test_pairs, free_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
