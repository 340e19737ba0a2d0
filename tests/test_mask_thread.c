/* The thread that computes masks: a step waits for them a moment only, and what was missed is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "grammar/mask_thread.h"

/* It can be read in so many ways that a mask takes as long as dozens of steps. */
static const char slow_gbnf[] = "root ::= a{100}\na ::= b b | b b b | b\nb ::= c c | c\n"
                                "c ::= d d | d | d d d\nd ::= [a-z ]? | [a-z] [a-z ]";
enum { MANY = 10 };

static mo_model *model;
static int64_t vocab;
static mo_mask_thread *masks;
static mo_mask mask[MANY];
static mo_grammar *grammars[MANY];
static mo_constraint *constraints[MANY];

static int open_all(void **state)
{
    mo_model_options o = mo_model_options_default();
    mo_model_info info;
    (void)state;
    o.threads = 1;
    o.context = 64;
    o.device = "none";
    assert_int_equal(mo_model_open(MO_TEST_MODEL, &o, &model, NULL), MO_OK);
    mo_model_describe(model, &info, sizeof info);
    vocab = info.vocab;
    assert_int_equal(mo_mask_thread_open(&masks, NULL), MO_OK);
    memset(mask, 0, sizeof mask);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(mo_grammar_open(model, slow_gbnf, strlen(slow_gbnf), NULL, &grammars[i], NULL),
                         MO_OK);
        assert_int_equal(mo_constraint_open(grammars[i], &constraints[i], NULL), MO_OK);
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        mo_mask_drop(masks, &mask[i]);
        mo_constraint_close(constraints[i]);
        mo_grammar_close(grammars[i]);
    }
    mo_mask_thread_close(masks);
    mo_model_close(model);
    return 0;
}

static void count_up(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* The last of many slow masks is missed by a step, and told when it is there. One that is dropped is not made. */
static void nobody_waits_long_for_masks(void **state)
{
    (void)state;
    atomic_int told = 0;
    mo_constraint *same;
    mo_mask_patience patience = {0};
    mo_mask *last = &mask[MANY - 1];
    for (int i = 0; i < MANY; i++) {
        mask[i].ready = count_up;
        mask[i].user = &told;
        mo_mask_want(masks, &mask[i], constraints[i]);
    }
    assert_null(mo_mask_get(masks, last, &patience));
    assert_true(mo_mask_missed(masks, last));
    assert_true(mo_mask_is_late(masks, last));
    assert_null(mo_mask_failure(masks, last));
    for (int i = 2; i < MANY - 1; i++) {
        mo_mask_drop(masks, &mask[i]);
    }
    while (!atomic_load(&told)) {
        usleep(1000);
    }
    const uint32_t *bits = mo_mask_get(masks, last, &patience);
    assert_non_null(bits);
    assert_false(mo_mask_missed(masks, last));
    assert_int_equal(mo_constraint_open(grammars[0], &same, NULL), MO_OK);
    assert_memory_equal(bits, mo_constraint_mask(same, NULL), (size_t)(vocab + 31) / 32 * 4);
    mo_constraint_close(same);
    for (int i = 0; i < MANY; i++) {
        mo_mask_drop(masks, &mask[i]);
    }
    assert_int_equal(told, 1);
}

typedef struct slow_call {
    atomic_bool begun, ended;
} slow_call;

static void hear_slowly(void *user)
{
    slow_call *c = user;
    atomic_store(&c->begun, true);
    usleep(100000);
    atomic_store(&c->ended, true);
}

/* Whoever drops a mask may be gone afterwards. */
static void a_dropped_mask_is_not_being_told(void **state)
{
    (void)state;
    slow_call call = {false, false};
    mo_mask_patience none = {.waiting = true};
    mo_mask *last = &mask[MANY - 1];
    last->ready = hear_slowly;
    last->user = &call;
    for (int i = 0; i < MANY; i++) {
        mo_mask_want(masks, &mask[i], constraints[i]);
    }
    assert_null(mo_mask_get(masks, last, &none));
    while (!atomic_load(&call.begun)) {
        usleep(100);
    }
    mo_mask_drop(masks, last);
    assert_true(atomic_load(&call.ended));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_long_for_masks, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_dropped_mask_is_not_being_told, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
