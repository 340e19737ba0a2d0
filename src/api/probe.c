/* The public API of probing: translates between moraine_tools.h and plan/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"
#include "base/sweep.h"
#include "device/choice.h"
#include "moraine_server.h"
#include "plan/probe/probe.h"
#include "plan/rates.h"

static mo_status probe_files(const mo_probe_options *o, mo_device *device, mo_probe_report *out,
                             mo_error *err)
{
    mo_probe_setup options = {.directory = o->directory,
                              .threads = o->threads,
                              .device = device,
                              .progress = o->progress,
                              .user = o->user};
    if (!o->model) {
        return mo_probe_run(&options, out, err);
    }
    mo_file *file;
    mo_status status = mo_file_open(o->model, &file, err);
    if (status) {
        return status;
    }
    options.path_count = mo_file_parts(file);
    const char **paths = calloc((size_t)options.path_count, sizeof *paths);
    if (!paths) {
        mo_file_close(file);
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", o->model);
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

enum { THREADS_MOST = 1024 };

static const mo_probe_options defaults = {.size = sizeof(mo_probe_options)};

void mo_probe_options_init(mo_probe_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

mo_status mo_probe(const mo_probe_options *options, mo_probe_report *out, size_t size, mo_error *err)
{
    mo_probe_options o = defaults;
    mo_probe_report report = {0};
    char why[MO_DEVICE_WHY];
    mo_device *device;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_probe_options", err);
    if (status == MO_OK && (o.threads < 0 || o.threads > THREADS_MOST)) {
        status = mo_fail(err, MO_EINVAL, "`threads` must be 1 to %d (or 0 for one per usable core), not %d",
                         THREADS_MOST, o.threads);
    }
    if (status == MO_OK) {
        status = mo_check_file(o.model, "model", err);
    }
    if (status == MO_OK && o.directory && !*o.directory) {
        status = mo_fail(err, MO_EINVAL, "`directory` is empty; name one, or NULL for the current one");
    }
    if (status == MO_OK) {
        status = mo_device_choose(o.device, &device, why, sizeof why, err);
    }
    if (status) {
        return status;
    }
    status = probe_files(&o, device, &report, err);
    if (!status && !device) {
        snprintf(report.device.why, sizeof report.device.why, "%s", why);
    }
    if (!status) {
        mo_report_write(out, size, &report, sizeof report);
    }
    mo_device_close(device);
    return status;
}

/* The path that rates are saved to. */
static mo_status name_file(const char *path, char *saved, size_t size, const char *function, mo_error *err)
{
    if (!path) {
        return mo_rates_path(saved, size, err);
    }
    const mo_status status = mo_check_path(path, "path", function, err);
    if (status == MO_OK && strlen(path) >= size) {
        return mo_refuse(err, "size", function, "must be at least %zu for this path, not %zu",
                         strlen(path) + 1, size);
    }
    snprintf(saved, size, "%s", path);
    return status;
}

mo_status mo_probe_save(const mo_probe_report *report, size_t report_size, const char *path, char *saved,
                        size_t size, mo_error *err)
{
    mo_probe_report own;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, report, saved)
    mo_report_write(&own, sizeof own, report, report_size);
    const mo_rates rates = mo_probe_rates(&own);
    const mo_status status = name_file(path, saved, size, __func__, err);
    return status ? status : mo_rates_save(saved, &rates, err);
}

mo_status mo_model_read_rate(mo_model *model, uint64_t bytes, double *gb_per_s, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, gb_per_s)
    size_t own = 0;
    const uint8_t *memory = mo_checkpoint_region(model->checkpoint, &own);
    if (!memory) {
        return mo_fail(err, MO_EUNSUPPORTED, "a mapped model has no weights in memory to measure with");
    }
    bytes = own < bytes ? own : bytes;
    *gb_per_s = 0.0;
    for (int round = 0; round < 5; round++) { /* keep the best: other programs only slow it down */
        const double rate = mo_sweep_rate(model->pool, memory, bytes);
        *gb_per_s = rate > *gb_per_s ? rate : *gb_per_s;
    }
    return MO_OK;
}

mo_status mo_probe_machine(const mo_probe_options *options, const char *path, char *saved, size_t size,
                           mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, saved)
    mo_status status = name_file(path, saved, size, __func__, err); /* before measuring for ten seconds */
    mo_probe_report *report = status == MO_OK ? calloc(1, sizeof *report) : NULL;
    if (!report) {
        return status != MO_OK
                   ? status
                   : mo_fail(err, MO_ENOMEM, "out of memory for a probe; free some and try again");
    }
    status = mo_probe(options, report, sizeof *report, err);
    if (status == MO_OK) {
        status = mo_probe_save(report, sizeof *report, path, saved, size, err);
    }
    free(report);
    return status;
}
