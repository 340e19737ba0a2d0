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

/* ---- Memory (gpu_room.c) ---- */

mo_gpu_block mo_gpu_lay_block(const mo_gpu *gpu, int64_t tokens);
mo_status mo_gpu_scratch_open(mo_gpu *gpu, mo_error *err);
mo_status mo_gpu_pinned_open(mo_gpu *gpu, mo_error *err);
mo_dacts mo_dacts_lay(mo_daddr memory, int64_t rows, int64_t cols);
static inline mo_daddr mo_gpu_bad(const mo_gpu *c, int layer, bool cache)
{
    return c->scratch.step + (mo_daddr)(4 * (2 * layer + (cache ? 1 : 0)));
}

/* Behind them, what it waited for the host's reply. */
static inline int64_t mo_gpu_bad_words(int layers)
{
    return 3 * (int64_t)layers + 2;
}
static inline mo_daddr mo_gpu_waited(const mo_gpu *c, int layer)
{
    return c->scratch.step + (mo_daddr)(4 * (2 * (int64_t)c->core.spec->layer_count + 2 + layer));
}

/* The ids or weights that a layer chose, in their array: layers lie close together for few tokens, so that one copy
 * brings them all. */
static inline int64_t mo_gpu_choice_rows(const mo_gpu *c, int64_t tokens)
{
    return (tokens <= GPU_SMALL ? GPU_SMALL : c->scratch.batch) * c->core.extent.used;
}
static inline mo_daddr mo_gpu_choice(const mo_gpu *c, mo_daddr array, int64_t tokens, int layer)
{
    return array + (mo_daddr)(layer * mo_gpu_choice_rows(c, tokens) * 4);
}

/* ---- Slots at the start (gpu_fill.c) ---- */

mo_status mo_gpu_fill(mo_gpu *gpu, mo_error *err);
/* Sends an expert that is in RAM to a slot, in the order of the main stream; stages take turns by number. Between
 * steps. */
mo_status mo_gpu_send_to_slot(mo_gpu *gpu, int layer, int expert, mo_daddr to, int number, int64_t *bytes,
                              mo_error *err);
bool mo_gpu_in_ram(const mo_gpu *gpu, int layer, int expert);

/* ---- The hot cache (gpu/hot.c) ---- */

/* Chooses experts for at most `left` bytes, takes what exchanges need, and says how many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu *gpu, int64_t left, mo_vram_layer *shapes, mo_error *err);
void mo_gpu_hot_close(mo_gpu *gpu);
/* Makes the slots a tier of the hot cache's updates (gpu/exchange.c). */
mo_status mo_gpu_exchange_open(mo_gpu *gpu, mo_error *err);

/* ---- Core (gpu_core.c) ---- */

mo_status mo_gpu_upload(mo_gpu *gpu, mo_error *err);
int64_t mo_gpu_core_bytes(const mo_model_spec *spec);
bool mo_gpu_core_needs_restoring(const mo_model_spec *spec);
/* Bytes of the map of experts, and of a session's table, on a device. */
int64_t mo_gpu_map_bytes(const mo_model_spec *spec);
int64_t mo_gpu_session_table_bytes(const mo_model_spec *spec);
/* Bytes of the largest expert on a device; 0 when there are none. */
int64_t mo_gpu_largest_brick(const mo_model_spec *spec);
/* Bytes that stay free for a session and the map of experts. */
int64_t mo_gpu_kept(const mo_gpu *gpu);
/* Bytes of the fewest stages with which experts can pass through; 0 when there are none. */
int64_t mo_gpu_least_stages(const mo_gpu *gpu);

/* ---- Ops (gpu_ops.c; a layer's halves: gpu_mix.c, gpu_feed.c) ---- */

typedef struct mo_gpu_plan {
    const mo_gpu *gpu;
    int64_t tokens, chunks, slices;
    mo_kv_type kv;
    int passing; /* while programs are made: the layer in passage that the ops so far read; -1: none */
    mo_op *ops;
    int count, limit;
} mo_gpu_plan;

/* Experts of a batch that are computed together: consecutive groups, consecutive rows. */
typedef struct mo_gpu_span {
    int64_t group, groups;
    int64_t first_row, rows;
    int64_t most; /* rows of the largest group */
} mo_gpu_span;

/* Append: the first norm; a layer up to its choice; publication to the host; hot experts by worklist; the part beside
 * them; waiting for the host's rows; merging the layer and norming for the next one (or for the output). */
void mo_gpu_begin(mo_gpu_plan *p, int layer); /* one past the last: for the output */
void mo_gpu_mix(mo_gpu_plan *p, int layer);
void mo_gpu_publish(mo_gpu_plan *p, int layer);
void mo_gpu_hot(mo_gpu_plan *p, int layer);
void mo_gpu_side(mo_gpu_plan *p, int layer);
void mo_gpu_await(mo_gpu_plan *p, int layer);
/* The device reads so many bytes of pinned memory by itself. */
void mo_gpu_receive_input(mo_gpu_plan *p, int layer, const void *pinned, mo_daddr to, int64_t bytes);
/* grouped: rows lie sorted by expert (row_of); experts: false leaves them out. */
void mo_gpu_merge(mo_gpu_plan *p, int layer, bool grouped, bool experts);
void mo_gpu_logits(mo_gpu_plan *p, int64_t first, int64_t rows);
/* One brick's rows by a worklist of its own. */
void mo_gpu_brick(mo_gpu_plan *p, int layer, mo_daddr work, int64_t most);
/* The same, but the CPU has computed gate and up. */
void mo_gpu_down(mo_gpu_plan *p, int layer, mo_daddr work, int64_t most);
/* Groups of a batch: gate, up, activation, down. */
void mo_gpu_groups(mo_gpu_plan *p, int layer, const mo_gpu_span *span);
static inline mo_status mo_gpu_launch(mo_dstream *stream, const mo_gpu_plan *p, mo_error *err)
{
    return mo_gpu_link_launch(&p->gpu->link, stream, p->ops, p->count, err);
}

/* ---- Sets of programs (gpu_set.c) ---- */

/* Does the host have a part in the layer, in steps of few tokens? */
static inline bool mo_gpu_layer_needs_host(const mo_gpu *c, int layer)
{
    return c->core.spec->layers[layer].routed && !mo_vram_complete(c->experts.vram, layer);
}

/* Does it pass through the ring of layers? */
static inline bool mo_gpu_layer_streamed(const mo_gpu *c, int layer)
{
    return c->layer_buffer.number[layer] >= 0;
}

/* Chunks of keys that the step's last position sees; whether anybody wants its logits. */
int64_t mo_gpu_chunks_seen(const mo_forward *forward);
bool mo_gpu_wants_logits(const mo_forward *forward);
/* The set for a step of few tokens, made where there is none yet, in the place of the one that rested longest; and made
 * anew, now and then, where layers have closed since: they need the host no more. It is the gpu's, and good until the
 * next call. */
mo_status mo_gpu_find_set(mo_gpu *gpu, const mo_forward *forward, mo_gpu_program_set **out, mo_error *err);
void mo_gpu_drop_sets(mo_gpu *gpu);
/* Launches a prepared piece of a step. */
mo_status mo_gpu_run_segment(mo_gpu *gpu, const mo_gpu_segment *segment, mo_error *err);

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
mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_plan *p, int layer, bool experts,
                                    mo_error *err);

/* ---- The ring of a batch (gpu_ring.c) ---- */

mo_status mo_gpu_windows_open(mo_gpu *gpu, mo_error *err); /* of the stages */
void mo_gpu_windows_close(mo_gpu *gpu);
mo_gpu_window *mo_gpu_window_at(mo_gpu *gpu, uint64_t number);
mo_gpu_window_part mo_gpu_window_part_of(const mo_gpu *gpu, int layer, int part);
bool mo_gpu_window_capacity(const mo_gpu *gpu);
/* Sends experts (at most window_size, ascending) of a layer to the next window; there must be room. */
mo_status mo_gpu_window_send(mo_gpu *gpu, int layer, const int *experts, int count, mo_error *err);
/* Fills the ring with what a large batch will probably need: whatever is not on the device, behind what was sent last,
 * from `layer` on. */
mo_status mo_gpu_window_ahead(mo_gpu *gpu, int layer, mo_error *err);
/* The oldest window has been read by what is enqueued so far, or was not needed. */
mo_status mo_gpu_window_retire(mo_gpu *gpu, mo_error *err);
#endif
