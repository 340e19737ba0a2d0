/* What lanes are believed to be able to do, and what they get. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "device/fetch_share.h"
#include "experts/late.h"
#include "experts/share.h"

#define GB 1e9

static bool near(const mo_lane_rate *rate, double bytes_s, double share)
{
    return fabs(rate->s_per_byte * bytes_s - 1.0) <= share;
}

static void observe(mo_lane_rate *rate, double bytes_s, int times)
{
    const int64_t bytes = 10000000;
    for (int i = 0; i < times; i++) {
        mo_lane_rate_observe(rate, (double)bytes / bytes_s, bytes);
    }
}

static void follows_what_happens(void **state)
{
    (void)state;
    mo_lane_rate rate = mo_lane_rate_of(100 * GB);
    assert_true(near(&rate, 100 * GB, 1e-12));
    observe(&rate, 20 * GB, 60);
    assert_true(near(&rate, 20 * GB, 0.01));
    observe(&rate, 200 * GB, 100);
    assert_true(near(&rate, 200 * GB, 0.01));
    const mo_lane_rate before = rate;
    mo_lane_rate_observe(&rate, 1.0, 0); /* nothing was done */
    mo_lane_rate_observe(&rate, 0.0, 1000);
    mo_lane_rate_observe(&rate, -1.0, 1000);
    mo_lane_rate_observe(&rate, 10.0, 1000);
    assert_true(rate.s_per_byte == before.s_per_byte && rate.last == before.last);
}

/* A moment in which the machine stands still is one; two are a change. */
static void one_moment_is_no_change(void **state)
{
    (void)state;
    mo_lane_rate rate = mo_lane_rate_of(100 * GB);
    observe(&rate, 1 * GB, 1);
    assert_true(near(&rate, 100 * GB, 0.11));
    observe(&rate, 100 * GB, 20);
    assert_true(near(&rate, 100 * GB, 0.02));
    observe(&rate, 1 * GB, 2);
    assert_true(rate.s_per_byte * 10 * GB > 1.0);
}

static mo_lanes lanes_of(double cpu_bytes_s, double link_bytes_s)
{
    return (mo_lanes){.alone = mo_lane_rate_of(cpu_bytes_s),
                      .cpu = mo_lane_rate_of(cpu_bytes_s),
                      .link = mo_lane_rate_of(link_bytes_s)};
}

static void equal_lanes_share(void **state)
{
    (void)state;
    mo_lanes l = lanes_of(50 * GB, 50 * GB);
    assert_int_equal(mo_lane_share(&l, 10000000, 8, 8), 4);
    assert_int_equal(mo_lane_share(&l, 10000000, 8, 2), 2);
    assert_int_equal(mo_lane_share(&l, 10000000, 0, 8), 0);
    assert_int_equal(mo_lane_share(&l, 10000, 8, 8), 0); /* too small to be sent */
    assert_true(near(&l.cpu, 50 * GB, 1e-12) && near(&l.link, 50 * GB, 1e-12));
}

/* A lane that seems slow gets nothing, and is tried again; never because it seems faster than it was at first. */
static void idle_lanes_are_tried_again(void **state)
{
    (void)state;
    mo_lanes l = lanes_of(100 * GB, 50 * GB);
    int layers = 0;
    l.cpu.s_per_byte = l.alone.s_per_byte = 1.0 / (2 * GB);
    while (mo_lane_share(&l, 10000000, 4, 4) == 4 && layers < 10000) {
        layers++;
    }
    assert_true(layers > 20 && layers < 1000);
    l = lanes_of(1 * GB, 50 * GB);
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(mo_lane_share(&l, 10000000, 4, 4), 4);
    }
    assert_true(near(&l.cpu, 1 * GB, 1e-12));
    l = lanes_of(100 * GB, 50 * GB);
    l.link.s_per_byte = 1.0 / (0.1 * GB);
    for (layers = 0; mo_lane_share(&l, 10000000, 4, 4) == 0 && layers < 10000;) {
        layers++;
    }
    assert_true(layers > 20 && layers < 1000);
}

/* Layers in turn, as long as the lanes really take; every so often the CPU stands still for milliseconds. Returns the mean
 * seconds without those. */
static double run_layers(mo_lanes *l, int64_t bytes, int count, int layers, const mo_fetch_costs *real,
                         int pauses)
{
    uint32_t random = 1;
    double seconds = 0;
    for (int i = 0; i < layers; i++) {
        const int f = mo_lane_share(l, bytes, count, count);
        random = random * 1664525u + 1013904223u;
        const double pause = f < count && (int)(random >> 24) < pauses ? 5e-3 : 0.0; /* of 256 layers */
        const double by_cpu = (count - f) * (f ? real->cpu : real->cpu_alone), by_link = f * real->link;
        mo_lane_observe_cpu(l, f > 0, by_cpu + pause, (count - f) * bytes);
        mo_lane_rate_observe(&l->link, by_link, f * bytes);
        seconds += by_cpu > by_link ? by_cpu : by_link;
    }
    return seconds / layers;
}

/* A shared machine: now and then the CPU's lane takes milliseconds. In the end both lanes still end together. */
static void survives_a_shared_machine(void **state)
{
    (void)state;
    const int64_t bytes = 13000000;
    const double cpu_s = (double)bytes / (100 * GB), link_s = (double)bytes / (50 * GB);
    mo_lanes l = lanes_of(60 * GB, 52 * GB);
    const double mean = run_layers(&l, bytes, 4, 20000,
                                   &(mo_fetch_costs){.cpu_alone = cpu_s, .cpu = cpu_s, .link = link_s}, 3);
    assert_true(mean < 1.1 * 3 * cpu_s); /* one of four crosses: the best there is */
}

/* Copies take memory's rate from the CPU. That it is slow while experts cross must not be why they cross, whatever is believed at
 * first: experts of Qwen3.6-35B crossed to an H200 at 30 GB/s beside a CPU that alone was the faster. */
static void sending_is_no_reason_to_send(void **state)
{
    (void)state;
    const int64_t bytes = 1900000;
    const mo_fetch_costs real = {.cpu_alone = (double)bytes / (107 * GB),
                                 .cpu = (double)bytes / (60 * GB),
                                 .link = (double)bytes / (30 * GB)};
    for (int slow = 0; slow < 2; slow++) {
        mo_lanes l = lanes_of(107 * GB, 30 * GB);
        if (slow) { /* as a slow start, or a busy machine, leaves them */
            l.cpu.s_per_byte = l.alone.s_per_byte = 1 / (12 * GB);
        }
        run_layers(&l, bytes, 8, 2000, &real, 0); /* 50 tokens of 40 layers */
        assert_true(run_layers(&l, bytes, 8, 4000, &real, 1) < 1.05 * 8 * real.cpu_alone);
    }
}

static void experts_with_few_rows_are_the_cpus(void **state)
{
    (void)state;
    mo_lane_rate cpu = mo_lane_rate_of(10e9), link = mo_lane_rate_of(10e9);
    int32_t rows[] = {1, 9, 1, 2, 40, 1, 2, 2}, most = 0;
    int few = 0;
    const int chosen = mo_lane_split(&cpu, &link, 10000000, 0, rows, 8, &most, &few);
    assert_in_range(chosen, 3, 5);
    assert_int_equal(most, chosen == 3 ? 1 : 2);
    assert_int_equal(few, chosen == 3 ? 3 : chosen - 3);
    assert_int_equal(mo_lane_split(&cpu, &link, 10000000, 0, rows, 0, &most, &few), 0);
    assert_int_equal(few, 0);
    assert_in_range(mo_lane_split(&cpu, &link, 10000000, 4, rows, 8, &most, &few), chosen + 1,
                    8);         /* it is busy */
    cpu = mo_lane_rate_of(1e9); /* one expert alone takes it as long as the link takes for all */
    link = mo_lane_rate_of(100e9);
    assert_int_equal(mo_lane_split(&cpu, &link, 10000000, 0, rows, 8, &most, &few), 0);
    cpu = mo_lane_rate_of(100e9);
    link = mo_lane_rate_of(1e9);
    assert_int_equal(mo_lane_split(&cpu, &link, 10000000, 0, rows, 8, &most, &few), 8);
    assert_int_equal(most, 40);
    assert_int_equal(few, 1);
}

/* ---- Late copies ---- */

/* Turns of a layer in which each way takes as long as given; how often each was taken. */
static void take_turns(mo_late *l, const bool *allowed, const double *seconds, int turns, int *taken)
{
    memset(taken, 0, sizeof *taken * MO_LATE_WAYS);
    for (int i = 0; i < turns; i++) {
        const mo_late_way way = mo_late_choose(l, allowed, seconds);
        assert_true(allowed[way]);
        mo_late_observe(l, way, seconds[way]);
        taken[way]++;
    }
}

static void the_fastest_way_is_learned(void **state)
{
    (void)state;
    static const bool all[MO_LATE_WAYS] = {true, true, true}, leave[MO_LATE_WAYS] = {false, true, true};
    int taken[MO_LATE_WAYS];
    for (int best = 0; best < MO_LATE_WAYS; best++) {
        for (double slower = 1.2; slower < 1000; slower *= 3) {
            double seconds[MO_LATE_WAYS], spent = 0;
            for (int i = 0; i < MO_LATE_WAYS; i++) {
                seconds[i] = i == best ? 1e-4 : 1e-4 * slower;
            }
            mo_late l = {.turns = 0};
            take_turns(&l, all, seconds, 10, taken); /* each was tried that is not hopeless */
            take_turns(&l, all, seconds, 1000, taken);
            for (int i = 0; i < MO_LATE_WAYS; i++) {
                spent += taken[i] * (seconds[i] - seconds[best]);
            }
            assert_true(spent < 0.1 * 1000 * seconds[best]); /* trials cost little, however slow they are */
            /* What changes is noticed. */
            const double changed[MO_LATE_WAYS] = {1e-4, 1e-4, 1e-4};
            double other[MO_LATE_WAYS];
            memcpy(other, changed, sizeof other);
            other[best] = 5e-4;
            take_turns(&l, all, other, (int)(40 * slower) + 100, taken);
            take_turns(&l, all, other, 100, taken);
            assert_true(taken[best] < 10);
        }
    }
    mo_late l = {.turns = 0};
    const double seconds[MO_LATE_WAYS] = {1e-5, 1e-4, 2e-4};
    take_turns(&l, leave, seconds, 200, taken);
    assert_true(taken[MO_LATE_WAIT] == 0 && taken[MO_LATE_LEAVE] > 190);
}

static void what_arrives_in_time_is_sent(void **state)
{
    (void)state;
    const double copy[6] = {1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4},
                 down[6] = {1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0 / 3},
                 whole[6] = {1, 1, 1, 1, 1, 1};
    mo_late l = {.turns = 0};
    assert_int_equal(mo_late_fit(&l, copy, down, 6), 6); /* nothing is known */
    mo_late_observe_cpu(&l, 1e-3);
    assert_int_equal(mo_late_fit(&l, copy, down, 6), 6);
    l.cpu_seconds = 1e-4; /* 0.4 ms for gate and up of all */
    assert_int_equal(mo_late_fit(&l, copy, down, 6), 4);
    assert_int_equal(mo_late_fit(&l, copy, whole, 6), 2); /* the CPU has what is left */
    l.cpu_seconds = 1e-6;
    assert_int_equal(mo_late_fit(&l, copy, down, 6), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_what_happens),
        cmocka_unit_test(one_moment_is_no_change),
        cmocka_unit_test(equal_lanes_share),
        cmocka_unit_test(idle_lanes_are_tried_again),
        cmocka_unit_test(survives_a_shared_machine),
        cmocka_unit_test(sending_is_no_reason_to_send),
        cmocka_unit_test(experts_with_few_rows_are_the_cpus),
        cmocka_unit_test(the_fastest_way_is_learned),
        cmocka_unit_test(what_arrives_in_time_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
