/* Ops: the operations of a step, appended to a list that becomes programs or is launched directly. mixer.c
 * and feed_forward.c have the two halves of a layer; ops.c has the ops around layers. Private to gpu/. */
#ifndef MO_GPU_OPS_H
#define MO_GPU_OPS_H

#include <assert.h>

#include "experts/vram.h"
#include "gpu/adapters.h"
#include "gpu/core.h"
#include "gpu/drafts.h"
#include "gpu/link.h"
#include "gpu/scratch.h"

typedef struct mo_gpu_ops {
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    const mo_vram *vram;
    int64_t tokens, chunks, slices;
    int64_t whole; /* tokens of the whole batch, if these are a piece of it */
    /* The first tokens of a batch that are single in their slices, and the most chunks that one of them
     * sees. */
    int64_t singles, single_chunks;
    mo_kv_type kv;
    mo_daddr kv_staging;         /* mo_dplace[tokens] if the KV cache is staged (gpu/kv_staging.h); 0 */
    mo_daddr features;           /* in a batch: vectors that rows of pictures add after the layer; 0: none */
    const mo_adapting *adapting; /* if tokens of the step have adapters; NULL: none */
    const mo_gpu_adapters *adapters;
    const mo_gpu_drafts *drafts; /* in a step with drafts; NULL: no drafts */
    const mo_gpu_bf16 *bf16;     /* in a batch whose products may use bfloat16; NULL: exact */
    /* while making programs: the host may skip picks of this layer, and reports which it keeps */
    bool keeps;
    int streamed; /* while making programs: the streamed layer that the ops so far read; -1: none */
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

/* Append ops: begin: the first norm; mixer: a layer up to its router; choose: the choice of experts, if any;
 * publish: publication to the host; hot: hot experts by worklist; side: the dense or shared part; await:
 * waiting for the host's rows; merge: merging the layer and the norm for the next one (or for the output). */
void mo_gpu_ops_begin(mo_gpu_ops *p, int layer); /* layer one past the last: for the output */
void mo_gpu_ops_mixer(mo_gpu_ops *p, int layer);
void mo_gpu_ops_choose(mo_gpu_ops *p, int layer);
void mo_gpu_ops_mamba(mo_gpu_ops *p, int layer); /* only its mixer, for mixer.c */
/* Apply the recorded rows of a step with drafts to the states, as in p->drafts->slices. The second is for
 * mixer.c. */
void mo_gpu_ops_apply(mo_gpu_ops *p, int layer);
void mo_gpu_ops_apply_mamba(mo_gpu_ops *p, int layer);
void mo_gpu_ops_publish(mo_gpu_ops *p, int layer);
void mo_gpu_ops_hot(mo_gpu_ops *p, int layer);
void mo_gpu_ops_side(mo_gpu_ops *p, int layer);
void mo_gpu_ops_await(mo_gpu_ops *p, int layer);
/* Lets the device itself read this many bytes of pinned memory. */
void mo_gpu_ops_receive(mo_gpu_ops *p, int layer, const void *pinned, mo_daddr to, int64_t bytes);
void mo_gpu_ops_receive_also(mo_gpu_ops *p, const void *pinned, mo_daddr to,
                             int64_t bytes); /* together with the previous one */
/* grouped: rows are sorted by expert (row_of); experts false: without experts. */
void mo_gpu_ops_merge(mo_gpu_ops *p, int layer, bool grouped, bool experts);
void mo_gpu_ops_logits(mo_gpu_ops *p, int64_t first, int64_t rows, int64_t place);
/* One expert's rows, by a separate worklist. */
void mo_gpu_ops_expert(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* The same after the CPU has computed gate and up. */
void mo_gpu_ops_down(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* Groups of a batch: gate, up, activation, down. */
/* All experts of a layer that are all on the device, in groups that the device arranges. */
void mo_gpu_ops_all_groups(mo_gpu_ops *p, int layer);
void mo_gpu_ops_groups(mo_gpu_ops *p, int layer, const mo_gpu_span *span);
/* Passes the stream to the host before layer `from`; takes it back before layer `to`, with the norm for
 * it. */
void mo_gpu_ops_hand_over(mo_gpu_ops *p, int from);
void mo_gpu_ops_hand_back(mo_gpu_ops *p, int from, int to);

/* Adds the adapters' part after a product of all tokens with a matrix; nothing if the step has none for it.
 * The last one is for other rows: the caller sets in, y and their tokens, the rest is filled in. */
void mo_gpu_ops_adapt(mo_gpu_ops *p, const mo_linear *linear, mo_dacts in, mo_daddr y, int64_t stride);
typedef struct mo_gpu_adapted {
    const mo_linear *linear;
    mo_daddr y;
    int64_t stride;
} mo_gpu_adapted;
/* For several matrices with the same input, at most MO_OP_MATRICES. */
void mo_gpu_ops_adapt_some(mo_gpu_ops *p, mo_dacts in, const mo_gpu_adapted *of, int count);
void mo_gpu_ops_adapt_rows(mo_gpu_ops *p, const mo_linear *linear, const mo_op_adapt *rows);

mo_status mo_gpu_ops_launch(const mo_gpu_ops *p, const mo_gpu_link *link, mo_dstream *stream, mo_error *err);

/* ---- Adding one op; for mixer.c, feed_forward.c and ops.c ---- */

/* Appends an op, zeroed except its kind. */
mo_op *mo_gpu_op_add(mo_gpu_ops *p, mo_op_kind kind);

/* An address in the step's block; the stream in it; the input of the experts, or of the mixer. */
mo_daddr mo_gpu_block_at(const mo_gpu_ops *p, int64_t offset);

mo_daddr mo_gpu_x_of(const mo_gpu_ops *p);

mo_dacts mo_gpu_in_of(const mo_gpu_ops *p);

/* Input of a layer's experts: the same, or the result of ffn_latent_down. */
mo_dacts mo_gpu_experts_in(const mo_gpu_ops *p, int layer);

/* Quantizes rows. */
void mo_gpu_op_quantize(mo_gpu_ops *p, mo_dacts rows);

/* Rows of activations from row `first` on. */
mo_dacts mo_dacts_from(mo_dacts a, int64_t first);

/* ---- Products ---- */

mo_op_product *mo_gpu_op_product(mo_gpu_ops *p, mo_dacts in);

/* Adds a matrix to the product, unless it is absent. */
void mo_gpu_op_multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride);

/* ---- The stream ---- */

/* The caller adds the summands and norms. */
mo_op_stream *mo_gpu_op_stream(mo_gpu_ops *p, int layer);

void mo_gpu_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_daddr bias, mo_dacts out);

/* The norm before a layer; one past the last: before the output; before another device's layer: none. */
void mo_gpu_op_norm_before(mo_op_stream *op, const mo_gpu_core *core, int layer, mo_dacts out);

/* ---- A layer's choice ---- */

mo_daddr mo_gpu_ids_of(const mo_gpu_ops *p, int layer);

mo_daddr mo_gpu_weights_of(const mo_gpu_ops *p, int layer);

#endif
