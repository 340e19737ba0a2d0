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

#include "hotcache/budget.h"
#include "hotcache/exchange.h"
#include "hotcache/packing.h"
#include "hotcache/weighting.h"
#include "profile/json.h"
#include "random.h"
#include "store/worklist.h"

/* ---- Allocation, failed on demand (the linker wraps these) ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static long fail_after = -1; /* allocations that still succeed; -1: all */

static bool refuse(void)
{
    if (fail_after == 0) {
        return true;
    }
    fail_after -= fail_after > 0;
    return false;
}

void *__wrap_malloc(size_t bytes)
{
    return refuse() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refuse() ? NULL : __real_calloc(count, bytes);
}

/* ---- Helpers ---- */

static mo_error err;

static void says(const char *word)
{
    if (!strstr(err.detail, word)) {
        fail_msg("\"%s\" is not in: %s", word, err.detail);
    }
}

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
    for (int i = 0; i < MO_WEIGHTINGS; i++) {
        assert_int_equal(mo_weighting_find(mo_weighting_name((mo_weighting)i), &mode, &err), MO_OK);
        assert_int_equal(mode, i);
    }
    assert_int_equal(mo_weighting_find("Flat", &mode, &err), MO_EINVAL);
    says("choose flat, balanced");
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
    says("-1 for what is free");
}

/* ---- Packing ---- */

static mo_packing pack(const mo_ranked *ranking, size_t n, const mo_packing_layer *layers, int count,
                       const uint64_t *budget, int lanes, mo_packing_options options)
{
    mo_packing p;
    assert_int_equal(mo_packing_make(ranking, n, layers, count, budget, lanes, &options, &p, &err), MO_OK);
    return p;
}

static void is_packed(const mo_packing *p, size_t i, int layer, int expert, int lane)
{
    assert_true(i < p->count);
    if (p->entry[i].layer != layer || p->entry[i].expert != expert || p->entry[i].lane != lane) {
        fail_msg("%zu is layer %d expert %d lane %d", i, p->entry[i].layer, p->entry[i].expert,
                 p->entry[i].lane);
    }
}

static void packing_one_lane(void **state)
{
    (void)state;
    const mo_packing_layer layers[] = {{0, 4, 10}, {3, 4, 25}, {5, 2, 10}};
    const mo_ranked ranking[] = {{0, 1, 9}, {3, 0, 8}, {0, 1, 7},  {0, 3, 6},
                                 {1, 0, 5}, {5, 2, 4}, {5, -1, 4}, {5, 1, 3}};
    const mo_packing_options plain = {MO_SPREAD_WARM, false, false}, dummy = {MO_SPREAD_WARM, true, false};
    /* In order; what does not fit, what is there already and what cannot be are passed over. */
    mo_packing p = pack(ranking, 8, layers, 3, (const uint64_t[]){31}, 1, plain);
    assert_int_equal(p.count, 3);
    is_packed(&p, 0, 0, 1, 0);
    is_packed(&p, 1, 0, 3, 0);
    is_packed(&p, 2, 5, 1, 0);
    assert_int_equal(p.used_bytes[0], 30);
    assert_false(p.entry[0].filled);
    mo_packing_free(&p);
    /* With dummies each layer's first costs twice, its second does not. */
    p = pack(ranking, 8, layers, 3, (const uint64_t[]){49}, 1, dummy);
    assert_int_equal(p.count, 2);
    assert_int_equal(p.used_bytes[0], 30);
    mo_packing_free(&p);
    p = pack(ranking, 8, layers, 3, (const uint64_t[]){50}, 1, dummy);
    assert_int_equal(p.count, 3);
    assert_int_equal(p.used_bytes[0], 50);
    mo_packing_free(&p);
    p = pack(ranking, 8, layers, 3, (const uint64_t[]){100}, 1, dummy);
    assert_int_equal(p.count, 4);
    assert_int_equal(p.used_bytes[0], 100);
    mo_packing_free(&p);
    /* Nothing fits, nothing is there, and sizes at the end of the range. */
    p = pack(ranking, 8, layers, 3, (const uint64_t[]){0}, 1, dummy);
    assert_int_equal(p.count, 0);
    mo_packing_free(&p);
    p = pack(NULL, 0, NULL, 0, (const uint64_t[]){100}, 1, plain);
    assert_int_equal(p.count, 0);
    mo_packing_free(&p);
    const mo_packing_layer huge[] = {{0, 4, UINT64_MAX - 1}};
    p = pack(ranking, 8, huge, 1, (const uint64_t[]){UINT64_MAX}, 1, dummy);
    assert_int_equal(p.count, 0);
    mo_packing_free(&p);
    p = pack(ranking, 8, huge, 1, (const uint64_t[]){UINT64_MAX}, 1, plain);
    assert_int_equal(p.count, 1);
    mo_packing_free(&p);
    const mo_packing_options fill = mo_packing_options_default();
    assert_int_equal(mo_packing_make(ranking, 8, layers, 3, NULL, 0, &fill, &p, &err), MO_EINVAL);
    assert_int_equal(mo_packing_make(ranking, 8, (const mo_packing_layer[]){{2, 1, 1}, {1, 1, 1}}, 2,
                                     (const uint64_t[]){1}, 1, &fill, &p, &err),
                     MO_EINVAL);
    mo_spread spread;
    for (int i = 0; i < MO_SPREADS; i++) {
        assert_int_equal(mo_spread_find(mo_spread_name((mo_spread)i), &spread, &err), MO_OK);
        assert_int_equal(spread, i);
    }
    assert_int_equal(mo_spread_find("hot", &spread, &err), MO_EINVAL);
    says("even-split");
}

/* Unseen experts fill what is left, in an order that never changes. */
static void packing_fill(void **state)
{
    (void)state;
    const mo_packing_layer layers[] = {{0, 64, 1}, {1, 64, 1}};
    const mo_ranked ranking[] = {{1, 5, 2}, {0, 6, 1}};
    mo_packing a = pack(ranking, 2, layers, 2, (const uint64_t[]){30}, 1, mo_packing_options_default());
    mo_packing b = pack(ranking, 2, layers, 2, (const uint64_t[]){30}, 1, mo_packing_options_default());
    assert_int_equal(a.count, 30);
    is_packed(&a, 0, 1, 5, 0);
    is_packed(&a, 1, 0, 6, 0);
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
    const mo_packing_options off = {MO_SPREAD_WARM, false, false};
    a = pack(ranking, 2, layers, 2, (const uint64_t[]){30}, 1, off);
    assert_int_equal(a.count, 2);
    mo_packing_free(&a);
}

static void packing_lanes(void **state)
{
    (void)state;
    const mo_packing_layer layers[] = {{0, 4, 10}, {1, 4, 10}, {2, 4, 10}};
    const mo_ranked ranking[] = {{0, 0, 9}, {0, 1, 8}, {0, 2, 7}, {1, 0, 6}, {2, 0, 5}};
    mo_packing_options options = {MO_SPREAD_WARM, false, false};
    mo_packing p = pack(ranking, 5, layers, 3, (const uint64_t[]){20, 100}, 2, options);
    is_packed(&p, 1, 0, 1, 0);
    is_packed(&p, 2, 0, 2, 1);
    assert_int_equal(p.used_bytes[0], 20);
    assert_int_equal(p.used_bytes[1], 30);
    mo_packing_free(&p);
    /* Fewest of the layer, then least used, then the first; where it does not fit, the next. */
    options.spread = MO_SPREAD_HOT_EVEN;
    p = pack(ranking, 5, layers, 3, (const uint64_t[]){20, 100}, 2, options);
    is_packed(&p, 0, 0, 0, 0);
    is_packed(&p, 1, 0, 1, 1);
    is_packed(&p, 2, 0, 2, 0);
    is_packed(&p, 3, 1, 0, 1);
    is_packed(&p, 4, 2, 0, 1);
    mo_packing_free(&p);
    /* Bands: 20 of 60 is one layer of three, the rest the other lane's; in turns inside a band. */
    const mo_ranked uneven[] = {{1, 0, 9}, {1, 1, 8}, {1, 2, 7}, {2, 3, 6}, {0, 0, 5}, {0, 1, 4}, {0, 2, 3}};
    options.spread = MO_SPREAD_EVEN_SPLIT;
    p = pack(uneven, 7, layers, 3, (const uint64_t[]){20, 40}, 2, options);
    assert_int_equal(p.count, 6);
    is_packed(&p, 0, 0, 0, 0);
    is_packed(&p, 1, 0, 1, 0);
    is_packed(&p, 2, 1, 0, 1);
    is_packed(&p, 3, 2, 3, 1);
    is_packed(&p, 4, 1, 1, 1);
    is_packed(&p, 5, 1, 2, 1);
    mo_packing_free(&p);
    p = pack(uneven, 7, layers, 3, (const uint64_t[]){0, 60}, 2,
             options); /* a lane without a budget has no layers */
    assert_int_equal(p.used_bytes[0], 0);
    assert_int_equal(p.count, 6);
    mo_packing_free(&p);
}

/* Any sizes, any lanes: budgets hold, sums agree, nothing is in two places, and nothing that fits is left
 * out. */
static void packing_properties(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (int round = 0; round < 300; round++) {
        mo_packing_layer layers[6];
        const int count = 1 + (int)random_below(&seed, 6), lanes = 1 + (int)random_below(&seed, 3);
        for (int i = 0; i < count; i++) {
            layers[i] = (mo_packing_layer){2 * i, 1 + (int32_t)random_below(&seed, 16),
                                           1 + (uint64_t)random_below(&seed, 30)};
        }
        mo_ranked ranking[64];
        uint64_t budget[3];
        for (int i = 0; i < 64; i++) {
            ranking[i] =
                (mo_ranked){(int32_t)random_below(&seed, 12), (int32_t)random_below(&seed, 17), 64 - i};
        }
        for (int i = 0; i < lanes; i++) {
            budget[i] = (uint64_t)random_below(&seed, 400);
        }
        const mo_packing_options options = {(mo_spread)random_below(&seed, MO_SPREADS),
                                            random_below(&seed, 2), random_below(&seed, 2)};
        mo_packing p = pack(ranking, 64, layers, count, budget, lanes, options);
        uint64_t used[3] = {0};
        int in[6][16] = {{0}}, of[3][6] = {{0}};
        for (size_t i = 0; i < p.count; i++) {
            const mo_packed *e = &p.entry[i];
            const int at = e->layer / 2;
            assert_true(e->layer % 2 == 0 && at < count && e->expert >= 0 && e->expert < layers[at].experts);
            assert_int_equal(in[at][e->expert]++, 0);
            used[e->lane] += layers[at].bytes * (options.dummy && of[e->lane][at] == 0 ? 2 : 1);
            of[e->lane][at]++;
        }
        for (int lane = 0; lane < lanes; lane++) {
            assert_int_equal(used[lane], p.used_bytes[lane]);
            assert_true(used[lane] <= budget[lane]);
            for (int at = 0; options.fill && options.spread != MO_SPREAD_EVEN_SPLIT && at < count; at++) {
                int packed = 0;
                for (int e = 0; e < layers[at].experts; e++) {
                    packed += in[at][e];
                }
                const uint64_t cost = layers[at].bytes * (options.dummy && of[lane][at] == 0 ? 2 : 1);
                assert_true(packed == layers[at].experts || used[lane] + cost > budget[lane]);
            }
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

/* ---- Worklist ---- */

static void is_work(const mo_work_lane *lane, int i, int expert, int slot, int token, int at, float weight)
{
    assert_true(i < lane->count);
    const mo_work *w = &lane->work[i];
    if (w->expert != expert || w->slot != slot || w->token != token || w->at != at || w->weight != weight) {
        fail_msg("%d: expert %d slot %d token %d at %d", i, w->expert, w->slot, w->token, w->at);
    }
}

static void worklist_orders(void **state)
{
    (void)state;
    mo_worklist w;
    assert_int_equal(mo_worklist_create(6, 8, &w, &err), MO_OK);
    const mo_work_lane *hot = &w.lane[MO_FOUND_HOT], *cold = &w.lane[MO_FOUND_COLD];
    const int32_t ids[] = {7, 2, 2, 0, 7, 5};
    const float weights[] = {.6f, .4f, .7f, .3f, .9f, .1f};
    const int32_t slots[8] = {-1, -1, 4, -1, -1, 0, -1, -1};
    mo_worklist_build(&w, ids, weights, 3, 2, slots, MO_WORK_BY_TOKEN);
    assert_true(hot->count == 3 && cold->count == 3 && hot->runs == 0 && cold->runs == 0);
    is_work(hot, 0, 2, 4, 0, 1, .4f);
    is_work(hot, 1, 2, 4, 1, 2, .7f);
    is_work(hot, 2, 5, 0, 2, 5, .1f);
    is_work(cold, 0, 7, -1, 0, 0, .6f);
    is_work(cold, 1, 0, -1, 1, 3, .3f);
    is_work(cold, 2, 7, -1, 2, 4, .9f);
    mo_worklist_build(&w, ids, weights, 3, 2, slots, MO_WORK_BY_EXPERT);
    assert_true(hot->count == 3 && cold->count == 3 && hot->runs == 2 && cold->runs == 2);
    is_work(cold, 0, 0, -1, 1, 3, .3f);
    is_work(cold, 1, 7, -1, 0, 0, .6f); /* tokens of an expert in their order */
    is_work(cold, 2, 7, -1, 2, 4, .9f);
    assert_true(cold->run[1].expert == 7 && cold->run[1].first == 1 && cold->run[1].count == 2);
    assert_true(hot->run[0].expert == 2 && hot->run[0].slot == 4 && hot->run[0].count == 2);
    /* All hot, all cold, nothing. */
    const int32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    mo_worklist_build(&w, ids, weights, 3, 2, all, MO_WORK_BY_EXPERT);
    assert_true(hot->count == 6 && cold->count == 0 && cold->runs == 0);
    mo_worklist_build(&w, ids, weights, 3, 2, NULL, MO_WORK_BY_TOKEN);
    assert_true(hot->count == 0 && cold->count == 6);
    mo_worklist_build(&w, ids, weights, 0, 2, all, MO_WORK_BY_EXPERT);
    assert_true(hot->count == 0 && cold->count == 0 && hot->runs == 0);
    mo_worklist_destroy(&w);
    assert_int_equal(mo_worklist_create(1, 0, &w, &err), MO_EINVAL);
}

/* An expert's output for a token: something that rounding would show in. */
static float output(int expert, int token)
{
    return 1.0f / (float)(3 + expert * 7 + token * 13) - 0.01f * (float)(expert % 5);
}

/* The bits of a layer that is split between lanes are those of the layer that is not: any map, either
 * order, and while the hot set is exchanged between steps. */
static void split_equals_whole(void **state)
{
    (void)state;
    enum { EXPERTS = 24, SLOTS = 7, USED = 4, TOKENS = 9, STEPS = 400 };
    uint64_t seed = 77;
    int32_t in[SLOTS], map[EXPERTS];
    bool busy[SLOTS];
    mo_worklist w;
    int exchanged = 0;
    assert_int_equal(mo_worklist_create(TOKENS * USED, EXPERTS, &w, &err), MO_OK);
    for (int s = 0; s < SLOTS; s++) {
        in[s] = 3 * s;
    }
    for (int step = 0; step < STEPS; step++) {
        int32_t ids[TOKENS * USED];
        float weights[TOKENS * USED], rows[TOKENS * USED], whole[TOKENS], merged[TOKENS];
        const int tokens = 1 + (int)random_below(&seed, TOKENS);
        for (int e = 0; e < EXPERTS; e++) {
            map[e] = -1;
        }
        for (int s = 0; s < SLOTS; s++) {
            map[in[s]] = s;
        }
        for (int t = 0; t < tokens; t++) {
            for (int r = 0; r < USED; r++) {
                ids[t * USED + r] =
                    (int32_t)((random_below(&seed, 6) * USED + r) % EXPERTS); /* all different */
                weights[t * USED + r] = (float)random_below(&seed, 1000) / 997.0f;
            }
        }
        mo_worklist_build(&w, ids, weights, tokens, USED, map, (mo_work_order)random_below(&seed, 2));
        assert_int_equal(w.lane[0].count + w.lane[1].count, tokens * USED);
        memset(rows, 0xff, sizeof rows);
        memset(busy, 0, sizeof busy);
        for (int place = 0; place < MO_FOUNDS; place++) {
            for (int i = 0; i < w.lane[place].count; i++) {
                const mo_work *work = &w.lane[place].work[i];
                assert_int_equal(work->slot >= 0, place == MO_FOUND_HOT);
                const int expert =
                    work->slot >= 0 ? in[work->slot] : work->expert; /* what lies in the slot */
                rows[work->at] = work->weight * output(expert, work->token);
                if (work->slot >= 0) {
                    busy[work->slot] = true;
                }
            }
        }
        for (int t = 0; t < tokens; t++) {
            merged[t] = whole[t] = 0;
            for (int r = 0; r < USED; r++) {
                const int at = t * USED + r;
                merged[t] += rows[at];
                whole[t] += weights[at] * output(ids[at], t);
            }
        }
        assert_memory_equal(merged, whole, (size_t)tokens * sizeof(float));

        /* Exchange while this step's slots are still in use: none of them may change. */
        mo_ranked ranking[EXPERTS];
        for (int e = 0; e < EXPERTS; e++) {
            ranking[e] = (mo_ranked){0, e, 1 + (uint64_t)random_below(&seed, 100)};
        }
        const mo_resident r = {0, EXPERTS, in, SLOTS, busy};
        mo_exchange_stats stats;
        size_t n;
        mo_exchange *x = plan(ranking, EXPERTS, &r, 1, 0.4, &n, &stats);
        for (size_t i = 0; i < n; i++) {
            assert_false(busy[x[i].slot]);
            in[x[i].slot] = x[i].add;
            exchanged++;
        }
        free(x);
    }
    assert_true(exchanged > 100);
    mo_worklist_destroy(&w);
}

/* ---- Memory ---- */

static mo_status everything(const mo_profile *p)
{
    const mo_packing_layer layers[] = {{0, 8, 10}, {4, 8, 10}};
    const uint64_t budget[] = {30, 70};
    const int32_t in[] = {0, 1};
    const mo_resident r = {0, 8, in, 2, NULL};
    mo_packing_options split = mo_packing_options_default();
    split.spread = MO_SPREAD_EVEN_SPLIT;
    const mo_weighting_options options = {MO_WEIGHTING_SMOOTH, 0.5, false};
    mo_ranked *ranking = NULL;
    mo_packing packing = {0};
    mo_exchange *x = NULL;
    mo_exchange_stats stats;
    mo_worklist w = {0};
    size_t count, n;
    mo_status s = mo_weighting_rank(p, &options, &ranking, &count, &err);
    s = s ? s : mo_packing_make(ranking, count, layers, 2, budget, 2, &split, &packing, &err);
    s = s ? s : mo_exchange_from_profile(p, &options, &r, 1, 1, &x, &n, &stats, &err);
    s = s ? s : mo_worklist_create(8, 8, &w, &err);
    free(ranking);
    free(x);
    mo_packing_free(&packing);
    mo_worklist_destroy(&w);
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
            says("no memory");
        }
    }
    assert_true(rounds > 20);
    mo_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weighting_names),
        cmocka_unit_test(weighting_by_rank),
        cmocka_unit_test(weighting_ties),
        cmocka_unit_test(weighting_by_pressure),
        cmocka_unit_test(weighting_smooth),
        cmocka_unit_test(weighting_by_time),
        cmocka_unit_test(weighting_phases),
        cmocka_unit_test(budgets),
        cmocka_unit_test(packing_one_lane),
        cmocka_unit_test(packing_fill),
        cmocka_unit_test(packing_lanes),
        cmocka_unit_test(packing_properties),
        cmocka_unit_test(limits),
        cmocka_unit_test(exchange_pairs),
        cmocka_unit_test(exchange_ties),
        cmocka_unit_test(exchange_keeps),
        cmocka_unit_test(exchange_from_profile),
        cmocka_unit_test(exchange_pays_back),
        cmocka_unit_test(exchange_settles),
        cmocka_unit_test(worklist_orders),
        cmocka_unit_test(split_equals_whole),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
