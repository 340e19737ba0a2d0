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
    int32_t row = 0;
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
    assert_int_equal(row, mo_picks_rows(&r->p));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_the_experts_numbers),
        cmocka_unit_test(rows_follow_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
