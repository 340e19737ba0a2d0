/* The public API of model files: translation from moraine_tools.h to gguf/. */
#include "moraine_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "gguf/read.h"
#include "gguf/summary.h"
#include "model/family.h"
#include "moraine_server.h"
#include "vision/encoder.h"

struct mo_file {
    mo_gguf *gguf;
    mo_status summarized; /* result of reading the fields below */
    mo_error why;
    mo_file_info info;
    mo_file_format formats[MO_TYPE_LIMIT];
    mo_encoder *encoder; /* described; NULL: none, or unreadable */
    mo_status encoder_status;
    mo_error encoder_why;
};

/* Bytes of the layers from `layers` on. */
static int64_t bytes_behind(const mo_gguf *g, int layers)
{
    int64_t bytes = 0;
    const mo_gguf_tensor *t;
    for (int64_t i = 0; (t = mo_gguf_tensor_at(g, i)); i++) {
        const bool block = strncmp(t->name, "blk.", 4) == 0;
        bytes += block && strtol(t->name + 4, NULL, 10) >= layers ? t->bytes : 0;
    }
    return bytes;
}

mo_status mo_file_open(const char *path, mo_file **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    *out = NULL;
    const mo_status named = mo_check_path(path, "path", __func__, err);
    mo_file *file = named == MO_OK ? calloc(1, sizeof *file) : NULL;
    if (named != MO_OK) {
        return named;
    }
    if (!file) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    mo_status s = mo_gguf_open(path, &file->gguf, err);
    if (s != MO_OK) {
        free(file);
        return s;
    }
    file->summarized = mo_gguf_summarize(file->gguf, &file->info, file->formats, &file->why);
    if (file->summarized == MO_OK && file->info.mtp_layers) {
        file->info.mtp_heads = mo_family_finds_head(file->gguf) ? 1 : 0;
        file->info.mtp_bytes = bytes_behind(file->gguf, file->info.layers);
    }
    if (file->summarized == MO_OK && strcmp(file->info.architecture, "clip") == 0) {
        file->encoder_status = mo_encoder_open(path, true, &file->encoder, &file->encoder_why);
    } else {
        file->encoder_status =
            mo_fail(&file->encoder_why, MO_ENOENT, "%s: this is not an encoder of pictures", path);
    }
    *out = file;
    return MO_OK;
}

void mo_file_close(mo_file *file)
{
    if (file) {
        mo_encoder_close(file->encoder);
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

bool mo_file_metadata(const mo_file *file, int64_t index, mo_metadata_info *out, size_t size)
{
    const mo_gguf_entry *entry = mo_gguf_entry_at(file->gguf, index);
    if (entry) {
        mo_metadata_info info;
        mo_gguf_entry_info(entry, &info);
        mo_report_write(out, size, &info, sizeof info);
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

bool mo_file_tensor(const mo_file *file, int64_t index, mo_tensor_info *out, size_t size)
{
    const mo_gguf_tensor *t = mo_gguf_tensor_at(file->gguf, index);
    if (!t) {
        return false;
    }
    const mo_tensor_info info = {.name = t->name,
                                 .type = t->format->name,
                                 .dims = t->dims,
                                 .size = {t->size[0], t->size[1], t->size[2], t->size[3]},
                                 .values = t->values,
                                 .bytes = t->bytes,
                                 .offset = t->offset,
                                 .part = t->part};
    mo_report_write(out, size, &info, sizeof info);
    return true;
}

mo_status mo_file_summarize(const mo_file *file, mo_file_info *out, size_t size, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, file, out)
    if (file->summarized != MO_OK) {
        *err = file->why;
        return file->summarized;
    }
    mo_report_write(out, size, &file->info, sizeof file->info);
    return MO_OK;
}

mo_status mo_file_check_type(const mo_file *file, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, file)
    return mo_family_check_type(file->gguf, err);
}

mo_status mo_file_encoder(const mo_file *file, mo_encoder_info *out, size_t size, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, file, out)
    if (file->encoder_status != MO_OK) {
        *err = file->encoder_why;
        return file->encoder_status;
    }
    const mo_vision_spec *s = mo_encoder_spec(file->encoder);
    const mo_encoder_info info = {.projector = s->projector_name,
                                  .layers = s->layers,
                                  .heads = (int)s->heads,
                                  .width = s->width,
                                  .patch = s->patch,
                                  .merge = s->merge,
                                  .min_tokens = s->min_rows,
                                  .max_tokens = s->max_rows,
                                  .text_width = s->out,
                                  .features = s->features,
                                  .weight_bytes = mo_encoder_weight_bytes(file->encoder)};
    mo_report_write(out, size, &info, sizeof info);
    return MO_OK;
}
