/* Experts: which are in slots on the device, and the stages and windows through which others reach it. Private to the
 * gpu's files. */
#ifndef MO_GPU_EXPERTS_H
#define MO_GPU_EXPERTS_H

#include "gpu/link.h"
#include "store/store.h"
#include "store/vram.h"

enum {
    GPU_STAGES = MO_VRAM_STAGES,
    GPU_WINDOW = 16, /* most experts of a batch that cross and are computed together */
};

/* Stages: experts on their way. */
typedef struct mo_gpu_stage {
    mo_event *ready, *done;
    mo_daddr memory; /* room for the largest brick, as it lies in RAM */
    mo_daddr plain;  /* and in the file's layout; the same place where RAM has that too */
    mo_daddr to;     /* where it will be computed from */
} mo_gpu_stage;

/* Stages of a batch that are filled together: experts of a layer, all gates, then all ups, then all downs. */
typedef struct mo_gpu_window {
    mo_event *arrived, *ready, *done; /* its bytes; in the file's layout; computed */
    mo_daddr memory, plain;           /* as a stage's */
    int layer, count;                 /* what it holds, or will */
    int16_t expert[GPU_WINDOW];
} mo_gpu_window;

/* Where one part of a window's experts lies in it. */
typedef struct mo_gpu_window_part {
    int64_t at, stride;
} mo_gpu_window_part;

typedef struct mo_gpu_experts {
    mo_vram *vram;   /* the slots */
    mo_store *store; /* of experts that are not in RAM for good; NULL: all are */
    mo_gpu_stage stages[GPU_STAGES];
    int stage_count;
    int64_t stage_bytes, staging_bytes; /* of one, as it is in RAM; of all */
    mo_gpu_window windows[GPU_STAGES];  /* the same memory, in a batch */
    int window_count, window_size;
    uint64_t window_head, window_tail; /* windows: filled, and used */
    uint64_t asked, hits, fetched, fetched_bytes;
} mo_gpu_experts;

#endif
