/* The public API for making models: synthetic ones, and requantized ones. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/growing.h"
#include "base/nearest.h"
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
    char names[1100] = "";
    mo_nearest nearest = {.word = name, .length = strlen(name)};
    *out = mo_shape_named(name);
    if (*out) {
        return MO_OK;
    }
    for (int i = 0; mo_synth_name(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", mo_synth_name(i));
        mo_nearest_offer(&nearest, mo_synth_name(i));
    }
    if (nearest.best) {
        return mo_fail(err, MO_ENOENT, "unknown model \"%.60s\"; did you mean %s?", name, nearest.best);
    }
    return mo_fail(err, MO_ENOENT, "unknown model \"%.60s\"; choose one of %s", name, names);
}

/* "qwen3-235b" is unambiguous, "qwen3-coder" is not. */
static bool has_size(const char *name)
{
    for (const char *b = name; (b = strpbrk(b, "bB")); b++) {
        if (b > name && b[-1] >= '0' && b[-1] <= '9') {
            return true;
        }
    }
    return false;
}

/* The only shape whose name starts with `name` up to a word boundary. */
static const mo_shape *shape_beginning(const char *name)
{
    const size_t length = strlen(name);
    const mo_shape *found = NULL;
    for (int i = 0; mo_synth_name(i) && has_size(name); i++) {
        if (strncasecmp(mo_synth_name(i), name, length) == 0 && mo_synth_name(i)[length] == '-') {
            if (found) {
                return NULL;
            }
            found = mo_shape_at(i);
        }
    }
    return found;
}

mo_status mo_synth_header(const char *name, int fd, const char **found, mo_error *err)
{
    const mo_shape *shape;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, name)
    mo_status status = find_shape(name, &shape, err);
    if (status == MO_ENOENT && shape_beginning(name)) {
        shape = shape_beginning(name);
        status = MO_OK;
    }
    if (found) {
        *found = status == MO_OK ? shape->name : NULL;
    }
    return status == MO_OK ? mo_synth_write_header(shape, &synth_defaults, fd, err) : status;
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
        status = mo_synth_plan(shape, NULL, &o, &info, err);
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
    mo_status status = mo_check_path(path, "path", __func__, err);
    if (status == MO_OK) {
        status = mo_options_read(&o, sizeof o, options, "mo_synth_options", err);
    }
    if (status == MO_OK) {
        status = find_shape(name, &shape, err);
    }
    return status == MO_OK ? mo_synth_write(shape, NULL, path, &o, progress, user, err) : status;
}

/* Describes the model of a file's header, and a file of the same shape: only measured, or also written if a
 * path is given. */
static mo_status make_like(const char *model, const char *name, const char *path, const mo_synth_options *o,
                           mo_progress_fn progress, void *user, mo_synth_info *out, mo_error *err)
{
    mo_gguf *g = NULL;
    mo_like like;
    mo_status status = mo_gguf_open(model, &g, err);
    if (status == MO_OK) {
        status = mo_like_read(g, name, &like, err);
    }
    if (status == MO_OK && out) {
        status = mo_synth_plan(&like.shape, &like, o, out, err);
    }
    if (status == MO_OK && path) {
        status = mo_synth_write(&like.shape, &like, path, o, progress, user, err);
    }
    mo_gguf_close(g);
    return status;
}

mo_status mo_synth_like_measure(const char *model, const char *name, const mo_synth_options *options,
                                mo_synth_info *out, size_t size, mo_error *err)
{
    mo_synth_options o = synth_defaults;
    mo_synth_info info;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, name, out)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_synth_options", err);
    status = status == MO_OK ? make_like(model, name, NULL, &o, NULL, NULL, &info, err) : status;
    if (status == MO_OK) {
        info.title = info.architecture = NULL; /* point into the closed header */
        mo_report_write(out, size, &info, sizeof info);
    }
    return status;
}

mo_status mo_synth_like(const char *model, const char *name, const char *path,
                        const mo_synth_options *options, mo_progress_fn progress, void *user, mo_error *err)
{
    mo_synth_options o = synth_defaults;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, name, path)
    const mo_status status = mo_options_read(&o, sizeof o, options, "mo_synth_options", err);
    return status == MO_OK ? make_like(model, name, path, &o, progress, user, NULL, err) : status;
}

/* ---- Requantization ---- */

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
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, source, path)
    mo_status status = mo_check_path(source, "source", __func__, err);
    if (status == MO_OK) {
        status = mo_check_path(path, "path", __func__, err);
    }
    return status == MO_OK ? mo_quantize_reported(source, path, options, progress, user, NULL, 0, err)
                           : status;
}
