/* Scratch: the working memory of a step, on the device and pinned on the host. Private to gpu/. */
#ifndef MO_GPU_SCRATCH_H
#define MO_GPU_SCRATCH_H

#include "device/dacts.h"
#include "device/op.h"
#include "gpu/bf16.h"
#include "gpu/core.h"
#include "gpu/memory.h"

enum {
    GPU_SMALL = MO_OP_SMALL, /* maximum tokens of a step by worklists; larger steps run expert by expert */
    GPU_SHARED = 64,         /* maximum tokens of a batch in which the CPU computes some experts */
    GPU_LOGITS = 32,         /* rows of logits computed at once */
    GPU_LOGITS_KEPT = 64,    /* rows of logits of a step that fit */
    GPU_KV_STAGED = 8,       /* slices of a batch that may be staged (gpu/kv_staging.h) */
};

/* Offsets in the step's block for a number of tokens. */
typedef struct mo_gpu_block {
    int64_t bad, sequence, places, slices, rope;
    int64_t q_factor; /* float[tokens], if the model's queries have a temperature */
    int64_t x;
    int64_t uses;  /* mo_dadapter_use[tokens][MO_OP_USES], only in steps with adapters */
    int64_t bytes; /* including uses */
} mo_gpu_block;

/* Offsets in a batch's staging data (gpu/kv_staging.h). */
typedef struct mo_gpu_kv_staging_list {
    int64_t places;  /* mo_dplace[batch] */
    int64_t states;  /* mo_dstate[GPU_KV_STAGED][layers] */
    int64_t entries; /* mo_daddr[layers][limit] */
    int64_t bytes;
    int64_t limit; /* staged blocks of a layer: at least those of one full session */
} mo_gpu_kv_staging_list;

/* Pinned memory. */
typedef struct mo_gpu_pinned {
    uint8_t *memory;
    mo_daddr seen;
    int64_t bytes;
    uint8_t *block;   /* copy of the device's step block */
    uint32_t *flags;  /* [layers] published */
    uint8_t *replies; /* [layers] mo_dreply with space for GPU_SMALL * used rows */
    int64_t reply_bytes;
    int32_t *ids;   /* [batch * used] of the published layer; the host may change them */
    float *weights; /* and these */
    /* [layers][mo_gpu_choice_rows()] of all layers, after a small step or one with drafts */
    int32_t *all_ids;
    float *all_weights;
    float *in;        /* [GPU_SMALL][D] the experts' input */
    float *latent_in; /* [GPU_SMALL][io] or this, for experts with products around them */
    float *x;         /* [GPU_SMALL][D] the stream, for layers that the CPU computes */
    float *rows;      /* [GPU_SMALL * used][io] rows computed by the CPU */
    void *hidden;     /* acts [GPU_SMALL * used][F]: activations from the CPU, before down */
    /* [GPU_SHARED][io], [GPU_SHARED * used][io]: the same for a batch of few tokens, or of any if other ranks
     * have experts */
    float *shared_in, *shared_rows;
    uint8_t *acts; /* acts [batch][D]: the experts' input, if only experts are here */
    float *logits; /* [GPU_LOGITS][vocab] */
    uint32_t *
        bad; /* [2 * layers + 2], what the device waited for replies: [layers] nanoseconds, and best tokens */
    uint8_t *kv_staging; /* copy of the device's */
    uint8_t *works;      /* worklists of fetched experts, one per stage */
    int64_t work_bytes;
    mo_dgroup *groups;       /* [3][group_limit] of gate, up and down */
    int32_t *picks, *row_of; /* these three are contiguous, as on the device */
    int32_t *counts;         /* [layers][group_limit] rows of each expert, if the device arranged them */
} mo_gpu_pinned;

/* As mo_latent_space and mo_side_space in engine/workspace.h. */
typedef struct mo_gpu_latent_scratch {
    mo_daddr in, plain, mixed; /* acts */
    mo_daddr q, out;           /* floats: q before it is split, and the heads' results */
    mo_daddr groups;           /* mo_dgroup[2][heads] */
} mo_gpu_latent_scratch;
/* Indexers: memory of MO_OP_KEEP and MO_OP_GATHER for GPU_KEPT tokens at a time. */
enum { GPU_KEPT = 16 };
typedef struct mo_gpu_index_scratch {
    mo_daddr q, k, share; /* floats, [batch] rows */
    mo_daddr kept;        /* int32[batch][top] of the last layer with an indexer */
    mo_daddr scores;      /* float[GPU_KEPT][stride] */
    int64_t stride;
    mo_daddr blocks, tables, states, places;
} mo_gpu_index_scratch;
typedef struct mo_gpu_side_scratch {
    mo_daddr hidden; /* acts */
    mo_daddr gate, up, down, weight;
} mo_gpu_side_scratch;

/* As mo_experts_latent of engine/workspace.h. */
typedef struct mo_gpu_experts_scratch {
    mo_daddr in, sum; /* acts */
    mo_daddr up;
} mo_gpu_experts_scratch;

/* Working memory of a step on the device. */
typedef struct mo_gpu_scratch {
    const mo_gpu_core *core;
    mo_daddr memory;
    int64_t bytes;
    mo_daddr step;                                   /* the block that the host sends at the beginning */
    mo_daddr in, in_dense, in_router, mixed, hidden; /* acts */
    mo_daddr gates;                                  /* of the attention's heads */
    mo_daddr q, k, v, y, partial, scores, weights, gate, up, down;
    mo_gpu_side_scratch side;
    mo_gpu_latent_scratch latent;
    mo_gpu_experts_scratch experts_latent;
    mo_gpu_index_scratch index;
    mo_daddr ids;                    /* int32[layers][rows of a choice]; weights likewise */
    mo_daddr kept_ids, kept_weights; /* [GPU_SMALL * used] computed picks of a layer */
    mo_daddr work;                   /* mo_dwork and items of the hot lane */
    mo_daddr sent;                   /* acts: activations from the CPU */
    mo_daddr fetched;                /* the same for each stage of the fetch lane */
    mo_daddr groups, picks, row_of;  /* of a batch */
    mo_daddr counts;                 /* int32[layers][group_limit] */
    mo_daddr logits;
    mo_daddr kv_staging; /* staging lists of a batch */
    mo_daddr idle;       /* memory of the feed-forward parts, contiguous: unused while a layer attends */
    int64_t idle_bytes;  /* bytes of idle */
    mo_gpu_bf16 bf16;    /* products in bfloat16 */
    int64_t partial_floats;
    mo_gpu_pinned pinned;
    int64_t batch, context; /* maximum tokens of a step; maximum positions of a session */
    int64_t group_limit;    /* maximum experts of a layer */
    uint32_t sequence;      /* of the step: value of its flags and replies */
} mo_gpu_scratch;

/* Allocates the memory, on the device and pinned. */
mo_status mo_gpu_scratch_open(mo_gpu_scratch *s, const mo_gpu_core *core, mo_gpu_memory *memory,
                              int64_t batch, int64_t context, const mo_precision_rule *precision,
                              mo_error *err);
void mo_gpu_scratch_close(mo_gpu_scratch *s, mo_device *device);
/* Sizes of that memory; the core needs only its description and ropes. */
typedef struct mo_gpu_scratch_size {
    int64_t device, pinned;
    int64_t idle; /* part of device */
} mo_gpu_scratch_size;
mo_gpu_scratch_size mo_gpu_scratch_bytes(const mo_gpu_core *core, int64_t batch, int64_t context,
                                         const mo_precision_rule *precision);

mo_gpu_block mo_gpu_block_of(const mo_gpu_scratch *s, int64_t tokens);
mo_gpu_kv_staging_list mo_gpu_kv_staging_list_of(const mo_gpu_scratch *s);

/* The input rows of a layer's experts: `in` or experts_latent.in. */
mo_daddr mo_gpu_experts_rows(const mo_gpu_scratch *s, int layer);

/* The host's reply to a layer. */
mo_dreply *mo_gpu_reply_of(const mo_gpu_scratch *s, int layer);

/* Flags of a layer: not finite values; values too large for the cache. */
mo_daddr mo_gpu_bad(const mo_gpu_scratch *s, int layer, bool cache);

/* After the flags: the time the device waited for the host's replies, then the best token of each row of
 * logits, a uint64 each. In words. */
int64_t mo_gpu_best_at(int layers);
int64_t mo_gpu_bad_words(int layers);
mo_daddr mo_gpu_waited(const mo_gpu_scratch *s, int layer);

/* The ids or weights that a layer chose, in their array. In small steps the layers are contiguous, so that
 * one copy returns all. */
int64_t mo_gpu_choice_rows(const mo_gpu_scratch *s, int64_t tokens);
mo_daddr mo_gpu_choice(const mo_gpu_scratch *s, mo_daddr array, int64_t tokens, int layer);

#endif
