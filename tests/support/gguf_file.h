/* Model files that tests make: what a writer has laid out with its data, in memory or in a file, and a file split into
 * parts as other programs do it. */
#ifndef MO_TESTS_GGUF_FILE_H
#define MO_TESTS_GGUF_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/write.h"

/* The whole file, to be freed with free(); NULL when there is no layout or no memory. data: a pointer for each tensor, NULL for
 * zeros; NULL: all are zero. */
static inline uint8_t *gguf_bytes(const mo_gguf_writer *w, const void *const *data, size_t *size)
{
    const mo_gguf_layout *file = mo_gguf_writer_file(w);
    uint8_t *bytes = file ? calloc(1, (size_t)file->file_bytes + 1) : NULL;
    const mo_gguf_tensor *t;
    if (!bytes) {
        return NULL;
    }
    memcpy(bytes, file->header, file->header_bytes);
    for (int64_t i = 0; data && (t = mo_gguf_writer_tensor(w, i)); i++) {
        if (data[i]) {
            memcpy(bytes + t->offset, data[i], (size_t)t->bytes);
        }
    }
    *size = (size_t)file->file_bytes;
    return bytes;
}

/* Lays the writer out and writes the file; false when either fails. */
static inline bool gguf_save(mo_gguf_writer *w, const char *path, const void *const *data)
{
    size_t size = 0;
    uint8_t *bytes = mo_gguf_writer_layout(w, NULL) == MO_OK ? gguf_bytes(w, data, &size) : NULL;
    FILE *f = bytes ? fopen(path, "wb") : NULL;
    bool good = f && fwrite(bytes, 1, size, f) == size;
    good = f && fclose(f) == 0 && good;
    free(bytes);
    return good;
}

/* Part `no` of `count`: the model's own keys are in the first, and every part says which it is. */
static inline bool gguf_save_part(const mo_gguf *g, const uint8_t *bytes, uint32_t alignment, int64_t tensors,
                                  int no, int count, const char *path)
{
    mo_gguf_writer *w = mo_gguf_writer_create(alignment);
    const int64_t all = mo_gguf_tensor_count(g), first = no * tensors;
    const void **data = calloc((size_t)tensors, sizeof *data);
    for (int64_t i = 0; no == 0 && i < mo_gguf_entry_count(g); i++) {
        mo_metadata_info info;
        mo_gguf_entry_info(mo_gguf_entry_at(g, i), &info);
        if (strcmp(info.key, "general.alignment") != 0) { /* the writer has put it */
            mo_gguf_put_entry(w, g, mo_gguf_entry_at(g, i));
        }
    }
    mo_gguf_put_u16(w, "split.no", (uint16_t)no);
    mo_gguf_put_u16(w, "split.count", (uint16_t)count);
    mo_gguf_put_i32(w, "split.tensors.count", (int32_t)all);
    for (int64_t i = first; data && i < all && i < first + tensors; i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        mo_gguf_put_tensor(w, t->name, t->format->type, t->dims, t->size);
        data[i - first] = bytes + t->offset;
    }
    const bool good = data && gguf_save(w, path, data);
    free(data);
    mo_gguf_writer_destroy(w);
    return good;
}

/* Writes the model in parts of so many tensors, whose names begin with `prefix`. alignment: as the writer's, which is laid
 * out here. */
static inline bool gguf_save_split(mo_gguf_writer *w, uint32_t alignment, const char *prefix, int64_t tensors,
                                   const void *const *data)
{
    size_t size = 0;
    uint8_t *bytes = mo_gguf_writer_layout(w, NULL) == MO_OK ? gguf_bytes(w, data, &size) : NULL;
    mo_gguf *g = NULL;
    bool good = bytes && mo_gguf_open_memory(bytes, size, prefix, &g, NULL) == MO_OK;
    const int count = good ? (int)((mo_gguf_tensor_count(g) + tensors - 1) / tensors) : 0;
    for (int no = 0; no < count && good; no++) {
        char path[4096];
        good = mo_gguf_part_name(prefix, no, count, path, sizeof path, NULL) == MO_OK &&
               gguf_save_part(g, bytes, alignment, tensors, no, count, path);
    }
    mo_gguf_close(g);
    free(bytes);
    return good;
}

#endif
