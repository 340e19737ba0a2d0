#include "gpu/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "experts/vram.h"
#include "gpu/restore.h"

/* Packs data consecutively; only counts while `core` is NULL. */
typedef struct packer {
    mo_gpu_core *core;
    mo_gpu_link *link;
    mo_gpu_layer_buffer *layers;
    mo_daddr buffer; /* for matrices interleaved in RAM */
    int64_t buffer_bytes;
    int64_t group_bytes; /* of the largest group of interleaved rows */
    int64_t used;
    int64_t matrices; /* matrix bytes among them */
    mo_gpu_widest widest;
    mo_streamed_layer *streamed; /* the current layer is streamed; NULL: it is resident */
    int layer;                   /* index of the current layer; -1: none */
    mo_status status;
    mo_error *err;
} packer;

static int64_t matrix_bytes(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

static mo_daddr put(packer *p, const void *data, int64_t bytes)
{
    const int64_t at = p->used;
    p->used += (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    if (!p->core) {
        return 0;
    }
    const mo_daddr to = p->core->memory + (mo_daddr)at;
    if (p->status == MO_OK) {
        p->status = mo_gpu_link_send(p->link, p->link->main, data, (size_t)bytes, to, p->err);
    }
    return to;
}

/* Sends an interleaved matrix through a buffer, some groups of rows at a time. */
static mo_status put_interleaved(packer *p, const mo_weights *w, mo_daddr to)
{
    const int64_t row = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t step = p->buffer_bytes / row / w->interleave * w->interleave;
    mo_status status =
        step > 0 ? MO_OK : mo_fail(p->err, MO_EINVAL, "the plan has no staging buffer for reordered rows");
    for (int64_t r = 0; r < w->rows && status == MO_OK; r += step) {
        const int64_t rows = w->rows - r < step ? w->rows - r : step;
        mo_weights part = *w;
        mo_op op = mo_gpu_restore_op(p->buffer, to + (mo_daddr)(r * row), 1);
        part.rows = rows;
        mo_gpu_restore_add(&op, &part, 0, 0);
        status = mo_gpu_link_send(p->link, p->link->main, w->data + r * row, (size_t)(rows * row), p->buffer,
                                  p->err);
        if (status == MO_OK) {
            status = mo_op_launch(p->link->main, &op, p->err);
        }
    }
    return status;
}

/* Destination of a matrix that is read from disk. */
typedef struct piece_target {
    packer *packer;
    mo_daddr to;
} piece_target;

/* The source is reused for reading, so the copy must end here. */
static mo_status put_piece(void *user, int64_t at, const uint8_t *bytes, int64_t count, mo_error *err)
{
    const piece_target *t = user;
    mo_gpu_link *link = t->packer->link;
    const mo_status status =
        mo_gpu_link_send(link, link->main, bytes, (size_t)count, t->to + (mo_daddr)at, err);
    return mo_gpu_link_settle(link->main, status, err);
}

static mo_status put_from_disk(packer *p, const mo_weights *w, mo_daddr to)
{
    piece_target target = {.packer = p, .to = to};
    return mo_layer_buffer_read(p->layers->tiers->layers, p->layer, w, put_piece, &target, p->err);
}

static mo_daddr put_matrix(packer *p, const mo_weights *w)
{
    const int64_t group = w->interleave * mo_format_row_bytes(mo_format_of(w->type), w->cols);
    p->group_bytes = group > p->group_bytes ? group : p->group_bytes;
    p->matrices += mo_vram_slot_bytes(matrix_bytes(w));
    if (p->streamed) {
        return mo_gpu_layer_buffer_add(p->layers, p->streamed, w);
    }
    const bool on_disk = p->core && p->layer >= 0 && mo_gpu_layer_buffer_on_disk(p->layers, p->layer, w);
    if (!p->core || (!w->interleave && !on_disk)) {
        return put(p, w->data, matrix_bytes(w));
    }
    const mo_daddr to = p->core->memory + (mo_daddr)p->used;
    p->used += (matrix_bytes(w) + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    if (p->status == MO_OK) {
        p->status = on_disk ? put_from_disk(p, w, to) : put_interleaved(p, w, to);
    }
    return to;
}

static mo_daddr put_vector(packer *p, const float *values, int64_t n)
{
    return values ? put(p, values, n * (int64_t)sizeof(float)) : 0;
}

static mo_dmatrix shape_of(const mo_linear *l)
{
    return (mo_dmatrix){.type = (int32_t)l->w.type, .rows = (int32_t)l->w.rows, .cols = (int32_t)l->w.cols};
}

bool mo_gpu_core_suits_bf16(const mo_dmatrix *m)
{
    enum { ROWS_LEAST = 64 };
    const mo_format *f = mo_format_of((uint32_t)m->type);
    return f && (f->kind == MO_KIND_QUANTIZED || m->type == MO_BF16) && m->rows >= ROWS_LEAST &&
           m->cols % MO_OP_BF16_COLS == 0;
}

/* Vectors are not loaded while counting; those that a description may have are counted. */
static mo_dmatrix put_linear(packer *p, const mo_linear *l)
{
    mo_dmatrix m = shape_of(l);
    if (mo_linear_present(l) && mo_gpu_core_suits_bf16(&m)) {
        const int64_t values = l->w.rows * l->w.cols;
        p->widest.values = values > p->widest.values ? values : p->widest.values;
        p->widest.cols = l->w.cols > p->widest.cols ? l->w.cols : p->widest.cols;
    }
    if (mo_linear_present(l)) {
        m.data = put_matrix(p, &l->w);
        m.scale = put_vector(p, l->scale, 1);
        m.bias = put_vector(p, l->bias, l->w.rows);
    }
    return m;
}

/* A resident matrix in a streamed layer: it is read when the layer's buffer may already hold the next
 * layer. */
static mo_dmatrix put_staying(packer *p, const mo_linear *l)
{
    mo_streamed_layer *const streamed = p->streamed;
    const int64_t matrices = p->matrices;
    p->streamed = NULL;
    const mo_dmatrix m = put_linear(p, l);
    p->streamed = streamed;
    p->matrices = matrices;
    return m;
}

/* Scales and biases of all experts, packed. which: 0 gate, 1 up, 2 down. */
static const mo_linear *part_of(const mo_expert *b, int which)
{
    return which == 0 ? &b->gate : which == 1 ? &b->up : &b->down;
}

static mo_status no_memory(const packer *p)
{
    return mo_fail(p->err, MO_ENOMEM, "out of memory while sending the model to the device");
}

/* A copy from unpinned memory may still be running when the call returns. */
static void wait_for_copy(packer *p, const float *from)
{
    if (from && p->status == MO_OK) {
        p->status = mo_dstream_wait(p->link->main, p->err);
    }
}

static mo_daddr put_rows(packer *p, const mo_moe *moe, int which, bool bias)
{
    const mo_linear *first = part_of(&moe->expert[0], which);
    const int64_t n = bias ? first->w.rows : 1;
    if (!(bias ? first->bias : first->scale)) {
        return 0;
    }
    float *packed = p->core ? calloc((size_t)(n * moe->experts), sizeof(float)) : NULL;
    if (p->core && !packed) {
        p->status = p->status ? p->status : no_memory(p);
        return 0;
    }
    for (int e = 0; packed && e < moe->experts; e++) {
        const mo_linear *l = part_of(&moe->expert[e], which);
        for (int64_t i = 0; i < n; i++) {
            packed[e * n + i] = (bias ? l->bias : l->scale)[i];
        }
    }
    const mo_daddr at = put(p, packed, n * moe->experts * (int64_t)sizeof(float));
    wait_for_copy(p, packed);
    free(packed);
    return at;
}

static void put_experts(packer *p, const mo_moe *moe, mo_gpu_layer *out)
{
    mo_dmatrix *to[] = {&out->expert_gate, &out->expert_up, &out->expert_down};
    int64_t at[4] = {0};
    for (int i = 0; i < 3; i++) {
        *to[i] = shape_of(part_of(&moe->expert[0], i));
        to[i]->scale = put_rows(p, moe, i, false);
        to[i]->bias = put_rows(p, moe, i, true);
        at[i + 1] = at[i] + mo_vram_slot_bytes(matrix_bytes(&part_of(&moe->expert[0], i)->w));
    }
    out->up_at = at[1];
    out->down_at = at[2];
    out->expert_bytes = at[3];
}

static void put_attention(packer *p, const mo_attention *a, mo_gpu_layer *out)
{
    out->q = put_linear(p, &a->q);
    out->k = put_linear(p, &a->k);
    out->v = put_linear(p, &a->v);
    out->head_gate = put_linear(p, &a->gate);
    out->out = put_linear(p, &a->out);
    out->q_norm = put_vector(p, a->q_norm, a->norm_all ? a->heads * a->k_len : a->k_len);
    out->k_norm = put_vector(p, a->k_norm, a->norm_all ? a->kv_heads * a->k_len : a->k_len);
    out->sinks = put_vector(p, a->sinks, a->heads);
    out->latent.q_a = put_linear(p, &a->latent.q_a);
    out->latent.k_b = put_linear(p, &a->latent.k_b);
    out->latent.v_b = put_linear(p, &a->latent.v_b);
    out->latent.q_a_norm = put_vector(p, a->latent.q_norm, a->latent.q_a.w.rows);
    out->latent.norm = put_vector(p, a->latent.norm, a->v_len);
    out->index.q = put_linear(p, &a->index.q);
    out->index.k = put_linear(p, &a->index.k);
    out->index.share = put_linear(p, &a->index.share);
    out->index.norm = put_vector(p, a->index.norm, a->index.length);
    out->index.norm_bias = put_vector(p, a->index.norm_bias, a->index.length);
}

/* Rows of the convolution's taps; q, k and v may have separate ones. */
static mo_daddr put_taps(packer *p, const mo_delta *d)
{
    const int64_t keys = d->k_heads * d->head, values = d->v_heads * d->head, channels = 2 * keys + values;
    const float *const parts[] = {d->conv, d->k_conv, d->v_conv};
    const int64_t sizes[] = {keys, keys, values};
    if (!d->k_conv) {
        return put_vector(p, d->conv, d->taps * channels);
    }
    float *packed = p->core ? calloc((size_t)(d->taps * channels), sizeof(float)) : NULL;
    if (p->core && !packed) {
        p->status = p->status ? p->status : no_memory(p);
        return 0;
    }
    for (int64_t j = 0, at = 0; packed && j < d->taps; j++) {
        for (int i = 0; i < 3; at += sizes[i++]) {
            memcpy(packed + at, parts[i] + j * sizes[i], sizeof(float) * (size_t)sizes[i]);
        }
    }
    const mo_daddr at = put(p, packed, d->taps * channels * (int64_t)sizeof(float));
    wait_for_copy(p, packed);
    free(packed);
    return at;
}

static void put_delta(packer *p, const mo_delta *d, mo_gpu_layer *out)
{
    out->q = put_linear(p, &d->qkv);
    out->delta.k = put_linear(p, &d->k);
    out->delta.v = put_linear(p, &d->v);
    out->delta.alpha_in = put_linear(p, &d->alpha_in);
    out->delta.gate_in = put_linear(p, &d->gate_in);
    out->k = put_linear(p, &d->gate);
    out->out = put_linear(p, &d->out);
    out->ba = put_linear(p, &d->ba);
    out->beta = put_linear(p, &d->beta);
    out->alpha = put_linear(p, &d->alpha);
    out->conv = put_taps(p, d);
    out->a = put_vector(p, d->a, d->v_heads);
    out->dt = put_vector(p, d->dt, d->decay == MO_DECAY_HEADS ? d->v_heads : d->v_heads * d->head);
    out->delta_norm = put_vector(p, d->norm, d->head);
}

static void put_short_conv(packer *p, const mo_short_conv *s, mo_gpu_layer *out)
{
    out->q = put_linear(p, &s->in);
    out->out = put_linear(p, &s->out);
    out->conv = put_vector(p, s->conv, s->taps * s->channels);
}

static void put_mamba(packer *p, const mo_mamba *m, mo_gpu_layer *out)
{
    const int64_t channels = mo_mamba_channels(m), decays = m->heads ? m->heads : m->states * m->inner;
    out->q = put_linear(p, &m->x);
    out->k = put_linear(p, &m->z);
    out->ba = put_linear(p, &m->parts);
    out->beta = put_linear(p, &m->dt);
    out->alpha = put_linear(p, &m->dt_in);
    out->out = put_linear(p, &m->out);
    out->conv = put_vector(p, m->conv, m->taps * channels);
    out->mamba.conv_bias = put_vector(p, m->conv_bias, channels);
    out->mamba.dt_norm = put_vector(p, m->dt_norm, m->rank);
    out->mamba.b_norm = put_vector(p, m->b_norm, m->states);
    out->mamba.c_norm = put_vector(p, m->c_norm, m->states);
    out->dt = put_vector(p, m->dt_bias, m->heads);
    out->a = put_vector(p, m->a, decays);
    out->mamba.d = put_vector(p, m->d, m->heads ? m->heads : m->inner);
    out->delta_norm = put_vector(p, m->norm, m->inner);
}

static void put_layer(packer *p, const mo_model_spec *f, int index, mo_gpu_layer *out)
{
    const mo_layer *l = &f->layers[index];
    const int64_t width = f->width;
    *out = (mo_gpu_layer){.rope = -1, .input_factor = 1.0f / sqrtf((float)width)};
    if (mo_spec_device_experts(f)) { /* everything of its experts except matrices */
        if (l->routed) {
            put_experts(p, &l->moe, out);
        }
        return;
    }
    out->mixer_norm = put_vector(p, l->mixer_norm, width);
    out->mixer_norm_bias = put_vector(p, l->mixer_norm_bias, width);
    out->post_mixer_norm = put_vector(p, l->post_mixer_norm, width);
    switch (l->mixer) {
    case MO_MIXER_ATTENTION: put_attention(p, &l->attention, out); break;
    case MO_MIXER_DELTA: put_delta(p, &l->delta, out); break;
    case MO_MIXER_SHORT_CONV: put_short_conv(p, &l->short_conv, out); break;
    case MO_MIXER_MAMBA: put_mamba(p, &l->mamba, out); break;
    case MO_MIXER_NONE: break;
    }
    out->ffn_norm = put_vector(p, l->ffn_norm, width);
    out->ffn_norm_bias = put_vector(p, l->ffn_norm_bias, width);
    out->moe_norm = put_vector(p, l->moe_norm, width);
    out->post_dense = put_vector(p, l->post_ffn_norm_dense, width);
    out->post_moe = put_vector(p, l->post_ffn_norm_moe, width);
    out->post_ffn = put_vector(p, l->post_ffn_norm, width);
    out->out_scale = put_vector(p, l->out_scale, 1);
    const mo_ffn *side = l->dense ? &l->ffn : l->routed ? &l->moe.shared : NULL;
    if (side) {
        out->gate = put_linear(p, &side->gate);
        out->up = put_linear(p, &side->up);
        out->down = put_linear(p, &side->down);
    }
    if (l->routed) {
        out->shared_gate = put_linear(p, &l->moe.shared_gate);
        out->router = put_linear(p, &l->moe.router.logits);
        out->latent_down = put_linear(p, &l->moe.latent_down);
        out->latent_up = put_staying(p, &l->moe.latent_up); /* used after the experts */
        out->select_bias = put_vector(p, l->moe.router.select_bias, l->moe.experts);
        out->input_scale = put_vector(p, l->moe.router.input_scale, width);
        put_experts(p, &l->moe, out);
    }
}

static void put_all(packer *p, const mo_model_spec *f, int first, int end)
{
    mo_gpu_core *core = p->core;
    mo_gpu_layer scratch;
    for (int i = first; i < end; i++) {
        p->streamed = core ? mo_gpu_layer_buffer_of(p->layers, i) : NULL;
        p->layer = i;
        put_layer(p, f, i, core ? &core->layers[i] : &scratch);
        for (int r = 0; core && r < core->rope_count; r++) {
            if (core->ropes[r] == f->layers[i].attention.rope) {
                core->layers[i].rope = r;
            }
        }
    }
    p->streamed = NULL;
    p->layer = -1;
    const bool remote_output =
        mo_spec_layers(f) > f->layer_count || mo_spec_device_experts(f); /* the device computes the logits */
    if (end < f->layer_count || remote_output) {
        return;
    }
    const mo_daddr norm = put_vector(p, f->out_norm, f->width);
    const mo_daddr bias = put_vector(p, f->out_norm_bias, f->width);
    const mo_dmatrix output = put_linear(p, &f->output);
    if (core) {
        core->out_norm = norm;
        core->out_norm_bias = bias;
        core->output = output;
    }
}

int64_t mo_gpu_core_bytes(const mo_model_spec *spec, int first, int end)
{
    packer p = {0};
    put_all(&p, spec, first, end);
    return p.used;
}

int64_t mo_gpu_core_layer_bytes(const mo_model_spec *spec, int layer)
{
    packer p = {0};
    mo_gpu_layer scratch;
    put_layer(&p, spec, layer, &scratch);
    return p.matrices;
}

int64_t mo_gpu_core_group(const mo_model_spec *spec)
{
    packer p = {0};
    put_all(&p, spec, 0, spec->layer_count);
    return p.group_bytes;
}

mo_gpu_widest mo_gpu_core_widest(const mo_model_spec *spec)
{
    packer p = {0};
    mo_gpu_layer scratch;
    for (int i = 0; i < spec->layer_count; i++) {
        put_layer(&p, spec, i, &scratch);
    }
    return p.widest;
}

static void find_ropes(mo_gpu_core *core)
{
    for (int i = 0; i < core->spec->layer_count; i++) {
        const mo_rope *rope = core->spec->layers[i].attention.rope;
        bool known = rope == NULL;
        for (int r = 0; r < core->rope_count; r++) {
            known |= core->ropes[r] == rope;
        }
        if (!known && core->rope_count < 8) {
            core->ropes[core->rope_count++] = rope;
        }
    }
}

void mo_gpu_core_describe(mo_gpu_core *core, const mo_model_spec *spec)
{
    *core = (mo_gpu_core){.spec = spec, .extent = mo_extent_of(spec), .end = spec->layer_count};
    find_ropes(core);
}

mo_status mo_gpu_core_open(mo_gpu_core *core, mo_gpu_link *link, mo_gpu_layer_buffer *layers,
                           mo_gpu_memory *memory, int64_t upload_bytes, mo_error *err)
{
    core->bytes = mo_gpu_core_bytes(core->spec, core->first, core->end);
    for (int i = core->first; i < core->end; i++) {
        core->bytes -= mo_gpu_layer_buffer_has(layers, i) ? mo_gpu_core_layer_bytes(core->spec, i) : 0;
    }
    core->layers = calloc((size_t)core->spec->layer_count + 1, sizeof *core->layers);
    if (!core->layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory while sending the model to the device");
    }
    mo_status status = MO_OK;
    if (core->bytes > 0) { /* a device with only experts may have nothing but their matrices */
        status = mo_gpu_memory_alloc(memory, core->bytes, "the core of the model", &core->memory, err);
    }
    if (status != MO_OK) {
        return status;
    }
    /* The upload buffer is freed at the end: its memory fits into what sessions, stages and slots will
     * need. */
    packer p = {.core = core, .link = link, .layers = layers, .err = err, .buffer_bytes = upload_bytes};
    if (upload_bytes > 0) {
        p.status =
            mo_gpu_memory_alloc(memory, upload_bytes, "a buffer for sending the model", &p.buffer, err);
    }
    if (p.status == MO_OK) {
        put_all(&p, core->spec, core->first, core->end);
    }
    status = mo_gpu_link_settle(link->main, p.status, err);
    mo_gpu_memory_free(memory, p.buffer, upload_bytes);
    return status == MO_OK && mo_gpu_core_last(core) ? mo_gpu_layer_buffer_ready(layers, err) : status;
}

void mo_gpu_core_close(mo_gpu_core *core, mo_device *device)
{
    mo_device_free(device, core->memory);
    free(core->layers);
}

/* ---- Experts ------------------------------------------------------------------------------------ */

/* A local expert, for its layout in RAM; the layout of remote ones is unknown. */
static const mo_expert *own_expert(const mo_gpu_core *core, int layer)
{
    const mo_expert_range *here = &core->spec->experts;
    const mo_moe *moe = &core->spec->layers[layer].moe;
    return &moe->expert[here->divided && here->first < moe->experts ? here->first : 0];
}

bool mo_gpu_core_interleaved(const mo_gpu_core *core, int layer)
{
    const mo_expert *b = own_expert(core, layer);
    return b->gate.w.interleave || b->up.w.interleave || b->down.w.interleave;
}

bool mo_gpu_core_any_interleaved(const mo_gpu_core *core)
{
    bool interleaved = false;
    for (int i = core->first; i < core->end; i++) {
        interleaved |= core->spec->layers[i].routed && mo_gpu_core_interleaved(core, i);
    }
    return interleaved;
}

bool mo_gpu_core_expert_pinned(const mo_gpu_core *core, const mo_gpu_link *link, int layer, int expert)
{
    const mo_expert *b = &core->spec->layers[layer].moe.expert[expert];
    return (!mo_linear_present(&b->gate) || mo_gpu_link_pinned(link, b->gate.w.data)) &&
           mo_gpu_link_pinned(link, b->up.w.data) && mo_gpu_link_pinned(link, b->down.w.data);
}

mo_status mo_gpu_core_copy_expert(const mo_gpu_core *core, const mo_gpu_link *link, mo_dstream *stream,
                                  int layer, int expert, mo_daddr to, int64_t *bytes, mo_error *err)
{
    const mo_expert *b = &core->spec->layers[layer].moe.expert[expert];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, core->layers[layer].up_at, core->layers[layer].down_at};
    mo_status status = MO_OK;
    *bytes = 0;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        *bytes += matrix_bytes(parts[i]);
        status = mo_gpu_link_copy_matrix(link, stream, parts[i], to + (mo_daddr)at[i], err);
    }
    return status;
}

mo_op mo_gpu_core_restore(const mo_gpu_core *core, int layer, mo_daddr from, mo_daddr to, int64_t count,
                          int64_t stride, int only)
{
    const mo_expert *b = own_expert(core, layer);
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, core->layers[layer].up_at, core->layers[layer].down_at};
    mo_op op = mo_gpu_restore_op(from, to, count);
    for (int i = 0; i < 3; i++) {
        if (only < 0 || only == i) {
            mo_gpu_restore_add(&op, parts[i], at[i], stride);
        }
    }
    return op;
}
