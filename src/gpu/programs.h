/* Programs: prepared small steps. A set has a step's ops in segments, divided where the host has a part or a
 * layer is streamed. Steps of the same shape share a set. Private to gpu/. */
#ifndef MO_GPU_PROGRAMS_H
#define MO_GPU_PROGRAMS_H

#include "engine/forward.h"
#include "gpu/experts.h"
#include "gpu/layer_buffer.h"
#include "gpu/marks.h"
#include "gpu/ops.h"

enum {
    GPU_SEGMENTS = 6,  /* maximum segments of a layer */
    GPU_PROGRAMS = 32, /* maximum cached sets */
    GPU_RENEW = 128,   /* steps after which a set may be rebuilt because the host has less to do */
    GPU_OPS = 96,      /* maximum ops of a layer */
    GPU_KEPT_OPS = 8,  /* and of GPU_KEPT tokens' attention to positions that an indexer keeps */
};

typedef struct mo_gpu_segment {
    int from, to;           /* layers whose choice it makes: [from, to); the host serves to - 1 if needed */
    bool served;            /* the last layer waits for the host */
    int streamed;           /* the streamed layer whose matrices it reads; -1: it reads resident ones */
    int host_from, host_to; /* layers that the CPU computes before the next segment */
    int marked;             /* in a step with marks: the layer one part of which ends here; -1: none */
    mo_gpu_mark mark;
    mo_program *program;
} mo_gpu_segment;

typedef struct mo_gpu_program_set {
    int64_t tokens, slices, chunks;
    mo_kv_type kv;
    bool logits;
    bool drafts;          /* its recurrent layers do not change their states */
    bool tells;           /* its segments end at parts of layers (gpu/marks.h) */
    mo_adapting adapting; /* only count and lora; scales are in the step's block */
    uint64_t used, made;  /* steps: last use; when it was built, or could not be rebuilt */
    int count;
    mo_gpu_segment *segments;
    uint64_t closures; /* mo_vram_completions() at the last comparison with the layers */
    bool *served;      /* [layers of the model] when it was built; part of the segments' memory */
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
    mo_op *batch_ops; /* for a layer of a batch */
    int batch_ops_limit;
} mo_gpu_programs;

mo_status mo_gpu_programs_open(mo_gpu_programs *g, mo_error *err);
void mo_gpu_programs_close(mo_gpu_programs *g);

/* True if the host has a part in the layer in small steps. */
static inline bool mo_gpu_programs_needs_host(const mo_gpu_programs *g, int layer)
{
    return mo_gpu_core_routed(g->core, layer) &&
           (g->core->spec->experts.divided || !mo_vram_complete(g->experts->where.vram, layer));
}

/* Number of chunks of keys that the step's last position sees. */
int64_t mo_gpu_chunks_seen(const mo_forward *forward);
/* The set for a small step. A missing one is built and replaces the least recently used. A set is rebuilt
 * occasionally if all experts of a layer have come to slots since, so that the layer no longer needs the
 * host. `number`: of the step. Valid until the next call. */
mo_status mo_gpu_programs_find(mo_gpu_programs *g, const mo_forward *forward, uint64_t number,
                               mo_gpu_program_set **out, mo_error *err);
/* Before adapters are opened or closed: drops sets with adapters, whose memory they read. */
void mo_gpu_programs_forget_adapters(mo_gpu_programs *g);
/* Launches a segment, and sets its mark. */
mo_status mo_gpu_programs_run(mo_gpu_programs *g, const mo_gpu_segment *segment, mo_error *err);

#endif
