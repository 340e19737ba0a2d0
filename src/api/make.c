/* The public API of models that are made: synthetic ones, and others' weights in other formats. */
#include <stdio.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "moraine_server.h"
#include "synth/requantize.h"
#include "synth/synth.h"

/* ---- Synthetic models ---- */

static const mo_synth_options synth_defaults = {.size = sizeof(mo_synth_options), .seed = 1};

void mo_synth_options_init(mo_synth_options *options, size_t size)
{
    mo_options_write(options, size, &synth_defaults, sizeof synth_defaults);
}

const char *mo_synth_name(int index)
{
    const mo_shape *shape = mo_shape_at(index);
    return shape ? shape->name : NULL;
}

static mo_status find_shape(const char *name, const mo_shape **out, mo_error *err)
{
    char names[900] = "";
    *out = mo_shape_named(name);
    if (*out) {
        return MO_OK;
    }
    for (int i = 0; mo_synth_name(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", mo_synth_name(i));
    }
    return mo_fail(err, MO_ENOENT, "unknown model \"%.60s\"; choose one of %s", name, names);
}

mo_status mo_synth_measure(const char *name, const mo_synth_options *options, mo_synth_info *out, size_t size,
                           mo_error *err)
{
    mo_synth_options o = synth_defaults;
    mo_synth_info info;
    const mo_shape *shape;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, name, out)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_synth_options", err);
    if (status == MO_OK) {
        status = find_shape(name, &shape, err);
    }
    if (status == MO_OK) {
        status = mo_synth_plan(shape, &o, &info, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, &info, sizeof info);
    }
    return status;
}

mo_status mo_synth(const char *name, const char *path, const mo_synth_options *options,
                   mo_progress_fn progress, void *user, mo_error *err)
{
    mo_synth_options o = synth_defaults;
    const mo_shape *shape;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, name, path)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_synth_options", err);
    if (status == MO_OK) {
        status = find_shape(name, &shape, err);
    }
    return status == MO_OK ? mo_synth_write(shape, path, &o, progress, user, err) : status;
}

/* ---- Other formats for a model's weights ---- */

static const mo_quantize_options quantize_defaults = {.size = sizeof(mo_quantize_options)};

void mo_quantize_options_init(mo_quantize_options *options, size_t size)
{
    mo_options_write(options, size, &quantize_defaults, sizeof quantize_defaults);
}

const char *mo_tensor_class_text(mo_tensor_class tensor_class)
{
    switch (tensor_class) {
    case MO_CLASS_EXPERTS: return "experts";
    case MO_CLASS_REST: return "rest";
    case MO_CLASS_OUTPUT: return "output";
    case MO_CLASS_EMBEDDING: return "embedding";
    case MO_CLASS_KEPT: return "kept";
    case MO_TENSOR_CLASSES: break;
    }
    return "unknown";
}

mo_status mo_quantize_reported(const char *source, const char *path, const mo_quantize_options *options,
                               mo_progress_fn progress, void *user, mo_quantize_report *report, size_t size,
                               mo_error *err)
{
    mo_quantize_options o = quantize_defaults;
    mo_quantize_report own;
    mo_gguf *g = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, source, path)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_quantize_options", err);
    if (status == MO_OK) {
        status = mo_gguf_open(source, &g, err);
    }
    if (status == MO_OK) {
        status = mo_requantize(g, path, &o, progress, user, &own, err);
    }
    if (status == MO_OK && report) {
        mo_report_write(report, size, &own, sizeof own);
    }
    mo_gguf_close(g);
    return status;
}

mo_status mo_quantize(const char *source, const char *path, const mo_quantize_options *options,
                      mo_progress_fn progress, void *user, mo_error *err)
{
    MO_REQUIRE(err, source, path)
    return mo_quantize_reported(source, path, options, progress, user, NULL, 0, err);
}
