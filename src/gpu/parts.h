/* The gpu's parts, private to its files. */
#ifndef MO_GPU_PARTS_H
#define MO_GPU_PARTS_H

#include "gpu/core.h"
#include "gpu/cpu_layers.h"
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

struct mo_gpu {
    mo_accelerator accelerator;
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
    uint64_t number; /* of the step */
    uint64_t steps;  /* that ended well */
};

/* ---- The hot cache (gpu/hot.c) ---- */

/* Chooses experts for at most `left` bytes, takes what exchanges need, and says how many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu *gpu, int64_t left, mo_vram_layer *shapes, mo_error *err);
void mo_gpu_hot_close(mo_gpu *gpu);
/* Makes the slots a tier of the hot cache's updates (gpu/exchange.c). */
mo_status mo_gpu_exchange_open(mo_gpu *gpu, mo_error *err);

/* ---- Core (gpu_core.c) ---- */

mo_status mo_gpu_upload(mo_gpu *gpu, mo_error *err);
/* Bytes that stay free for a session and the map of experts. */
int64_t mo_gpu_kept(const mo_gpu *gpu);
/* Bytes of the fewest stages with which experts can pass through; 0 when there are none. */
int64_t mo_gpu_least_stages(const mo_gpu *gpu);

/* ---- The step (step.c) ---- */

/* As mo_accelerator has it. */
mo_status mo_gpu_step(void *gpu, mo_forward *forward, mo_error *err);

/* ---- The end of a step (gpu_finish.c) ---- */

/* After everything was launched: waits for it, brings logits, choices and times to those who asked, and fails where a
 * flag says that the step is worth nothing. */
mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool few, mo_error *err);

/* ---- Lanes (gpu_lanes.c) ---- */

/* The host's part of an open layer of a step of few tokens. Between the two calls the next segment is launched: it will
 * wait for the reply. */
typedef struct mo_gpu_service {
    int layer;
    int count;   /* experts that are not on the device: forward->w->needs */
    bool stored; /* they come from the store */
    bool apart;  /* rows of an expert are where its ranks are */
    int sent;    /* transfers of Post-Fetch */
    int64_t fetched_bytes;
    int fetched;                /* experts that are to cross, */
    int16_t need[GPU_STAGES];   /* and their numbers among the needs */
    bool deferred;              /* the driver's calls are made while the CPU computes, by whoever is free: */
    const mo_gpu_segment *next; /* also the launch of what follows; NULL: it was launched */
    mo_gpu *gpu;
    mo_forward *forward;
    mo_status status;     /* what came of that */
    int64_t side_task_ns; /* what it took */
    mo_error error;
} mo_gpu_service;
mo_status mo_gpu_serve(mo_gpu *gpu, mo_forward *forward, int layer, mo_gpu_service *out, mo_error *err);
mo_status mo_gpu_reply(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *service, mo_error *err);
/* Hot experts of a layer that was served may go again; they stay as long as others look for places. */
void mo_gpu_unpin_hot(mo_gpu *gpu, const mo_forward *forward, int layer);
/* Waits until the device has published what the host is to see of the layer. */
mo_status mo_gpu_await_flag(mo_gpu *gpu, int layer, mo_error *err);
/* The fetch lane (gpu_fetch.c): decides what crosses; makes the calls for it, and for what follows; the same as an side_task
 * of a service. */
void mo_gpu_plan_fetch(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *service);
mo_status mo_gpu_submit(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *service, mo_error *err);
void mo_gpu_side_task(void *service);
/* Rounds of the CPU until everything that is not done (or given to the device) is. */
mo_status mo_gpu_compute(mo_gpu *gpu, mo_forward *forward, const mo_gpu_service *service, mo_error *err);
/* Copies that were still under way when the last served layer was answered are done by now: takes their time. */
mo_status mo_gpu_measure_last(mo_gpu *gpu, mo_error *err);
void mo_gpu_add(mo_forward *forward, const mo_need *need, bool apart, bool down);
/* The worklist of one expert, written for a stage and sent; returns where the device finds it. */
mo_daddr mo_gpu_list_work(const mo_gpu *gpu, const mo_forward *forward, int stage, int expert, mo_daddr base);
mo_status mo_gpu_send_work(mo_gpu *gpu, int stage, mo_error *err);

/* ---- Post-Fetch (gpu_postfetch.c) ---- */

bool mo_gpu_postfetching(const mo_gpu *gpu); /* does document 000 rule, or the rates? */
mo_status mo_gpu_size_transfers(mo_gpu *gpu, mo_error *err);
mo_status mo_gpu_send(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *service, mo_error *err);
mo_status mo_gpu_receive(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *service, bool *fetched,
                         mo_error *err);

/* The step is given up: whoever waits on the device need not. */
void mo_gpu_abort(mo_gpu *gpu);

/* ---- Batches (gpu_batch.c) ---- */

/* Before anything of the step is sent: forgets what an earlier batch sent ahead and did not need; experts that this one
 * will probably need set out. */
mo_status mo_gpu_begin_batch(mo_gpu *gpu, const mo_forward *forward, bool experts, mo_error *err);
/* The experts of a layer, expert by expert. */
mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, bool experts,
                                    mo_error *err);

#endif
