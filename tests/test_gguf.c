/* The container: what is written is read back; what is damaged is refused with a sentence, never with a
 * crash; memory is asked for only as far as the file's own size covers it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input.h"
#include "failing_memory.h"
#include "folder.h"
#include "gguf/read.h"
#include "gguf/summary.h"
#include "gguf/write.h"
#include "gguf_file.h"

static mo_file_format formats[MO_TYPE_LIMIT]; /* of the last summary */

/* ---- Helpers ---- */

typedef struct image {
    uint8_t *bytes;
    size_t size;
} image;

static image image_of(mo_gguf_writer *w)
{
    image im = {0};
    mo_error err = {0};
    if (mo_gguf_writer_layout(w, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    im.bytes = gguf_bytes(w, NULL, &im.size);
    assert_non_null(im.bytes);
    mo_gguf_writer_destroy(w);
    return im;
}

/* Opens an exact copy, so that a sanitizer sees a read past the end; exercises everything on success. */
static mo_status try_open(const uint8_t *bytes, size_t size, mo_error *err)
{
    uint8_t *copy = malloc(size ? size : 1);
    mo_gguf *g = NULL;
    mo_file_info summary;
    mo_error ignored;
    memcpy(copy, bytes, size);
    memset(err, 0, sizeof *err);
    mo_status s = mo_gguf_open_memory(copy, size, "test.gguf", &g, err);
    free(copy);
    if (s != MO_OK) {
        assert_null(g);
        assert_int_equal(err->status, s);
        assert_true(strlen(err->detail) > 20);
        return s;
    }
    mo_gguf_summarize(g, &summary, formats, &ignored);
    for (int64_t i = 0; i < mo_gguf_entry_count(g); i++) {
        char text[64];
        mo_gguf_entry_text(g, mo_gguf_entry_at(g, i), 100, text, sizeof text);
        assert_true(strlen(text) < sizeof text);
    }
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        assert_true(t->offset >= 0 && t->bytes > 0 && t->offset + t->bytes <= (int64_t)size);
        assert_ptr_equal(mo_gguf_tensor_find(g, t->name), t);
    }
    mo_gguf_close(g);
    return MO_OK;
}

static void expect_refused(const uint8_t *bytes, size_t size, mo_status status, const char *words)
{
    mo_error err;
    assert_int_equal(try_open(bytes, size, &err), status);
    if (!strstr(err.detail, words) || !strstr(err.detail, "test.gguf")) {
        fail_msg("\"%s\" does not say \"%s\"", err.detail, words);
    }
}

static mo_gguf_writer *small_model(void)
{
    static const int64_t matrix[] = {32, 4}, vector[] = {32};
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_u32(w, "llama.block_count", 1);
    mo_gguf_put_f32(w, "llama.eps", 0.001f);
    mo_gguf_put_texts(w, "tokenizer.ggml.tokens", (mo_text[]){{"a", 1}, {"", 0}, {"xyz", 3}}, 3);
    mo_gguf_put_array(w, "flags", MO_VALUE_BOOL, (uint8_t[]){1, 0, 1}, 3);
    mo_gguf_put_tensor(w, "token_embd.weight", MO_Q8_0, 2, matrix);
    mo_gguf_put_tensor(w, "output_norm.weight", MO_F32, 1, vector);
    mo_gguf_put_tensor(w, "blk.0.attn_q.weight", MO_Q4_0, 2, matrix);
    return w;
}

/* ---- Round trips ---- */

static void put_every_type(mo_gguf_writer *w)
{
    mo_gguf_put_string(w, "general.architecture", "test");
    mo_gguf_put_u8(w, "u8", 200);
    mo_gguf_put_i8(w, "i8", -100);
    mo_gguf_put_u16(w, "u16", 60000);
    mo_gguf_put_i16(w, "i16", -30000);
    mo_gguf_put_u32(w, "u32", 4000000000u);
    mo_gguf_put_i32(w, "i32", -2000000000);
    mo_gguf_put_u64(w, "u64", UINT64_MAX);
    mo_gguf_put_i64(w, "i64", INT64_MIN);
    mo_gguf_put_f32(w, "f32", 0.1f);
    mo_gguf_put_f64(w, "f64", 0.1);
    mo_gguf_put_bool(w, "bool", true);
    mo_gguf_put_text(w, "text", (mo_text){"a\0b\n\x1b", 5});
    mo_gguf_put_array(w, "u16s", MO_VALUE_U16, (uint16_t[]){1, 2, 65535}, 3);
    mo_gguf_put_array(w, "f32s", MO_VALUE_F32, (float[]){1.5f, -0.0f}, 2);
    mo_gguf_put_array(w, "none", MO_VALUE_I32, NULL, 0);
    mo_gguf_put_texts(w, "texts", (mo_text[]){{"one", 3}, {"", 0}, {"\"th\0ree", 7}}, 3);
}

static void check_scalars(const mo_gguf *g)
{
    mo_error err;
    int64_t i;
    uint32_t u;
    float f;
    bool b;
    const char *s;
    assert_int_equal(mo_gguf_i64_or(g, "u8", 7, &i, &err), MO_OK);
    assert_int_equal(i, 200);
    assert_int_equal(mo_gguf_i64_or(g, "i8", 7, &i, &err), MO_OK);
    assert_int_equal(i, -100);
    assert_int_equal(mo_gguf_i64_or(g, "i16", 7, &i, &err), MO_OK);
    assert_int_equal(i, -30000);
    assert_int_equal(mo_gguf_i64_or(g, "i32", 7, &i, &err), MO_OK);
    assert_int_equal(i, -2000000000);
    assert_int_equal(mo_gguf_i64_or(g, "i64", 7, &i, &err), MO_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(mo_gguf_u32_or(g, "u16", 7, &u, &err), MO_OK);
    assert_int_equal(u, 60000);
    assert_int_equal(mo_gguf_u32_or(g, "u32", 7, &u, &err), MO_OK);
    assert_true(u == 4000000000u);
    assert_int_equal(mo_gguf_u32_or(g, "i8", 7, &u, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_i64_or(g, "u64", 7, &i, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_f32(g, "absent", &f, &err), MO_ENOENT);
    assert_non_null(strstr(err.detail, "absent"));
    assert_int_equal(mo_gguf_i64_or(g, "absent", 7, &i, &err), MO_OK);
    assert_int_equal(i, 7);
    assert_int_equal(mo_gguf_f32(g, "f32", &f, &err), MO_OK);
    assert_true(f == 0.1f);
    assert_int_equal(mo_gguf_f32(g, "f64", &f, &err), MO_OK);
    assert_true(f == 0.1f);
    assert_int_equal(mo_gguf_f32(g, "text", &f, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_bool_or(g, "bool", false, &b, &err), MO_OK);
    assert_true(b);
    assert_int_equal(mo_gguf_bool_or(g, "u8", false, &b, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_string(g, "general.architecture", &s, &err), MO_OK);
    assert_string_equal(s, "test");
    assert_int_equal(mo_gguf_string(g, "text", &s, &err), MO_EFORMAT); /* a NUL inside */
    assert_int_equal(mo_gguf_string(g, "u8", &s, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_string_or(g, "absent", "x", &s, &err), MO_OK);
    assert_string_equal(s, "x");
}

static void check_text(const mo_gguf *g, const char *key, uint64_t max, const char *expected)
{
    char text[128], cut[6];
    size_t n = mo_gguf_entry_text(g, mo_gguf_find(g, key), max, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
    assert_int_equal(mo_gguf_entry_text(g, mo_gguf_find(g, key), max, cut, sizeof cut), n);
    assert_memory_equal(cut, expected, n < 5 ? n : 5);
    assert_int_equal(mo_gguf_entry_text(g, mo_gguf_find(g, key), max, NULL, 0), n);
}

static void test_every_type(void **state)
{
    (void)state;
    mo_gguf_writer *w = mo_gguf_writer_create(64);
    mo_gguf *g;
    mo_error err;
    mo_value v;
    int64_t i;
    const mo_gguf_entry *e;
    put_every_type(w);
    image im = image_of(w);
    assert_int_equal(mo_gguf_open_memory(im.bytes, im.size, "test.gguf", &g, &err), MO_OK);
    free(im.bytes);
    assert_int_equal(mo_gguf_entry_count(g), 18);
    check_scalars(g);
    assert_true(mo_gguf_entry_value(g, mo_gguf_find(g, "u64"), 0, &v));
    assert_true(v.as.u == UINT64_MAX);
    assert_true(mo_gguf_entry_value(g, mo_gguf_find(g, "text"), 0, &v));
    assert_int_equal(v.as.s.length, 5);
    assert_memory_equal(v.as.s.data, "a\0b\n\x1b", 5);
    assert_int_equal(mo_gguf_array(g, "texts", MO_VALUE_STRING, &e, &err), MO_OK);
    assert_true(mo_gguf_entry_value(g, e, 2, &v));
    assert_int_equal(v.as.s.length, 7);
    assert_memory_equal(v.as.s.data, "\"th\0ree", 7);
    assert_false(mo_gguf_entry_value(g, e, 3, &v));
    assert_int_equal(mo_gguf_array(g, "u16s", MO_VALUE_I64, &e, &err), MO_OK);
    assert_int_equal(mo_gguf_array(g, "f32s", MO_VALUE_I64, &e, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_array(g, "u8", MO_VALUE_U8, &e, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_i64_of(g, "u16s", 2, &i, &err), MO_OK);
    assert_int_equal(i, 65535);
    assert_int_equal(mo_gguf_i64_of(g, "u16s", 3, &i, &err), MO_EFORMAT);
    assert_int_equal(mo_gguf_i64_of(g, "u8", 3, &i, &err), MO_OK);
    assert_int_equal(i, 200);
    assert_true(mo_gguf_entry_value(g, mo_gguf_find(g, "f32s"), 1, &v));
    assert_true(v.as.r == 0.0 && signbit(v.as.r));
    check_text(g, "i64", 9, "-9223372036854775808");
    check_text(g, "u64", 9, "18446744073709551615");
    check_text(g, "f32", 9, "0.1");
    check_text(g, "f64", 9, "0.1");
    check_text(g, "bool", 9, "true");
    check_text(g, "text", 9, "a\\x00b\\n\\x1b");
    check_text(g, "u16s", 9, "[1, 2, 65535]");
    check_text(g, "u16s", 2, "[1, 2, ...]");
    check_text(g, "none", 9, "[]");
    check_text(g, "texts", 9, "[\"one\", \"\", \"\\\"th\\x00ree\"]");
    mo_gguf_close(g);
}

/* Every tensor type: bytes as the format says, places as the writer announced. */
static void test_every_format(void **state)
{
    (void)state;
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_error err;
    const void *data[64] = {0};
    uint8_t *content[64] = {0};
    int64_t count = 0;
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        const mo_format *f = mo_format_of(type);
        if (f) {
            const int64_t size[] = {256, 3, 2};
            char name[32];
            snprintf(name, sizeof name, "t.%s", f->name);
            assert_int_equal(mo_gguf_put_tensor(w, name, f->type, 3, size), count);
            size_t bytes = (size_t)mo_format_row_bytes(f, 256) * 6;
            content[count] = malloc(bytes);
            memset(content[count], (int)type + 1, bytes);
            data[count] = content[count];
            count++;
        }
    }
    assert_int_equal(mo_gguf_writer_layout(w, &err), MO_OK);
    size_t size = 0;
    mo_gguf *g;
    uint8_t *bytes = gguf_bytes(w, data, &size);
    assert_non_null(bytes);
    assert_int_equal(mo_gguf_open_memory(bytes, size, "test.gguf", &g, &err), MO_OK);
    assert_int_equal(mo_gguf_tensor_count(g), count);
    for (int64_t i = 0; i < count; i++) {
        const mo_gguf_tensor *read = mo_gguf_tensor_at(g, i), *written = mo_gguf_writer_tensor(w, i);
        assert_string_equal(read->name, written->name);
        assert_ptr_equal(read->format, written->format);
        assert_int_equal(read->offset, written->offset);
        assert_int_equal(read->offset % 32, 0);
        assert_int_equal(read->bytes, mo_format_row_bytes(read->format, 256) * 6);
        assert_int_equal(read->values, 256 * 6);
        assert_int_equal(read->dims, 3);
        assert_int_equal(read->size[3], 1);
        assert_memory_equal(bytes + read->offset, content[i], (size_t)read->bytes);
        free(content[i]);
    }
    assert_null(mo_gguf_tensor_find(g, "t.absent"));
    mo_gguf_close(g);
    mo_gguf_writer_destroy(w);
    free(bytes);
}

/* The writer refuses what the reader would. */
static void test_writer_refuses(void **state)
{
    (void)state;
    const int64_t size[] = {32, 2}, odd[] = {33}, zero[] = {0}, huge[] = {INT64_MAX / 2, 4};
    for (int which = 0; which < 8; which++) {
        mo_gguf_writer *w = mo_gguf_writer_create(which == 7 ? 48 : 0);
        mo_error err = {0};
        char name[80];
        memset(name, 'n', sizeof name);
        name[64] = 0;
        mo_gguf_put_tensor(w, "a", MO_Q8_0, 2, size);
        switch (which) {
        case 0: mo_gguf_put_tensor(w, "a", MO_F32, 2, size); break;
        case 1: mo_gguf_put_tensor(w, "b", MO_Q8_0, 1, odd); break;
        case 2: mo_gguf_put_tensor(w, "b", MO_F32, 1, zero); break;
        case 3: mo_gguf_put_tensor(w, "b", MO_F32, 2, huge); break;
        case 4: mo_gguf_put_tensor(w, name, MO_F32, 2, size); break;
        case 5: mo_gguf_put_tensor(w, "b", (mo_type)4, 2, size); break;
        case 6:
            mo_gguf_put_u8(w, "k", 1);
            mo_gguf_put_u8(w, "k", 2);
            break;
        }
        assert_int_equal(mo_gguf_writer_layout(w, &err), MO_EINVAL);
        assert_true(strlen(err.detail) > 5);
        mo_gguf_writer_destroy(w);
    }
}

/* ---- Split models ---- */

static void part_path(char *path, size_t size, const char *prefix, int no, int count)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", folder, prefix);
    assert_int_equal(mo_gguf_part_name(full, no, count, path, size, NULL), MO_OK);
}

static void write_split(const char *prefix, uint32_t alignment)
{
    mo_gguf_writer *w = mo_gguf_writer_create(alignment);
    char path[256];
    float values[8][4];
    const void *data[8];
    put_every_type(w);
    for (int i = 0; i < 8; i++) {
        char name[16];
        const int64_t size[] = {4};
        snprintf(name, sizeof name, "t%d", i);
        mo_gguf_put_tensor(w, name, MO_F32, 1, size);
        for (int j = 0; j < 4; j++) {
            values[i][j] = (float)(10 * i + j);
        }
        data[i] = values[i];
    }
    snprintf(path, sizeof path, "%s/%s", folder, prefix);
    assert_true(gguf_save_split(w, alignment, path, 3, data));
    mo_gguf_writer_destroy(w);
}

static void test_split(void **state)
{
    (void)state;
    for (uint32_t alignment = 0; alignment <= 128; alignment += 128) {
        char path[256];
        mo_gguf *g;
        mo_error err = {0};
        write_split("s", alignment);
        part_path(path, sizeof path, "s", 0, 3);
        if (mo_gguf_open(path, &g, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        assert_int_equal(mo_gguf_parts(g), 3);
        assert_int_equal(mo_gguf_tensor_count(g), 8);
        check_scalars(g);
        for (int i = 0; i < 8; i++) {
            const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
            mo_input *input;
            float values[4];
            assert_int_equal(t->part, i / 3);
            assert_int_equal(mo_input_open(mo_gguf_part_path(g, t->part), &input, &err), MO_OK);
            assert_int_equal(mo_input_read_at(input, values, sizeof values, (uint64_t)t->offset, &err),
                             MO_OK);
            assert_true(values[3] == (float)(10 * i + 3));
            mo_input_close(input);
        }
        mo_gguf_close(g);
    }
}

static void expect_path_refused(const char *path, mo_status status, const char *words)
{
    mo_gguf *g;
    mo_error err = {0};
    assert_int_equal(mo_gguf_open(path, &g, &err), status);
    assert_null(g);
    if (!strstr(err.detail, words)) {
        fail_msg("\"%s\" does not say \"%s\"", err.detail, words);
    }
}

/* Writes text into a file, `skip` bytes behind the end of a mark. 0: over the mark itself. */
static void patch(const char *path, const char *mark, size_t skip, const char *text)
{
    char bytes[8192];
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    const char *at = memmem(bytes, n, mark, strlen(mark));
    assert_non_null(at);
    at += skip ? strlen(mark) + skip : 0;
    fseek(f, at - bytes, SEEK_SET);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static void test_split_damaged(void **state)
{
    (void)state;
    char first[256], second[256], third[256], other[300];
    write_split("d", 0);
    part_path(first, sizeof first, "d", 0, 3);
    part_path(second, sizeof second, "d", 1, 3);
    part_path(third, sizeof third, "d", 2, 3);
    expect_path_refused(second, MO_EINVAL, first);

    snprintf(other, sizeof other, "%s/renamed.gguf", folder); /* the others cannot be found */
    assert_int_equal(rename(first, other), 0);
    expect_path_refused(other, MO_EFORMAT, "-00001-of-00003.gguf");
    assert_int_equal(rename(other, first), 0);

    assert_int_equal(rename(second, other), 0);
    expect_path_refused(first, MO_ENOENT, "part 2 of 3");
    assert_int_equal(link(third, second), 0); /* mixed up */
    expect_path_refused(first, MO_EFORMAT, "part 3 of 3, but part 2 of 3");
    assert_int_equal(unlink(second), 0);
    assert_int_equal(rename(other, second), 0);

    struct stat st;
    assert_int_equal(stat(third, &st), 0);
    assert_int_equal(truncate(third, st.st_size - 17), 0); /* the last tensor ends in padding */
    expect_path_refused(first, MO_EFORMAT, "cut short: 1 bytes are missing");

    write_split("d", 0);
    patch(third, "t7", 0, "t0"); /* also in the first part: only the whole shows it */
    expect_path_refused(first, MO_EFORMAT, "tensor t0 occurs twice");
    patch(third, "t0", 0, "t7");
    patch(first, "split.tensors.count", 4, "\x09"); /* behind the type */
    expect_path_refused(first, MO_EFORMAT, "should have 9 tensors");
    patch(first, "split.count", 4, "\x02");
    expect_path_refused(first, MO_EFORMAT, "-00001-of-00002.gguf");
    patch(first, "split.count", 5, "\xff");
    expect_path_refused(first, MO_EFORMAT, "not possible");
}

static void test_real_split(void **state)
{
    (void)state;
    mo_gguf *whole, *split;
    mo_error err = {0};
    assert_int_equal(mo_gguf_open(MO_TEST_DATA "/oracle/llama31.gguf", &whole, &err), MO_OK);
    assert_int_equal(mo_gguf_open(MO_TEST_DATA "/llama31-split-00001-of-00003.gguf", &split, &err), MO_OK);
    assert_int_equal(mo_gguf_tensor_count(whole), mo_gguf_tensor_count(split));
    mo_input *one, *parts[3];
    assert_int_equal(mo_input_open(mo_gguf_part_path(whole, 0), &one, &err), MO_OK);
    for (int p = 0; p < 3; p++) {
        assert_int_equal(mo_input_open(mo_gguf_part_path(split, p), &parts[p], &err), MO_OK);
    }
    for (int64_t i = 0; i < mo_gguf_tensor_count(whole); i++) {
        const mo_gguf_tensor *a = mo_gguf_tensor_at(whole, i), *b = mo_gguf_tensor_find(split, a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        uint8_t *x = malloc((size_t)a->bytes), *y = malloc((size_t)a->bytes);
        assert_int_equal(mo_input_read_at(one, x, (size_t)a->bytes, (uint64_t)a->offset, &err), MO_OK);
        assert_int_equal(mo_input_read_at(parts[b->part], y, (size_t)b->bytes, (uint64_t)b->offset, &err),
                         MO_OK);
        assert_memory_equal(x, y, (size_t)a->bytes);
        free(x);
        free(y);
    }
    mo_input_close(one);
    for (int p = 0; p < 3; p++) {
        mo_input_close(parts[p]);
    }
    mo_gguf_close(whole);
    mo_gguf_close(split);
}

/* ---- Damage ---- */

static void test_every_truncation(void **state)
{
    (void)state;
    image im = image_of(small_model());
    mo_error err;
    size_t shortest = 0; /* that opens: only padding may be missing */
    for (size_t n = 0; n <= im.size; n++) {
        mo_status s = try_open(im.bytes, n, &err);
        if (s == MO_OK && !shortest) {
            shortest = n;
        }
        assert_true(s == MO_OK || s == MO_EFORMAT);
        assert_true(!shortest || s == MO_OK);
    }
    assert_true(shortest && im.size - shortest < 32);
    expect_refused(im.bytes, shortest - 1, MO_EFORMAT, "cut short: 1 bytes are missing");
    free(im.bytes);
}

static void test_every_corruption(void **state)
{
    (void)state;
    image im = image_of(small_model());
    mo_error err;
    int opened = 0;
    for (size_t at = 0; at < im.size; at++) {
        const uint8_t was = im.bytes[at];
        const uint8_t tries[] = {
            0, 1, 0x7f, 0x80, 0xff, was ^ 1, was ^ 0x80, (uint8_t)(was + 1), (uint8_t)(was - 1)};
        for (size_t i = 0; i < sizeof tries; i++) {
            im.bytes[at] = tries[i];
            largest_request = 0;
            opened += try_open(im.bytes, im.size, &err) == MO_OK;
            assert_true(largest_request <= 4 << 20); /* layer number 65535 in a name is the largest */
        }
        im.bytes[at] = was;
    }
    assert_true(opened > 0);
    free(im.bytes);
}

/* A header by hand: everything the writer would not write. */
typedef struct craft {
    uint8_t bytes[4096];
    size_t size;
} craft;

static void put(craft *c, const void *bytes, size_t n)
{
    memcpy(c->bytes + c->size, bytes, n);
    c->size += n;
}

static void put32(craft *c, uint32_t v)
{
    put(c, &v, 4);
}

static void put64(craft *c, uint64_t v)
{
    put(c, &v, 8);
}

static void put_name(craft *c, const char *name)
{
    put64(c, strlen(name));
    put(c, name, strlen(name));
}

static craft begin(uint32_t version, uint64_t tensors, uint64_t keys)
{
    craft c = {.size = 0};
    put(&c, "GGUF", 4);
    put32(&c, version);
    put64(&c, tensors);
    put64(&c, keys);
    return c;
}

static void put_tensor(craft *c, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type, uint64_t offset)
{
    put_name(c, name);
    put32(c, 2);
    put64(c, ne0);
    put64(c, ne1);
    put32(c, type);
    put64(c, offset);
}

static void pad(craft *c, size_t data)
{
    c->size = (c->size + 31) / 32 * 32 + data;
}

static void test_beginnings(void **state)
{
    (void)state;
    const struct {
        const char *bytes, *words;
    } others[] = {
        {"<!DOCTYPE html><html>", "web page"},
        {"version https://git-lfs", "LFS"},
        {"GGMLxxxxxxxx", "older format"},
        {"\x93NUMPY\x01", "starts with the bytes 93"},
        {"FUGGxxxx", "big-endian"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        expect_refused((const uint8_t *)others[i].bytes, strlen(others[i].bytes), MO_EFORMAT,
                       others[i].words);
    }
    expect_refused((const uint8_t *)"\x12\x34\0\0\0\0\0\0{\"a\"", 12, MO_EFORMAT,
                   "safetensors file; pull the model in GGUF format");
    expect_refused((const uint8_t *)"\x12\x34\0\0", 4, MO_EFORMAT, "starts with the bytes 12 34");
    expect_refused((const uint8_t *)"", 0, MO_EFORMAT, "empty");
    craft c = begin(1, 0, 0);
    expect_refused(c.bytes, c.size, MO_EUNSUPPORTED, "version 1");
    c = begin(4, 0, 0);
    expect_refused(c.bytes, c.size, MO_EUNSUPPORTED, "version 4");
    c = begin(0x03000000, 0, 0);
    expect_refused(c.bytes, c.size, MO_EUNSUPPORTED, "big-endian");
    c = begin(2, 0, 0);
    mo_error err;
    assert_int_equal(try_open(c.bytes, c.size, &err), MO_OK);
}

/* Counts and lengths far beyond the file must not be believed by the allocator either. */
static void test_hostile_counts(void **state)
{
    (void)state;
    const uint64_t absurd[] = {
        1000,       1 << 20,    1u << 31,       1ull << 32,         1ull << 40,        INT64_MAX,
        1ull << 63, UINT64_MAX, UINT64_MAX - 7, 0x2000000000000001, 0x1fffffffffffffff};
    mo_error err;
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        craft tries[6];
        tries[0] = begin(3, absurd[i], 0);
        tries[1] = begin(3, 0, absurd[i]);
        tries[2] = begin(3, 0, 1); /* the length of a key */
        put64(&tries[2], absurd[i]);
        tries[3] = begin(3, 0, 1); /* the length of a string */
        put_name(&tries[3], "key");
        put32(&tries[3], MO_VALUE_STRING);
        put64(&tries[3], absurd[i]);
        for (int a = 4; a < 6; a++) { /* the count of an array */
            tries[a] = begin(3, 0, 1);
            put_name(&tries[a], "key");
            put32(&tries[a], 9);
            put32(&tries[a], a == 4 ? MO_VALUE_STRING : MO_VALUE_F64);
            put64(&tries[a], absurd[i]);
        }
        for (int t = 0; t < 6; t++) {
            pad(&tries[t], 100);
            largest_request = 0;
            assert_int_equal(try_open(tries[t].bytes, tries[t].size, &err), MO_EFORMAT);
            assert_true(largest_request < 1 << 20);
        }
    }
}

static void test_tensor_refusals(void **state)
{
    (void)state;
    const struct {
        uint64_t ne0, ne1, offset;
        uint32_t type;
        mo_status status;
        const char *words;
    } bad[] = {
        {32, 1, 0, 15, MO_EUNSUPPORTED, "type 15 (Q8_K)"},
        {32, 1, 0, 144, MO_EUNSUPPORTED, "type 144 (IQ4_KS of ik_llama.cpp)"},
        {32, 1, 0, 43, MO_EUNSUPPORTED, "requantize"},
        {32, 1, 0, 0xffffffff, MO_EUNSUPPORTED, "type 4294967295"},
        {33, 1, 0, MO_Q8_0, MO_EFORMAT, "multiple of the 32"},
        {0, 1, 0, MO_F32, MO_EFORMAT, "dimension below 1"},
        {UINT64_MAX, 1, 0, MO_F32, MO_EFORMAT, "dimension below 1"},
        {1ull << 32, 1ull << 32, 0, MO_F32, MO_EFORMAT, "invalid dimensions"},
        {1ull << 61, 1, 0, MO_F32, MO_EFORMAT, "invalid dimensions"},
        {1ull << 60, 1, 0, MO_F32, MO_EFORMAT, "are missing"},
        {32, 1, 16, MO_F32, MO_EFORMAT, "not aligned"},
        {32, 1, 1 << 20, MO_F32, MO_EFORMAT, "no layout"},
        {32, 1, 1ull << 63, MO_F32, MO_EFORMAT, "invalid offset"},
        {32, 1, INT64_MAX - 31, MO_F32, MO_EFORMAT, "invalid offset"},
        {64, 1, 0, MO_F32, MO_EFORMAT, "128 bytes are missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        craft c = begin(3, 1, 0);
        put_tensor(&c, "the.tensor", bad[i].ne0, bad[i].ne1, bad[i].type, bad[i].offset);
        pad(&c, 128);
        expect_refused(c.bytes, c.size, bad[i].status, bad[i].words);
        expect_refused(c.bytes, c.size, bad[i].status, "the.tensor");
    }
    craft c = begin(3, 1, 0);
    put_name(&c, "five");
    put32(&c, 5);
    pad(&c, 200);
    expect_refused(c.bytes, c.size, MO_EFORMAT, "more than 4 dimensions");
    c = begin(3, 1, 0);
    char longest[65];
    memset(longest, 'x', 64);
    longest[64] = 0;
    put_tensor(&c, longest, 8, 1, MO_F32, 0);
    pad(&c, 32);
    expect_refused(c.bytes, c.size, MO_EFORMAT, "name of 64 bytes");
    c = begin(3, 1, 0);
    put_tensor(&c, longest + 1, 8, 1, MO_F32, 0);
    pad(&c, 32);
    mo_error err;
    assert_int_equal(try_open(c.bytes, c.size, &err), MO_OK);
    c = begin(3, 1, 0);
    put_tensor(&c, "a\x1b[2J", 8, 1, MO_F32, 0);
    pad(&c, 32);
    expect_refused(c.bytes, c.size, MO_EFORMAT, "control character");
}

static void test_pairs(void **state)
{
    (void)state;
    mo_error err;
    craft c = begin(3, 2, 0);
    put_tensor(&c, "a", 16, 1, MO_F32, 0);
    put_tensor(&c, "b", 8, 1, MO_F32, 32);
    pad(&c, 64);
    expect_refused(c.bytes, c.size, MO_EFORMAT, "a and b overlap");
    c = begin(3, 2, 0);
    put_tensor(&c, "a", 8, 1, MO_F32, 0);
    put_tensor(&c, "a", 8, 1, MO_F32, 32);
    pad(&c, 64);
    expect_refused(c.bytes, c.size, MO_EFORMAT, "tensor a occurs twice");
    c = begin(3, 2, 0); /* any order and gaps are fine */
    put_tensor(&c, "a", 8, 1, MO_F32, 96);
    put_tensor(&c, "b", 8, 1, MO_F32, 0);
    pad(&c, 128);
    assert_int_equal(try_open(c.bytes, c.size, &err), MO_OK);
    c = begin(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_name(&c, "twin");
        put32(&c, MO_VALUE_BOOL);
        put(&c, "", 1);
    }
    expect_refused(c.bytes, c.size, MO_EFORMAT, "key twin occurs twice");
}

static void test_value_refusals(void **state)
{
    (void)state;
    const struct {
        uint32_t type;
        mo_status status;
        const char *bytes;
        size_t size;
        const char *words;
    } bad[] = {
        {13, MO_EFORMAT, "", 1, "unknown value type 13"},
        {9, MO_EUNSUPPORTED, "\x09\0\0\0\x01\0\0\0\0\0\0\0", 12, "array of arrays"},
        {9, MO_EFORMAT, "\x0d\0\0\0\x01\0\0\0\0\0\0\0", 12, "unknown value type 13"},
        {MO_VALUE_BOOL, MO_EFORMAT, "\2", 1, "neither 0 nor 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        craft c = begin(3, 0, 1);
        put_name(&c, "the.key");
        put32(&c, bad[i].type);
        put(&c, bad[i].bytes, bad[i].size);
        expect_refused(c.bytes, c.size, bad[i].status, bad[i].words);
        expect_refused(c.bytes, c.size, bad[i].status, "the.key");
    }
    const uint32_t alignments[] = {0, 1, 4, 24, 33, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        craft c = begin(3, 0, 1);
        put_name(&c, "general.alignment");
        put32(&c, MO_VALUE_U32);
        put32(&c, alignments[i]);
        expect_refused(c.bytes, c.size, MO_EFORMAT, "power of two");
    }
}

/* Every allocation fails in turn: a status, no crash, and (under the sanitizer) no leak. */
static void test_out_of_memory(void **state)
{
    (void)state;
    image im = image_of(small_model());
    int refused = 0;
    for (long n = 0; n < 1000; n++) {
        mo_gguf *g;
        mo_error err;
        mo_file_info summary;
        fail_after = n;
        mo_status s = mo_gguf_open_memory(im.bytes, im.size, "test.gguf", &g, &err);
        if (s == MO_OK) {
            s = mo_gguf_summarize(g, &summary, formats, &err);
            mo_gguf_close(g);
        }
        if (s == MO_OK) {
            mo_gguf_writer *w = small_model();
            s = mo_gguf_writer_layout(w, &err);
            mo_gguf_writer_destroy(w);
        }
        const bool all = fail_after > 0;
        fail_after = -1;
        if (all) {
            assert_int_equal(s, MO_OK);
            break;
        }
        refused += s == MO_ENOMEM;
    }
    assert_true(refused > 10);
    free(im.bytes);
}

/* ---- Summary ---- */

static mo_file_info summary_of(mo_gguf_writer *w, mo_status expected)
{
    image im = image_of(w);
    mo_gguf *g;
    mo_error err = {0};
    mo_file_info s = {0};
    assert_int_equal(mo_gguf_open_memory(im.bytes, im.size, "test.gguf", &g, &err), MO_OK);
    if (mo_gguf_summarize(g, &s, formats, &err) != expected) {
        fail_msg("%s", err.detail);
    }
    s.architecture = s.name = NULL;
    mo_gguf_close(g);
    free(im.bytes);
    return s;
}

enum { D = 64, F = 32, E = 4, USED = 2, V = 10 };

static mo_gguf_writer *moe_model(int experts)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "moe");
    mo_gguf_put_u32(w, "moe.block_count", 3);
    mo_gguf_put_u32(w, "moe.nextn_predict_layers", 1);
    mo_gguf_put_u32(w, "moe.expert_count", (uint32_t)experts);
    mo_gguf_put_u32(w, "moe.expert_used_count", USED);
    mo_gguf_put_tensor(w, "token_embd.weight", MO_Q8_0, 2, (int64_t[]){D, V});
    mo_gguf_put_tensor(w, "output_norm.weight", MO_F32, 1, (int64_t[]){D});
    mo_gguf_put_tensor(w, "blk.0.ffn_gate_inp.weight", MO_F32, 2, (int64_t[]){D, E});
    mo_gguf_put_tensor(w, "blk.0.ffn_gate_exps.weight", MO_Q8_0, 3, (int64_t[]){D, F, E});
    mo_gguf_put_tensor(w, "blk.0.ffn_up_exps.weight", MO_Q8_0, 3, (int64_t[]){D, F, E});
    mo_gguf_put_tensor(w, "blk.0.ffn_down_exps.weight", MO_F16, 3, (int64_t[]){F, D, E});
    mo_gguf_put_tensor(w, "blk.0.ffn_down_exps.bias", MO_F32, 2, (int64_t[]){D, E});
    mo_gguf_put_tensor(w, "blk.0.ffn_gate_exps.input_scale", MO_F32, 1, (int64_t[]){E});
    mo_gguf_put_tensor(w, "blk.0.ffn_gate_shexp.weight", MO_F32, 2, (int64_t[]){D, F});
    mo_gguf_put_tensor(w, "blk.1.ffn_gate_up_exps.weight", MO_Q4_0, 3, (int64_t[]){D, 2 * F, E});
    mo_gguf_put_tensor(w, "blk.1.ffn_down_exps.weight", MO_Q4_0, 3, (int64_t[]){F, D, E});
    mo_gguf_put_tensor(w, "blk.2.ffn_down_exps.weight", MO_F32, 3, (int64_t[]){F, D, E});
    mo_gguf_put_tensor(w, "blk.2.nextn.eh_proj.weight", MO_F32, 2, (int64_t[]){2 * D, D});
    return w;
}

static void test_summary(void **state)
{
    (void)state;
    const int64_t one0 = 2 * D * F / 32 * 34 + 2 * D * F + 4 * D, one1 = 3 * D * F / 32 * 18;
    const int64_t other = 4 * D + 4 * D * E + 4 * D * F, embedding = D / 32 * 34;
    mo_file_info s = summary_of(moe_model(E), MO_OK);
    assert_int_equal(s.layers, 2);
    assert_int_equal(s.mtp_layers, 1);
    assert_int_equal(s.experts, E);
    assert_int_equal(s.experts_used, USED);
    assert_int_equal(s.expert_layers, 2);
    assert_int_equal(s.expert_bytes_max, one0);
    assert_int_equal(s.expert_bytes_min, one1);
    assert_int_equal(s.expert_bytes_total, E * (one0 + one1));
    assert_int_equal(s.token_expert_bytes, USED * (one0 + one1));
    assert_int_equal(s.token_other_bytes, other);
    assert_true(s.output_tied);
    assert_int_equal(s.token_output_bytes, V * embedding);
    assert_int_equal(s.token_embedding_bytes, embedding);
    assert_int_equal(s.token_bytes, USED * (one0 + one1) + other + (V + 1) * embedding);
    assert_int_equal(s.formats, 4);
    int64_t tensors = 0, bytes = 0, values = 0;
    for (int i = 0; i < s.formats; i++) {
        assert_true(i == 0 || s.format[i].bytes <= s.format[i - 1].bytes);
        tensors += s.format[i].tensors;
        bytes += s.format[i].bytes;
        values += s.format[i].values;
    }
    assert_int_equal(tensors, s.tensors);
    assert_int_equal(bytes, s.tensor_bytes);
    assert_int_equal(values, s.parameters);
    summary_of(moe_model(E + 1), MO_EFORMAT); /* slices for another number of experts */
    summary_of(moe_model(1), MO_EFORMAT);     /* more used than there are */
    mo_gguf_writer *keyless =
        mo_gguf_writer_create(0); /* a family that we do not know, with keys of its own */
    mo_gguf_put_string(keyless, "general.architecture", "unheard-of");
    mo_gguf_put_tensor(keyless, "blk.0.ffn_up_exps.weight", MO_F32, 3, (int64_t[]){D, F, E});
    mo_gguf_put_tensor(keyless, "blk.0.ffn_up.7.weight", MO_F32, 2, (int64_t[]){D, F});
    s = summary_of(keyless, MO_OK);
    assert_int_equal(s.token_other_bytes, 4 * D * F * (E + 1));
}

/* The older layout: one tensor per matrix of an expert, perhaps of different types. */
static mo_gguf_writer *lone_model(int experts)
{
    static const char *const kinds[] = {"gate", "up", "down"};
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_u16(w, "llama.block_count", 2);
    mo_gguf_put_u64(w, "llama.expert_count", E);
    mo_gguf_put_i32(w, "llama.expert_used_count", USED);
    for (int layer = 0; layer < 2; layer++) {
        for (int k = 0; k < 3; k++) {
            for (int e = 0; e < experts; e++) {
                char name[64];
                snprintf(name, sizeof name, "blk.%d.ffn_%s.%d.weight", layer, kinds[k], e);
                mo_gguf_put_tensor(w, name, e == 1 ? MO_Q8_0 : MO_Q4_0, 2, (int64_t[]){64, 64});
            }
        }
    }
    mo_gguf_put_tensor(w, "blk.0.ffn_norm.weight", MO_F32, 1, (int64_t[]){64});
    mo_gguf_put_tensor(w, "token_embd.weight", MO_F16, 2, (int64_t[]){64, V});
    mo_gguf_put_tensor(w, "output.weight", MO_F32, 2, (int64_t[]){64, V});
    return w;
}

static void test_summary_older(void **state)
{
    (void)state;
    const int64_t q4 = 3 * 64 * 64 / 32 * 18, q8 = 3 * 64 * 64 / 32 * 34;
    mo_file_info s = summary_of(lone_model(E), MO_OK);
    assert_int_equal(s.expert_layers, 2);
    assert_int_equal(s.expert_bytes_min, q4);
    assert_int_equal(s.expert_bytes_max, q8);
    assert_int_equal(s.expert_bytes_total, 2 * (3 * q4 + q8));
    assert_int_equal(s.token_expert_bytes, 2 * (3 * q4 + q8) / E * USED);
    assert_int_equal(s.token_other_bytes, 256);
    assert_int_equal(s.token_output_bytes, 4 * 64 * V);
    assert_int_equal(s.token_embedding_bytes, 128);
    assert_false(s.output_tied);
    summary_of(lone_model(E - 1), MO_EFORMAT);
    summary_of(lone_model(E + 1), MO_EFORMAT);
}

/* Files of one tensor per expert have a hundred thousand: finding must not be a forward. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    const int64_t size[] = {8};
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "t.%d", (i * 7919) % COUNT);
        mo_gguf_put_tensor(w, name, MO_F32, 1, size);
    }
    image im = image_of(w);
    mo_gguf *g;
    mo_error err;
    assert_int_equal(mo_gguf_open_memory(im.bytes, im.size, "test.gguf", &g, &err), MO_OK);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "t.%d", (i * 7919) % COUNT);
        assert_ptr_equal(mo_gguf_tensor_find(g, name), mo_gguf_tensor_at(g, i));
    }
    mo_gguf_close(g);
    free(im.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),       cmocka_unit_test(test_every_format),
        cmocka_unit_test(test_writer_refuses),   cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_damaged),    cmocka_unit_test(test_real_split),
        cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_every_corruption),
        cmocka_unit_test(test_beginnings),       cmocka_unit_test(test_hostile_counts),
        cmocka_unit_test(test_tensor_refusals),  cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_value_refusals),   cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_summary),          cmocka_unit_test(test_summary_older),
        cmocka_unit_test(test_many_tensors),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
