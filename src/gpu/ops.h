/* Ops: what a step is made of, appended to a list that programs are made of or that is launched as it is. A layer's halves
 * are mixer.c and feed_forward.c; ops.c has what is around layers. Private to the gpu's files. */
#ifndef MO_GPU_OPS_H
#define MO_GPU_OPS_H

#include <assert.h>

#include "experts/vram.h"
#include "gpu/adapters.h"
#include "gpu/core.h"
#include "gpu/link.h"
#include "gpu/scratch.h"

typedef struct mo_gpu_ops {
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    const mo_vram *vram;
    int64_t tokens, chunks, slices;
    int64_t whole; /* tokens of the step that these are all or a piece of; of a batch */
    /* The first tokens of a batch that are alone in their slices, and the most chunks one of them sees. */
    int64_t singles, single_chunks;
    mo_kv_type kv;
    mo_daddr kv_staging;         /* mo_dplace[tokens] if the KV cache is staged (gpu/kv_staging.h); 0 */
    const mo_adapting *adapting; /* of a step whose tokens have adapters; NULL: none has */
    const mo_gpu_adapters *adapters;
    const mo_gpu_bf16 *bf16; /* of a batch whose products may be in bfloat16; NULL: they are exact */
    int streamed; /* while programs are made: the streamed layer that the ops so far read; -1: none */
    mo_op *ops;
    int count, limit;
} mo_gpu_ops;

/* Experts of a batch that are computed together: consecutive groups, consecutive rows. */
typedef struct mo_gpu_span {
    int64_t group, groups;
    int64_t first_row, rows;
    int64_t most; /* rows of the largest group */
    bool lossy;   /* in bfloat16 */
} mo_gpu_span;

/* Append: the first norm; a layer up to its router; the choice of experts, where it has some; publication to the host; hot experts by worklist; the part beside
 * them; waiting for the host's rows; merging the layer and norming for the next one (or for the output). */
void mo_gpu_ops_begin(mo_gpu_ops *p, int layer); /* one past the last: for the output */
void mo_gpu_ops_mixer(mo_gpu_ops *p, int layer);
void mo_gpu_ops_choose(mo_gpu_ops *p, int layer);
void mo_gpu_ops_mamba(mo_gpu_ops *p, int layer); /* its mixer alone, for mixer.c */
void mo_gpu_ops_publish(mo_gpu_ops *p, int layer);
void mo_gpu_ops_hot(mo_gpu_ops *p, int layer);
void mo_gpu_ops_side(mo_gpu_ops *p, int layer);
void mo_gpu_ops_await(mo_gpu_ops *p, int layer);
/* The device reads this many bytes of pinned memory itself. */
void mo_gpu_ops_receive(mo_gpu_ops *p, int layer, const void *pinned, mo_daddr to, int64_t bytes);
void mo_gpu_ops_receive_also(mo_gpu_ops *p, const void *pinned, mo_daddr to,
                             int64_t bytes); /* with the last */
/* grouped: rows are sorted by expert (row_of); experts: false leaves them out. */
void mo_gpu_ops_merge(mo_gpu_ops *p, int layer, bool grouped, bool experts);
void mo_gpu_ops_logits(mo_gpu_ops *p, int64_t first, int64_t rows, int64_t place);
/* One expert's rows by a worklist of its own. */
void mo_gpu_ops_expert(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* The same, but the CPU has computed gate and up. */
void mo_gpu_ops_down(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* Groups of a batch: gate, up, activation, down. */
/* All experts of a layer that has them all on the device, in groups that it arranges by itself. */
void mo_gpu_ops_all_groups(mo_gpu_ops *p, int layer);
void mo_gpu_ops_groups(mo_gpu_ops *p, int layer, const mo_gpu_span *span);
/* Ops: the stream goes to the host before layer `from`; it comes back before layer `to`, and is normed for it. */
void mo_gpu_ops_hand_over(mo_gpu_ops *p, int from);
void mo_gpu_ops_hand_back(mo_gpu_ops *p, int from, int to);

/* After a product of all tokens with a matrix, what adapters add to it: nothing where the step has none for it. The last for other rows:
 * in, y, and whose they are; the rest is filled in. */
void mo_gpu_ops_adapt(mo_gpu_ops *p, const mo_linear *linear, mo_dacts in, mo_daddr y, int64_t stride);
typedef struct mo_gpu_adapted {
    const mo_linear *linear;
    mo_daddr y;
    int64_t stride;
} mo_gpu_adapted;
/* For several matrices with the same input, at most MO_OP_MATRICES. */
void mo_gpu_ops_adapt_some(mo_gpu_ops *p, mo_dacts in, const mo_gpu_adapted *of, int count);
void mo_gpu_ops_adapt_rows(mo_gpu_ops *p, const mo_linear *linear, const mo_op_adapt *rows);

static inline mo_status mo_gpu_ops_launch(const mo_gpu_ops *p, const mo_gpu_link *link, mo_dstream *stream,
                                          mo_error *err)
{
    return p->bf16 ? mo_gpu_bf16_launch(p->bf16, link, stream, p->ops, p->count, p->scratch->scores, err)
                   : mo_gpu_link_launch(link, stream, p->ops, p->count, err);
}

/* ---- Adding one op: for mixer.c, feed_forward.c and ops.c ---- */

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

static inline void mo_gpu_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_daddr bias, mo_dacts out)
{
    op->norm[which] = (mo_op_norm){.weight = weight, .add = bias, .scale = 1.0f, .out = out};
}

/* The norm before a layer; one past the last: before the output; before another device's: none. */
static inline void mo_gpu_op_norm_before(mo_op_stream *op, const mo_gpu_core *core, int layer, mo_dacts out)
{
    if (mo_gpu_core_has(core, layer)) {
        mo_gpu_op_norm(op, 0, core->layers[layer].mixer_norm, core->layers[layer].mixer_norm_bias, out);
    } else if (mo_gpu_core_speaks(core)) {
        mo_gpu_op_norm(op, 0, core->out_norm, core->out_norm_bias, out);
    }
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
