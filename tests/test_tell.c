/* Files of products are compiled without the thread sanitizer and say what they read and write (numeric/tell.h): it must still find
 * two threads that meet there. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "numeric/kernels.h"

enum { ROWS = 64, COLS = 64, ROW_BYTES = 36, REPORTED = 66 };

typedef enum meeting { APART, IN_OUTPUT, IN_WEIGHTS, IN_CODES, MEETINGS } meeting;

typedef struct half {
    const mo_kernels *k;
    meeting where;
    int number;
    mo_acts acts;
} half;

static uint8_t weights[ROWS * ROW_BYTES];
static float y[2][ROWS];
static mo_scratch scratch[2];

static void *compute(void *data)
{
    half *h = data;
    if (h->where == IN_WEIGHTS && h->number == 1) {
        for (size_t i = 0; i < sizeof weights; i++) {
            ((volatile uint8_t *)weights)[i] = 1;
        }
    } else if (h->where == IN_CODES && h->number == 1) {
        for (int i = 0; i < COLS; i++) {
            ((volatile int8_t *)h->acts.q)[i] = 1;
        }
    } else {
        const mo_weights w = {weights, MO_Q4_0, 0, ROWS, COLS};
        const int first = h->where == APART ? h->number * ROWS / 2 : 0;
        const int end = h->where == APART ? first + ROWS / 2 : ROWS;
        h->k->product(&w, first, end, &h->acts, NULL, 1,
                      y[h->where == IN_OUTPUT || h->where == APART ? 0 : h->number], ROWS,
                      &scratch[h->number]);
    }
    return NULL;
}

static _Noreturn void meet(const mo_kernels *k, meeting where)
{
    static _Alignas(64) uint8_t memory[4096];
    pthread_t thread[2];
    half halves[2];
    if (!freopen("/dev/null", "w", stderr)) {
        exit(1);
    }
    for (int i = 0; i < 2; i++) {
        halves[i] = (half){k, where, i, mo_acts_lay(memory, 1, COLS)};
        if (pthread_create(&thread[i], NULL, compute, &halves[i]) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
    exit(0);
}

static void threads_that_meet_in_a_product_are_found(void **state)
{
    (void)state;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int i = 0; i < count; i++) {
        for (meeting m = APART; m < MEETINGS; m++) {
            const pid_t child = fork();
            if (child == 0) {
                meet(sets[i], m);
            }
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != (m == APART ? 0 : REPORTED)) {
                fail_msg("%s, meeting %d: status %d", sets[i]->name, (int)m, status);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_that_meet_in_a_product_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
