/* Picks: the counting sort of tokens by expert against a plain one, for every size and order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "experts/picks.h"
#include "random.h"

enum { EXPERTS = 1024, TOKENS = 64, USED = 16 };

typedef struct rig {
    mo_picks p;
    int32_t ids[TOKENS * USED], count[EXPERTS], first[EXPERTS + 1], row_of[TOKENS * USED],
        token_of[TOKENS * USED];
    float weights[TOKENS * USED];
    int order[EXPERTS], chosen;
} rig;

/* Each token chooses different experts. */
static void choose(rig *r, uint64_t *seed)
{
    const int experts = 1 + (int)random_below(seed, random_below(seed, 2) ? EXPERTS : 12);
    const int used = 1 + (int)random_below(seed, experts < USED ? experts : USED);
    const int64_t tokens = 1 + random_below(seed, TOKENS);
    r->p = (mo_picks){
        .ids = r->ids, .count = r->count, .first = r->first, .row_of = r->row_of, .token_of = r->token_of};
    mo_picks_begin(&r->p, experts, used, tokens);
    memset(r->count, 0x5a, sizeof r->count); /* what an earlier layer left */
    memset(r->first, 0x5a, sizeof r->first);
    for (int64_t t = 0; t < tokens; t++) {
        const int begin = (int)random_below(seed, experts);
        for (int i = 0; i < used; i++) {
            r->ids[t * used + i] = (begin + i) % experts;
        }
    }
}

/* Rows in the order of `order`, tokens ascending within an expert. */
static void check(const rig *r)
{
    int32_t row = 0, left_out = 0;
    for (int k = 0; k < r->chosen; k++) {
        const int e = r->order[k];
        assert_int_equal(r->first[e], row);
        for (int64_t i = 0; i < mo_picks_rows(&r->p); i++) {
            if (r->ids[i] == e) {
                assert_int_equal(r->row_of[i], row);
                assert_int_equal(r->token_of[row], i / r->p.used);
                row++;
            }
        }
        assert_int_equal(r->count[e], row - r->first[e]);
    }
    for (int64_t i = 0; i < mo_picks_rows(&r->p); i++) {
        assert_true(r->ids[i] >= 0 || r->row_of[i] == -1);
        left_out += r->ids[i] < 0;
    }
    assert_int_equal(row, mo_picks_rows(&r->p) - left_out);
    assert_int_equal(r->first[r->p.experts], row);
}

static void list_chosen(rig *r)
{
    r->chosen = 0;
    for (int e = 0; e < r->p.experts; e++) {
        if (r->count[e] > 0) {
            r->order[r->chosen++] = e;
        }
    }
}

static void rows_follow_the_experts_numbers(void **state)
{
    static rig r;
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 500; i++) {
        choose(&r, &seed);
        const int chosen = mo_picks_sort(&r.p);
        list_chosen(&r);
        assert_int_equal(chosen, r.chosen);
        check(&r);
        for (int e = 0; e < r.p.experts; e++) {
            assert_int_equal(r.first[e] + r.count[e], r.first[e + 1]);
        }
        int32_t first[EXPERTS + 1];
        memcpy(first, r.first, sizeof first);
        memset(r.first, 0x5a, sizeof r.first);
        mo_picks_lay(&r.p);
        assert_memory_equal(first, r.first, sizeof *first * (size_t)(r.p.experts + 1));
    }
}

static void rows_follow_any_order(void **state)
{
    static rig r;
    uint64_t seed = 4;
    (void)state;
    for (int i = 0; i < 500; i++) {
        choose(&r, &seed);
        assert_true(mo_picks_count(&r.p) > 0);
        list_chosen(&r);
        for (int k = r.chosen - 1; k > 0; k--) {
            const int other = (int)random_below(&seed, k + 1), e = r.order[k];
            r.order[k] = r.order[other];
            r.order[other] = e;
        }
        mo_picks_sort_in(&r.p, r.order, r.chosen);
        check(&r);
    }
}

/* Every token keeps a pick; what it keeps is in memory, or the best of a token that has nothing there; and the weight of what is left out
 * is among the others, in proportion. */
static void check_skipped(const rig *r, const rig *before, const bool *gone, const bool *missing,
                          int64_t skipped)
{
    int64_t left_out = 0;
    for (int64_t t = 0; t < r->p.tokens; t++) {
        const int64_t from = t * r->p.used;
        float all = 0, kept = 0;
        int best = 0, there = 0, left = 0;
        for (int i = 0; i < r->p.used; i++) {
            const int e = before->ids[from + i];
            best = before->weights[from + i] > before->weights[from + best] ? i : best;
            all += before->weights[from + i];
            kept += missing[e] ? 0 : before->weights[from + i];
            there += !gone[e];
            left += !missing[e];
            assert_int_equal(r->ids[from + i], missing[e] ? -1 : e);
            assert_true(!missing[e] || gone[e]);
            left_out += missing[e];
        }
        assert_true(left > 0 && left >= there);
        assert_true(t > 0 || there > 0 || r->ids[from + best] >= 0);
        for (int i = 0; i < r->p.used; i++) {
            assert_true(r->weights[from + i] == before->weights[from + i] * (all / kept));
        }
    }
    assert_int_equal(skipped, left_out);
}

static void what_is_left_out_has_no_rows(void **state)
{
    static rig r, before;
    static bool gone[EXPERTS], missing[EXPERTS];
    uint64_t seed = 5;
    int64_t all = 0;
    (void)state;
    for (int i = 0; i < 500; i++) {
        choose(&r, &seed);
        r.p.weights = r.weights;
        for (int64_t k = 0; k < mo_picks_rows(&r.p); k++) {
            r.weights[k] = (float)(1 + random_below(&seed, 1000)) / 1000;
        }
        const int64_t in_ten = random_below(&seed, 11);
        for (int e = 0; e < EXPERTS; e++) {
            missing[e] = gone[e] = random_below(&seed, 10) < in_ten;
        }
        mo_picks_count(&r.p);
        before = r;
        const int64_t skipped = mo_picks_skip(&r.p, missing);
        check_skipped(&r, &before, gone, missing, skipped);
        r.chosen = 0;
        for (int e = r.p.experts - 1; e >= 0; e--) {
            if (r.count[e] > 0 && !missing[e]) {
                r.order[r.chosen++] = e;
            }
        }
        mo_picks_sort_in(&r.p, r.order, r.chosen);
        check(&r);
        all += skipped;
    }
    assert_true(all > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_the_experts_numbers),
        cmocka_unit_test(rows_follow_any_order),
        cmocka_unit_test(what_is_left_out_has_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
