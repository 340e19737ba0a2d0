/* Jobs: a list of matrix products that run as one phase, cut into pieces across all of them, so that many
 * small products (the experts of a layer) keep every thread busy. */
#ifndef MO_ENGINE_JOBS_H
#define MO_ENGINE_JOBS_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/pool.h"
#include "engine/adapting.h"
#include "numeric/kernels.h"
#include "numeric/merge.h"

/* Tokens, below which pieces are cut by bytes (mo_ops_product_grain()) and threads begin with shares of their own. */
enum { MO_JOBS_FEW = 8 };

/* A second matrix with the first one's rows, and what becomes of both products, row by row: each piece goes on to its part of the
 * activations that the next product reads, so no thread waits in between. */
typedef struct mo_job_gated {
    const mo_linear *up; /* NULL: the activation has no gate, and the job's own matrix is up */
    float *y;            /* of up, as the job's; the job's own is the gate */
    mo_activation activation;
    float limit;    /* of MO_SWIGLU_LIMIT */
    mo_acts hidden; /* what comes of it, token by token from row 0 on; x NULL: the job is a product alone */
} mo_job_gated;

typedef struct mo_job {
    const mo_linear *linear;
    const mo_acts *acts;
    const int32_t *pick;   /* activation rows, or NULL for 0 .. count-1 */
    const int32_t *tokens; /* of the step, whose rows those are: for adapters. NULL: 0 .. count-1 */
    int64_t row, rows;     /* of the matrix: those that are multiplied */
    int64_t count;         /* tokens; 0 is allowed */
    float *y;              /* [count][stride]; row r of the matrix gives value r */
    int64_t stride;
    mo_job_gated gated;
    /* Set by mo_jobs_phase(): pieces are row_pieces times token pieces, rows first. */
    int64_t first;              /* piece of the list */
    int64_t grain, token_grain; /* rows and tokens of a piece */
    int64_t row_pieces;
    const mo_low
        *lows; /* [adapting->count], or NULL: no adapter changes the matrix. Set by mo_jobs_phases() */
} mo_job;

typedef struct mo_jobs {
    const mo_kernels *kernels;
    mo_scratch *scratch; /* [threads] */
    mo_job *list;        /* space for `limit`, given by the owner */
    int count, limit;
    int64_t pieces;
    const mo_adapting *adapting; /* of the step; NULL: adapters do not touch these products */
    struct mo_jobs *low;         /* products with first matrices of adapters; NULL while there are none */
    mo_low *lows;                /* [limit][adapters that are open] */
} mo_jobs;

/* Empties the list. */
void mo_jobs_clear(mo_jobs *j);

/* Appends a product; an absent linear or no tokens are passed over. The list must have space. */
void mo_jobs_add(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick, int64_t count,
                 float *y, int64_t stride);

/* The same with rows that belong to other tokens than `pick` says. */
void mo_jobs_add_for(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick,
                     const int32_t *tokens, int64_t count, float *y, int64_t stride);

/* Appends a product with `rows` rows of a matrix that is there, from `row` on; there are tokens. */
void mo_jobs_add_rows(mo_jobs *j, const mo_linear *linear, int64_t row, int64_t rows, const mo_acts *acts,
                      int64_t count, float *y, int64_t stride);

/* Appends a gate's and an up's products with their activation. The matrices are there, adapters change neither, the rows are a multiple of 32 and tokens are few. */
void mo_jobs_add_gated(mo_jobs *j, const mo_linear *gate, const mo_acts *acts, const int32_t *pick,
                       int64_t count, float *y, const mo_job_gated *gated);

/* Cuts the list as it is now into pieces; the phase that computes them: product, outer scale, bias, and what adapters add. */
mo_phase mo_jobs_phase(mo_jobs *j);

/* Appends that phase, and before it the first products of adapters, where the step has any; the new count. */
int mo_jobs_phases(mo_jobs *j, mo_phase *phases, int count);
/* The same, where their time counts as another part's (base/pool.h). */
int mo_jobs_phases_of(mo_jobs *j, mo_phase *phases, int count, int part);

/* The list whose phase this is; NULL: none's. */
const mo_jobs *mo_jobs_of(const mo_phase *phase);

/* Appends what the pieces of a list that was cut read (mo_phase.ahead); the new count. */
int mo_jobs_ahead(const mo_jobs *j, mo_pool_ahead *list, int count);

/* The same for a list of products of few tokens with all rows of these matrices, those that are there. */
int mo_linears_ahead(const mo_linear *const *linears, int n, int64_t tokens, mo_pool_ahead *list, int count);
enum { MO_LINEARS_AHEAD = 7 };

/* Adds to y what adapters make of rows from .. to-1 of the matrix for tokens first .. first+count-1 of a job whose list was planned: for
 * code that computes the product by other means. y is that of the first of both. */
void mo_job_adapt(const mo_jobs *j, const mo_job *job, int64_t from, int64_t to, int64_t first, int64_t count,
                  float *y, int64_t stride);

/* ---- Flow ----
 *
 * Gate and up of a layer's experts, and their down, as one phase. A piece of down begins when all pieces of its own expert's gate and
 * up are done, so no thread waits for other experts or for the slowest thread. For steps of few tokens whose pieces of gate and up
 * go on to the activation (mo_jobs_add_gated()). */

enum { MO_FLOW_LINE = 64 };

typedef struct mo_flow_unit {
    alignas(MO_FLOW_LINE) _Atomic int64_t left; /* pieces of gate and up that are not done */
} mo_flow_unit;

typedef struct mo_flow {
    mo_flow_unit *units; /* [limit] of each product of `in`; given by the owner, as is: */
    int32_t
        *after; /* [limit] of each of `out`, the one of `in` whose activations it reads; -1: they are there */
    int limit;
    mo_jobs *in, *out; /* of the phase at hand */
} mo_flow;

/* Can both lists be one phase? */
bool mo_flow_joins(const mo_flow *flow, const mo_jobs *in, const mo_jobs *out);

/* Cuts both lists as they are now; the phase that computes them. */
mo_phase mo_flow_phase(mo_flow *flow, mo_jobs *in, mo_jobs *out);

#endif
