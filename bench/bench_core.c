/* The speed of the numeric core: matrix-vector products in GB/s of weights and matrix-matrix products in
 * GOP/s, for each format, instruction set and layout, at the shapes of real models, over data larger than
 * the caches, beside the machine's read rate in the same round. Table on stdout, JSON on request. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/pool.h"
#include "base/sweep.h"
#include "moraine_tools.h"
#include "numeric/kernels.h"
#include "numeric/ops.h"
#include "numeric/reference/reference.h"

enum { TOKENS = 512, ROUNDS_MAX = 15, MATRICES = 16 };

typedef struct shape {
    const char *name;
    int64_t rows, cols;
} shape;

static const shape shapes[] = {
    {"gpt-oss expert", 2880, 2880},   {"gpt-oss attn q", 4096, 2880}, {"gpt-oss attn out", 2880, 4096},
    {"gpt-oss output", 201088, 2880}, {"qwen3 expert up", 768, 2048}, {"qwen3 expert down", 2048, 768},
    {"qwen3 attn q", 4096, 2048},     {"qwen3 output", 151936, 2048},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const mo_type types[] = {MO_Q8_0,  MO_MXFP4,   MO_Q4_K,  MO_Q6_K,  MO_Q5_K,   MO_Q3_K,    MO_Q2_K,
                                MO_Q4_0,  MO_Q4_1,    MO_Q5_0,  MO_Q5_1,  MO_IQ4_NL, MO_IQ4_XS,  MO_NVFP4,
                                MO_BF16,  MO_F16,     MO_F32,   MO_IQ1_S, MO_IQ1_M,  MO_IQ2_XXS, MO_IQ2_XS,
                                MO_IQ2_S, MO_IQ3_XXS, MO_IQ3_S, MO_TQ1_0, MO_TQ2_0,  MO_Q1_0,    MO_Q2_0};
enum { TYPES = sizeof types / sizeof *types };

typedef struct settings {
    const char *isa, *type, *shape, *json;
    int threads, rounds;
    size_t bytes;
    bool products_only_matrix, products_only_vector;
} settings;

typedef struct bench {
    settings set;
    mo_pool *pool;
    mo_scratch *scratch; /* [threads] */
    uint8_t *weights;    /* in huge pages */
    float *y;
    json_t *results;
} bench;

/* ---- One measurement -------------------------------------------------------------------------- */

typedef struct work {
    const mo_kernels *k;
    mo_weights one; /* one matrix; copies follow each other */
    int64_t matrix_bytes;
    int64_t grain, pieces; /* rows of a piece, pieces per matrix: as the engine cuts them */
    const mo_acts *acts;
    int64_t count;
    float *y;
    mo_scratch *scratch; /* [threads] */
} work;

static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const work *w = ctx;
    for (int64_t i = begin; i < end; i++) {
        mo_weights m = w->one;
        m.data += i / w->pieces * w->matrix_bytes;
        const int64_t from = i % w->pieces * w->grain;
        const int64_t to = from + w->grain < m.rows ? from + w->grain : m.rows;
        float *y = w->count > 1 ? w->y + i / w->pieces * w->count * m.rows
                                : w->y + i / w->pieces % MATRICES * m.rows;
        w->k->product(&m, from, to, w->acts, NULL, w->count, y, m.rows, &w->scratch[thread]);
    }
}

static double seconds_of(bench *b, work *w, int64_t matrices)
{
    w->grain = mo_ops_product_grain(&w->one, w->count, matrices * w->matrix_bytes);
    w->pieces = (w->one.rows + w->grain - 1) / w->grain;
    const int64_t start = mo_clock_ns();
    mo_pool_run(b->pool, matrices * w->pieces, 1, multiply, w);
    return (double)(mo_clock_ns() - start) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct summary {
    double best, median;
} summary;

static summary summarize(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return (summary){values[count - 1], values[count / 2]};
}

static void report(bench *b, const char *kind, const shape *s, mo_type type, const mo_kernels *k,
                   bool grouped, const char *unit, summary rate, summary read)
{
    const char *name = mo_format_of(type)->name;
    printf("%-7s %-18s %-7s %-8s %-7s %9.1f %9.1f %s", kind, s->name, name, k->name,
           grouped ? "grouped" : "file", rate.best, rate.median, unit);
    if (read.best > 0) {
        printf("   %5.1f %% of %.1f", 100 * rate.best / read.best, read.best);
    }
    printf("\n");
    fflush(stdout);
    json_t *row = json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:b,s:s,s:f,s:f,s:f,s:f}", "kind", kind, "shape",
                            s->name, "rows", (json_int_t)s->rows, "cols", (json_int_t)s->cols, "type", name,
                            "isa", k->name, "interleaved", grouped, "unit", unit, "best", rate.best, "median",
                            rate.median, "read_best", read.best, "read_median", read.median);
    json_array_append_new(b->results, row);
}

static mo_acts make_acts(int64_t rows, int64_t cols, void **memory)
{
    *memory = mo_host_alloc_huge(mo_acts_bytes(rows, cols));
    mo_acts a = mo_acts_lay(*memory, rows, cols);
    uint32_t seed = 1;
    for (int64_t i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        a.x[i] = (float)((int32_t)seed >> 8) * 0x1p-23f;
    }
    for (int64_t t = 0; t < rows; t++) {
        const int64_t n = cols / 32;
        mo_reference_quantize(a.x + t * cols, cols, a.q + t * cols, a.d + t * n, a.s + t * n, a.sum + t * n,
                              a.half_sum + 2 * t * n);
    }
    return a;
}

/* Noise in which every byte is harmless as part of a scale: no format sees a NaN or a subnormal. */
static void fill(uint8_t *p, size_t bytes)
{
    uint32_t seed = 7;
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (uint8_t)(0x20 | seed >> 27);
    }
}

/* Formats that look up codes need bytes of every value, or they would meet few entries of their tables: noise, and then the
 * scales. */
static void fill_small(mo_type type, uint8_t *p, size_t bytes)
{
    const int size = mo_format_of(type)->block_bytes;
    uint64_t seed = 7;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t word = seed ^ seed >> 29;
        memcpy(p + i, &word, 8);
    }
    for (size_t at = 0; at + (size_t)size <= bytes; at += (size_t)size) {
        if (type == MO_IQ1_M) { /* its last byte has the upper bits of the scale */
            p[at + 55] = (uint8_t)((p[at + 55] & 15) | 0x20);
        } else {
            p[at + (type == MO_TQ1_0 ? 53 : type == MO_TQ2_0 ? 65 : 1)] = 0x2A;
        }
    }
}

/* Vector: passes over copies of the matrix that fill the buffer, a read sweep before each one. */
static void measure_vector(bench *b, work *w, const shape *s, bool grouped)
{
    const bool slow = w->k == &mo_kernels_scalar;
    const size_t bytes = slow ? b->set.bytes / 32 : b->set.bytes;
    const int64_t matrices = (int64_t)bytes / w->matrix_bytes > 0 ? (int64_t)bytes / w->matrix_bytes : 1;
    double rate[ROUNDS_MAX], read[ROUNDS_MAX];
    w->count = 1;
    for (int r = 0; r < b->set.rounds; r++) {
        read[r] = mo_sweep_rate(b->pool, w->one.data, (size_t)(matrices * w->matrix_bytes));
        rate[r] = (double)(matrices * w->matrix_bytes) / seconds_of(b, w, matrices) * 1e-9;
    }
    report(b, "vector", s, w->one.type, w->k, grouped, "GB/s", summarize(rate, b->set.rounds),
           summarize(read, b->set.rounds));
}

/* Matrix: several of them in one region, as the experts of a layer are, so that no thread runs dry. */
static void measure_matrix(bench *b, work *w, const shape *s, bool grouped)
{
    const bool slow = w->k == &mo_kernels_scalar;
    const int64_t rows = s->rows < 4096 ? s->rows : 4096; /* the output matrix is its first rows, repeated */
    work part = *w;
    double rate[ROUNDS_MAX];
    const int64_t matrices = slow ? 1 : MATRICES;
    part.one.rows = slow ? 64 : rows / 32 * 32;
    part.count = slow ? 16 : TOKENS;
    part.matrix_bytes = 0; /* the same weights each time: what counts here is arithmetic */
    for (int r = 0; r < b->set.rounds; r++) {
        const double operations =
            2.0 * (double)(matrices * part.one.rows) * (double)s->cols * (double)part.count;
        rate[r] = operations / seconds_of(b, &part, matrices) * 1e-9;
    }
    report(b, "matrix", s, w->one.type, w->k, grouped, "GOP/s", summarize(rate, b->set.rounds),
           (summary){0, 0});
}

/* ---- All of them ------------------------------------------------------------------------------ */

static void measure(bench *b, const shape *s, mo_type type, const mo_kernels *k, const mo_acts *acts)
{
    const mo_format *f = mo_format_of(type);
    work w = {.k = k, .acts = acts, .y = b->y, .scratch = b->scratch};
    w.one = (mo_weights){.data = b->weights, .type = type, .rows = s->rows, .cols = s->cols};
    w.matrix_bytes = s->rows * mo_format_row_bytes(f, s->cols);
    const size_t whole = b->set.bytes > (size_t)w.matrix_bytes ? b->set.bytes : (size_t)w.matrix_bytes;
    if (mo_format_by_row(type)) {
        fill_small(type, b->weights, whole);
    }
    for (int grouped = 0; grouped < 2; grouped++) {
        if (grouped) {
            if (!k->interleave || !mo_weights_units(type)) {
                continue;
            }
            /* The weights are noise in any order: the same bytes serve as an interleaved matrix. */
            w.one.interleave = k->interleave;
        }
        if (!b->set.products_only_matrix) {
            measure_vector(b, &w, s, grouped);
        }
        if (!b->set.products_only_vector) {
            measure_matrix(b, &w, s, grouped);
        }
    }
    if (mo_format_by_row(type)) {
        fill(b->weights, whole);
    }
}

static void measure_all(bench *b)
{
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int n = 0; n < SHAPES; n++) {
        const shape *s = &shapes[n];
        if (b->set.shape && !strstr(s->name, b->set.shape)) {
            continue;
        }
        void *memory;
        const mo_acts acts = make_acts(TOKENS, s->cols, &memory);
        for (int t = 0; t < TYPES; t++) {
            const mo_format *f = mo_format_of(types[t]);
            if ((b->set.type && f != mo_format_named(b->set.type)) || s->cols % f->block_values) {
                continue;
            }
            for (int i = 0; i < count; i++) {
                if (!b->set.isa || strcmp(b->set.isa, sets[i]->name) == 0) {
                    measure(b, s, types[t], sets[i], &acts);
                }
            }
        }
        mo_host_free_huge(memory, mo_acts_bytes(TOKENS, s->cols));
    }
}

static int usage(FILE *to)
{
    fprintf(
        to,
        "usage: bench_core [--isa NAME] [--type FORMAT] [--shape TEXT] [--threads N] [--rounds N] [--mib N]\n"
        "                  [--vector | --matrix] [--json FILE]\n"
        "Matrix-vector and matrix-matrix products (%d columns) beside the read rate.\n",
        TOKENS);
    return to == stdout ? 0 : 2;
}

static bool parse(int argc, char **argv, settings *s)
{
    static const struct option options[] = {
        {"isa", 1, 0, 'i'},    {"type", 1, 0, 't'}, {"shape", 1, 0, 's'}, {"threads", 1, 0, 'n'},
        {"rounds", 1, 0, 'r'}, {"mib", 1, 0, 'm'},  {"json", 1, 0, 'j'},  {"vector", 0, 0, 'v'},
        {"matrix", 0, 0, 'x'}, {"help", 0, 0, 'h'}, {NULL, 0, NULL, 0},
    };
    int c;
    *s = (settings){.rounds = 5, .bytes = (size_t)1 << 30};
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'i': s->isa = optarg; break;
        case 't': s->type = optarg; break;
        case 's': s->shape = optarg; break;
        case 'n': s->threads = atoi(optarg); break;
        case 'r': s->rounds = atoi(optarg); break;
        case 'm': s->bytes = (size_t)atol(optarg) << 20; break;
        case 'j': s->json = optarg; break;
        case 'v': s->products_only_vector = true; break;
        case 'x': s->products_only_matrix = true; break;
        case 'h': exit(usage(stdout));
        default: return false;
        }
    }
    return optind == argc && s->rounds >= 1 && s->rounds <= ROUNDS_MAX && s->bytes && s->threads >= 0 &&
           (!s->type || mo_format_named(s->type));
}

int main(int argc, char **argv)
{
    bench b = {.results = json_array()};
    mo_error err;
    mo_machine_info machine;
    if (!parse(argc, argv, &b.set)) {
        return usage(stderr);
    }
    if (mo_pool_create(b.set.threads, &b.pool, &err) != MO_OK) {
        fprintf(stderr, "bench_core: %s\n", err.detail);
        return 1;
    }
    /* The largest matrix may be larger than the asked size: it is measured once then. */
    const size_t largest = (size_t)201088 * 2880 * 4;
    const size_t bytes = b.set.bytes > largest ? b.set.bytes : largest;
    b.weights = mo_host_alloc_huge(bytes);
    b.y = mo_host_alloc_huge(sizeof(float) * MATRICES * (TOKENS * 4096 + 201088));
    b.scratch = mo_host_alloc_huge(sizeof *b.scratch * (size_t)mo_pool_threads(b.pool));
    if (!b.weights || !b.y || !b.scratch) {
        fprintf(stderr, "bench_core: %zu MiB are needed and cannot be had\n", bytes >> 20);
        return 1;
    }
    fill(b.weights, bytes);
    mo_machine_describe(&machine, sizeof machine);
    printf("%s, %d threads, %zu MiB of weights, best and median of %d rounds\n", machine.cpu_model,
           mo_pool_threads(b.pool), b.set.bytes >> 20, b.set.rounds);
    measure_all(&b);
    if (b.set.json) {
        json_t *root = json_pack("{s:s,s:i,s:o}", "machine", machine.cpu_model, "threads",
                                 mo_pool_threads(b.pool), "results", b.results);
        if (json_dump_file(root, b.set.json, JSON_INDENT(1)) != 0) {
            fprintf(stderr, "bench_core: cannot write %s\n", b.set.json);
            return 1;
        }
        json_decref(root);
    }
    mo_host_free_huge(b.weights, bytes);
    mo_pool_destroy(b.pool);
    return 0;
}
