/* Measures the rate of products reading weights, which plans expect of the CPU. */
#include "plan/probe/product.h"

#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/status.h"
#include "numeric/acts.h"
#include "numeric/format.h"
#include "numeric/kernels.h"
#include "numeric/ops.h"

enum { COLS = 2048, ROUNDS = 3, GROUP = 64 };

/* One format of each common kind: nibbles with minima, six bits with halves, bytes, nibbles with a table. */
static const mo_type formats[] = {MO_Q4_K, MO_Q6_K, MO_Q8_0, MO_MXFP4};
enum { FORMATS = sizeof formats / sizeof *formats };

typedef struct work {
    const mo_kernels *kernels;
    mo_weights weights;
    const mo_acts *acts;
    float *y;
    mo_scratch *scratch; /* [threads] */
} work;

static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const work *w = ctx;
    w->kernels->product(&w->weights, begin, end, w->acts, NULL, 1, w->y, w->weights.rows,
                        &w->scratch[thread]);
}

static double rate_of(mo_pool *pool, work *w, mo_type type, int64_t bytes)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(type), COLS);
    double best = 0;
    w->weights.type = type;
    w->weights.rows = bytes / row_bytes / GROUP * GROUP;
    const int64_t grain = mo_ops_product_grain(&w->weights, 1, bytes);
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t from = mo_clock_ns();
        mo_pool_run(pool, w->weights.rows, grain, multiply, w);
        const double rate = (double)(w->weights.rows * row_bytes) * 1e9 / (double)(mo_clock_ns() - from + 1);
        best = rate > best ? rate : best;
    }
    return best;
}

/* All activations are equal: the time of products does not depend on values. */
static void fill(mo_acts *acts, const mo_kernels *kernels)
{
    for (int64_t i = 0; i < COLS; i++) {
        acts->x[i] = 1.0f;
    }
    kernels->quantize(acts->x, COLS, acts->q, acts->d, acts->s, acts->sum, acts->half_sum);
}

mo_status mo_probe_product(mo_pool *pool, bool interleaved, const uint8_t *memory, int64_t bytes,
                           double *bytes_s, mo_error *err)
{
    const mo_kernels *kernels;
    mo_status status = mo_kernels_select(NULL, &kernels, err);
    if (status != MO_OK) {
        return status;
    }
    /* the maximum: its rows are the shortest */
    const int64_t rows = bytes / mo_format_row_bytes(mo_format_of(MO_MXFP4), COLS);
    const size_t acts_bytes = mo_acts_bytes(1, COLS),
                 scratch_bytes = sizeof(mo_scratch) * (size_t)mo_pool_threads(pool);
    const size_t size = acts_bytes + scratch_bytes + sizeof(float) * (size_t)rows;
    uint8_t *own = mo_host_alloc_huge(size);
    if (!own) {
        return mo_fail(err, MO_ENOMEM,
                       "%zu KiB of memory for measuring products are not available; end other programs",
                       size >> 10);
    }
    mo_acts acts = mo_acts_lay(own, 1, COLS);
    work w = {.kernels = kernels,
              .weights = {.data = memory, .interleave = interleaved ? kernels->interleave : 0, .cols = COLS},
              .acts = &acts,
              .scratch = (mo_scratch *)(own + acts_bytes),
              .y = (float *)(own + acts_bytes + scratch_bytes)};
    memset(own, 0, size);
    fill(&acts, kernels);
    *bytes_s = 0;
    for (int i = 0; i < FORMATS; i++) {
        const double rate = rate_of(pool, &w, formats[i], bytes);
        *bytes_s = i == 0 || rate < *bytes_s ? rate : *bytes_s;
    }
    mo_host_free_huge(own, size);
    return MO_OK;
}
