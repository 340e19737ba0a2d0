/* The gpu's parts, private to its files. */
#ifndef MO_GPU_PARTS_H
#define MO_GPU_PARTS_H

#include "gpu/core.h"
#include "gpu/experts.h"
#include "gpu/gpu.h"
#include "gpu/hot.h"
#include "gpu/lanes.h"
#include "gpu/layer_buffer.h"
#include "gpu/link.h"
#include "gpu/memory.h"
#include "gpu/needs.h"
#include "gpu/ops.h"
#include "gpu/programs.h"
#include "gpu/scratch.h"
#include "gpu/session.h"
#include "gpu/turn.h"

struct mo_gpu {
    mo_accelerator accelerator;
    mo_gpu_turn turn;
    mo_gpu_options options;
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer;
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    mo_gpu_programs programs;
    mo_gpu_lanes lanes;
    mo_gpu_cache hot;
    uint64_t number;         /* of the step */
    uint64_t steps;          /* that ended well */
    mo_device_report report; /* as of the last step; under report_lock */
    pthread_mutex_t report_lock;
};

/* ---- The hot cache (gpu/hot.c) ---- */

/* Chooses experts for at most `left` bytes, takes what exchanges need, and says how many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu *gpu, int64_t left, mo_vram_layer *shapes, mo_error *err);
void mo_gpu_hot_close(mo_gpu *gpu);
/* Makes the slots a tier of the hot cache's updates (gpu/exchange.c). */
mo_status mo_gpu_exchange_open(mo_gpu *gpu, mo_error *err);

/* ---- Core (gpu_core.c) ---- */

mo_status mo_gpu_upload(mo_gpu *gpu, mo_error *err);

/* ---- Counters (report.c) ---- */

/* What reports tell from now on. By the one who has the turn. */
void mo_gpu_report_publish(mo_gpu *gpu);

/* ---- The step (step.c) ---- */

/* As mo_accelerator has it. */
mo_status mo_gpu_step(void *gpu, mo_forward *forward, mo_error *err);

/* ---- The end of a step (gpu_finish.c) ---- */

/* After everything was launched: waits for it, brings logits, choices and times to those who asked, and fails where a
 * flag says that the step is worth nothing. */
mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool few, mo_error *err);

/* ---- Batches (gpu_batch.c) ---- */

/* Before anything of the step is sent: forgets what an earlier batch sent ahead and did not need; experts that this one
 * will probably need set out. */
mo_status mo_gpu_begin_batch(mo_gpu *gpu, const mo_forward *forward, bool experts, mo_error *err);
/* The experts of a layer, expert by expert. */
mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, bool experts,
                                    mo_error *err);

#endif
