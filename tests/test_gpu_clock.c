/* The clock of a gpu with stamps of our own: every sum is known beforehand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/clock.h"

enum { LAYERS = 4 };

static mo_gpu_clock *open_clock(void)
{
    mo_error err = {.detail = ""};
    mo_gpu_clock *c = NULL;
    assert_int_equal(mo_gpu_clock_open(LAYERS, &c, &err), MO_OK);
    return c;
}

static mo_tally *open_tally(void)
{
    static const int32_t layers[] = {1, 3}, experts[] = {8, 8};
    const mo_profile_shape shape = {.used = 2, .layers = 2, .layer = layers, .experts = experts};
    mo_error err = {.detail = ""};
    mo_tally *t = NULL;
    assert_int_equal(mo_tally_create(&shape, &t, &err), MO_OK);
    return t;
}

/* Layers 1 and 3 need the host. The first fetches beside the CPU, whose lane is the longer one; the second is one of
 * Post-Fetch, whose copies are late: the CPU computes twice and waits twice. */
static void stamp(mo_gpu_clock *c, bool counts)
{
    mo_gpu_clock_begin(c, counts, 1000);
    mo_gpu_clock_launched(c, 1500);
    mo_gpu_clock_seen(c, 1, 10000);
    mo_gpu_clock_fetch(c, 1, 10100);
    mo_gpu_clock_fall(c, 1, MO_FALLBACK_FAILED);
    mo_gpu_clock_computed(c, 1, 10400, 14400);
    mo_gpu_clock_replied(c, 1, true, 2, 15000);
    mo_gpu_clock_fetched(c, 1, 3000);
    mo_gpu_clock_seen(c, 2, 15600);
    mo_gpu_clock_hosted(c, 2, 16000);
    mo_gpu_clock_seen(c, 3, 20000);
    mo_gpu_clock_fetch(c, 3, 20100);
    mo_gpu_clock_computed(c, 3, 20200, 22200);
    mo_gpu_clock_waited(c, 3, 22200, 22700);
    mo_gpu_clock_fall(c, 3, MO_FALLBACK_LATE);
    mo_gpu_clock_fall(c, 3, MO_FALLBACK_LATE);
    mo_gpu_clock_computed(c, 3, 22800, 23800);
    mo_gpu_clock_waited(c, 3, 24000, 25000);
    mo_gpu_clock_fetched(c, 3, 4000);
    mo_gpu_clock_replied(c, 3, false, 1, 25100);
}

static const uint32_t waited[LAYERS] = {0, 1200, 300, 9000}; /* the third is one that the CPU computes */

static void sums_are_exact(void **state)
{
    (void)state;
    mo_gpu_clock *c = open_clock();
    uint64_t fetch = 0, hidden = 0;
    mo_device_layer layers[LAYERS];
    mo_device_report r = {0};
    for (int i = 0; i < 3; i++) {
        stamp(c, true);
        mo_gpu_clock_end(c, waited, NULL, true, 31000, &fetch, &hidden);
    }
    assert_int_equal(mo_gpu_clock_layers(c, layers, 1), 2);
    assert_int_equal(mo_gpu_clock_layers(c, layers, LAYERS), 2);
    const mo_device_layer *a = &layers[0], *b = &layers[1];
    assert_true(a->layer == 1 && a->served == 3 && a->fetched == 6);
    assert_int_equal(a->core_ns, 3 * 8500);
    assert_int_equal(a->region_ns, 3 * 5000);
    assert_int_equal(a->cpu_ns, 3 * 4000);
    assert_int_equal(a->turn_ns, 3 * 1000);
    assert_int_equal(a->host_wait_ns, 0);
    assert_int_equal(a->device_wait_ns, 3 * 1200);
    assert_int_equal(a->fetch_ns, 3 * 3000);
    assert_int_equal(a->hidden_ns, 3 * (13100 - 10400));
    assert_int_equal(a->fallbacks[MO_FALLBACK_FAILED], 3);
    assert_true(b->layer == 3 && b->served == 3 && b->fetched == 3);
    assert_int_equal(b->core_ns, 3 * 4000); /* since the stream came back */
    assert_int_equal(b->region_ns, 3 * 5100);
    assert_int_equal(b->cpu_ns, 3 * 3000);
    assert_int_equal(b->host_wait_ns, 3 * 1500);
    assert_int_equal(b->turn_ns, 3 * 600);
    assert_int_equal(b->device_wait_ns,
                     3 * (5100 - 1500));      /* at most the region, less what the host waited */
    assert_int_equal(b->hidden_ns, 3 * 3000); /* at most what the CPU computed */
    assert_int_equal(b->fallbacks[MO_FALLBACK_LATE], 6);
    assert_true(fetch == 3 * 7000 && hidden == a->hidden_ns + b->hidden_ns);
    mo_gpu_clock_report(c, &r);
    assert_int_equal(r.step_ns, 3 * 30000);
    assert_int_equal(r.idle_ns, 3 * (500 + 1200 + 300 + 9000));
    assert_int_equal(r.lanes.layer, -1);
    assert_int_equal(r.lanes.served, 6);
    assert_int_equal(r.lanes.region_ns, a->region_ns + b->region_ns);
    assert_int_equal(r.lanes.fallbacks[MO_FALLBACK_LATE], 6);
    mo_gpu_clock_close(c);
}

/* Off: nothing but what copies took. A step that failed leaves nothing behind. */
static void what_is_not_counted(void **state)
{
    (void)state;
    mo_gpu_clock *c = open_clock();
    mo_tally *t = open_tally();
    uint64_t fetch = 0, hidden = 0;
    mo_device_report r = {0};
    stamp(c, false);
    mo_gpu_clock_end(c, waited, t, true, 31000, &fetch, &hidden);
    assert_true(fetch == 7000 && hidden == 2700 + 3000);
    stamp(c, true); /* no end */
    mo_gpu_clock_begin(c, true, 1000);
    mo_gpu_clock_end(c, (const uint32_t[LAYERS]){0}, t, true, 1700, &fetch, &hidden);
    mo_gpu_clock_report(c, &r);
    assert_int_equal(mo_gpu_clock_layers(c, NULL, 0), 0);
    assert_true(r.lanes.served == 0 && r.layer_p50_s == 0 && r.layer_p99_s == 0);
    assert_true(r.step_ns == 700 && r.idle_ns == 0 && fetch == 7000);
    assert_int_equal(mo_tally_find(t, 1)->timed, 0);
    mo_tally_destroy(t);
    mo_gpu_clock_close(c);
}

/* What the device tells of its parts stands until it tells again; a layer that it has alone is timed when it does. */
static void parts_of_layers(void **state)
{
    (void)state;
    mo_gpu_clock *c = open_clock();
    mo_tally *t = open_tally();
    uint64_t ignored = 0;
    for (int i = 0; i < 2; i++) {
        stamp(c, true);
        if (i == 0) {
            mo_gpu_clock_parts(c, 1,
                               &(mo_gpu_layer_parts){.routing_ns = 70, .products_ns = 500, .merge_ns = 30});
        }
        mo_gpu_clock_listed(c, 1, 10300);
        mo_gpu_clock_end(c, waited, t, true, 31000, &ignored, &ignored);
    }
    const mo_tally_layer *a = mo_tally_find(t, 1), *b = mo_tally_find(t, 3);
    assert_int_equal(a->time_ns[MO_TIME_ROUTING], 2 * 70);
    assert_int_equal(a->time_ns[MO_TIME_MERGE], 2 * 30);
    assert_int_equal(a->time_ns[MO_TIME_MOE], 2 * (5000 + 100));
    assert_int_equal(a->time_ns[MO_TIME_WORKLIST], 2 * 300);
    assert_int_equal(a->time_ns[MO_TIME_GATHER], 2 * 700);         /* the rest of the turn */
    assert_int_equal(a->time_ns[MO_TIME_HOT_PRODUCTS], 2 * 500);   /* the device's own part, */
    assert_int_equal(a->time_ns[MO_TIME_COLD_PRODUCTS], 2 * 4000); /* and the CPU's */
    assert_int_equal(a->time_ns[MO_TIME_PRODUCTS], 2 * (500 + 4000));
    assert_true(b->time_ns[MO_TIME_ROUTING] == 0 && b->time_ns[MO_TIME_MOE] == 2 * 5100);
    for (int i = 0; i < 2; i++) { /* nobody serves */
        mo_gpu_clock_begin(c, true, 1000);
        mo_gpu_clock_parts(c, 3, &(mo_gpu_layer_parts){.routing_ns = 7, .products_ns = 40, .merge_ns = 3});
        mo_gpu_clock_end(c, (const uint32_t[LAYERS]){0}, t, i == 1, 1700, &ignored, &ignored);
    }
    assert_int_equal(a->timed, 2);
    assert_int_equal(b->timed, 3);
    assert_true(b->time_ns[MO_TIME_ROUTING] == 7 && b->time_ns[MO_TIME_PRODUCTS] == 2 * 3000 + 40);
    assert_int_equal(b->time_ns[MO_TIME_MOE], 2 * 5100 + 50);
    assert_int_equal(b->lanes[MO_LANE_COLD_SKIPS], 1);
    mo_tally_destroy(t);
    mo_gpu_clock_close(c);
}

/* The hot cache's fields: an update needs lanes and join wait, everything is the region and counts of lanes too. */
static void modes_of_the_tally(void **state)
{
    (void)state;
    for (int everything = 0; everything < 2; everything++) {
        mo_gpu_clock *c = open_clock();
        mo_tally *t = open_tally();
        uint64_t ignored = 0;
        stamp(c, true);
        mo_gpu_clock_end(c, waited, t, everything, 31000, &ignored, &ignored);
        const mo_tally_layer *a = mo_tally_find(t, 1), *b = mo_tally_find(t, 3);
        assert_true(a->timed == 1 && b->timed == 1);
        assert_true(a->time_ns[MO_TIME_HOT] == 3800 && a->time_ns[MO_TIME_COLD] == 4000);
        assert_true(a->time_ns[MO_TIME_JOIN] == 1200 && b->time_ns[MO_TIME_JOIN] == 3600);
        assert_true(b->time_ns[MO_TIME_HOT] == 0 && b->time_ns[MO_TIME_COLD] == 3000);
        assert_int_equal(a->time_ns[MO_TIME_REGION], everything ? 5000 : 0);
        assert_int_equal(a->time_ns[MO_TIME_MOE], everything ? 5000 : 0);
        assert_int_equal(a->lanes[MO_LANE_HOT_RUNS], everything);
        assert_int_equal(a->lanes[MO_LANE_COLD_RUNS], everything);
        assert_int_equal(a->lanes[MO_LANE_HOT_SKIPS], 0);
        assert_int_equal(b->lanes[MO_LANE_HOT_SKIPS], everything);
        assert_int_equal(a->fallbacks[MO_FALLBACK_FAILED], everything);
        assert_int_equal(b->fallbacks[MO_FALLBACK_LATE], 2 * everything);
        mo_tally_destroy(t);
        mo_gpu_clock_close(c);
    }
}

/* Laps of known length: quantiles are right within a bucket, over all orders of size. */
static void quantiles(void **state)
{
    (void)state;
    const double scales[] = {1e3, 1e5, 1e8};
    for (int s = 0; s < 3; s++) {
        mo_gpu_clock *c = open_clock();
        uint64_t ignored = 0;
        for (int i = 1; i <= 1000; i++) { /* 1 to 1000 times the scale, in some order */
            const int64_t length = (int64_t)(scales[s] * (double)((i * 7) % 1000 + 1));
            mo_gpu_clock_begin(c, true, 0);
            mo_gpu_clock_launched(c, 1000);
            mo_gpu_clock_seen(c, 2, 1000 + length / 2);
            mo_gpu_clock_replied(c, 2, true, 0, 1000 + length);
            mo_gpu_clock_end(c, waited, NULL, true, 1000 + length, &ignored, &ignored);
        }
        mo_device_report r = {0};
        mo_gpu_clock_report(c, &r);
        const double most = 64e9; /* the last bucket takes what is longer */
        const double p50 = fmin(500 * scales[s], most), p99 = fmin(990 * scales[s], most);
        assert_true(fabs(r.layer_p50_s * 1e9 / p50 - 1) < 0.021);
        assert_true(fabs(r.layer_p99_s * 1e9 / p99 - 1) < 0.021);
        mo_gpu_clock_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),  cmocka_unit_test(what_is_not_counted),
        cmocka_unit_test(parts_of_layers), cmocka_unit_test(modes_of_the_tally),
        cmocka_unit_test(quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
