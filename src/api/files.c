/* The public API of model files: translation from moraine_tools.h to gguf/. */
#include "moraine_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "gguf/read.h"
#include "gguf/summary.h"

struct mo_file {
    mo_gguf *gguf;
    mo_status summarized; /* what is below is there, or why not */
    mo_error why;
    mo_file_info info;
    mo_file_format formats[MO_TYPE_LIMIT];
};

mo_status mo_file_open(const char *path, mo_file **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    *out = NULL;
    mo_file *file = calloc(1, sizeof *file);
    if (!file) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    mo_status s = mo_gguf_open(path, &file->gguf, err);
    if (s != MO_OK) {
        free(file);
        return s;
    }
    file->summarized = mo_gguf_summarize(file->gguf, &file->info, file->formats, &file->why);
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
