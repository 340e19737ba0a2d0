/* Every product of every instruction set against the definition, bit for bit: all formats, both layouts,
 * batches of 1 to 70, row ranges, picked tokens, thread counts 1 to 5, hostile values; and fixed
 * fingerprints, so that two machines agree without meeting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "blocks.h"
#include "guarded.h"
#include "numeric/kernels.h"
#include "numeric/reference/reference.h"
#include "random.h"
#include "sanitized.h"

enum { TOKENS_MAX = 70, GUARD = 3 };

static _Thread_local mo_scratch scratch;

static const mo_type types[] = {MO_WEIGHT_TYPES};
enum { TYPES = sizeof types / sizeof *types };

typedef enum flavour { ORDINARY, ZEROS, TINY, EXTREME, FLAVOURS } flavour;

/* ---- Data ------------------------------------------------------------------------------------- */

/* Byte offsets of the f16 fields of each block; -1 ends. */
static const int half_fields[MO_TYPE_LIMIT][3] = {
    [MO_F32] = {-1},          [MO_F16] = {0, -1},    [MO_BF16] = {-1},       [MO_Q4_0] = {0, -1},
    [MO_Q4_1] = {0, 2, -1},   [MO_Q5_0] = {0, -1},   [MO_Q5_1] = {0, 2, -1}, [MO_Q8_0] = {0, -1},
    [MO_Q2_K] = {80, 82, -1}, [MO_Q3_K] = {108, -1}, [MO_Q4_K] = {0, 2, -1}, [MO_Q5_K] = {0, 2, -1},
    [MO_Q6_K] = {208, -1},    [MO_IQ4_NL] = {0, -1}, [MO_IQ4_XS] = {0, -1},  [MO_MXFP4] = {-1},
    [MO_NVFP4] = {-1},        [MO_IQ1_S] = {0, -1},  [MO_IQ1_M] = {-1},      [MO_IQ2_XXS] = {0, -1},
    [MO_IQ2_XS] = {0, -1},    [MO_IQ2_S] = {0, -1},  [MO_IQ3_XXS] = {0, -1}, [MO_IQ3_S] = {0, -1},
    [MO_TQ1_0] = {52, -1},    [MO_TQ2_0] = {64, -1}, [MO_Q1_0] = {0, -1},    [MO_Q2_0] = {0, -1},
};

static uint16_t random_half(uint64_t *seed, flavour kind)
{
    const uint64_t r = random_next(seed);
    switch (kind) {
    case ZEROS: return (uint16_t)(r & 0x8000); /* +0 and -0 */
    case TINY: return (uint16_t)(r & 0x83FF);  /* subnormal */
    case EXTREME: return (uint16_t)(0x7BFF | (r & 0x8000));
    default: return (uint16_t)((r & 0x83FF) | (10 + (r >> 20) % 8) << 10);
    }
}

static void fill_float(mo_type type, uint8_t *p, uint64_t *seed, flavour kind)
{
    float value = random_normal(seed);
    if (kind == ZEROS) {
        value *= 0.0f;
    } else if (kind == TINY) {
        value *= 0x1p-130f;
    } else if (kind == EXTREME) {
        value *= 0x1p60f;
    }
    if (type == MO_F32) {
        memcpy(p, &value, 4);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, 4);
        p[0] = (uint8_t)(bits >> 16);
        p[1] = (uint8_t)(bits >> 24);
    }
}

static void fill_block(mo_type type, uint8_t *p, uint64_t *seed, flavour kind)
{
    const mo_format *f = mo_format_of(type);
    if (type == MO_F32 || type == MO_BF16) {
        fill_float(type, p, seed, kind);
        return;
    }
    for (int i = 0; i < f->block_bytes; i++) {
        const uint8_t any = (uint8_t)random_next(seed);
        p[i] = kind == EXTREME ? (any & 1 ? 0xFF : (any & 2 ? 0x80 : 0x7F)) : any;
    }
    for (const int *at = half_fields[type]; *at >= 0; at++) {
        const uint16_t half = random_half(seed, kind);
        p[*at] = (uint8_t)half;
        p[*at + 1] = (uint8_t)(half >> 8);
    }
    if (type == MO_IQ1_M) {
        block_put_iq1_m(p, random_half(seed, kind));
    }
    if (type == MO_MXFP4) {
        static const int base[FLAVOURS] = {[ORDINARY] = 120, [ZEROS] = 0, [TINY] = 0, [EXTREME] = 197};
        p[0] = (uint8_t)(base[kind] + (int)random_below(seed, 4));
    }
}

typedef struct problem {
    mo_weights plain;
    uint8_t *bytes;
    void *acts_memory;
    mo_acts acts;
    float *expected; /* [TOKENS_MAX][rows] */
} problem;

static void fill_row(float *x, int64_t cols, uint64_t *seed, flavour kind)
{
    static const float magnitude[FLAVOURS] = {
        [ORDINARY] = 1.0f, [ZEROS] = 1.0f, [TINY] = 0x1p-99f, [EXTREME] = 0x1p20f};
    for (int64_t i = 0; i < cols; i++) {
        x[i] = random_normal(seed) * magnitude[kind];
        if (kind == EXTREME) { /* every code at its limit */
            x[i] = x[i] < 0 ? -0x1p20f : 0x1p20f;
        }
        if (kind == ZEROS || random_below(seed, 50) == 0) {
            x[i] = random_below(seed, 2) ? 0.0f : -0.0f;
        }
    }
    for (int64_t b = 0; b < cols / 32; b++) { /* whole blocks below the limit, and lone spikes */
        const int64_t choice = random_below(seed, 12);
        if (choice == 0) {
            for (int i = 0; i < 32; i++) {
                x[32 * b + i] *= 0x1p-110f;
            }
        } else if (choice == 1) {
            x[32 * b + random_below(seed, 32)] *= 1000.0f;
        }
    }
}

static problem make(mo_type type, int64_t rows, int64_t cols, flavour kind)
{
    const mo_format *f = mo_format_of(type);
    const int64_t bytes = rows * mo_format_row_bytes(f, cols);
    uint64_t seed = 1000 * (uint64_t)type + 100 * (uint64_t)kind + (uint64_t)cols;
    problem p = {.bytes = guarded((size_t)bytes),
                 .expected = malloc(sizeof(float) * TOKENS_MAX * (size_t)rows)};
    p.plain = (mo_weights){.data = p.bytes, .type = type, .rows = rows, .cols = cols};
    for (int64_t at = 0; at < bytes; at += f->block_bytes) {
        fill_block(type, p.bytes + at, &seed,
                   kind == EXTREME && random_below(&seed, 3) == 0 ? ORDINARY : kind);
    }
    p.acts_memory = guarded_aligned(64, mo_acts_bytes(TOKENS_MAX, cols));
    p.acts = mo_acts_lay(p.acts_memory, TOKENS_MAX, cols);
    for (int64_t t = 0; t < TOKENS_MAX; t++) {
        const int64_t blocks = cols / 32;
        fill_row(p.acts.x + t * cols, cols, &seed, kind);
        mo_reference_quantize(p.acts.x + t * cols, cols, p.acts.q + t * cols, p.acts.d + t * blocks,
                              p.acts.s + t * blocks, p.acts.sum + t * blocks,
                              p.acts.half_sum + 2 * t * blocks);
    }
    mo_reference_product(&p.plain, 0, rows, &p.acts, NULL, TOKENS_MAX, p.expected, rows, &scratch);
    for (int64_t i = 0; i < TOKENS_MAX * rows; i++) {
        assert_true(isfinite(p.expected[i])); /* the bits of a NaN differ between machines */
    }
    return p;
}

static void drop(problem *p)
{
    guarded_free(p->bytes);
    guarded_free(p->acts_memory);
    free(p->expected);
}

/* ---- Comparing -------------------------------------------------------------------------------- */

/* Runs one product into a guarded buffer and compares every float with the definition's. */
static void check(const mo_kernels *k, const problem *p, const mo_weights *w, int64_t begin, int64_t end,
                  const int32_t *pick, int64_t count)
{
    const int64_t rows = w->rows;
    const int64_t stride = rows + GUARD;
    float *y = malloc(sizeof(float) * (size_t)(stride * count));
    const float guard = 12345.0f;
    for (int64_t i = 0; i < stride * count; i++) {
        y[i] = guard;
    }
    k->product(w, begin, end, &p->acts, pick, count, y, stride, &scratch);
    for (int64_t t = 0; t < count; t++) {
        const float *want = p->expected + (pick ? pick[t] : t) * rows;
        if (memcmp(y + t * stride + begin, want + begin, sizeof(float) * (size_t)(end - begin)) != 0) {
            for (int64_t r = begin; r < end; r++) {
                if (memcmp(y + t * stride + r, want + r, sizeof(float)) != 0) {
                    fail_msg(
                        "%s %s cols %lld group %d: row %lld of [%lld, %lld), token %lld of %lld: %a, not %a",
                        k->name, mo_format_of(w->type)->name, (long long)w->cols, w->interleave, (long long)r,
                        (long long)begin, (long long)end, (long long)t, (long long)count, y[t * stride + r],
                        want[r]);
                }
            }
        }
        for (int64_t r = 0; r < stride; r++) {
            if ((r < begin || r >= end) && y[t * stride + r] != guard) {
                fail_msg("%s %s wrote outside its rows", k->name, mo_format_of(w->type)->name);
            }
        }
    }
    free(y);
}

typedef void (*visit_fn)(const mo_kernels *k, const problem *p, const mo_weights *w);

/* Visits every instruction set, in the file's layout and in the layout it prefers. */
static void each_set(const problem *p, visit_fn visit)
{
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int i = 0; i < count; i++) {
        if (sets[i] != &mo_kernels_scalar) {
            visit(sets[i], p, &p->plain);
        }
        const int group = sets[i]->interleave ? sets[i]->interleave : 8;
        if (mo_weights_units(p->plain.type)) {
            uint8_t *bytes = guarded(
                (size_t)(p->plain.rows * mo_format_row_bytes(mo_format_of(p->plain.type), p->plain.cols)));
            mo_weights_interleave(&p->plain, group, bytes);
            mo_weights w = p->plain;
            w.data = bytes;
            w.interleave = group;
            visit(sets[i], p, &w);
            guarded_free(bytes);
        }
    }
}

static int64_t small_cols(mo_type type)
{
    const int block = mo_format_of(type)->block_values;
    return block == 256 ? 512 : block == 128 ? 384 : block == 64 ? 192 : 224;
}

/* Formats that are taken apart row by row share all that follows: two of them stand for the others, by their folds, where a
 * test is not about the meaning of bytes. */
static bool stands_for_itself(mo_type type)
{
    return !mo_format_by_row(type) || type == MO_IQ2_XXS || type == MO_IQ2_XS;
}

/* ---- Tests ------------------------------------------------------------------------------------ */

static void visit_batches(const mo_kernels *k, const problem *p, const mo_weights *w)
{
    /* Under sanitizers every third: all remainders of every tile, if not of every number of tiles. */
    const int few = stands_for_itself(w->type) ? 1 : 9;
    const int step = k == &mo_kernels_scalar ? 23 : SANITIZED ? 3 * few : few;
    for (int64_t count = 1; count <= TOKENS_MAX; count += step) {
        check(k, p, w, 0, w->rows, NULL, count);
    }
}

static void every_batch_size(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        problem p = make(types[i], 35, small_cols(types[i]), ORDINARY);
        each_set(&p, visit_batches);
        drop(&p);
    }
}

static void visit_few(const mo_kernels *k, const problem *p, const mo_weights *w)
{
    static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 13, 70};
    for (int i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++) {
        check(k, p, w, 0, w->rows, NULL, counts[i]);
    }
}

static void hostile_values(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        for (int kind = ZEROS; kind < FLAVOURS; kind++) {
            problem p = make(types[i], 19, small_cols(types[i]), (flavour)kind);
            each_set(&p, visit_few);
            drop(&p);
        }
    }
}

/* Rows longer than any chunk a kernel may cut, and the shortest; odd numbers of blocks. */
static void long_and_short_rows(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        const int block = mo_format_of(types[i])->block_values;
        const int64_t lengths[] = {block == 1 ? 32 : block, 2880 / block * block, 4352};
        if (!stands_for_itself(types[i])) {
            continue;
        }
        for (int n = 0; n < 3; n += SANITIZED ? 2 : 1) { /* the definition takes long there */
            problem p = make(types[i], 18, lengths[n], ORDINARY);
            each_set(&p, visit_few);
            drop(&p);
        }
    }
}

/* Formats of one to three bits have ways of their own for few tokens, in spans of 256 columns that are summed eight and more at a time. */
static void few_tokens_along_spans(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        if (mo_format_by_row(types[i])) {
            problem p = make(types[i], 19, SANITIZED ? 512 : 17 * 256, ORDINARY);
            each_set(&p, visit_few);
            drop(&p);
        }
    }
}

/* Of very long rows activations are not prepared all at once. */
static void few_tokens_and_very_long_rows(void **state)
{
    (void)state;
    static const mo_type some[] = {MO_Q4_K,   MO_Q6_K,  MO_NVFP4, MO_IQ1_M, MO_IQ2_XXS,
                                   MO_IQ2_XS, MO_IQ2_S, MO_IQ3_S, MO_TQ2_0};
    for (size_t i = 0; !SANITIZED && i < sizeof some / sizeof *some; i++) {
        problem p = make(some[i], 5, 131 * 256, ORDINARY);
        each_set(&p, visit_few);
        drop(&p);
    }
}

/* Float matrices of odd lengths: the tail enters the lanes, absent elements are skipped. */
static void odd_float_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int64_t cols = 1; cols <= 131; cols += cols < 70 ? 1 : 13) {
            problem p = make(types[i], 5, cols, ORDINARY);
            each_set(&p, visit_few);
            drop(&p);
        }
    }
}

static void visit_four(const mo_kernels *k, const problem *p, const mo_weights *w)
{
    check(k, p, w, 0, w->rows, NULL, 4);
}

/* Float rows of which four do not fit where a kernel lays tokens out. */
static void float_rows_beyond_the_scratch(void **state)
{
    (void)state;
    problem p = make(MO_F32, 4, (int64_t)sizeof(mo_scratch) / 16 + 32, ORDINARY);
    each_set(&p, visit_four);
    drop(&p);
}

static void visit_ranges(const mo_kernels *k, const problem *p, const mo_weights *w)
{
    const int64_t group = w->interleave ? w->interleave : 1;
    uint64_t seed = 5;
    for (int n = 0; n < 24; n++) {
        int32_t pick[TOKENS_MAX];
        const int64_t count = 1 + random_below(&seed, 20);
        for (int64_t t = 0; t < count; t++) {
            pick[t] = (int32_t)random_below(&seed, TOKENS_MAX);
        }
        const int64_t begin = random_below(&seed, w->rows) / group * group;
        const int64_t end = begin + 1 + random_below(&seed, w->rows - begin);
        check(k, p, w, begin, end, n % 2 ? pick : NULL, count);
    }
}

static void row_ranges_and_picks(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        if (stands_for_itself(types[i])) {
            problem p = make(types[i], 53, small_cols(types[i]), ORDINARY);
            each_set(&p, visit_ranges);
            drop(&p);
        }
    }
}

typedef struct share {
    const mo_kernels *k;
    const mo_weights *w;
    const mo_acts *acts;
    float *y;
    int64_t count;
} share;

static void run_share(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const share *s = ctx;
    s->k->product(s->w, begin, end, s->acts, NULL, s->count, s->y, s->w->rows, &scratch);
}

static void visit_threads(const mo_kernels *k, const problem *p, const mo_weights *w)
{
    static const int64_t counts[] = {1, 6, 33};
    for (int threads = 1; threads <= 5; threads++) {
        mo_pool *pool;
        assert_int_equal(mo_pool_create(threads, &pool, NULL), MO_OK);
        for (int i = 0; i < 3; i++) {
            const size_t bytes = sizeof(float) * (size_t)(counts[i] * w->rows);
            share s = {.k = k, .w = w, .acts = &p->acts, .y = malloc(bytes), .count = counts[i]};
            mo_pool_run(pool, w->rows, 16, run_share, &s);
            assert_memory_equal(s.y, p->expected, bytes);
            free(s.y);
        }
        mo_pool_destroy(pool);
    }
}

static void every_thread_count(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        if (stands_for_itself(types[i])) {
            problem p = make(types[i], 131, small_cols(types[i]), ORDINARY);
            each_set(&p, visit_threads);
            drop(&p);
        }
    }
}

/* The definition itself, pinned: the same numbers on every machine and for ever. */
static void fixed_fingerprints(void **state)
{
    (void)state;
    static const uint64_t expected[TYPES] = {
#include "product_fingerprints.inc"
    };
    const bool print = getenv("MO_PRINT_FINGERPRINTS") != NULL;
    for (int i = 0; i < TYPES; i++) {
        uint64_t hash = 0;
        for (int kind = ORDINARY; kind < FLAVOURS; kind++) {
            problem p = make(types[i], 19, small_cols(types[i]), (flavour)kind);
            hash = hash * 31 + fingerprint(p.expected, sizeof(float) * 19 * TOKENS_MAX);
            drop(&p);
        }
        if (print) {
            printf("    0x%016llxu, /* %s */\n", (unsigned long long)hash, mo_format_of(types[i])->name);
        } else if (hash != expected[i]) {
            fail_msg("%s: fingerprint %016llx, not %016llx", mo_format_of(types[i])->name,
                     (unsigned long long)hash, (unsigned long long)expected[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_fingerprints),
        cmocka_unit_test(every_batch_size),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(long_and_short_rows),
        cmocka_unit_test(odd_float_rows),
        cmocka_unit_test(row_ranges_and_picks),
        cmocka_unit_test(every_thread_count),
        cmocka_unit_test(few_tokens_along_spans),
        cmocka_unit_test(float_rows_beyond_the_scratch),
        cmocka_unit_test(few_tokens_and_very_long_rows),
    };
    return cmocka_run_group_tests_name("product", tests, NULL, NULL);
}
