/* The thirteen objects of a model on a device, and the number of the step. Where several devices share a model each has a run of
 * its layers and thirteen objects of its own; the first is the head of the row, and what belongs to all of them is its. For the files on top of them (gpu.c, step.c, batch.c,
 * finish.c, session.c, report.c); each object's own files know those below it alone. */
#ifndef MO_GPU_OBJECTS_H
#define MO_GPU_OBJECTS_H

#include "device/meter.h"
#include "engine/accelerator.h"
#include "gpu/adapters.h"
#include "gpu/core.h"
#include "gpu/drafts.h"
#include "gpu/experts.h"
#include "gpu/hot.h"
#include "gpu/kv_in_ram.h"
#include "gpu/lanes.h"
#include "gpu/layer_buffer.h"
#include "gpu/link.h"
#include "gpu/memory.h"
#include "gpu/mover.h"
#include "gpu/piece.h"
#include "gpu/programs.h"
#include "gpu/scratch.h"
#include "gpu/turn.h"

/* Experts of a batch that are computed together: `count` from `first` on in the order, out of one window. */
typedef struct mo_gpu_portion {
    uint64_t window;
    int first, count;
} mo_gpu_portion;

/* In which order a batch computes the experts of a layer. */
typedef struct mo_gpu_order {
    int expert[MO_EXPERTS_MAX];
    int count, hot; /* the first `hot` are in slots */
    mo_gpu_portion portion[MO_EXPERTS_MAX];
    int portions, sent; /* the first `sent` are in windows */
    int cpu_first;      /* the experts from here on are the CPU's; claimed_first: none are */
    int claimed_first;  /* those from here on are workers'; count: none are */
    int skipped;        /* how many behind all of them are left out (--skip-missing) */
    bool by_cpu[MO_EXPERTS_MAX];
    int32_t left[MO_EXPERTS_MAX]; /* by expert: tokens that chose it; while it is put in order */
} mo_gpu_order;

typedef struct mo_gpu {
    mo_accelerator accelerator; /* the head's: it speaks for all */
    mo_gpu_turn turn;           /* of all devices; the head's */
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer;
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    mo_gpu_adapters adapters;
    mo_gpu_mover mover;
    mo_ahead ahead; /* of its slots, and those in RAM */
    mo_gpu_programs programs;
    mo_gpu_lanes lanes;
    mo_gpu_hot hot;
    mo_gpu_drafts drafts;
    mo_state_size states;                        /* what was planned for sessions, here */
    _Atomic(mo_block_pool *) pools[MO_KV_TYPES]; /* of their blocks, by format; NULL: there were none yet */
    mo_gpu_kv_in_ram kv_in_ram;                  /* which layers' blocks are in RAM */
    /* Whose row of logits is where it was made, by place; NULL: none. In turns (gpu/logits.h). */
    struct mo_gpu_session *kept_logits[GPU_LOGITS_KEPT];
    mo_gpu_order order; /* of the layer that a batch computes */
    uint64_t number;    /* of the step */
    bool small;         /* it goes by programs */
    int64_t accepted;   /* drafts of the steps since the hot cache's last turn */
    uint64_t steps;     /* that ended well */
    mo_meter *meter;    /* of the main stream; NULL: not requested yet */
    struct mo_gpu *head, *before,
        *next;    /* the device with the first layers; those with the layers before and behind, NULL: none */
    bool reaches; /* it copies straight from the memory of the one before (gpu/handover.h) */
    int part, parts; /* its number in the row; of the head, how many there are */
    bool
        lost; /* the device is, and others go on: the CPU computes its layers (gpu/lost.h); changes in turns */
    bool failed;          /* its part of a step said that it is lost */
    mo_gpu_pieces pieces; /* of batches, the head's */
    mo_gpu_piece
        *piece; /* what it computes now, by a thread that all but the head have; NULL: of one device */
    pthread_t piece_thread;
    bool has_thread;
    uint8_t *kinds; /* of the head, [layers]: the kind of memory of each layer's blocks (session.c) */
    mo_device_report report; /* as of the last step; under report_lock */
    pthread_mutex_t report_lock;
} mo_gpu;

/* The one of the row that has the layer. */
static inline mo_gpu *mo_gpu_with_layer(const mo_gpu *head, int layer)
{
    const mo_gpu *gpu = head;
    while (gpu->next && layer >= gpu->core.end) {
        gpu = gpu->next;
    }
    return (mo_gpu *)gpu;
}

/* Is it a piece of a step, which the device's thread computes in parallel with others? */
static inline bool mo_gpu_is_piece(const mo_gpu *gpu, const mo_forward *forward)
{
    return gpu->piece && forward == &gpu->piece->forward;
}

/* Tokens of the whole step. */
static inline int64_t mo_gpu_whole(const mo_gpu *gpu, const mo_forward *forward)
{
    return mo_gpu_is_piece(gpu, forward) ? gpu->piece->whole : forward->tokens;
}

#endif
