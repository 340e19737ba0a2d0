/* The public API of probing: nothing but translation. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "device/choice.h"
#include "moraine.h"
#include "plan/probe/probe.h"
#include "plan/rates.h"

static mo_status probe_files(const mo_probe_ask *ask, mo_device *device, mo_probe_report *out, mo_error *err)
{
    mo_probe_options options = {.directory = ask->directory,
                                .threads = ask->threads,
                                .device = device,
                                .progress = ask->progress,
                                .user = ask->user};
    if (!ask->model) {
        return mo_probe_run(&options, out, err);
    }
    mo_file *file;
    mo_status status = mo_file_open(ask->model, &file, err);
    if (status) {
        return status;
    }
    options.path_count = mo_file_parts(file);
    const char **paths = calloc((size_t)options.path_count, sizeof *paths);
    if (!paths) {
        mo_file_close(file);
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", ask->model);
    }
    for (int i = 0; i < options.path_count; i++) {
        paths[i] = mo_file_part_path(file, i);
    }
    options.paths = paths;
    status = mo_probe_run(&options, out, err);
    free(paths);
    mo_file_close(file);
    return status;
}

mo_status mo_probe(const mo_probe_ask *ask, mo_probe_report *out, mo_error *err)
{
    char why[MO_DEVICE_WHY];
    mo_device *device;
    mo_status status = mo_device_choose(ask->device, &device, why, sizeof why, err);
    if (status) {
        return status;
    }
    status = probe_files(ask, device, out, err);
    if (!status && !device) {
        snprintf(out->device.why, sizeof out->device.why, "%s", why);
    }
    mo_device_close(device);
    return status;
}

mo_status mo_probe_save(const mo_probe_report *report, const char *path, char *saved, size_t size,
                        mo_error *err)
{
    const mo_rates rates = mo_probe_rates(report);
    if (path) {
        snprintf(saved, size, "%s", path);
    }
    const mo_status status = path ? MO_OK : mo_rates_path(saved, size, err);
    return status ? status : mo_rates_save(saved, &rates, err);
}
