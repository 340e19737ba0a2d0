/* Work: see work.h. Buffers, products and the functions of single rows. */
#include "vision/work.h"

#include <math.h>
#include <string.h>

#include "numeric/center.h"
#include "numeric/ops.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t mo_vision_widest(const mo_vision_spec *s)
{
    const int64_t inner = s->heads * s->head_len, joined = s->width * s->merge * s->merge;
    return larger(larger(larger(s->width, inner), larger(s->ffn, joined)), s->patch * s->patch * 3);
}

mo_kv_shape mo_vision_cache(const mo_vision_spec *s)
{
    return (mo_kv_shape){
        .type = MO_KV_F32, .heads = (int)s->heads, .k_len = (int)s->head_len, .v_len = (int)s->head_len};
}

mo_kv_head mo_vision_cache_head(const mo_vision_work *w, int64_t head)
{
    return mo_kv_head_of(mo_vision_cache(w->spec), (int)head, w->blocks, w->block_count);
}

int64_t mo_vision_chunk(const mo_vision_spec *s)
{
    return 2 * MO_VISION_QUERIES * (s->head_len + 2);
}

static void *lay(uint8_t *memory, int64_t *used, int64_t bytes)
{
    void *at = memory ? memory + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

static float *lay_floats(uint8_t *memory, int64_t *used, int64_t count)
{
    return lay(memory, used, count * (int64_t)sizeof(float));
}

/* Joined patches are as many times fewer as they are wider. */
static int64_t acts_bytes(const mo_vision_work *w)
{
    const mo_vision_spec *s = w->spec;
    const int64_t block = s->merge * s->merge, inner = s->heads * s->head_len;
    const int64_t cols = larger(larger(s->width, inner), larger(s->ffn, s->patch * s->patch * 3));
    return larger((int64_t)mo_acts_bytes(w->batch, cols),
                  (int64_t)mo_acts_bytes(w->batch / block, s->width * block));
}

int64_t mo_vision_work_lay(mo_vision_work *w, uint8_t *memory)
{
    const mo_vision_spec *s = w->spec;
    const int64_t threads = w->threads, inner = s->heads * s->head_len;
    const int64_t given = larger(larger(s->width, inner), s->ffn), widest = mo_vision_widest(s);
    const int64_t positions = larger(w->columns, w->rows) * (s->head_len / 4);
    int64_t used = 0;
    w->x = lay_floats(memory, &used, w->patches * s->width);
    const int64_t block = mo_kv_block_bytes(mo_vision_cache(s));
    w->block_count = (w->patches + MO_CHUNK - 1) / MO_CHUNK * (MO_CHUNK / MO_KV_BLOCK);
    w->blocks = lay(memory, &used, w->block_count * (int64_t)sizeof *w->blocks);
    for (int64_t i = 0; i < w->block_count; i++) {
        uint8_t *at = lay(memory, &used, block);
        if (memory) {
            w->blocks[i] = at;
        }
    }
    w->queries = lay_floats(memory, &used, w->batch * inner);
    w->normed = lay_floats(memory, &used, w->batch * larger(s->width, s->patch * s->patch * 3));
    w->a = lay_floats(memory, &used, w->batch * given);
    w->b = lay_floats(memory, &used, w->batch * given);
    w->chunks = lay_floats(memory, &used, threads * mo_vision_chunk(s));
    w->spare = lay_floats(memory, &used, threads * widest);
    w->c = lay_floats(memory, &used, positions);
    w->s = lay_floats(memory, &used, positions);
    w->ones = lay_floats(memory, &used, widest);
    w->acts = lay(memory, &used, acts_bytes(w));
    w->scratch = lay(memory, &used, threads * (int64_t)sizeof *w->scratch);
    for (int64_t i = 0; memory && i < widest; i++) {
        w->ones[i] = 1.0f;
    }
    return used;
}

/* ---- Products ---- */

typedef struct product {
    const mo_vision_work *w;
    const mo_vision_linear *l;
    const float *in;
    mo_acts acts;
    bool coded;
    int64_t count;
    float *y;
    int64_t stride;
    int64_t grain, row_pieces;
} product;

static void limit_row(float *x, int64_t n, float low, float high)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = low > x[i] ? low : x[i];
        x[i] = high < x[i] ? high : x[i];
    }
}

static void make_acts(void *ctx, int64_t begin, int64_t end, int thread)
{
    const product *p = ctx;
    const mo_acts *a = &p->acts;
    const int64_t n = a->cols;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *x = a->x + t * n;
        memcpy(x, p->in + t * n, (size_t)n * sizeof(float));
        if (p->l->limits_in) {
            limit_row(x, n, p->l->in_low, p->l->in_high);
        }
        if (p->coded) {
            p->w->kernels->quantize(x, n, a->q + t * n, a->d + t * (n / 32), a->s + t * (n / 32),
                                    a->sum + t * (n / 32), a->half_sum + t * (n / 16));
        }
    }
}

static void multiply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const product *p = ctx;
    const mo_vision_linear *l = p->l;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t row = piece % p->row_pieces * p->grain, first = piece / p->row_pieces * MO_VISION_PIECE;
        const int64_t last = row + p->grain < l->w.rows ? row + p->grain : l->w.rows;
        const int64_t count = p->count - first < MO_VISION_PIECE ? p->count - first : MO_VISION_PIECE;
        const mo_acts acts = mo_acts_from(&p->acts, first);
        float *y = p->y + first * p->stride;
        p->w->kernels->product(&l->w, row, last, &acts, NULL, count, y, p->stride, &p->w->scratch[thread]);
        for (int64_t t = 0; t < count; t++) {
            float *of = y + t * p->stride + row;
            if (l->bias) {
                p->w->kernels->add(of, l->bias + row, last - row);
            }
            if (l->limits_out) {
                limit_row(of, last - row, l->out_low, l->out_high);
            }
        }
    }
}

void mo_vision_product(const mo_vision_work *w, const mo_vision_linear *l, float *in, int64_t count, float *y,
                       int64_t stride)
{
    product p = {.w = w, .l = l, .in = in, .count = count, .y = y, .stride = stride};
    const mo_format *format = mo_format_of(l->w.type);
    p.coded = format->kind == MO_KIND_QUANTIZED;
    p.grain = mo_ops_product_grain(&l->w, count, l->w.rows * mo_format_row_bytes(format, l->w.cols));
    p.row_pieces = (l->w.rows + p.grain - 1) / p.grain;
    const bool made = p.coded || l->limits_in;
    p.acts =
        made ? mo_acts_lay(w->acts, count, l->w.cols) : (mo_acts){.rows = count, .cols = l->w.cols, .x = in};
    const mo_phase phases[] = {
        {.fn = make_acts, .ctx = &p, .count = made ? count : 0, .grain = MO_VISION_ROWS},
        {.fn = multiply,
         .ctx = &p,
         .count = p.row_pieces * ((count + MO_VISION_PIECE - 1) / MO_VISION_PIECE),
         .grain = 1},
    };
    mo_pool_region(w->pool, phases, 2);
}

/* ---- Rows ---- */

void mo_vision_rows(const mo_vision_work *w, int64_t count, mo_pool_fn fn, void *ctx)
{
    mo_pool_run(w->pool, count, MO_VISION_ROWS, fn, ctx);
}

void mo_vision_norm_row(const mo_vision_work *w, const mo_vision_norm *n, float *y, const float *x)
{
    mo_norm_row(w->kernels, n->bias != NULL, y, x, n->w, n->n, w->spec->eps);
    if (n->bias) {
        w->kernels->add(y, n->bias, n->n);
    }
}

void mo_vision_activate(const mo_vision_work *w, mo_vision_activation activation, float *x, int64_t n,
                        float *spare)
{
    const mo_kernels *k = w->kernels;
    switch (activation) {
    case MO_VISION_GELU: k->geglu(x, x, w->ones, n); break;
    case MO_VISION_SILU: k->silu(x, x, n); break;
    case MO_VISION_QUICK_GELU:
        memcpy(spare, x, (size_t)n * sizeof(float));
        k->scale(spare, 1.702f, n);
        k->sigmoid(spare, spare, n);
        k->multiply(x, spare, n);
        break;
    }
}
