#include "numeric/ops.h"

/* ---- Products --------------------------------------------------------------------------------- */

enum {
    ROWS_UNIT = 32, /* a multiple of every kernel's rows at once and of every interleave group */
    ROWS_MAX = 256,
    ROWS_BATCH = 128,        /* with many tokens: a kernel lays their codes out anew for each chunk */
    CHUNK_BYTES = 64 * 1024, /* with few: what the first reads of a chunk wait for, about 0.2 us, and its
                                 claiming should be small beside reading it */
    FEW = 8,
};

int64_t mo_ops_product_grain(const mo_weights *w, int64_t count)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t rows = count < FEW ? CHUNK_BYTES / (row_bytes > 0 ? row_bytes : 1) : ROWS_BATCH;
    const int64_t units = (rows + ROWS_UNIT - 1) / ROWS_UNIT;
    const int64_t most = ROWS_MAX / ROWS_UNIT;
    return (units < 1 ? 1 : units > most ? most : units) * ROWS_UNIT;
}

typedef struct product_job {
    const mo_kernels *kernels;
    const mo_weights *w;
    const mo_acts *acts;
    const int32_t *pick;
    int64_t count;
    float *y;
    int64_t y_stride;
} product_job;

static void product_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const product_job *j = ctx;
    j->kernels->product(j->w, begin, end, j->acts, j->pick, j->count, j->y, j->y_stride);
}

void mo_ops_product(mo_pool *pool, const mo_kernels *kernels, const mo_weights *w, const mo_acts *acts,
                    const int32_t *pick, int64_t count, float *y, int64_t y_stride)
{
    product_job job = {kernels, w, acts, pick, count, y, y_stride};
    mo_pool_run(pool, w->rows, mo_ops_product_grain(w, count), product_piece, &job);
}

/* ---- Quantising ------------------------------------------------------------------------------- */

typedef struct quantise_job {
    const mo_kernels *kernels;
    const mo_acts *acts;
} quantise_job;

static void quantise_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const quantise_job *j = ctx;
    const mo_acts *a = j->acts;
    const int64_t blocks = a->cols / 32;
    for (int64_t t = begin; t < end; t++) {
        j->kernels->quantise(a->x + t * a->cols, a->cols, a->q + t * a->cols, a->d + t * blocks,
                             a->s + t * blocks, a->sum + t * blocks, a->half_sum + 2 * t * blocks);
    }
}

void mo_ops_quantise(mo_pool *pool, const mo_kernels *kernels, const mo_acts *acts, int64_t count)
{
    quantise_job job = {kernels, acts};
    /* About 16384 values take a microsecond or two: less is not worth a thread. */
    const int64_t grain = 16384 / (acts->cols > 0 ? acts->cols : 1) + 1;
    if (count <= grain) {
        quantise_piece(&job, 0, count, 0);
    } else {
        mo_pool_run(pool, count, grain, quantise_piece, &job);
    }
}

/* ---- Attention -------------------------------------------------------------------------------- */

enum { ATTEND_HEADS = 8 }; /* query heads of one piece: they share what is read of the cache */

typedef struct attend_job {
    const mo_kernels *kernels;
    const mo_attend_call *a;
    int64_t first_chunk, chunks, heads, groups;
    float *m, *l, *o; /* [chunks][heads], [chunks][heads], [chunks][heads][v_len] */
} attend_job;

int64_t mo_ops_attend_floats(int64_t positions, int64_t heads, int64_t v_len)
{
    const int64_t chunks = (positions + MO_CHUNK - 1) / MO_CHUNK + 1;
    return chunks * heads * (2 + v_len);
}

/* Item: (chunk, KV head, group of its query heads). */
static void attend_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const attend_job *j = ctx;
    const mo_attend_call *a = j->a;
    for (int64_t item = begin; item < end; item++) {
        const int64_t group = item % j->groups;
        const int64_t kv = item / j->groups % a->kv_heads;
        const int64_t chunk = item / j->groups / a->kv_heads;
        const int64_t low = (j->first_chunk + chunk) * MO_CHUNK, high = low + MO_CHUNK;
        const int64_t skip = group * ATTEND_HEADS;
        const int64_t heads = a->heads_per_kv - skip < ATTEND_HEADS ? a->heads_per_kv - skip : ATTEND_HEADS;
        const int64_t head = kv * a->heads_per_kv + skip;
        const mo_kv_head *cache = &a->kv[kv];
        const int64_t to = chunk * j->heads + head;
        j->kernels->attend(cache, low > a->first ? low : a->first, high < a->last ? high : a->last,
                           a->q + head * cache->k_len, heads, a->scale, j->m + to, j->l + to,
                           j->o + to * cache->v_len);
    }
}

static void merge_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const attend_job *j = ctx;
    const mo_attend_call *a = j->a;
    const int64_t v_len = a->kv[0].v_len;
    for (int64_t h = begin; h < end; h++) {
        float M = j->m[h], L = j->l[h];
        float *O = a->out + h * v_len;
        for (int64_t i = 0; i < v_len; i++) {
            O[i] = j->o[h * v_len + i];
        }
        for (int64_t chunk = 1; chunk < j->chunks; chunk++) {
            const int64_t at = chunk * j->heads + h;
            j->kernels->attend_merge(&M, &L, O, j->m[at], j->l[at], j->o + at * v_len, v_len);
        }
        if (a->sinks) {
            j->kernels->attend_merge(&M, &L, O, a->sinks[h], 1.0f, NULL, v_len);
        }
        j->kernels->attend_finish(O, L, v_len);
    }
}

void mo_ops_attend(mo_pool *pool, const mo_kernels *kernels, const mo_attend_call *attention, float *scratch)
{
    attend_job job = {.kernels = kernels, .a = attention};
    job.first_chunk = attention->first / MO_CHUNK;
    job.chunks = (attention->last - 1) / MO_CHUNK - job.first_chunk + 1;
    job.heads = attention->kv_heads * attention->heads_per_kv;
    job.groups = (attention->heads_per_kv + ATTEND_HEADS - 1) / ATTEND_HEADS;
    job.m = scratch;
    job.l = job.m + job.chunks * job.heads;
    job.o = job.l + job.chunks * job.heads;
    const mo_phase phases[] = {
        {attend_piece, &job, job.chunks * attention->kv_heads * job.groups, 1},
        {merge_piece, &job, job.heads, ATTEND_HEADS},
    };
    mo_pool_region(pool, phases, 2);
}

/* ---- Routers ---------------------------------------------------------------------------------- */

void mo_topk(const float *x, int64_t n, int64_t k, int32_t *index)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found == k && !(x[i] > x[index[k - 1]])) {
            continue;
        }
        int64_t at = found < k ? found++ : k - 1;
        for (; at > 0 && x[i] > x[index[at - 1]]; at--) {
            index[at] = index[at - 1];
        }
        index[at] = (int32_t)i;
    }
}
