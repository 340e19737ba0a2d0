/* Gate, up and down of experts as one phase: the bits of two phases after each other, and nobody waits for another's expert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "blocks.h"
#include "check.h"
#include "engine/jobs.h"

enum { EXPERTS = 5, WIDTH = 256, HIDDEN = 512, ROWS = 3, MOST = EXPERTS * ROWS, THREADS = 4 };

/* A layer's experts, each with rows of its own. */
typedef struct layer {
    mo_linear gate[EXPERTS], up[EXPERTS], down[EXPERTS];
    int64_t first[EXPERTS + 1];
    mo_acts in, hidden;
    int32_t identity[MOST];
    float *gated, *upped, *y;
    mo_jobs ffn_in, ffn_out;
    mo_flow flow;
    mo_pool *pool;
} layer;

static void *memory_of(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0, (bytes + 63) / 64 * 64);
    return p;
}

static mo_linear matrix_of(mo_type type, int64_t rows, int64_t cols, uint64_t *seed)
{
    const mo_format *f = mo_format_of(type);
    const size_t bytes = (size_t)(rows * mo_format_row_bytes(f, cols));
    uint8_t *data = memory_of(bytes);
    blocks_fill(type, data, (int64_t)bytes, seed, BLOCK_ORDINARY);
    return (mo_linear){.w = {.data = data, .type = type, .rows = rows, .cols = cols}};
}

static mo_jobs list_of(const mo_kernels *kernels, int limit)
{
    return (mo_jobs){.kernels = kernels,
                     .scratch = memory_of(THREADS * sizeof(mo_scratch)),
                     .list = memory_of((size_t)limit * sizeof(mo_job)),
                     .limit = limit};
}

static void make(layer *l, const mo_kernels *kernels, mo_type type)
{
    mo_error err = {.detail = ""};
    uint64_t seed = 7;
    memset(l, 0, sizeof *l);
    check_status(mo_pool_create(THREADS, &l->pool, &err), &err);
    for (int e = 0; e < EXPERTS; e++) {
        l->gate[e] = matrix_of(type, HIDDEN, WIDTH, &seed);
        l->up[e] = matrix_of(type, HIDDEN, WIDTH, &seed);
        l->down[e] = matrix_of(type, WIDTH, HIDDEN, &seed);
        l->first[e + 1] = l->first[e] + 1 + e % ROWS;
    }
    l->in = mo_acts_lay(memory_of(mo_acts_bytes(MOST, WIDTH)), MOST, WIDTH);
    l->hidden = mo_acts_lay(memory_of(mo_acts_bytes(MOST, HIDDEN)), MOST, HIDDEN);
    for (int i = 0; i < MOST; i++) {
        l->identity[i] = i;
        for (int64_t k = 0; k < WIDTH; k++) {
            l->in.x[i * WIDTH + k] = random_normal(&seed);
        }
        kernels->quantize(l->in.x + (ptrdiff_t)i * WIDTH, WIDTH, l->in.q + (ptrdiff_t)i * WIDTH,
                          l->in.d + (ptrdiff_t)i * WIDTH / 32, l->in.s + (ptrdiff_t)i * WIDTH / 32,
                          l->in.sum + (ptrdiff_t)i * WIDTH / 32, l->in.half_sum + (ptrdiff_t)i * WIDTH / 16);
    }
    l->gated = memory_of(sizeof(float) * MOST * HIDDEN);
    l->upped = memory_of(sizeof(float) * MOST * HIDDEN);
    l->y = memory_of(sizeof(float) * MOST * WIDTH);
    l->ffn_in = list_of(kernels, EXPERTS);
    l->ffn_out = list_of(kernels, EXPERTS);
    l->flow = (mo_flow){.units = memory_of(EXPERTS * sizeof(mo_flow_unit)),
                        .after = memory_of(EXPERTS * sizeof(int32_t)),
                        .limit = EXPERTS};
}

static void drop(layer *l)
{
    for (int e = 0; e < EXPERTS; e++) {
        free((void *)(uintptr_t)l->gate[e].w.data);
        free((void *)(uintptr_t)l->up[e].w.data);
        free((void *)(uintptr_t)l->down[e].w.data);
    }
    free(l->in.x);
    free(l->hidden.x);
    free(l->gated);
    free(l->upped);
    free(l->y);
    free(l->ffn_in.scratch);
    free(l->ffn_in.list);
    free(l->ffn_out.scratch);
    free(l->ffn_out.list);
    free(l->flow.units);
    free(l->flow.after);
    mo_pool_destroy(l->pool);
}

/* Gate and up of experts from .. end - 1, and down of down_from .. down_end - 1, these in another order. */
static void list(layer *l, int from, int end, int down_from, int down_end)
{
    mo_jobs_clear(&l->ffn_in);
    mo_jobs_clear(&l->ffn_out);
    for (int e = from; e < end; e++) {
        const int64_t row = l->first[e], count = l->first[e + 1] - row;
        const mo_job_gated gated = {.up = &l->up[e],
                                    .y = l->upped + row * HIDDEN,
                                    .activation = MO_SWIGLU,
                                    .hidden = mo_acts_from(&l->hidden, row)};
        mo_jobs_add_gated(&l->ffn_in, &l->gate[e], &l->in, l->identity + row, count, l->gated + row * HIDDEN,
                          &gated);
    }
    for (int e = down_end; e-- > down_from;) {
        const int64_t row = l->first[e], count = l->first[e + 1] - row;
        mo_jobs_add(&l->ffn_out, &l->down[e], &l->hidden, l->identity + row, count, l->y + row * WIDTH,
                    WIDTH);
    }
}

static void run_apart(layer *l)
{
    const mo_phase phases[] = {mo_jobs_phase(&l->ffn_in), mo_jobs_phase(&l->ffn_out)};
    mo_pool_region(l->pool, phases, 2);
}

static void run_joined(layer *l)
{
    assert_true(mo_flow_joins(&l->flow, &l->ffn_in, &l->ffn_out));
    const mo_phase phase = mo_flow_phase(&l->flow, &l->ffn_in, &l->ffn_out);
    mo_pool_region(l->pool, &phase, 1);
}

/* Also where some gate and up were computed before, and some down comes later: as experts land from disk. */
static void same_bits_as_two_phases(void **state)
{
    (void)state;
    const mo_kernels *kernels = NULL;
    mo_error err = {.detail = ""};
    const mo_type types[] = {MO_Q4_K, MO_MXFP4, MO_F32};
    check_status(mo_kernels_select(NULL, &kernels, &err), &err);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        layer l;
        float want[MOST * WIDTH];
        make(&l, kernels, types[t]);
        const size_t bytes = sizeof(float) * (size_t)(l.first[EXPERTS] * WIDTH);
        list(&l, 0, EXPERTS, 0, EXPERTS);
        run_apart(&l);
        memcpy(want, l.y, bytes);
        for (int round = 0; round < 100; round++) {
            const int some = round % EXPERTS;
            memset(l.y, 0, bytes);
            memset(l.hidden.x, 0, mo_acts_bytes(MOST, HIDDEN));
            if (some == 0) {
                list(&l, 0, EXPERTS, 0, EXPERTS);
                run_joined(&l);
            } else { /* down of the second expert on waits for nothing in the second round */
                list(&l, 0, some, 0, some > 1 ? 1 : some);
                run_joined(&l);
                list(&l, some, EXPERTS, some > 1 ? 1 : some, EXPERTS);
                run_joined(&l);
            }
            assert_memory_equal(l.y, want, bytes);
        }
        drop(&l);
    }
}

/* ---- Who waits for whom ---- */

static const mo_kernels *real;
static const layer *watched;
static _Atomic bool downed, stuck;

/* The last expert's gate takes until somebody has begun the first one's down. */
static void wait_for_down(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                          const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch)
{
    if (w == &watched->down[0].w) {
        atomic_store(&downed, true);
    }
    const int64_t began = mo_clock_ns();
    while (w == &watched->gate[EXPERTS - 1].w && row_begin == 0 && !atomic_load(&downed)) {
        if (mo_clock_ns() - began > (int64_t)20 * 1000 * 1000 * 1000) {
            atomic_store(&stuck, true);
            break;
        }
    }
    real->product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

static void down_waits_for_its_own_expert_alone(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    layer l;
    check_status(mo_kernels_select(NULL, &real, &err), &err);
    mo_kernels slow = *real;
    slow.product = wait_for_down;
    make(&l, &slow, MO_Q4_K);
    watched = &l;
    for (int round = 0; round < 20; round++) {
        atomic_store(&downed, false);
        list(&l, 0, EXPERTS, 0, 1); /* down of others would wait for the last one's gate */
        run_joined(&l);
        assert_false(atomic_load(&stuck));
    }
    drop(&l);
}

/* ---- What is asked for ahead ---- */

enum { STRETCHES = 6, CHUNKS = 256 };

static mo_pool_ahead named[MO_POOL_AHEAD_MAX];
static _Atomic int read_of[CHUNKS], strange;

/* Notes the chunk that reads these rows, by what was named; the next stretch begins where another matrix does. */
static void note_chunk(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                       const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const uint8_t *from = w->data + row_begin * row_bytes;
    int found = 0;
    for (int i = 0; i < STRETCHES; i++) {
        const uint8_t *data = named[i].data;
        if (from >= data && from < data + named[i].bytes) {
            const int64_t at = from - data, rest = named[i].bytes - at;
            const int64_t bytes = rest < named[i].chunk_bytes ? rest : named[i].chunk_bytes;
            found += at % named[i].chunk_bytes == 0 && (row_end - row_begin) * row_bytes == bytes;
            atomic_fetch_add(&read_of[named[i].first + at / named[i].chunk_bytes], 1);
        }
    }
    atomic_fetch_add(&strange, found != 1);
    real->product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

/* Gates with their ups in formats whose rows differ in bytes: chunks read what was named for them, so shares of chunks are shares of it. */
static void chunks_read_what_was_named(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    check_status(mo_kernels_select(NULL, &real, &err), &err);
    mo_kernels noting = *real;
    noting.product = note_chunk;
    layer l[2];
    make(&l[0], &noting, MO_Q4_K);
    make(&l[1], &noting, MO_F32);
    list(&l[0], 0, 2, 0, 0);
    const mo_job_gated gated = {
        .up = &l[1].up[0], .y = l[1].upped, .activation = MO_SWIGLU, .hidden = mo_acts_from(&l[1].hidden, 0)};
    mo_jobs_add_gated(&l[0].ffn_in, &l[1].gate[0], &l[1].in, l[1].identity, 1, l[1].gated, &gated);
    const mo_phase phase = mo_jobs_phase(&l[0].ffn_in);
    assert_int_equal(mo_jobs_ahead(&l[0].ffn_in, named, 0), STRETCHES);
    assert_in_range(phase.count, THREADS, CHUNKS);
    mo_pool_region(l[0].pool, &phase, 1);
    assert_int_equal(strange, 0);
    for (int i = 0; i < phase.count; i++) {
        assert_int_equal(read_of[i], 2);
    }
    for (int i = 0; i < STRETCHES; i++) {
        assert_int_equal(named[i].count, phase.count);
    }
    drop(&l[0]);
    drop(&l[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_two_phases),
        cmocka_unit_test(down_waits_for_its_own_expert_alone),
        cmocka_unit_test(chunks_read_what_was_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
