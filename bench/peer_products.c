/* Matrix-vector products of every format beside llama.cpp's, in turns in one process: rates of weights by the processor
 * time of each thread, so that other programs on the machine matter little, the ratio, and the share of the read rate.
 * Built where a built llama.cpp is at hand (-DMO_PEER=its folder); bench/peer_products.sh does all of it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/host.h"
#include "base/pool.h"
#include "base/sweep.h"
#include "ggml-cpu.h"
#include "numeric/kernels.h"
#include "numeric/reference/reference.h"

enum { ROUNDS_MAX = 99, ROWS = 768, COLS = 2048, THREADS_MAX = 1024 };

static const mo_type types[] = {MO_IQ1_S, MO_IQ1_M,  MO_IQ2_XXS, MO_IQ2_XS, MO_IQ2_S, MO_IQ3_XXS,
                                MO_IQ3_S, MO_TQ1_0,  MO_TQ2_0,   MO_Q1_0,   MO_Q2_0,  MO_Q4_K,
                                MO_Q6_K,  MO_IQ4_XS, MO_Q8_0,    MO_MXFP4};
enum { TYPES = sizeof types / sizeof *types };

typedef struct share {
    double seconds; /* of a processor */
    float y[ROWS];
} share;

typedef struct work {
    const mo_kernels *kernels;
    const struct ggml_type_traits_cpu *peer;
    mo_weights one;                 /* copies follow each other */
    int64_t matrix_bytes, matrices; /* of a thread's share */
    mo_acts acts;
    void *peer_acts;
    mo_scratch *scratch; /* [threads] */
    share *shares;       /* [threads] */
    bool ours;
} work;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const work *w = ctx;
    const int64_t row_bytes = w->matrix_bytes / ROWS;
    for (int64_t i = begin; i < end; i++) {
        share *s = &w->shares[i];
        const double start = processor_seconds();
        for (int64_t m = 0; m < w->matrices; m++) {
            mo_weights one = w->one;
            one.data += (i * w->matrices + m) * w->matrix_bytes;
            if (w->ours) {
                w->kernels->product(&one, 0, ROWS, &w->acts, NULL, 1, s->y, ROWS, &w->scratch[thread]);
                continue;
            }
            for (int64_t r = 0; r < ROWS; r++) {
                w->peer->vec_dot(COLS, s->y + r, 0, one.data + r * row_bytes, 0, w->peer_acts, 0, 1);
            }
        }
        s->seconds = processor_seconds() - start;
    }
}

/* GB/s of all threads together. */
static double rate_of(mo_pool *pool, work *w, bool ours)
{
    const int threads = mo_pool_threads(pool);
    double seconds = 0;
    w->ours = ours;
    mo_pool_run(pool, threads, 1, multiply, w);
    for (int i = 0; i < threads; i++) {
        seconds += w->shares[i].seconds;
    }
    return (double)(w->matrices * w->matrix_bytes) * threads / (seconds / threads) * 1e-9;
}

/* Noise, with scales that are neither zero, huge nor no number. */
static void fill(mo_type type, uint8_t *p, size_t bytes)
{
    const size_t size = (size_t)mo_format_of(type)->block_bytes;
    uint64_t seed = 7;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t word = seed ^ seed >> 29;
        memcpy(p + i, &word, 8);
    }
    for (size_t at = 0; at + size <= bytes; at += size) {
        switch (type) {
        case MO_IQ1_M: p[at + 55] = (uint8_t)((p[at + 55] & 15) | 0x20); break;
        case MO_TQ1_0: p[at + 53] = 0x2A; break;
        case MO_TQ2_0: p[at + 65] = 0x2A; break;
        case MO_Q6_K: p[at + 209] = 0x2A; break;
        case MO_MXFP4: p[at] = 0x78; break;
        case MO_Q4_K: p[at + 3] = 0x2A; /* fall through */
        default: p[at + 1] = 0x2A; break;
        }
    }
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void measure(mo_pool *pool, work *w, uint8_t *memory, size_t bytes, mo_type type, int rounds)
{
    const int threads = mo_pool_threads(pool);
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX], read[ROUNDS_MAX];
    w->matrix_bytes = ROWS * mo_format_row_bytes(mo_format_of(type), COLS);
    w->matrices = (int64_t)bytes / w->matrix_bytes / threads;
    w->one = (mo_weights){.data = memory, .type = type, .rows = ROWS, .cols = COLS};
    /* The weights are noise in any order: the same bytes serve as interleaved rows, where those are kept in RAM. */
    w->one.interleave = mo_weights_units(type) ? w->kernels->interleave : 0;
    w->peer = ggml_get_type_traits_cpu((enum ggml_type)type);
    ggml_get_type_traits_cpu(w->peer->vec_dot_type)->from_float(w->acts.x, w->peer_acts, COLS);
    fill(type, memory, bytes);
    for (int r = 0; r < rounds; r++) {
        ours[r] = rate_of(pool, w, true);
        theirs[r] = rate_of(pool, w, false);
        read[r] = mo_sweep_rate(pool, memory, bytes);
    }
    qsort(ours, (size_t)rounds, sizeof *ours, descending);
    qsort(theirs, (size_t)rounds, sizeof *theirs, descending);
    qsort(read, (size_t)rounds, sizeof *read, descending);
    printf("%-8s moraine %6.2f  llama.cpp %6.2f GB/s  ratio %.2f (medians %.2f)  %4.1f %% of %.1f read\n",
           mo_format_of(type)->name, ours[0], theirs[0], ours[0] / theirs[0],
           ours[rounds / 2] / theirs[rounds / 2], 100 * ours[0] / read[0], read[0]);
    fflush(stdout);
}

static void make_acts(work *w)
{
    uint32_t seed = 1;
    w->acts = mo_acts_lay(mo_host_alloc_huge(mo_acts_bytes(1, COLS)), 1, COLS);
    w->peer_acts = mo_host_alloc_huge(sizeof(float) * COLS);
    for (int i = 0; i < COLS; i++) {
        seed = seed * 1664525u + 1013904223u;
        w->acts.x[i] = (float)((int32_t)seed >> 8) * 0x1p-23f;
    }
    mo_reference_quantize(w->acts.x, COLS, w->acts.q, w->acts.d, w->acts.s, w->acts.sum, w->acts.half_sum);
}

static int usage(FILE *to)
{
    fprintf(to,
            "usage: peer_products [--isa NAME] [--type FORMAT] [--threads N] [--rounds N] [--mib N]\n"
            "Products of %d x %d matrices beside llama.cpp's.\n",
            ROWS, COLS);
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"isa", 1, 0, 'i'}, {"type", 1, 0, 't'}, {"threads", 1, 0, 'n'}, {"rounds", 1, 0, 'r'},
        {"mib", 1, 0, 'm'}, {"help", 0, 0, 'h'}, {NULL, 0, NULL, 0},
    };
    const char *isa = NULL, *only = NULL;
    int threads = 0, rounds = 9, c;
    size_t bytes = (size_t)64 << 20; /* of each thread */
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'i': isa = optarg; break;
        case 't': only = optarg; break;
        case 'n': threads = atoi(optarg); break;
        case 'r': rounds = atoi(optarg); break;
        case 'm': bytes = (size_t)atol(optarg) << 20; break;
        case 'h': return usage(stdout);
        default: return usage(stderr);
        }
    }
    mo_pool *pool;
    if (optind != argc || rounds < 1 || rounds > ROUNDS_MAX || !bytes || threads < 0 ||
        threads > THREADS_MAX || mo_pool_create(threads, &pool, NULL) != MO_OK) {
        return usage(stderr);
    }
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    work w = {.kernels = sets[0]};
    for (int i = 0; i < count; i++) {
        w.kernels = isa && strcmp(isa, sets[i]->name) == 0 ? sets[i] : w.kernels;
    }
    threads = mo_pool_threads(pool);
    bytes *= (size_t)threads;
    uint8_t *memory = mo_host_alloc_huge(bytes);
    w.scratch = mo_host_alloc_huge(sizeof *w.scratch * (size_t)threads);
    w.shares = mo_host_alloc_huge(sizeof *w.shares * (size_t)threads);
    make_acts(&w);
    ggml_cpu_init();
    printf("%s, %d threads, %zu MiB each, best of %d rounds in turns\n", w.kernels->name, threads,
           (bytes >> 20) / (size_t)threads, rounds);
    for (int t = 0; t < TYPES; t++) {
        if (!only || mo_format_of(types[t]) == mo_format_named(only)) {
            measure(pool, &w, memory, bytes, types[t], rounds);
        }
    }
    mo_pool_destroy(pool);
    return 0;
}
