/* Sweeps over products of axes: samples, whole sweeps that are interrupted, single cells (support/sweep.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "sweep.h"

static const sweep example = {.name = "example",
                              .axes = {{"model", 11}, {"step", 3}, {"mode", 4}, {"late", 2}},
                              .meet = {{0, 1}, {1, 2}}};
enum { CELLS = 11 * 3 * 4 * 2 };

static void every_value_and_pair_is_sampled(void **state)
{
    bool value[4][11] = {{false}}, pair[11][3] = {{false}}, other[3][4] = {{false}};
    int cells = 0;
    (void)state;
    sweep s = example;
    for (; sweep_next(&s); cells++) {
        for (int a = 0; a < 4; a++) {
            assert_in_range(s.at[a], 0, s.axes[a].count - 1);
            value[a][s.at[a]] = true;
        }
        pair[s.at[0]][s.at[1]] = other[s.at[1]][s.at[2]] = true;
    }
    for (int i = 0; i < 11 * 3; i++) {
        assert_true(SANITIZED || pair[i / 3][i % 3]);
        assert_true(SANITIZED || i >= 12 || other[i / 4][i % 4]);
    }
    for (int a = 0; a < 4; a++) {
        for (int i = 0; i < example.axes[a].count; i++) {
            assert_true(value[a][i]);
        }
    }
    assert_int_equal(cells, SANITIZED ? 11 : 33); /* as few as there can be */
}

static void an_empty_axis_has_no_cell(void **state)
{
    (void)state;
    sweep s = {.name = "empty", .axes = {{"model", 0}, {"step", 3}}};
    assert_false(sweep_next(&s));
    sweep one = {.name = "one", .axes = {{"model", 1}}};
    assert_true(sweep_next(&one));
    assert_false(sweep_next(&one));
}

/* So many cells of a sweep, as if it were interrupted in the next one. */
static int walk(int most, int *order)
{
    sweep s = example;
    int n = 0;
    while (n < most && sweep_next(&s)) {
        order[n++] = (int)s.cell;
    }
    if (n == most && sweep_next(&s)) {
        sweep_open.name = NULL; /* not a failure */
    }
    return n;
}

static void a_whole_sweep_goes_on(void **state)
{
    int whole[CELLS + 1], first[CELLS + 1], other[CELLS + 1];
    bool seen[CELLS] = {false};
    (void)state;
    setenv("MO_SWEEP", folder, 1);
    setenv("MO_SWEEP_SEED", "7", 1);
    assert_int_equal(walk(CELLS + 1, whole), CELLS);
    for (int i = 0; i < CELLS; i++) {
        assert_false(seen[whole[i]]);
        seen[whole[i]] = true;
    }
    assert_int_equal(walk(CELLS + 1, first), 0); /* all are done */
    setenv("MO_SWEEP_SEED", "8", 1);
    assert_int_equal(walk(100, other), 100);
    assert_memory_not_equal(other, whole, sizeof(int) * 100);
    setenv("MO_SWEEP_SEED", "7", 1);
    assert_int_equal(walk(100, first), 100);
    assert_memory_equal(first, whole, sizeof(int) * 100);
    unsetenv("MO_SWEEP_SEED"); /* the sweep's own */
    assert_int_equal(walk(CELLS + 1, first), CELLS - 100);
    assert_memory_equal(first, whole + 100, sizeof(int) * (CELLS - 100));
    unsetenv("MO_SWEEP");
}

static void damaged_state_begins_again(void **state)
{
    static const char *const texts[] = {"", "seed", "seed 3 cells 12 done 4\n", "seed 3 cells 264 done 999\n",
                                        "seed 3 cells 264 done -2\n"};
    int order[CELLS + 1];
    (void)state;
    setenv("MO_SWEEP", folder, 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(folder_put("/example", texts[i]), 0);
        assert_int_equal(walk(CELLS + 1, order), CELLS);
    }
    unsetenv("MO_SWEEP");
}

static void one_cell_is_repeated(void **state)
{
    (void)state;
    setenv("MO_SWEEP_CELL", "example:100", 1);
    sweep s = example, other = {.name = "exam", .axes = {{"model", 200}}};
    assert_true(sweep_next(&s));
    assert_int_equal(s.cell, 100);
    assert_int_equal(((s.at[0] * 3 + s.at[1]) * 4 + s.at[2]) * 2 + s.at[3], 100);
    assert_false(sweep_next(&s));
    assert_false(sweep_next(&other));
    unsetenv("MO_SWEEP_CELL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_and_pair_is_sampled),
        cmocka_unit_test(an_empty_axis_has_no_cell),
        cmocka_unit_test_setup_teardown(a_whole_sweep_goes_on, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(damaged_state_begins_again, folder_make, folder_remove),
        cmocka_unit_test(one_cell_is_repeated),
    };
    unsetenv("MO_SWEEP");
    unsetenv("MO_SWEEP_SEED");
    unsetenv("MO_SWEEP_CELL");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
