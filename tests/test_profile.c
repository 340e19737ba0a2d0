/* Profiles: counting, merging, fading, the hot cache's JSON, and files that survive kills,
 * full disks, damage and each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "failing_memory.h"
#include "folder.h"
#include "gguf/fingerprint.h"
#include "gguf/write.h"
#include "gguf_file.h"
#include "profile/file.h"
#include "profile/json.h"
#include "profile/tally.h"
#include "random.h"

static void *json_malloc(size_t bytes)
{
    return malloc(bytes);
}

/* ---- Helpers ---- */

static mo_error err;

static int begin(void **state)
{
    json_set_alloc_funcs(json_malloc, free);
    return folder_make(state);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static char *file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* A model of three routed layers of different sizes; layer 1 is dense. */
enum { LAYERS = 3, MODEL = 0x5eed };
static const int32_t numbers[LAYERS] = {0, 2, 3}, experts[LAYERS] = {8, 8, 4};
static const mo_profile_shape shape = {MODEL, 2, LAYERS, numbers, experts};

static mo_tally *new_tally(void)
{
    mo_tally *t = NULL;
    assert_int_equal(mo_tally_create(&shape, &t, &err), MO_OK);
    return t;
}

static mo_profile *snapshot(const mo_tally *t)
{
    mo_profile *p = NULL;
    assert_int_equal(mo_tally_snapshot(t, &p, &err), MO_OK);
    return p;
}

/* Some tokens of each phase, with times. */
static void decode(mo_tally *t, uint64_t seed, int tokens)
{
    for (int i = 0; i < tokens; i++) {
        const mo_trace_phase phase = i % 3 ? MO_TRACE_GENERATION : MO_TRACE_PROMPT;
        for (int k = 0; k < LAYERS; k++) {
            mo_tally_layer *l = mo_tally_find(t, numbers[k]);
            mo_tally_call(l, phase);
            for (int r = 0; r < 2; r++) {
                const int32_t e = (int32_t)random_below(&seed, experts[k]);
                mo_tally_pick(l, phase, e % 2 ? MO_FOUND_HOT : MO_FOUND_COLD, e);
            }
            const uint64_t times[MO_TIMES] = {5000, 1000, 1500, 2500, 900, 2600};
            if (i % 2) {
                mo_tally_time(l, times);
            }
        }
    }
}

static mo_profile *learned(uint64_t seed, int tokens)
{
    mo_tally *t = new_tally();
    mo_touch touch;
    decode(t, seed, tokens);
    assert_int_equal(mo_touch_create(t, &touch, &err), MO_OK);
    mo_touch_mark(&touch, mo_tally_find(t, 2), 5);
    mo_tally_prompt(t, &touch);
    mo_touch_destroy(&touch);
    mo_profile *p = snapshot(t);
    mo_tally_destroy(t);
    return p;
}

static uint64_t picks(const mo_profile *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->layers; i++) {
        sum += mo_profile_slots(&p->layer[i], MO_FOUND_HOT) + mo_profile_slots(&p->layer[i], MO_FOUND_COLD);
    }
    return sum;
}

/* Equal in all counts; layers without picks may be missing in b, as in files. */
static void assert_same(const mo_profile *a, const mo_profile *b)
{
    assert_int_equal(a->fingerprint, b->fingerprint);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->experts, b->experts);
    assert_int_equal(a->prompts, b->prompts);
    for (int i = 0; i < a->layers; i++) {
        const mo_profile_layer *x = &a->layer[i], *y = mo_profile_find(b, x->layer);
        assert_non_null(y);
        assert_int_equal(x->experts, y->experts);
        assert_memory_equal(x->calls, y->calls, sizeof x->calls);
        assert_memory_equal(x->time_ns, y->time_ns, sizeof x->time_ns);
        assert_memory_equal(x->lanes, y->lanes, sizeof x->lanes);
        assert_memory_equal(x->fallbacks, y->fallbacks, sizeof x->fallbacks);
        assert_int_equal(x->timed, y->timed);
        assert_true(x->cold_slots == y->cold_slots);
        assert_memory_equal(x->prompts, y->prompts, (size_t)x->experts * 8);
        for (int k = 0; k < MO_PROFILE_PHASES * MO_FOUNDS; k++) {
            assert_memory_equal(x->hits[k / MO_FOUNDS][k % MO_FOUNDS], y->hits[k / MO_FOUNDS][k % MO_FOUNDS],
                                (size_t)x->experts * 8);
        }
    }
}

static mo_profile *parse(const char *text)
{
    mo_profile *p = NULL;
    if (mo_profile_json_read(text, strlen(text), &p, &err) != MO_OK) {
        fail_msg("%s: %s", text, err.detail);
    }
    return p;
}

static void refuses(const char *text, const char *word)
{
    mo_profile *p = (mo_profile *)1;
    if (mo_profile_json_read(text, strlen(text), &p, &err) != MO_EFORMAT) {
        fail_msg("accepted: %s", text);
    }
    assert_null(p);
    check_says(&err, word);
}

#define SCHEMA "\"schema\":\"llama.cpp.moe_layer_opt_perf.v1\""

/* ---- Counting ---- */

static void tally_counts(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    assert_null(mo_tally_find(t, 1));
    assert_null(mo_tally_find(t, 4));
    assert_null(mo_tally_find(t, -1));
    mo_tally_layer *l = mo_tally_find(t, 2);
    mo_tally_call(l, MO_TRACE_PROMPT);
    mo_tally_call(l, MO_TRACE_GENERATION);
    mo_tally_call(l, MO_TRACE_GENERATION);
    mo_tally_pick(l, MO_TRACE_PROMPT, MO_FOUND_COLD, 7);
    mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_HOT, 7);
    mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_COLD, 7);
    mo_tally_time(l, (const uint64_t[MO_TIMES]){10, 2, 3, 6, 3, 7});
    mo_tally_time(l, (const uint64_t[MO_TIMES]){20, 2, 3, 6, 4, 7});
    mo_profile *p = snapshot(t);
    const mo_profile_layer *q = mo_profile_find(p, 2);
    assert_int_equal(q->calls[MO_TRACE_PROMPT], 1);
    assert_int_equal(mo_profile_calls(q), 3);
    assert_int_equal(mo_profile_hits(q, 7, false), 3);
    assert_int_equal(mo_profile_hits(q, 7, true), 2);
    assert_int_equal(mo_profile_hits_at(q, 7, MO_FOUND_HOT, false), 1);
    assert_int_equal(mo_profile_slots(q, MO_FOUND_COLD), 2);
    assert_true(mo_profile_time(q, MO_TIME_MOE) == 15 && mo_profile_time(q, MO_TIME_JOIN) == 3.5);
    assert_true(q->cold_slots == 2);
    assert_true(mo_profile_usable(p));

    /* What happened since: only the difference. */
    mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_HOT, 1);
    mo_profile *later = snapshot(t);
    mo_profile_subtract(later, p);
    assert_int_equal(picks(later), 1);
    assert_int_equal(mo_profile_hits(mo_profile_find(later, 2), 1, true), 1);
    assert_int_equal(mo_profile_find(later, 2)->timed, 0);
    mo_profile_subtract(later, p); /* more than there is leaves nothing */
    assert_int_equal(mo_profile_find(later, 2)->calls[0], 0);
    mo_profile_free(later);
    mo_profile_free(p);
    mo_tally_destroy(t);
    mo_tally_destroy(NULL);
    mo_profile_free(NULL);
}

/* A long text picks every expert of a layer at some time; what it needs are those that it picks more than others. */
static void long_prompts_need_few_experts(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    mo_touch touch;
    const mo_tally_layer *l = mo_tally_find(t, 3);
    assert_int_equal(mo_touch_create(t, &touch, &err), MO_OK);
    for (int round = 0; round < MO_PROFILE_PROMPTS_MIN; round++) {
        for (int e = 0; e < l->experts; e++) {
            mo_touch_add(&touch, l, e, e == 2 ? 100 : 10);
        }
        mo_tally_prompt(t, &touch);
    }
    mo_profile *p = snapshot(t);
    const mo_profile_layer *q = mo_profile_find(p, 3);
    for (int e = 0; e < l->experts; e++) {
        assert_int_equal(mo_profile_universal(p, q, e), e == 2);
    }
    mo_profile_free(p);
    mo_touch_destroy(&touch);
    mo_tally_destroy(t);
}

/* Two conversations at once, each counted once per expert however often it comes back. */
static void prompts_side_by_side(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    mo_touch a, b;
    assert_int_equal(mo_touch_create(t, &a, &err), MO_OK);
    assert_int_equal(mo_touch_create(t, &b, &err), MO_OK);
    const mo_tally_layer *l = mo_tally_find(t, 3), *first = mo_tally_find(t, 0);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 10; i++) {
            mo_touch_mark(&a, l, 3);
            mo_touch_mark(&b, l, round < 2 ? 3 : 1);
            mo_touch_mark(&a, first, 0);
        }
        mo_tally_prompt(t, &a);
        mo_tally_prompt(t, &b);
        mo_tally_prompt(t, &b); /* nothing touched since: no prompt */
    }
    mo_profile *p = snapshot(t);
    const mo_profile_layer *q = mo_profile_find(p, 3), *z = mo_profile_find(p, 0);
    assert_int_equal(p->prompts, 10);
    assert_int_equal(q->prompts[3], 7);
    assert_int_equal(q->prompts[1], 3);
    assert_int_equal(z->prompts[0], 5);
    assert_true(mo_profile_universal(p, q, 3));
    assert_false(mo_profile_universal(p, q, 1));
    assert_false(mo_profile_universal(p, z, 0)); /* exactly half is not more than half */
    p->prompts = MO_PROFILE_PROMPTS_MIN - 1;
    assert_false(mo_profile_universal(p, q, 3)); /* too few to say */
    mo_profile_free(p);
    mo_touch_destroy(&a);
    mo_touch_destroy(&b);
    mo_tally_destroy(t);
}

static _Atomic bool stop;

static void *count_on(void *ctx)
{
    mo_tally_layer *l = mo_tally_find(ctx, 2);
    for (int i = 0; i < 300000; i++) {
        mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_HOT, 3);
    }
    stop = true;
    return NULL;
}

/* Snapshots while the other thread counts: never less than before, all at the end. */
static void snapshots_while_counting(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    pthread_t thread;
    uint64_t last = 0;
    stop = false;
    assert_int_equal(pthread_create(&thread, NULL, count_on, t), 0);
    do {
        mo_profile *p = snapshot(t);
        assert_true(picks(p) >= last);
        last = picks(p);
        mo_profile_free(p);
    } while (!stop);
    pthread_join(thread, NULL);
    mo_profile *p = snapshot(t);
    assert_int_equal(picks(p), 300000);
    mo_profile_free(p);
    mo_tally_destroy(t);
}

static void impossible_shapes(void **state)
{
    (void)state;
    mo_profile *p;
    mo_tally *t;
    const int32_t down[2] = {3, 3}, many[2] = {1 << 16, 1 << 16}, none[2] = {0, 4};
    assert_int_equal(mo_profile_create(&(mo_profile_shape){0, 1, 2, down, experts}, &p, &err), MO_EINVAL);
    check_says(&err, "ascend");
    assert_int_equal(mo_profile_create(&(mo_profile_shape){0, 1, 2, numbers, none}, &p, &err), MO_EINVAL);
    check_says(&err, "0 experts");
    int32_t long_numbers[17], long_experts[17];
    for (int i = 0; i < 17; i++) {
        long_numbers[i] = i;
        long_experts[i] = many[0];
    }
    assert_int_equal(mo_tally_create(&(mo_profile_shape){0, 1, 17, long_numbers, long_experts}, &t, &err),
                     MO_EINVAL);
    check_says(&err, "exceed the limit");
    assert_int_equal(mo_tally_create(&(mo_profile_shape){0, 1, 0, NULL, NULL}, &t, &err), MO_OK);
    p = snapshot(t);
    assert_false(mo_profile_usable(p));
    mo_profile_free(p);
    mo_tally_destroy(t);
}

/* ---- Merging and fading ---- */

static void merges(void **state)
{
    (void)state;
    mo_profile *a = learned(1, 30), *b = learned(2, 60), *ab, *ba, *other, *none;
    assert_int_equal(mo_profile_merge(a, b, &ab, &err), MO_OK);
    assert_int_equal(mo_profile_merge(b, a, &ba, &err), MO_OK);
    assert_same(ab, ba);
    assert_int_equal(picks(ab), picks(a) + picks(b));
    assert_int_equal(ab->prompts, 2);
    assert_int_equal(mo_profile_find(ab, 2)->timed, 45);

    /* Layers of one side only, and more experts than the other knows. */
    const int32_t own_numbers[2] = {1, 3}, own_experts[2] = {2, 6};
    assert_int_equal(mo_profile_create(&(mo_profile_shape){0, 0, 2, own_numbers, own_experts}, &other, &err),
                     MO_OK);
    other->layer[1].hits[0][0][5] = 9;
    assert_int_equal(mo_profile_merge(a, other, &none, &err), MO_OK);
    assert_int_equal(none->layers, 4);
    assert_int_equal(none->fingerprint, MODEL);
    assert_int_equal(mo_profile_find(none, 3)->hits[0][0][5], 9);
    assert_int_equal(mo_profile_find(none, 3)->hits[1][1][3], mo_profile_find(a, 3)->hits[1][1][3]);
    mo_profile_free(none);

    other->fingerprint = MODEL + 1;
    assert_int_equal(mo_profile_merge(a, other, &none, &err), MO_EINVAL);
    check_says(&err, "different models");
    assert_null(none);

    a->layer[0].hits[0][0][0] = UINT64_MAX - 1;
    b->layer[0].hits[0][0][0] = 5;
    assert_int_equal(mo_profile_merge(a, b, &none, &err), MO_OK);
    assert_true(none->layer[0].hits[0][0][0] == UINT64_MAX);
    assert_true(mo_profile_hits(&none->layer[0], 0, false) == UINT64_MAX);
    mo_profile_free(none);
    mo_profile_free(other);
    mo_profile_free(ab);
    mo_profile_free(ba);
    mo_profile_free(a);
    mo_profile_free(b);
}

static void fades(void **state)
{
    (void)state;
    mo_profile *p = learned(1, 9);
    mo_profile_layer *l = mo_profile_find(p, 2);
    const uint64_t few = mo_profile_hits(mo_profile_find(p, 0), 1, false);
    assert_int_equal(mo_profile_age(p), 0); /* far below the limits */
    assert_int_equal(mo_profile_hits(mo_profile_find(p, 0), 1, false), few);
    /* used is 2: as many picks make half as many tokens. */
    for (int i = 0; i < 4; i++) {
        memset(l->hits[i / 2][i % 2], 0, 8 * sizeof(uint64_t));
    }
    l->hits[1][0][0] = 2 * (uint64_t)MO_PROFILE_TOKENS_MAX + 1;
    assert_int_equal(mo_profile_age(p), 0);
    l->hits[1][0][0]++;
    l->hits[1][0][1] = 2;
    l->calls[1] = 100;
    l->cold_slots = 40;
    assert_int_equal(mo_profile_age(p), 1);
    assert_int_equal(l->hits[1][0][0], MO_PROFILE_TOKENS_MAX + 1);
    assert_int_equal(l->hits[1][0][1], 1);
    assert_int_equal(l->calls[1], 50);
    assert_true(l->cold_slots == 20);
    assert_int_equal(p->prompts, 1); /* prompts fade apart */
    l->hits[1][0][2] = UINT64_MAX;
    assert_true(mo_profile_age(p) > 40);
    assert_true(mo_profile_slots(l, MO_FOUND_COLD) / 2 <= MO_PROFILE_TOKENS_MAX);
    p->prompts = MO_PROFILE_PROMPTS_MAX + 1;
    l->prompts[4] = MO_PROFILE_PROMPTS_MAX + 1;
    l->prompts[3] = 1;
    assert_int_equal(mo_profile_age(p), 1);
    assert_int_equal(p->prompts, MO_PROFILE_PROMPTS_MAX / 2 + 1);
    assert_int_equal(l->prompts[4], p->prompts);
    assert_int_equal(l->prompts[3], 1);
    mo_profile_free(p);
}

/* ---- JSON ---- */

static void json_round_trip(void **state)
{
    (void)state;
    mo_profile *p = learned(3, 50), *q;
    char *text;
    size_t length;
    for (int mode = MO_PROFILE_UPDATE; mode <= MO_PROFILE_FULL; mode++) {
        assert_int_equal(mo_profile_json_write(p, (mo_profile_mode)mode, &text, &length, &err), MO_OK);
        assert_int_equal(length, strlen(text));
        q = parse(text);
        assert_same(p, q);
        mo_profile_free(q);
        free(text);
    }
    mo_profile_free(p);
}

/* Lanes and fallbacks: through the tally, JSON and the arithmetic of profiles, under the hot cache's names. */
static void json_of_lanes(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    mo_tally_layer *l = mo_tally_find(t, 2);
    char *text;
    size_t length;
    for (int i = 0; i < 4; i++) {
        mo_tally_call(l, MO_TRACE_GENERATION);
        mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_COLD, i);
        mo_tally_lanes(
            l, i > 0, i < 2,
            (const uint64_t[MO_FALLBACKS]){[MO_FALLBACK_LATE] = 2, [MO_FALLBACK_UNPINNED] = i == 3});
    }
    mo_profile *p = snapshot(t), *q, *sum = NULL;
    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_FULL, &text, &length, &err), MO_OK);
    assert_non_null(strstr(text, "\"parallel_hot_launches\":3,\"parallel_cold_launches\":2,"
                                 "\"parallel_hot_skips_zero\":1,\"parallel_cold_skips_zero\":2,"
                                 "\"parallel_fallbacks\":9,"
                                 "\"parallel_fallback_reasons\":{\"late_copy\":8,\"not_pinned\":1}"));
    q = parse(text);
    free(text);
    assert_same(q, p);
    assert_int_equal(mo_profile_merge(p, q, &sum, &err), MO_OK);
    const mo_profile_layer *both = mo_profile_find(sum, 2);
    assert_int_equal(both->lanes[MO_LANE_HOT_RUNS], 6);
    assert_int_equal(both->fallbacks[MO_FALLBACK_LATE], 16);
    mo_profile_subtract(sum, q);
    assert_same(sum, p);
    mo_profile_find(sum, 2)->hits[1][0][0] = 2 * (uint64_t)MO_PROFILE_TOKENS_MAX + 1;
    assert_int_equal(mo_profile_age(sum), 1);
    assert_int_equal(both->lanes[MO_LANE_HOT_RUNS], 1);
    assert_int_equal(both->fallbacks[MO_FALLBACK_LATE], 4);
    mo_profile_free(sum);
    mo_profile_free(q);

    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_UPDATE, &text, &length, &err), MO_OK);
    assert_null(strstr(text, "parallel_fallback")); /* an update of the hot set does not need them */
    assert_null(strstr(text, "_launches"));
    free(text);
    mo_profile_free(p);
    mo_tally_destroy(t);

    /* Reasons of others are kept as one. */
    q = parse("{" SCHEMA
              ",\"layers\":[{\"layer\":4,\"calls\":9,\"parallel_hot_launches\":5,\"parallel_fallbacks\":7,"
              "\"parallel_fallback_reasons\":{\"threshold\":3,\"late_copy\":4},\"experts\":[[1,1]]}]}");
    assert_int_equal(q->layer[0].lanes[MO_LANE_HOT_RUNS], 5);
    assert_int_equal(q->layer[0].fallbacks[MO_FALLBACK_LATE], 4);
    assert_int_equal(q->layer[0].fallbacks[MO_FALLBACK_OTHER], 3);
    mo_profile_free(q);
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"parallel_fallbacks\":-1,\"experts\":[[1,1]]}]}",
            "not a number");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"parallel_fallback_reasons\":[],\"experts\":[[1,1]]}]}",
            "not a number");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"parallel_cold_launches\":\"x\",\"experts\":[[1,1]]}]}",
            "not a number");
    assert_string_equal(mo_fallback_text(MO_FALLBACK_ON_DISK), "not_in_ram");
}

/* What the reference's readers look for is there, sums and averages agree, empty layers are not. */
static void json_for_others(void **state)
{
    (void)state;
    mo_tally *t = new_tally();
    mo_tally_layer *l = mo_tally_find(t, 2);
    for (int i = 0; i < 4; i++) {
        mo_tally_call(l, MO_TRACE_GENERATION);
        mo_tally_pick(l, MO_TRACE_GENERATION, MO_FOUND_HOT, 6);
        mo_tally_pick(l, i ? MO_TRACE_GENERATION : MO_TRACE_PROMPT, MO_FOUND_COLD, i);
    }
    mo_tally_time(l, (const uint64_t[MO_TIMES]){9000, 1000, 2000, 5000, 3000, 5500});
    mo_profile *p = snapshot(t);
    char *text;
    size_t length;
    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_FULL, &text, &length, &err), MO_OK);
    json_t *root = json_loads(text, 0, NULL), *layer = json_array_get(json_object_get(root, "layers"), 0);
    assert_true(json_is_true(json_object_get(root, "enabled")));
    assert_string_equal(json_string_value(json_object_get(root, "mode")), "full");
    assert_string_equal(json_string_value(json_object_get(root, "schema")), MO_PROFILE_SCHEMA);
    assert_int_equal(json_array_size(json_object_get(root, "layers")), 1);
    int64_t n_expert, used, calls, hot, cold, id, n;
    double per_call, ratio, moe, join, overlap, all;
    assert_int_equal(json_unpack(root, "{s:I,s:I,s:{s:I,s:f}}", "n_expert", &n_expert, "n_expert_used", &used,
                                 "summary", "layer_calls", &calls, "parallel_join_wait_time_per_call_us",
                                 &all),
                     0);
    assert_true(n_expert == 8 && used == 2 && calls == 4 && all == 3);
    assert_int_equal(json_unpack(layer, "{s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:[[I,I]!]}", "layer", &id,
                                 "calls", &calls, "hot0_slots_total", &hot, "cold_slots_total", &cold,
                                 "cold_slots_per_call", &per_call, "hot_slot_ratio", &ratio,
                                 "total_moe_time_per_call_us", &moe, "parallel_join_wait_time_per_call_us",
                                 &join, "parallel_overlap_estimate_per_call_us", &overlap, "hot_experts", &id,
                                 &n),
                     0);
    assert_true(id == 6 && n == 4 && calls == 4 && hot == 4 && cold == 4);
    assert_true(per_call == 1 && ratio == 0.5 && moe == 9 && join == 3 && overlap == 1.5);
    assert_int_equal(json_array_size(json_object_get(layer, "experts")), 5);
    json_decref(root);
    free(text);

    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_UPDATE, &text, &length, &err), MO_OK);
    assert_null(strstr(text, "total_moe"));
    assert_non_null(strstr(text, "parallel_cold_lane_wall_time_per_call_us"));
    free(text);
    assert_int_equal(mo_profile_json_write(NULL, MO_PROFILE_OFF, &text, &length, &err), MO_OK);
    assert_string_equal(text, "{\"enabled\":false,\"mode\":\"off\"," SCHEMA ",\"layers\":[]}");
    mo_profile *q = parse(text);
    assert_false(mo_profile_usable(q));
    mo_profile_free(q);
    free(text);

    p->layer[1].hits[1][1][6] = UINT64_MAX; /* JSON readers stop at 63 bits */
    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_UPDATE, &text, &length, &err), MO_OK);
    q = parse(text);
    assert_true(mo_profile_hits(mo_profile_find(q, 2), 6, true) == INT64_MAX);
    mo_profile_free(q);
    free(text);
    mo_profile_free(p);
    mo_tally_destroy(t);
}

/* Files as the reference's own program writes them. */
static void json_from_others(void **state)
{
    (void)state;
    /* A learn run: nothing was hot. */
    mo_profile *p =
        parse("{\"enabled\":true,\"mode\":\"full\"," SCHEMA ",\"n_expert\":128,\"n_expert_used\":8,"
              "\"updates\":12,\"overflow_resets\":0,\"summary\":{\"layer_calls\":4,\"hot_slot_ratio\":0},"
              "\"layers\":[{\"layer\":5,\"calls\":4,\"hot_slots_total\":0,\"cold_slots_total\":32,"
              "\"hot_slots_per_call\":0,\"cold_slots_per_call\":8,\"hot_slot_ratio\":0,"
              "\"parallel_fallback_reasons\":{\"threshold\":3},\"total_moe_time_per_call_us\":1250.5,"
              "\"experts\":[[3,20],[90,12]],\"hot_experts\":[],\"cold_experts\":[[3,20],[90,12]]}]}");
    const mo_profile_layer *l = mo_profile_find(p, 5);
    assert_int_equal(p->experts, 128);
    assert_int_equal(p->used, 8);
    assert_int_equal(p->fingerprint, 0);
    assert_int_equal(mo_profile_hits(l, 3, true), 20);
    assert_int_equal(l->experts, 91);
    assert_int_equal(mo_profile_calls(l), 4);
    assert_true(l->cold_slots == 32);
    assert_true(fabs(mo_profile_time(l, MO_TIME_MOE) - 1250500) < 0.5);
    assert_true(mo_profile_usable(p));
    mo_profile_free(p);

    /* The older schema with raw counts only; they are cold, but no cold slots were counted. */
    p = parse("{\"schema\":\"llama.cpp.moe_layer_perf.v1\",\"layers\":[{\"layer\":1,\"experts\":[[0,2],[1,5],"
              "[2,0]],"
              "\"hot_experts\":[[4,0]],\"cold_experts\":[]}]}");
    l = mo_profile_find(p, 1);
    assert_int_equal(mo_profile_hits_at(l, 1, MO_FOUND_COLD, false), 5);
    assert_int_equal(l->experts, 2); /* the zero was dropped */
    assert_true(l->cold_slots == 0);
    mo_profile_free(p);

    /* Hot or cold counts replace the raw ones; duplicates are summed and stop at the largest number. */
    p = parse(
        "{" SCHEMA ",\"layers\":[{\"layer\":0,\"experts\":[[7,1000]],\"hot_experts\":[[1,3],[1,4]],"
        "\"cold_experts\":[[1,5],[2,9223372036854775807],[2,9223372036854775807],[2,9223372036854775807]]},"
        "{\"layer\":0,\"cold_experts\":[[1,100]]},{\"layer\":9,\"experts\":[]}]}");
    l = mo_profile_find(p, 0);
    assert_int_equal(p->layers, 1);
    assert_int_equal(mo_profile_hits_at(l, 1, MO_FOUND_HOT, false), 7);
    assert_int_equal(mo_profile_hits(l, 1, false), 112);
    assert_true(mo_profile_hits(l, 2, false) == UINT64_MAX);
    assert_int_equal(l->experts, 3); /* expert 7 is known by raw counts only */
    mo_profile_free(p);

    /* Averages without the number of calls; slots per call from the totals. */
    p = parse("{" SCHEMA ",\"layers\":[{\"layer\":0,\"cold_slots_per_call\":2.5,\"experts\":[[0,1]],"
              "\"parallel_join_wait_time_per_call_us\":7},{\"layer\":1,\"calls\":4,\"cold_slots_total\":10,"
              "\"experts\":[[0,1]]},{\"layer\":2,\"cold_slots_total\":10,\"experts\":[[0,1]]}]}");
    assert_true(p->layer[0].cold_slots / (double)mo_profile_calls(&p->layer[0]) == 2.5);
    assert_true(mo_profile_time(&p->layer[0], MO_TIME_JOIN) == 7000);
    assert_true(p->layer[1].cold_slots / (double)mo_profile_calls(&p->layer[1]) == 2.5);
    assert_true(p->layer[2].cold_slots == 0);
    mo_profile_free(p);
}

static void json_faults(void **state)
{
    (void)state;
    refuses("", "not JSON");
    refuses("{\"schema\":", "not JSON");
    refuses("[]", "schema is missing");
    refuses("{\"layers\":[]}", "schema is missing");
    refuses("{\"schema\":\"llama.cpp.moe_layer_perf.v2\",\"layers\":[]}", "perf.v2");
    refuses("{" SCHEMA "}", "layers");
    refuses("{" SCHEMA ",\"layers\":{}}", "layers");
    refuses("{" SCHEMA ",\"layers\":[7]}", "layer number");
    refuses("{" SCHEMA ",\"layers\":[{\"experts\":[[1,1]]}]}", "layer number");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":-1,\"experts\":[[1,1]]}]}", "layer number");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":99999999}]}", "layer number");
    refuses("{" SCHEMA ",\"n_expert\":-4,\"layers\":[]}", "n_expert");
    static const char *const bad[] = {"7",       "[1]",       "[1,2,3]",   "[-1,2]", "[1,-2]",
                                      "[1.5,2]", "[1,\"2\"]", "[65536,1]", "{}"};
    static const char *const lists[] = {"experts", "hot_experts", "cold_experts"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] * 3; i++) {
        char text[256], where[64];
        snprintf(text, sizeof text, "{" SCHEMA ",\"layers\":[{\"layer\":4,\"%s\":[[0,1],%s]}]}", lists[i % 3],
                 bad[i / 3]);
        snprintf(where, sizeof where, "%s of layer 4: entry 1", lists[i % 3]);
        refuses(text, where);
    }
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"experts\":7}]}", "not a list");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"experts\":[[1,99999999999999999999]]}]}", "not JSON");
    refuses("{" SCHEMA ",\"layers\":[{\"layer\":4,\"calls\":\"x\",\"experts\":[[1,1]]}]}", "not a number");
    refuses("{" SCHEMA
            ",\"layers\":[{\"layer\":4,\"total_moe_time_per_call_us\":\"x\",\"experts\":[[1,1]]}]}",
            "not a number");
    /* A small file must not ask for much memory. */
    char *large = calloc(1, 1 << 16);
    assert_non_null(large);
    int used = sprintf(large, "{" SCHEMA ",\"layers\":[");
    for (int i = 0; i < 1000; i++) {
        used += sprintf(large + used, "%s{\"layer\":%d,\"experts\":[[65535,1]]}", i ? "," : "", i);
    }
    memcpy(large + used, "]}", 3);
    refuses(large, "is invalid");
    free(large);
}

#define OWN(part)                                                                                            \
    "{" SCHEMA ",\"layers\":[{\"layer\":4,\"calls\":2,\"cold_experts\":[[1,5]]}],\"moraine\":" part "}"
#define OWN_LAYER(part)                                                                                      \
    OWN("{\"format\":1,\"fingerprint\":\"00000000000000ff\",\"prompts\":3,\"layers\":[" part "]}")

static void json_own_part(void **state)
{
    (void)state;
    mo_profile *p = parse(OWN_LAYER("{\"layer\":4,\"experts\":16,\"prompt_calls\":1,\"prompt_cold\":[[1,2]],"
                                    "\"prompts\":[[1,3]]},{\"layer\":7,\"experts\":16}"));
    const mo_profile_layer *l = mo_profile_find(p, 4);
    assert_int_equal(p->fingerprint, 255);
    assert_int_equal(l->experts, 16);
    assert_int_equal(mo_profile_hits(l, 1, false), 5);
    assert_int_equal(mo_profile_hits(l, 1, true), 3);
    assert_int_equal(l->calls[MO_TRACE_PROMPT], 1);
    assert_int_equal(l->calls[MO_TRACE_GENERATION], 1);
    assert_int_equal(l->prompts[1], 3);
    mo_profile_free(p);
    refuses(OWN("7"), "format");
    refuses(OWN("{\"format\":2}"), "another version");
    refuses(OWN("{\"format\":1}"), "fingerprint");
    refuses(OWN("{\"format\":1,\"fingerprint\":\"xyz\"}"), "fingerprint");
    refuses(OWN_LAYER("{}"), "without a number");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":1}"), "inconsistent");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8,\"prompt_cold\":[[1,6]]}"), "inconsistent");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8,\"prompt_cold\":[[2,1]]}"), "inconsistent");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8,\"prompt_calls\":3}"), "inconsistent");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8},{\"layer\":4,\"experts\":8}"), "inconsistent");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8,\"prompts\":[[1]]}"), "entry 0");
    refuses(OWN_LAYER("{\"layer\":4,\"experts\":8,\"time_ns\":{\"moe\":\"x\"}}"), "inconsistent");
}

/* Damaged in any one byte: read or refused, never worse (the sanitizers watch). */
static void json_damaged_bytes(void **state)
{
    (void)state;
    mo_profile *p = learned(5, 12), *q;
    char *text;
    size_t length;
    uint64_t seed = 7;
    assert_int_equal(mo_profile_json_write(p, MO_PROFILE_FULL, &text, &length, &err), MO_OK);
    for (size_t i = 0; i < length; i++) {
        const char old = text[i];
        text[i] = "0129-.e[]{},:\"x\0"[random_below(&seed, 16)];
        if (mo_profile_json_read(text, length, &q, &err) == MO_OK) {
            mo_profile_free(q);
        }
        text[i] = old;
        assert_int_equal(mo_profile_json_read(text, i, &q, &err), MO_EFORMAT); /* cut short */
    }
    free(text);
    mo_profile_free(p);
}

static void fits_models(void **state)
{
    (void)state;
    mo_profile *p = parse("{" SCHEMA ",\"n_expert\":8,\"layers\":[{\"layer\":2,\"experts\":[[6,4]]}]}"), *q;
    if (mo_profile_fit(p, &shape, &q, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_int_equal(q->layers, LAYERS);
    assert_int_equal(q->fingerprint, MODEL);
    assert_int_equal(mo_profile_hits(mo_profile_find(q, 2), 6, true), 4);
    mo_profile_free(q);
    p->fingerprint = 77;
    assert_int_equal(mo_profile_fit(p, &shape, &q, &err), MO_EFORMAT);
    check_says(&err, "another model");
    assert_null(q);
    p->fingerprint = 0;
    p->experts = 64;
    assert_int_equal(mo_profile_fit(p, &shape, &q, &err), MO_EFORMAT);
    check_says(&err, "64 experts");
    mo_profile_free(p);
    p = parse("{" SCHEMA ",\"layers\":[{\"layer\":1,\"experts\":[[6,4]]}]}"); /* a dense layer here */
    assert_int_equal(mo_profile_fit(p, &shape, &q, &err), MO_EFORMAT);
    check_says(&err, "layer 1");
    mo_profile_free(p);
    p = parse("{" SCHEMA ",\"layers\":[{\"layer\":3,\"experts\":[[4,4]]}]}"); /* which has four experts */
    assert_int_equal(mo_profile_fit(p, &shape, &q, &err), MO_EFORMAT);
    check_says(&err, "expert 4 of layer 3");
    mo_profile_free(p);
}

/* ---- Files ---- */

static void file_paths(void **state)
{
    (void)state;
    char path[256], small[8];
    char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    home = home ? strdup(home) : NULL;
    cache = cache ? strdup(cache) : NULL;
    setenv("XDG_CACHE_HOME", "/var/tmp/x", 1);
    assert_int_equal(mo_profile_file_path(0xabc, path, sizeof path, &err), MO_OK);
    assert_string_equal(path, "/var/tmp/x/moraine/0000000000000abc.json");
    assert_int_equal(mo_profile_file_path(1, small, sizeof small, &err), MO_EINVAL);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/u", 1);
    assert_int_equal(mo_profile_file_path(0xabc, path, sizeof path, &err), MO_OK);
    assert_string_equal(path, "/home/u/.cache/moraine/0000000000000abc.json");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(mo_profile_file_path(1, path, sizeof path, &err), MO_ENOENT);
    check_says(&err, "HOME");
    if (home) {
        setenv("HOME", home, 1);
    }
    if (cache) {
        setenv("XDG_CACHE_HOME", cache, 1);
    }
    free(home);
    free(cache);
}

static void file_accumulates(void **state)
{
    (void)state;
    const char *path = in_folder("deep/moraine/m.json");
    mo_profile *p = learned(1, 20), *q;
    mo_error moved;
    /* A directory that somebody named is not made: it may be mistyped. That of the cache is. */
    setenv("XDG_CACHE_HOME", in_folder("elsewhere"), 1);
    assert_int_equal(mo_profile_file_add(path, p, &moved, &err), MO_ENOENT);
    check_says(&err, "its directory does not exist");
    assert_false(exists(in_folder("deep")));
    setenv("XDG_CACHE_HOME", in_folder("deep"), 1);
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_ENOENT);
    assert_int_equal(mo_profile_file_add(path, p, &moved, &err), MO_OK);
    assert_int_equal(moved.status, MO_OK);
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_same(p, q);
    mo_profile_free(q);
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_int_equal(picks(q), 2 * picks(p));
    assert_int_equal(q->prompts, 2);
    mo_profile_free(q);
    /* Old counts fade in the file. */
    p->layer[0].hits[1][0][0] = 4 * (uint64_t)MO_PROFILE_TOKENS_MAX;
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_in_range(q->layer[0].hits[1][0][0], MO_PROFILE_TOKENS_MAX, 2 * MO_PROFILE_TOKENS_MAX);
    assert_false(exists(in_folder("deep/moraine/m.json.moraine-part")));
    mo_profile_free(q);
    mo_profile_free(p);
}

/* Damaged, empty, of another program or model: one sentence, kept aside under a free name, and learning
 * begins anew. */
static void file_moves_aside(void **state)
{
    (void)state;
    char path[256], aside[300];
    mo_profile *p = learned(1, 20), *q, *other = learned(2, 20);
    char *foreign;
    size_t length;
    other->fingerprint = 99;
    assert_int_equal(mo_profile_json_write(other, MO_PROFILE_FULL, &foreign, &length, &err), MO_OK);
    const char *const nobody = "{" SCHEMA ",\"layers\":[]}"; /* names no model */
    const char *const bad[] = {"{\"schema\":\"llama", "", "{\"a\":1}", foreign, nobody};
    snprintf(path, sizeof path, "%s/bad.json", folder);
    for (int i = 0; i < 5; i++) {
        mo_error moved;
        write_file(path, bad[i]);
        snprintf(aside, sizeof aside, "%s.aside-%d", path, i + 1);
        if (i % 2) {
            assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_EFORMAT);
            assert_null(q);
            check_says(&err, aside);
            check_says(&err, path);
            assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_ENOENT);
        } else {
            assert_int_equal(mo_profile_file_add(path, p, &moved, &err), MO_OK);
            assert_int_equal(moved.status, MO_EFORMAT);
            assert_non_null(strstr(moved.detail, aside));
            assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
            assert_same(p, q);
            mo_profile_free(q);
        }
        struct stat st;
        assert_int_equal(stat(aside, &st), 0);
        assert_int_equal(st.st_size, strlen(bad[i]));
    }
    /* A file the user names is never moved. */
    write_file(path, "nonsense");
    assert_int_equal(mo_profile_file_read(path, &q, &err), MO_EFORMAT);
    check_says(&err, path);
    assert_true(exists(path));
    assert_int_equal(mo_profile_file_read(in_folder("none.json"), &q, &err), MO_ENOENT);
    assert_int_equal(mo_profile_file_read(folder, &q, &err), MO_EUNSUPPORTED);
    assert_int_equal(mo_profile_file_add(folder, p, NULL, &err), MO_EUNSUPPORTED); /* nor is a directory */
    /* A hundred are enough. */
    for (int i = 6; i <= 100; i++) {
        snprintf(aside, sizeof aside, "%s.aside-%d", path, i);
        write_file(aside, "x");
    }
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_EIO);
    check_says(&err, "remove some");
    assert_true(exists(path));
    free(foreign);
    mo_profile_free(p);
    mo_profile_free(other);
}

/* A disk that is full: the save fails with a sentence and the old file stays as it was. */
static void file_full_disk(void **state)
{
    (void)state;
    const char *path = in_folder("full.json");
    mo_profile *p = learned(1, 20), *large = learned(2, 4000), *q;
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    char *before = file_text(path);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (rlim_t limit = 0; limit < strlen(before); limit += 97) {
        tight = (struct rlimit){limit, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        const mo_status status = mo_profile_file_add(path, large, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, MO_ENOSPC);
        check_says(&err, path);
    }
    char *after = file_text(path);
    assert_string_equal(before, after);
    assert_false(exists(in_folder("full.json.moraine-part")));
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_same(p, q);
    assert_int_equal(mo_profile_file_write("/dev/full", p, &err), MO_ENOSPC);
    check_says(&err, "no space");
    assert_int_equal(mo_profile_file_write(in_folder("no/such/place.json"), p, &err), MO_ENOENT);
    free(before);
    free(after);
    mo_profile_free(p);
    mo_profile_free(q);
    mo_profile_free(large);
}

static void file_through_links(void **state)
{
    (void)state;
    char target[256], link[256];
    mo_profile *p = learned(1, 20), *q;
    snprintf(target, sizeof target, "%s/target.json", folder);
    snprintf(link, sizeof link, "%s/link.json", folder);
    assert_int_equal(mo_profile_file_write(target, p, &err), MO_OK);
    assert_int_equal(symlink("target.json", link), 0);
    assert_int_equal(mo_profile_file_add(link, p, NULL, &err), MO_OK);
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(mo_profile_file_load(target, MODEL, &q, &err), MO_OK);
    assert_int_equal(picks(q), 2 * picks(p));
    mo_profile_free(p);
    mo_profile_free(q);
}

static void saver(const char *path, const mo_profile *p, int times)
{
    for (int i = 0; i < times; i++) {
        if (mo_profile_file_add(path, p, NULL, &err) != MO_OK) {
            _exit(1);
        }
    }
}

/* Killed at any moment, the file is there and whole, and only ever grows. */
static void file_survives_kills(void **state)
{
    (void)state;
    const char *path = in_folder("killed.json");
    mo_profile *p = learned(1, 30), *q;
    uint64_t seed = 11, last = picks(p);
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    for (int i = 0; i < 40; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            saver(path, p, 1000000);
            _exit(0);
        }
        usleep((useconds_t)random_below(&seed, 12000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        if (mo_profile_file_load(path, MODEL, &q, &err) != MO_OK) {
            fail_msg("after kill %d: %s", i, err.detail);
        }
        assert_true(picks(q) >= last || picks(q) > MO_PROFILE_TOKENS_MAX / 2);
        assert_int_equal(picks(q) % picks(p), 0);
        last = picks(q);
        mo_profile_free(q);
    }
    /* What the killed left behind is in nobody's way. */
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    assert_false(exists(in_folder("killed.json.moraine-part")));
    mo_profile_free(p);
}

static void file_concurrent(void **state)
{
    (void)state;
    enum { PROCESSES = 4, TIMES = 25 };
    char path[256];
    snprintf(path, sizeof path, "%s/shared.json", folder);
    mo_profile *p = learned(1, 10), *q;
    pid_t child[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) {
            saver(path, p, TIMES);
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_int_equal(picks(q), PROCESSES * TIMES * picks(p));
    assert_int_equal(q->prompts, PROCESSES * TIMES);
    mo_profile_free(p);
    mo_profile_free(q);
}

/* ---- Memory ---- */

/* Everything that allocates, with each allocation failing in turn: MO_ENOMEM, nothing leaks, and in the
 * end it works. */
static mo_status everything(const char *path, const mo_profile *p)
{
    mo_tally *t = NULL;
    mo_touch touch = {0};
    mo_profile *a = NULL, *b = NULL, *c = NULL;
    char *text = NULL;
    size_t length;
    mo_status s = mo_tally_create(&shape, &t, &err);
    s = s ? s : mo_touch_create(t, &touch, &err);
    s = s ? s : mo_tally_snapshot(t, &a, &err);
    s = s ? s : mo_profile_merge(a, p, &b, &err);
    s = s ? s : mo_profile_fit(b, &shape, &c, &err);
    s = s ? s : mo_profile_json_write(c, MO_PROFILE_FULL, &text, &length, &err);
    s = s ? s : mo_profile_file_add(path, c, NULL, &err);
    free(text);
    mo_profile_free(a);
    mo_profile_free(b);
    mo_profile_free(c);
    mo_touch_destroy(&touch);
    mo_tally_destroy(t);
    return s;
}

static void memory_runs_out(void **state)
{
    (void)state;
    const char *path = in_folder("memory.json");
    mo_profile *p = learned(1, 5), *q;
    assert_int_equal(mo_profile_file_add(path, p, NULL, &err), MO_OK);
    mo_status s = MO_ENOMEM;
    int rounds = 0;
    for (; s != MO_OK; rounds++) {
        fail_after = rounds;
        s = everything(path, p);
        fail_after = -1;
        if (s != MO_OK && s != MO_ENOMEM) {
            fail_msg("allocation %d: %s", rounds, err.detail);
        }
    }
    assert_true(rounds > 50);
    assert_false(exists(in_folder("memory.json.aside-1"))); /* a file is not damaged because memory is out */
    assert_int_equal(mo_profile_file_load(path, MODEL, &q, &err), MO_OK);
    assert_int_equal(picks(q), 2 * picks(p));
    mo_profile_free(p);
    mo_profile_free(q);
}

/* ---- Fingerprint ---- */

typedef struct variant {
    const char *name, *arch, *tensor, *template;
    uint32_t experts, alignment;
    int64_t cols, per_part;
    mo_type type;
    bool swapped; /* order of the tensors */
} variant;

static uint64_t fingerprint_of(const variant *v)
{
    char path[256], first[300], key[64];
    static int count;
    mo_gguf_writer *w = mo_gguf_writer_create(v->alignment);
    mo_gguf_put_string(w, "general.architecture", v->arch);
    mo_gguf_put_string(w, "general.name", v->name);
    snprintf(key, sizeof key, "%s.expert_count", v->arch);
    mo_gguf_put_u32(w, key, v->experts);
    mo_gguf_put_string(w, "tokenizer.chat_template", v->template);
    const int64_t one[1] = {v->cols}, two[2] = {256, 4};
    for (int i = 0; i < 2; i++) {
        if (i == v->swapped) {
            mo_gguf_put_tensor(w, v->tensor, v->type, 1, one);
        } else {
            mo_gguf_put_tensor(w, "blk.0.ffn_norm.weight", MO_F32, 2, two);
        }
    }
    snprintf(path, sizeof path, "%s/fp%d", folder, count++);
    assert_true(v->per_part ? gguf_save_split(w, v->alignment, path, v->per_part, NULL)
                            : gguf_save(w, path, NULL));
    snprintf(first, sizeof first, v->per_part ? "%s-00001-of-00002.gguf" : "%s", path);
    mo_gguf *g = NULL;
    if (mo_gguf_open(first, &g, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_int_equal(mo_gguf_parts(g), v->per_part ? 2 : 1);
    const uint64_t value = mo_gguf_fingerprint(g);
    mo_gguf_close(g);
    mo_gguf_writer_destroy(w);
    return value;
}

static void fingerprints(void **state)
{
    (void)state;
    const variant base = {"toy", "olmoe", "blk.0.a.weight", "{{x}}", 8, 0, 256, 0, MO_F32, false};
    const uint64_t is = fingerprint_of(&base);
    assert_true(is != 0);
    variant v = base; /* the same model in other clothes */
    v.per_part = 1;
    assert_true(fingerprint_of(&v) == is);
    v = base, v.swapped = true;
    assert_true(fingerprint_of(&v) == is);
    v = base, v.template = "{{y}}";
    assert_true(fingerprint_of(&v) == is);
    v = base, v.alignment = 256;
    assert_true(fingerprint_of(&v) == is);
    v = base, v.name = "toy 2"; /* other models */
    assert_true(fingerprint_of(&v) != is);
    v = base, v.experts = 16;
    assert_true(fingerprint_of(&v) != is);
    v = base, v.cols = 512;
    assert_true(fingerprint_of(&v) != is);
    v = base, v.type = MO_F16;
    assert_true(fingerprint_of(&v) != is);
    v = base, v.tensor = "blk.1.a.weight";
    assert_true(fingerprint_of(&v) != is);
    v = base, v.arch = "llama";
    assert_true(fingerprint_of(&v) != is);
    assert_int_equal(is, 0x8096ee52e0140cbc); /* kept files depend on it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tally_counts),
        cmocka_unit_test(prompts_side_by_side),
        cmocka_unit_test(long_prompts_need_few_experts),
        cmocka_unit_test(snapshots_while_counting),
        cmocka_unit_test(impossible_shapes),
        cmocka_unit_test(merges),
        cmocka_unit_test(fades),
        cmocka_unit_test(json_of_lanes),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_for_others),
        cmocka_unit_test(json_from_others),
        cmocka_unit_test(json_faults),
        cmocka_unit_test(json_own_part),
        cmocka_unit_test(json_damaged_bytes),
        cmocka_unit_test(fits_models),
        cmocka_unit_test(file_paths),
        cmocka_unit_test(file_accumulates),
        cmocka_unit_test(file_moves_aside),
        cmocka_unit_test(file_full_disk),
        cmocka_unit_test(file_through_links),
        cmocka_unit_test(file_survives_kills),
        cmocka_unit_test(file_concurrent),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(fingerprints),
    };
    return cmocka_run_group_tests(tests, begin, folder_remove);
}
