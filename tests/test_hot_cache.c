/* The hot set: which experts deserve the upper tier, what fits, what to exchange, and which lane computes
 * what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "check.h"
#include "device/sim/sim.h"
#include "failing_memory.h"
#include "hotcache/budget.h"
#include "hotcache/exchange.h"
#include "hotcache/packing.h"
#include "hotcache/update.h"
#include "hotcache/weighting.h"
#include "profile/json.h"
#include "random.h"

/* ---- Helpers ---- */

static mo_error err;

/* A profile from the layers of a file of the reference. */
static mo_profile *profile_of(const char *layers)
{
    char text[2048];
    mo_profile *p = NULL;
    const int length =
        snprintf(text, sizeof text, "{\"schema\":\"" MO_PROFILE_SCHEMA "\",\"layers\":[%s]}", layers);
    assert_in_range(length, 1, sizeof text - 1);
    if (mo_profile_json_read(text, (size_t)length, &p, &err) != MO_OK) {
        fail_msg("%s: %s", text, err.detail);
    }
    return p;
}

/* Ranks the layers and expects exactly these, as {layer, expert, score}. */
static void ranks(const char *layers, mo_weighting mode, double curve, const mo_ranked *expected, size_t n)
{
    mo_profile *p = profile_of(layers);
    mo_ranked *ranking;
    size_t count;
    const mo_weighting_options options = {mode, curve, false};
    assert_int_equal(mo_weighting_rank(p, &options, &ranking, &count, &err), MO_OK);
    assert_int_equal(count, n);
    for (size_t i = 0; i < n; i++) {
        if (ranking[i].layer != expected[i].layer || ranking[i].expert != expected[i].expert ||
            ranking[i].score != expected[i].score) {
            fail_msg("%zu: layer %d expert %d score %llu", i, ranking[i].layer, ranking[i].expert,
                     (unsigned long long)ranking[i].score);
        }
    }
    free(ranking);
    mo_profile_free(p);
}

#define RANKS(layers, mode, curve, ...)                                                                      \
    ranks(layers, mode, curve, (const mo_ranked[]){__VA_ARGS__},                                             \
          sizeof((const mo_ranked[]){__VA_ARGS__}) / sizeof(mo_ranked))

/* ---- Weighting ---- */

static void weighting_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mo_weighting mode;
    } all[] = {{"flat", MO_WEIGHTING_FLAT},
               {"balanced", MO_WEIGHTING_BALANCED},
               {"rank", MO_WEIGHTING_BALANCED},
               {"layer-rank", MO_WEIGHTING_BALANCED},
               {"pressure", MO_WEIGHTING_PRESSURE},
               {"smooth", MO_WEIGHTING_SMOOTH},
               {"smooth-pressure", MO_WEIGHTING_SMOOTH},
               {"smooth_pressure", MO_WEIGHTING_SMOOTH},
               {"capped", MO_WEIGHTING_SMOOTH},
               {"capped-pressure", MO_WEIGHTING_SMOOTH},
               {"soft-pressure", MO_WEIGHTING_SMOOTH},
               {"time", MO_WEIGHTING_TIME},
               {"moe-time", MO_WEIGHTING_TIME},
               {"decode-time", MO_WEIGHTING_TIME}};
    mo_weighting mode;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(mo_weighting_find(all[i].name, &mode, &err), MO_OK);
        assert_int_equal(mode, all[i].mode);
    }
    assert_int_equal(mo_weighting_find("Flat", &mode, &err), MO_EINVAL);
    check_says(&err, "choose flat, balanced");
    assert_int_equal(mo_weighting_options_default().mode, MO_WEIGHTING_FLAT);
    assert_true(mo_weighting_options_default().curve == 0.5);
    assert_true(mo_weighting_curve(0) == 0 && mo_weighting_curve(1) == 1 && mo_weighting_curve(0.25) == 0.25);
    assert_true(mo_weighting_curve(-0.01) == 0.5 && mo_weighting_curve(1.01) == 0.5);
    assert_true(mo_weighting_curve(NAN) == 0.5 && mo_weighting_curve(INFINITY) == 0.5);
}

#define TWO_LAYERS                                                                                           \
    "{\"layer\":0,\"experts\":[[0,10],[1,30],[2,20]]},{\"layer\":4,\"experts\":[[3,5000000],[7,1]]}"

static void weighting_by_rank(void **state)
{
    (void)state;
    /* The first of every layer before the second of any. */
    RANKS(TWO_LAYERS, MO_WEIGHTING_FLAT, 0.5, {4, 3, 3999999}, {0, 1, 3000030}, {0, 2, 2000020},
          {4, 7, 2000001}, {0, 0, 1000010});
    RANKS(TWO_LAYERS, MO_WEIGHTING_BALANCED, 0.5, {0, 1, 3000030}, {4, 3, 2999999}, {0, 2, 2000020},
          {0, 0, 1000010}, {4, 7, 1000001});
}

static void weighting_ties(void **state)
{
    (void)state;
    /* Equal picks: by layer, then expert; what is hot comes first only where the score says so. */
    const char *layers = "{\"layer\":2,\"hot_experts\":[[9,100]],\"cold_experts\":[[1,100]]},"
                         "{\"layer\":1,\"cold_experts\":[[8,100]]}";
    RANKS(layers, MO_WEIGHTING_PRESSURE, 0, {2, 9, 105}, {1, 8, 100}, {2, 1, 100});
    RANKS(layers, MO_WEIGHTING_SMOOTH, 0.5, {2, 9, 105}, {1, 8, 100}, {2, 1, 100});
    RANKS(layers, MO_WEIGHTING_TIME, 0, {2, 9, 105}, {1, 8, 100}, {2, 1, 100});
    RANKS(layers, MO_WEIGHTING_FLAT, 0.5, {1, 8, 2000100}, {2, 1, 2000100}, {2, 9, 1000100});
}

#define WAITS(a, b, c)                                                                                       \
    "{\"layer\":0,\"experts\":[[0,1000]],\"parallel_join_wait_time_per_call_us\":" #a "},"                   \
    "{\"layer\":1,\"experts\":[[0,1000]],\"parallel_join_wait_time_per_call_us\":" #b "},"                   \
    "{\"layer\":2,\"experts\":[[0,1000]],\"parallel_join_wait_time_per_call_us\":" #c "}"

static void weighting_by_pressure(void **state)
{
    (void)state;
    /* Average 20: 1 + c(p / 20 - 1), within 1 - 0.3c and 1 + 0.6c. */
    RANKS(WAITS(10, 20, 30), MO_WEIGHTING_PRESSURE, 0.5, {2, 0, 1250}, {1, 0, 1000}, {0, 0, 850});
    RANKS(WAITS(1, 2, 57), MO_WEIGHTING_PRESSURE, 1, {2, 0, 1600}, {0, 0, 700}, {1, 0, 700});
    RANKS(WAITS(1, 2, 57), MO_WEIGHTING_PRESSURE, 0, {0, 0, 1000}, {1, 0, 1000}, {2, 0, 1000});
    RANKS(WAITS(10, 20, 30), MO_WEIGHTING_PRESSURE, 7, {2, 0, 1250}, {1, 0, 1000},
          {0, 0, 850}); /* 7 is 0.5 */
    /* A layer without pressure counts 1 and is not in the average. */
    RANKS(WAITS(0, 10, 30), MO_WEIGHTING_PRESSURE, 1, {2, 0, 1500}, {0, 0, 1000}, {1, 0, 700});
    /* Without waiting: how far the cold lane is behind; then cold slots; only then nothing. */
    RANKS("{\"layer\":0,\"experts\":[[0,1000]],\"parallel_cold_lane_wall_time_per_call_us\":40,"
          "\"parallel_hot_lane_wall_time_per_call_us\":10},"
          "{\"layer\":1,\"experts\":[[0,1000]],\"calls\":4,\"cold_slots_total\":40},"
          "{\"layer\":2,\"experts\":[[0,1000]],\"parallel_cold_lane_wall_time_per_call_us\":10,"
          "\"parallel_hot_lane_wall_time_per_call_us\":40}",
          MO_WEIGHTING_PRESSURE, 1, {0, 0, 1500}, {2, 0, 1000}, {1, 0, 700});
}

static void weighting_smooth(void **state)
{
    (void)state;
    /* P10 = 12, P90 = 28: n = 0, 0.5, 1. */
    RANKS(WAITS(10, 20, 30), MO_WEIGHTING_SMOOTH, 1, {2, 0, 1300}, {1, 0, 1212}, {0, 0, 1000});
    RANKS(WAITS(10, 20, 30), MO_WEIGHTING_SMOOTH, 0.5, {2, 0, 1150}, {1, 0, 1106}, {0, 0, 1000});
    RANKS(WAITS(5, 5, 5), MO_WEIGHTING_SMOOTH, 1, {0, 0, 1000}, {1, 0, 1000}, {2, 0, 1000});
}

#define TIMES(a, b, c)                                                                                       \
    "{\"layer\":0,\"experts\":[[0,1000]],\"total_moe_time_per_call_us\":" #a "},"                            \
    "{\"layer\":1,\"experts\":[[0,1000]],\"total_moe_time_per_call_us\":" #b "},"                            \
    "{\"layer\":2,\"experts\":[[0,1000]],\"total_moe_time_per_call_us\":" #c "}"

static void weighting_by_time(void **state)
{
    (void)state;
    RANKS(TIMES(100, 150, 200), MO_WEIGHTING_TIME, 1, {2, 0, 1800}, {1, 0, 1100}, {0, 0, 400});
    RANKS(TIMES(100, 150, 200), MO_WEIGHTING_TIME, 0.5, {2, 0, 1400}, {1, 0, 1050}, {0, 0, 700});
    RANKS(TIMES(100, 100, 100), MO_WEIGHTING_TIME, 1, {0, 0, 1000}, {1, 0, 1000}, {2, 0, 1000});
    RANKS(WAITS(100, 150, 200), MO_WEIGHTING_TIME, 1, {2, 0, 1800}, {1, 0, 1100},
          {0, 0, 400}); /* no time: pressure */
    /* A score never rounds to nothing. */
    RANKS("{\"layer\":0,\"experts\":[[0,1]],\"total_moe_time_per_call_us\":1},"
          "{\"layer\":1,\"experts\":[[0,9000]],\"total_moe_time_per_call_us\":2}",
          MO_WEIGHTING_TIME, 1, {1, 0, 16200}, {0, 0, 1});
}

static void weighting_phases(void **state)
{
    (void)state;
    mo_profile *p = profile_of("{\"layer\":0,\"experts\":[[0,10],[1,4]]}");
    mo_ranked *ranking;
    size_t count;
    p->layer[0].hits[MO_TRACE_PROMPT][MO_FOUND_COLD][1] = 90;
    mo_weighting_options options = {MO_WEIGHTING_PRESSURE, 0, false};
    assert_int_equal(mo_weighting_rank(p, &options, &ranking, &count, &err), MO_OK);
    assert_true(ranking[0].expert == 1 && ranking[0].score == 94);
    free(ranking);
    options.generation_only = true;
    assert_int_equal(mo_weighting_rank(p, &options, &ranking, &count, &err), MO_OK);
    assert_true(ranking[0].expert == 0 && ranking[1].score == 4);
    free(ranking);
    p->layer[0].hits[MO_TRACE_PROMPT][MO_FOUND_COLD][1] = UINT64_MAX; /* stops at the largest number */
    options.generation_only = false;
    assert_int_equal(mo_weighting_rank(p, &options, &ranking, &count, &err), MO_OK);
    assert_true(ranking[0].score == UINT64_MAX);
    free(ranking);
    mo_profile_free(p);
    p = profile_of("");
    assert_int_equal(mo_weighting_rank(p, &options, &ranking, &count, &err), MO_OK);
    assert_null(ranking);
    assert_int_equal(count, 0);
    mo_profile_free(p);
}

/* ---- Budget ---- */

static void budgets(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20;
    uint64_t bytes = 7;
    assert_int_equal(mo_hot_budget_auto(3000 * mib + 17, 900 * mib, 1024), 1076 * mib);
    assert_int_equal(mo_hot_budget_auto(1025 * mib + 5, mib, 1024), 0); /* less than one MiB is left */
    assert_int_equal(mo_hot_budget_auto(1024 * mib, 0, 1024), 0);
    assert_int_equal(mo_hot_budget_auto(mib, 900 * mib, 1024), 0);
    assert_int_equal(mo_hot_budget_auto(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0);
    assert_int_equal(mo_hot_budget_auto(UINT64_MAX, 1, UINT64_MAX), 0);
    assert_int_equal(mo_hot_budget_auto(5 * mib, 0, 0), 5 * mib);
    assert_int_equal(mo_hot_budget(MO_HOT_BUDGET_OFF, 9 * mib, 0, 1, &bytes, &err), MO_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(mo_hot_budget(6554, 0, 0, 1, &bytes, &err), MO_OK);
    assert_int_equal(bytes, 6554 * mib);
    assert_int_equal(mo_hot_budget(MO_HOT_BUDGET_AUTO, 9 * mib + 1, 2 * mib, 1, &bytes, &err), MO_OK);
    assert_int_equal(bytes, 6 * mib);
    assert_int_equal(mo_hot_budget(INT64_MAX, 0, 0, 1, &bytes, &err), MO_OK);
    assert_true(bytes == UINT64_MAX);
    assert_int_equal(mo_hot_budget(-2, 9 * mib, 0, 1, &bytes, &err), MO_EINVAL);
    check_says(&err, "-1 for all free memory");
}

/* ---- Packing ---- */

static mo_packing pack(const mo_ranked *ranking, size_t n, const mo_packing_layer *layers, int count,
                       uint64_t budget, bool fill)
{
    mo_packing p;
    assert_int_equal(mo_packing_make(ranking, n, layers, count, budget, fill, &p, &err), MO_OK);
    return p;
}

static void is_packed(const mo_packing *p, size_t i, int layer, int expert)
{
    assert_true(i < p->count);
    if (p->entry[i].layer != layer || p->entry[i].expert != expert) {
        fail_msg("%zu is layer %d expert %d", i, p->entry[i].layer, p->entry[i].expert);
    }
}

static void packing_by_rank(void **state)
{
    (void)state;
    const mo_packing_layer layers[] = {{0, 4, 10}, {3, 4, 25}, {5, 2, 10}};
    const mo_ranked ranking[] = {{0, 1, 9}, {3, 0, 8}, {0, 1, 7},  {0, 3, 6},
                                 {1, 0, 5}, {5, 2, 4}, {5, -1, 4}, {5, 1, 3}};
    /* In order; what does not fit, what is there already and what cannot be are left out. */
    mo_packing p = pack(ranking, 8, layers, 3, 31, false);
    assert_int_equal(p.count, 3);
    is_packed(&p, 0, 0, 1);
    is_packed(&p, 1, 0, 3);
    is_packed(&p, 2, 5, 1);
    assert_int_equal(p.used_bytes, 30);
    assert_false(p.entry[0].filled);
    mo_packing_free(&p);
    /* Nothing fits, nothing is there, and sizes at the end of the range. */
    p = pack(ranking, 8, layers, 3, 0, false);
    assert_int_equal(p.count, 0);
    mo_packing_free(&p);
    p = pack(NULL, 0, NULL, 0, 100, false);
    assert_int_equal(p.count, 0);
    mo_packing_free(&p);
    const mo_packing_layer huge[] = {{0, 4, UINT64_MAX - 1}};
    p = pack(ranking, 8, huge, 1, UINT64_MAX, false);
    assert_int_equal(p.count, 1);
    mo_packing_free(&p);
    assert_int_equal(
        mo_packing_make(ranking, 8, (const mo_packing_layer[]){{2, 1, 1}, {1, 1, 1}}, 2, 1, true, &p, &err),
        MO_EINVAL);
}

/* Unseen experts fill what is left, in an order that never changes. */
static void packing_fill(void **state)
{
    (void)state;
    const mo_packing_layer layers[] = {{0, 64, 1}, {1, 64, 1}};
    const mo_ranked ranking[] = {{1, 5, 2}, {0, 6, 1}};
    mo_packing a = pack(ranking, 2, layers, 2, 30, true);
    mo_packing b = pack(ranking, 2, layers, 2, 30, true);
    assert_int_equal(a.count, 30);
    is_packed(&a, 0, 1, 5);
    is_packed(&a, 1, 0, 6);
    int in_first = 0, ascending = 0;
    for (size_t i = 0; i < 30; i++) {
        assert_int_equal(a.entry[i].filled, i >= 2);
        assert_int_equal(a.entry[i].layer, b.entry[i].layer);
        assert_int_equal(a.entry[i].expert, b.entry[i].expert);
        in_first += a.entry[i].layer == 0;
        ascending += i > 2 && a.entry[i].expert > a.entry[i - 1].expert;
    }
    assert_in_range(in_first, 5, 25); /* shuffled over layers and experts */
    assert_in_range(ascending, 5, 22);
    assert_int_equal(a.entry[2].layer * 64 + a.entry[2].expert, 12); /* on every machine */
    mo_packing_free(&a);
    mo_packing_free(&b);
    a = pack(ranking, 2, layers, 2, 30, false);
    assert_int_equal(a.count, 2);
    mo_packing_free(&a);
}

/* Any sizes: the budget holds, the sum agrees, nothing is there twice, and nothing that fits is left out. */
static void packing_properties(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (int round = 0; round < 300; round++) {
        mo_packing_layer layers[6];
        const int count = 1 + (int)random_below(&seed, 6);
        for (int i = 0; i < count; i++) {
            layers[i] = (mo_packing_layer){2 * i, 1 + (int32_t)random_below(&seed, 16),
                                           1 + (uint64_t)random_below(&seed, 30)};
        }
        mo_ranked ranking[64];
        for (int i = 0; i < 64; i++) {
            ranking[i] =
                (mo_ranked){(int32_t)random_below(&seed, 12), (int32_t)random_below(&seed, 17), 64 - i};
        }
        const uint64_t budget = (uint64_t)random_below(&seed, 400);
        const bool fill = random_below(&seed, 2);
        mo_packing p = pack(ranking, 64, layers, count, budget, fill);
        uint64_t used = 0;
        int in[6][16] = {{0}};
        for (size_t i = 0; i < p.count; i++) {
            const mo_packed *e = &p.entry[i];
            const int at = e->layer / 2;
            assert_true(e->layer % 2 == 0 && at < count && e->expert >= 0 && e->expert < layers[at].experts);
            assert_int_equal(in[at][e->expert]++, 0);
            used += layers[at].bytes;
        }
        assert_int_equal(used, p.used_bytes);
        assert_true(used <= budget);
        for (int at = 0; fill && at < count; at++) {
            int packed = 0;
            for (int e = 0; e < layers[at].experts; e++) {
                packed += in[at][e];
            }
            assert_true(packed == layers[at].experts || used + layers[at].bytes > budget);
        }
        mo_packing_free(&p);
    }
}

/* ---- Exchange ---- */

static void limits(void **state)
{
    (void)state;
    assert_int_equal(mo_exchange_limit(0.25, 9, 100), 3); /* rounded up */
    assert_int_equal(mo_exchange_limit(0.25, 8, 100), 2);
    assert_int_equal(mo_exchange_limit(0.25, 8, 1), 1);
    assert_int_equal(mo_exchange_limit(0.001, 8, 100), 1);
    assert_int_equal(mo_exchange_limit(0, 8, 100), 0);
    assert_int_equal(mo_exchange_limit(-1, 8, 100), 0);
    assert_int_equal(mo_exchange_limit(NAN, 8, 100), 0);
    assert_int_equal(mo_exchange_limit(7, 8, 100), 8); /* at most all */
    assert_int_equal(mo_exchange_limit(1, 0, 100), 0);
}

static mo_exchange *plan(const mo_ranked *ranking, size_t ranked, const mo_resident *residents, int count,
                         double rate, size_t *n, mo_exchange_stats *stats)
{
    mo_exchange *list;
    assert_int_equal(mo_exchange_plan(ranking, ranked, residents, count, rate, &list, n, stats, &err), MO_OK);
    return list;
}

static void is_exchange(const mo_exchange *x, int layer, int slot, int evict, int add)
{
    if (x->layer != layer || x->slot != slot || x->evict != evict || x->add != add) {
        fail_msg("layer %d slot %d: %d for %d", x->layer, x->slot, x->add, x->evict);
    }
}

static void exchange_pairs(void **state)
{
    (void)state;
    /* The best to add meets the worst to evict, in the slot that one had; unobserved count 0. */
    const int32_t in_five[] = {6, 0, 1, -1, 99}; /* an empty slot and a number that cannot be */
    const int32_t in_two[] = {4};
    const mo_resident residents[] = {
        {5, 8, in_five, 5, NULL}, {2, 8, in_two, 1, NULL}, {7, 8, NULL, 0, NULL}};
    const mo_ranked ranking[] = {{5, 2, 50}, {5, 3, 40},  {5, 6, 10},  {5, 0, 5},   {2, 7, 45},
                                 {2, 4, 5},  {7, 1, 999}, {9, 1, 999}, {5, 8, 999}, {5, -1, 999}};
    mo_exchange_stats stats;
    size_t n;
    mo_exchange *x = plan(ranking, 10, residents, 3, 1, &n, &stats);
    assert_int_equal(n, 3);
    is_exchange(&x[0], 5, 2, 1, 2); /* gain 50: expert 1 was not seen */
    is_exchange(&x[1], 2, 0, 4, 7); /* gain 40 */
    is_exchange(&x[2], 5, 1, 0, 3); /* gain 35; expert 6 stays */
    assert_true(stats.active && stats.candidates == 3 && stats.max_exchange == 3 && stats.exchanged == 3);
    assert_true(stats.hot_experts == 4 && stats.layers_changed == 2 && stats.update_rate == 1);
    free(x);
    /* A quarter of four is one: the greatest gain. */
    x = plan(ranking, 10, residents, 3, 0.25, &n, &stats);
    assert_int_equal(n, 1);
    is_exchange(&x[0], 5, 2, 1, 2);
    assert_true(stats.candidates == 3 && stats.max_exchange == 1 && stats.layers_changed == 1);
    free(x);
    x = plan(ranking, 10, residents, 3, 0, &n, &stats); /* looks, but does nothing */
    assert_null(x);
    assert_true(stats.candidates == 3 && stats.max_exchange == 0 && stats.active);
    x = plan(ranking, 10, residents, 3, 5, &n, &stats);
    assert_true(stats.update_rate == 1);
    free(x);
    x = plan(NULL, 0, residents, 3, 1, &n, &stats); /* nothing was seen: nothing changes */
    assert_true(!x && stats.candidates == 0);
    x = plan(ranking, 10, residents + 2, 1, 1, &n, &stats); /* a layer without places stays without */
    assert_true(!x && !stats.active);
    x = plan(ranking, 10, NULL, 0, 1, &n, &stats);
    assert_true(!x && !stats.active);
}

static void exchange_ties(void **state)
{
    (void)state;
    const int32_t a[] = {7, 5}, b[] = {7, 5};
    const mo_resident residents[] = {{4, 8, a, 2, NULL}, {1, 8, b, 2, NULL}};
    const mo_ranked equal[] = {{4, 2, 10}, {4, 1, 10}, {1, 2, 10}, {1, 1, 10}};
    mo_exchange_stats stats;
    size_t n;
    mo_exchange *x = plan(equal, 4, residents, 2, 1, &n, &stats);
    assert_int_equal(n, 4); /* by layer, then by the expert to add; the lower number leaves first */
    is_exchange(&x[0], 1, 1, 5, 1);
    is_exchange(&x[1], 1, 0, 7, 2);
    is_exchange(&x[2], 4, 1, 5, 1);
    is_exchange(&x[3], 4, 0, 7, 2);
    free(x);
    /* Equals do not change places, and a small difference does. */
    const mo_ranked same[] = {{1, 0, 10}, {1, 5, 10}, {1, 7, 10}};
    x = plan(same, 3, residents, 2, 1, &n, &stats);
    assert_true(!x && stats.candidates == 0);
    const mo_ranked more[] = {{1, 0, 11}, {1, 5, 10}, {1, 7, 10}};
    x = plan(more, 3, residents, 2, 1, &n, &stats);
    assert_int_equal(n, 1);
    is_exchange(&x[0], 1, 0, 7, 0); /* of two equals the one behind in the ranking */
    free(x);
}

/* What is pinned or in use stays, takes its place in the desired set, and is not added twice. */
static void exchange_keeps(void **state)
{
    (void)state;
    const int32_t in[] = {0, 1, 2};
    const bool kept[] = {true, false, true};
    const mo_resident r = {3, 8, in, 3, kept};
    const mo_ranked ranking[] = {{3, 5, 90}, {3, 6, 80}, {3, 7, 70}, {3, 2, 60}, {3, 1, 10}};
    mo_exchange_stats stats;
    size_t n;
    mo_exchange *x = plan(ranking, 5, &r, 1, 1, &n, &stats);
    assert_int_equal(n, 1);
    is_exchange(&x[0], 3, 1, 1, 5);
    free(x);
    /* A kept one that nobody asks for takes a place all the same: the better of the others has the rest. */
    const mo_ranked close[] = {{3, 5, 60}, {3, 1, 50}};
    const mo_resident pair = {3, 8, in, 2, kept};
    x = plan(close, 2, &pair, 1, 1, &n, &stats);
    assert_int_equal(n, 1);
    is_exchange(&x[0], 3, 1, 1, 5);
    free(x);
    const bool all[] = {true, true, true};
    const mo_resident still = {3, 8, in, 3, all};
    x = plan(ranking, 5, &still, 1, 1, &n, &stats);
    assert_true(!x && stats.candidates == 0 && stats.hot_experts == 3);
}

static void exchange_from_profile(void **state)
{
    (void)state;
    mo_profile *p =
        profile_of("{\"layer\":0,\"hot_experts\":[[1,100],[2,90]],\"cold_experts\":[[0,5],[3,5]]}");
    const int32_t in[] = {0, 1};
    const mo_resident r = {0, 4, in, 2, NULL};
    const mo_weighting_options options = mo_weighting_options_default();
    mo_exchange *x;
    mo_exchange_stats stats;
    size_t n;
    assert_int_equal(mo_exchange_from_profile(p, &options, &r, 1, 1, &x, &n, &stats, &err), MO_OK);
    assert_int_equal(n, 1);
    is_exchange(&x[0], 0, 0, 0, 2);
    assert_true(stats.hot_slots == 190 && stats.cold_slots == 10 && stats.hit_rate == 0.95);
    free(x);
    mo_profile_free(p);
    p = profile_of(""); /* nothing known */
    assert_int_equal(mo_exchange_from_profile(p, &options, &r, 1, 1, &x, &n, &stats, &err), MO_OK);
    assert_true(!x && n == 0 && stats.hit_rate == 0 && stats.hot_experts == 2);
    mo_profile_free(p);
}

/* What the window saw is expected again: the picks that an exchange would turn into hits pay for its copy. */
static void exchange_pays_back(void **state)
{
    (void)state;
    const char *layers = "{\"layer\":0,\"hot_experts\":[[1,10]],\"cold_experts\":[[0,20],[2,14]]},"
                         "{\"layer\":3,\"cold_experts\":[[5,80]]}";
    mo_profile *p = profile_of(layers);
    const mo_exchange all[] = {
        {.layer = 0, .evict = 1, .add = 0}, /* 10 more of what may be prompts: 10 / 8 */
        {.layer = 0, .evict = 1, .add = 2}, /* 4 / 8 */
        {.layer = 3, .evict = 0, .add = 5}, /* 80 / 8 */
        {.layer = 7, .evict = 0, .add = 1}, /* nothing known */
        {.layer = 0, .evict = 0, .add = 1}, /* fewer than before */
    };
    const struct {
        double miss, copy;
        size_t left;
        int32_t first;
    } cases[] = {{1, 1, 2, 0}, {1, 0.4, 3, 0}, {1, 9, 1, 3}, {1, 11, 0, 0}, {5, 9, 1, 3}, {5, 6, 2, 0}};
    const double phase = mo_profile_heat(mo_profile_find(p, 3), 5) == 80 ? 1 : MO_PROFILE_ANSWER;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_exchange list[5];
        memcpy(list, all, sizeof all);
        const mo_exchange_rates rates = {.miss = cases[i].miss, .copy = cases[i].copy * phase};
        const size_t left = mo_exchange_pay_back(list, 5, p, &rates);
        assert_int_equal(left, cases[i].left);
        assert_true(left == 0 || list[0].layer == cases[i].first);
    }
    assert_int_equal(mo_exchange_layers(all, 5), 3);
    assert_int_equal(mo_exchange_layers(all, 0), 0);
    mo_profile_free(p);
}

/* Applied step by step, any hot set becomes the desired one in as few steps as the rate allows, and then
 * rests. */
static void exchange_settles(void **state)
{
    (void)state;
    enum { LAYERS = 4, EXPERTS = 32, SLOTS = 6 };
    uint64_t seed = 9;
    for (int round = 0; round < 50; round++) {
        mo_ranked ranking[LAYERS * EXPERTS];
        int32_t in[LAYERS][SLOTS];
        mo_resident residents[LAYERS];
        uint64_t score[LAYERS][EXPERTS];
        for (int l = 0; l < LAYERS; l++) {
            for (int e = 0; e < EXPERTS; e++) {
                score[l][e] = 1 + (uint64_t)random_below(&seed, 50);
                ranking[l * EXPERTS + e] = (mo_ranked){l, e, score[l][e]};
            }
            for (int s = 0; s < SLOTS; s++) {
                in[l][s] = (s * 5 + (int32_t)random_below(&seed, 5)) % EXPERTS; /* all different */
            }
            residents[l] = (mo_resident){l, EXPERTS, in[l], SLOTS, NULL};
        }
        mo_exchange_stats stats;
        mo_exchange *x;
        size_t n;
        int steps = 0;
        uint64_t last = UINT64_MAX;
        while ((x = plan(ranking, LAYERS * EXPERTS, residents, LAYERS, 0.3, &n, &stats)) != NULL) {
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(in[x[i].layer][x[i].slot], x[i].evict); /* only the difference is applied */
                for (int s = 0; s < SLOTS; s++) {
                    assert_int_not_equal(in[x[i].layer][s], x[i].add);
                }
                const uint64_t gain = x[i].add_score - x[i].evict_score;
                assert_true(gain > 0 && (i == 0 || gain <= last));
                last = gain;
                in[x[i].layer][x[i].slot] = x[i].add;
            }
            last = UINT64_MAX;
            free(x);
            steps++;
        }
        assert_true(steps <= 4); /* 24 places, 8 a step, and pairs are made anew each time */
        for (int l = 0; l < LAYERS; l++) {
            uint64_t worst = UINT64_MAX;
            for (int s = 0; s < SLOTS; s++) {
                worst = score[l][in[l][s]] < worst ? score[l][in[l][s]] : worst;
            }
            int better = 0;
            for (int e = 0; e < EXPERTS; e++) {
                better += score[l][e] > worst;
            }
            assert_true(better < SLOTS);
        }
    }
}

/* ---- Updates ---- */

enum { UPDATE_EXPERTS = 8, UPDATE_SLOTS = 2, UPDATE_LAYERS = 4 };

/* Slots of one layer on a simulated device, whose copies land when the test says so. */
typedef struct updating {
    mo_ahead ahead;
    mo_where where;
    mo_model_spec spec;
    mo_layer layers[UPDATE_LAYERS];
    mo_expert experts[UPDATE_EXPERTS];
    int begun, settled, published; /* calls */
    int fails;                     /* this many copies fail with `status`; -1: all */
    mo_status status;
    bool lands;
    int layer;
    mo_tally *tally;
    mo_hot_update *update;
} updating;

static mo_status fake_begin(void *owner, int number, int layer, int expert, mo_daddr to, bool retry,
                            int64_t *bytes, mo_error *e)
{
    updating *u = owner;
    (void)retry;
    assert_in_range(number, 0, u->ahead.mover.count - 1);
    assert_int_equal(layer, u->layer);
    assert_true(to != 0);
    u->begun++;
    *bytes = 1;
    if (u->fails == 0) {
        return MO_OK;
    }
    u->fails -= u->fails > 0;
    return mo_fail(e, u->status, "the copy of expert %d failed", expert);
}

static mo_status fake_landed(void *owner, int number, bool *done, mo_error *e)
{
    const updating *u = owner;
    (void)number;
    (void)e;
    *done = u->lands;
    return MO_OK;
}

static mo_status fake_wait(void *owner, mo_error *e)
{
    (void)owner;
    (void)e;
    return MO_OK;
}

static mo_status fake_settle(void *owner, mo_error *e)
{
    updating *u = owner;
    (void)e;
    u->settled++;
    u->lands = true;
    return MO_OK;
}

static mo_status fake_publish(void *owner, mo_error *e)
{
    updating *u = owner;
    (void)e;
    u->published++;
    return MO_OK;
}

static mo_device *simulated; /* opened once */

static bool is_in(const updating *u, int expert)
{
    return mo_where_address(&u->where, u->layer, expert) != 0;
}

static void set_readable(updating *u, bool readable)
{
    static const uint8_t data;
    for (int e = 0; e < UPDATE_EXPERTS; e++) {
        mo_expert *x = &u->experts[e];
        x->gate.w.data = x->up.w.data = x->down.w.data = readable ? &data : NULL;
    }
}

/* `spare` slots more than there are residents, of which exchanges take theirs. */
static mo_status try_updating(updating *u, int layer, int moves, int spare, int64_t window)
{
    const int32_t number = layer, experts = UPDATE_EXPERTS;
    const mo_profile_shape shape = {.layers = 1, .used = 2, .layer = &number, .experts = &experts};
    const mo_hot_update_options options = {.ahead = &u->ahead,
                                           .subsystem = "test",
                                           .window = window,
                                           .rate = 1.0,
                                           .weighting = mo_weighting_options_default()};
    mo_vram_layer slots[UPDATE_LAYERS] = {{0}};
    *u = (updating){.layer = layer, .lands = false};
    slots[layer] = (mo_vram_layer){.bytes = 64, .experts = UPDATE_EXPERTS, .slots = UPDATE_SLOTS + spare};
    u->spec = (mo_model_spec){.layer_count = UPDATE_LAYERS, .layers = u->layers};
    u->layers[layer].routed = true;
    u->layers[layer].moe.experts = UPDATE_EXPERTS;
    u->layers[layer].moe.expert = u->experts;
    set_readable(u, true);
    u->where.spec = &u->spec;
    u->ahead = (mo_ahead){.where = &u->where,
                          .end = UPDATE_LAYERS,
                          .exchanges = true,
                          .mover = {.owner = u,
                                    .count = moves,
                                    .begin = fake_begin,
                                    .landed = fake_landed,
                                    .wait = fake_wait,
                                    .settle = fake_settle,
                                    .publish = fake_publish}};
    mo_status status = mo_tally_create(&shape, &u->tally, &err);
    status =
        status ? status : mo_vram_open(simulated, slots, UPDATE_LAYERS, NULL, NULL, &u->where.vram, &err);
    for (int e = 0; status == MO_OK && e < UPDATE_SLOTS; e++) {
        assert_true(mo_vram_acquire_free(u->where.vram, layer, e) != 0);
        mo_vram_landed(u->where.vram, layer, e);
    }
    return status ? status : mo_hot_update_open(&options, &shape, &u->update, &err);
}

static void open_updating(updating *u, int moves, int spare, int64_t window)
{
    assert_int_equal(try_updating(u, 3, moves, spare, window), MO_OK);
}

static void close_updating(updating *u)
{
    mo_hot_update_close(u->update);
    mo_ahead_close(&u->ahead);
    mo_vram_close(u->where.vram);
    mo_tally_destroy(u->tally);
}

static void pick(updating *u, int expert, int times)
{
    for (int i = 0; i < times; i++) {
        mo_tally_pick(mo_tally_find(u->tally, 3), MO_TRACE_GENERATION,
                      is_in(u, expert) ? MO_FOUND_HOT : MO_FOUND_COLD, expert);
    }
}

static mo_status try_turn(updating *u, int64_t tokens)
{
    const mo_status status = mo_hot_update_turn(u->update, u->tally, tokens, &err);
    return status ? status : mo_ahead_turn(&u->ahead, &err);
}

static mo_hot_counters turn(updating *u, int64_t tokens)
{
    assert_int_equal(try_turn(u, tokens), MO_OK);
    return mo_hot_update_count(u->update);
}

/* An update comes when the window is full; the old experts serve until the new ones have landed, exchanges under way are
 * not planned again, and what does not fit among those under way waits its turn. */
static void updates_run_beside_steps(void **state)
{
    (void)state;
    updating u;
    open_updating(&u, 1, 1, 10);
    pick(&u, 5, 4);
    pick(&u, 6, 3);
    mo_hot_counters c = turn(&u, 10);
    assert_true(c.updates == 0 && c.under_way == 0);
    c = turn(&u, 1);
    assert_true(c.updates == 1 && c.under_way == 1 && c.planned == 1 && c.exchanged == 0);
    assert_true(is_in(&u, 0) && is_in(&u, 1) && u.begun == 1);
    c = turn(&u, 1); /* not there yet */
    assert_true(c.under_way == 1 && c.planned == 1 && u.begun == 1);
    pick(&u, 5, 4);
    pick(&u, 6, 3);
    assert_int_equal(mo_hot_update_request_done(u.update, u.tally, &err), MO_OK);
    c = mo_hot_update_count(u.update);
    assert_true(c.updates == 2 && c.under_way == 1 && c.planned == 1); /* 5 is coming, so only 6 is planned */
    u.lands = true;
    c = turn(&u, 1);
    assert_true(c.exchanged == 1 && c.under_way == 1 && c.planned == 0 && is_in(&u, 5));
    c = turn(&u, 1);
    assert_true(c.exchanged == 2 && c.under_way == 0 && is_in(&u, 6));
    assert_true(!is_in(&u, 0) && !is_in(&u, 1));
    close_updating(&u);
}

/* What cannot begin now is asked for again, what failed or has lost its sense is not, and a lost device ends the step. */
static void updates_that_cannot_begin(void **state)
{
    (void)state;
    updating u;
    open_updating(&u, 2, 2, 10);
    pick(&u, 5, 4);
    pick(&u, 6, 3);
    set_readable(&u, false);
    mo_hot_counters c = turn(&u, 11);
    assert_true(c.planned == 2 && c.under_way == 0 && u.begun == 0);
    set_readable(&u, true);
    u.fails = -1;
    u.status = MO_EDEVICE;
    assert_int_equal(try_turn(&u, 1), MO_EDEVICE);
    check_says(&err, "the copy of expert 5 failed");
    c = mo_hot_update_count(u.update);
    assert_true(c.planned == 1 && c.failed == 1); /* the second was not begun after that */
    u.status = MO_EIO;
    c = turn(&u, 1);
    assert_true(c.planned == 0 && c.failed == 2 && c.exchanged == 0);
    assert_true(is_in(&u, 0) && is_in(&u, 1) && !is_in(&u, 5) && !is_in(&u, 6));
    mo_move *gone = calloc(1, sizeof *gone);
    *gone = (mo_move){3, 6, 7}; /* 7 is not there */
    mo_ahead_queue(&u.ahead, gone, 1);
    c = turn(&u, 1);
    assert_true(c.planned == 0 && c.failed == 2 && u.begun == 2);
    close_updating(&u);
}

/* By hand everything under way lands first, nothing planned before is left, and what was counted so far counts no more. */
static void applying_by_hand(void **state)
{
    (void)state;
    updating u;
    mo_exchange_stats stats;
    open_updating(&u, 1, 1, 10);
    pick(&u, 5, 4);
    pick(&u, 6, 3);
    turn(&u, 11);
    mo_profile *p = NULL;
    assert_int_equal(mo_tally_snapshot(u.tally, &p, &err), MO_OK);
    assert_int_equal(mo_hot_update_apply(u.update, p, 1.0, u.tally, &stats, &err), MO_OK);
    assert_true(u.settled == 1 && stats.exchanged == 1 && stats.hot_experts == UPDATE_SLOTS);
    assert_true(is_in(&u, 5) && is_in(&u, 6) && u.published == 1);
    mo_hot_counters c = mo_hot_update_count(u.update);
    assert_true(c.exchanged == 2 && c.planned == 0 && c.under_way == 0);
    u.lands = false;
    pick(&u, 0, 1); /* less than 5 and 6 have had in all, more than they have had since */
    assert_int_equal(mo_hot_update_request_done(u.update, u.tally, &err), MO_OK);
    assert_int_equal(mo_hot_update_count(u.update).under_way, 1);
    /* A failure ends it and is reported. */
    u.fails = -1;
    u.status = MO_EIO;
    assert_int_equal(mo_hot_update_apply(u.update, p, 1.0, u.tally, &stats, &err), MO_EIO);
    assert_int_equal(stats.exchanged, 0);
    assert_int_equal(mo_hot_update_count(u.update).failed, 1);
    mo_profile_free(p);
    close_updating(&u);
}

/* Without a spare slot the new expert gets the old one's, which comes back if the copy fails, or neither is there. */
static void exchanges_in_place(void **state)
{
    (void)state;
    updating u;
    open_updating(&u, 1, 0, 10);
    const mo_move move = {3, 5, 0};
    u.lands = true;
    u.fails = 1;
    u.status = MO_EIO;
    assert_int_equal(mo_ahead_exchange_now(&u.ahead, &move, &err), MO_EIO);
    check_says(&err, "expert 5 cannot replace expert 0, which stays");
    assert_true(is_in(&u, 0) && !is_in(&u, 5));
    u.fails = 2;
    assert_int_equal(mo_ahead_exchange_now(&u.ahead, &move, &err), MO_EIO);
    check_says(&err, "which could not be restored either; the CPU computes both");
    assert_true(!is_in(&u, 0) && !is_in(&u, 5));
    assert_int_equal(mo_ahead_exchange_now(&u.ahead, &(mo_move){3, 6, 1}, &err), MO_OK);
    assert_true(is_in(&u, 6) && !is_in(&u, 1));
    close_updating(&u);
}

/* ---- Memory ---- */

static mo_status everything(const mo_profile *p)
{
    const mo_packing_layer layers[] = {{0, 8, 10}, {4, 8, 10}};
    const int32_t in[] = {0, 1};
    const mo_resident r = {0, 8, in, 2, NULL};
    const mo_weighting_options options = {MO_WEIGHTING_SMOOTH, 0.5, false};
    mo_ranked *ranking = NULL;
    mo_packing packing = {0};
    mo_exchange *x = NULL;
    mo_exchange_stats stats;
    updating u = {.update = NULL};
    size_t count, n;
    mo_status s = mo_weighting_rank(p, &options, &ranking, &count, &err);
    s = s ? s : mo_packing_make(ranking, count, layers, 2, 100, true, &packing, &err);
    s = s ? s : mo_exchange_from_profile(p, &options, &r, 1, 1, &x, &n, &stats, &err);
    s = s ? s : try_updating(&u, 0, 1, 1, 10);
    s = s ? s : mo_hot_update_apply(u.update, p, 1.0, u.tally, &stats, &err);
    close_updating(&u);
    free(ranking);
    free(x);
    mo_packing_free(&packing);
    return s;
}

static void memory_runs_out(void **state)
{
    (void)state;
    mo_profile *p = profile_of(TWO_LAYERS);
    mo_status s = MO_ENOMEM;
    int rounds = 0;
    for (; s != MO_OK; rounds++) {
        fail_after = rounds;
        s = everything(p);
        fail_after = -1;
        if (s != MO_OK) {
            assert_int_equal(s, MO_ENOMEM);
            check_says(&err, "out of memory");
        }
    }
    assert_true(rounds > 20);
    mo_profile_free(p);
}

static int open_simulated(void **state)
{
    (void)state;
    return mo_sim_open(&(mo_sim_options){.memory_bytes = 1 << 20}, &simulated, &err);
}

static int close_simulated(void **state)
{
    (void)state;
    mo_device_close(simulated);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weighting_names),          cmocka_unit_test(weighting_by_rank),
        cmocka_unit_test(weighting_ties),           cmocka_unit_test(weighting_by_pressure),
        cmocka_unit_test(weighting_smooth),         cmocka_unit_test(weighting_by_time),
        cmocka_unit_test(weighting_phases),         cmocka_unit_test(budgets),
        cmocka_unit_test(packing_by_rank),          cmocka_unit_test(packing_fill),
        cmocka_unit_test(packing_properties),       cmocka_unit_test(limits),
        cmocka_unit_test(exchange_pairs),           cmocka_unit_test(exchange_ties),
        cmocka_unit_test(exchange_keeps),           cmocka_unit_test(exchange_from_profile),
        cmocka_unit_test(exchange_pays_back),       cmocka_unit_test(exchange_settles),
        cmocka_unit_test(updates_run_beside_steps), cmocka_unit_test(updates_that_cannot_begin),
        cmocka_unit_test(applying_by_hand),         cmocka_unit_test(exchanges_in_place),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, open_simulated, close_simulated);
}
