#include "engine/jobs.h"

#include <assert.h>

/* Rows of a piece: a multiple of every interleave group; about 40 KB of 4-bit weights at 2048 columns, long
 * enough to hide a claim, short enough that sixteen threads share eight experts evenly. */
enum { PIECE_ROWS = 32 };

void mo_jobs_add(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick, int64_t count,
                 float *y, int64_t stride)
{
    if (!mo_linear_present(linear) || count == 0) {
        return;
    }
    assert(j->count < j->limit);
    j->list[j->count++] = (mo_job){linear, acts, pick, count, y, stride, j->pieces};
    j->pieces += (linear->w.rows + PIECE_ROWS - 1) / PIECE_ROWS;
}

/* The job that holds a piece: the last one that begins at or before it. */
static const mo_job *job_of(const mo_jobs *j, int64_t piece)
{
    int low = 0, high = j->count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (j->list[middle].first <= piece) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &j->list[low];
}

static void finish(const mo_job *job, int64_t begin, int64_t end)
{
    const float *scale = job->linear->scale;
    const float *bias = job->linear->bias;
    for (int64_t t = 0; t < job->count; t++) {
        float *y = job->y + t * job->stride;
        for (int64_t r = begin; scale && r < end; r++) {
            y[r] *= *scale;
        }
        for (int64_t r = begin; bias && r < end; r++) {
            y[r] += bias[r];
        }
    }
}

static void run_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_jobs *j = ctx;
    for (int64_t piece = begin; piece < end; piece++) {
        const mo_job *job = job_of(j, piece);
        const mo_weights *w = &job->linear->w;
        const int64_t from = (piece - job->first) * PIECE_ROWS;
        const int64_t to = from + PIECE_ROWS < w->rows ? from + PIECE_ROWS : w->rows;
        j->kernels->product(w, from, to, job->acts, job->pick, job->count, job->y, job->stride);
        finish(job, from, to);
    }
}

mo_phase mo_jobs_phase(mo_jobs *j)
{
    return (mo_phase){.fn = run_pieces, .ctx = j, .count = j->pieces, .grain = 1};
}
