/* Append: how one op is added to a list. For the files that say what a step is made of (ops.c, mixer.c, feed_forward.c). */
#ifndef MO_GPU_APPEND_H
#define MO_GPU_APPEND_H

#include <assert.h>

#include "gpu/ops.h"

/* One more op, all of it zero but its kind. */
static inline mo_op *mo_gpu_op_add(mo_gpu_ops *p, mo_op_kind kind)
{
    assert(p->count < p->limit);
    mo_op *op = &p->ops[p->count++];
    *op = (mo_op){.kind = kind};
    return op;
}

/* In the step's block; there, the stream; and the experts' input, or the mixer's. */
static inline mo_daddr mo_gpu_block_at(const mo_gpu_ops *p, int64_t offset)
{
    return p->scratch->step + (mo_daddr)offset;
}

static inline mo_daddr mo_gpu_x_of(const mo_gpu_ops *p)
{
    return mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).x);
}

static inline mo_dacts mo_gpu_in_of(const mo_gpu_ops *p)
{
    return mo_dacts_lay(p->scratch->in, p->tokens, p->core->spec->width);
}

/* Rows of activations from row `first` on. */
static inline mo_dacts mo_dacts_from(mo_dacts a, int64_t first)
{
    const int64_t blocks = (a.cols + 31) / 32;
    a.x += (mo_daddr)(first * a.cols * 4);
    a.q += (mo_daddr)(first * a.cols);
    a.d += (mo_daddr)(first * blocks * 4);
    a.s += (mo_daddr)(first * blocks * 4);
    a.sum += (mo_daddr)(first * blocks * 4);
    a.half_sum += (mo_daddr)(first * blocks * 4);
    return a;
}

/* ---- Products ---- */

static inline mo_op_product *mo_gpu_op_product(mo_gpu_ops *p, mo_dacts in)
{
    mo_op_product *op = &mo_gpu_op_add(p, MO_OP_PRODUCT)->product;
    op->in = in;
    op->tokens = (int32_t)p->tokens;
    return op;
}

/* One more matrix of the product, unless the layer has none. */
static inline void mo_gpu_op_multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride)
{
    if (m->data) {
        op->matrix[op->count] = *m;
        op->y[op->count] = y;
        op->stride[op->count++] = stride;
    }
}

/* ---- The stream ---- */

/* What comes to the stream, and norms of it, are the caller's to add. */
static inline mo_op_stream *mo_gpu_op_stream(mo_gpu_ops *p, int layer)
{
    mo_op_stream *op = &mo_gpu_op_add(p, MO_OP_STREAM)->stream;
    op->x = mo_gpu_x_of(p);
    op->tokens = (int32_t)p->tokens;
    op->n = (int32_t)p->core->spec->width;
    op->eps = p->core->spec->eps;
    op->bad = mo_gpu_bad(p->scratch, layer, false);
    return op;
}

static inline void mo_gpu_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_dacts out)
{
    op->norm[which] = (mo_op_norm){.weight = weight, .scale = 1.0f, .out = out};
}

/* The weights of the norm before a layer; one past the last: before the output. */
static inline mo_daddr mo_gpu_norm_before(const mo_gpu_core *core, int layer)
{
    return layer < core->spec->layer_count ? core->layers[layer].mixer_norm : core->out_norm;
}

/* ---- A layer's choice ---- */

static inline mo_daddr mo_gpu_ids_of(const mo_gpu_ops *p, int layer)
{
    return mo_gpu_choice(p->scratch, p->scratch->ids, p->tokens, layer);
}

static inline mo_daddr mo_gpu_weights_of(const mo_gpu_ops *p, int layer)
{
    return mo_gpu_choice(p->scratch, p->scratch->weights, p->tokens, layer);
}

#endif
