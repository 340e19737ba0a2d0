/* The pool: every item exactly once, phases in order, nothing lost however threads and cores relate.
 * Counters are plain integers on purpose: ThreadSanitizer sees a missing order at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MAX_ITEMS 4096
static const int thread_counts[] = {1, 2, 3, 4, 5, 8};
#define COUNTS (sizeof thread_counts / sizeof thread_counts[0])

static mo_pool *create(int threads)
{
    mo_pool *pool;
    mo_error err;
    assert_int_equal(mo_pool_create(threads, &pool, &err), MO_OK);
    return pool;
}

/* ---- Every item once -------------------------------------------------------------------------- */

typedef struct tally {
    int64_t count, grain;
    int threads;
    uint8_t hits[MAX_ITEMS];
    _Atomic int busy[8]; /* calls that run with this thread number */
    _Atomic int faults;
} tally;

static void count_items(void *ctx, int64_t begin, int64_t end, int thread)
{
    tally *t = ctx;
    bool bad = thread < 0 || thread >= t->threads || begin < 0 || begin >= end || end > t->count ||
               end - begin > t->grain || begin % t->grain != 0;
    if (bad || atomic_fetch_add(&t->busy[thread], 1) != 0) {
        atomic_fetch_add(&t->faults, 1);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        t->hits[i]++;
    }
    atomic_fetch_sub(&t->busy[thread], 1);
}

static void every_item_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000, MAX_ITEMS};
    static const int64_t grains[] = {1, 2, 3, 8, 64, 5000, INT64_MAX};
    static tally t;
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        assert_int_equal(mo_pool_threads(pool), thread_counts[n]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
                for (int shares = 0; shares < 2; shares++) {
                    memset(&t, 0, sizeof t);
                    t.count = counts[c];
                    t.grain = grains[g];
                    t.threads = thread_counts[n];
                    const mo_phase phase = {
                        .fn = count_items, .ctx = &t, .count = t.count, .grain = t.grain, .shares = shares};
                    mo_pool_region(pool, &phase, 1);
                    assert_int_equal(t.faults, 0);
                    for (int64_t i = 0; i < MAX_ITEMS; i++) {
                        assert_int_equal(t.hits[i], i < t.count);
                    }
                }
            }
        }
        mo_pool_destroy(pool);
    }
}

/* ---- Phases ----------------------------------------------------------------------------------- */

/* Each phase turns one row into the next with a shuffle, so an item needs the whole row before it. */
typedef struct row {
    const uint64_t *from;
    uint64_t *to;
    int64_t count;
} row;

static void mix_row(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    row *r = ctx;
    for (int64_t i = begin; i < end; i++) {
        uint64_t a = r->from[(i * 7 + 3) % r->count], b = r->from[(i + r->count / 2) % r->count];
        r->to[i] = (a ^ (b << 13)) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i;
    }
}

enum { ROWS = 12, ROW_ITEMS = 96 };

static void mix_rows(mo_pool *pool, uint64_t seed, uint64_t *last)
{
    uint64_t data[ROWS + 1][ROW_ITEMS];
    row rows[ROWS];
    mo_phase phases[2 * ROWS];
    for (int i = 0; i < ROW_ITEMS; i++) {
        data[0][i] = seed + (uint64_t)i;
    }
    for (int p = 0; p < ROWS; p++) {
        static const int64_t grains[] = {1, 5, ROW_ITEMS, 16, 95, 32};
        rows[p] = (row){.from = data[p], .to = data[p + 1], .count = ROW_ITEMS};
        phases[2 * p] = (mo_phase){
            .fn = mix_row, .ctx = &rows[p], .count = ROW_ITEMS, .grain = grains[p % 6], .shares = p % 5 > 1};
        phases[2 * p + 1] = (mo_phase){.fn = mix_row, .ctx = NULL, .count = 0, .grain = 1};
    }
    mo_pool_region(pool, phases, 2 * ROWS);
    memcpy(last, data[ROWS], sizeof data[ROWS]);
}

static void phases_in_order(void **state)
{
    (void)state;
    mo_pool *one = create(1);
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        for (uint64_t seed = 0; seed < 200; seed++) {
            uint64_t want[ROW_ITEMS], got[ROW_ITEMS];
            mix_rows(one, seed, want);
            mix_rows(pool, seed, got);
            assert_memory_equal(got, want, sizeof want);
        }
        mo_pool_region(pool, NULL, 0);
        mo_pool_destroy(pool);
    }
    mo_pool_destroy(one);
}

/* ---- Stress ----------------------------------------------------------------------------------- */

typedef struct stamp {
    int round;
    int seen[16];
} stamp;

static void put_stamp(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    stamp *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        s->seen[i] += s->round;
    }
}

/* Thousands of regions whose lists and contexts die at once: a worker that comes late would write into
 * a dead or wrong context. */
static void run_tiny_regions(mo_pool *pool, int rounds)
{
    for (int r = 1; r <= rounds; r++) {
        stamp *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        assert_true(a && b);
        a->round = r;
        b->round = -r;
        int items = 2 + r % 15;
        mo_phase phases[2] = {
            {.fn = put_stamp, .ctx = a, .count = items, .grain = 1, .shares = r % 4 < 2},
            {.fn = put_stamp, .ctx = b, .count = items, .grain = 1 + r % 3, .shares = r % 5 < 3}};
        mo_pool_region(pool, phases, 1 + r % 2);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(a->seen[i], i < items ? r : 0);
            assert_int_equal(b->seen[i], r % 2 && i < items ? -r : 0);
        }
        free(a);
        free(b);
    }
}

static void tiny_regions(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        run_tiny_regions(pool, 4000);
        mo_pool_destroy(pool);
    }
}

/* ---- What comes next ---------------------------------------------------------------------------- */

/* Keeps the calling thread, and those it creates, on the n-th core of `all`. */
static bool stay_on(const cpu_set_t *all, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, all) && n-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            return sched_setaffinity(0, sizeof one, &one) == 0;
        }
    }
    return false;
}

typedef struct slow_first {
    const mo_pool *pool;
    uint64_t enough;
} slow_first;

/* Its first item goes on until somebody who waits has asked for enough, or for 10 ms. */
static void wait_for_question(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)end, (void)thread;
    const slow_first *f = ctx;
    const int64_t start = mo_clock_ns();
    while (begin == 0 && mo_pool_ahead_bytes(f->pool) < f->enough && mo_clock_ns() - start < 10000000) {
        sched_yield();
    }
}

/* Two threads that have a core each: one that shares a core does not spin, so it does not ask either. On a busy machine several regions may pass before
 * the other has its core at the right moment. Neither memory that is not there nor a list that is too long does any harm. */
static void who_waits_asks(void **state)
{
    (void)state;
    enum { BYTES = 40960 };
    static uint8_t data[BYTES], shared[64];
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) {
        skip();
    }
    assert_true(stay_on(&all, 1));
    mo_pool *pool = create(2);
    assert_true(stay_on(&all, 0));
    mo_pool_ahead ahead[MO_POOL_AHEAD_MAX + 1] = {{data, BYTES, BYTES / 4, 0, 8},
                                                  {data, BYTES, BYTES / 4, 4, 8}};
    for (int i = 2; i <= MO_POOL_AHEAD_MAX; i++) {
        ahead[i] = (mo_pool_ahead){(const void *)(uintptr_t)(4096 * i), 64, 64, 0, 1}; /* nobody's */
    }
    ahead[2] = (mo_pool_ahead){.data = shared, .bytes = 64}; /* everybody's */
    bool seen = false;
    for (int i = 0; i < 500 && !seen; i++) {
        const uint64_t before = mo_pool_ahead_bytes(pool);
        slow_first f = {.pool = pool, .enough = before + BYTES};
        const mo_phase phase = {.fn = wait_for_question,
                                .ctx = &f,
                                .count = 2,
                                .grain = 1,
                                .ahead = ahead,
                                .ahead_count = MO_POOL_AHEAD_MAX + 1};
        mo_pool_region(pool, &phase, 1);
        seen = mo_pool_ahead_bytes(pool) >= f.enough;
        /* Each has half of it, which is one of both, and nobody asks twice. */
        assert_true(mo_pool_ahead_bytes(pool) - before <= 2 * (BYTES + (MO_POOL_AHEAD_MAX - 2) * 64));
    }
    mo_pool_destroy(pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(seen);
}

/* ---- Regions that nobody wants any more -------------------------------------------------------- */

typedef struct unwanted {
    _Atomic int64_t ran;
    int64_t enough;
} unwanted;

static void count_run(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    atomic_fetch_add(&((unwanted *)ctx)->ran, end - begin);
}

static bool had_enough(const void *ctx)
{
    const unwanted *u = ctx;
    return atomic_load(&u->ran) >= u->enough;
}

/* Chunks that run when the answer changes are finished, none begins after that, in this phase or the next; the pool
 * serves the next region as ever. */
static void a_region_ends_early(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        for (int64_t enough = 0; enough <= 300; enough += 50) {
            unwanted u = {.enough = enough}, whole = {.enough = INT64_MAX};
            const mo_phase phases[] = {{.fn = count_run, .ctx = &u, .count = 100, .grain = 1},
                                       {.fn = count_run, .ctx = &u, .count = 1, .grain = 1},
                                       {.fn = count_run, .ctx = &u, .count = 200, .grain = 1}};
            mo_pool_region_until(pool, phases, 3, had_enough, &u);
            assert_in_range(u.ran, enough, enough + thread_counts[n] - (enough < 301));
            mo_pool_run(pool, 500, 3, count_run, &whole);
            assert_int_equal(whole.ran, 500);
        }
        mo_pool_destroy(pool);
    }
}

/* Pauses longer than the spin: every region finds sleeping threads. */
static void sleepers_wake(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        for (int i = 0; i < 100; i++) {
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
            run_tiny_regions(pool, 2);
        }
        mo_pool_destroy(pool);
    }
}

static void create_and_destroy(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        mo_pool *pool = create(1 + i % 8);
        if (i % 3) {
            run_tiny_regions(pool, i % 3);
        }
        mo_pool_destroy(pool);
    }
    mo_pool_destroy(NULL);
}

static void *one_caller(void *arg)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t *last = arg;
        mix_rows(*(mo_pool **)(last + ROW_ITEMS), seed, last);
    }
    return NULL;
}

static void several_callers(void **state)
{
    (void)state;
    mo_pool *pools[2] = {create(3), create(2)};
    struct {
        uint64_t last[ROW_ITEMS];
        mo_pool *pool;
    } jobs[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        jobs[i].pool = pools[i == 3];
        assert_int_equal(pthread_create(&threads[i], NULL, one_caller, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t want[ROW_ITEMS];
    mix_rows(pools[0], 299, want);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(jobs[i].last, want, sizeof want);
    }
    mo_pool_destroy(pools[0]);
    mo_pool_destroy(pools[1]);
}

/* ---- Crowded cores ---------------------------------------------------------------------------- */

static void burn(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    uint32_t *sums = ctx;
    for (int64_t i = begin; i < end; i++) {
        uint32_t x = (uint32_t)i + 1;
        for (int k = 0; k < 2000; k++) {
            x = x * 1664525u + 1013904223u;
        }
        sums[i] = x;
    }
}

static void *hog(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg)) {
    }
    return NULL;
}

/* Everything on one core, with two strangers that never sleep: it must end, and soon. */
static void crowded_core(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
        }
    }
    mo_pool *wide = create(4); /* believes in the cores it saw */
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    mo_pool *narrow = create(8);
    _Atomic bool stop = false;
    pthread_t hogs[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&hogs[i], NULL, hog, &stop), 0);
    }
    static uint32_t sums[64], want[64];
    burn(want, 0, 64, 0);
    int64_t start = mo_clock_ns();
    for (int i = 0; i < 30; i++) {
        memset(sums, 0, sizeof sums);
        mo_pool_run(i % 2 ? wide : narrow, 64, 1, burn, sums);
        assert_memory_equal(sums, want, sizeof want);
    }
    assert_true(mo_clock_ns() - start < INT64_C(20000000000));
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(hogs[i], NULL);
    }
    sched_setaffinity(0, sizeof before, &before);
    mo_pool_destroy(wide);
    mo_pool_destroy(narrow);
}

/* A thread that holds a chunk for long delays nobody else: the other chunks are done meanwhile. */
typedef struct holdup {
    _Atomic int done;
    _Atomic bool failed;
} holdup;

static void hold_first(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)end;
    (void)thread;
    holdup *h = ctx;
    if (begin == 0) {
        int64_t start = mo_clock_ns();
        while (atomic_load(&h->done) < 63) {
            if (mo_clock_ns() - start > INT64_C(20000000000)) {
                atomic_store(&h->failed, true);
                return;
            }
            sched_yield();
        }
    } else {
        atomic_fetch_add(&h->done, 1);
    }
}

static void slow_chunk_blocks_nobody(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        mo_pool *pool = create(threads);
        for (int i = 0; i < 20; i++) {
            holdup h = {.done = 0};
            mo_pool_run(pool, 64, 1, hold_first, &h);
            assert_false(h.failed);
            assert_int_equal(h.done, 63);
        }
        mo_pool_destroy(pool);
    }
}

/* ---- The rest --------------------------------------------------------------------------------- */

static void check_rounding(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)begin;
    (void)end;
    volatile float tiny = 0x1p-140f, half = 0.5f, one = 1.0f, ulp = 0x1p-24f;
    /* Thread 0 is the caller, whose mode is its own affair. */
    if (thread != 0 && (tiny * half != 0x1p-141f || one + ulp * 1.5f != 1.0f + 0x1p-23f)) {
        atomic_fetch_add((_Atomic int *)ctx, 1);
    }
}

/* A pool made by a thread with an odd floating-point mode has threads with ours. */
static void float_mode(void **state)
{
    (void)state;
    int before = fegetround();
    fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
    unsigned csr = _mm_getcsr();
    _mm_setcsr(csr | 0x8040);
#endif
    mo_pool *pool = create(4);
#if defined(__x86_64__)
    _mm_setcsr(csr);
#endif
    fesetround(before);
    _Atomic int wrong = 0;
    for (int i = 0; i < 50; i++) {
        mo_pool_run(pool, 256, 1, check_rounding, &wrong);
    }
    assert_int_equal(wrong, 0);
    mo_pool_destroy(pool);
}

static void bad_counts(void **state)
{
    (void)state;
    mo_pool *pool = (mo_pool *)state;
    mo_error err;
    assert_int_equal(mo_pool_create(-1, &pool, &err), MO_EINVAL);
    assert_null(pool);
    assert_int_equal(mo_pool_create(1000000, &pool, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "1000000"));
    pool = create(0);
    assert_true(mo_pool_threads(pool) >= 1);
    mo_pool_destroy(pool);
}

/* ---- Chunks that wait ------------------------------------------------------------------------- */

enum { EARLY = 24, LATE = 40 };

typedef struct chain {
    int value[EARLY];
    _Atomic int done;
    int sum[LATE];
} chain;

static void run_link(void *ctx, int64_t begin, int64_t end, int thread)
{
    chain *c = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        if (i < EARLY) {
            c->value[i] = (int)i + 1;
            atomic_fetch_add_explicit(&c->done, 1, memory_order_release);
            continue;
        }
        while (atomic_load_explicit(&c->done, memory_order_acquire) < EARLY) {
            sched_yield(); /* for ever, if one of them were not taken yet and nobody came for it */
        }
        for (int k = 0; k < EARLY; k++) {
            c->sum[i - EARLY] += c->value[k];
        }
    }
}

/* The later ones wait for all of the earlier ones: whoever takes one of them finds those taken. */
static void later_chunks_may_wait(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNTS; n++) {
        mo_pool *pool = create(thread_counts[n]);
        for (int round = 0; round < 200; round++) {
            chain c = {.done = 0}, d = {.done = 0};
            const mo_phase phases[] = {{.fn = run_link,
                                        .ctx = &c,
                                        .count = EARLY + LATE,
                                        .grain = 1,
                                        .shares = round % 4 > 0,
                                        .later = EARLY},
                                       {.fn = run_link,
                                        .ctx = &d,
                                        .count = EARLY + LATE,
                                        .grain = 1,
                                        .shares = round % 3 > 0,
                                        .later = EARLY}};
            mo_pool_region(pool, phases, 2);
            for (int i = 0; i < LATE; i++) {
                assert_int_equal(c.sum[i], EARLY * (EARLY + 1) / 2);
                assert_int_equal(d.sum[i], EARLY * (EARLY + 1) / 2);
            }
        }
        mo_pool_destroy(pool);
    }
}

static void count_item(void *ctx, int64_t begin, int64_t end, int thread)
{
    _Atomic int *ran = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&ran[i], 1);
    }
}

/* Phases of fewer chunks than threads beside one with later chunks: who opens a phase that others end at once must not touch the
 * shares of the next one, or its chunks run twice and the region never ends. */
static void few_chunks_beside_later_ones(void **state)
{
    (void)state;
    mo_pool *pool = create(16);
    for (int round = 0; round < 3000; round++) {
        chain c = {.done = 0};
        _Atomic int before[3] = {0}, after[5] = {0};
        const mo_phase phases[] = {
            {.fn = count_item, .ctx = before, .count = 3, .grain = 1, .shares = true},
            {.fn = run_link, .ctx = &c, .count = EARLY + LATE, .grain = 1, .shares = true, .later = EARLY},
            {.fn = count_item, .ctx = after, .count = 5, .grain = 1, .shares = true}};
        mo_pool_region(pool, phases, 3);
        assert_int_equal(c.done, EARLY);
        for (int i = 0; i < LATE; i++) {
            assert_int_equal(c.sum[i], EARLY * (EARLY + 1) / 2);
        }
        for (int i = 0; i < 5; i++) {
            assert_int_equal(after[i], 1);
            assert_int_equal(i < 3 ? before[i] : 1, 1);
        }
    }
    mo_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_chunks_may_wait),
        cmocka_unit_test(few_chunks_beside_later_ones),
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(phases_in_order),
        cmocka_unit_test(tiny_regions),
        cmocka_unit_test(who_waits_asks),
        cmocka_unit_test(a_region_ends_early),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(create_and_destroy),
        cmocka_unit_test(several_callers),
        cmocka_unit_test(crowded_core),
        cmocka_unit_test(slow_chunk_blocks_nobody),
        cmocka_unit_test(float_mode),
        cmocka_unit_test(bad_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
