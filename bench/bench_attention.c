/* bench_attention [SET]: what attention of one KV head takes on the CPU: nanoseconds per query and position, of every format and instruction
 * set (or one), by the length of heads and the number of queries that share keys. Time is the thread's own, the best of some rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/host.h"
#include "numeric/heads.h"

enum {
    VECTORS = 32,
    POSITIONS = 2048,
    ROWS_MOST = 64,
    LENGTH_MOST = 256,
    ROUNDS = 9,
    BLOCKS = POSITIONS / MO_KV_BLOCK
};

static mo_scratch scratch;
static uint64_t seed = 1;

static float number(void)
{
    uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct work {
    const mo_kernels *k;
    mo_kv_head kv;
    int64_t rows;
    float q[ROWS_MOST * LENGTH_MOST], o[ROWS_MOST * LENGTH_MOST], O[LENGTH_MOST];
    int8_t codes[ROWS_MOST * 2 * LENGTH_MOST];
    float g[ROWS_MOST], m[ROWS_MOST], l[ROWS_MOST], r[ROWS_MOST];
    float vectors[VECTORS * LENGTH_MOST];
    uint8_t *blocks[BLOCKS];
} work;

/* All positions for all rows, with the merges. */
static void attend_all(work *w)
{
    const int64_t chunk = mo_kv_chunk(w->kv.type), n = w->kv.v_len;
    for (int64_t i = 0; mo_kv_coded(w->kv.type) && i < w->rows; i++) {
        mo_heads_code(w->k, w->q + i * w->kv.k_len, w->kv.k_len, 0.125f, w->codes + i * 2 * w->kv.k_len,
                      &w->g[i]);
    }
    for (int64_t c = 0; c < POSITIONS; c += chunk) {
        const mo_seen seen = {c, c + chunk};
        if (mo_kv_coded(w->kv.type)) {
            w->k->attend_codes(&w->kv, &seen, 1, w->codes, w->g, w->rows, w->m, w->l, w->r, w->o, &scratch);
        } else {
            w->k->attend(&w->kv, &seen, 1, w->q, w->rows, 0.125f, w->m, w->l, w->o, &scratch);
        }
        for (int64_t i = 0; i < w->rows; i++) {
            float M = 0.0f, L = 1.0f;
            if (mo_kv_coded(w->kv.type)) {
                w->k->merge_codes(&M, &L, w->O, w->m[i], w->l[i], w->r[i], w->o + i * n, n);
            } else {
                w->k->attend_merge(&M, &L, w->O, w->m[i], w->l[i], w->o + i * n, n);
            }
        }
    }
}

static double best_of(work *w)
{
    double best = 1e18;
    for (int i = 0; i < ROUNDS; i++) {
        const double from = now_ns();
        attend_all(w);
        const double took = now_ns() - from;
        best = took < best ? took : best;
    }
    return best / (double)(POSITIONS * w->rows);
}

/* The head's cache, filled; the nanoseconds that a key and its value take to write. */
static double fill_cache(work *w, mo_kv_type kv, int n)
{
    const mo_kv_shape shape = {.type = kv, .heads = 1, .k_len = n, .v_len = n};
    const mo_heads_rule rule = {.k_len = n, .v_len = n};
    for (int i = 0; i < BLOCKS; i++) {
        w->blocks[i] = aligned_alloc(128, ((size_t)mo_kv_block_bytes(shape) + 127) / 128 * 128);
        if (!w->blocks[i]) {
            fprintf(stderr, "bench_attention: no memory\n");
            exit(1);
        }
    }
    w->kv = mo_kv_head_of(shape, 0, w->blocks, BLOCKS);
    for (int i = 0; i < VECTORS * n; i++) {
        w->vectors[i] = number();
    }
    const double from = now_ns();
    for (int64_t u = 0; u < POSITIONS; u++) {
        float *key = w->vectors + u % (VECTORS / 2) * 2 * n;
        mo_heads_prepare(w->k, &rule, NULL, 0, 0, key, key + n, NULL, NULL, &w->kv, u);
    }
    return (now_ns() - from) / POSITIONS;
}

static void measure(work *w, int n)
{
    static const struct {
        mo_kv_type kv;
        const char *name;
    } formats[] = {{MO_KV_I16, "i16"}, {MO_KV_Q8_0, "q8_0"}, {MO_KV_F32, "f32"}};
    static const int rows[] = {1, 2, 4, 8, 16, 64};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const double write = fill_cache(w, formats[f].kv, n);
        printf("%-8s %4d  %-5s", w->k->name, n, formats[f].name);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            w->rows = rows[i];
            printf(" %7.2f", best_of(w));
        }
        printf(" %8.0f\n", write);
        for (int i = 0; i < BLOCKS; i++) {
            free(w->blocks[i]);
        }
    }
}

int main(int argc, char **argv)
{
    static const int lengths[] = {64, 128, 256};
    static work w;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    mo_host_float_mode();
    printf("set      head  cache  1 query       2       4       8      16      64    write (ns)\n");
    for (int s = 0; s < count; s++) {
        if ((argc > 1 ? strcmp(argv[1], sets[s]->name) : strcmp("scalar", sets[s]->name) == 0) != 0) {
            continue;
        }
        w.k = sets[s];
        for (int64_t i = 0; i < ROWS_MOST * LENGTH_MOST; i++) {
            w.q[i] = number();
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            measure(&w, lengths[i]);
        }
    }
    return 0;
}
