/* Run: a picture through an encoder: patches, layers, and what makes rows of them. See encoder.h. */
#include <math.h>
#include <string.h>

#include "base/host.h"
#include "base/status.h"
#include "numeric/rope.h"
#include "picture/span.h"
#include "vision/work.h"

/* ---- Patches ---- */

/* gemma4v: row by row. qwen3vl_merger: block by block of those that are joined, row by row in both. */
void mo_vision_place(const mo_vision_spec *s, int64_t columns, int64_t i, int64_t *column, int64_t *row)
{
    if (s->projector == MO_PROJECTOR_GEMMA4V) {
        *column = i % columns;
        *row = i / columns;
        return;
    }
    const int64_t size = s->merge * s->merge, block = i / size, inside = i % size,
                  across = columns / s->merge;
    *column = block % across * s->merge + inside % s->merge;
    *row = block / across * s->merge + inside / s->merge;
}

static void read_patch(const mo_vision_spec *s, const mo_picture *p, int64_t i, float *out)
{
    const int64_t side = s->patch, columns = p->width / side;
    int64_t column, row;
    mo_vision_place(s, columns, i, &column, &row);
    for (int c = 0; c < 3; c++) {
        for (int64_t y = 0; y < side; y++) {
            const uint8_t *from = mo_picture_row(p, row * side + y) + column * side * 3 + c;
            for (int64_t x = 0; x < side; x++) {
                *out++ = ((float)from[x * 3] / 255.0f - s->mean[c]) / s->std[c];
            }
        }
    }
}

void mo_encoder_patches(const mo_encoder *e, const mo_picture *picture, int64_t first, int64_t count,
                        float *out)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    for (int64_t i = 0; i < count; i++) {
        read_patch(s, picture, first + i, out + i * 3 * s->patch * s->patch);
    }
}

/* ---- Into the stream ---- */

typedef struct run {
    mo_vision_work w;
    const mo_picture *picture;
    int64_t first; /* patch, or row of the result, of the slice */
    float *out;
} run;

static void take_patches(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run *r = ctx;
    const mo_vision_spec *s = r->w.spec;
    const int64_t n = 3 * s->patch * s->patch;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *patch = r->w.normed + t * n;
        read_patch(s, r->picture, r->first + t, patch);
        for (int64_t i = 0; s->projector == MO_PROJECTOR_GEMMA4V && i < n; i++) {
            patch[i] = 2.0f * patch[i] - 1.0f;
        }
    }
}

void mo_vision_position(const mo_vision_spec *s, int64_t columns, int64_t rows, int64_t column, int64_t row,
                        float *out)
{
    const int64_t n = s->width, side = s->side;
    const mo_span u = mo_span_find(column, mo_span_ratio(side, columns), side);
    const mo_span v = mo_span_find(row, mo_span_ratio(side, rows), side);
    const float *upper = s->positions + v.low * side * n, *lower = s->positions + v.high * side * n;
    for (int64_t i = 0; i < n; i++) {
        const float above = mo_span_mix(upper[u.low * n + i], upper[u.high * n + i], u.t);
        const float below = mo_span_mix(lower[u.low * n + i], lower[u.high * n + i], u.t);
        out[i] = mo_span_mix(above, below, v.t);
    }
}

static void add_positions(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run *r = ctx;
    const mo_vision_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    const int64_t n = s->width;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *x = w->x + (r->first + t) * n;
        int64_t column, row;
        mo_vision_place(s, w->columns, r->first + t, &column, &row);
        if (s->projector == MO_PROJECTOR_GEMMA4V) {
            w->kernels->add(x, s->positions + column * n, n);
            w->kernels->add(x, s->positions + (s->side + row) * n, n);
        } else {
            w->kernels->add(x, w->a + t * n, n);
            mo_vision_position(s, w->columns, w->rows, column, row, w->a + t * n);
            w->kernels->add(x, w->a + t * n, n);
        }
    }
}

static void embed(run *r)
{
    const mo_vision_work *w = &r->w;
    const int64_t n = w->spec->width;
    for (r->first = 0; r->first < w->patches; r->first += w->batch) {
        const int64_t left = w->patches - r->first, count = left < w->batch ? left : w->batch;
        mo_vision_rows(w, count, take_patches, r);
        mo_vision_product(w, &w->spec->kernel[0], w->normed, count, w->x + r->first * n, n);
        if (w->spec->kernel[1].w.rows) { /* a still picture is both of two frames */
            mo_vision_product(w, &w->spec->kernel[1], w->normed, count, w->a, n);
        }
        mo_vision_rows(w, count, add_positions, r);
    }
}

/* ---- Rows of embeddings ---- */

static void gelu_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_vision_work *w = ctx;
    const int64_t n = w->spec->width * w->spec->merge * w->spec->merge;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        mo_vision_activate(w, MO_VISION_GELU, w->a + i * n, n, NULL);
    }
}

void mo_vision_merge(const mo_vision_work *w, const mo_vision_merger *m, float *in, int64_t first,
                     int64_t count, float *out, int which)
{
    const int64_t row = mo_vision_row(w->spec);
    mo_vision_work *shared = (mo_vision_work *)w; /* a phase's context is no constant */
    mo_vision_product(w, &m->fc1, in, count, w->a, m->fc1.w.rows);
    mo_vision_rows(w, count, gelu_rows, shared);
    mo_vision_product(w, &m->fc2, w->a, count, out + first * row + which * w->spec->out, row);
}

static void post_norm(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run *r = ctx;
    const int64_t n = r->w.spec->width;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        mo_vision_norm_row(&r->w, &r->w.spec->post, r->w.normed + t * n, r->w.x + (r->first + t) * n);
    }
}

static void finish_qwen(run *r)
{
    const mo_vision_work *w = &r->w;
    const int64_t block = w->spec->merge * w->spec->merge;
    for (r->first = 0; r->first < w->patches; r->first += w->batch) {
        const int64_t left = w->patches - r->first, count = left < w->batch ? left : w->batch;
        mo_vision_rows(w, count, post_norm, r);
        mo_vision_merge(w, &w->spec->merger, w->normed, r->first / block, count / block, r->out, 0);
    }
}

/* The mean of the block of patches that makes row `row` of the result, and what follows before the projection. */
static void pool_block(const mo_vision_work *w, int64_t row, float *y)
{
    const mo_vision_spec *s = w->spec;
    const mo_kernels *k = w->kernels;
    const int64_t n = s->width, m = s->merge, across = w->columns / m;
    for (int64_t i = 0; i < m * m; i++) {
        const int64_t column = row % across * m + i % m, line = row / across * m + i / m;
        const float *x = w->x + (line * w->columns + column) * n;
        if (i == 0) {
            memcpy(y, x, (size_t)n * sizeof(float));
        } else {
            k->add(y, x, n);
        }
    }
    k->scale(y, 1.0f / (float)(m * m), n);
    k->scale(y, sqrtf((float)n), n);
    for (int64_t i = 0; s->std_bias && i < n; i++) {
        y[i] = (y[i] - s->std_bias[i]) * s->std_scale[i];
    }
    k->rms_norm(y, y, NULL, n, s->eps);
}

static void pool_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run *r = ctx;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        pool_block(&r->w, r->first + t, r->w.normed + t * r->w.spec->width);
    }
}

static void finish_gemma(run *r)
{
    const mo_vision_work *w = &r->w;
    const int64_t rows = w->patches / (w->spec->merge * w->spec->merge), out = w->spec->out;
    for (r->first = 0; r->first < rows; r->first += w->batch) {
        const int64_t left = rows - r->first, count = left < w->batch ? left : w->batch;
        mo_vision_rows(w, count, pool_rows, r);
        mo_vision_product(w, &w->spec->projection, w->normed, count, r->out + r->first * out, out);
    }
}

/* ---- All ---- */

static mo_status fill_angles(const mo_vision_work *w, mo_error *err)
{
    const int64_t quarter = w->spec->head_len / 4;
    const int64_t positions = w->columns > w->rows ? w->columns : w->rows;
    const mo_rope_setup setup = {.n_rot = 2 * quarter, .base = w->spec->rope_base, .factor = 1};
    mo_rope rope;
    mo_status status = mo_rope_prepare(&setup, &rope, err);
    for (int64_t i = 0; i < positions && status == MO_OK; i++) {
        mo_rope_fill(&rope, i, w->c + i * quarter, w->s + i * quarter);
    }
    return status;
}

static void prepare(const mo_encoder *e, const mo_encoder_work *work, int threads, int64_t width,
                    int64_t height, mo_vision_work *w)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    const int64_t block = s->merge * s->merge, batch = work->batch > 0 ? work->batch : MO_VISION_BATCH;
    *w = (mo_vision_work){.spec = s, .kernels = work->kernels, .pool = work->pool, .threads = threads};
    w->columns = width / s->patch;
    w->rows = height / s->patch;
    w->patches = w->columns * w->rows;
    w->batch = (batch + block - 1) / block * block;
    w->batch = w->batch < w->patches ? w->batch : w->patches;
}

int64_t mo_encoder_work_bytes(const mo_encoder *e, const mo_encoder_work *work, int64_t width, int64_t height)
{
    mo_vision_work w;
    prepare(e, work, mo_pool_threads(work->pool), width, height, &w);
    return mo_vision_work_lay(&w, NULL);
}

int64_t mo_encoder_most_bytes(const mo_encoder *e, const mo_resize_rule *rule, int threads)
{
    const mo_encoder_work work = {.pool = NULL};
    const int64_t rows = rule->max_pixels / (rule->align * rule->align);
    mo_vision_work w;
    prepare(e, &work, threads, rows * rule->align, rule->align, &w); /* of one line: the most positions */
    return mo_vision_work_lay(&w, NULL);
}

static mo_status run_layers(run *r, const mo_encoder_work *work, mo_error *err)
{
    const mo_vision_spec *s = r->w.spec;
    for (int n = 0; n < s->layers; n++) {
        mo_vision_layer_run(&r->w, &s->layer[n], r->out);
        if (work->progress && !work->progress(work->user, n + 1, s->layers)) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
    }
    return MO_OK;
}

mo_status mo_encoder_check(const mo_encoder *e, int64_t width, int64_t height, mo_error *err)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    const int64_t align = s->patch * s->merge;
    if (width % align || height % align || width <= 0 || height <= 0) {
        return mo_fail(err, MO_EINVAL,
                       "a picture of %lld x %lld pixels is not resized for an encoder of %lld",
                       (long long)width, (long long)height, (long long)align);
    }
    if (s->projector == MO_PROJECTOR_GEMMA4V && (width / s->patch > s->side || height / s->patch > s->side)) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "a picture of %lld x %lld pixels is too long for the encoder, which has %lld positions a side",
            (long long)width, (long long)height, (long long)s->side);
    }
    return MO_OK;
}

mo_status mo_encoder_run(const mo_encoder *e, const mo_encoder_work *work, const mo_picture *picture,
                         float *out, mo_error *err)
{
    run r = {.picture = picture, .out = out};
    mo_status status = mo_encoder_check(e, picture->width, picture->height, err);
    if (status != MO_OK) {
        return status;
    }
    prepare(e, work, mo_pool_threads(work->pool), picture->width, picture->height, &r.w);
    const int64_t bytes = mo_vision_work_lay(&r.w, NULL);
    uint8_t *memory = mo_host_alloc_huge((size_t)bytes);
    if (!memory) {
        return mo_fail(err, MO_ENOMEM, "no memory to encode a picture: %lld bytes", (long long)bytes);
    }
    mo_vision_work_lay(&r.w, memory);
    mo_host_float_mode();
    status = fill_angles(&r.w, err);
    if (status == MO_OK) {
        embed(&r);
        status = run_layers(&r, work, err);
    }
    if (status == MO_OK) {
        if (r.w.spec->projector == MO_PROJECTOR_GEMMA4V) {
            finish_gemma(&r);
        } else {
            finish_qwen(&r);
        }
        if (!work->kernels->finite(out, mo_encoder_rows(e, picture->width, picture->height) *
                                            mo_vision_row(r.w.spec))) {
            status = mo_fail(err, MO_EFORMAT, "the encoder's result is not finite: its file is damaged");
        }
    }
    mo_host_free_huge(memory, (size_t)bytes);
    return status;
}
