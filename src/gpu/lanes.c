#include "gpu/lanes.h"

#include <stdlib.h>

#include "base/status.h"

/* First guesses, corrected by what is measured while running. */
#define CPU_BYTES_S  40e9
#define LINK_BYTES_S 12e9

mo_status mo_gpu_lanes_open(mo_gpu_lanes *lanes, double cpu_bytes_s, double link_bytes_s, mo_error *err)
{
    mo_event **events[] = {&lanes->fetch_from, &lanes->fetch_to, &lanes->lane_done};
    const int layers = lanes->core->spec->layer_count;
    lanes->cpu_rate = mo_lane_rate_of(cpu_bytes_s > 0 ? cpu_bytes_s : CPU_BYTES_S);
    lanes->fetch_rate = mo_lane_rate_of(link_bytes_s > 0 ? link_bytes_s : LINK_BYTES_S);
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
