/* Encoders of pictures on a device: the CPU's bits, in any slices; a device that fails says so. The device is simulated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#include "device/sim/sim.h"
#include "vision/device_run.h"

#define DATA MO_TEST_DATA "/pictures/"

static mo_encoder *open_model(const char *model)
{
    char path[512];
    mo_encoder *e;
    mo_error err;
    snprintf(path, sizeof path, DATA "%s.mmproj.gguf", model);
    check_status(mo_encoder_open(path, false, &e, &err), &err);
    return e;
}

static mo_picture drawn(const mo_encoder *e, int64_t columns, int64_t lines)
{
    const int64_t align = mo_encoder_spec(e)->patch * mo_encoder_spec(e)->merge;
    mo_picture p;
    mo_error err;
    check_status(mo_picture_make(columns * align, lines * align, &p, &err), &err);
    for (int64_t i = 0; i < p.width * p.height * 3; i++) {
        p.rgb[i] = (uint8_t)(i * i / 37 + i);
    }
    return p;
}

static mo_status encode_status(const mo_encoder *e, mo_device *device, const mo_encoder_work *work,
                               const mo_picture *p, float *out)
{
    const int64_t bytes = mo_encoder_device_bytes(e, p->width, p->height);
    mo_daddr memory;
    mo_error err;
    check_status(mo_device_alloc(device, (size_t)bytes, &memory, &err), &err);
    const mo_status status = mo_encoder_device_run(e, device, memory, work, p, out, &err);
    mo_device_free(device, memory);
    return status;
}

static void encode_there(const mo_encoder *e, mo_device *device, const mo_encoder_work *work,
                         const mo_picture *p, float *out)
{
    assert_int_equal(encode_status(e, device, work, p, out), MO_OK);
}

static void same_bits_as_on_the_cpu(void **state)
{
    static const char *const models[] = {"qwen3vlmoe", "qwen35moe"};
    static const int64_t sizes[][2] = {{9, 8}, {5, 3}, {40, 4}}; /* of the last one two slices */
    const mo_sim_options options = {0};
    mo_pool *pool;
    mo_device *device;
    mo_error err;
    mo_encoder_work work = {0};
    (void)state;
    check_status(mo_pool_create(2, &pool, &err), &err);
    check_status(mo_sim_open(&options, &device, &err), &err);
    check_status(mo_kernels_select(NULL, &work.kernels, &err), &err);
    work.pool = pool;
    for (int i = 0; i < 6; i++) {
        mo_encoder *e = open_model(models[i % 2]);
        mo_picture p = drawn(e, sizes[i / 2][0], sizes[i / 2][1]);
        const size_t n = (size_t)(mo_encoder_rows(e, p.width, p.height) * mo_vision_row(mo_encoder_spec(e)));
        float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
        assert_true(want && got && !mo_encoder_device_refusal(e));
        check_status(mo_encoder_run(e, &work, &p, want, &err), &err);
        encode_there(e, device, &work, &p, got);
        size_t first = 0;
        while (first < n && memcmp(&got[first], &want[first], sizeof *got) == 0) {
            first++;
        }
        if (first < n) {
            fail_msg("%s: value %zu of %zu is %g instead of %g", models[i % 2], first, n, got[first],
                     want[first]);
        }
        free(want);
        free(got);
        mo_picture_free(&p);
        mo_encoder_close(e);
    }
    int64_t now, peak;
    mo_sim_usage(device, &now, &peak);
    assert_int_equal(now, 0);
    mo_device_close(device);
    mo_pool_destroy(pool);
}

/* Lost at any op or copy, or one copy fails: the run ends with that, and leaves nothing behind. */
static void a_device_that_fails_says_so(void **state)
{
    static const mo_sim_fault faults[] = {MO_SIM_LOST, MO_SIM_COPY};
    mo_encoder *e = open_model("qwen35moe");
    mo_picture p = drawn(e, 3, 2);
    float *out = calloc((size_t)(mo_encoder_rows(e, p.width, p.height) * mo_vision_row(mo_encoder_spec(e))),
                        sizeof *out);
    mo_error err;
    mo_encoder_work work = {0};
    (void)state;
    assert_non_null(out);
    check_status(mo_kernels_select(NULL, &work.kernels, &err), &err);
    for (int i = 0; i < 2; i++) {
        for (int64_t after = 0; after < 30; after += 7) {
            const mo_sim_options options = {0};
            mo_device *device;
            int64_t now, peak;
            check_status(mo_sim_open(&options, &device, &err), &err);
            mo_sim_arm(device, faults[i], after);
            const mo_status status = encode_status(e, device, &work, &p, out);
            assert_int_equal(status, faults[i] == MO_SIM_LOST ? MO_EDEVICE : MO_EIO);
            mo_sim_usage(device, &now, &peak);
            assert_int_equal(now, 0);
            mo_device_close(device);
        }
    }
    free(out);
    mo_picture_free(&p);
    mo_encoder_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_as_on_the_cpu),
                                       cmocka_unit_test(a_device_that_fails_says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
