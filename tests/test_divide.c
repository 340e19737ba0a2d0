/* Several devices share a model: which layers each gets, on machines that are described here, and who is left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/divide.h"
#include "plan/prompt.h"
#include "plan_case.h"

enum { LAYERS = 36 };

static mo_plan_layer layers[LAYERS];

/* gpt-oss-120b with its layers listed. */
static mo_plan_model listed(void)
{
    mo_plan_model m = gpt_oss_120b(8192);
    assert_int_equal(m.layers, LAYERS);
    const int64_t core = m.dense_bytes / LAYERS;
    m.device_core_bytes = m.core_bytes + m.vector_bytes;
    m.device_kv_bytes = m.kv_bytes;
    m.device_work_bytes = 300 * MIB;
    m.device_map_bytes = MIB;
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (mo_plan_layer){.bytes = core,
                                    .resident = core,
                                    .buffer_bytes = m.dense_buffer_bytes,
                                    .device_bytes = core,
                                    .link_bytes = core,
                                    .core_bytes = (m.dense_bytes + m.vector_bytes) / LAYERS,
                                    .state_bytes = m.kv_bytes / LAYERS};
    }
    m.layer = layers;
    return m;
}

static mo_plan_device_limits device(int64_t vram, double vram_s, double link_s)
{
    mo_plan_device_limits c = {
        .limits = {.ram_bytes = 128 * GIB, .vram_bytes = vram, .ram_keeps = true, .cpu_layers = true},
        .rates = {.ram_bytes_s = 60e9,
                  .compute_share = 0.75,
                  .disk_bytes_s = 4e9,
                  .link_bytes_s = link_s,
                  .vram_bytes_s = vram_s,
                  .host_bytes_s = 70e9,
                  .measured = true}};
    snprintf(c.rates.device, sizeof c.rates.device, "card of %lld GiB", (long long)(vram / GIB));
    return c;
}

static mo_run_plan divided(const mo_plan_model *m, const mo_plan_device_limits *devices, int count,
                           bool named, mo_plan_division *d)
{
    mo_run_plan p;
    mo_error err = {.detail = ""};
    const mo_plan_device_limits sum = mo_plan_devices_sum(m, devices, count);
    if (mo_plan_make(m, &sum.limits, &sum.rates, &p, &err) != MO_OK ||
        mo_plan_divide(m, devices, count, named, &p, d, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return p;
}

static double alone(const mo_plan_model *m, const mo_plan_device_limits *c)
{
    mo_run_plan p;
    mo_error err = {.detail = ""};
    if (mo_plan_make(m, &c->limits, &c->rates, &p, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return p.tokens_per_second;
}

/* Runs follow each other, cover all layers and stay under their ceilings; sums are sums. */
static void check_runs(const mo_plan_model *m, const mo_plan_device_limits *devices, const mo_run_plan *p,
                       const mo_plan_division *d)
{
    int64_t used = 0, slots = 0;
    double seconds = (d->count - 1) * MO_PLAN_HOP_SECONDS;
    for (int i = 0; i < d->count; i++) {
        const mo_plan_run *r = &d->run[i];
        assert_int_equal(r->first, i ? d->run[i - 1].end : 0);
        assert_true(r->end > r->first && (i == 0 || r->device > d->run[i - 1].device));
        assert_true(r->plan.used <= devices[r->device].limits.vram_bytes);
        assert_int_equal(r->plan.streamed, 0);
        assert_int_equal(r->plan.layers, r->end - r->first);
        used += r->plan.used;
        slots += r->plan.class_slots[0];
        seconds += r->seconds;
    }
    assert_int_equal(d->run[d->count - 1].end, m->layers);
    assert_int_equal(p->device.used, used);
    assert_int_equal(p->device.class_slots[0], slots);
    assert_true(fabs(1 / p->tokens_per_second - seconds) < 1e-9);
}

/* Two cards of a size serve as one of twice the size, but for working memory and a crossing. */
static void speed_grows_as_memory_does(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    for (int64_t vram = 8 * GIB; vram <= 40 * GIB; vram += 8 * GIB) {
        const mo_plan_device_limits both[] = {device(vram, 900e9, 25e9), device(vram, 900e9, 25e9)};
        const mo_plan_device_limits twice = device(2 * vram, 900e9, 25e9);
        mo_plan_division d = {0};
        const mo_run_plan p = divided(&m, both, 2, true, &d);
        assert_int_equal(d.count, 2);
        check_runs(&m, both, &p, &d);
        const double one = alone(&m, &both[0]), large = alone(&m, &twice);
        print_message("%lld GiB: one %.1f, two %.1f, one of twice the memory %.1f tokens/s\n",
                      (long long)(vram / GIB), one, p.tokens_per_second, large);
        assert_true(p.tokens_per_second > one);
        assert_true(p.tokens_per_second > 0.9 * large);
    }
}

static void larger_devices_get_more_layers(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    mo_plan_device_limits devices[] = {device(8 * GIB, 900e9, 25e9), device(24 * GIB, 900e9, 25e9),
                                       device(12 * GIB, 900e9, 25e9)};
    mo_plan_division d = {0};
    /* The CPU computes what is missing: where the link helps, the last of many missing experts costs less than the first, and a small
     * device may get more layers. */
    for (int i = 0; i < 3; i++) {
        devices[i].limits.postfetch = MO_POSTFETCH_OFF;
    }
    const mo_run_plan p = divided(&m, devices, 3, true, &d);
    assert_int_equal(d.count, 3);
    check_runs(&m, devices, &p, &d);
    const int first = d.run[0].end, second = d.run[1].end - first, third = LAYERS - d.run[1].end;
    assert_true(second > third && third >= first);
    assert_true(p.tokens_per_second > alone(&m, &devices[1]));
}

/* Everything fits into the fast card: an old one beside it would only slow a token down, unless somebody wants it. */
static void a_slow_device_is_left_out(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    const mo_plan_device_limits devices[] = {device(90 * GIB, 2000e9, 50e9), device(16 * GIB, 100e9, 6e9)};
    mo_plan_division d = {0};
    divided(&m, devices, 2, false, &d);
    assert_int_equal(d.count, 1);
    assert_int_equal(d.run[0].device, 0);
    divided(&m, devices, 2, true, &d);
    assert_int_equal(d.count, 2);
}

/* A card that holds no layer beside its working memory is left out, whoever named it. */
static void a_device_too_small_is_left_out(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    for (int tiny = 0; tiny < 3; tiny++) {
        mo_plan_device_limits devices[3];
        for (int i = 0; i < 3; i++) {
            devices[i] = device(i == tiny ? 100 * MIB : 20 * GIB, 900e9, 25e9);
        }
        mo_plan_division d = {0};
        const mo_run_plan p = divided(&m, devices, 3, true, &d);
        assert_int_equal(d.count, 2);
        assert_true(d.run[0].device != tiny && d.run[1].device != tiny);
        check_runs(&m, devices, &p, &d);
    }
}

/* Experts lie where their layer is computed. Were each free to lie in any card's memory, and reached from everywhere at no cost, the cards would
 * be one with all of their memory: what that could gain is a bound of what routing experts to other cards can. */
static void experts_on_other_devices_would_gain_little(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    static const struct {
        int64_t first, second; /* GiB */
        double first_s, second_s, first_link, second_link;
    } pairs[] = {{24, 8, 900e9, 900e9, 25e9, 25e9},  {8, 24, 900e9, 900e9, 25e9, 25e9},
                 {24, 8, 1000e9, 450e9, 25e9, 12e9}, {12, 12, 360e9, 360e9, 12e9, 12e9},
                 {24, 24, 936e9, 936e9, 25e9, 25e9}, {32, 16, 1790e9, 760e9, 50e9, 25e9},
                 {16, 6, 670e9, 360e9, 25e9, 12e9},  {24, 12, 1000e9, 360e9, 25e9, 6e9}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const mo_plan_device_limits devices[] = {
            device(pairs[i].first * GIB, pairs[i].first_s, pairs[i].first_link),
            device(pairs[i].second * GIB, pairs[i].second_s, pairs[i].second_link)};
        mo_plan_device_limits sum = mo_plan_devices_sum(&m, devices, 2);
        sum.rates.link_bytes_s = fmax(pairs[i].first_link, pairs[i].second_link);
        mo_plan_division d = {0};
        const mo_run_plan p = divided(&m, devices, 2, true, &d);
        const double bound = alone(&m, &sum);
        print_message("%lld and %lld GiB: %.1f tokens/s, experts anywhere at most %.1f (%.1f %% more); hits "
                      "%.1f and %.1f %%\n",
                      (long long)pairs[i].first, (long long)pairs[i].second, p.tokens_per_second, bound,
                      100 * (bound / p.tokens_per_second - 1), 100 * d.run[0].plan.hit_rate,
                      100 * d.run[1].plan.hit_rate);
        assert_true(bound < 1.05 * p.tokens_per_second);
    }
}

/* Prompts go through the cards in pieces, and are faster for it, where cards compute at the same time. */
static void prompts_go_in_pieces(void **state)
{
    (void)state;
    mo_plan_model m = listed();
    m.batch = 4096;
    for (int count = 2; count <= 3; count++) {
        mo_plan_device_limits devices[3];
        mo_plan_division d = {0};
        mo_run_plan whole, pieces;
        for (int i = 0; i < 3; i++) {
            devices[i] = device(40 * GIB, 900e9, 25e9);
        }
        mo_error err = {.detail = ""};
        const mo_plan_device_limits sum = mo_plan_devices_sum(&m, devices, count);
        assert_int_equal(mo_plan_choose(&m, &sum.limits, &sum.rates, &whole, &err), MO_OK);
        assert_int_equal(whole.mode, MO_PLAN_RESIDENT);
        pieces = whole;
        assert_int_equal(mo_plan_divide(&m, devices, count, true, &whole, &d, &err), MO_OK);
        assert_int_equal(d.count, count);
        assert_int_equal(d.piece, 0); /* the same card, as often as it is named */
        for (int i = 0; i < 3; i++) {
            devices[i].limits.vram_location = mo_location_here(MO_TIER_VRAM, i);
        }
        assert_int_equal(mo_plan_divide(&m, devices, count, true, &pieces, &d, &err), MO_OK);
        assert_true(d.piece >= MO_PLAN_PIECE_LEAST && d.piece <= m.batch / 2);
        const double gain = whole.prompt_seconds / pieces.prompt_seconds;
        print_message("%d cards: pieces of %lld tokens, %.2f times as fast as a whole\n", count,
                      (long long)d.piece, gain);
        assert_true(gain > 0.6 * count && gain < count);
    }
}

/* Where each piece lets most experts cross again, a prompt had better stay whole. */
static void prompts_that_wait_for_the_link_stay_whole(void **state)
{
    (void)state;
    mo_plan_model m = listed();
    m.batch = 2048;
    mo_plan_device_limits devices[2];
    mo_plan_division d = {0};
    mo_run_plan p;
    mo_error err = {.detail = ""};
    for (int i = 0; i < 2; i++) {
        devices[i] = device(6 * GIB, 900e9, 4e9);
        devices[i].limits.vram_location = mo_location_here(MO_TIER_VRAM, i);
    }
    const mo_plan_device_limits sum = mo_plan_devices_sum(&m, devices, 2);
    assert_int_equal(mo_plan_choose(&m, &sum.limits, &sum.rates, &p, &err), MO_OK);
    assert_int_equal(mo_plan_divide(&m, devices, 2, true, &p, &d, &err), MO_OK);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.piece, 0);
}

static void cores_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const mo_plan_model m = listed();
    const mo_plan_device_limits devices[] = {device(600 * MIB, 900e9, 25e9), device(600 * MIB, 900e9, 25e9)};
    mo_plan_division d = {0};
    mo_error err = {.detail = ""};
    mo_run_plan p = {.mode = MO_PLAN_RESIDENT}, before = p;
    assert_int_equal(mo_plan_divide(&m, devices, 2, true, &p, &d, &err), MO_EDEVICE);
    assert_memory_equal(&p, &before, sizeof p);
    mo_plan_model unlisted = m;
    unlisted.layer = NULL;
    assert_int_equal(mo_plan_divide(&unlisted, devices, 2, true, &p, &d, NULL), MO_EDEVICE);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speed_grows_as_memory_does),
        cmocka_unit_test(larger_devices_get_more_layers),
        cmocka_unit_test(a_slow_device_is_left_out),
        cmocka_unit_test(a_device_too_small_is_left_out),
        cmocka_unit_test(cores_that_do_not_fit_are_refused),
        cmocka_unit_test(prompts_go_in_pieces),
        cmocka_unit_test(experts_on_other_devices_would_gain_little),
        cmocka_unit_test(prompts_that_wait_for_the_link_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
