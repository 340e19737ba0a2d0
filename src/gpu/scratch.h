/* Scratch: the memory that a step works in, on the device and pinned on the host. Private to the gpu's files. */
#ifndef MO_GPU_SCRATCH_H
#define MO_GPU_SCRATCH_H

#include "device/op.h"
#include "gpu/bf16.h"
#include "gpu/core.h"
#include "gpu/memory.h"

enum {
    GPU_SMALL = MO_OP_SMALL, /* tokens of a step that goes by worklists; larger ones go expert by expert */
    GPU_SHARED = 64,         /* most tokens of a larger one of which the CPU computes some of the experts */
    GPU_LOGITS = 32,         /* rows of logits made at once, */
    GPU_LOGITS_KEPT = 64,    /* and of a step that there is space for */
    GPU_KV_STAGED = 8,       /* slices of a batch that may be staged (gpu/kv_staging.h) */
};

/* Offsets in the step's block for a number of tokens. */
typedef struct mo_gpu_block {
    int64_t bad, sequence, places, slices, rope;
    int64_t q_factor; /* float[tokens], of a model whose queries have a temperature */
    int64_t x;
    int64_t uses;  /* mo_dadapter_use[tokens][MO_OP_USES], of steps with adapters alone */
    int64_t bytes; /* with those */
} mo_gpu_block;

/* Offsets in a batch's staging data (gpu/kv_staging.h). */
typedef struct mo_gpu_kv_staging_list {
    int64_t places;  /* mo_dplace[batch] */
    int64_t states;  /* mo_dstate[GPU_KV_STAGED][layers] */
    int64_t entries; /* mo_daddr[layers][limit] */
    int64_t bytes;
    int64_t limit; /* staged blocks in a layer: at least those of one full session */
} mo_gpu_kv_staging_list;

/* Pinned memory. */
typedef struct mo_gpu_pinned {
    uint8_t *memory;
    mo_daddr seen;
    int64_t bytes;
    uint8_t *block;   /* as the device's step block */
    uint32_t *flags;  /* [layers] published */
    uint8_t *replies; /* [layers] mo_dreply with space for GPU_SMALL * used rows */
    int64_t reply_bytes;
    int32_t *ids;     /* [batch * used] of the layer that was published; the host may change them, */
    float *weights;   /* and these */
    int32_t *all_ids; /* [layers][mo_gpu_choice_rows()] of all, after a small step or one with drafts */
    float *all_weights;
    float *in;        /* [GPU_SMALL][D] the experts' input, */
    float *latent_in; /* [GPU_SMALL][io] or this, of experts with products around them */
    float *x;         /* [GPU_SMALL][D] the stream, on its way through layers that the CPU computes */
    float *rows;      /* [GPU_SMALL * used][io] what the CPU computed */
    void *hidden;     /* acts [GPU_SMALL * used][F]: what it hands on before down */
    float *shared_in,
        *shared_rows; /* [GPU_SHARED][io], [GPU_SHARED * used][io]: the same of a batch of few tokens, of any
                         where other ranks have experts */
    uint8_t *acts;    /* acts [batch][D]: what the experts read, where they are all that is here */
    float *logits;    /* [GPU_LOGITS][vocab] */
    uint32_t *
        bad; /* [2 * layers + 2], what the device waited for replies: [layers] nanoseconds, and best tokens */
    uint8_t *kv_staging; /* as the device's */
    uint8_t *works;      /* worklists of fetched experts, one per stage */
    int64_t work_bytes;
    mo_dgroup *groups;       /* [3][group_limit] of gate, up and down */
    int32_t *picks, *row_of; /* these three side by side, as on the device */
    int32_t *counts;         /* [layers][group_limit] rows of each expert, where the device arranged them */
} mo_gpu_pinned;

/* As mo_latent_space and mo_side_space of engine/workspace.h. */
typedef struct mo_gpu_latent_scratch {
    mo_daddr in, plain, mixed; /* acts */
    mo_daddr q, out;           /* q before it is taken apart, and the heads' results: floats */
    mo_daddr groups;           /* mo_dgroup[2][heads] */
} mo_gpu_latent_scratch;
/* Indexers. As much as MO_OP_KEEP and MO_OP_GATHER need for GPU_KEPT tokens at a time. */
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

/* Device memory that one step works in. */
typedef struct mo_gpu_scratch {
    const mo_gpu_core *core;
    mo_daddr memory;
    int64_t bytes;
    mo_daddr step;                                   /* the block that the host sends at the beginning */
    mo_daddr in, in_dense, in_router, mixed, hidden; /* acts */
    mo_daddr gates;                                  /* of attention's heads */
    mo_daddr q, k, v, y, partial, scores, weights, gate, up, down;
    mo_gpu_side_scratch side;
    mo_gpu_latent_scratch latent;
    mo_gpu_experts_scratch experts_latent;
    mo_gpu_index_scratch index;
    mo_daddr ids;                    /* int32[layers][rows of a choice]; weights the same */
    mo_daddr kept_ids, kept_weights; /* [GPU_SMALL * used] what is computed of a layer's choice */
    mo_daddr work;                   /* mo_dwork and items, of the hot lane */
    mo_daddr sent;                   /* acts: hidden rows from the CPU */
    mo_daddr fetched;                /* the same for each stage of the fetch lane */
    mo_daddr groups, picks, row_of;  /* of a batch */
    mo_daddr counts;                 /* int32[layers][group_limit] */
    mo_daddr logits;
    mo_daddr kv_staging; /* what a batch says of them */
    mo_daddr idle;       /* the feed-forward parts' memory, in one piece: unused while a layer attends */
    int64_t idle_bytes;  /* of it */
    mo_gpu_bf16 bf16;    /* products in bfloat16 */
    int64_t partial_floats;
    mo_gpu_pinned pinned;
    int64_t batch, context; /* most tokens of a step, most positions of a session */
    int64_t group_limit;    /* experts of a layer, at most */
    uint32_t sequence;      /* of the step: what flags and replies of this one hold */
} mo_gpu_scratch;

/* Allocates the memory, on the device and pinned. */
mo_status mo_gpu_scratch_open(mo_gpu_scratch *s, const mo_gpu_core *core, mo_gpu_memory *memory,
                              int64_t batch, int64_t context, const mo_precision_rule *precision,
                              mo_error *err);
void mo_gpu_scratch_close(mo_gpu_scratch *s, mo_device *device);
/* Bytes of that; of the core the description and its ropes are enough. */
typedef struct mo_gpu_scratch_size {
    int64_t device, pinned;
    int64_t idle; /* of the device's */
} mo_gpu_scratch_size;
mo_gpu_scratch_size mo_gpu_scratch_bytes(const mo_gpu_core *core, int64_t batch, int64_t context,
                                         const mo_precision_rule *precision);

mo_gpu_block mo_gpu_block_of(const mo_gpu_scratch *s, int64_t tokens);
mo_gpu_kv_staging_list mo_gpu_kv_staging_list_of(const mo_gpu_scratch *s);
mo_dacts mo_dacts_lay(mo_daddr memory, int64_t rows, int64_t cols); /* as mo_acts_lay() */

/* The rows that a layer's experts read: those of `in`, or of experts_latent.in. */
mo_daddr mo_gpu_experts_rows(const mo_gpu_scratch *s, int layer);

/* The host's reply to a layer. */
mo_dreply *mo_gpu_reply_of(const mo_gpu_scratch *s, int layer);

/* Flags of a layer: not finite, or too large for the cache. */
mo_daddr mo_gpu_bad(const mo_gpu_scratch *s, int layer, bool cache);

/* Behind them, what it waited for the host's reply; then the best token of each row of logits, a uint64 each. Words. */
int64_t mo_gpu_best_at(int layers);
int64_t mo_gpu_bad_words(int layers);
mo_daddr mo_gpu_waited(const mo_gpu_scratch *s, int layer);

/* The ids or weights that a layer chose, in their array: layers are side by side for small steps, so that one copy
 * brings them all. */
int64_t mo_gpu_choice_rows(const mo_gpu_scratch *s, int64_t tokens);
mo_daddr mo_gpu_choice(const mo_gpu_scratch *s, mo_daddr array, int64_t tokens, int layer);

#endif
