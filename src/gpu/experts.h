/* Experts: which experts are in slots on the device, and the stages and windows through which others are
 * copied to it. Private to gpu/. */
#ifndef MO_GPU_EXPERTS_H
#define MO_GPU_EXPERTS_H

#include "experts/where.h"
#include "gpu/core.h"
#include "gpu/link.h"
#include "gpu/memory.h"
#include "plan/share.h"

enum {
    GPU_STAGES = MO_PLAN_STAGES,
    GPU_WINDOW = 16, /* maximum experts of a batch that are copied and computed together */
};

/* A stage: buffer for one expert that is being copied. */
typedef struct mo_gpu_stage {
    mo_event *ready, *done;
    mo_daddr memory; /* for the largest expert, in the layout of RAM */
    mo_daddr plain;  /* in the file's layout; the same memory if RAM has that layout */
    mo_daddr to;     /* where it will be computed */
} mo_gpu_stage;

/* Stages of a batch that are filled together: experts of a layer, all gates, then all ups, then all downs. */
typedef struct mo_gpu_window {
    mo_event *arrived, *ready, *done; /* its bytes; converted to the file's layout; computed */
    mo_daddr memory, plain;           /* as in a stage */
    int layer, count;                 /* what it holds, or will hold */
    int16_t expert[GPU_WINDOW];
    bool awaited; /* the compute stream has waited for it */
} mo_gpu_window;

/* Location of one part of a window's experts. */
typedef struct mo_gpu_window_part {
    int64_t at, stride;
} mo_gpu_window_part;

typedef struct mo_gpu_experts {
    mo_gpu_link *link;
    const mo_gpu_core *core;
    /* the other devices of the row, which share the store; NULL: none */
    const struct mo_gpu_experts *first, *next;
    mo_where where; /* locations: the device's slots and RAM */
    /* lossy: an expert that is neither on the device nor in RAM is skipped (--skip-missing) */
    bool skips;
    bool lost; /* the device is lost, with the slots' contents */
    mo_gpu_stage stages[GPU_STAGES];
    int stage_count;
    int64_t stage_bytes, staging_bytes; /* of one, in the layout of RAM; of all */
    mo_gpu_window windows[GPU_STAGES];  /* the same memory, used by a batch */
    int window_count, window_size;
    uint64_t window_head, window_tail; /* windows filled; windows used */
    mo_event *crossing; /* last copies to this memory, perhaps not awaited yet; NULL: none. Not owned */
    uint64_t asked, hits, fetched, fetched_bytes;
} mo_gpu_experts;

/* Opens stages and windows of this size; link, core and store are set. */
mo_status mo_gpu_experts_open(mo_gpu_experts *x, mo_gpu_memory *memory, int64_t staging_bytes, mo_error *err);
void mo_gpu_experts_close(mo_gpu_experts *x);

/* Slot requirements of each layer, as in the plan, to be freed; NULL: out of memory. */
mo_vram_layer *mo_gpu_experts_shapes(const mo_gpu_experts *x, const mo_plan_model *model);
/* Opens slots: class_slots of each size class, or (NULL) the number per layer in `shapes`. */
mo_status mo_gpu_experts_open_slots(mo_gpu_experts *x, mo_gpu_memory *memory, const mo_vram_layer *shapes,
                                    const int32_t *class_slots, const mo_policy *policy, mo_error *err);

/* Sends the current locations of experts to the device. MO_EDEVICE: failed twice, or the device is lost. */
mo_status mo_gpu_experts_map(mo_gpu_experts *x, mo_error *err);

/* ---- Windows of a batch (windows.c) ---- */

mo_status mo_gpu_windows_open(mo_gpu_experts *x, mo_error *err); /* made of the stages */
void mo_gpu_windows_close(mo_gpu_experts *x);
mo_gpu_window *mo_gpu_window_at(mo_gpu_experts *x, uint64_t number);
mo_gpu_window_part mo_gpu_window_part_of(const mo_gpu_experts *x, int layer, int part);
bool mo_gpu_window_capacity(const mo_gpu_experts *x);
/* Copies experts (at most window_size, ascending) of a layer to the next window; one must be free. */
mo_status mo_gpu_window_send(mo_gpu_experts *x, int layer, const int *experts, int count, mo_error *err);
/* Fills windows with experts that a large batch will probably need: those not on the device, after those sent
 * last, from `layer` on, as long as fewer than `most` windows are filled, with at most `size` experts
 * each. */
mo_status mo_gpu_window_ahead(mo_gpu_experts *x, int layer, int most, int size, mo_error *err);
/* Frees the oldest window after the enqueued reads of it, or because it was not needed. */
mo_status mo_gpu_window_retire(mo_gpu_experts *x, mo_error *err);

#endif
