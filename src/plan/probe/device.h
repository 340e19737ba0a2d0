/* Device probe: rates of the link in both directions, alone and while threads read memory; rate of products
 * reading device memory; times of a launch and a round trip. */
#ifndef MO_PLAN_PROBE_DEVICE_H
#define MO_PLAN_PROBE_DEVICE_H

#include "device/device.h"
#include "moraine_server.h"

/* Number of measurements, for progress. */
enum { MO_PROBE_DEVICE_STEPS = MO_PROBE_COPIES * 3 + 5 };

typedef struct mo_probe_device_options {
    int threads;          /* threads that read memory during copies; 0: one per usable core */
    int64_t memory_bytes; /* memory they read; 0: 256 MiB */
    int64_t point_ms;     /* per measurement; 0: 100 */
    /* Called before each measurement on the calling thread; false cancels. May be NULL. */
    bool (*go_on)(void *user, const char *what);
    void *user;
} mo_probe_device_options;

/* The caller must be the only user of the device. Uses at most a quarter of its free memory, at most 256 MiB,
 * and one copy's size of pinned memory. If pinning fails, *out says so and holds the rates of ordinary
 * memory. On failure *out is unchanged. */
mo_status mo_probe_device(mo_device *device, const mo_probe_device_options *options,
                          mo_probe_device_report *out, mo_error *err);

#endif
