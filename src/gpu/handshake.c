/* Handshake: the host waits for what the device publishes of a layer. */
#include <sched.h>

#include "base/clock.h"
#include "base/status.h"
#include "gpu/lanes.h"

/* The host looks whether the device still lives after waiting so long for it, and gives it up in the end. */
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
