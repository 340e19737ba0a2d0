/* Ops: what a step is made of, appended to a list that programs are made of or that is launched as it is. A layer's halves
 * are mixer.c and feed_forward.c; ops.c has what is around layers. Private to the gpu's files. */
#ifndef MO_GPU_OPS_H
#define MO_GPU_OPS_H

#include "gpu/core.h"
#include "gpu/link.h"
#include "gpu/scratch.h"
#include "store/vram.h"

typedef struct mo_gpu_ops {
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    const mo_vram *vram;
    int64_t tokens, chunks, slices;
    mo_kv_type kv;
    int streamed; /* while programs are made: the streamed layer that the ops so far read; -1: none */
    mo_op *ops;
    int count, limit;
} mo_gpu_ops;

/* Experts of a batch that are computed together: consecutive groups, consecutive rows. */
typedef struct mo_gpu_span {
    int64_t group, groups;
    int64_t first_row, rows;
    int64_t most; /* rows of the largest group */
} mo_gpu_span;

/* Append: the first norm; a layer up to its choice; publication to the host; hot experts by worklist; the part beside
 * them; waiting for the host's rows; merging the layer and norming for the next one (or for the output). */
void mo_gpu_ops_begin(mo_gpu_ops *p, int layer); /* one past the last: for the output */
void mo_gpu_ops_mixer(mo_gpu_ops *p, int layer);
void mo_gpu_ops_publish(mo_gpu_ops *p, int layer);
void mo_gpu_ops_hot(mo_gpu_ops *p, int layer);
void mo_gpu_ops_side(mo_gpu_ops *p, int layer);
void mo_gpu_ops_await(mo_gpu_ops *p, int layer);
/* The device reads so many bytes of pinned memory by itself. */
void mo_gpu_ops_receive(mo_gpu_ops *p, int layer, const void *pinned, mo_daddr to, int64_t bytes);
/* grouped: rows lie sorted by expert (row_of); experts: false leaves them out. */
void mo_gpu_ops_merge(mo_gpu_ops *p, int layer, bool grouped, bool experts);
void mo_gpu_ops_logits(mo_gpu_ops *p, int64_t first, int64_t rows);
/* One brick's rows by a worklist of its own. */
void mo_gpu_ops_brick(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* The same, but the CPU has computed gate and up. */
void mo_gpu_ops_down(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most);
/* Groups of a batch: gate, up, activation, down. */
void mo_gpu_ops_groups(mo_gpu_ops *p, int layer, const mo_gpu_span *span);
/* Ops: the stream goes to the host before layer `from`; it comes back before layer `to`, and is normed for it. */
void mo_gpu_ops_hand_over(mo_gpu_ops *p, int from);
void mo_gpu_ops_hand_back(mo_gpu_ops *p, int from, int to);

static inline mo_status mo_gpu_ops_launch(const mo_gpu_ops *p, const mo_gpu_link *link, mo_dstream *stream,
                                          mo_error *err)
{
    return mo_gpu_link_launch(link, stream, p->ops, p->count, err);
}

#endif
