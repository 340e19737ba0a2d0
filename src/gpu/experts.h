/* Experts: which are in slots on the device, and the stages and windows through which others reach it. Private to the
 * gpu's files. */
#ifndef MO_GPU_EXPERTS_H
#define MO_GPU_EXPERTS_H

#include "experts/where.h"
#include "gpu/core.h"
#include "gpu/link.h"
#include "gpu/memory.h"
#include "plan/share.h"

enum {
    GPU_STAGES = MO_PLAN_STAGES,
    GPU_WINDOW = 16, /* most experts of a batch that cross and are computed together */
};

/* Stages: experts on their way. */
typedef struct mo_gpu_stage {
    mo_event *ready, *done;
    mo_daddr memory; /* for the largest expert, as it is in RAM */
    mo_daddr plain;  /* and in the file's layout; the same place where RAM has that too */
    mo_daddr to;     /* where it will be computed from */
} mo_gpu_stage;

/* Stages of a batch that are filled together: experts of a layer, all gates, then all ups, then all downs. */
typedef struct mo_gpu_window {
    mo_event *arrived, *ready, *done; /* its bytes; in the file's layout; computed */
    mo_daddr memory, plain;           /* as a stage's */
    int layer, count;                 /* what it holds, or will */
    int16_t expert[GPU_WINDOW];
    bool awaited; /* the stream that computes has waited for it */
} mo_gpu_window;

/* Where one part of a window's experts is in it. */
typedef struct mo_gpu_window_part {
    int64_t at, stride;
} mo_gpu_window_part;

typedef struct mo_gpu_experts {
    mo_gpu_link *link;
    const mo_gpu_core *core;
    const struct mo_gpu_experts *first,
        *next;      /* of the row's devices, which share the store; NULL: no more */
    mo_where where; /* its slots, and those in RAM */
    bool skips;     /* lossy: an expert that is neither there nor in RAM is left out (--skip-missing) */
    bool lost;      /* so is what the slots hold */
    mo_gpu_stage stages[GPU_STAGES];
    int stage_count;
    int64_t stage_bytes, staging_bytes; /* of one, as it is in RAM; of all */
    mo_gpu_window windows[GPU_STAGES];  /* the same memory, in a batch */
    int window_count, window_size;
    uint64_t window_head, window_tail; /* windows: filled, and used */
    mo_event *crossing; /* of copies to this memory that nobody may have waited for; NULL: none. Not owned */
    uint64_t asked, hits, fetched, fetched_bytes;
} mo_gpu_experts;

/* Stages and windows of this many bytes; link, core and store are set. */
mo_status mo_gpu_experts_open(mo_gpu_experts *x, mo_gpu_memory *memory, int64_t staging_bytes, mo_error *err);
void mo_gpu_experts_close(mo_gpu_experts *x);

/* What a slot of each layer needs, as the plan has it, to be freed; NULL: no memory. */
mo_vram_layer *mo_gpu_experts_shapes(const mo_gpu_experts *x, const mo_plan_model *model);
/* Slots: class_slots of each size, or as many as the shapes name for each layer (NULL). */
mo_status mo_gpu_experts_open_slots(mo_gpu_experts *x, mo_gpu_memory *memory, const mo_vram_layer *shapes,
                                    const int32_t *class_slots, const mo_policy *policy, mo_error *err);

/* Tells the device where its experts are now. MO_EDEVICE: that failed twice, or it is lost. */
mo_status mo_gpu_experts_map(mo_gpu_experts *x, mo_error *err);

/* ---- Windows of a batch (windows.c) ---- */

mo_status mo_gpu_windows_open(mo_gpu_experts *x, mo_error *err); /* of the stages */
void mo_gpu_windows_close(mo_gpu_experts *x);
mo_gpu_window *mo_gpu_window_at(mo_gpu_experts *x, uint64_t number);
mo_gpu_window_part mo_gpu_window_part_of(const mo_gpu_experts *x, int layer, int part);
bool mo_gpu_window_capacity(const mo_gpu_experts *x);
/* Sends experts (at most window_size, ascending) of a layer to the next window; one must be free. */
mo_status mo_gpu_window_send(mo_gpu_experts *x, int layer, const int *experts, int count, mo_error *err);
/* Fills the windows with what a large batch will probably need: whatever is not on the device, behind what was sent last,
 * from `layer` on, as long as fewer than `most` are filled, with at most `size` experts each. */
mo_status mo_gpu_window_ahead(mo_gpu_experts *x, int layer, int most, int size, mo_error *err);
/* The oldest window has been read by what is enqueued so far, or was not needed. */
mo_status mo_gpu_window_retire(mo_gpu_experts *x, mo_error *err);

#endif
