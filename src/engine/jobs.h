/* Jobs: a list of matrix products that run as one phase, cut into pieces across all of them, so that many
 * small products (the experts of a layer) keep all threads busy. */
#ifndef MO_ENGINE_JOBS_H
#define MO_ENGINE_JOBS_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/pool.h"
#include "engine/adapting.h"
#include "numeric/kernels.h"
#include "numeric/merge.h"

/* Below this many tokens, pieces are cut by bytes (mo_ops_product_grain()) and each thread starts with its
 * own share. */
enum { MO_JOBS_FEW = 8 };

/* A second matrix with the first one's rows, and the activation of both products, row by row. Each piece also
 * computes its part of the next product's input, so no thread waits in between. */
typedef struct mo_job_gated {
    const mo_linear *up; /* NULL: the activation has no gate, and the job's own matrix is up */
    float *y;            /* result of up, like the job's y; the job's own is the gate */
    mo_activation activation;
    float limit;    /* for MO_SWIGLU_LIMIT */
    mo_acts hidden; /* the activations, token by token from row 0; x NULL: the job is only a product */
} mo_job_gated;

typedef struct mo_job {
    const mo_linear *linear;
    const mo_acts *acts;
    const int32_t *pick;   /* activation rows, or NULL for 0 .. count-1 */
    const int32_t *tokens; /* tokens of the step that own those rows, for adapters. NULL: 0 .. count-1 */
    int64_t row, rows;     /* range of matrix rows to multiply */
    int64_t count;         /* tokens; 0 is allowed */
    float *y;              /* [count][stride]; row r of the matrix gives value r */
    int64_t stride;
    mo_job_gated gated;
    /* Set by mo_jobs_phase(): there are row_pieces times the number of token pieces, rows first. */
    int64_t first;              /* its first piece in the list */
    int64_t grain, token_grain; /* rows and tokens per piece */
    int64_t row_pieces;
    /* [adapting->count], or NULL: no adapter changes the matrix. Set by mo_jobs_phases(). */
    const mo_low *lows;
} mo_job;

typedef struct mo_jobs {
    const mo_kernels *kernels;
    mo_scratch *scratch; /* [threads] */
    mo_job *list;        /* space for `limit` jobs, owned by the caller */
    int count, limit;
    int64_t pieces;
    const mo_adapting *adapting; /* adapters of the step; NULL: these products have none */
    struct mo_jobs *low;         /* products with the adapters' first matrices; NULL: no adapters are open */
    mo_low *lows;                /* [limit][open adapters] */
} mo_jobs;

/* Empties the list. */
void mo_jobs_clear(mo_jobs *j);

/* Appends a product. An absent matrix, or no tokens, is ignored. The list must have space. */
void mo_jobs_add(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick, int64_t count,
                 float *y, int64_t stride);

/* The same, for rows that belong to other tokens than `pick` says. */
void mo_jobs_add_for(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick,
                     const int32_t *tokens, int64_t count, float *y, int64_t stride);

/* Appends a product with `rows` matrix rows from `row` on. The matrix is present, and there are tokens. */
void mo_jobs_add_rows(mo_jobs *j, const mo_linear *linear, int64_t row, int64_t rows, const mo_acts *acts,
                      int64_t count, float *y, int64_t stride);

/* Appends the products of gate and up with their activation. Both matrices are present, no adapter changes
 * them, the rows are a multiple of 32, and there are few tokens. */
void mo_jobs_add_gated(mo_jobs *j, const mo_linear *gate, const mo_acts *acts, const int32_t *pick,
                       int64_t count, float *y, const mo_job_gated *gated);

/* Cuts the current list into pieces and returns the phase that computes them: product, outer scale, bias,
 * adapters. */
mo_phase mo_jobs_phase(mo_jobs *j);

/* Appends that phase, after the adapters' first products if the step has any. Returns the new count. */
int mo_jobs_phases(mo_jobs *j, mo_phase *phases, int count);
/* The same, with the time counted for another part (base/pool.h). */
int mo_jobs_phases_of(mo_jobs *j, mo_phase *phases, int count, int part);

/* The list of this phase; NULL: it is not a phase of jobs. */
const mo_jobs *mo_jobs_of(const mo_phase *phase);

/* Appends the data that the pieces of a cut list read (mo_phase.ahead). Returns the new count. */
int mo_jobs_ahead(const mo_jobs *j, mo_pool_ahead *list, int count);

/* The same for products of few tokens with all rows of these matrices, if present. */
int mo_linears_ahead(const mo_linear *const *linears, int n, int64_t tokens, mo_pool_ahead *list, int count);
enum { MO_LINEARS_AHEAD = 7 };

/* Adds the adapters' result for matrix rows from .. to-1 and tokens first .. first+count-1 of a job in a cut
 * list to y, for code that computes the product in another way. y points to the first row and token of the
 * range. */
void mo_job_adapt(const mo_jobs *j, const mo_job *job, int64_t from, int64_t to, int64_t first, int64_t count,
                  float *y, int64_t stride);

/* ---- Flow ----
 *
 * Gate and up of a layer's experts, and their down, as one phase. A piece of down begins when all gate and up
 * pieces of its own expert are done, so no thread waits for other experts or for the slowest thread. For
 * steps of few tokens whose gate and up pieces also compute the activation (mo_jobs_add_gated()). */

enum { MO_FLOW_LINE = 64 };

typedef struct mo_flow_unit {
    alignas(MO_FLOW_LINE) _Atomic int64_t left; /* unfinished pieces of gate and up */
} mo_flow_unit;

typedef struct mo_flow {
    mo_flow_unit *units; /* [limit] for each product of `in`; owned by the caller, like: */
    /* [limit] for each product of `out`: the one of `in` whose activations it reads; -1: they are ready */
    int32_t *after;
    int limit;
    mo_jobs *in, *out; /* of the phase at hand */
} mo_flow;

/* True if both lists can be one phase. */
bool mo_flow_joins(const mo_flow *flow, const mo_jobs *in, const mo_jobs *out);

/* Cuts both current lists and returns the phase that computes them. */
mo_phase mo_flow_phase(mo_flow *flow, mo_jobs *in, mo_jobs *out);

#endif
