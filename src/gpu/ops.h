/* Ops: what a step is made of, appended to a list that programs are made of or that is launched as it is. A layer's halves
 * are mixer.c and feed_forward.c; ops.c has what is around layers. Private to the gpu's files. */
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
    int64_t whole; /* tokens of the step that these are all or a piece of; of a batch */
    /* The first tokens of a batch that are alone in their slices, and the most chunks one of them sees. */
    int64_t singles, single_chunks;
    mo_kv_type kv;
    mo_daddr kv_staging;         /* mo_dplace[tokens] if the KV cache is staged (gpu/kv_staging.h); 0 */
    mo_daddr features;           /* of a batch: what rows of pictures add behind the layer; 0: nothing */
    const mo_adapting *adapting; /* of a step whose tokens have adapters; NULL: none has */
    const mo_gpu_adapters *adapters;
    const mo_gpu_drafts *drafts; /* of a step with drafts; NULL: it has none */
    const mo_gpu_bf16 *bf16;     /* of a batch whose products may be in bfloat16; NULL: they are exact */
    bool
        keeps; /* while programs are made: the host may leave out picks of this layer, and says which it keeps */
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
/* Rows that a step with drafts has kept enter the states, as p->drafts->slices says. The second is for mixer.c. */
void mo_gpu_ops_apply(mo_gpu_ops *p, int layer);
void mo_gpu_ops_apply_mamba(mo_gpu_ops *p, int layer);
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

mo_status mo_gpu_ops_launch(const mo_gpu_ops *p, const mo_gpu_link *link, mo_dstream *stream, mo_error *err);

/* ---- Adding one op: for mixer.c, feed_forward.c and ops.c ---- */

/* One more op, all of it zero but its kind. */
mo_op *mo_gpu_op_add(mo_gpu_ops *p, mo_op_kind kind);

/* In the step's block; there, the stream; and the experts' input, or the mixer's. */
mo_daddr mo_gpu_block_at(const mo_gpu_ops *p, int64_t offset);

mo_daddr mo_gpu_x_of(const mo_gpu_ops *p);

mo_dacts mo_gpu_in_of(const mo_gpu_ops *p);

/* What a layer's experts read: the same, or what ffn_latent_down made of it. */
mo_dacts mo_gpu_experts_in(const mo_gpu_ops *p, int layer);

/* Codes of rows whose values are there. */
void mo_gpu_op_quantize(mo_gpu_ops *p, mo_dacts rows);

/* Rows of activations from row `first` on. */
mo_dacts mo_dacts_from(mo_dacts a, int64_t first);

/* ---- Products ---- */

mo_op_product *mo_gpu_op_product(mo_gpu_ops *p, mo_dacts in);

/* One more matrix of the product, unless the layer has none. */
void mo_gpu_op_multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride);

/* ---- The stream ---- */

/* What comes to the stream, and norms of it, are the caller's to add. */
mo_op_stream *mo_gpu_op_stream(mo_gpu_ops *p, int layer);

void mo_gpu_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_daddr bias, mo_dacts out);

/* The norm before a layer; one past the last: before the output; before another device's: none. */
void mo_gpu_op_norm_before(mo_op_stream *op, const mo_gpu_core *core, int layer, mo_dacts out);

/* ---- A layer's choice ---- */

mo_daddr mo_gpu_ids_of(const mo_gpu_ops *p, int layer);

mo_daddr mo_gpu_weights_of(const mo_gpu_ops *p, int layer);

#endif
