/* Probe of a device: how fast bytes cross the link in both directions, alone and while threads read memory; how fast
 * products read the device's memory; how long a launch and a round trip take. */
#ifndef MO_PLAN_PROBE_DEVICE_H
#define MO_PLAN_PROBE_DEVICE_H

#include "device/device.h"
#include "moraine_server.h"

/* Measurements, to show progress. */
enum { MO_PROBE_DEVICE_STEPS = MO_PROBE_COPIES * 3 + 5 };

typedef struct mo_probe_device_options {
    int threads;          /* that read memory while copies run; 0: one per usable core */
    int64_t memory_bytes; /* that they read; 0: 256 MiB */
    int64_t point_ms;     /* for each measurement; 0: 100 */
    /* Before each measurement, on the calling thread; false cancels. May be NULL. */
    bool (*go_on)(void *user, const char *what);
    void *user;
} mo_probe_device_options;

/* The caller is the only one to use the device meanwhile. Takes at most a quarter of its free memory, 256 MiB at most
 * and as much pinned memory as one copy; where pinning is refused, *out says so and has the rates of ordinary memory.
 * On failure *out is untouched. */
mo_status mo_probe_device(mo_device *device, const mo_probe_device_options *options,
                          mo_probe_device_report *out, mo_error *err);

#endif
