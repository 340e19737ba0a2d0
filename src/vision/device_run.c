/* Device run: see device_run.h. */
#include "vision/device_run.h"

#include <math.h>
#include <stdlib.h>

#include "base/host.h"
#include "base/status.h"
#include "device/dacts.h"
#include "numeric/format.h"
#include "numeric/kinds.h"
#include "numeric/rope.h"
#include "vision/device_work.h"
#include "vision/work.h"

typedef struct run {
    mo_vision_device_work w;
    mo_device *device;
    mo_dstream *stream;
    mo_vision_upload up;
    mo_error *err;
    mo_status status;
} run;

/* ---- Which encoders ---- */

static bool computed(const mo_vision_linear *l, int64_t width)
{
    const bool coded = mo_format_of(l->w.type)->kind == MO_KIND_QUANTIZED;
    return !l->limits_in && !l->limits_out && (!coded || width % 32 == 0);
}

static bool computed_merger(const mo_vision_merger *m)
{
    return computed(&m->fc1, m->fc1.w.cols) && computed(&m->fc2, m->fc2.w.cols);
}

const char *mo_encoder_device_refusal(const mo_encoder *e)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    if (s->projector != MO_PROJECTOR_QWEN3VL) {
        return "devices do not compute encoders of this projector";
    }
    if (s->activation != MO_VISION_GELU) {
        return "devices do not compute its activation";
    }
    bool all = computed_merger(&s->merger);
    for (int i = 0; i < 2; i++) { /* patches have no codes */
        all &= mo_format_of(s->kernel[i].w.type)->kind != MO_KIND_QUANTIZED;
    }
    for (int i = 0; i < s->layers && all; i++) {
        const mo_vision_layer *l = &s->layer[i];
        all = computed(&l->q, s->width) && computed(&l->out, s->width) && computed(&l->up, s->width) &&
              computed(&l->down, s->width) && (l->feature < 0 || computed_merger(&l->deepstack));
    }
    return all ? NULL : "devices do not compute its matrices";
}

/* ---- Ops ---- */

static void launch(run *r, const mo_op *op)
{
    if (r->status == MO_OK) {
        r->status = mo_op_launch(r->stream, op, r->err);
    }
}

static void copy_in(run *r, mo_daddr to, const void *from, int64_t bytes)
{
    if (r->status == MO_OK) {
        r->status = mo_copy_in(r->stream, to, from, (size_t)bytes, r->err);
    }
}

/* Rows of the stream, n values each: y is added (0: nothing), then the norm goes to `to` (x 0: none). */
static void stream(run *r, mo_daddr x, int64_t rows, int64_t n, mo_daddr y, const mo_vision_norm *norm,
                   mo_dacts to)
{
    mo_op op = {.kind = MO_OP_STREAM};
    op.stream = (mo_op_stream){
        .x = x, .tokens = (int32_t)rows, .n = (int32_t)n, .eps = r->w.spec->eps, .y = y, .centered = 1};
    if (norm) {
        op.stream.norm[0] = (mo_op_norm){.weight = mo_vision_upload_floats(&r->up, norm->w, n),
                                         .add = mo_vision_upload_floats(&r->up, norm->bias, n),
                                         .scale = 1.0f,
                                         .out = to};
    }
    launch(r, &op);
}

static void product(run *r, mo_dacts in, int64_t rows, const mo_dmatrix *m, mo_daddr y, int64_t stride)
{
    mo_op op = {.kind = MO_OP_PRODUCT};
    op.product = (mo_op_product){
        .in = in, .tokens = (int32_t)rows, .count = 1, .matrix = {*m}, .y = {y}, .stride = {stride}};
    launch(r, &op);
}

/* to = tanh-GELU of rows of `from`. */
static void activate(run *r, mo_daddr from, int64_t rows, mo_dacts to)
{
    mo_op op = {.kind = MO_OP_ACTIVATE};
    op.activate = (mo_op_activate){.gate = from,
                                   .up = r->w.ones,
                                   .hidden = to,
                                   .rows = (int32_t)rows,
                                   .n = to.cols,
                                   .activation = MO_GEGLU};
    launch(r, &op);
}

static mo_daddr at(mo_daddr base, int64_t floats)
{
    return base + (mo_daddr)(floats * (int64_t)sizeof(float));
}

/* ---- Rows of embeddings ---- */

typedef struct merger {
    mo_dmatrix fc1, fc2;
} merger;

static merger upload_merger(run *r, const mo_vision_merger *m)
{
    return (merger){mo_vision_upload_linear(&r->up, &m->fc1), mo_vision_upload_linear(&r->up, &m->fc2)};
}

/* Joined rows first .. first + count - 1, which are in w.in, to vector `which` of theirs. */
static void merge(run *r, const merger *m, int64_t first, int64_t count, int64_t which)
{
    const mo_vision_device_work *w = &r->w;
    const int64_t joined = m->fc1.cols, row = mo_vision_row(w->spec);
    const mo_dacts hidden = mo_dacts_lay(w->hidden, count, joined);
    product(r, mo_dacts_lay(w->in, count, joined), count, &m->fc1, w->up, joined);
    activate(r, w->up, count, hidden);
    product(r, hidden, count, &m->fc2, at(w->out, first * row + which * w->spec->out), row);
}

/* ---- Layers ---- */

typedef struct layer {
    const mo_vision_layer *l;
    mo_dmatrix q, k, v, out, up, down;
    merger deepstack;
} layer;

static void keys_of(run *r, const layer *l, int64_t first, int64_t count)
{
    const mo_vision_device_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    const int64_t inner = s->heads * s->head_len, half = s->head_len / 2;
    const mo_dacts in = mo_dacts_lay(w->in, count, s->width);
    const mo_daddr q = at(w->q, first * inner);
    mo_op op = {.kind = MO_OP_PRODUCT};
    stream(r, at(w->x, first * s->width), count, s->width, 0, &l->l->ln1, in);
    op.product = (mo_op_product){.in = in,
                                 .tokens = (int32_t)count,
                                 .count = 3,
                                 .matrix = {l->q, l->k, l->v},
                                 .y = {q, w->k, w->v},
                                 .stride = {inner, inner, inner}};
    launch(r, &op);
    op = (mo_op){.kind = MO_OP_HEADS};
    op.heads = (mo_op_heads){.q = q,
                             .k = w->k,
                             .v = w->v,
                             .rope = at(w->rope, first * half),
                             .rope_rows = w->patches,
                             .rope_stride = half,
                             .places = w->places + (mo_daddr)(first * (int64_t)sizeof(mo_dplace)),
                             .tokens = (int32_t)count,
                             .heads = (int32_t)s->heads,
                             .kv_heads = (int32_t)s->heads,
                             .k_len = (int32_t)s->head_len,
                             .v_len = (int32_t)s->head_len,
                             .n_rot = (int32_t)s->head_len,
                             .neox = 1,
                             .kv = MO_KV_F32,
                             .eps = s->eps};
    launch(r, &op);
}

static void attend(run *r, int64_t first, int64_t count, mo_dacts mixed)
{
    const mo_vision_device_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    mo_op op = {.kind = MO_OP_ATTEND};
    op.attend = (mo_op_attend){.q = at(w->q, first * s->heads * s->head_len),
                               .places = w->places + (mo_daddr)(first * (int64_t)sizeof(mo_dplace)),
                               .partial = w->partial,
                               .mixed = mixed,
                               .window = w->patches,
                               .tokens = (int32_t)count,
                               .heads = (int32_t)s->heads,
                               .kv_heads = (int32_t)s->heads,
                               .k_len = (int32_t)s->head_len,
                               .v_len = (int32_t)s->head_len,
                               .kv = MO_KV_F32,
                               .chunks = (int32_t)((w->patches + MO_CHUNK - 1) / MO_CHUNK),
                               .scale = s->scored ? 1.0f / sqrtf((float)s->head_len) : 1.0f};
    launch(r, &op);
}

static void rest_of(run *r, const layer *l, int64_t first, int64_t count)
{
    const mo_vision_device_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    const int64_t n = s->width, block = s->merge * s->merge;
    const mo_daddr x = at(w->x, first * n);
    const mo_dacts in = mo_dacts_lay(w->in, count, n), none = {0};
    const mo_dacts mixed = mo_dacts_lay(w->mixed, count, s->heads * s->head_len);
    const mo_dacts hidden = mo_dacts_lay(w->hidden, count, s->ffn);
    attend(r, first, count, mixed);
    product(r, mixed, count, &l->out, w->y, n);
    stream(r, x, count, n, w->y, &l->l->ln2, in);
    product(r, in, count, &l->up, w->up, s->ffn);
    activate(r, w->up, count, hidden);
    product(r, hidden, count, &l->down, w->y, n);
    stream(r, x, count, n, w->y, NULL, none);
    if (l->l->feature >= 0) {
        stream(r, x, count / block, n * block, 0, &l->l->deepstack.norm,
               mo_dacts_lay(w->in, count / block, n * block));
        merge(r, &l->deepstack, first / block, count / block, 1 + l->l->feature);
    }
}

/* Norms are uploaded by the ops that read them: again for each slice, behind each other, which costs a few kilobytes. */
static void run_layer(run *r, const mo_vision_layer *from)
{
    layer l = {.l = from};
    r->up.used = 0;
    l.q = mo_vision_upload_linear(&r->up, &from->q);
    l.k = mo_vision_upload_linear(&r->up, &from->k);
    l.v = mo_vision_upload_linear(&r->up, &from->v);
    l.out = mo_vision_upload_linear(&r->up, &from->out);
    l.up = mo_vision_upload_linear(&r->up, &from->up);
    l.down = mo_vision_upload_linear(&r->up, &from->down);
    if (from->feature >= 0) {
        l.deepstack = upload_merger(r, &from->deepstack);
    }
    for (int keys = 1; keys >= 0; keys--) {
        for (int64_t first = 0; first < r->w.patches; first += r->w.batch) {
            const int64_t left = r->w.patches - first, count = left < r->w.batch ? left : r->w.batch;
            if (keys) {
                keys_of(r, &l, first, count);
            } else {
                rest_of(r, &l, first, count);
            }
        }
    }
}

/* ---- Before and after ---- */

static void embed(run *r)
{
    const mo_vision_device_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    const int64_t n = s->width, patch = 3 * s->patch * s->patch;
    const mo_dacts none = {0};
    r->up.used = 0;
    const mo_dmatrix kernel[2] = {mo_vision_upload_linear(&r->up, &s->kernel[0]),
                                  mo_vision_upload_linear(&r->up, &s->kernel[1])};
    for (int64_t first = 0; first < w->patches; first += w->batch) {
        const int64_t left = w->patches - first, count = left < w->batch ? left : w->batch;
        const mo_daddr x = at(w->x, first * n);
        mo_dacts in = mo_dacts_lay(w->in, count, patch);
        in.x = at(w->pixels, first * patch);
        product(r, in, count, &kernel[0], x, n);
        product(r, in, count, &kernel[1], w->y, n);
        stream(r, x, count, n, w->y, NULL, none);
        stream(r, x, count, n, at(w->positions, first * n), NULL, none);
    }
}

static void finish(run *r)
{
    const mo_vision_device_work *w = &r->w;
    const int64_t n = w->spec->width, block = w->spec->merge * w->spec->merge;
    r->up.used = 0;
    const merger m = upload_merger(r, &w->spec->merger);
    for (int64_t first = 0; first < w->patches; first += w->batch) {
        const int64_t left = w->patches - first, count = left < w->batch ? left : w->batch;
        stream(r, at(w->x, first * n), count, n, 0, &w->spec->post, mo_dacts_lay(w->in, count, n));
        merge(r, &m, first / block, count / block, 0);
    }
}

/* What the host makes: patches, positions, angles, places. */
typedef struct made {
    float *pixels, *positions, *rope, *ones;
    mo_dplace *places;
    mo_daddr *table;
    mo_dstate state;
} made;

static mo_status fill_angles(const mo_vision_device_work *w, float *rope, mo_error *err)
{
    const int64_t quarter = w->spec->head_len / 4, half = 2 * quarter;
    const mo_rope_setup setup = {.n_rot = half, .base = w->spec->rope_base, .factor = 1};
    mo_rope angles;
    const mo_status status = mo_rope_prepare(&setup, &angles, err);
    for (int64_t i = 0; i < w->patches && status == MO_OK; i++) {
        float *c = rope + i * half, *s = c + w->patches * half;
        int64_t column, row;
        mo_vision_place(w->spec, w->columns, i, &column, &row);
        mo_rope_fill(&angles, row, c, s);
        mo_rope_fill(&angles, column, c + quarter, s + quarter);
    }
    return status;
}

static void send(run *r, const mo_encoder *e, const mo_picture *picture, made *m)
{
    const mo_vision_device_work *w = &r->w;
    const mo_vision_spec *s = w->spec;
    const int64_t patch = 3 * s->patch * s->patch, block = mo_kv_block_bytes(mo_vision_device_cache(s));
    const int64_t widest = s->ffn > s->width ? s->ffn : s->width;
    mo_encoder_patches(e, picture, 0, w->patches, m->pixels);
    for (int64_t i = 0; i < w->patches; i++) {
        int64_t column, row;
        mo_vision_place(s, w->columns, i, &column, &row);
        mo_vision_position(s, w->columns, w->lines, column, row, m->positions + i * s->width);
        m->places[i] = (mo_dplace){
            .layers = w->state, .position = i, .into = (int32_t)i, .ahead = (int32_t)(w->patches - 1 - i)};
    }
    for (int64_t i = 0; i < w->block_count; i++) {
        m->table[i] = w->blocks + (mo_daddr)(i * block);
    }
    for (int64_t i = 0; i < w->batch * widest; i++) {
        m->ones[i] = 1.0f;
    }
    m->state = (mo_dstate){.blocks = w->table, .length = w->block_count, .first = w->blocks, .stride = block};
    r->status = fill_angles(w, m->rope, r->err);
    copy_in(r, w->pixels, m->pixels, w->patches * patch * 4);
    copy_in(r, w->positions, m->positions, w->patches * s->width * 4);
    copy_in(r, w->rope, m->rope, w->patches * s->head_len * 4);
    copy_in(r, w->ones, m->ones, w->batch * widest * 4);
    copy_in(r, w->places, m->places, w->patches * (int64_t)sizeof *m->places);
    copy_in(r, w->table, m->table, w->block_count * (int64_t)sizeof *m->table);
    copy_in(r, w->state, &m->state, (int64_t)sizeof m->state);
}

static bool make(const mo_vision_device_work *w, made *m)
{
    const mo_vision_spec *s = w->spec;
    const int64_t widest = s->ffn > s->width ? s->ffn : s->width;
    m->pixels = calloc((size_t)(w->patches * 3 * s->patch * s->patch), sizeof *m->pixels);
    m->positions = calloc((size_t)(w->patches * s->width), sizeof *m->positions);
    m->rope = calloc((size_t)(w->patches * s->head_len), sizeof *m->rope);
    m->ones = calloc((size_t)(w->batch * widest), sizeof *m->ones);
    m->places = calloc((size_t)w->patches, sizeof *m->places);
    m->table = calloc((size_t)w->block_count, sizeof *m->table);
    return m->pixels && m->positions && m->rope && m->ones && m->places && m->table;
}

static void drop(made *m)
{
    free(m->pixels);
    free(m->positions);
    free(m->rope);
    free(m->ones);
    free(m->places);
    free(m->table);
}

/* ---- All ---- */

static void prepare(const mo_encoder *e, int64_t width, int64_t height, mo_vision_device_work *w)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    const int64_t block = s->merge * s->merge;
    *w = (mo_vision_device_work){.spec = s, .columns = width / s->patch, .lines = height / s->patch};
    w->patches = w->columns * w->lines;
    w->rows = w->patches / block;
    w->batch = (MO_VISION_BATCH + block - 1) / block * block;
    w->batch = w->batch < w->patches ? w->batch : w->patches;
}

static int64_t linear_bytes(const mo_vision_linear *l)
{
    const int64_t bytes = l->w.rows * mo_format_row_bytes(mo_format_of(l->w.type), l->w.cols);
    return bytes + l->w.rows * (int64_t)sizeof(float) + 2 * MO_OP_ALIGN;
}

static int64_t merger_bytes(const mo_vision_merger *m)
{
    return linear_bytes(&m->fc1) + linear_bytes(&m->fc2);
}

/* The largest of what passes, with all the norms of slices. */
static int64_t weight_bytes(const mo_vision_device_work *w)
{
    const mo_vision_spec *s = w->spec;
    const int64_t block = s->merge * s->merge, slices = (w->patches + w->batch - 1) / w->batch;
    int64_t most = linear_bytes(&s->kernel[0]) + linear_bytes(&s->kernel[1]);
    const int64_t last = merger_bytes(&s->merger);
    most = last > most ? last : most;
    for (int i = 0; i < s->layers; i++) {
        const mo_vision_layer *l = &s->layer[i];
        int64_t bytes = linear_bytes(&l->q) + linear_bytes(&l->k) + linear_bytes(&l->v) +
                        linear_bytes(&l->out) + linear_bytes(&l->up) + linear_bytes(&l->down);
        bytes += l->feature >= 0 ? merger_bytes(&l->deepstack) : 0;
        most = bytes > most ? bytes : most;
    }
    return most + slices * (2 * (2 + block) * s->width * (int64_t)sizeof(float) + 6 * MO_OP_ALIGN);
}

int64_t mo_encoder_device_bytes(const mo_encoder *e, int64_t width, int64_t height)
{
    mo_vision_device_work w;
    prepare(e, width, height, &w);
    return mo_vision_device_lay(&w, 0) + weight_bytes(&w);
}

static void run_layers(run *r, const mo_encoder_work *work)
{
    const mo_vision_spec *s = r->w.spec;
    for (int n = 0; n < s->layers && r->status == MO_OK; n++) {
        run_layer(r, &s->layer[n]);
        if (r->status == MO_OK && r->up.status != MO_OK) {
            r->status = r->up.status;
        }
        if (r->status == MO_OK) {
            r->status = mo_dstream_wait(r->stream, r->err);
        }
        if (r->status == MO_OK && work->progress && !work->progress(work->user, n + 1, s->layers)) {
            r->status = mo_fail(r->err, MO_ECANCELLED, "cancelled");
        }
    }
}

static void open_run(run *r, mo_daddr memory)
{
    mo_vision_device_lay(&r->w, memory);
    r->status = mo_dstream_create(r->device, &r->stream, r->err);
    r->up = (mo_vision_upload){.stream = r->stream, .base = r->w.weights, .err = r->err};
}

/* Waits for everything, also after a failure: copies read memory of the host. */
static void close_run(run *r)
{
    mo_error late = {0};
    if (r->stream) {
        const mo_status waited = mo_dstream_wait(r->stream, r->status == MO_OK ? r->err : &late);
        r->status = r->status == MO_OK ? waited : r->status;
        mo_dstream_destroy(r->stream);
    }
}

mo_status mo_encoder_device_run(const mo_encoder *e, mo_device *device, mo_daddr memory,
                                const mo_encoder_work *work, const mo_picture *picture, float *out,
                                mo_error *err)
{
    run r = {.device = device, .err = err};
    made m = {0};
    mo_host_float_mode(); /* patches, positions and angles are made on this thread */
    r.status = mo_encoder_check(e, picture->width, picture->height, err);
    if (r.status != MO_OK) {
        return r.status;
    }
    prepare(e, picture->width, picture->height, &r.w);
    open_run(&r, memory);
    if (r.status == MO_OK && !make(&r.w, &m)) {
        r.status = mo_fail(err, MO_ENOMEM, "no memory to encode a picture");
    }
    if (r.status == MO_OK) {
        send(&r, e, picture, &m);
        embed(&r);
        run_layers(&r, work);
        finish(&r);
    }
    r.status = r.status == MO_OK ? r.up.status : r.status;
    const int64_t values = r.w.rows * mo_vision_row(r.w.spec);
    if (r.status == MO_OK) {
        r.status = mo_copy_out(r.stream, out, r.w.out, (size_t)values * sizeof *out, err);
    }
    close_run(&r);
    if (r.status == MO_OK && !work->kernels->finite(out, values)) {
        r.status = mo_fail(err, MO_EFORMAT, "the encoder's result is not finite: its file is damaged");
    }
    drop(&m);
    return r.status;
}
