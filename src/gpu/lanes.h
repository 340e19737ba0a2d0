/* Lanes: how host and device share the experts of a layer that are not on the device, and what that took. Private to the
 * gpu's files. */
#ifndef MO_GPU_LANES_H
#define MO_GPU_LANES_H

#include "engine/forward.h"
#include "experts/late.h"
#include "experts/share.h"
#include "gpu/clock.h"
#include "gpu/experts.h"
#include "gpu/programs.h"
#include "gpu/scratch.h"
#include "plan/postfetch.h"

/* Post-Fetch: one tensor, or one expert, on its way. */
typedef enum mo_transfer_state { MO_CPU_ONLY, MO_COPY_IN_FLIGHT, MO_GPU_READY } mo_transfer_state;
typedef struct mo_transfer {
    mo_transfer_state state;
    int expert, need;
    mo_daddr memory, plain; /* where its expert would begin there, as in RAM and in the file's layout */
    int64_t bytes;          /* that were sent */
    bool whole, failed;
    bool queued; /* the scratchpad had no place for it: it crosses when the device has computed others */
} mo_transfer;

typedef struct mo_gpu_lanes {
    mo_gpu_link *link;
    const mo_gpu_core *core;
    mo_gpu_scratch *scratch;
    mo_gpu_experts *experts;
    mo_gpu_programs *programs;
    mo_lanes rates;
    bool alone; /* nothing crossed when the CPU was observed last */
    mo_postfetch postfetch;
    mo_transfer transfers[GPU_STAGES];
    mo_event *arrived[GPU_STAGES]; /* of each; NULL: none of the modes that send them */
    int transfer_count;            /* of these */
    int transfers_most;            /* under way at once */
    int64_t scratch_bytes;         /* of the stages' memory, for them */
    mo_late *late_of;              /* [layers of the model] */
    double copy_s_per_byte;        /* of transfers, as measured; 0: not yet */
    mo_event *fetch_from, *fetch_to, *lane_done;
    int unmeasured; /* layer + 1 whose copies were still under way when it was answered */
    int64_t unmeasured_bytes;
    uint64_t *served;    /* [layers of the model] the last step in which the host was asked for its experts */
    bool serial;         /* one after the other, for comparison */
    double round_trip_s; /* as probed, for reports; 0: not known */
    mo_gpu_clock *clock;
    mo_expert_work
        work; /* who computes which expert of the layer at hand, also of a batch. What crosses the link is the
                              CPU's until it has arrived */
    int claimed;           /* experts of it that workers compute */
    int32_t *apart_tokens; /* [GPU_SMALL * used] whose rows are that the CPU computes apart */
    uint64_t waited_ns;    /* of the CPU's lane: for the disk, and for copies */
    uint64_t wait_ns, cpu_ns, cpu_bytes, by_cpu, host_ns, late, fetch_ns, hidden_ns;
    uint64_t unsent; /* of the late ones: known to be, and not sent */
} mo_gpu_lanes;

/* Rates to begin with, 0: defaults; the objects below are set. */
mo_status mo_gpu_lanes_open(mo_gpu_lanes *lanes, double alone_bytes_s, double cpu_bytes_s,
                            double link_bytes_s, mo_error *err);
void mo_gpu_lanes_close(mo_gpu_lanes *lanes);

/* The host's part of a layer of a small step. Between the two calls the next segment is launched: it will wait for the
 * reply. */
typedef struct mo_gpu_service {
    int layer;
    uint64_t number;     /* of the step */
    int count;           /* experts that are not on the device and are computed: forward->w->needs */
    int skipped;         /* that are left out: behind them */
    bool stored;         /* they come from the store */
    bool apart;          /* rows of an expert are where its ranks are */
    bool input;          /* forward->in has what the experts read */
    int sent;            /* transfers of Post-Fetch */
    mo_late_way way;     /* and what is done about those that are late */
    int64_t began;       /* when the choice was seen */
    int64_t computed_ns; /* by the CPU, before it knew what is late */
    int64_t fetched_bytes;
    int fetched;              /* experts that are to cross, */
    int16_t need[GPU_STAGES]; /* their numbers among the needs, */
    bool failed[GPU_STAGES];  /* and whose copy failed: the CPU's after all */
    struct {
        bool busy;
        int layer, expert;
    } back;                     /* an expert that leaves the device for RAM, in favour of one that crosses */
    bool deferred;              /* the driver's calls are made while the CPU computes, by a free thread: */
    const mo_gpu_segment *next; /* also the launch of what follows; NULL: it was launched */
    mo_gpu_lanes *lanes;
    mo_forward *forward;
    mo_status status; /* what came of that */
    mo_error error;
} mo_gpu_service;

/* ---- serve.c ---- */

mo_status mo_gpu_lanes_serve(mo_gpu_lanes *lanes, mo_forward *forward, int layer, uint64_t number,
                             mo_gpu_service *out, mo_error *err);
mo_status mo_gpu_lanes_reply(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                             mo_error *err);
/* Instead of the reply, where the step ends between the two. */
void mo_gpu_lanes_abort(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service, mo_status status);
/* Copies that were still under way when the last served layer was answered are done by now: notes their time. */
mo_status mo_gpu_lanes_measure_last(mo_gpu_lanes *lanes, mo_error *err);

/* Lets workers begin with what they have claimed of the layer; ends what they have begun, as mo_workers_end(). */
mo_status mo_gpu_lanes_begin_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_error *err);
mo_status mo_gpu_lanes_end_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_status status, mo_error *err);

/* ---- lanes.c ---- */

/* Ops beside the main stream, with space for `limit`. */
mo_gpu_ops mo_gpu_lanes_ops(const mo_gpu_lanes *lanes, const mo_forward *forward, mo_op *ops, int limit);

/* Waits until the device has published what the host is to see of the layer. */
mo_status mo_gpu_lanes_await(mo_gpu_lanes *lanes, int layer, mo_error *err);

/* ---- cpu_lane.c ---- */

/* Rounds of the CPU until everything that is not done (or given to the device) is. */
mo_status mo_gpu_cpu_lane_run(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *service,
                              mo_error *err);

/* Waits for the stream before layer `from`. */
mo_status mo_gpu_cpu_layers_meet(mo_gpu_lanes *lanes, mo_forward *forward, int from, mo_error *err);
/* Computes layers from .. to - 1 and lets the device go on. */
mo_status mo_gpu_cpu_layers_run(mo_gpu_lanes *lanes, mo_forward *forward, int from, int to, mo_error *err);

/* ---- fetch.c ---- */

/* Chooses what crosses; makes the calls for it, and for what follows. */
void mo_gpu_fetch_choose(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service);
mo_status mo_gpu_fetch_submit(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                              mo_error *err);

/* Is any expert neither in RAM nor in VRAM? */
bool mo_gpu_swap_absent(const mo_gpu_experts *experts);
/* All copies have ended, well or not, or the device is lost: leaves the store. What leaves the device is in RAM then, and what has
 * come to it needs no place there. */
void mo_gpu_fetch_leave(mo_gpu_lanes *lanes, const mo_need *needs, mo_gpu_service *service, mo_status status);

/* The worklist of one expert, written for a stage, and sent; returns where the device finds it. */
mo_daddr mo_gpu_worklist_one(const mo_gpu_lanes *lanes, const mo_picks *picks, int stage, int expert,
                             mo_daddr base);
mo_status mo_gpu_worklist_send(mo_gpu_lanes *lanes, int stage, mo_error *err);

/* ---- postfetch.c ---- */

bool mo_gpu_postfetch_on(const mo_gpu_lanes *lanes); /* does its mode rule, or the rates? */
/* How many transfers may be in flight, with this much device memory left. */
mo_status mo_gpu_postfetch_size(mo_gpu_lanes *lanes, int64_t free_bytes, mo_error *err);
/* Sends what the layer's way allows, which may be nothing. */
mo_status mo_gpu_postfetch_send(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                                mo_error *err);
/* Copies of so many bytes took so long. */
void mo_gpu_postfetch_measured(mo_gpu_lanes *lanes, double seconds, int64_t bytes);
/* The layer was answered at this time. */
void mo_gpu_postfetch_learn(mo_gpu_lanes *lanes, const mo_gpu_service *service, int64_t now);
mo_status mo_gpu_postfetch_receive(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                                   bool *fetched, mo_error *err);

#endif
