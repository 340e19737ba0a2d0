/* Jobs: a list of matrix products that run as one phase, cut into pieces across all of them, so that many
 * small products (the experts of a layer) keep every thread busy. */
#ifndef MO_ENGINE_JOBS_H
#define MO_ENGINE_JOBS_H

#include "base/pool.h"
#include "model/parts.h"
#include "numeric/kernels.h"

typedef struct mo_job {
    const mo_linear *linear;
    const mo_acts *acts;
    const int32_t *pick; /* activation rows, or NULL for 0 .. count-1 */
    int64_t row, rows;   /* of the matrix: those that are multiplied */
    int64_t count;       /* tokens; 0 is allowed */
    float *y;            /* [count][stride]; row r of the matrix gives value r */
    int64_t stride;
    /* Set by mo_jobs_phase(): pieces are row_pieces times token pieces, rows first. */
    int64_t first; /* piece of the list */
    int64_t grain; /* rows of a piece */
    int64_t row_pieces;
} mo_job;

typedef struct mo_jobs {
    const mo_kernels *kernels;
    mo_scratch *scratch; /* [threads] */
    mo_job *list;        /* space for `limit`, given by the owner */
    int count, limit;
    int64_t pieces;
} mo_jobs;

/* Empties the list. */
static inline void mo_jobs_clear(mo_jobs *j)
{
    j->count = 0;
    j->pieces = 0;
}

/* Appends a product; an absent linear or no tokens are passed over. The list must have space. */
void mo_jobs_add(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick, int64_t count,
                 float *y, int64_t stride);

/* Appends a product with `rows` rows of a matrix that is there, from `row` on; there are tokens. */
void mo_jobs_add_rows(mo_jobs *j, const mo_linear *linear, int64_t row, int64_t rows, const mo_acts *acts,
                      int64_t count, float *y, int64_t stride);

/* Cuts the list as it is now into pieces; the phase that computes them: product, outer scale, bias. */
mo_phase mo_jobs_phase(mo_jobs *j);

#endif
