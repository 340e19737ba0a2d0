#include "model/pieces.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "numeric/block.h"

/* Large enough that a disk reaches its rate with a few requests in flight, small enough that the staging
 * buffer is still in the L2 cache when it is rearranged. */
#define PIECE_BYTES ((int64_t)1 << 20)

/* ---- Cutting ---- */

static bool add_piece(mo_pieces *l, mo_load_piece p, int64_t bytes)
{
    if (!mo_array_reserve(&l->list, &l->limit, l->count + 1, sizeof *l->list)) {
        return false;
    }
    l->list[l->count++] = p;
    l->total += (uint64_t)bytes;
    return true;
}

/* Rows of a piece of this matrix: whole groups. */
static int64_t piece_rows(const mo_weights *w, int64_t row_bytes)
{
    const int64_t group = w->interleave ? w->interleave : 1;
    const int64_t rows = PIECE_BYTES / row_bytes / group * group;
    return rows > group ? rows : group;
}

/* Rows of a part of a transposed matrix in the view, and its bytes in the file. */
static int64_t turned_rows(const mo_binding *w)
{
    return w->matrix->rows / w->turns;
}
static int64_t turned_bytes(const mo_binding *w)
{
    return w->matrix->cols * mo_format_row_bytes(w->tensor->format, turned_rows(w));
}

/* Each part is a piece: it is read, then written transposed. */
static bool add_turned(mo_pieces *l, const mo_binding *w, uint8_t *to)
{
    const int64_t rows = turned_rows(w), bytes = turned_bytes(w);
    const int64_t stage = (bytes + 63) / 64 * 64 + rows * (int64_t)sizeof(float);
    for (int64_t part = 0; part < w->turns; part++) {
        const mo_load_piece p = {.binding = w,
                                 .view = w->matrix,
                                 .row = part * rows,
                                 .rows = rows,
                                 .at = w->tensor->offset + w->first + part * w->stride,
                                 .to = to + part * rows * w->matrix->cols * (int64_t)sizeof(float)};
        if (!add_piece(l, p, bytes)) {
            return false;
        }
    }
    l->stage_bytes = stage > l->stage_bytes ? stage : l->stage_bytes;
    return true;
}

bool mo_pieces_add_matrix(mo_pieces *l, const mo_binding *w, int64_t i, uint8_t *to)
{
    if (w->turns) {
        return add_turned(l, w, to);
    }
    const mo_weights *view = mo_binding_matrix(w, i);
    const int64_t row_bytes = mo_format_row_bytes(w->tensor->format, view->cols);
    const int64_t step = piece_rows(view, row_bytes);
    for (int64_t row = 0; row < view->rows; row += step) {
        const int64_t rows = view->rows - row < step ? view->rows - row : step;
        const int64_t from = w->rows ? w->rows[row] * row_bytes : w->first + i * w->stride + row * row_bytes;
        const mo_load_piece p = {.binding = w,
                                 .view = view,
                                 .row = row,
                                 .rows = rows,
                                 .at = w->tensor->offset + from,
                                 .to = to ? to + row * row_bytes : NULL};
        if (!add_piece(l, p, rows * row_bytes)) {
            return false;
        }
        if (to && view->interleave && rows * row_bytes > l->stage_bytes) {
            l->stage_bytes = rows * row_bytes;
        }
    }
    return true;
}

bool mo_pieces_add_vector(mo_pieces *l, const mo_binding *w, uint8_t *to)
{
    const mo_load_piece p = {.binding = w, .at = w->tensor->offset, .to = to};
    return add_piece(l, p, w->tensor->bytes);
}

static int by_place(const void *left, const void *right)
{
    const mo_load_piece *a = left, *b = right;
    const int part_a = a->binding->tensor->part, part_b = b->binding->tensor->part;
    return part_a != part_b ? (part_a > part_b) - (part_a < part_b) : (a->at > b->at) - (a->at < b->at);
}

/* ---- Reading ---- */

typedef struct reader {
    const mo_pieces *pieces;
    const mo_pieces_source *source;
    int64_t stage_bytes;
    uint8_t **stages; /* one per thread */

    _Atomic uint64_t done;
    _Atomic bool stop;   /* a failure, or cancelled by the caller */
    _Atomic bool failed; /* the thread that sets it first writes error */
    bool cancelled;      /* the calling thread's */
    mo_error error;
} reader;

/* Reads rows of a matrix in the file's layout; consecutive rows at once. */
static mo_status read_rows(const reader *l, const mo_load_piece *p, uint8_t *to, mo_error *err)
{
    const mo_binding *w = p->binding;
    const mo_input *input = l->source->inputs[w->tensor->part];
    const int64_t row_bytes = mo_format_row_bytes(w->tensor->format, p->view->cols);
    mo_status status = MO_OK;
    if (!w->rows) {
        return mo_input_read_at(input, to, (size_t)(p->rows * row_bytes), (uint64_t)p->at, err);
    }
    for (int64_t r = 0, run; r < p->rows && status == MO_OK; r += run) {
        const int32_t *order = w->rows + p->row + r;
        for (run = 1; r + run < p->rows && order[run] == order[run - 1] + 1; run++) {
        }
        status = mo_input_read_at(input, to + r * row_bytes, (size_t)(run * row_bytes),
                                  (uint64_t)(w->tensor->offset + order[0] * row_bytes), err);
    }
    return status;
}

static mo_status load_turned(const reader *l, const mo_load_piece *p, uint8_t *stage, mo_error *err)
{
    const mo_binding *w = p->binding;
    const mo_format *f = w->tensor->format;
    const int64_t bytes = turned_bytes(w), cols = p->view->cols, row_bytes = bytes / cols;
    float *row = (float *)(void *)(stage + (bytes + 63) / 64 * 64), *out = (float *)(void *)p->to;
    mo_status status =
        mo_input_read_at(l->source->inputs[w->tensor->part], stage, (size_t)bytes, (uint64_t)p->at, err);
    if (status == MO_OK) {
        status = mo_format_check(f->type, stage, bytes, err);
    }
    for (int64_t i = 0; status == MO_OK && i < cols; i++) {
        mo_row_dequantize(f->type, stage + i * row_bytes, p->rows, row);
        for (int64_t r = 0; r < p->rows; r++) {
            out[r * cols + i] = row[r];
        }
    }
    return status;
}

static mo_status load_matrix(const reader *l, const mo_load_piece *p, uint8_t *stage, mo_error *err)
{
    const mo_weights *view = p->view;
    if (p->binding->turns) {
        return load_turned(l, p, stage, err);
    }
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(view->type), view->cols);
    const int64_t bytes = p->rows * row_bytes;
    if (!p->to) {
        return mo_format_check(view->type, view->data + p->row * row_bytes, bytes, err);
    }
    uint8_t *raw = view->interleave ? stage : p->to;
    mo_status status = read_rows(l, p, raw, err);
    if (status == MO_OK) {
        status = mo_format_check(view->type, raw, bytes, err);
    }
    if (status == MO_OK && view->interleave) {
        const mo_weights part = {.data = raw, .type = view->type, .rows = p->rows, .cols = view->cols};
        mo_weights_interleave(&part, view->interleave, p->to);
    }
    return status;
}

/* Transposes the file's [taps, n] to [taps][n]. */
static mo_status transpose(float *values, int64_t taps, int64_t n, mo_error *err)
{
    float *copy = malloc((size_t)(taps * n) * sizeof *copy);
    if (!copy) {
        return mo_fail(err, MO_ENOMEM, "out of memory while rearranging it; free some and try again");
    }
    memcpy(copy, values, (size_t)(taps * n) * sizeof *copy);
    for (int64_t t = 0; t < taps; t++) {
        for (int64_t i = 0; i < n; i++) {
            values[t * n + i] = copy[i * taps + t];
        }
    }
    free(copy);
    return MO_OK;
}

/* Reads integers into the memory of the floats. */
static mo_status load_numbers(const mo_load_piece *p, mo_error *err)
{
    const mo_gguf_tensor *t = p->binding->tensor;
    float *values = (float *)(void *)p->to;
    for (int64_t i = 0; i < t->values; i++) {
        int32_t number;
        memcpy(&number, &values[i], sizeof number);
        if (number < 0 || number >= p->binding->below) {
            return mo_fail(
                err, MO_EFORMAT,
                "number %lld is %d, outside 0 to %lld; the file is damaged or was converted incorrectly, "
                "download it again",
                (long long)i, number, (long long)p->binding->below - 1);
        }
        values[i] = (float)number;
    }
    return MO_OK;
}

static mo_status load_vector(const reader *l, const mo_load_piece *p, uint8_t *stage, mo_error *err)
{
    const mo_gguf_tensor *t = p->binding->tensor;
    const mo_format *f = t->format;
    const mo_input *input = l->source->inputs[t->part];
    float *values = (float *)(void *)p->to;
    mo_status status = MO_OK;
    const bool same = f->type == MO_F32 || f->type == MO_I32; /* bytes */
    if (same) {
        status = mo_input_read_at(input, values, (size_t)t->bytes, (uint64_t)t->offset, err);
    }
    if (status == MO_OK && f->type == MO_I32) {
        return load_numbers(p, err);
    }
    const int64_t step = l->stage_bytes / f->block_bytes * f->block_bytes;
    for (int64_t at = 0; !same && at < t->bytes && status == MO_OK; at += step) {
        const int64_t bytes = t->bytes - at < step ? t->bytes - at : step;
        status = mo_input_read_at(input, stage, (size_t)bytes, (uint64_t)(t->offset + at), err);
        if (status == MO_OK) {
            status = mo_format_check(f->type, stage, bytes, err);
        }
        if (status == MO_OK) {
            mo_row_dequantize(f->type, stage, bytes / f->block_bytes * f->block_values,
                              values + at / f->block_bytes * f->block_values);
        }
    }
    for (int64_t i = 0; status == MO_OK && p->binding->times != 0.0f && i < t->values; i++) {
        values[i] *= p->binding->times;
    }
    if (status == MO_OK && p->binding->taps) {
        status = transpose(values, p->binding->taps, t->values / p->binding->taps, err);
    }
    return status;
}

/* The calling thread is thread 0 of the pool; only it calls the caller's functions. */
static void report(reader *l)
{
    if (l->source->progress && !l->cancelled &&
        !l->source->progress(l->source->user, (int64_t)atomic_load(&l->done), (int64_t)l->pieces->total)) {
        l->cancelled = true;
        atomic_store(&l->stop, true);
    }
}

static int64_t piece_bytes(const mo_load_piece *p)
{
    const mo_binding *w = p->binding;
    return !p->view   ? w->tensor->bytes
           : w->turns ? turned_bytes(w)
                      : p->rows * mo_format_row_bytes(w->tensor->format, p->view->cols);
}

static void load_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    reader *l = ctx;
    for (int64_t i = begin; i < end && !atomic_load(&l->stop); i++) {
        const mo_load_piece *p = &l->pieces->list[i];
        mo_error err = {0};
        const mo_status status =
            p->view ? load_matrix(l, p, l->stages[thread], &err) : load_vector(l, p, l->stages[thread], &err);
        if (status != MO_OK) {
            mo_fail_prefix(&err, status, "tensor %s", p->binding->tensor->name);
            if (!atomic_exchange(&l->failed, true)) {
                l->error = err;
            }
            atomic_store(&l->stop, true);
            return;
        }
        atomic_fetch_add(&l->done, (uint64_t)piece_bytes(p));
        if (thread == 0) {
            report(l);
        }
    }
}

static mo_status alloc_stages(reader *l, int threads, mo_error *err)
{
    bool good = true;
    l->stages = calloc((size_t)threads, sizeof *l->stages);
    for (int i = 0; l->stages && i < threads; i++) {
        l->stages[i] = malloc((size_t)l->stage_bytes);
        good &= l->stages[i] != NULL;
    }
    return l->stages && good
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "%s: out of memory while loading the model; free some and try again",
                         l->source->path);
}

static mo_status read_all(reader *l, mo_error *err)
{
    for (int i = 0; i < l->source->parts; i++) {
        posix_fadvise(mo_input_descriptor(l->source->inputs[i]), 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    report(l);
    if (l->source->pool) {
        mo_pool_run(l->source->pool, (int64_t)l->pieces->count, 1, load_pieces, l);
    } else {
        load_pieces(l, 0, (int64_t)l->pieces->count, 0);
    }
    if (!atomic_load(&l->failed)) {
        report(l);
    }
    if (atomic_load(&l->failed)) {
        return mo_fail(err, l->error.status, "%s", l->error.detail);
    }
    return l->cancelled ? mo_fail(err, MO_ECANCELLED, "%s: loading was cancelled", l->source->path) : MO_OK;
}

mo_status mo_pieces_read(mo_pieces *p, const mo_pieces_source *source, mo_error *err)
{
    const int threads = source->pool ? mo_pool_threads(source->pool) : 1;
    reader l = {.pieces = p,
                .source = source,
                .stage_bytes = p->stage_bytes < PIECE_BYTES ? PIECE_BYTES : p->stage_bytes};
    mo_status status = alloc_stages(&l, threads, err);
    if (status == MO_OK) {
        if (p->count > 1) {
            qsort(p->list, p->count, sizeof *p->list, by_place);
        }
        status = read_all(&l, err);
    }
    for (int i = 0; l.stages && i < threads; i++) {
        free(l.stages[i]);
    }
    free(l.stages);
    return status;
}

void mo_pieces_free(mo_pieces *p)
{
    free(p->list);
    *p = (mo_pieces){0};
}
