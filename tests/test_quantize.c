/* Models in other formats: the same bits as encoding the rows by hand, the same file for any number of threads,
 * whole or not there at all. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "gguf/write.h"
#include "gguf_file.h"
#include "numeric/block.h"
#include "numeric/quantize/quantize.h"
#include "random.h"
#include "synth/requantize.h"

static mo_error err;

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    bytes b = {.size = (size_t)ftell(f)};
    rewind(f);
    b.data = malloc(b.size + 1);
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    fclose(f);
    return b;
}

/* ---- A source with every kind of tensor and value ---- */

static const struct {
    const char *name;
    mo_type type;
    int dims;
    int64_t size[3];
    mo_tensor_class class;
} tensors[] = {
    {"token_embd.weight", MO_F32, 2, {256, 40, 1}, MO_CLASS_EMBEDDING},
    {"output_norm.weight", MO_F32, 1, {256, 1, 1}, MO_CLASS_KEPT},
    {"output.weight", MO_F16, 2, {256, 40, 1}, MO_CLASS_OUTPUT},
    {"blk.0.attn_q.weight", MO_BF16, 2, {256, 64, 1}, MO_CLASS_REST},
    {"blk.0.attn_v.weight", MO_F32, 2, {256, 600, 1}, MO_CLASS_REST}, /* more than one piece */
    {"blk.0.attn_output.weight", MO_Q6_K, 2, {256, 64, 1}, MO_CLASS_REST},
    {"blk.0.ffn_gate_inp.weight", MO_F32, 2, {256, 3, 1}, MO_CLASS_KEPT},
    {"blk.0.ffn_gate_inp_shexp.weight", MO_F16, 2, {256, 1, 1}, MO_CLASS_KEPT},
    {"blk.0.ffn_gate_exps.weight", MO_Q8_0, 3, {256, 64, 3}, MO_CLASS_EXPERTS},
    {"blk.0.ffn_gate_exps.bias", MO_F32, 2, {64, 3, 1}, MO_CLASS_KEPT},
    {"blk.0.ffn_down_exps.weight", MO_F32, 3, {64, 256, 3}, MO_CLASS_EXPERTS},
    {"blk.1.ffn_up.2.weight", MO_F32, 2, {256, 32, 1}, MO_CLASS_EXPERTS}, /* the older layout */
    {"blk.1.ffn_up_shexp.weight", MO_F32, 2, {256, 32, 1}, MO_CLASS_REST},
    {"blk.1.ssm_conv1d.weight", MO_F32, 2, {4, 48, 1}, MO_CLASS_KEPT},
    {"blk.1.numbers", MO_I64, 2, {8, 2, 1}, MO_CLASS_KEPT},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static void put_keys(mo_gguf_writer *w)
{
    static const float reals[] = {1.5f, -0.1f, 3e38f};
    static const uint8_t flags[] = {1, 0, 1};
    static const int16_t shorts[] = {-3, 7};
    static const mo_text texts[] = {{"a", 1}, {"", 0}, {"b\0\xff", 3}};
    mo_gguf_put_string(w, "general.architecture", "qwen3moe");
    mo_gguf_put_u32(w, "general.file_type", 1);
    mo_gguf_put_u8(w, "x.u8", 200);
    mo_gguf_put_i8(w, "x.i8", -100);
    mo_gguf_put_u16(w, "x.u16", 60000);
    mo_gguf_put_i16(w, "x.i16", -30000);
    mo_gguf_put_u32(w, "x.u32", 4000000000u);
    mo_gguf_put_i32(w, "x.i32", -2000000000);
    mo_gguf_put_u64(w, "x.u64", UINT64_MAX - 5);
    mo_gguf_put_i64(w, "x.i64", INT64_MIN + 5);
    mo_gguf_put_f32(w, "x.f32", 0.1f);
    mo_gguf_put_f64(w, "x.f64", 0.1);
    mo_gguf_put_bool(w, "x.bool", true);
    mo_gguf_put_array(w, "x.reals", MO_VALUE_F32, reals, 3);
    mo_gguf_put_array(w, "x.flags", MO_VALUE_BOOL, flags, 3);
    mo_gguf_put_array(w, "x.shorts", MO_VALUE_I16, shorts, 2);
    mo_gguf_put_array(w, "x.none", MO_VALUE_U32, NULL, 0);
    mo_gguf_put_texts(w, "x.texts", texts, 3);
}

/* Writes the source, split after every `per_part` tensors (0: one file); `odd` replaces a value of attn_v. */
static void make_source(const char *path, uint32_t alignment, int64_t per_part, float odd)
{
    const void *data[TENSORS];
    uint64_t seed = 7;
    mo_gguf_writer *w = mo_gguf_writer_create(alignment);
    put_keys(w);
    for (int i = 0; i < TENSORS; i++) {
        const int64_t values = tensors[i].size[0] * tensors[i].size[1] * tensors[i].size[2];
        const mo_format *f = mo_format_of(tensors[i].type);
        float *x = malloc((size_t)values * sizeof *x);
        uint8_t *out = calloc((size_t)values, 8);
        for (int64_t k = 0; k < values; k++) {
            x[k] = 0.1f * random_normal(&seed);
        }
        if (f->kind != MO_KIND_INTEGER) {
            assert_int_equal(mo_row_quantize(f->type, x, values, out, &err), MO_OK);
        }
        if (odd != 0.0f && strcmp(tensors[i].name, "blk.0.attn_v.weight") == 0) {
            memcpy(out + 4 * (256 * 520 + 9), &odd, 4);
        }
        free(x);
        data[i] = out;
        mo_gguf_put_tensor(w, tensors[i].name, f->type, tensors[i].dims, tensors[i].size);
    }
    assert_true(per_part ? gguf_save_split(w, alignment, path, per_part, data) : gguf_save(w, path, data));
    for (int i = 0; i < TENSORS; i++) {
        free((void *)data[i]);
    }
    mo_gguf_writer_destroy(w);
}

static mo_quantize_options mixed(void)
{
    mo_quantize_options o = mo_quantize_options_default();
    o.experts = "mxfp4";
    o.rest = "Q4_K";
    o.output = "q6_k";
    o.embedding = "f16";
    return o;
}

static void expect_ok(mo_status status)
{
    if (status != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* ---- What is written ---- */

static const char *const expected[MO_TENSOR_CLASSES] = {[MO_CLASS_EXPERTS] = "MXFP4",
                                                        [MO_CLASS_REST] = "Q4_K",
                                                        [MO_CLASS_OUTPUT] = "Q6_K",
                                                        [MO_CLASS_EMBEDDING] = "F16"};

/* Row by row; adds what is lost and what there was. */
static void check_rows(const mo_gguf_tensor *a, const uint8_t *from, const mo_gguf_tensor *b,
                       const uint8_t *to, double *lost, double *power)
{
    const int64_t cols = a->size[0];
    const int64_t from_bytes = mo_format_row_bytes(a->format, cols);
    const int64_t to_bytes = mo_format_row_bytes(b->format, cols);
    float x[256], y[256];
    uint8_t row[1024];
    for (int64_t r = 0; r < a->values / cols; r++) {
        mo_row_dequantize(a->format->type, from + r * from_bytes, cols, x);
        assert_int_equal(mo_row_quantize(b->format->type, x, cols, row, &err), MO_OK);
        assert_memory_equal(to + r * to_bytes, row, (size_t)to_bytes);
        mo_row_dequantize(b->format->type, row, cols, y);
        for (int64_t i = 0; i < cols; i++) {
            *lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            *power += (double)x[i] * (double)x[i];
        }
    }
}

static void bits_are_those_of_the_rows(void **state)
{
    (void)state;
    mo_quantize_report report;
    double lost[MO_TENSOR_CLASSES] = {0}, power[MO_TENSOR_CLASSES] = {0};
    mo_gguf *a, *b;
    const mo_quantize_options options = mixed();
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    expect_ok(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL, &report,
                                   sizeof report, &err));
    expect_ok(mo_gguf_open(in_folder("in.gguf"), &a, &err));
    expect_ok(mo_gguf_open(in_folder("out.gguf"), &b, &err));
    const bytes from = read_file(in_folder("in.gguf")), to = read_file(in_folder("out.gguf"));
    assert_int_equal(mo_gguf_tensor_count(b), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(a, i), *u = mo_gguf_tensor_at(b, i);
        assert_string_equal(t->name, u->name);
        assert_memory_equal(t->size, u->size, sizeof t->size);
        assert_int_equal(mo_requantize_class(t), tensors[i].class);
        if (tensors[i].class == MO_CLASS_KEPT) {
            assert_ptr_equal(t->format, u->format);
            assert_memory_equal(from.data + t->offset, to.data + u->offset, (size_t)t->bytes);
        } else {
            assert_string_equal(u->format->name, expected[tensors[i].class]);
            check_rows(t, from.data + t->offset, u, to.data + u->offset, &lost[tensors[i].class],
                       &power[tensors[i].class]);
        }
    }
    assert_int_equal(report.file_bytes_before, from.size);
    assert_int_equal(report.file_bytes_after, to.size);
    int64_t count = 0, before = 0, after = 0;
    for (int c = 0; c < MO_TENSOR_CLASSES; c++) {
        const mo_quantize_class *k = &report.classes[c];
        count += k->tensors, before += k->bytes_before, after += k->bytes_after;
        const double error = power[c] > 0.0 ? sqrt(lost[c] / power[c]) : 0.0;
        assert_true(fabs(k->error - error) <= 1e-9 * error);
        assert_int_equal(k->converted, c == MO_CLASS_KEPT ? 0 : k->tensors);
    }
    assert_int_equal(count, TENSORS);
    assert_true(before < report.file_bytes_before && after < report.file_bytes_after && after < before);
    assert_true(report.classes[MO_CLASS_EXPERTS].error > 0.02 &&
                report.classes[MO_CLASS_EXPERTS].error < 0.2);
    mo_gguf_close(a);
    mo_gguf_close(b);
    free(from.data);
    free(to.data);
    unlink(in_folder("in.gguf"));
    unlink(in_folder("out.gguf"));
}

enum { OUTPUT_COLS = 64, OUTPUT_ROWS = 8, OUTPUT_VALUES = OUTPUT_COLS * OUTPUT_ROWS };

/* A file with an output matrix and a scale of it. */
static void make_scaled(const char *path, mo_type type, float scale, uint8_t *output)
{
    uint64_t seed = 3;
    float x[OUTPUT_VALUES];
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    for (int i = 0; i < OUTPUT_VALUES; i++) {
        x[i] = random_normal(&seed);
    }
    assert_int_equal(mo_row_quantize(type, x, OUTPUT_VALUES, output, &err), MO_OK);
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_tensor(w, "output.weight", type, 2, (int64_t[]){OUTPUT_COLS, OUTPUT_ROWS});
    mo_gguf_put_tensor(w, "output.scale", MO_F32, 1, (int64_t[]){1});
    mo_gguf_put_tensor(w, "blk.0.attn_q.weight", MO_F32, 2, (int64_t[]){OUTPUT_COLS, OUTPUT_ROWS});
    assert_true(gguf_save(w, path, (const void *[]){output, &scale, x}));
    mo_gguf_writer_destroy(w);
}

/* It is read where the output is in NVFP4, and nowhere else: values take it along. */
static void an_output_keeps_its_size_without_its_scale(void **state)
{
    (void)state;
    static const struct {
        mo_type from;
        const char *to;
        float factor;
        bool scale; /* stays */
    } cases[] = {{MO_NVFP4, "f32", 0.25f, false},
                 {MO_NVFP4, "nvfp4", 1.0f, true},
                 {MO_Q8_0, "nvfp4", 1.0f, false},
                 {MO_Q8_0, "f32", 1.0f, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t output[4 * OUTPUT_VALUES], want[4 * OUTPUT_VALUES];
        float x[OUTPUT_VALUES];
        mo_gguf *g;
        mo_quantize_options options = mo_quantize_options_default();
        options.output = cases[i].to;
        make_scaled(in_folder("in.gguf"), cases[i].from, 0.25f, output);
        expect_ok(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL,
                                       NULL, 0, &err));
        expect_ok(mo_gguf_open(in_folder("out.gguf"), &g, &err));
        const bytes got = read_file(in_folder("out.gguf"));
        const mo_gguf_tensor *t = mo_gguf_tensor_find(g, "output.weight");
        assert_int_equal(mo_gguf_tensor_find(g, "output.scale") != NULL, cases[i].scale);
        mo_row_dequantize(cases[i].from, output, OUTPUT_VALUES, x);
        for (int k = 0; k < OUTPUT_VALUES; k++) {
            x[k] *= cases[i].factor;
        }
        if (t->format->type == cases[i].from) {
            memcpy(want, output, (size_t)t->bytes);
        } else {
            assert_int_equal(mo_row_quantize(t->format->type, x, OUTPUT_VALUES, want, &err), MO_OK);
        }
        assert_memory_equal(got.data + t->offset, want, (size_t)t->bytes);
        free(got.data);
        mo_gguf_close(g);
        unlink(in_folder("in.gguf"));
        unlink(in_folder("out.gguf"));
    }
}

static void metadata_stay(void **state)
{
    (void)state;
    mo_gguf *a, *b;
    uint32_t type, version;
    mo_quantize_options options = mo_quantize_options_default();
    options.rest = "q8_0";
    make_source(in_folder("in.gguf"), 64, 0, 0.0f);
    expect_ok(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL, NULL, 0,
                                   &err));
    expect_ok(mo_gguf_open(in_folder("in.gguf"), &a, &err));
    expect_ok(mo_gguf_open(in_folder("out.gguf"), &b, &err));
    assert_int_equal(mo_gguf_entry_count(b), mo_gguf_entry_count(a) + 1); /* general.quantization_version */
    for (int64_t i = 0; i < mo_gguf_entry_count(a); i++) {
        char x[256], y[256];
        mo_metadata_info info, other;
        mo_gguf_entry_info(mo_gguf_entry_at(a, i), &info);
        mo_gguf_entry_info(mo_gguf_entry_at(b, i), &other);
        assert_string_equal(info.key, other.key); /* in the same order */
        assert_int_equal(info.type, other.type);
        assert_int_equal(info.is_array, other.is_array);
        assert_int_equal(info.count, other.count);
        mo_gguf_entry_text(a, mo_gguf_entry_at(a, i), 99, x, sizeof x);
        mo_gguf_entry_text(b, mo_gguf_entry_at(b, i), 99, y, sizeof y);
        if (strcmp(info.key, "general.file_type") != 0) {
            assert_string_equal(x, y);
        }
    }
    assert_int_equal(mo_gguf_u32_or(b, "general.file_type", 0, &type, NULL), MO_OK);
    assert_int_equal(type, 7); /* mostly Q8_0 */
    assert_int_equal(mo_gguf_u32_or(b, "general.quantization_version", 0, &version, NULL), MO_OK);
    assert_int_equal(version, 2);
    assert_int_equal(mo_gguf_tensor_at(b, 1)->offset % 64, 0);
    assert_ptr_equal(mo_gguf_tensor_find(b, "blk.0.ffn_down_exps.weight")->format, mo_format_of(MO_F32));
    mo_gguf_close(a);
    mo_gguf_close(b);
    unlink(in_folder("in.gguf"));
    unlink(in_folder("out.gguf"));
}

static void threads_and_parts_change_nothing(void **state)
{
    (void)state;
    bytes first = {0};
    char part[512];
    mo_quantize_report report, first_report = {0};
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    make_source(in_folder("parts"), 0, 4, 0.0f);
    for (int i = 0; i < 4; i++) {
        mo_quantize_options options = mixed();
        options.threads = (int[]){1, 2, 5, 3}[i];
        expect_ok(mo_gguf_part_name(in_folder("parts"), 0, 4, part, sizeof part, &err));
        expect_ok(mo_quantize_reported(i == 3 ? part : in_folder("in.gguf"), in_folder("out.gguf"), &options,
                                       NULL, NULL, &report, sizeof report, &err));
        const bytes made = read_file(in_folder("out.gguf"));
        unlink(in_folder("out.gguf"));
        if (i == 0) {
            first = made;
            first_report = report;
            continue;
        }
        assert_int_equal(made.size, first.size);
        assert_memory_equal(made.data, first.data, first.size);
        assert_memory_equal(report.classes, first_report.classes, sizeof report.classes);
        free(made.data);
    }
    free(first.data);
    for (int i = 0; i < 4; i++) {
        mo_gguf_part_name(in_folder("parts"), i, 4, part, sizeof part, &err);
        unlink(part);
    }
    unlink(in_folder("in.gguf"));
}

static void same_format_is_copied(void **state)
{
    (void)state;
    mo_gguf *a, *b;
    mo_quantize_report report;
    mo_quantize_options options = mo_quantize_options_default();
    options.rest = "q6_k";
    options.output = "f16";
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    expect_ok(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL, &report,
                                   sizeof report, &err));
    expect_ok(mo_gguf_open(in_folder("in.gguf"), &a, &err));
    expect_ok(mo_gguf_open(in_folder("out.gguf"), &b, &err));
    const bytes from = read_file(in_folder("in.gguf")), to = read_file(in_folder("out.gguf"));
    static const char *const names[] = {"output.weight", "blk.0.attn_output.weight",
                                        "blk.0.ffn_gate_exps.weight"};
    for (int i = 0; i < 3; i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_find(a, names[i]), *u = mo_gguf_tensor_find(b, names[i]);
        assert_ptr_equal(t->format, u->format);
        assert_memory_equal(from.data + t->offset, to.data + u->offset, (size_t)t->bytes);
    }
    assert_int_equal(report.classes[MO_CLASS_OUTPUT].converted, 0);
    assert_true(report.classes[MO_CLASS_OUTPUT].error == 0.0);
    assert_int_equal(report.classes[MO_CLASS_REST].converted, report.classes[MO_CLASS_REST].tensors - 1);
    mo_gguf_close(a);
    mo_gguf_close(b);
    free(from.data);
    free(to.data);
    unlink(in_folder("in.gguf"));
    unlink(in_folder("out.gguf"));
}

/* ---- What goes wrong ---- */

static void expect_refusal(const mo_quantize_options *options, mo_status status, const char *words)
{
    assert_int_equal(
        mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), options, NULL, NULL, NULL, 0, &err),
        status);
    if (!strstr(err.detail, words)) {
        fail_msg("\"%s\" does not say \"%s\"", err.detail, words);
    }
    assert_int_equal(folder_count(), 1); /* the source */
}

static char logged[512];

static void on_log(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user, (void)level, (void)subsystem;
    snprintf(logged, sizeof logged, "%s", text);
}

/* Experts of rows of 64 values are not cut into blocks of 256: they get what other quantizers take, and it is said. */
static void rows_that_do_not_fit_get_another_format(void **state)
{
    (void)state;
    mo_gguf *g;
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    mo_log_set(on_log, NULL, MO_LOG_WARN);
    expect_ok(
        mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"),
                             &(mo_quantize_options){.size = sizeof(mo_quantize_options), .experts = "q4_k"},
                             NULL, NULL, NULL, 0, &err));
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    expect_ok(mo_gguf_open(in_folder("out.gguf"), &g, &err));
    assert_string_equal(mo_gguf_tensor_find(g, "blk.0.ffn_down_exps.weight")->format->name, "Q5_0");
    assert_non_null(strstr(logged, "blk.0.ffn_down_exps.weight"));
    assert_non_null(strstr(logged, "got Q5_0"));
    mo_gguf_close(g);
    unlink(in_folder("in.gguf"));
    unlink(in_folder("out.gguf"));
}

static void wrong_formats_are_explained(void **state)
{
    (void)state;
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    expect_refusal(&(mo_quantize_options){.size = sizeof(mo_quantize_options)}, MO_EINVAL,
                   "nothing to convert");
    expect_refusal(&(mo_quantize_options){.size = sizeof(mo_quantize_options), .rest = "q4_2"}, MO_EINVAL,
                   "Q4_0, Q4_1");
    expect_refusal(&(mo_quantize_options){.size = sizeof(mo_quantize_options), .experts = "i32"}, MO_EINVAL,
                   "not a weight format");
    expect_refusal(&(mo_quantize_options){.size = sizeof(mo_quantize_options), .rest = "q8_0", .threads = -1},
                   MO_EINVAL, "threads");
    unlink(in_folder("in.gguf"));
    const mo_quantize_options experts = {.size = sizeof(mo_quantize_options), .experts = "q8_0"},
                              output = {.size = sizeof(mo_quantize_options), .output = "q8_0"};
    assert_int_equal(mo_quantize_reported(MO_TEST_DATA "/oracle/llama31.gguf", in_folder("out.gguf"),
                                          &experts, NULL, NULL, NULL, 0, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "no routed experts"));
    assert_int_equal(mo_quantize_reported(MO_TEST_DATA "/oracle/gemma4.gguf", in_folder("out.gguf"), &output,
                                          NULL, NULL, NULL, 0, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "embedding"));
    assert_int_equal(folder_count(), 0);
}

static void values_must_be_finite(void **state)
{
    (void)state;
    make_source(in_folder("in.gguf"), 0, 0, INFINITY);
    expect_refusal(&(mo_quantize_options){.size = sizeof(mo_quantize_options), .rest = "q8_0"}, MO_EFORMAT,
                   "blk.0.attn_v.weight has the value inf in row 520, column 9");
    unlink(in_folder("in.gguf"));
}

static bool cancel_later(void *user, int64_t done, int64_t total)
{
    int *calls = user;
    assert_true(done < total);
    return ++*calls < 2;
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    int calls = 0;
    mo_quantize_options options = mixed();
    options.threads = 1;
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    assert_int_equal(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, cancel_later,
                                          &calls, NULL, 0, &err),
                     MO_ECANCELLED);
    assert_int_equal(calls, 2);
    assert_int_equal(folder_count(), 1);

    assert_int_equal(
        mo_quantize_reported(in_folder("in.gguf"), "/dev/full", &options, NULL, NULL, NULL, 0, &err),
        MO_ENOSPC);
    assert_non_null(strstr(err.detail, "/dev/full"));
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = {1 << 14, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const mo_status status = mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL,
                                                  NULL, NULL, 0, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, MO_ENOSPC);
    assert_int_equal(folder_count(), 1);
    assert_int_equal(mo_quantize_reported(in_folder("in.gguf"), in_folder("no/out.gguf"), &options, NULL,
                                          NULL, NULL, 0, &err),
                     MO_ENOENT);
    assert_int_equal(mo_quantize_reported(in_folder("none.gguf"), in_folder("out.gguf"), &options, NULL, NULL,
                                          NULL, 0, &err),
                     MO_ENOENT);
    unlink(in_folder("in.gguf"));
    assert_int_equal(folder_count(), 0);
}

static void existing_files_are_kept(void **state)
{
    (void)state;
    mo_quantize_options options = mixed();
    make_source(in_folder("in.gguf"), 0, 0, 0.0f);
    FILE *f = fopen(in_folder("out.gguf"), "w");
    fputs("mine", f);
    fclose(f);
    assert_int_equal(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL,
                                          NULL, 0, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "already exists"));
    bytes b = read_file(in_folder("out.gguf"));
    assert_int_equal(b.size, 4);
    free(b.data);
    options.overwrite = true;
    expect_ok(mo_quantize_reported(in_folder("in.gguf"), in_folder("out.gguf"), &options, NULL, NULL, NULL, 0,
                                   &err));
    b = read_file(in_folder("out.gguf"));
    assert_memory_equal(b.data, "GGUF", 4);
    free(b.data);
    assert_int_equal(symlink(in_folder("in.gguf"), in_folder("link.gguf")), 0);
    assert_int_equal(mo_quantize_reported(in_folder("in.gguf"), in_folder("link.gguf"), &options, NULL, NULL,
                                          NULL, 0, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "is the input model"));
    unlink(in_folder("in.gguf"));
    unlink(in_folder("out.gguf"));
    unlink(in_folder("link.gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_rows),
        cmocka_unit_test(an_output_keeps_its_size_without_its_scale),
        cmocka_unit_test(metadata_stay),
        cmocka_unit_test(threads_and_parts_change_nothing),
        cmocka_unit_test(same_format_is_copied),
        cmocka_unit_test(rows_that_do_not_fit_get_another_format),
        cmocka_unit_test(wrong_formats_are_explained),
        cmocka_unit_test(values_must_be_finite),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(existing_files_are_kept),
    };
    return cmocka_run_group_tests_name("quantize", tests, folder_make, folder_remove_empty);
}
