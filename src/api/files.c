/* The public API: nothing but translation from moraine.h to the rooms. */
#include "moraine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "gguf/read.h"
#include "gguf/summary.h"
#include "synth/requantize.h"
#include "synth/synth.h"

const char *mo_version(void)
{
    return MO_VERSION;
}

/* ---- Files ---- */

struct mo_file {
    mo_gguf *gguf;
};

mo_status mo_file_open(const char *path, mo_file **out, mo_error *err)
{
    *out = NULL;
    mo_file *file = calloc(1, sizeof *file);
    if (!file) {
        return mo_fail(err, MO_ENOMEM, "%s: no memory for opening it", path);
    }
    mo_status s = mo_gguf_open(path, &file->gguf, err);
    if (s != MO_OK) {
        free(file);
        return s;
    }
    *out = file;
    return MO_OK;
}

void mo_file_close(mo_file *file)
{
    if (file) {
        mo_gguf_close(file->gguf);
        free(file);
    }
}

int mo_file_parts(const mo_file *file)
{
    return mo_gguf_parts(file->gguf);
}

const char *mo_file_part_path(const mo_file *file, int part)
{
    return mo_gguf_part_path(file->gguf, part);
}

int64_t mo_file_metadata_count(const mo_file *file)
{
    return mo_gguf_entry_count(file->gguf);
}

bool mo_file_metadata(const mo_file *file, int64_t index, mo_metadata *out)
{
    const mo_gguf_entry *entry = mo_gguf_entry_at(file->gguf, index);
    if (entry) {
        mo_gguf_entry_info(entry, out);
    }
    return entry != NULL;
}

bool mo_file_metadata_value(const mo_file *file, int64_t index, uint64_t element, mo_value *out)
{
    const mo_gguf_entry *entry = mo_gguf_entry_at(file->gguf, index);
    return entry && mo_gguf_entry_value(file->gguf, entry, element, out);
}

size_t mo_file_metadata_text(const mo_file *file, int64_t index, uint64_t max_elements, char *text,
                             size_t size)
{
    const mo_gguf_entry *entry = mo_gguf_entry_at(file->gguf, index);
    if (!entry) {
        if (size) {
            text[0] = 0;
        }
        return 0;
    }
    return mo_gguf_entry_text(file->gguf, entry, max_elements, text, size);
}

int64_t mo_file_tensor_count(const mo_file *file)
{
    return mo_gguf_tensor_count(file->gguf);
}

bool mo_file_tensor(const mo_file *file, int64_t index, mo_tensor_info *out)
{
    const mo_gguf_tensor *t = mo_gguf_tensor_at(file->gguf, index);
    if (!t) {
        return false;
    }
    *out = (mo_tensor_info){.name = t->name,
                            .type = t->format->name,
                            .dims = t->dims,
                            .size = {t->size[0], t->size[1], t->size[2], t->size[3]},
                            .values = t->values,
                            .bytes = t->bytes,
                            .offset = t->offset,
                            .part = t->part};
    return true;
}

mo_status mo_file_summarize(const mo_file *file, mo_file_summary *out, mo_error *err)
{
    return mo_gguf_summarize(file->gguf, out, err);
}

/* ---- Synthetic models ---- */

mo_synth_options mo_synth_options_default(void)
{
    return (mo_synth_options){.seed = 1};
}

const char *mo_synth_name(int index)
{
    const mo_shape *shape = mo_shape_at(index);
    return shape ? shape->name : NULL;
}

static mo_status find_shape(const char *name, const mo_shape **out, mo_error *err)
{
    char names[512] = "";
    *out = mo_shape_named(name);
    if (*out) {
        return MO_OK;
    }
    for (int i = 0; mo_synth_name(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", mo_synth_name(i));
    }
    return mo_fail(err, MO_ENOENT, "no model named \"%s\" is known; choose one of %s", name, names);
}

mo_status mo_synth_measure(const char *name, const mo_synth_options *options, mo_synth_info *out,
                           mo_error *err)
{
    const mo_shape *shape;
    const mo_status status = find_shape(name, &shape, err);
    return status == MO_OK ? mo_synth_plan(shape, options, out, err) : status;
}

mo_status mo_synth(const char *name, const char *path, const mo_synth_options *options,
                   mo_progress_fn progress, void *user, mo_error *err)
{
    const mo_shape *shape;
    const mo_status status = find_shape(name, &shape, err);
    return status == MO_OK ? mo_synth_write(shape, path, options, progress, user, err) : status;
}

/* ---- Other formats for a model's weights ---- */

mo_quantize_options mo_quantize_options_default(void)
{
    return (mo_quantize_options){0};
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

mo_status mo_quantize(const char *source, const char *path, const mo_quantize_options *options,
                      mo_progress_fn progress, void *user, mo_quantize_report *report, mo_error *err)
{
    mo_quantize_report ignored;
    mo_gguf *g = NULL;
    mo_status status = mo_gguf_open(source, &g, err);
    if (status == MO_OK) {
        status = mo_requantize(g, path, options, progress, user, report ? report : &ignored, err);
    }
    mo_gguf_close(g);
    return status;
}
