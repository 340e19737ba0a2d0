/* Devices by name, and what a probe of them finds, on the simulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/choice.h"
#include "device/sim/sim.h"
#include "plan/probe/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

static mo_device *open_sim(int64_t memory, double link)
{
    mo_device *device;
    mo_error err;
    const mo_sim_options options = {.memory_bytes = memory, .link_bytes_s = link};
    if (mo_sim_open(&options, &device, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return device;
}

static const mo_probe_device_options quick = {.threads = 1, .memory_bytes = 4 * MIB, .point_ms = 20};

/* Within 20 % of the rate, or below it. */
static bool near(double rate, double wanted)
{
    assert_true(rate > 0 && rate < 1.2 * wanted);
    return rate > 0.8 * wanted;
}

static void assert_given_back(mo_device *device)
{
    int64_t now, peak;
    mo_sim_usage(device, &now, &peak);
    assert_int_equal(now, 0);
    assert_true(peak <= 24 * MIB); /* a quarter for copies, a quarter for the matrix */
    mo_device_close(device);
}

static mo_probe_device_report probed(mo_device *device)
{
    mo_error err;
    mo_probe_device_report r;
    if (mo_probe_device(device, &quick, &r, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return r;
}

static void finds_the_rate_of_the_link(void **state)
{
    (void)state;
    const double link = 200e6;
    mo_device *device = open_sim(32 * MIB, link);
    bool in = false, out = false;
    for (int i = 0; i < 20 && !(in && out); i++) { /* never more; less where other programs have the cores */
        const mo_probe_device_report r = probed(device);
        in |= near(r.link_bytes_s, link);
        out |= near(r.link_out_bytes_s, link);
        for (int k = 0; k < r.copy_count; k++) {
            assert_int_equal(r.copies[k].bytes, MIB / 4 << 2 * k);
            near(r.copies[k].in_bytes_s, link);
            near(r.copies[k].out_bytes_s, link);
            near(r.copies[k].pageable_bytes_s, link);
        }
        near(r.both_link_bytes_s, link);
        assert_int_equal(r.copy_count, 3); /* up to a quarter of the memory: 4 MiB */
        assert_string_equal(r.kind, "sim");
        assert_true(strlen(r.name) > 0 && r.pinned);
        assert_int_equal(r.memory_bytes, 32 * MIB);
        assert_true(r.both_ram_bytes_s > 0 && r.memory_bytes_s > 0);
        assert_int_equal(r.expert_count,
                         0); /* eight of the smallest are more than the 4 MiB that products read */
        assert_true(r.launch_seconds > 0 && r.round_trip_seconds > 0);
    }
    assert_true(in && out);
    assert_given_back(device);
}

/* Experts of each size that fits: the link beside products is as configured, products are known by themselves. */
static void measures_experts(void **state)
{
    (void)state;
    const double link = 400e6;
    mo_device *device = open_sim(96 * MIB, link);
    mo_probe_device_options o = quick;
    mo_probe_device_report r;
    mo_error err;
    bool found[3] = {false, false, false};
    o.memory_bytes = 32 * MIB;
    for (int i = 0; i < 20 && !(found[0] && found[1] && found[2]);
         i++) { /* less where other programs have the cores */
        assert_int_equal(mo_probe_device(device, &o, &r, &err), MO_OK);
        assert_int_equal(r.expert_count, 3);
        for (int k = 0; k < r.expert_count; k++) {
            const struct mo_probe_expert *e = &r.experts[k];
            assert_int_equal(e->bytes, MIB << k);
            assert_true(e->cpu_bytes_s > 0 && e->both_cpu_bytes_s > 0);
            found[k] |= near(e->both_link_bytes_s, link);
        }
    }
    assert_true(found[0] && found[1] && found[2]);
    mo_device_close(device);
}

static void goes_on_without_pinned_memory(void **state)
{
    (void)state;
    mo_device *device = open_sim(8 * MIB, 0);
    mo_sim_arm(device, MO_SIM_PIN, 0);
    const mo_probe_device_report r = probed(device);
    assert_false(r.pinned);
    assert_true(r.link_bytes_s > 0);
    assert_given_back(device);
}

static void faults_are_reported(void **state)
{
    (void)state;
    static const mo_sim_fault faults[] = {MO_SIM_ALLOC, MO_SIM_COPY, MO_SIM_LOST};
    for (int i = 0; i < 9; i++) {
        mo_error err = {0};
        mo_probe_device_report r;
        memset(&r, 0x5A, sizeof r);
        const mo_probe_device_report before = r;
        mo_device *device = open_sim(8 * MIB, 0);
        mo_sim_arm(device, faults[i % 3], i % 3 == 0 ? i / 6 : (int64_t[]){0, 5, 40}[i / 3]);
        assert_int_not_equal(mo_probe_device(device, &quick, &r, &err), MO_OK);
        assert_true(strlen(err.detail) > 10);
        assert_memory_equal(&r, &before, sizeof r);
        assert_given_back(device);
    }
    mo_error err;
    mo_probe_device_report r;
    mo_device *device = open_sim(MIB / 2, 0); /* too little to measure with */
    assert_int_equal(mo_probe_device(device, &quick, &r, &err), MO_EDEVICE);
    mo_device_close(device);
}

static bool count_down(void *user, const char *what)
{
    int *left = user;
    assert_true(strlen(what) > 3);
    return (*left)-- > 0;
}

static void stops_when_told(void **state)
{
    (void)state;
    mo_error err;
    mo_probe_device_report r;
    for (int i = 0; i < 12; i += 4) {
        int left = i;
        mo_device *device = open_sim(8 * MIB, 0);
        mo_probe_device_options o = quick;
        o.point_ms = 1;
        o.go_on = count_down;
        o.user = &left;
        assert_int_equal(mo_probe_device(device, &o, &r, &err),
                         i < MO_PROBE_DEVICE_STEPS - 9 ? MO_ECANCELLED : MO_OK);
        assert_given_back(device);
    }
}

/* ---- Names ---- */

static void none_and_nonsense(void **state)
{
    (void)state;
    mo_error err;
    char why[MO_DEVICE_WHY] = "x";
    mo_device *device = (mo_device *)why;
    assert_int_equal(mo_device_choose("none", &device, why, sizeof why, &err), MO_OK);
    assert_null(device);
    assert_string_equal(why, "");
    assert_int_equal(mo_device_choose("gpu", &device, NULL, 0, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "\"gpu\" is not a device; use none, sim, cuda or auto"));
    assert_int_equal(mo_device_choose("", &device, NULL, 0, &err), MO_EINVAL);
    assert_null(device);
}

static void automatic(void **state)
{
    (void)state;
    mo_error err;
    char why[MO_DEVICE_WHY];
    mo_device *device, *forced;
    assert_int_equal(mo_device_choose("auto", &device, why, sizeof why, &err), MO_OK);
    assert_true(device || strlen(why) > 10); /* a GPU, or why not */
    const mo_status status = mo_device_choose("cuda", &forced, NULL, 0, &err);
    assert_int_equal(status, device ? MO_OK : MO_EDEVICE);
    assert_true(device || (!forced && strlen(err.detail) > 10));
    mo_device_close(device);
    mo_device_close(forced);
    assert_int_equal(mo_device_choose(NULL, &device, NULL, 0, &err), MO_OK);
    mo_device_close(device);
    assert_int_equal(mo_device_choose_verbose("none", &device, why, sizeof why, &err), MO_OK);
    assert_null(device);
}

static void simulated(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device;
    mo_device_info info;
    unsetenv("MORAINE_SIM");
    assert_int_equal(mo_device_choose("sim", &device, NULL, 0, &err), MO_OK);
    mo_device_describe(device, &info);
    assert_string_equal(info.kind, "sim");
    assert_int_equal(info.total_bytes, (int64_t)1 << 30);
    mo_device_close(device);
    setenv("MORAINE_SIM", "memory=3M,link=1.5G,latency=4,hang=20,", 1);
    assert_int_equal(mo_device_choose("sim", &device, NULL, 0, &err), MO_OK);
    mo_device_describe(device, &info);
    assert_int_equal(info.total_bytes, 3 * MIB);
    assert_true(info.link_bytes_s == 1.5e9 && info.link_copy_s == 4e-6);
    mo_device_close(device);
    for (int count = 1; count <= 3; count++) {
        char text[64];
        mo_daddr a, b;
        snprintf(text, sizeof text, count == 1 ? "fault=alloc:1,memory=4M" : "fault=alloc:1:%d,memory=4M",
                 count);
        setenv("MORAINE_SIM", text, 1);
        assert_int_equal(mo_device_choose("sim", &device, NULL, 0, &err), MO_OK);
        assert_int_equal(mo_device_alloc(device, 256, &a, &err), MO_OK);
        for (int i = 0; i < count; i++) {
            assert_int_equal(mo_device_alloc(device, 256, &b, &err), MO_ENOMEM);
        }
        assert_int_equal(mo_device_alloc(device, 256, &b, &err), MO_OK);
        mo_device_free(device, a);
        mo_device_free(device, b);
        mo_device_close(device);
    }
    static const char *const bad[] = {"memory",
                                      "memory=",
                                      "memory=many",
                                      "memory=0",
                                      "memory=1X",
                                      "link=-5",
                                      "fault",
                                      "fault=odd",
                                      "fault=lost:x",
                                      "speed=5",
                                      "memory=1G2G",
                                      "hang=999999",
                                      "=3",
                                      "fault=copy:",
                                      "fault=copy:1:0",
                                      "fault=copy:1:",
                                      "fault=copy::2",
                                      "fault=copy:1:2:3",
                                      "fault=copy:1:-1",
                                      "fault=lost:1:2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("MORAINE_SIM", bad[i], 1);
        assert_int_equal(mo_device_choose("sim", &device, NULL, 0, &err), MO_EINVAL);
        assert_non_null(strstr(err.detail, "MORAINE_SIM"));
        assert_non_null(strstr(err.detail, bad[i]));
        assert_null(device);
    }
    unsetenv("MORAINE_SIM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_rate_of_the_link),
        cmocka_unit_test(measures_experts),
        cmocka_unit_test(goes_on_without_pinned_memory),
        cmocka_unit_test(faults_are_reported),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(none_and_nonsense),
        cmocka_unit_test(automatic),
        cmocka_unit_test(simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
