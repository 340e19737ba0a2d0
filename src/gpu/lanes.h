/* Lanes: how host and device share the experts of a layer that are not on the device, and what that took. Private to the
 * gpu's files. */
#ifndef MO_GPU_LANES_H
#define MO_GPU_LANES_H

#include "gpu/clock.h"
#include "gpu/experts.h"
#include "plan/lane_rate.h"
#include "plan/postfetch.h"

/* Post-Fetch: one tensor, or one expert, on its way. */
typedef enum mo_transfer_state { MO_CPU_ONLY, MO_COPY_IN_FLIGHT, MO_GPU_READY } mo_transfer_state;
typedef struct mo_transfer {
    mo_transfer_state state;
    int expert, need, stage;
    bool whole, failed;
} mo_transfer;

typedef struct mo_gpu_lanes {
    mo_lane_rate cpu_rate, fetch_rate;
    mo_postfetch postfetch;
    mo_transfer transfers[GPU_STAGES];
    int transfers_most; /* under way at once */
    mo_event *fetch_from, *fetch_to, *lane_done;
    int unmeasured; /* layer + 1 whose copies were still under way when it was answered */
    int64_t unmeasured_bytes;
    uint64_t *served;    /* [layers of the model] the last step in which the host was asked for its experts */
    bool serial;         /* one after the other, for comparison */
    double round_trip_s; /* as probed, for reports; 0: not known */
    mo_gpu_clock *clock;
    uint64_t wait_ns, cpu_ns, cpu_bytes, by_cpu, host_ns, late, fetch_ns, hidden_ns;
} mo_gpu_lanes;

#endif
