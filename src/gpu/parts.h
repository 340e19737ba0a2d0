/* The gpu's parts, private to its files. */
#ifndef MO_GPU_PARTS_H
#define MO_GPU_PARTS_H

#include "gpu/clock.h"
#include "gpu/cpu_layers.h"
#include "gpu/gpu.h"
#include "gpu/layer_buffer.h"
#include "gpu/session.h"
#include "hotcache/capacity.h"
#include "hotcache/packing.h"
#include "plan/lane_rate.h"

enum {
    GPU_SMALL = MO_OP_SMALL, /* tokens of a step that goes by worklists; larger ones go expert by expert */
    GPU_LOGITS = 32,         /* rows of logits made at once */
    GPU_PROGRAMS = 32,       /* sets of programs that are kept */
    GPU_RENEW = 128,         /* steps after which one may be made anew because the host has less to do */
    GPU_STAGES = MO_VRAM_STAGES,
    GPU_WINDOW = 16,                    /* most experts of a batch that cross and are computed together */
    GPU_OPS = 64,                       /* most ops of a layer */
    GPU_ADOPTED = 2 + MO_BRICK_CLASSES, /* host memory that was pinned in place */
};

/* A layer's core on the device. The matrices of brick 0 stand for the shapes of all. */
typedef struct mo_gpu_layer {
    mo_dmatrix q, k, v, out;    /* attention; delta: qkv, gate, -, out */
    mo_dmatrix ba, beta, alpha; /* delta */
    mo_daddr conv, a, dt, delta_norm;
    mo_daddr mixer_norm, post_mixer_norm, q_norm, k_norm, sinks;
    int rope; /* number among the engine's, -1: none */
    mo_daddr ffn_norm, moe_norm, post_dense, post_moe, post_ffn, out_scale;
    mo_dmatrix gate, up, down; /* dense, or the shared expert */
    mo_dmatrix shared_gate;
    mo_dmatrix router;
    mo_daddr select_bias, input_scale;
    mo_dmatrix expert_gate, expert_up, expert_down; /* data 0; scale and bias packed by expert */
    int64_t up_at, down_at, brick_bytes;
    uint64_t served;    /* the last pass in which the host was asked for its experts */
    float input_factor; /* 1 / sqrt(D), of gemma4's router */
} mo_gpu_layer;

/* Device memory that one step works in. */
typedef struct mo_gpu_scratch {
    mo_daddr memory;
    int64_t bytes;
    mo_daddr step; /* the block that the host sends at the beginning */
    mo_daddr in, in_dense, in_router, mixed, hidden, side_hidden; /* acts */
    mo_daddr q, k, v, y, partial, scores, weights, gate, up, down, side_gate, side_up, side_down, side_weight;
    mo_daddr ids;                   /* int32[layers][rows of a choice]; weights the same */
    mo_daddr work;                  /* mo_dwork and items, of the hot lane */
    mo_daddr sent;                  /* acts: hidden rows from the CPU */
    mo_daddr fetched;               /* the same for each stage of the fetch lane */
    mo_daddr groups, picks, row_of; /* of a batch */
    mo_daddr logits;
    int64_t partial_floats;
} mo_gpu_scratch;

/* Offsets in the step's block for a number of tokens. */
typedef struct mo_gpu_block {
    int64_t bad, sequence, places, slices, rope, x, bytes;
} mo_gpu_block;

/* Pinned memory. */
typedef struct mo_gpu_pinned {
    uint8_t *memory;
    mo_daddr seen;
    int64_t bytes;
    uint8_t *block;   /* as the device's step block */
    uint32_t *flags;  /* [layers] published */
    uint8_t *replies; /* [layers] mo_dreply with room for few * used rows */
    int64_t reply_bytes;
    int32_t *ids;     /* [batch * used] of the layer that was published */
    int32_t *all_ids; /* [layers][few * used] of all, after a step of few tokens */
    float *all_weights;
    float *in;      /* [few][D] the experts' input */
    float *x;       /* [few][D] the stream, on its way through layers that the CPU computes */
    float *rows;    /* [few * used][D] what the CPU computed */
    void *hidden;   /* acts [few * used][F]: what it hands on before down */
    float *logits;  /* [GPU_LOGITS][vocab] */
    uint32_t *bad;  /* [2 * layers + 2], and what the device waited for replies: [layers] nanoseconds */
    uint8_t *works; /* worklists of fetched experts, one per stage */
    int64_t work_bytes;
    mo_dgroup *groups;       /* [3][group_limit] of gate, up and down */
    int32_t *picks, *row_of; /* these three side by side, as on the device */
} mo_gpu_pinned;

typedef struct mo_gpu_segment {
    int from, to; /* layers whose choice it makes: [from, to); the host serves to - 1 when it is open */
    bool open;    /* the last layer waits for the host */
    int passing;  /* the layer in passage whose matrices it reads; -1: it reads what stays */
    int host_from, host_to; /* layers that the CPU computes before the next segment goes on */
    mo_program *program;
} mo_gpu_segment;

typedef struct mo_gpu_program_set {
    int64_t tokens, slices, chunks;
    mo_kv_type kv;
    bool logits;
    uint64_t used, made; /* steps: of its last use; when it was made, or could not be made anew */
    int count;
    mo_gpu_segment *segments;
    uint64_t closures; /* mo_vram_completions() when it was compared with the layers */
    bool *open;        /* [layers of the model] as they were when it was made; part of the segments' memory */
} mo_gpu_program_set;

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

/* Post-Fetch: one tensor, or one expert, on its way. */
typedef enum mo_transfer_state { MO_CPU_ONLY, MO_COPY_IN_FLIGHT, MO_GPU_READY } mo_transfer_state;
typedef struct mo_transfer {
    mo_transfer_state state;
    int expert, need, stage;
    bool whole, failed;
} mo_transfer;

/* The hot cache of document 001. */
typedef struct
    mo_gpu_move { /* an exchange whose copy is under way: to a spare slot, while the old expert serves */
    mo_exchange x;
    bool busy;
    mo_event *ready;
    mo_daddr stage; /* where RAM has another layout */
} mo_gpu_move;
typedef struct mo_gpu_cache {
    bool rules; /* its file has chosen what lies in slots; the policy keeps away */
    mo_weighting_options weighting;
    double rate;
    mo_packing packing; /* until the slots are filled */
    mo_dstream *stream; /* of the copies */
    mo_daddr stages;
    int64_t stage_bytes;
    mo_gpu_move moves[MO_HOT_MOVES];
    int move_count;
    mo_exchange *list; /* planned and not begun */
    size_t count;
    mo_profile *before; /* what was counted when the last update looked; NULL: nothing */
    int64_t tokens;     /* generated since */
} mo_gpu_cache;

/* What ops take, one at a time, when somebody asks: nothing overlaps then. */
typedef struct mo_gpu_watch {
    double seconds[MO_OP_KINDS];
    int count[MO_OP_KINDS];
} mo_gpu_watch;

/* Host memory that was pinned in place, piece by piece. */
typedef struct mo_adopted {
    uint8_t *memory;
    size_t bytes, piece;
} mo_adopted;

struct mo_gpu {
    mo_accelerator accelerator;
    mo_device *device;
    const mo_checkpoint *model;
    const mo_model_spec *spec;
    mo_gpu_options options;
    mo_postfetch postfetch;
    mo_extent extent;
    int rope_count;
    const mo_rope *ropes[8];
    mo_dstream *main, *fetch, *lane;
    mo_event *fetch_from, *fetch_to, *lane_done;
    mo_daddr core;
    int64_t core_bytes;
    mo_gpu_layer_buffer passage;
    mo_gpu_cpu_layers host;
    mo_gpu_layer *layers;
    mo_dmatrix output;
    mo_daddr out_norm;
    mo_gpu_scratch room;
    mo_gpu_pinned pinned;
    mo_vram *vram;
    mo_op *batch_ops;
    int batch_ops_limit;
    mo_gpu_program_set sets[GPU_PROGRAMS];
    mo_gpu_stage stages[GPU_STAGES];
    int stage_count;
    int64_t stage_bytes, staging_bytes; /* of one, as it lies in RAM; of all */
    mo_gpu_window windows[GPU_STAGES];  /* the same memory, in a batch */
    int window_count, window_size;
    uint64_t window_head, window_tail; /* windows: filled, and used */
    int64_t group_limit;
    mo_transfer transfers[GPU_STAGES];
    int transfers_most;    /* under way at once */
    int64_t session_bytes; /* left for the state of one session */
    int64_t taken, limit;  /* bytes of device memory, and the ceiling */
    bool shares_cores;     /* the device is made of this machine's threads */
    int64_t margin;        /* free memory above a ceiling that nobody gave */
    mo_gpu_cache hot;
    uint32_t sequence;
    uint64_t pass;
    mo_adopted
        adopted[GPU_ADOPTED]; /* the loader's memory, the ring of layers from disk, the store's slots */
    mo_lane_rate cpu_rate, fetch_rate;
    mo_gpu_watch *watch; /* NULL: nobody asks */
    mo_gpu_clock *clock;
    int unmeasured; /* layer + 1 whose copies were still under way when it was answered */
    int64_t unmeasured_bytes;
    mo_device_report counters; /* what is counted of it */
};

/* Of experts that are not in RAM for good; NULL: all are. */
static inline mo_store *mo_gpu_store(const mo_gpu *c)
{
    return c->options.tiers ? c->options.tiers->store : NULL;
}

/* ---- Memory (gpu_room.c) ---- */

/* Device memory under the ceiling. */
mo_status mo_gpu_alloc(mo_gpu *gpu, int64_t bytes, const char *what, mo_daddr *out, mo_error *err);
void mo_gpu_free(mo_gpu *gpu, mo_daddr address, int64_t bytes);
mo_gpu_block mo_gpu_lay_block(const mo_gpu *gpu, int64_t tokens);
mo_status mo_gpu_scratch_open(mo_gpu *gpu, mo_error *err);
mo_status mo_gpu_pinned_open(mo_gpu *gpu, mo_error *err);
mo_dacts mo_dacts_lay(mo_daddr memory, int64_t rows, int64_t cols);
static inline mo_daddr mo_gpu_bad(const mo_gpu *c, int layer, bool cache)
{
    return c->room.step + (mo_daddr)(4 * (2 * layer + (cache ? 1 : 0)));
}

/* Behind them, what it waited for the host's reply. */
static inline int64_t mo_gpu_bad_words(int layers)
{
    return 3 * (int64_t)layers + 2;
}
static inline mo_daddr mo_gpu_waited(const mo_gpu *c, int layer)
{
    return c->room.step + (mo_daddr)(4 * (2 * (int64_t)c->spec->layer_count + 2 + layer));
}

/* The ids or weights that a layer chose, in their array: layers lie close together for few tokens, so that one copy
 * brings them all. */
static inline int64_t mo_gpu_choice_rows(const mo_gpu *c, int64_t tokens)
{
    return (tokens <= GPU_SMALL ? GPU_SMALL : c->options.batch) * c->extent.used;
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

/* ---- The hot cache (gpu_hot.c) ---- */

/* Chooses experts for at most `left` bytes, takes what exchanges need, and says how many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu *gpu, int64_t left, mo_vram_layer *shapes, mo_error *err);
void mo_gpu_hot_close(mo_gpu *gpu);
/* Before a step (gpu_exchange.c): what has arrived is switched to, the next copies begin, and now and then an update is
 * planned. Brings the map up to date also where there is no hot cache. */
mo_status mo_gpu_hot_turn(mo_gpu *gpu, const mo_forward *forward, mo_error *err);

/* ---- Core (gpu_core.c) ---- */

mo_status mo_gpu_upload(mo_gpu *gpu, mo_error *err);
int64_t mo_gpu_core_bytes(const mo_model_spec *spec);
bool mo_gpu_core_interleaved(const mo_model_spec *spec);
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
/* `count` bricks from the layout they have in RAM to the file's; only: 2 for down alone, -1 for all three. */
void mo_gpu_restore(mo_gpu_plan *p, int layer, mo_daddr from, mo_daddr to, int64_t count, int only);
/* The experts of a window. */
void mo_gpu_restore_window(mo_gpu_plan *p, const mo_gpu_window *w);
/* The same, but the CPU has computed gate and up. */
void mo_gpu_down(mo_gpu_plan *p, int layer, mo_daddr work, int64_t most);
/* Groups of a batch: gate, up, activation, down. */
void mo_gpu_groups(mo_gpu_plan *p, int layer, const mo_gpu_span *span);
mo_status mo_gpu_launch(mo_dstream *stream, const mo_gpu_plan *p, mo_error *err);

/* Are the layer's experts interleaved in RAM? Some layer's? Then those on their way need two places. */
bool mo_gpu_interleaved(const mo_gpu *gpu, int layer);
bool mo_gpu_any_interleaved(const mo_gpu *gpu);

/* ---- Sets of programs (gpu_set.c) ---- */

/* Does the host have a part in the layer, in steps of few tokens? */
static inline bool mo_gpu_layer_needs_host(const mo_gpu *c, int layer)
{
    return c->spec->layers[layer].routed && !mo_vram_complete(c->vram, layer);
}

/* Does it pass through the ring of layers? */
static inline bool mo_gpu_layer_streamed(const mo_gpu *c, int layer)
{
    return c->passage.number[layer] >= 0;
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
/* Lie the brick's matrices in pinned memory? */
bool mo_gpu_is_pinned(const mo_gpu *gpu, int layer, int expert);
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
/* After a call for copies that nothing can replace: true when it failed and has to be made once more, everything before
 * it being done by now. *tries begins at 0. A second failure says what to do. Failures are counted. */
bool mo_gpu_again(mo_gpu *gpu, mo_dstream *stream, int *tries, mo_status *status, mo_error *err);

/* ---- Copies from RAM (gpu.c) ---- */

/* Copies a stretch, a matrix, or a brick's matrices; *bytes of them. */
mo_status mo_gpu_copy_range(mo_gpu *gpu, mo_dstream *stream, const uint8_t *from, size_t bytes, mo_daddr to,
                            mo_error *err);
mo_status mo_gpu_copy_matrix(mo_gpu *gpu, mo_dstream *stream, const mo_weights *w, mo_daddr to,
                             mo_error *err);
mo_status mo_gpu_copy_brick(mo_gpu *gpu, mo_dstream *stream, int layer, int expert, mo_daddr to,
                            int64_t *bytes, mo_error *err);

#endif
