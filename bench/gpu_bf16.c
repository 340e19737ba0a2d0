/* gpu_bf16 [INDEX]: the products of large prompts, exact as they are against bfloat16, at the shapes of several models: by the kernels of
 * wide.cu, matrices decoded before every product and rows rounded, and by cuBLAS, opened at run time, in the place of the last of them. Every figure is the best of
 * several runs; a product of two numbers and its sum count as two operations. Experts: every token has others, evenly. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "gpu_memory.h"
#include "numeric/acts.h"
#include "numeric/format.h"

enum { ROUNDS = 5, CALLS = 4, EXPERTS_MAX = 256, PIECE = 64 << 20 };

/* Of the interfaces of the driver and of cuBLAS. */
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, ALGO_DEFAULT = -1 };
typedef int (*gemm_fn)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                       int, int, const void *, void *, int, int, int, int);
typedef int (*grouped_fn)(void *, const int *, const int *, const int *, const int *, const int *,
                          const void *, const void *const *, int, const int *, const void *const *, int,
                          const int *, const void *, void *const *, int, const int *, int, const int *, int);

typedef struct bench {
    mo_device *device;
    mo_dstream *stream;
    mo_event *from, *to;
    mo_daddr weights, bf16, acts, in, y, groups, picks, pointers;
    void *blas; /* NULL: there is none */
    gemm_fn gemm;
    grouped_fn grouped;
    int (*synchronize)(void);
} bench;

typedef struct shape {
    const char *name;
    mo_type type;
    int rows, cols, experts, used; /* experts 0: a matrix that all tokens use */
} shape;

static const shape shapes[] = {
    {"Llama-3-8B q k v (Q8_0)", MO_Q8_0, 6144, 4096, 0, 0},
    {"Llama-3-8B gate and up (Q8_0)", MO_Q8_0, 28672, 4096, 0, 0},
    {"Llama-3-8B down (Q8_0)", MO_Q8_0, 4096, 14336, 0, 0},
    {"gpt-oss attention out (Q8_0)", MO_Q8_0, 2880, 4096, 0, 0},
    {"Qwen3 q k v (Q4_K)", MO_Q4_K, 5120, 2048, 0, 0},
    {"Qwen3 attention out (Q4_K)", MO_Q4_K, 2048, 4096, 0, 0},
    {"Qwen3.6-27B gate and up (NVFP4)", MO_NVFP4, 34816, 5120, 0, 0},
    {"gpt-oss experts (MXFP4)", MO_MXFP4, 2880, 2880, 32, 4},
    {"Qwen3 experts gate (Q4_K)", MO_Q4_K, 768, 2048, 128, 8},
    {"Qwen3 experts down (Q6_K)", MO_Q6_K, 2048, 768, 128, 8},
    {"Qwen3.6-35B experts gate (NVFP4)", MO_NVFP4, 512, 2048, 256, 8},
    {"Qwen3.6-35B experts down (NVFP4)", MO_NVFP4, 2048, 512, 256, 8},
};

enum { TOKENS_MAX = 8192, ROWS_MAX = TOKENS_MAX * 8 };

/* ---- Memory ---- */

/* Noise in which every scale and every bfloat16 is a small number. */
static mo_daddr allocate_noise(bench *b, int64_t bytes, const uint8_t *noise)
{
    const mo_daddr at = allocate(b->device, bytes);
    for (int64_t i = 0; i < bytes; i += PIECE) {
        send(b->stream, at + (mo_daddr)i, noise, bytes - i < PIECE ? bytes - i : PIECE);
    }
    return at;
}

static int64_t matrix_bytes(const shape *s)
{
    const int64_t bytes = s->rows * mo_format_row_bytes(mo_format_of((uint32_t)s->type), s->cols);
    return (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

/* ---- As it is ---- */

static double time_ops(bench *b, const mo_op *op, int count)
{
    mo_error err = {0};
    double best = 1e9;
    for (int i = 0; i <= ROUNDS; i++) {
        double seconds = 0;
        check(mo_event_record(b->from, b->stream, &err), &err);
        for (int c = 0; c < CALLS * count; c++) {
            check(mo_op_launch(b->stream, &op[c % count], &err), &err);
        }
        check(mo_event_record(b->to, b->stream, &err), &err);
        check(mo_dstream_wait(b->stream, &err), &err);
        check(mo_event_seconds(b->from, b->to, &seconds, &err), &err);
        best = i > 0 && seconds < best ? seconds : best;
    }
    return best / CALLS;
}

static double time_exact(bench *b, const shape *s, int tokens)
{
    const int rows = s->experts ? tokens * s->used : tokens;
    if (!s->experts) {
        const mo_op op = {
            .kind = MO_OP_PRODUCT,
            .product = {.in = acts_at(b->acts, tokens, s->cols),
                        .tokens = tokens,
                        .count = 1,
                        .matrix = {{.data = b->weights, .type = s->type, .rows = s->rows, .cols = s->cols}},
                        .y = {b->y},
                        .stride = {s->rows}}};
        return time_ops(b, &op, 1);
    }
    static mo_dgroup groups[EXPERTS_MAX];
    static int32_t picks[ROWS_MAX];
    const int each = rows / s->experts;
    for (int e = 0; e < s->experts; e++) {
        groups[e] = (mo_dgroup){.data = b->weights + (mo_daddr)(e * matrix_bytes(s)),
                                .expert = e,
                                .first = e * each,
                                .count = each};
        for (int i = 0; i < each; i++) {
            picks[e * each + i] = (int32_t)((int64_t)i * tokens / each);
        }
    }
    send(b->stream, b->groups, groups, sizeof groups);
    send(b->stream, b->picks, picks, sizeof picks);
    const mo_op op = {.kind = MO_OP_GROUPED,
                      .grouped = {.in = acts_at(b->acts, tokens, s->cols),
                                  .pick = b->picks,
                                  .groups = b->groups,
                                  .count = s->experts,
                                  .rows = rows,
                                  .most = tokens,
                                  .matrix = {.type = s->type, .rows = s->rows, .cols = s->cols},
                                  .y = b->y,
                                  .stride = s->rows}};
    return time_ops(b, &op, 1);
}

/* ---- In bfloat16 ---- */

enum { ROUND, TO_BF16, BF16, BF16_OPS };

/* The three ops, after time_exact(), which leaves the groups; and each alone. */
static double time_ours(bench *b, const shape *s, int tokens, double each[BF16_OPS])
{
    const int rows = s->experts ? tokens * s->used : tokens;
    const mo_dmatrix m = {
        .data = s->experts ? 0 : b->weights, .type = s->type, .rows = s->rows, .cols = s->cols};
    const mo_daddr groups = s->experts ? b->groups : 0;
    const int32_t count = s->experts ? s->experts : 1;
    const mo_op ops[BF16_OPS] = {
        [ROUND] = {.kind = MO_OP_ROUND,
                   .round = {.from = b->acts, .to = b->in, .count = (int64_t)tokens * s->cols}},
        [TO_BF16] = {.kind = MO_OP_TO_BF16,
                     .to_bf16 = {.matrix = m, .groups = groups, .to = b->bf16, .count = count}},
        [BF16] = {.kind = MO_OP_BF16,
                  .bf16 = {.in = b->in,
                           .pick = s->experts ? b->picks : 0,
                           .groups = groups,
                           .bf16 = b->bf16,
                           .count = count,
                           .rows = rows,
                           .most = tokens,
                           .matrix = m,
                           .y = b->y,
                           .stride = s->rows}},
    };
    for (int i = 0; i < BF16_OPS; i++) {
        each[i] = time_ops(b, &ops[i], 1);
    }
    return time_ops(b, ops, BF16_OPS);
}

static bool open_blas(bench *b)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) {
        library = dlopen(names[i], RTLD_NOW);
    }
    if (!library || !driver) {
        return false;
    }
    int (*create)(void **) = NULL;
    *(void **)&create = dlsym(library, "cublasCreate_v2");
    *(void **)&b->gemm = dlsym(library, "cublasGemmEx");
    *(void **)&b->grouped = dlsym(library, "cublasGemmGroupedBatchedEx");
    *(void **)&b->synchronize = dlsym(driver, "cuCtxSynchronize");
    return create && b->gemm && b->synchronize && create(&b->blas) == 0;
}

/* One product, or all experts'. */
static int multiply(bench *b, const shape *s, int tokens)
{
    static const float one = 1.0f, zero = 0.0f;
    if (!s->experts) {
        return b->gemm(b->blas, OP_T, OP_N, s->rows, tokens, s->cols, &one, (void *)(uintptr_t)b->bf16,
                       R_16BF, s->cols, (void *)(uintptr_t)b->in, R_16BF, s->cols, &zero,
                       (void *)(uintptr_t)b->y, R_32F, s->rows, COMPUTE_32F, ALGO_DEFAULT);
    }
    static int t[EXPERTS_MAX], n[EXPERTS_MAX], rows[EXPERTS_MAX], each[EXPERTS_MAX], cols[EXPERTS_MAX],
        single[EXPERTS_MAX];
    static float alpha[EXPERTS_MAX], beta[EXPERTS_MAX];
    for (int e = 0; e < s->experts; e++) {
        t[e] = OP_T;
        n[e] = OP_N;
        rows[e] = s->rows;
        each[e] = tokens * s->used / s->experts;
        cols[e] = s->cols;
        single[e] = 1;
        alpha[e] = 1.0f;
        beta[e] = 0.0f;
    }
    const uintptr_t at = (uintptr_t)b->pointers;
    return b->grouped(b->blas, t, n, rows, each, cols, alpha, (const void *const *)at, R_16BF, cols,
                      (const void *const *)(at + EXPERTS_MAX * 8), R_16BF, cols, beta,
                      (void *const *)(at + EXPERTS_MAX * 16), R_16BF, rows, s->experts, single, COMPUTE_32F);
}

/* Seconds of the product alone; 0: it cannot be computed so. */
static double time_bf16(bench *b, const shape *s, int tokens)
{
    double best = 1e9;
    if (!b->blas || (s->experts && !b->grouped)) {
        return 0.0;
    }
    if (s->experts) {
        static uint64_t pointers[3 * EXPERTS_MAX];
        const uint64_t each = (uint64_t)tokens * (uint64_t)s->used / (uint64_t)s->experts;
        for (int e = 0; e < s->experts; e++) {
            const uint64_t i = (uint64_t)e;
            pointers[e] = b->bf16 + i * (uint64_t)s->rows * (uint64_t)s->cols * 2;
            pointers[EXPERTS_MAX + e] = b->in + i * each * (uint64_t)s->cols * 2;
            pointers[2 * EXPERTS_MAX + e] = b->y + i * each * (uint64_t)s->rows * 2;
        }
        send(b->stream, b->pointers, pointers, sizeof pointers);
    }
    for (int i = 0; i <= ROUNDS; i++) {
        int failed = b->synchronize();
        const int64_t began = mo_clock_ns();
        for (int c = 0; c < CALLS; c++) {
            failed |= multiply(b, s, tokens);
        }
        failed |= b->synchronize();
        const double seconds = (double)(mo_clock_ns() - began) * 1e-9;
        if (failed) {
            return 0.0;
        }
        best = i > 0 && seconds < best ? seconds : best;
    }
    return best / CALLS;
}

/* ---- All of it ---- */

static void compare(bench *b, const shape *s, int tokens)
{
    double each[BF16_OPS];
    const double rows = s->experts ? (double)tokens * s->used : tokens;
    const double operations = 2.0 * rows * s->rows * s->cols;
    const double exact = time_exact(b, s, tokens), ours = time_ours(b, s, tokens, each),
                 bf16 = time_bf16(b, s, tokens);
    printf("%-34s %6d  exact %9.1f us %6.0f TFLOP/s", s->name, tokens, exact * 1e6,
           operations / exact * 1e-12);
    printf(
        "  ours %9.1f us (rounded %.1f, decoded %.1f, multiplied %.1f: %.0f TFLOP/s): %.2f of exact's speed",
        ours * 1e6, each[ROUND] * 1e6, each[TO_BF16] * 1e6, each[BF16] * 1e6, operations / each[BF16] * 1e-12,
        exact / ours);
    if (bf16 > 0.0) {
        const double all = bf16 + each[ROUND] + each[TO_BF16];
        printf("  cuBLAS %9.1f us (multiplied %.1f: %.0f TFLOP/s): %.2f", all * 1e6, bf16 * 1e6,
               operations / bf16 * 1e-12, exact / all);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bench b = {0};
    mo_error err = {0};
    uint8_t *noise = malloc(PIECE);
    uint64_t seed = 1;
    for (int64_t i = 0; noise && i < PIECE; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (uint8_t)((seed >> 33) & 0x3B);
    }
    check(noise ? mo_cuda_open(argc > 1 ? atoi(argv[1]) : 0, 0, &b.device, &err) : MO_ENOMEM, &err);
    mo_cuda_vendor(b.device, false); /* it is measured beside */
    check(mo_dstream_create(b.device, &b.stream, &err), &err);
    check(mo_event_create(b.device, &b.from, &err), &err);
    check(mo_event_create(b.device, &b.to, &err), &err);
    int64_t weights = 0, bf16 = 0, in = 0, y = 0, acts = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        const int64_t matrices = s->experts ? s->experts : 1, each = (int64_t)s->rows * s->cols;
        const int64_t rows = s->experts ? (int64_t)TOKENS_MAX * s->used : TOKENS_MAX;
        const int64_t act = (int64_t)mo_acts_bytes(TOKENS_MAX, s->cols);
#define MOST(a, n) a = a > (n) ? a : (n)
        MOST(weights, matrices * matrix_bytes(s));
        MOST(bf16, matrices * each * 2);
        MOST(in, rows * s->cols * 2);
        MOST(y, rows * s->rows * 4);
        MOST(acts, act);
#undef MOST
    }
    b.weights = allocate_noise(&b, weights, noise);
    b.bf16 = allocate_noise(&b, bf16, noise);
    b.in = allocate_noise(&b, in, noise);
    b.acts = allocate_noise(&b, acts, noise);
    b.y = allocate(b.device, y);
    b.groups = allocate(b.device, (int64_t)sizeof(mo_dgroup) * EXPERTS_MAX);
    b.picks = allocate(b.device, (int64_t)sizeof(int32_t) * ROWS_MAX);
    b.pointers = allocate(b.device, (int64_t)sizeof(uint64_t) * 3 * EXPERTS_MAX);
    if (!open_blas(&b)) {
        fprintf(stderr, "no cuBLAS here (LD_LIBRARY_PATH may name its folder): exact products alone\n");
    }
    static const int tokens[] = {512, 2048, 8192};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            compare(&b, &shapes[i], tokens[t]);
        }
    }
    const mo_daddr all[] = {b.weights, b.bf16, b.in, b.acts, b.y, b.groups, b.picks, b.pointers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mo_device_free(b.device, all[i]);
    }
    free(noise);
    mo_event_destroy(b.from);
    mo_event_destroy(b.to);
    mo_dstream_destroy(b.stream);
    mo_device_close(b.device);
    return 0;
}
