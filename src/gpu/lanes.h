/* Lanes: how host and device share the experts of a layer that are not on the device, and the time that
 * takes. Private to gpu/. */
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

/* Post-Fetch: one tensor, or one expert, in transfer. */
typedef enum mo_transfer_state { MO_CPU_ONLY, MO_COPY_IN_FLIGHT, MO_GPU_READY } mo_transfer_state;
typedef struct mo_transfer {
    mo_transfer_state state;
    int expert, need;
    /* where its expert would begin in the stage, in the layout of RAM and of the file */
    mo_daddr memory, plain;
    int64_t bytes; /* bytes sent */
    bool whole, failed;
    bool queued; /* it waits for space in the scratch memory until the device has computed others */
} mo_transfer;

typedef struct mo_gpu_lanes {
    mo_gpu_link *link;
    const mo_gpu_core *core;
    mo_gpu_scratch *scratch;
    mo_gpu_experts *experts;
    mo_gpu_programs *programs;
    mo_lanes rates;
    bool alone; /* nothing was copied at the last observation of the CPU */
    mo_postfetch postfetch;
    mo_transfer transfers[GPU_STAGES];
    mo_event *arrived[GPU_STAGES]; /* for each transfer; NULL: no mode needs them */
    int transfer_count;            /* number of transfers */
    int transfers_most;            /* maximum in flight */
    int64_t scratch_bytes;         /* for transfers, part of the stages' memory */
    mo_late *late_of;              /* [layers of the model] */
    double copy_s_per_byte;        /* of transfers, as measured; 0: not measured */
    mo_event *fetch_from, *fetch_to, *lane_done;
    int unmeasured; /* layer + 1 whose copies were still in flight at its reply */
    int64_t unmeasured_bytes;
    uint64_t *served;    /* [layers of the model] the last step in which the host served the layer */
    bool serial;         /* lanes run one after the other, for comparison */
    double round_trip_s; /* probed value, for reports; 0: unknown */
    mo_gpu_clock *clock;
    /* who computes which expert of the current layer, also in a batch. Experts being copied are the CPU's
     * until they have arrived */
    mo_expert_work work;
    int claimed;           /* experts claimed by workers */
    int32_t *apart_tokens; /* [GPU_SMALL * used] tokens of rows that the CPU computes separately */
    uint64_t waited_ns;    /* by the CPU's lane: for the disk, and for copies */
    uint64_t wait_ns, cpu_ns, cpu_bytes, by_cpu, host_ns, late, fetch_ns, hidden_ns;
    uint64_t unsent; /* late ones that were known to be late and were not sent */
} mo_gpu_lanes;

/* Opens with initial rates, 0: defaults; the objects below must be set. */
mo_status mo_gpu_lanes_open(mo_gpu_lanes *lanes, double alone_bytes_s, double cpu_bytes_s,
                            double link_bytes_s, mo_error *err);
void mo_gpu_lanes_close(mo_gpu_lanes *lanes);

/* The host's part of a layer in a small step. Between serve and reply the next segment is launched, which
 * waits for the reply. */
typedef struct mo_gpu_service {
    int layer;
    uint64_t number;     /* number of the step */
    int count;           /* experts to compute that are not on the device: forward->w->needs */
    int skipped;         /* skipped experts, after those */
    bool stored;         /* the needs come from the store */
    bool apart;          /* rows of an expert are at the positions of its picks */
    bool input;          /* forward->in has the experts' input */
    int sent;            /* number of Post-Fetch transfers */
    mo_late_way way;     /* how late transfers are handled */
    int64_t began;       /* time when the choice was seen */
    int64_t computed_ns; /* CPU time until it knew which transfers are late */
    int64_t fetched_bytes;
    int fetched;              /* number of experts to copy */
    int16_t need[GPU_STAGES]; /* their indices among the needs */
    bool failed[GPU_STAGES];  /* their copy failed: the CPU computes them */
    struct {
        bool busy;
        int layer, expert;
    } back;                     /* an expert copied back to RAM, replaced by one that is fetched */
    bool deferred;              /* a free thread makes the driver calls while the CPU computes */
    const mo_gpu_segment *next; /* also launched then; NULL: it was launched already */
    mo_gpu_lanes *lanes;
    mo_forward *forward;
    mo_status status; /* result of the deferred calls */
    mo_error error;
} mo_gpu_service;

/* ---- serve.c ---- */

mo_status mo_gpu_lanes_serve(mo_gpu_lanes *lanes, mo_forward *forward, int layer, uint64_t number,
                             mo_gpu_service *out, mo_error *err);
mo_status mo_gpu_lanes_reply(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                             mo_error *err);
/* Replaces the reply if the step ends between both calls. */
void mo_gpu_lanes_abort(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service, mo_status status);
/* Measures copies that were still in flight at the reply of the last served layer and have ended by now. */
mo_status mo_gpu_lanes_measure_last(mo_gpu_lanes *lanes, mo_error *err);

/* Lets workers begin with the experts they claimed in the layer; ends them, like mo_workers_end(). */
mo_status mo_gpu_lanes_begin_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_error *err);
mo_status mo_gpu_lanes_end_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_status status, mo_error *err);

/* ---- lanes.c ---- */

/* Ops outside the main stream, with space for `limit`. */
mo_gpu_ops mo_gpu_lanes_ops(const mo_gpu_lanes *lanes, const mo_forward *forward, mo_op *ops, int limit);

/* Waits until the device has published the layer's data for the host. */
mo_status mo_gpu_lanes_await(mo_gpu_lanes *lanes, int layer, mo_error *err);

/* ---- cpu_lane.c ---- */

/* Runs rounds on the CPU until all experts are computed (or given to the device). */
mo_status mo_gpu_cpu_lane_run(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *service,
                              mo_error *err);

/* Waits for the stream before layer `from`. */
mo_status mo_gpu_cpu_layers_meet(mo_gpu_lanes *lanes, mo_forward *forward, int from, mo_error *err);
/* Computes layers from .. to - 1, then lets the device continue. */
mo_status mo_gpu_cpu_layers_run(mo_gpu_lanes *lanes, mo_forward *forward, int from, int to, mo_error *err);

/* ---- fetch.c ---- */

/* Chooses the experts to copy; makes the calls for them, and for the next segment. */
void mo_gpu_fetch_choose(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service);
mo_status mo_gpu_fetch_submit(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                              mo_error *err);

/* True if any expert is neither in RAM nor in VRAM. */
bool mo_gpu_swap_absent(const mo_gpu_experts *experts);
/* Leaves the store when all copies have ended, successfully or not, or the device is lost. An expert that
 * left the device is then in RAM, and an expert that arrived on the device frees its slot in RAM. */
void mo_gpu_fetch_leave(mo_gpu_lanes *lanes, const mo_need *needs, mo_gpu_service *service, mo_status status);

/* Writes the worklist of one expert for a stage, and sends it. Returns its device address. */
mo_daddr mo_gpu_worklist_one(const mo_gpu_lanes *lanes, const mo_picks *picks, int stage, int expert,
                             mo_daddr base);
mo_status mo_gpu_worklist_send(mo_gpu_lanes *lanes, int stage, mo_error *err);

/* ---- postfetch.c ---- */

/* whether a mode is set, instead of the measured rates */
bool mo_gpu_postfetch_on(const mo_gpu_lanes *lanes);
/* Sets the maximum number of transfers in flight for this much free device memory. */
mo_status mo_gpu_postfetch_size(mo_gpu_lanes *lanes, int64_t free_bytes, mo_error *err);
/* Sends what the layer's way allows, perhaps nothing. */
mo_status mo_gpu_postfetch_send(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                                mo_error *err);
/* Records the duration of copies. */
void mo_gpu_postfetch_measured(mo_gpu_lanes *lanes, double seconds, int64_t bytes);
/* Records the time of the layer's reply. */
void mo_gpu_postfetch_learn(mo_gpu_lanes *lanes, const mo_gpu_service *service, int64_t now);
mo_status mo_gpu_postfetch_receive(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *service,
                                   bool *fetched, mo_error *err);

#endif
