/* Formats: decoding is exact against stored values, encoding is at least as good as the reference
 * quantizer's and safe for any finite input, interleaving is undone by mo_weights_block(). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/quantize/quantize.h"
#include "numeric/weights.h"
#include "random.h"

enum { ROWS = 16, COLS = 512, TYPES = 16, SMALL_TYPES = 11 };

typedef struct stored {
    char name[16];
    uint32_t type;
    long block_values, block_bytes;
    /* Where blocks are in the file, how many values they have, and the fingerprint of these as floats. */
    long raw, raw_bytes, values;
    long random_raw, random_raw_bytes, random_values;
    unsigned long long expected, random_expected;
} stored;

static uint8_t *bin;
static stored types[TYPES];
static int type_count;
/* Formats that are read and not written. */
static uint8_t *small_bin;
static stored small_types[SMALL_TYPES];
static int small_count;

static uint8_t *load_bin(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        return NULL;
    }
    const long bytes = ftell(f);
    rewind(f);
    uint8_t *data = malloc((size_t)bytes);
    if (data && fread(data, 1, (size_t)bytes, f) != (size_t)bytes) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

static int load_index(const char *path, stored *out, int limit)
{
    FILE *index = fopen(path, "r");
    char line[512];
    int count = 0;
    while (index && fgets(line, sizeof line, index) && count < limit) {
        stored *t = &out[count];
        count += sscanf(line,
                        "type %15s %u %ld %ld raw %ld %ld values %ld %llx random_raw %ld %ld values %ld %llx",
                        t->name, &t->type, &t->block_values, &t->block_bytes, &t->raw, &t->raw_bytes,
                        &t->values, &t->expected, &t->random_raw, &t->random_raw_bytes, &t->random_values,
                        &t->random_expected) == 12;
    }
    if (index) {
        fclose(index);
    }
    return count;
}

static int load(void **state)
{
    (void)state;
    bin = load_bin(MO_TEST_DATA "/quants.bin");
    small_bin = load_bin(MO_TEST_DATA "/quants-iq.bin");
    type_count = load_index(MO_TEST_DATA "/quants.txt", types, TYPES);
    small_count = load_index(MO_TEST_DATA "/quants-iq.txt", small_types, SMALL_TYPES);
    return bin && small_bin && type_count == TYPES && small_count == SMALL_TYPES ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    free(bin);
    free(small_bin);
    return 0;
}

static const float *source_row(int r)
{
    return (const float *)(const void *)bin + (size_t)r * COLS;
}

static uint32_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state ^ random_state >> 15;
}

/* ---- Sizes and names -------------------------------------------------------------------------- */

static void check_sizes(const stored *list, int count)
{
    for (int i = 0; i < count; i++) {
        const mo_format *f = mo_format_of(list[i].type);
        assert_non_null(f);
        assert_string_equal(f->name, list[i].name);
        assert_ptr_equal(f, mo_format_named(list[i].name));
        assert_int_equal(f->block_values, list[i].block_values);
        assert_int_equal(f->block_bytes, list[i].block_bytes);
        assert_int_equal(mo_format_row_bytes(f, COLS) * ROWS, list[i].raw_bytes);
        assert_true(f->block_bytes <= MO_BLOCK_BYTES_MAX);
    }
}

static void sizes_are_those_of_the_file(void **state)
{
    (void)state;
    check_sizes(types, type_count);
    check_sizes(small_types, small_count);
    assert_ptr_equal(mo_format_named("q4_k"), mo_format_of(MO_Q4_K));
    assert_null(mo_format_named("q4"));
    assert_null(mo_format_of(31)); /* retired */
    assert_null(mo_format_of(MO_TYPE_LIMIT));
    assert_null(mo_format_of(UINT32_MAX));
}

/* ---- Decoding --------------------------------------------------------------------------------- */

static void check_blocks(mo_type type, const uint8_t *raw, long values, unsigned long long expected,
                         const char *what)
{
    float *out = malloc(sizeof *out * (size_t)values);
    mo_row_dequantize(type, raw, values, out);
    if (fingerprint(out, sizeof *out * (size_t)values) != expected) {
        fail_msg("%s: %s blocks decode differently", mo_format_of(type)->name, what);
    }
    free(out);
}

static void check_values(const uint8_t *data, const stored *list, int count)
{
    for (int i = 0; i < count; i++) {
        const stored *t = &list[i];
        check_blocks((mo_type)t->type, data + t->raw, t->values, t->expected, "quantized");
        check_blocks((mo_type)t->type, data + t->random_raw, t->random_values, t->random_expected, "random");
    }
}

static void decodes_exactly(void **state)
{
    (void)state;
    check_values(bin, types, type_count);
    check_values(small_bin, small_types, small_count);
}

/* ---- Halves ----------------------------------------------------------------------------------- */

static void halves_come_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        const float x = mo_f16_to_f32((uint16_t)h);
        const float y = mo_bf16_to_f32((uint16_t)h);
        if ((h & 0x7FFF) > 0x7C00) {
            assert_true(isnan(x));
            assert_int_equal(mo_f32_to_f16(x), (h & 0x8000) | 0x7E00);
        } else {
            assert_int_equal(mo_f32_to_f16(x), h);
        }
        if ((h & 0x7FFF) > 0x7F80) {
            assert_true(isnan(y) && isnan(mo_bf16_to_f32(mo_f32_to_bf16(y))));
        } else {
            assert_int_equal(mo_f32_to_bf16(y), h);
        }
    }
}

/* The definition of rounding, slowly: of the two neighbours the nearer, of two equally near the even. */
static void check_rounding(float x, uint16_t h, float (*decode)(uint16_t), uint16_t infinity)
{
    assert_int_equal(h >> 15, mo_bits_of(x) >> 31);
    const uint16_t m = h & 0x7FFF;
    const double a = fabs((double)x);
    if (m == infinity) { /* halfway from the largest to where the next would be, or more */
        const double largest = decode((uint16_t)(infinity - 1));
        const double step = largest - (double)decode((uint16_t)(infinity - 2));
        assert_true(a >= largest + step / 2);
        return;
    }
    const double miss = fabs(a - (double)decode(m));
    const double below = m ? fabs(a - (double)decode((uint16_t)(m - 1))) : INFINITY;
    const double above = m + 1 < infinity ? fabs(a - (double)decode((uint16_t)(m + 1))) : INFINITY;
    assert_true(miss <= below && miss <= above);
    if (miss == below || miss == above) {
        assert_int_equal(m & 1, 0);
    }
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h += 7) { /* every kind of tie, and a bit beside it */
        const float a = mo_f16_to_f32((uint16_t)h);
        const float b = h + 1 < 0x7C00 ? mo_f16_to_f32((uint16_t)(h + 1)) : 65536.0f;
        const uint32_t tie = mo_bits_of((a + b) / 2);
        for (uint32_t bits = tie - (tie > 0); bits <= tie + 1; bits++) {
            check_rounding(mo_float_of(bits), mo_f32_to_f16(mo_float_of(bits)), mo_f16_to_f32, 0x7C00);
        }
    }
    for (int i = 0; i < 200000; i++) {
        const float x = mo_float_of(random_u32());
        if (isfinite(x)) {
            check_rounding(x, mo_f32_to_f16(x), mo_f16_to_f32, 0x7C00);
            check_rounding(x, mo_f32_to_bf16(x), mo_bf16_to_f32, 0x7F80);
        }
        const float y = mo_float_of((random_u32() & 0x8FFFFFFF) | 0x30000000); /* where halves live */
        check_rounding(y, mo_f32_to_f16(y), mo_f16_to_f32, 0x7C00);
    }
    assert_int_equal(mo_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(mo_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(mo_f32_to_f16(-INFINITY), 0xFC00);
}

static void small_scales_are_powers_of_two(void **state)
{
    (void)state;
    for (int e = 0; e < 256; e++) {
        assert_true((double)mo_e8m0_half((uint8_t)e) == ldexp(1.0, e - 128));
    }
    for (int b = 0; b < 0x7F; b++) {
        const int x = b >> 3;
        const double expected = x ? ldexp(8 + (b & 7), x - 10) : ldexp(b & 7, -9);
        assert_true((double)mo_ue4m3_to_f32((uint8_t)b) == expected);
    }
    assert_true(mo_ue4m3_to_f32(0x7F) == 0.0f);
}

/* ---- Checks ----------------------------------------------------------------------------------- */

static void check_refuses_wild_exponents(void **state)
{
    (void)state;
    uint8_t blocks[3 * 17] = {0};
    mo_error err;
    blocks[0] = blocks[17] = blocks[34] = 200;
    assert_int_equal(mo_format_check(MO_MXFP4, blocks, sizeof blocks, &err), MO_OK);
    blocks[34] = 201;
    assert_int_equal(mo_format_check(MO_MXFP4, blocks, sizeof blocks, &err), MO_EFORMAT);
    assert_non_null(strstr(err.detail, "block 2"));
    assert_int_equal(mo_format_check(MO_MXFP4, blocks, 34, NULL), MO_OK);
    memset(blocks, 255, sizeof blocks);
    assert_int_equal(mo_format_check(MO_Q4_K, blocks, sizeof blocks, &err), MO_OK);
}

/* ---- Interleaving ----------------------------------------------------------------------------- */

static void interleaving_is_undone(void **state)
{
    (void)state;
    enum { WIDTH = 768, MOST_ROWS = 37 };
    static const int64_t row_counts[] = {1, 3, 8, 16, 19, MOST_ROWS};
    uint8_t *plain = malloc(MOST_ROWS * WIDTH * 4);
    uint8_t *mixed = malloc(MOST_ROWS * WIDTH * 4);
    for (int i = 0; i < type_count; i++) {
        const mo_format *f = mo_format_of(types[i].type);
        const int64_t row_bytes = mo_format_row_bytes(f, WIDTH);
        for (int64_t b = 0; b < MOST_ROWS * row_bytes; b++) {
            plain[b] = (uint8_t)random_u32();
        }
        for (int group = 4; group <= 16; group *= 2) {
            for (size_t n = 0; n < sizeof row_counts / sizeof *row_counts; n++) {
                const mo_weights from = {plain, f->type, 0, row_counts[n], WIDTH};
                const size_t bytes = (size_t)(row_counts[n] * row_bytes);
                memset(mixed, 0xA5, bytes + 1);
                mo_weights_interleave(&from, group, mixed);
                assert_int_equal(mixed[bytes], 0xA5);
                const mo_weights to = {mixed, f->type, group, row_counts[n], WIDTH};
                for (int64_t r = 0; r < row_counts[n]; r++) {
                    for (int64_t b = 0; b < WIDTH / f->block_values; b++) {
                        uint8_t space[MO_BLOCK_BYTES_MAX];
                        const uint8_t *block = mo_weights_block(&to, r, b, space);
                        if (memcmp(block, plain + r * row_bytes + b * f->block_bytes,
                                   (size_t)f->block_bytes) != 0) {
                            fail_msg("%s, groups of %d: row %d block %d differs", f->name, group, (int)r,
                                     (int)b);
                        }
                    }
                }
            }
        }
        int units = 0;
        for (const mo_unit_run *run = mo_weights_units(f->type); run && run->count; run++) {
            assert_int_equal(run->offset, units);
            units += run->count * run->size;
        }
        assert_int_equal(units, f->kind == MO_KIND_FLOAT ? 0 : f->block_bytes);
    }
    free(plain);
    free(mixed);
}

/* ---- Encoding --------------------------------------------------------------------------------- */

static double squared_distance(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sum;
}

static void encodes_as_well_as_the_reference(void **state)
{
    (void)state;
    double size = 0.0;
    for (int i = 0; i < ROWS * COLS; i++) {
        size += (double)source_row(0)[i] * (double)source_row(0)[i];
    }
    for (int i = 0; i < type_count; i++) {
        const stored *t = &types[i];
        double ours = 0.0;
        double theirs = 0.0;
        for (int r = 0; r < ROWS; r++) {
            uint8_t row[COLS * 4];
            float out[COLS];
            assert_int_equal(mo_row_quantize((mo_type)t->type, source_row(r), COLS, row, NULL), MO_OK);
            mo_row_dequantize((mo_type)t->type, row, COLS, out);
            ours += squared_distance(out, source_row(r), COLS);
            mo_row_dequantize((mo_type)t->type, bin + t->raw + (size_t)r * (size_t)(t->raw_bytes / ROWS),
                              COLS, out);
            theirs += squared_distance(out, source_row(r), COLS);
        }
        print_message("%-7s error %.6f of the values' size, reference %.6f\n", t->name, sqrt(ours / size),
                      sqrt(theirs / size));
        if (ours > theirs) {
            fail_msg("%s: encoded with a larger error than the reference's", t->name);
        }
    }
}

static void decoded_values_encode_to_themselves(void **state)
{
    (void)state;
    static const mo_type stable[] = {MO_F32, MO_F16, MO_BF16, MO_Q8_0, MO_Q4_0, MO_Q5_0, MO_MXFP4, MO_NVFP4};
    for (size_t i = 0; i < sizeof stable / sizeof *stable; i++) {
        for (int r = 0; r < ROWS; r++) {
            uint8_t row[COLS * 4];
            float once[COLS];
            float twice[COLS];
            assert_int_equal(mo_row_quantize(stable[i], source_row(r), COLS, row, NULL), MO_OK);
            mo_row_dequantize(stable[i], row, COLS, once);
            assert_int_equal(mo_row_quantize(stable[i], once, COLS, row, NULL), MO_OK);
            mo_row_dequantize(stable[i], row, COLS, twice);
            for (int c = 0; c < COLS; c++) {
                if (once[c] != twice[c]) { /* -0 and +0 are equal */
                    fail_msg("%s: row %d column %d: %g became %g", mo_format_of(stable[i])->name, r, c,
                             (double)once[c], (double)twice[c]);
                }
            }
        }
    }
}

/* One kind of difficult row. */
static void fill_edge(int kind, float *x)
{
    for (int i = 0; i < COLS; i++) {
        const float noise = (float)(int32_t)random_u32() * 0x1p-31f;
        switch (kind) {
        case 0: x[i] = 0.0f; break;
        case 1: x[i] = -0.0f; break;
        case 2: x[i] = i == 100 ? -7.25f : 0.0f; break;
        case 3: x[i] = i == 100 ? 3e38f : noise; break;
        case 4: x[i] = mo_float_of(random_u32() & 0x807FFFFF); break; /* subnormal */
        case 5: x[i] = noise * 3e38f; break;
        case 6: x[i] = noise * 1e-30f; break;
        case 7: x[i] = i % 2 ? 3.4028235e38f : -3.4028235e38f; break;
        case 8: x[i] = 5.5f; break;
        case 9: x[i] = -1e-7f; break;
        case 10: x[i] = mo_float_of(1); break;
        case 11: x[i] = noise * 6e4f; break;
        default: x[i] = i < 256 ? 1e20f : noise * 1e-20f; break;
        }
    }
}

static void edges_stay_finite(void **state)
{
    (void)state;
    for (int kind = 0; kind <= 12; kind++) {
        float x[COLS];
        fill_edge(kind, x);
        double most = 0.0;
        for (int i = 0; i < COLS; i++) {
            most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
        }
        for (int i = 0; i < type_count; i++) {
            const mo_type type = (mo_type)types[i].type;
            const mo_format *f = mo_format_of(type);
            uint8_t row[COLS * 4 + 1];
            float out[COLS];
            const size_t bytes = (size_t)mo_format_row_bytes(f, COLS);
            row[bytes] = 0x5A;
            assert_int_equal(mo_row_quantize(type, x, COLS, row, NULL), MO_OK);
            assert_int_equal(row[bytes], 0x5A);
            assert_int_equal(mo_format_check(type, row, (int64_t)bytes, NULL), MO_OK);
            mo_row_dequantize(type, row, COLS, out);
            for (int c = 0; c < COLS; c++) {
                /* 16-bit roundings, and half a step of a coarse scale, may pass the largest value. */
                if (!isfinite(out[c]) || fabs((double)out[c]) > most * 1.5) {
                    fail_msg("%s: edge %d column %d: %g became %g", f->name, kind, c, (double)x[c],
                             (double)out[c]);
                }
                if (kind < 2) {
                    assert_true(out[c] == 0.0f);
                }
            }
        }
    }
}

static void quantize_says_what_is_wrong(void **state)
{
    (void)state;
    float x[32] = {0};
    uint8_t out[64];
    mo_error err;
    assert_int_equal(mo_row_quantize(MO_I32, x, 32, out, &err), MO_EINVAL);
    assert_int_equal(mo_row_quantize((mo_type)31, x, 32, out, &err), MO_EINVAL);
    assert_int_equal(mo_row_quantize(MO_Q2_0, x, 0, out, &err), MO_EINVAL); /* read, not written */
    assert_int_equal(mo_row_quantize(MO_Q8_0, x, 31, out, &err), MO_EINVAL);
    assert_int_equal(mo_row_quantize(MO_Q8_0, x, -32, out, &err), MO_EINVAL);
    x[7] = NAN;
    assert_int_equal(mo_row_quantize(MO_Q8_0, x, 32, out, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "column 7"));
    x[7] = -INFINITY;
    assert_int_equal(mo_row_quantize(MO_F16, x, 32, out, &err), MO_EINVAL);
}

/* Bytes of every format, hashed: the encoder must choose the same on every machine. */
static void encodes_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < type_count; i++) {
        const mo_format *f = mo_format_of(types[i].type);
        for (int r = 0; r < ROWS; r++) {
            uint8_t row[COLS * 4];
            assert_int_equal(mo_row_quantize(f->type, source_row(r), COLS, row, NULL), MO_OK);
            for (int64_t b = 0; b < mo_format_row_bytes(f, COLS); b++) {
                hash = (hash ^ row[b]) * 0x100000001B3u;
            }
        }
    }
    assert_true(hash == 0xF9E3C54A6765AC51u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_file),
        cmocka_unit_test(decodes_exactly),
        cmocka_unit_test(halves_come_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(small_scales_are_powers_of_two),
        cmocka_unit_test(check_refuses_wild_exponents),
        cmocka_unit_test(interleaving_is_undone),
        cmocka_unit_test(encodes_as_well_as_the_reference),
        cmocka_unit_test(decoded_values_encode_to_themselves),
        cmocka_unit_test(edges_stay_finite),
        cmocka_unit_test(quantize_says_what_is_wrong),
        cmocka_unit_test(encodes_the_same_everywhere),
    };
    return cmocka_run_group_tests_name("format", tests, load, unload);
}
