#include "engine/jobs.h"

#include <assert.h>

#include "engine/split.h"
#include "numeric/ops.h"

/* Tokens per piece. A long prompt's products are cut in both directions, so that matrices of few rows also
 * keep sixteen threads busy. */
enum { PIECE_TOKENS = 256 };

/* If that makes few pieces, products of floats are cut more finely, because floats need no unpacking.
 * Otherwise a router of 128 experts would keep only two threads busy. */
enum { FEW_PIECES = 64, FINE_ROWS = 32, FINE_TOKENS = 24 };

static int64_t pieces_of(int64_t count, int64_t grain)
{
    return (count + grain - 1) / grain;
}

void mo_jobs_clear(mo_jobs *j)
{
    j->count = 0;
    j->pieces = 0;
}

void mo_jobs_add(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick, int64_t count,
                 float *y, int64_t stride)
{
    mo_jobs_add_for(j, linear, acts, pick, pick, count, y, stride);
}

void mo_jobs_add_for(mo_jobs *j, const mo_linear *linear, const mo_acts *acts, const int32_t *pick,
                     const int32_t *tokens, int64_t count, float *y, int64_t stride)
{
    if (!mo_linear_present(linear) || count == 0) {
        return;
    }
    assert(j->count < j->limit);
    j->list[j->count++] = (mo_job){.linear = linear,
                                   .acts = acts,
                                   .pick = pick,
                                   .tokens = tokens,
                                   .rows = linear->w.rows,
                                   .count = count,
                                   .y = y,
                                   .stride = stride};
}

void mo_jobs_add_rows(mo_jobs *j, const mo_linear *linear, int64_t row, int64_t rows, const mo_acts *acts,
                      int64_t count, float *y, int64_t stride)
{
    mo_jobs_add(j, linear, acts, NULL, count, y, stride);
    j->list[j->count - 1].row = row;
    j->list[j->count - 1].rows = rows;
}

void mo_jobs_add_gated(mo_jobs *j, const mo_linear *gate, const mo_acts *acts, const int32_t *pick,
                       int64_t count, float *y, const mo_job_gated *gated)
{
    mo_jobs_add(j, gate, acts, pick, count, y, gate->w.rows);
    j->list[j->count - 1].gated = *gated;
}

/* The last job that begins at or before the piece. */
static const mo_job *find_job(const mo_jobs *j, int64_t piece)
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

/* ---- Adapters ---------------------------------------------------------------------------------- */

void mo_job_adapt(const mo_jobs *j, const mo_job *job, int64_t from, int64_t to, int64_t first, int64_t count,
                  float *y, int64_t stride)
{
    for (int64_t i = 0; job->lows && i < count; i++) {
        const int64_t token = job->tokens ? job->tokens[first + i] : first + i;
        const mo_adapting_use *use = mo_adapting_uses(j->adapting, token);
        for (int n = 0; n < MO_ADAPTERS_USED && use[n].which >= 0; n++) {
            const mo_low *low = &job->lows[use[n].which];
            if (low->pair) {
                const int64_t rank = low->pair->a.w.rows;
                const float f = mo_lora_factor(j->adapting->lora[use[n].which], low->pair, use[n].scale);
                j->kernels->low_rank(y + i * stride, low->pair->b + from, job->linear->w.rows,
                                     low->u + (first + i) * rank, rank, f, to - from);
            }
        }
    }
}

/* Adds the first products of the step's adapters for the job's matrix; false: none. */
static bool lower(mo_jobs *j, mo_job *job, mo_low *lows, int64_t *floats)
{
    const mo_adapting *a = j->adapting;
    bool any = false;
    for (int i = 0; i < a->count; i++) {
        lows[i] = (mo_low){.pair = mo_lora_find(a->lora[i], job->linear), .u = a->u + *floats};
        if (lows[i].pair) {
            const int64_t rank = lows[i].pair->a.w.rows;
            mo_jobs_add(j->low, &lows[i].pair->a, job->acts, job->pick, job->count, lows[i].u, rank);
            *floats += job->count * rank;
            any = true;
        }
    }
    return any;
}

int mo_jobs_phases(mo_jobs *j, mo_phase *phases, int count)
{
    return mo_jobs_phases_of(j, phases, count, MO_PART_PRODUCTS);
}

int mo_jobs_phases_of(mo_jobs *j, mo_phase *phases, int count, int part)
{
    if (j->adapting && j->adapting->count) {
        int64_t floats = 0;
        mo_jobs_clear(j->low);
        for (int i = 0; i < j->count; i++) {
            mo_low *lows = j->lows + (int64_t)i * j->adapting->count;
            j->list[i].lows = lower(j, &j->list[i], lows, &floats) ? lows : NULL;
        }
        if (j->low->count) {
            phases[count] = mo_jobs_phase(j->low);
            phases[count++].part = part;
        }
    }
    phases[count] = mo_jobs_phase(j);
    phases[count++].part = part;
    return count;
}

/* ---- Pieces ------------------------------------------------------------------------------------ */

/* Multiplies rows from .. to-1 with tokens t .. t+count-1. */
static void multiply(const mo_jobs *j, const mo_job *job, const mo_linear *linear, int64_t from, int64_t to,
                     int64_t t, int64_t count, float *y, mo_scratch *scratch)
{
    const mo_acts acts = mo_acts_from(job->acts, job->pick ? 0 : t); /* kernels count rows from 0 */
    j->kernels->product(&linear->w, from, to, &acts, job->pick ? job->pick + t : NULL, count, y, job->stride,
                        scratch);
    mo_finish_product(linear->scale, linear->bias ? linear->bias + from : NULL, to - from, count, y + from,
                      job->stride);
}

/* Activates and quantizes a few blocks of 32 values. */
static void activate(const mo_jobs *j, const mo_job *job, int64_t from, int64_t to, int64_t t, int64_t count)
{
    const mo_acts *h = &job->gated.hidden;
    const int64_t block = from / 32, blocks = h->cols / 32;
    const float *up = job->gated.up ? job->gated.y : job->y;
    for (int64_t i = t; i < t + count; i++) {
        const int64_t at = i * h->cols + from;
        mo_activate_row(j->kernels, job->gated.activation, job->gated.limit, h->x + at,
                        job->y + i * job->stride + from, up + i * job->stride + from, to - from);
        j->kernels->quantize(h->x + at, to - from, h->q + at, h->d + i * blocks + block,
                             h->s + i * blocks + block, h->sum + i * blocks + block,
                             h->half_sum + 2 * (i * blocks + block));
    }
}

static void run_piece(const mo_jobs *j, const mo_job *job, int64_t piece, int thread)
{
    mo_scratch *scratch = &j->scratch[thread];
    piece -= job->first;
    const int64_t from = job->row + piece % job->row_pieces * job->grain, end = job->row + job->rows;
    const int64_t to = from + job->grain < end ? from + job->grain : end;
    const int64_t t = piece / job->row_pieces * job->token_grain;
    const int64_t count = job->count - t < job->token_grain ? job->count - t : job->token_grain;
    float *y = job->y + t * job->stride;
    multiply(j, job, job->linear, from, to, t, count, y, scratch);
    if (job->gated.up) {
        multiply(j, job, job->gated.up, from, to, t, count, job->gated.y + t * job->stride, scratch);
    }
    if (job->gated.hidden.x) {
        activate(j, job, from, to, t, count);
    }
    mo_job_adapt(j, job, from, to, t, count, y + from, job->stride);
}

static void run_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_jobs *j = ctx;
    for (int64_t piece = begin; piece < end; piece++) {
        run_piece(j, find_job(j, piece), piece, thread);
    }
}

static int64_t row_bytes_of(const mo_linear *linear)
{
    return linear ? mo_format_row_bytes(mo_format_of(linear->w.type), linear->w.cols) : 0;
}

static int64_t bytes_of(const mo_job *job)
{
    return job->rows * (row_bytes_of(job->linear) + row_bytes_of(job->gated.up));
}

/* Bytes per piece of floats with few tokens. */
enum { FLOAT_BYTES = 64 * 1024 };

/* Rows per piece. For few tokens, floats are cut in multiples of four rows: a router has few, long rows. */
static int64_t grain_of(const mo_job *job, int64_t bytes)
{
    const mo_weights *w = &job->linear->w;
    if (job->count < MO_JOBS_FEW && !job->gated.hidden.x && mo_format_of(w->type)->kind == MO_KIND_FLOAT) {
        const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
        const int64_t rows = row_bytes > 0 ? FLOAT_BYTES / row_bytes / 4 * 4 : 0;
        return rows < 4 ? 4 : rows;
    }
    return mo_ops_product_grain(w, job->count, job->gated.up ? bytes / 2 : bytes);
}

static void cut(mo_jobs *j, int64_t bytes, bool finely)
{
    j->pieces = 0;
    for (int i = 0; i < j->count; i++) {
        mo_job *job = &j->list[i];
        const bool fine = finely && mo_format_of(job->linear->w.type)->kind == MO_KIND_FLOAT;
        job->grain = fine ? FINE_ROWS : grain_of(job, bytes);
        job->token_grain = fine ? FINE_TOKENS : PIECE_TOKENS;
        job->row_pieces = pieces_of(job->rows, job->grain);
        job->first = j->pieces;
        j->pieces += job->row_pieces * pieces_of(job->count, job->token_grain);
    }
}

mo_phase mo_jobs_phase(mo_jobs *j)
{
    int64_t bytes = 0, most = 0;
    for (int i = 0; i < j->count; i++) {
        bytes += bytes_of(&j->list[i]);
        most = j->list[i].count > most ? j->list[i].count : most;
    }
    cut(j, bytes, false);
    if (j->pieces < FEW_PIECES && most > FINE_TOKENS) {
        cut(j, bytes, true);
    }
    return (mo_phase){.fn = run_pieces,
                      .ctx = j,
                      .count = j->pieces,
                      .grain = 1,
                      .part = MO_PART_PRODUCTS,
                      .shares = most < MO_JOBS_FEW};
}

/* ---- Weights of pieces -------------------------------------------------------------------------- */

/* The weights of the piece's first matrix. */
static const uint8_t *weights_of(const mo_job *job, int64_t piece, int64_t *bytes)
{
    const int64_t from = (piece - job->first) % job->row_pieces * job->grain;
    const int64_t rows = job->rows - from < job->grain ? job->rows - from : job->grain;
    const int64_t row_bytes = row_bytes_of(job->linear);
    *bytes = rows * row_bytes;
    return job->linear->w.data + (job->row + from) * row_bytes;
}

static int ahead_of(const mo_jobs *j, const mo_job *job, const mo_linear *linear, mo_pool_ahead *list,
                    int count)
{
    const int64_t row_bytes = row_bytes_of(linear);
    if (count < MO_POOL_AHEAD_MAX && row_bytes > 0) {
        list[count++] = (mo_pool_ahead){.data = linear->w.data + job->row * row_bytes,
                                        .bytes = job->rows * row_bytes,
                                        .chunk_bytes = job->grain * row_bytes,
                                        .first = job->first,
                                        .count = j->pieces};
    }
    return count;
}

const mo_jobs *mo_jobs_of(const mo_phase *phase)
{
    return phase->fn == run_pieces ? phase->ctx : NULL;
}

int mo_jobs_ahead(const mo_jobs *j, mo_pool_ahead *list, int count)
{
    for (int i = 0; i < j->count; i++) {
        count = ahead_of(j, &j->list[i], j->list[i].linear, list, count);
        count = ahead_of(j, &j->list[i], j->list[i].gated.up, list, count);
    }
    return count;
}

int mo_linears_ahead(const mo_linear *const *linears, int n, int64_t tokens, mo_pool_ahead *list, int count)
{
    mo_job space[MO_LINEARS_AHEAD];
    mo_jobs j = {.list = space, .limit = MO_LINEARS_AHEAD};
    for (int i = 0; i < n; i++) {
        mo_jobs_add(&j, linears[i], NULL, NULL, tokens, NULL, 0);
    }
    mo_jobs_phase(&j);
    return mo_jobs_ahead(&j, list, count);
}

/* ---- Flow --------------------------------------------------------------------------------------- */

/* The weights of a piece of down do not depend on the awaited result: they are prefetched meanwhile, a little
 * between two checks. */
static void await(const mo_flow *f, int32_t unit, const mo_job *job, int64_t piece)
{
    const _Atomic int64_t *left = &f->units[unit].left;
    int64_t bytes, asked = 0;
    const uint8_t *weights = weights_of(job, piece, &bytes);
    for (unsigned looked = 0; atomic_load_explicit(left, memory_order_acquire) > 0; looked++) {
        if (asked < bytes) {
            asked += mo_pool_ask(weights + asked, bytes - asked);
        } else {
            mo_pool_pause(looked);
        }
    }
}

/* Pieces of gate and up come first, and all of them are taken before the first piece of down. So a thread
 * that waits here waits for threads that compute. */
static void run_flow(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_flow *f = ctx;
    for (int64_t piece = begin; piece < end; piece++) {
        if (piece < f->in->pieces) {
            const mo_job *job = find_job(f->in, piece);
            run_piece(f->in, job, piece, thread);
            atomic_fetch_sub_explicit(&f->units[job - f->in->list].left, 1, memory_order_release);
        } else {
            const mo_job *job = find_job(f->out, piece - f->in->pieces);
            const int32_t unit = f->after[job - f->out->list];
            if (unit >= 0) {
                await(f, unit, job, piece - f->in->pieces);
            }
            run_piece(f->out, job, piece - f->in->pieces, thread);
        }
    }
}

bool mo_flow_joins(const mo_flow *f, const mo_jobs *in, const mo_jobs *out)
{
    return in->count > 0 && out->count > 0 && in->count <= f->limit && out->count <= f->limit;
}

/* The product of `in` that writes the first row of activations that `out` reads; -1: none. */
static int32_t find_unit(const mo_flow *f, const mo_job *out, int guess)
{
    const float *row = out->acts->x + (out->pick ? out->pick[0] : 0) * out->acts->cols;
    for (int i = 0; i < f->in->count; i++) {
        const int at = (guess + i) % f->in->count;
        const mo_job *in = &f->in->list[at];
        if (in->gated.hidden.x == row) {
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
