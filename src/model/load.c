/* A model's tensors lie in one region: matrices one after another, each on a line of its own, then vectors.
 * What is to be read is cut into pieces of some MiB, sorted by their place in the file, and claimed by the
 * pool's threads in that order, so that the disk sees one nearly sequential stream with several requests
 * under way. A piece holds whole groups of rows, so that it can be rearranged by itself. */
#include "model/load.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/host.h"
#include "base/input.h"
#include "base/log.h"
#include "base/status.h"
#include "numeric/block.h"

/* Large enough that a disk reaches its rate with a few requests under way, small enough that the copy in the
 * staging buffer is still in the second-level cache when it is rearranged. */
#define PIECE_BYTES ((int64_t)1 << 20)
#define LINE_BYTES  64

typedef struct mapping {
    uint8_t *data;
    size_t bytes;
} mapping;

struct mo_checkpoint {
    mo_gguf *gguf;
    mo_arena *arena;
    mo_model_spec spec;
    char *path; /* in the arena */
    uint8_t *region;
    size_t region_bytes;
    mapping *maps; /* of each part, in the arena; NULL when the file was read */
    mo_home *homes;
    size_t home_count;
    mo_checkpoint_bytes bytes;
    uint64_t token_bytes;
};

/* One read of the file. */
typedef struct piece {
    const mo_binding *binding;
    const mo_weights *view; /* NULL: a vector */
    int64_t row, rows;      /* of the view */
    int64_t at;             /* in its file, for the order */
    uint8_t *to;
} piece;

typedef struct loader {
    mo_checkpoint *model;
    const mo_load_options *options;
    mo_binder binder;
    mo_input **inputs; /* one for each part */
    piece *pieces;
    size_t count, room;
    uint64_t total; /* bytes of all pieces */
    int64_t stage_bytes;
    uint8_t **stages; /* one for each thread */

    _Atomic uint64_t done;
    _Atomic bool stop;   /* something failed, or the caller has had enough */
    _Atomic bool failed; /* who sets it first writes error */
    bool cancelled;      /* the calling thread's */
    mo_error error;
} loader;

static int64_t aligned(int64_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static int64_t view_bytes(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

static mo_weights *matrix_at(const mo_binding *w, int64_t i)
{
    return (mo_weights *)((uint8_t *)w->matrix + (size_t)i * w->step);
}

static const float **vector_at(const mo_binding *w, int64_t i)
{
    return (const float **)((uint8_t *)w->vector + (size_t)i * w->step);
}

/* A mapped matrix stays where it is, unless its rows must be put in order. */
static bool stays(const loader *l, const mo_binding *w)
{
    return l->options->map && w->matrix && !w->rows;
}

/* Which layer a matrix belongs to; -1: none. Descriptions of layers are one array, those of bricks belong to
 * the layer's experts. */
static int layer_of(const loader *l, const mo_binding *w)
{
    const mo_model_spec *f = &l->model->spec;
    const uintptr_t from = (uintptr_t)f->layers, at = (uintptr_t)(w->moe ? (const void *)w->moe : w->matrix);
    const uintptr_t layer = (at - from) / sizeof(mo_layer);
    return at >= from && layer < (uintptr_t)f->layer_count ? (int)layer : -1;
}

/* Does the matrix stay on disk? */
static bool left(const loader *l, const mo_binding *w)
{
    const mo_load_options *o = l->options;
    if (!w->matrix || w->rows) {
        return false;
    }
    switch (w->place) {
    case MO_PLACE_EXPERT: return o->leave_experts || o->describe;
    case MO_PLACE_TABLE: return (o->leave_table || o->describe) && !l->model->spec.tied;
    case MO_PLACE_VECTOR: return false;
    case MO_PLACE_CORE: break;
    }
    const int n = layer_of(l, w);
    return n >= 0 && w->matrix != &l->model->spec.layers[n].moe.router.logits.w &&
           (o->describe || (o->leave_layer && o->leave_layer[n]));
}

static mo_status no_memory(const loader *l, mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "%s: no memory for loading the model; free some and try again",
                   l->model->path);
}

/* ---- Pieces ---- */

static bool add_piece(loader *l, piece p, int64_t bytes)
{
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 1024;
        piece *grown = realloc(l->pieces, room * sizeof *grown);
        if (!grown) {
            return false;
        }
        l->pieces = grown;
        l->room = room;
    }
    l->pieces[l->count++] = p;
    l->total += (uint64_t)bytes;
    return true;
}

/* How many rows a piece of this matrix has: whole groups. */
static int64_t piece_rows(const mo_weights *w, int64_t row_bytes)
{
    const int64_t group = w->interleave ? w->interleave : 1;
    const int64_t rows = PIECE_BYTES / row_bytes / group * group;
    return rows > group ? rows : group;
}

/* Cuts one matrix whose bytes go to `to` (NULL: it stays mapped, and is only checked). */
static bool cut_matrix(loader *l, const mo_binding *w, int64_t i, uint8_t *to)
{
    const mo_weights *view = matrix_at(w, i);
    const int64_t row_bytes = mo_format_row_bytes(w->tensor->format, view->cols);
    const int64_t step = piece_rows(view, row_bytes);
    for (int64_t row = 0; row < view->rows; row += step) {
        const int64_t rows = view->rows - row < step ? view->rows - row : step;
        const int64_t from = w->rows ? w->rows[row] * row_bytes : w->first + i * w->stride + row * row_bytes;
        const piece p = {.binding = w,
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

static int by_place(const void *left, const void *right)
{
    const piece *a = left, *b = right;
    const int part_a = a->binding->tensor->part, part_b = b->binding->tensor->part;
    return part_a != part_b ? (part_a > part_b) - (part_a < part_b) : (a->at > b->at) - (a->at < b->at);
}

/* ---- Layout ---- */

/* Wishes for vectors in the order of their tensors, so that those for the same tensor stand together. */
static int by_tensor(const void *left, const void *right)
{
    const mo_binding *a = *(const mo_binding *const *)left, *b = *(const mo_binding *const *)right;
    return a->tensor != b->tensor ? (a->tensor > b->tensor) - (a->tensor < b->tensor)
                                  : (a->taps > b->taps) - (a->taps < b->taps);
}

static void point(const mo_binding *w, const float *values)
{
    for (int64_t i = 0; i < w->count; i++) {
        *vector_at(w, i) = values + w->first + i * w->stride;
    }
}

/* Places matrices that are read; with a region, sets their pointers and cuts them. Returns the bytes used, or
 * -1 when memory is out. */
static int64_t place_matrices(loader *l, uint8_t *region)
{
    int64_t used = 0;
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; w->matrix && !stays(l, w) && !left(l, w) && i < w->count; i++) {
            mo_weights *view = matrix_at(w, i);
            if (region) {
                const bool grouped = w->place != MO_PLACE_TABLE && mo_weights_units(view->type);
                view->interleave = grouped && !l->options->map ? l->options->interleave : 0;
                view->data = region + used;
                if (!cut_matrix(l, w, i, region + used)) {
                    return -1;
                }
            }
            used += aligned(view_bytes(view));
        }
    }
    return used;
}

static int64_t place_vectors(loader *l, const mo_binding *const *order, size_t count, uint8_t *region)
{
    int64_t used = 0, at = 0;
    for (size_t n = 0; n < count; n++) {
        const mo_binding *w = order[n];
        if (n == 0 || by_tensor(&order[n - 1], &order[n]) != 0) {
            at = used;
            used += aligned(w->tensor->values * (int64_t)sizeof(float));
            const piece p = {.binding = w, .at = w->tensor->offset, .to = region ? region + at : NULL};
            if (region && !add_piece(l, p, w->tensor->bytes)) {
                return -1;
            }
        }
        if (region) {
            point(w, (const float *)(const void *)(region + at));
        }
    }
    return used;
}

/* The region, or a sentence that says what it would take. */
static mo_status take_region(loader *l, int64_t bytes, mo_error *err)
{
    mo_machine_info machine;
    mo_machine_describe(&machine, sizeof machine);
    const double gib = 1024.0 * 1024.0 * 1024.0;
    if (machine.ram_available_bytes && (uint64_t)bytes > machine.ram_available_bytes) {
        return mo_fail(err, MO_ENOMEM,
                       "%s: its weights take %.1f GiB and %.1f GiB of memory can be had; free some, choose a "
                       "smaller quantization, or map the file",
                       l->model->path, (double)bytes / gib, (double)machine.ram_available_bytes / gib);
    }
    l->model->region = mo_host_alloc_huge((size_t)bytes);
    l->model->region_bytes = (size_t)bytes;
    return l->model->region
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "%s: %.1f GiB for its weights could not be had; free some memory",
                         l->model->path, (double)bytes / gib);
}

static mo_status lay_out(loader *l, mo_error *err)
{
    const mo_binder *b = &l->binder;
    const mo_binding **vectors = malloc((b->count + 1) * sizeof(mo_binding *));
    size_t count = 0;
    if (!vectors) {
        return no_memory(l, err);
    }
    for (size_t n = 0; n < b->count; n++) {
        if (b->bindings[n].vector) {
            vectors[count++] = &b->bindings[n];
        }
    }
    qsort(vectors, count, sizeof(mo_binding *), by_tensor);
    const int64_t matrices = place_matrices(l, NULL), floats = place_vectors(l, vectors, count, NULL);
    if (l->options->describe) {
        l->model->bytes.vectors = (uint64_t)floats;
        free(vectors);
        return MO_OK;
    }
    mo_status status = take_region(l, matrices + floats + LINE_BYTES, err);
    uint8_t *region = l->model->region;
    if (status == MO_OK &&
        (place_matrices(l, region) < 0 || place_vectors(l, vectors, count, region + matrices) < 0)) {
        status = no_memory(l, err);
    }
    free(vectors);
    return status;
}

/* ---- What stays on disk ---- */

/* Experts before layers before the embedding; the matrices of a brick in the order they were bound in. */
static int by_brick(const void *left_home, const void *right_home)
{
    const mo_home *a = left_home, *b = right_home;
    const int rank_a = a->expert >= 0 ? 0 : a->layer >= 0 ? 1 : 2;
    const int rank_b = b->expert >= 0 ? 0 : b->layer >= 0 ? 1 : 2;
    if (rank_a != rank_b) {
        return rank_a - rank_b;
    }
    if (a->layer != b->layer) {
        return a->layer - b->layer;
    }
    if (a->expert != b->expert) {
        return a->expert - b->expert;
    }
    return (a->matrix > b->matrix) - (a->matrix < b->matrix);
}

static mo_status note_homes(loader *l, mo_error *err)
{
    mo_checkpoint *m = l->model;
    size_t count = 0;
    for (size_t n = 0; n < l->binder.count; n++) {
        count += left(l, &l->binder.bindings[n]) ? (size_t)l->binder.bindings[n].count : 0;
    }
    m->homes = mo_arena_array(m->arena, count + 1, sizeof *m->homes);
    if (!m->homes) {
        return no_memory(l, err);
    }
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; left(l, w) && i < w->count; i++) {
            mo_weights *view = matrix_at(w, i);
            const mo_layer *layer = w->moe ? &m->spec.layers[layer_of(l, w)] : NULL;
            const int64_t expert =
                layer ? ((uint8_t *)view - (uint8_t *)layer->moe.bricks) / (int64_t)sizeof(mo_brick) : -1;
            m->homes[m->home_count++] = (mo_home){.matrix = view,
                                                  .layer = layer_of(l, w),
                                                  .expert = (int32_t)expert,
                                                  .part = w->tensor->part,
                                                  .offset = w->tensor->offset + w->first + i * w->stride,
                                                  .bytes = view_bytes(view)};
        }
    }
    if (m->home_count > 1) {
        qsort(m->homes, m->home_count, sizeof *m->homes, by_brick);
    }
    return MO_OK;
}

/* ---- Mapping ---- */

static mo_status map_part(loader *l, int part, mo_error *err)
{
    const mo_input *input = l->inputs[part];
    mapping *m = &l->model->maps[part];
    const int64_t bytes = mo_gguf_part_bytes(l->model->gguf, part);
    if (mo_input_bytes(input) < (uint64_t)bytes) {
        return mo_fail(err, MO_EFORMAT, "%s: the file became shorter while it was opened; fetch it again",
                       mo_input_path(input));
    }
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, mo_input_descriptor(input), 0);
    if (data == MAP_FAILED) {
        return mo_fail(err, MO_ENOMEM,
                       "%s: the file could not be mapped; its file system may not allow it, so load it "
                       "without mapping",
                       mo_input_path(input));
    }
    *m = (mapping){.data = data, .bytes = (size_t)bytes};
    return MO_OK;
}

/* What every token reads is wanted soon; experts come when they are routed to. */
static void hint(const mapping *m, const mo_gguf_tensor *t)
{
    const int64_t page = sysconf(_SC_PAGESIZE), from = t->offset / page * page;
    madvise(m->data + from, (size_t)(t->offset + t->bytes - from), MADV_WILLNEED);
}

static mo_status map_matrices(loader *l, mo_error *err)
{
    const int parts = mo_gguf_parts(l->model->gguf);
    mo_status status = MO_OK;
    l->model->maps = mo_arena_array(l->model->arena, (size_t)parts, sizeof *l->model->maps);
    if (!l->model->maps) {
        return no_memory(l, err);
    }
    for (int i = 0; i < parts && status == MO_OK; i++) {
        status = map_part(l, i, err);
    }
    for (size_t n = 0; n < l->binder.count && status == MO_OK; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        const mapping *m = &l->model->maps[w->tensor->part];
        if (!stays(l, w)) {
            continue;
        }
        if (w->place == MO_PLACE_CORE) {
            hint(m, w->tensor);
        }
        for (int64_t i = 0; i < w->count; i++) {
            matrix_at(w, i)->data = m->data + w->tensor->offset + w->first + i * w->stride;
            if (w->tensor->format->type == MO_MXFP4 && !cut_matrix(l, w, i, NULL)) {
                return no_memory(l, err);
            }
        }
    }
    return status;
}

/* ---- Reading ---- */

/* Rows of a matrix, in the file's layout. Rows that follow each other in the file are read at once. */
static mo_status read_rows(const loader *l, const piece *p, uint8_t *to, mo_error *err)
{
    const mo_binding *w = p->binding;
    const mo_input *input = l->inputs[w->tensor->part];
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

static mo_status load_matrix(const loader *l, const piece *p, uint8_t *stage, mo_error *err)
{
    const mo_weights *view = p->view;
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

/* [taps, n] as the file has it becomes [taps][n]. */
static mo_status transpose(float *values, int64_t taps, int64_t n, mo_error *err)
{
    float *copy = malloc((size_t)(taps * n) * sizeof *copy);
    if (!copy) {
        return mo_fail(err, MO_ENOMEM, "no memory for rearranging it; free some and try again");
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

static mo_status load_vector(const loader *l, const piece *p, uint8_t *stage, mo_error *err)
{
    const mo_gguf_tensor *t = p->binding->tensor;
    const mo_format *f = t->format;
    const mo_input *input = l->inputs[t->part];
    float *values = (float *)(void *)p->to;
    mo_status status = MO_OK;
    if (f->type == MO_F32) {
        status = mo_input_read_at(input, values, (size_t)t->bytes, (uint64_t)t->offset, err);
    }
    const int64_t step = l->stage_bytes / f->block_bytes * f->block_bytes;
    for (int64_t at = 0; f->type != MO_F32 && at < t->bytes && status == MO_OK; at += step) {
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
    if (status == MO_OK && p->binding->taps) {
        status = transpose(values, p->binding->taps, t->values / p->binding->taps, err);
    }
    return status;
}

/* The calling thread has number 0 in the pool; it alone talks to the caller. */
static void report(loader *l)
{
    if (l->options->progress && !l->cancelled &&
        !l->options->progress(l->options->user, (int64_t)atomic_load(&l->done), (int64_t)l->total)) {
        l->cancelled = true;
        atomic_store(&l->stop, true);
    }
}

static void load_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    loader *l = ctx;
    for (int64_t i = begin; i < end && !atomic_load(&l->stop); i++) {
        const piece *p = &l->pieces[i];
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
        const int64_t bytes = p->view
                                  ? p->rows * mo_format_row_bytes(p->binding->tensor->format, p->view->cols)
                                  : p->binding->tensor->bytes;
        atomic_fetch_add(&l->done, (uint64_t)bytes);
        if (thread == 0) {
            report(l);
        }
    }
}

static mo_status take_stages(loader *l, mo_error *err)
{
    const int threads = l->options->pool ? mo_pool_threads(l->options->pool) : 1;
    if (l->stage_bytes < PIECE_BYTES) {
        l->stage_bytes = PIECE_BYTES;
    }
    l->stages = calloc((size_t)threads, sizeof *l->stages);
    for (int i = 0; l->stages && i < threads; i++) {
        l->stages[i] = malloc((size_t)l->stage_bytes);
        if (!l->stages[i]) {
            return no_memory(l, err);
        }
    }
    return l->stages ? MO_OK : no_memory(l, err);
}

static mo_status read_all(loader *l, mo_error *err)
{
    mo_status status = take_stages(l, err);
    if (status != MO_OK) {
        return status;
    }
    if (l->count > 1) {
        qsort(l->pieces, l->count, sizeof *l->pieces, by_place);
    }
    for (int i = 0; i < mo_gguf_parts(l->model->gguf); i++) {
        posix_fadvise(mo_input_descriptor(l->inputs[i]), 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    report(l);
    if (l->options->pool) {
        mo_pool_run(l->options->pool, (int64_t)l->count, 1, load_pieces, l);
    } else {
        load_pieces(l, 0, (int64_t)l->count, 0);
    }
    if (!atomic_load(&l->failed)) {
        report(l);
    }
    if (atomic_load(&l->failed)) {
        return mo_fail(err, l->error.status, "%s", l->error.detail);
    }
    return l->cancelled
               ? mo_fail(err, MO_ECANCELLED, "%s: loading was stopped before it was done", l->model->path)
               : MO_OK;
}

/* ---- Counting ---- */

/* What the weights take in memory, and what of it one token reads: the experts' part is divided once, so that
 * it does not depend on how their tensors are cut. */
typedef struct scale {
    mo_checkpoint *model;
    uint64_t routed; /* bytes of experts, each times how many of them a token uses */
    uint64_t experts;
} scale;

static void count_bytes(scale *s, const mo_binding *w, uint64_t bytes, bool held)
{
    mo_checkpoint *m = s->model;
    switch (w->place) {
    case MO_PLACE_CORE: m->bytes.core += held ? bytes : 0; break;
    case MO_PLACE_EXPERT: m->bytes.experts += held ? bytes : 0; break;
    case MO_PLACE_VECTOR: m->bytes.vectors += bytes; break;
    case MO_PLACE_TABLE: m->bytes.table += held ? bytes : 0; return; /* a token reads one row */
    }
    if (w->moe) {
        s->routed += bytes * (uint64_t)w->moe->used;
        s->experts = (uint64_t)w->moe->experts; /* the same in every layer: it is one key */
    } else {
        m->token_bytes += bytes;
    }
}

/* Several bindings may share a vector, which has one piece. */
static void weigh(const loader *l)
{
    mo_checkpoint *m = l->model;
    scale s = {.model = m, .experts = 1};
    const mo_weights *embed = &m->spec.embed;
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; w->matrix && i < w->count; i++) {
            count_bytes(&s, w, (uint64_t)view_bytes(matrix_at(w, i)), !left(l, w));
        }
    }
    for (size_t n = 0; n < l->count; n++) {
        const mo_binding *w = l->pieces[n].binding;
        if (w->vector) {
            count_bytes(&s, w, (uint64_t)w->tensor->values * sizeof(float), true);
        }
    }
    m->token_bytes += s.routed / s.experts;
    m->token_bytes += (uint64_t)mo_format_row_bytes(mo_format_of(embed->type), embed->cols);
    m->token_bytes += m->spec.tied ? m->bytes.table : 0;
}

/* ---- Models ---- */

static mo_status open_inputs(loader *l, mo_error *err)
{
    const int parts = mo_gguf_parts(l->model->gguf);
    mo_status status = MO_OK;
    l->inputs = calloc((size_t)parts, sizeof(mo_input *));
    if (!l->inputs) {
        return no_memory(l, err);
    }
    for (int i = 0; i < parts && status == MO_OK; i++) {
        status = mo_input_open(mo_gguf_part_path(l->model->gguf, i), &l->inputs[i], err);
    }
    return status;
}

static void loader_free(loader *l)
{
    const int threads = l->options->pool ? mo_pool_threads(l->options->pool) : 1;
    for (int i = 0; l->inputs && i < mo_gguf_parts(l->model->gguf); i++) {
        mo_input_close(l->inputs[i]);
    }
    for (int i = 0; l->stages && i < threads; i++) {
        free(l->stages[i]);
    }
    free(l->inputs);
    free(l->stages);
    free(l->pieces);
    mo_bind_free(&l->binder);
}

static mo_status describe(loader *l, const char *path, mo_error *err)
{
    mo_checkpoint *m = l->model;
    m->arena = mo_arena_create((size_t)1 << 20);
    m->path = m->arena ? mo_arena_text(m->arena, path, strlen(path)) : NULL;
    if (!m->path) {
        return mo_fail(err, MO_ENOMEM, "%s: no memory for opening the model; free some and try again", path);
    }
    const mo_status status = mo_gguf_open(path, &m->gguf, err);
    if (status != MO_OK) {
        return status;
    }
    l->binder = (mo_binder){.gguf = m->gguf, .arena = m->arena, .err = err};
    mo_family_describe(&l->binder, &m->spec);
    return l->binder.status;
}

static mo_status load(loader *l, const char *path, mo_error *err)
{
    mo_checkpoint *m = l->model;
    mo_status status = describe(l, path, err);
    if (status == MO_OK) {
        status = note_homes(l, err);
    }
    if (status == MO_OK && !l->options->describe) {
        status = open_inputs(l, err);
        if (status == MO_OK && l->options->map) {
            status = map_matrices(l, err);
        }
    }
    if (status == MO_OK) {
        status = lay_out(l, err);
    }
    if (status == MO_OK && !l->options->describe) {
        status = read_all(l, err);
    }
    if (status != MO_OK) {
        return status;
    }
    if (m->spec.tied) {
        m->spec.output.w = m->spec.embed;
    }
    weigh(l);
    if (l->options->describe) {
        return MO_OK;
    }
    mo_bind_finish(&l->binder);
    mo_log(MO_LOG_DEBUG, "model", "%s: %zu pieces, %llu bytes read", path, l->count,
           (unsigned long long)atomic_load(&l->done));
    return l->binder.status;
}

mo_status mo_checkpoint_load(const char *path, const mo_load_options *options, mo_checkpoint **out,
                             mo_error *err)
{
    mo_checkpoint *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "%s: no memory for opening the model; free some and try again", path);
    }
    loader l = {.model = m, .options = options};
    const mo_status status = load(&l, path, err);
    loader_free(&l);
    if (status != MO_OK) {
        mo_checkpoint_free(m);
        return status;
    }
    *out = m;
    return MO_OK;
}

void mo_checkpoint_free(mo_checkpoint *model)
{
    if (!model) {
        return;
    }
    for (int i = 0; model->maps && i < mo_gguf_parts(model->gguf); i++) {
        if (model->maps[i].data) {
            munmap(model->maps[i].data, model->maps[i].bytes);
        }
    }
    mo_host_free_huge(model->region, model->region_bytes);
    mo_gguf_close(model->gguf);
    mo_arena_destroy(model->arena);
    free(model);
}

const mo_gguf *mo_checkpoint_gguf(const mo_checkpoint *model)
{
    return model->gguf;
}

const mo_model_spec *mo_checkpoint_spec(const mo_checkpoint *model)
{
    return &model->spec;
}

const mo_home *mo_checkpoint_homes(const mo_checkpoint *model, size_t *count)
{
    *count = model->home_count;
    return model->homes;
}

const char *mo_checkpoint_path(const mo_checkpoint *model)
{
    return model->path;
}

mo_checkpoint_bytes mo_checkpoint_resident(const mo_checkpoint *model)
{
    return model->bytes;
}

uint64_t mo_checkpoint_bytes_per_token(const mo_checkpoint *model)
{
    return model->token_bytes;
}

uint8_t *mo_checkpoint_region(const mo_checkpoint *model, size_t *bytes)
{
    *bytes = model->region_bytes;
    return model->region;
}
