#include "engine/flow.h"

/* What a piece of down reads does not depend on what it waits for: it is asked for meanwhile, a little between two looks. */
static void await(const mo_flow *f, int32_t unit, const mo_job *job, int64_t piece)
{
    const _Atomic int64_t *left = &f->units[unit].left;
    int64_t bytes, asked = 0;
    const uint8_t *weights = mo_jobs_weights(job, piece, &bytes);
    for (unsigned looked = 0; atomic_load_explicit(left, memory_order_acquire) > 0; looked++) {
        if (asked < bytes) {
            asked += mo_pool_ask(weights + asked, bytes - asked);
        } else {
            mo_pool_pause(looked);
        }
    }
}

/* Pieces of gate and up come first, and all of them are taken before one of down is taken: a thread that waits here waits for threads that
 * compute. */
static void run_flow(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_flow *f = ctx;
    for (int64_t piece = begin; piece < end; piece++) {
        if (piece < f->in->pieces) {
            const mo_job *job = mo_jobs_find(f->in, piece);
            mo_jobs_run(f->in, job, piece, thread);
            atomic_fetch_sub_explicit(&f->units[job - f->in->list].left, 1, memory_order_release);
        } else {
            const mo_job *job = mo_jobs_find(f->out, piece - f->in->pieces);
            const int32_t unit = f->after[job - f->out->list];
            if (unit >= 0) {
                await(f, unit, job, piece - f->in->pieces);
            }
            mo_jobs_run(f->out, job, piece - f->in->pieces, thread);
        }
    }
}

bool mo_flow_joins(const mo_flow *f, const mo_jobs *in, const mo_jobs *out)
{
    return in->count > 0 && out->count > 0 && in->count <= f->limit && out->count <= f->limit;
}

/* The first row of activations that a product of `out` reads: the last of `in` that wrote it. */
static int32_t find_unit(const mo_flow *f, const mo_job *out, int guess)
{
    const float *row = out->acts->x + (out->pick ? out->pick[0] : 0) * out->acts->cols;
    for (int i = 0; i < f->in->count; i++) {
        const int at = (guess + i) % f->in->count;
        const mo_job *in = &f->in->list[at];
        if (in->gated.up && in->gated.hidden.x == row) {
            return at;
        }
    }
    return -1;
}

mo_phase mo_flow_phase(mo_flow *f, mo_jobs *in, mo_jobs *out)
{
    mo_phase phase = mo_jobs_phase(in);
    const mo_phase then = mo_jobs_phase(out);
    f->in = in;
    f->out = out;
    for (int i = 0; i < f->in->count; i++) {
        const int64_t next = i + 1 < f->in->count ? f->in->list[i + 1].first : f->in->pieces;
        atomic_store_explicit(&f->units[i].left, next - f->in->list[i].first, memory_order_relaxed);
    }
    for (int i = 0; i < f->out->count; i++) {
        f->after[i] = find_unit(f, &f->out->list[i], i);
    }
    phase.fn = run_flow;
    phase.ctx = f;
    phase.later = phase.count;
    phase.count += then.count;
    phase.shares = phase.shares && then.shares;
    return phase;
}
