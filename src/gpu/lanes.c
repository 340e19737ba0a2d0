#include "gpu/lanes.h"

#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"

/* Initial estimates, corrected by measurements while running. */
#define CPU_BYTES_S  40e9
#define LINK_BYTES_S 12e9

/* The initial rates. */
static mo_lanes begin_rates(double alone_bytes_s, double cpu_bytes_s, double link_bytes_s)
{
    const double cpu = cpu_bytes_s > 0 ? cpu_bytes_s : CPU_BYTES_S;
    return (mo_lanes){.alone = mo_lane_rate_of(alone_bytes_s > 0 ? alone_bytes_s : cpu),
                      .cpu = mo_lane_rate_of(cpu),
                      .link = mo_lane_rate_of(link_bytes_s > 0 ? link_bytes_s : LINK_BYTES_S)};
}

mo_status mo_gpu_lanes_open(mo_gpu_lanes *lanes, double alone_bytes_s, double cpu_bytes_s,
                            double link_bytes_s, mo_error *err)
{
    mo_event **events[] = {&lanes->fetch_from, &lanes->fetch_to, &lanes->lane_done};
    const int layers = lanes->core->spec->layer_count;
    lanes->rates = begin_rates(alone_bytes_s, cpu_bytes_s, link_bytes_s);
    lanes->served = calloc((size_t)layers + 1, sizeof *lanes->served);
    lanes->apart_tokens =
        calloc((size_t)(GPU_SMALL * lanes->core->extent.used) + 1, sizeof *lanes->apart_tokens);
    lanes->late_of = calloc((size_t)layers + 1, sizeof *lanes->late_of);
    if (!lanes->served || !lanes->apart_tokens || !lanes->late_of) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the device's part of the model");
    }
    mo_status status = mo_gpu_clock_open(layers, &lanes->clock, err);
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        status = mo_event_create(lanes->link->device, events[i], err);
    }
    return status;
}

void mo_gpu_lanes_close(mo_gpu_lanes *lanes)
{
    mo_event_destroy(lanes->fetch_from);
    mo_event_destroy(lanes->fetch_to);
    mo_event_destroy(lanes->lane_done);
    for (int i = 0; i < lanes->transfer_count; i++) {
        mo_event_destroy(lanes->arrived[i]);
    }
    mo_gpu_clock_close(lanes->clock);
    free(lanes->served);
    free(lanes->late_of);
    free(lanes->apart_tokens);
}

mo_gpu_ops mo_gpu_lanes_ops(const mo_gpu_lanes *lanes, const mo_forward *forward, mo_op *ops, int limit)
{
    return (mo_gpu_ops){.core = lanes->core,
                        .scratch = lanes->scratch,
                        .vram = lanes->experts->where.vram,
                        .tokens = forward->tokens,
                        .slices = forward->slice_count,
                        .ops = ops,
                        .limit = limit};
}

/* ---- Waiting for the device ------------------------------------------------------------------- */

/* Intervals of waiting for the device: after which the host checks whether it is alive, spins no longer, and
 * gives up. */
#define LOOK_NS    ((int64_t)50 * 1000 * 1000)
#define SPIN_NS    ((int64_t)50 * 1000)
#define GIVE_UP_NS ((int64_t)20 * 1000 * 1000 * 1000)

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

mo_status mo_gpu_lanes_await(mo_gpu_lanes *lanes, int layer, mo_error *err)
{
    const uint32_t *flag = &lanes->scratch->pinned.flags[layer];
    const int64_t began = mo_clock_ns();
    int64_t looked = began;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != lanes->scratch->sequence) {
        for (int i = 0; i < 32; i++) {
            relax();
        }
        const int64_t now = mo_clock_ns();
        if (now - began > SPIN_NS) { /* another thread may need this core, such as a simulated device */
            sched_yield();
        }
        if (now - looked > LOOK_NS) {
            bool done;
            const mo_status status = mo_event_query(lanes->lane_done, &done, err);
            if (status != MO_OK) {
                return status;
            }
            looked = now;
        }
        if (now - began > GIVE_UP_NS) {
            return mo_fail(err, MO_EDEVICE, "the device did not answer within 20 seconds");
        }
    }
    const int64_t seen = mo_clock_ns();
    lanes->wait_ns += (uint64_t)(seen - began);
    mo_gpu_clock_seen(lanes->clock, layer, seen);
    return MO_OK;
}
