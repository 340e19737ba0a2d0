/* The emulation of CUDA itself: what it gives must be what a device gives, and what is wrong must not pass. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda_emulation/emulated.h"
#include "cuda_emulation/samples.h"
#include "random.h"

enum { SEEDS = 8 }; /* orders of the threads */

static void launch(const char *kernel, const void *in, void *out, int wrong, uint32_t blocks,
                   uint32_t threads, uint32_t shared)
{
    const sample args = {.in = (uintptr_t)in, .out = (uintptr_t)out, .wrong = wrong};
    const uint32_t grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
    size_t bytes = 0;
    mo_emulated_entry entry = mo_emulated_find(kernel, &bytes);
    assert_non_null(entry);
    assert_int_equal(bytes, sizeof args);
    mo_emulated_launch(kernel, entry, &args, grid, block, shared);
}

static void shuffles(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t out[9][32];
        mo_emulated_seed(seed);
        launch("sample_shuffles", NULL, out, 0, 1, 32, 0);
        float tree[32];
        for (int i = 0; i < 32; i++) {
            tree[i] = 1.0f / (float)(i + 1);
        }
        for (int s = 16; s >= 1; s /= 2) {
            for (int i = 0; i < s; i++) {
                tree[i] += tree[i + s];
            }
        }
        for (uint32_t i = 0; i < 32; i++) {
            const float f = (float)(i ^ 5) * 1.5f;
            assert_memory_equal(&out[0][i], &f, 4);
            assert_int_equal(out[1][i], i + 3 < 32 ? i + 3 : i);
            assert_int_equal(out[2][i], i % 8 >= 3 ? i - 3 : i);
            assert_int_equal(out[3][i], i / 16 * 16 + (i + 9) % 16);
            assert_int_equal(out[4][i], 0x49249249u);
            assert_int_equal((int32_t)out[5][i], 496 - 640);
            assert_int_equal((int32_t)out[6][i], -1);
            assert_int_equal(out[7][i], i < 8 ? i ^ 1 : (i ^ 16) < 8 ? MO_EMULATED_POISON : i ^ 16);
            assert_memory_equal(&out[8][i], &tree[0], 4);
        }
    }
}

static void matrices(void **state)
{
    (void)state;
    struct {
        int8_t a[16][32], b[8][32];
    } in;
    uint64_t random = 5;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (size_t i = 0; i < sizeof in; i++) {
            ((int8_t *)&in)[i] = (int8_t)random_next(&random);
        }
        int32_t out[16][8];
        mo_emulated_seed(seed);
        launch("sample_mma", &in, out, 0, 1, 32, 0);
        for (int r = 0; r < 16; r++) {
            for (int c = 0; c < 8; c++) {
                int32_t sum = 7;
                for (int k = 0; k < 32; k++) {
                    sum += in.a[r][k] * in.b[c][k];
                }
                assert_int_equal(out[r][c], sum);
            }
        }
    }
}

static bool mirrored(int wrong, uint64_t seed)
{
    enum { BLOCKS = 3, N = 160 };
    uint32_t out[BLOCKS * N];
    mo_emulated_seed(seed);
    launch("sample_mirror", NULL, out, wrong, BLOCKS, N, 0);
    for (uint32_t i = 0; i < BLOCKS * N; i++) {
        if (out[i] != i / N * N + (N - 1 - i % N)) {
            return false;
        }
    }
    return true;
}

static void missing_barrier_shows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(mirrored(0, seed));
        assert_false(mirrored(1, seed));
    }
}

static void shared_memory_is_poisoned(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t out[16];
        mo_emulated_seed(seed);
        launch("sample_unset", NULL, out, 0, 8, 64, 16);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(out[i], MO_EMULATED_POISON);
        }
    }
}

static void copies_come_late(void **state)
{
    (void)state;
    enum { N = 64 };
    static uint32_t in[2 * N][4] __attribute__((aligned(16))), out[2 * N][4] __attribute__((aligned(16)));
    for (uint32_t i = 0; i < 2 * N; i++) {
        in[i][0] = in[i][3] = i;
    }
    for (int wrong = 0; wrong < 2; wrong++) {
        launch("sample_async", in, out, wrong, 1, N, sizeof in);
        for (uint32_t i = 0; i < 2 * N; i++) {
            const uint32_t expected = i / N * N + (i + 1) % N;
            assert_int_equal(out[i][3], i >= N && wrong ? MO_EMULATED_POISON : expected);
        }
    }
}

static void votes(void **state)
{
    (void)state;
    int32_t out[32];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        mo_emulated_seed(seed);
        launch("sample_votes", NULL, out, 0, 1, 100, 0);
        for (int i = 0; i < 32; i++) {
            assert_int_equal(out[i], 10050);
        }
    }
}

static void every_thread_runs_once(void **state)
{
    (void)state;
    enum { BLOCKS = 5 * 3 * 2, N = 7 * 5 * 3 };
    const uint32_t grid[3] = {5, 3, 2}, block[3] = {7, 5, 3};
    size_t bytes;
    mo_emulated_entry entry = mo_emulated_find("sample_coordinates", &bytes);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t out[BLOCKS * N] = {0};
        const sample args = {.out = (uintptr_t)out};
        mo_emulated_seed(seed);
        mo_emulated_launch("sample_coordinates", entry, &args, grid, block, 0);
        for (uint32_t i = 0; i < BLOCKS * N; i++) {
            assert_int_equal(out[i], 1 + i % N);
        }
    }
}

/* Runs sample_hang in a child; it must abort, and say `sentence`. */
static void dies(int wrong, const char *sentence)
{
    int tube[2];
    assert_int_equal(pipe(tube), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static uint32_t out[64];
        signal(SIGABRT, SIG_DFL); /* not cmocka's */
        dup2(tube[1], 2);
        mo_emulated_seed(0);
        launch("sample_hang", NULL, out, wrong, 1, 64, 0);
        _exit(0);
    }
    close(tube[1]);
    char text[8192];
    size_t have = 0;
    ssize_t n;
    while (have < sizeof text - 1 && (n = read(tube[0], text + have, sizeof text - 1 - have)) > 0) {
        have += (size_t)n;
    }
    text[have] = 0;
    close(tube[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (sentence) {
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_non_null(strstr(text, "emulated kernel sample_hang, block (0,0,0), thread ("));
        assert_non_null(strstr(text, sentence));
    } else {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void wrong_kernels_are_told(void **state)
{
    (void)state;
    dies(0, NULL);
    dies(1, "names lanes that have ended (00000008)");
    dies(2, "wait for each other for ever");
    dies(3, NULL); /* a warp at a barrier, the other past its end: as on a device, the ended do not count */
    dies(4, "lacks the lane that calls (16)");
    dies(5, "names lanes that have ended (00000001)");
}

static void *answer_later(void *flag)
{
    usleep(20000);
    __atomic_store_n((uint32_t *)flag, 5, __ATOMIC_RELEASE);
    return NULL;
}

static void kernel_waits_for_host(void **state)
{
    (void)state;
    uint32_t out[64] = {0}, flag = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer_later, &flag), 0);
    launch("sample_await", &flag, out, 0, 1, 64, 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(out[i], 5);
    }
}

static void *mirror_often(void *ok)
{
    bool right = true;
    for (uint64_t seed = 0; seed < 50; seed++) {
        right = right && mirrored(0, seed);
    }
    *(bool *)ok = right;
    return NULL;
}

static void threads_emulate_at_once(void **state)
{
    (void)state;
    pthread_t thread[3];
    bool ok[3] = {false};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, mirror_often, &ok[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        assert_true(ok[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffles),
        cmocka_unit_test(matrices),
        cmocka_unit_test(missing_barrier_shows),
        cmocka_unit_test(shared_memory_is_poisoned),
        cmocka_unit_test(copies_come_late),
        cmocka_unit_test(votes),
        cmocka_unit_test(every_thread_runs_once),
        cmocka_unit_test(wrong_kernels_are_told),
        cmocka_unit_test(kernel_waits_for_host),
        cmocka_unit_test(threads_emulate_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
