/* Encoders of pictures: patches and embeddings of the oracle's models (data/pictures), the same bits however they are computed, and files that are refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "model_draft.h"
#include "sanitized.h"

#include "numeric/block.h"
#include "numeric/quantize/quantize.h"
#include "vision/encoder.h"

#define DATA MO_TEST_DATA "/pictures/"

typedef struct example {
    const char *model, *pixels,
        *name; /* the picture after resizing, and what its expected values are called */
    int64_t width, height;
    bool patches; /* are kept too */
} example;

static const example examples[] = {
    {"qwen3vlmoe", "qwen3vlmoe.a.0", "qwen3vlmoe.a.0", 64, 32, true},
    {"qwen3vlmoe", "qwen3vlmoe.b.0", "qwen3vlmoe.b.0", 224, 128, false},
    {"qwen3vlmoe", "qwen3vlmoe.c.0", "qwen3vlmoe.c.0", 80, 32, true},
    {"qwen35moe", "qwen3vlmoe.a.0", "qwen35moe.a.0", 64, 32, false},
    {"qwen35moe", "qwen3vlmoe.c.0", "qwen35moe.c.0", 80, 32, false},
    {"gemma4", "gemma4.a.0", "gemma4.a.0", 108, 60, true},
    {"gemma4", "gemma4.b.0", "gemma4.b.0", 228, 132, false},
    {"gemma4", "gemma4.c.0", "gemma4.c.0", 120, 60, false},
};
enum { EXAMPLES = sizeof examples / sizeof examples[0] };

static mo_pool *pool, *single;

static void read_data(const char *name, const char *kind, void *out, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s.%s", name, kind);
    FILE *f = fopen(path, "rb");
    if (!f || fread(out, 1, bytes, f) != bytes || fgetc(f) != EOF) {
        fail_msg("%s has not %zu bytes", path, bytes);
    }
    fclose(f);
}

static mo_picture pixels_of(const example *x)
{
    mo_picture p;
    mo_error err;
    check_status(mo_picture_make(x->width, x->height, &p, &err), &err);
    read_data(x->pixels, "pixels.u8", p.rgb, (size_t)(p.width * p.height * 3));
    return p;
}

static mo_encoder *open_path(const char *path)
{
    mo_encoder *e;
    mo_error err;
    check_status(mo_encoder_open(path, false, &e, &err), &err);
    return e;
}

static mo_encoder *open_model(const char *model)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s.mmproj.gguf", model);
    return open_path(path);
}

static const mo_kernels *best(void)
{
    const mo_kernels *k;
    mo_kernels_list(&k, 1);
    return k;
}

static size_t values_of(const mo_encoder *e, const mo_picture *p)
{
    return (size_t)(mo_encoder_rows(e, p->width, p->height) * mo_vision_row(mo_encoder_spec(e)));
}

/* The rows of the picture, to be freed. */
static float *encode(const mo_encoder *e, const mo_picture *p, mo_pool *with, const mo_kernels *kernels,
                     int64_t batch)
{
    const mo_encoder_work work = {.pool = with, .kernels = kernels, .batch = batch};
    mo_error err;
    float *out = calloc(values_of(e, p), sizeof *out);
    assert_non_null(out);
    check_status(mo_encoder_run(e, &work, p, out, &err), &err);
    return out;
}

static double farthest(const float *got, const float *want, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - want[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

static void patches_are_the_expected_ones(void **state)
{
    (void)state;
    for (int i = 0; i < EXAMPLES; i++) {
        if (examples[i].patches) {
            mo_encoder *e = open_model(examples[i].model);
            mo_picture p = pixels_of(&examples[i]);
            const size_t n = (size_t)(p.width * p.height * 3);
            float *got = calloc(n, sizeof *got), *want = calloc(n, sizeof *want);
            assert_true(got && want);
            const int64_t side = mo_encoder_spec(e)->patch;
            mo_encoder_patches(e, &p, 0, p.width * p.height / (side * side), got);
            read_data(examples[i].name, "patches.f32", want, n * sizeof *want);
            assert_true(farthest(got, want, n) <= 1e-6);
            free(got);
            free(want);
            mo_picture_free(&p);
            mo_encoder_close(e);
        }
    }
}

/* How far the farthest embedding of the example is from the oracle's. */
static double off_by(const mo_encoder *e, const example *x)
{
    mo_picture p = pixels_of(x);
    const size_t n = values_of(e, &p);
    float *want = calloc(n, sizeof *want), *got = encode(e, &p, pool, best(), 0);
    assert_non_null(want);
    read_data(x->name, "embd.f32", want, n * sizeof *want);
    const double off = farthest(got, want, n);
    free(got);
    free(want);
    mo_picture_free(&p);
    return off;
}

static void embeddings_are_the_expected_ones(void **state)
{
    (void)state;
    for (int i = 0; i < EXAMPLES; i++) {
        if (SANITIZED && examples[i].width > 200) {
            continue; /* large ones take seconds there */
        }
        mo_encoder *e = open_model(examples[i].model);
        const double off = off_by(e, &examples[i]);
        if (!(off <= 1e-4)) {
            fail_msg("%s: an embedding is off by %g", examples[i].name, off);
        }
        mo_encoder_close(e);
    }
}

/* A small picture, with every instruction set, one thread or three, slices of any size; of each some, or all together. */
static void check_bits(const mo_encoder *e, const char *name, bool all)
{
    static const int64_t batches[] = {7, 64, 1024, 0};
    const int64_t align = mo_encoder_spec(e)->patch * mo_encoder_spec(e)->merge;
    const mo_kernels *kernels[8];
    const int sets = mo_kernels_list(kernels, 8);
    mo_picture p;
    mo_error err;
    check_status(mo_picture_make(5 * align, 3 * align, &p, &err), &err);
    for (int64_t i = 0; i < p.width * p.height * 3; i++) {
        p.rgb[i] = (uint8_t)(i * i / 37 + i);
    }
    const size_t bytes = values_of(e, &p) * sizeof(float);
    float *want = encode(e, &p, single, &mo_kernels_scalar, 0);
    for (int i = 0; i < 4 * (sets - 1); i++) {
        const int set = i / 4, batch = i % 4;
        if (all || batch == set % 4) {
            float *got = encode(e, &p, batch == 3 ? single : pool, kernels[set], batches[batch]);
            if (memcmp(got, want, bytes) != 0) {
                fail_msg("%s: other bits with %s in slices of %d", name, kernels[set]->name,
                         (int)batches[batch]);
            }
            free(got);
        }
    }
    free(want);
    mo_picture_free(&p);
}

static void same_bits_however_it_is_computed(void **state)
{
    static const char *const models[] = {"qwen3vlmoe", "qwen35moe", "gemma4"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        mo_encoder *e = open_model(models[i]);
        check_bits(e, models[i], i != 1);
        mo_encoder_close(e);
    }
}

static draft *draft_of(const char *model)
{
    char name[128];
    snprintf(name, sizeof name, "pictures/%s.mmproj", model);
    return draft_open(name);
}

/* Every matrix whose rows fit the format; Q8_0's others become F16, as converters do it. */
static void convert(draft *d, mo_type type)
{
    for (int i = 0; i < d->count; i++) {
        entry *t = &d->tensors[i];
        const int64_t rows = t->size[1] * t->size[2] * t->size[3];
        const mo_type to = type == MO_Q8_0 && t->size[0] % 32 ? MO_F16 : type;
        if (rows > 1) {
            const int64_t bytes = mo_format_row_bytes(mo_format_of(to), t->size[0]);
            uint8_t *data = calloc((size_t)rows, (size_t)bytes);
            mo_error err;
            assert_non_null(data);
            for (int64_t r = 0; r < rows; r++) {
                check_status(mo_row_quantize(to, (const float *)t->data + r * t->size[0], t->size[0],
                                             data + r * bytes, &err),
                             &err);
            }
            free(t->data);
            t->data = data;
            t->type = to;
            t->bytes = rows * bytes;
        }
    }
}

static void other_formats(void **state)
{
    static const struct {
        mo_type type;
        double most; /* that an embedding moves by */
    } types[] = {{MO_F16, 0.02}, {MO_BF16, 0.15}, {MO_Q8_0, 0.15}};
    static const int of[] = {0, 5};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const example *x = &examples[of[i % 2]];
        draft *d = draft_of(x->model);
        convert(d, types[i / 2].type);
        mo_encoder *e = open_path(draft_write(d, in_folder("other.gguf")));
        const double off = off_by(e, x);
        if (!(off <= types[i / 2].most) || off < 1e-5) {
            fail_msg("%s in format %d: an embedding is off by %g", x->name, types[i / 2].type, off);
        }
        check_bits(e, x->model, false);
        mo_encoder_close(e);
        draft_close(d);
        unlink(in_folder("other.gguf"));
    }
}

static void refuse_draft(draft *d, mo_status status, const char *a, const char *b)
{
    const char *path = draft_write(d, in_folder("refused.gguf"));
    for (int describe = 0; describe < 2; describe++) {
        mo_encoder *e = NULL;
        mo_error err = {0};
        const mo_status got = mo_encoder_open(path, describe, &e, &err);
        assert_null(e);
        if (got != status) {
            fail_msg("status %d instead of %d: %s", got, status, err.detail);
        }
        check_says(&err, a);
        check_says(&err, b);
    }
    unlink(path);
    draft_close(d);
}

static void refuse_key(const char *model, const char *key, const char *text, int64_t number, mo_status status,
                       const char *words)
{
    draft *d = draft_of(model);
    d->key = key;
    d->text = text;
    d->number = number;
    refuse_draft(d, status, "refused.gguf", words);
}

static void files_that_do_not_fit_are_refused_by_name(void **state)
{
    (void)state;
    refuse_key("qwen3vlmoe", "clip.projector_type", "ldpv2", 0, MO_EUNSUPPORTED, "\"ldpv2\"");
    refuse_key("gemma4", "clip.vision.projector_type", "gemma4uv", 0, MO_EUNSUPPORTED, "\"gemma4uv\"");
    refuse_key("qwen3vlmoe", "general.architecture", "llama", 0, MO_EFORMAT, "\"llama\"");
    refuse_key("qwen3vlmoe", "clip.has_vision_encoder", NULL, 0, MO_EUNSUPPORTED, "no encoder");
    refuse_key("qwen3vlmoe", "clip.vision.projection_dim", NULL, 41, MO_EFORMAT, "v.deepstack.0.fc2");
    refuse_key("gemma4", "clip.vision.projection_dim", NULL, 41, MO_EFORMAT, "mm.input_projection");
    refuse_key("qwen3vlmoe", "clip.vision.embedding_length", NULL, 64, MO_EFORMAT, "v.patch_embd");
    refuse_key("qwen3vlmoe", "clip.vision.attention.head_count", NULL, 0, MO_EFORMAT, "head_count");
    refuse_key("qwen3vlmoe", "clip.vision.attention.head_count", NULL, 16, MO_EFORMAT, "head_dim");
    refuse_key("gemma4", "clip.vision.block_count", NULL, 3, MO_EFORMAT, "v.blk.2.ln1.weight");
    draft *d = draft_of("qwen3vlmoe");
    d->key = "clip.vision.patch_size";
    d->leave_out = true;
    refuse_draft(d, MO_EFORMAT, "clip.vision.patch_size", "missing");
    d = draft_of("qwen3vlmoe");
    draft_drop(d, "v.deepstack.2.norm.weight");
    refuse_draft(d, MO_EFORMAT, "v.deepstack.2.norm.weight", "is_deepstack_layers");
    d = draft_of("qwen3vlmoe");
    entry *t = draft_find(d, "mm.0.weight");
    t->type = MO_Q4_0;
    t->bytes = mo_format_row_bytes(mo_format_of(MO_Q4_0), t->size[0]) * t->size[1];
    refuse_draft(d, MO_EUNSUPPORTED, "mm.0.weight", "Q4_0");
}

/* Every tensor that is not optional is missed. */
static void missing_tensors_are_named(void **state)
{
    static const char *const models[] = {"qwen3vlmoe", "gemma4"};
    (void)state;
    for (int m = 0; m < 2; m++) {
        draft *all = draft_of(models[m]);
        for (int i = 0; i < all->count; i += 3) {
            const char *name = all->tensors[i].name;
            if (!strstr(name, "put_m")) {
                draft *d = draft_of(models[m]);
                draft_drop(d, name);
                refuse_draft(d, MO_EFORMAT, name, "refused.gguf");
            }
        }
        draft_close(all);
    }
}

static bool stop(void *user, int64_t done, int64_t total)
{
    (void)total;
    *(int64_t *)user = done;
    return done < 2;
}

static void work_can_be_cancelled_and_sizes_are_checked(void **state)
{
    int64_t done = 0;
    mo_encoder *e = open_model("qwen3vlmoe");
    mo_encoder_work work = {.pool = pool, .kernels = best(), .progress = stop, .user = &done};
    mo_picture p = pixels_of(&examples[0]);
    float *out = calloc(values_of(e, &p), sizeof *out);
    mo_resize_rule rule;
    mo_error err;
    (void)state;
    assert_int_equal(mo_encoder_run(e, &work, &p, out, &err), MO_ECANCELLED);
    assert_int_equal(done, 2);
    assert_true(mo_encoder_work_bytes(e, &work, p.width, p.height) > 0);
    p.width = 40;
    assert_int_equal(mo_encoder_run(e, &work, &p, out, &err), MO_EINVAL);
    check_status(mo_encoder_rule(e, 0, 100, &rule, &err), &err);
    assert_true(rule.align == 16 && rule.min_pixels == 8 * 256 && rule.max_pixels == 100 * 256);
    assert_int_equal(mo_encoder_rule(e, 101, 100, &rule, &err), MO_EINVAL);
    mo_picture_free(&p);
    free(out);
    mo_encoder_close(e);
}

static int begin(void **state)
{
    return folder_make(state) == 0 && mo_pool_create(3, &pool, NULL) == MO_OK &&
                   mo_pool_create(1, &single, NULL) == MO_OK
               ? 0
               : -1;
}

static int end(void **state)
{
    mo_pool_destroy(pool);
    mo_pool_destroy(single);
    return folder_remove_empty(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patches_are_the_expected_ones),
        cmocka_unit_test(embeddings_are_the_expected_ones),
        cmocka_unit_test(same_bits_however_it_is_computed),
        cmocka_unit_test(other_formats),
        cmocka_unit_test(files_that_do_not_fit_are_refused_by_name),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(work_can_be_cancelled_and_sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
