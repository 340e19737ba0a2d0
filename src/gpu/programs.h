/* Programs: small steps, prepared. A set is a step's ops in segments, cut where the host has a part or a layer is
 * streamed; steps of the same shape share it. Private to the gpu's files. */
#ifndef MO_GPU_PROGRAMS_H
#define MO_GPU_PROGRAMS_H

#include "engine/forward.h"
#include "gpu/experts.h"
#include "gpu/layer_buffer.h"
#include "gpu/marks.h"
#include "gpu/ops.h"

enum {
    GPU_SEGMENTS = 6,  /* most segments of a layer */
    GPU_PROGRAMS = 32, /* sets of programs that are kept */
    GPU_RENEW = 128,   /* steps after which one may be made anew because the host has less to do */
    GPU_OPS = 96,      /* most ops of a layer, */
    GPU_KEPT_OPS = 8,  /* and of GPU_KEPT tokens' attention over what an indexer keeps */
};

typedef struct mo_gpu_segment {
    int from, to; /* layers whose choice it makes: [from, to); the host serves to - 1 when it has to */
    bool served;  /* the last layer waits for the host */
    int streamed; /* the streamed layer whose matrices it reads; -1: it reads what stays */
    int host_from, host_to; /* layers that the CPU computes before the next segment goes on */
    int marked;             /* the layer a part of which ends with it, of steps that tell; -1: none */
    mo_gpu_mark mark;
    mo_program *program;
} mo_gpu_segment;

typedef struct mo_gpu_program_set {
    int64_t tokens, slices, chunks;
    mo_kv_type kv;
    bool logits;
    bool drafts;          /* its recurrent layers leave their states as they were */
    bool tells;           /* its segments end where parts of layers do (gpu/marks.h) */
    mo_adapting adapting; /* count and lora alone; scales are in the step's block */
    uint64_t used, made;  /* steps: of its last use; when it was made, or could not be made anew */
    int count;
    mo_gpu_segment *segments;
    uint64_t closures; /* mo_vram_completions() when it was compared with the layers */
    bool *served;      /* [layers of the model] as they were when it was made; part of the segments' memory */
} mo_gpu_program_set;

typedef struct mo_gpu_programs {
    mo_gpu_link *link;
    const mo_gpu_core *core;
    const mo_gpu_scratch *scratch;
    const mo_gpu_experts *experts;
    const mo_gpu_adapters *adapters;
    const mo_gpu_drafts *drafts;
    mo_gpu_layer_buffer *layer_buffer;
    mo_gpu_program_set sets[GPU_PROGRAMS];
    mo_gpu_marks marks;
    mo_op *batch_ops; /* of a batch's layer */
    int batch_ops_limit;
} mo_gpu_programs;

mo_status mo_gpu_programs_open(mo_gpu_programs *g, mo_error *err);
void mo_gpu_programs_close(mo_gpu_programs *g);

/* Does the host have a part in the layer, in small steps? */
static inline bool mo_gpu_programs_needs_host(const mo_gpu_programs *g, int layer)
{
    return mo_gpu_core_routed(g->core, layer) &&
           (g->core->spec->experts.divided || !mo_vram_complete(g->experts->where.vram, layer));
}

/* Chunks of keys that the step's last position sees. */
int64_t mo_gpu_chunks_seen(const mo_forward *forward);
/* The set for a small step, made where there is none yet, in the place of the one that rested longest; and made
 * anew, now and then, where all experts of a layer have come to slots since: it needs the host no more. `number`: of the
 * step. It is good until the next call. */
mo_status mo_gpu_programs_find(mo_gpu_programs *g, const mo_forward *forward, uint64_t number,
                               mo_gpu_program_set **out, mo_error *err);
/* Before adapters come or go: drops what was made with some, whose memory they read. */
void mo_gpu_programs_forget_adapters(mo_gpu_programs *g);
/* Launches a prepared piece of a step, and sets its mark. */
mo_status mo_gpu_programs_run(mo_gpu_programs *g, const mo_gpu_segment *segment, mo_error *err);

#endif
