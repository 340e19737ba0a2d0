#include "plan/probe/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/status.h"
#include "numeric/acts.h"
#include "numeric/format.h"
#include "numeric/kernels.h"
#include "numeric/ops.h"

/* The most common format; rows as long as those of small experts. */
enum { COLS = 2048, GROUP = 64 };
static const mo_type type = MO_Q4_K;

typedef struct part {
    mo_probe_round *round;
    mo_weights weights;
    float *y;
} part;

struct mo_probe_round {
    mo_pool *pool;
    const mo_kernels *kernels;
    mo_acts acts;
    mo_scratch *scratch; /* [threads] */
    float *y;
    uint8_t *own;
    size_t size;
};

static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const part *p = ctx;
    p->round->kernels->product(&p->weights, begin, end, &p->round->acts, NULL, 1, p->y, p->weights.rows,
                               &p->round->scratch[thread]);
}

mo_status mo_probe_round_open(mo_pool *pool, int64_t most, mo_probe_round **out, mo_error *err)
{
    const int64_t rows = most / mo_format_row_bytes(mo_format_of(type), COLS) + GROUP;
    const size_t acts_bytes = mo_acts_bytes(1, COLS),
                 scratch_bytes = sizeof(mo_scratch) * (size_t)mo_pool_threads(pool);
    const mo_kernels *kernels;
    *out = NULL;
    mo_status status = mo_kernels_select(NULL, &kernels, err);
    if (status != MO_OK) {
        return status;
    }
    mo_probe_round *r = calloc(1, sizeof *r);
    const size_t size = acts_bytes + scratch_bytes + sizeof(float) * (size_t)rows;
    uint8_t *own = r ? mo_host_alloc_huge(size) : NULL;
    if (!own) {
        free(r);
        return mo_fail(err, MO_ENOMEM, "out of memory for measuring products of experts");
    }
    memset(own, 0, size);
    *r = (mo_probe_round){.pool = pool,
                          .kernels = kernels,
                          .acts = mo_acts_lay(own, 1, COLS),
                          .scratch = (mo_scratch *)(own + acts_bytes),
                          .y = (float *)(own + acts_bytes + scratch_bytes),
                          .own = own,
                          .size = size};
    for (int64_t i = 0; i < COLS; i++) {
        r->acts.x[i] = 1.0f;
    }
    kernels->quantize(r->acts.x, COLS, r->acts.q, r->acts.d, r->acts.s, r->acts.sum, r->acts.half_sum);
    *out = r;
    return MO_OK;
}

void mo_probe_round_close(mo_probe_round *r)
{
    if (r) {
        mo_host_free_huge(r->own, r->size);
    }
    free(r);
}

static mo_phase phase_of(part *p, const uint8_t *memory, int64_t bytes, float *y)
{
    p->weights = (mo_weights){.data = memory,
                              .interleave = p->round->kernels->interleave,
                              .type = type,
                              .rows = bytes / mo_format_row_bytes(mo_format_of(type), COLS) / GROUP * GROUP,
                              .cols = COLS};
    p->y = y;
    return (mo_phase){.fn = multiply,
                      .ctx = p,
                      .count = p->weights.rows,
                      .grain = mo_ops_product_grain(&p->weights, 1, bytes),
                      .shares = true};
}

void mo_probe_round_run(mo_probe_round *r, const uint8_t *memory, int64_t bytes)
{
    part in = {.round = r}, down = {.round = r};
    const int64_t third = bytes / 3 / 64 * 64;
    const mo_phase phases[] = {phase_of(&in, memory, 2 * third, r->y),
                               phase_of(&down, memory + 2 * third, third, r->y)};
    mo_pool_region(r->pool, phases, 2);
}
