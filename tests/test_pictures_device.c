/* Rows of pictures on devices: the CPU's bits for every model of data/pictures, in any steps, formats and company, however layers and experts are
 * divided; and where a device is lost. The devices are simulated; MO_TEST_DEVICE=cuda takes the same GPU as often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "moraine_tools.h"
#include "picture_rows.h"
#include "sanitized.h"

enum { BATCH = 256, PIECE = 24 };

static const char *device = "sim", *several[2] = {"sim,sim", "sim,sim,sim"};

static int name_devices(void **state)
{
    if (getenv("MO_TEST_DEVICE")) {
        device = "cuda";
        several[0] = "cuda:0,cuda:0";
        several[1] = "cuda:0,cuda:0,cuda:0";
    }
    return read_examples(state);
}

/* What is lost on command is simulated. */
static bool simulated(void)
{
    return strcmp(device, "sim") == 0;
}

static size_t all_bytes(const example *e)
{
    return sizeof(float) * (size_t)(e->c.count * e->c.vocab);
}

/* A sanitized build takes short ones. */
static bool passes_over(const example *e)
{
    return SANITIZED && e->c.count > 100;
}

static float *wanted(example *e, mo_kv_type kv)
{
    mo_model *model = open_picture_model(e->c.model, 2, BATCH, "none");
    mo_session *session = open_session(model, kv);
    float *want = logits_of(e, session, 0);
    mo_session_close(session);
    mo_model_close(model);
    return want;
}

static void expect(example *e, mo_model *model, mo_kv_type kv, int64_t step, const float *want,
                   const char *how)
{
    mo_session *session = open_session(model, kv);
    float *got = logits_of(e, session, step);
    if (memcmp(got, want, all_bytes(e)) != 0) {
        fail_msg("%s on %s: other bits in steps of %d", e->c.name, how, (int)step);
    }
    free(got);
    mo_session_close(session);
}

static void same_bits_in_any_steps_and_formats(void **state)
{
    static const int64_t steps[] = {0, 1, 5, 33};
    static const mo_kv_type formats[] = {MO_KV_I16, MO_KV_Q8_0, MO_KV_F32};
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (passes_over(e)) {
            continue;
        }
        mo_model *model = open_picture_model(e->c.model, 2, BATCH, device);
        for (int k = 0; k < 3; k++) {
            float *want = wanted(e, formats[k]);
            for (int s = 0; s < 4; s++) {
                expect(e, model, formats[k], steps[s], want, "a device");
            }
            free(want);
        }
        mo_session *session = open_session(model, MO_KV_I16);
        free(logits_of(e, session, 7));
        check_greedy(e, session);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Experts that stay in RAM: the CPU serves small steps, others fetch. */
static void same_bits_with_experts_in_ram(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        mo_model_options options = picture_options(2, BATCH, device);
        options.cpu_moe = true;
        if (passes_over(e)) {
            continue;
        }
        mo_model *model = open_with(e->c.model, &options);
        float *want = wanted(e, MO_KV_I16);
        expect(e, model, MO_KV_I16, 0, want, "a device without experts");
        expect(e, model, MO_KV_I16, 6, want, "a device without experts");
        free(want);
        mo_model_close(model);
    }
}

/* Layers that do not stay on the device: they cross to it, or the CPU computes them in small steps. */
static void same_bits_with_layers_in_ram(void **state)
{
    static const char *const links[] = {"link=1e8", "link=1e12", "link=4e8"};
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        mo_model_options options = picture_options(2, BATCH, device);
        mo_plan_report plan;
        mo_error err;
        char path[512];
        if (passes_over(e)) {
            continue;
        }
        model_path(e->c.model, path, sizeof path);
        options.vram_bytes = (int64_t)1 << 30;
        check_status(mo_plan_file(path, &options, NULL, &plan, sizeof plan, &err), &err);
        options.vram_bytes = plan.device.least_bytes;
        setenv("MORAINE_SIM", links[i % 3], 1);
        mo_model *model = open_with(e->c.model, &options);
        unsetenv("MORAINE_SIM");
        float *want = wanted(e, MO_KV_I16);
        expect(e, model, MO_KV_I16, 0, want, "a small device");
        expect(e, model, MO_KV_I16, 3, want, "a small device");
        free(want);
        mo_model_close(model);
    }
}

/* Layers of several devices, one after the other and in pieces. Rows that see each other are not divided. */
static void same_bits_on_several_devices(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (passes_over(e)) {
            continue;
        }
        const int most = strcmp(e->c.model, "qwen3vlmoe") == 0 ? 2 : 1; /* the others have two layers */
        float *want = wanted(e, MO_KV_I16);
        for (int n = 0; n < most; n++) {
            mo_model *model = open_picture_model(e->c.model, 2, BATCH, several[n]);
            assert_non_null(model->gpu->next);
            expect(e, model, MO_KV_I16, 0, want, several[n]);
            expect(e, model, MO_KV_I16, 6, want, several[n]);
            mo_gpu_divide_batches(model->gpu, PIECE);
            expect(e, model, MO_KV_I16, 0, want, "devices in pieces");
            if (strcmp(e->c.model, "qwen35moe") == 0 && e->c.count > PIECE) {
                assert_int_equal(model->gpu->pieces.round, 1);
            }
            mo_model_close(model);
        }
        free(want);
    }
}

/* Two sessions of which each has its pictures, fed together, and one of text beside them. */
static void same_bits_in_company(void **state)
{
    (void)state;
    for (int i = 0; i + 2 < CASES; i++) {
        example *e = &examples[i], *other = &examples[i + 1];
        if (strcmp(e->c.model, other->c.model) != 0 || passes_over(e) || passes_over(other)) {
            continue;
        }
        mo_model *model = open_picture_model(e->c.model, 2, 224, device);
        float *want = wanted(e, MO_KV_I16);
        check_company(e, other, model, want);
        free(want);
        mo_model_close(model);
    }
}

static const float *hidden;

static mo_status make_again(mo_image *image, mo_progress_fn progress, void *user, mo_error *err)
{
    (void)progress;
    (void)user;
    (void)err;
    atomic_store(&image->values, hidden);
    return MO_OK;
}

/* The text is computed anew from its first token, with rows of pictures that nobody needed before. */
static void a_lost_device_makes_rows_anew(void **state)
{
    (void)state;
    if (!simulated()) {
        skip();
    }
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (passes_over(e)) {
            continue;
        }
        mo_model *model = open_picture_model(e->c.model, 2, BATCH, device);
        mo_session *s = open_session(model, MO_KV_I16);
        mo_image *list[IMAGES], *first = &e->image[0];
        mo_error err;
        float *want = wanted(e, MO_KV_I16);
        mo_feed f = feed_of(e, s, list, 0);
        f.count -= 1;
        check_status(mo_session_feed(&f, 1, &err), &err);
        hidden = atomic_load(&first->values);
        atomic_store(&first->values, NULL);
        first->make = make_again;
        mo_sim_arm(model->device, MO_SIM_LOST, 3);
        f.count += 1;
        check_status(mo_session_feed(&f, 1, &err), &err);
        mo_sim_arm(model->device, MO_SIM_NONE, 0);
        assert_true(atomic_load(&first->values) == hidden);
        first->make = make_nothing;
        assert_memory_equal(mo_session_logits(s), want + (e->c.count - 1) * e->c.vocab,
                            sizeof(float) * (size_t)e->c.vocab);
        free(want);
        mo_session_close(s);
        mo_model_close(model);
    }
}

/* One of two, in the middle of the pictures: the CPU computes its layers, features and all. */
static void the_cpu_has_a_lost_devices_layers(void **state)
{
    (void)state;
    if (!simulated()) {
        skip();
    }
    for (int i = 0; i < CASES; i++) {
        for (int which = 0; which < 2; which++) {
            example *e = &examples[i];
            if (passes_over(e)) {
                continue;
            }
            mo_model *model = open_picture_model(e->c.model, 2, BATCH, several[0]);
            float *want = wanted(e, MO_KV_I16);
            mo_sim_arm(which ? model->others[0] : model->device, MO_SIM_LOST, 30);
            expect(e, model, MO_KV_I16, 16, want, "what is left of two devices");
            free(want);
            mo_model_close(model);
        }
    }
}

/* ---- The encoder ---- */

static mo_model *open_with_encoder(const char *name, const char *on)
{
    char file[80], path[512];
    mo_model_options options = picture_options(2, BATCH, on);
    snprintf(file, sizeof file, "%.40s.mmproj.gguf", name);
    picture_path(file, path, sizeof path);
    options.mmproj = path;
    return open_with(name, &options);
}

/* Rows of a picture, to be freed. */
static float *encoded(mo_model *model, size_t *bytes)
{
    static uint8_t pixels[160 * 96 * 3];
    const int64_t side = strstr(mo_model_projector(model), "gemma") ? 12 : 16;
    const mo_image_info info = {.width = 10 * side, .height = 6 * side};
    mo_image *image;
    mo_error err;
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * i / 37 + i);
    }
    check_status(mo_image_open_pixels(model, &info, pixels, &image, &err), &err);
    check_status(mo_image_encode(image, NULL, NULL, &err), &err);
    *bytes = sizeof(float) * (size_t)(mo_image_rows(image) * image->width * (1 + image->features));
    float *rows = malloc(*bytes);
    assert_non_null(rows);
    memcpy(rows, atomic_load(&image->values), *bytes);
    mo_image_close(image);
    return rows;
}

static void expect_rows(mo_model *model, const float *want, size_t bytes)
{
    size_t got_bytes;
    float *got = encoded(model, &got_bytes);
    assert_int_equal(got_bytes, bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
}

/* The device encodes pictures in memory that the plan left; where it fails, or computes no such encoder, the CPU does. */
static void same_rows_from_the_device(void **state)
{
    static const char *const models[] = {"qwen3vlmoe", "qwen35moe", "gemma4"};
    static const int64_t lost_after[] = {0, 9, 45};
    (void)state;
    for (int i = 0; i < 3; i++) {
        mo_model *model = open_with_encoder(models[i], "none");
        size_t bytes;
        float *want = encoded(model, &bytes);
        mo_model_close(model);
        model = open_with_encoder(models[i], device);
        const int64_t before = mo_gpu_memory_peak(&model->gpu->memory);
        expect_rows(model, want, bytes);
        assert_int_equal(mo_gpu_memory_peak(&model->gpu->memory) > before, i < 2);
        for (int k = 0; simulated() && k < 3; k++) {
            mo_sim_arm(model->device, MO_SIM_COPY, lost_after[k]);
            expect_rows(model, want, bytes);
            mo_sim_arm(model->device, MO_SIM_NONE, 0);
        }
        mo_model_close(model);
        for (int k = 0; simulated() && k < 3; k++) {
            model = open_with_encoder(models[i], device);
            mo_sim_arm(model->device, MO_SIM_LOST, lost_after[k]);
            expect_rows(model, want, bytes);
            expect_rows(model, want, bytes);
            mo_model_close(model);
        }
        free(want);
    }
}

/* A picture that does not fit in what is left. */
static void the_cpu_encodes_what_does_not_fit(void **state)
{
    mo_device *there;
    mo_daddr taken;
    mo_error err;
    (void)state;
    mo_model *model = open_with_encoder("qwen3vlmoe", device);
    size_t bytes;
    float *want = encoded(model, &bytes);
    const int64_t left = mo_gpu_free_bytes(model->gpu), kept = 4096;
    assert_true(left > kept);
    check_status(mo_gpu_lend(model->gpu, left - kept, "a test", &there, &taken, &err), &err);
    const int64_t before = mo_gpu_memory_peak(&model->gpu->memory);
    expect_rows(model, want, bytes);
    assert_int_equal(mo_gpu_memory_peak(&model->gpu->memory), before);
    mo_gpu_take_back(model->gpu, taken, left - kept);
    free(want);
    mo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_rows_from_the_device),
        cmocka_unit_test(the_cpu_encodes_what_does_not_fit),
        cmocka_unit_test(same_bits_in_any_steps_and_formats),
        cmocka_unit_test(same_bits_with_experts_in_ram),
        cmocka_unit_test(same_bits_with_layers_in_ram),
        cmocka_unit_test(same_bits_on_several_devices),
        cmocka_unit_test(same_bits_in_company),
        cmocka_unit_test(a_lost_device_makes_rows_anew),
        cmocka_unit_test(the_cpu_has_a_lost_devices_layers),
    };
    return cmocka_run_group_tests(tests, name_devices, free_examples);
}
