/* The objects of a model on a device, and the number of the step. If several devices share a model, each has
 * a range of layers and its own objects. The first device is the head of the row, and owns what all share.
 * For the files on top of the objects (gpu.c, step.c, batch.c, finish.c, session.c, report.c); each object's
 * own files know only the objects below it. */
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

/* Experts of a batch that are computed together: `count` from `first` on in the order, from one window. */
typedef struct mo_gpu_portion {
    uint64_t window;
    int first, count;
} mo_gpu_portion;

/* The order in which a batch computes the experts of a layer. */
typedef struct mo_gpu_order {
    int expert[MO_EXPERTS_MAX];
    int count, hot; /* the first `hot` are in slots */
    mo_gpu_portion portion[MO_EXPERTS_MAX];
    int portions, sent; /* the first `sent` are in windows */
    int cpu_first;      /* experts from here on are the CPU's; equal to claimed_first: none */
    int claimed_first;  /* experts from here on are workers'; equal to count: none */
    int skipped;        /* skipped experts after all of them (--skip-missing) */
    bool by_cpu[MO_EXPERTS_MAX];
    int32_t left[MO_EXPERTS_MAX]; /* by expert: tokens that chose it; used while sorting */
} mo_gpu_order;

typedef struct mo_gpu {
    mo_accelerator accelerator; /* of the head: it acts for all devices */
    mo_gpu_turn turn;           /* for all devices; the head's */
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer;
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    mo_gpu_adapters adapters;
    mo_gpu_mover mover;
    mo_ahead ahead; /* moves between RAM and its slots */
    mo_gpu_programs programs;
    mo_gpu_lanes lanes;
    mo_gpu_hot hot;
    mo_gpu_drafts drafts;
    mo_state_size states; /* planned session states on this device */
    /* blocks of sessions, by format; NULL: none were needed so far */
    _Atomic(mo_block_pool *) pools[MO_KV_TYPES];
    mo_gpu_kv_in_ram kv_in_ram; /* layers whose blocks are in RAM */
    /* Session whose row of logits is still on the device, by row; NULL: none. In turns (gpu/logits.h). */
    struct mo_gpu_session *kept_logits[GPU_LOGITS_KEPT];
    mo_gpu_order order; /* order of the current layer of a batch */
    uint64_t number;    /* number of the step */
    bool small;         /* the step runs by programs */
    int64_t accepted;   /* drafts accepted since the hot cache's last turn */
    uint64_t steps;     /* successful steps */
    mo_meter *meter;    /* of the main stream; NULL: not requested */
    /* the device with the first layers; the devices with the previous and the next layers, NULL: none */
    struct mo_gpu *head, *before, *next;
    bool reaches;    /* it copies directly from the previous device's memory (gpu/handover.h) */
    int part, parts; /* its index in the row; for the head, the number of devices */
    /* the device is lost and others continue: the CPU computes its layers (gpu/lost.h); changes in turns */
    bool lost;
    bool failed;          /* its part of a step reported that it is lost */
    mo_gpu_pieces pieces; /* pieces of batches; the head's */
    /* the piece it computes now, on its own thread unless it is the head; NULL: a single device */
    mo_gpu_piece *piece;
    pthread_t piece_thread;
    bool has_thread;
    uint8_t *kinds;          /* of the head, [layers]: kind of memory of each layer's blocks (session.c) */
    mo_device_report report; /* at the end of the last step; under report_lock */
    pthread_mutex_t report_lock;
} mo_gpu;

/* The device of the row that has the layer. */
static inline mo_gpu *mo_gpu_with_layer(const mo_gpu *head, int layer)
{
    const mo_gpu *gpu = head;
    while (gpu->next && layer >= gpu->core.end) {
        gpu = gpu->next;
    }
    return (mo_gpu *)gpu;
}

/* True if this is a piece of a step, which the device's thread computes in parallel with others. */
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
