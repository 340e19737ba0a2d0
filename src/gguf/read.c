/* Read: opening a model, which may be one file or many, and finding tensors by name. */
#include "gguf/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/input.h"
#include "base/status.h"
#include "gguf/model.h"

/* ---- Parts ---- */

static mo_status part_integer(const mo_gguf_part *part, const char *key, int64_t otherwise, int64_t *out,
                              mo_error *err)
{
    const mo_gguf_entry *e = mo_gguf_header_find(&part->header, key);
    mo_value v;
    *out = otherwise;
    if (!e) {
        return MO_OK;
    }
    if (!e->is_array) {
        mo_gguf_header_value(&part->header, e, 0, &v);
    }
    if (e->is_array || !mo_value_integer(&v, out)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s is not an integer; the file is damaged, download it again", part->path,
                       key);
    }
    return MO_OK;
}

mo_status mo_gguf_part_name(const char *prefix, int no, int count, char *path, size_t size, mo_error *err)
{
    int used = snprintf(path, size, "%s-%05d-of-%05d.gguf", prefix, no + 1, count);
    if (used < 0 || (size_t)used >= size) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long; move the model to a shorter one",
                       prefix);
    }
    return MO_OK;
}

static mo_status input_read(void *ctx, int64_t offset, void *to, size_t bytes, mo_error *err)
{
    return mo_input_read_at(ctx, to, bytes, (uint64_t)offset, err);
}

static mo_status open_part(mo_gguf_part *part, const char *path, mo_error *err)
{
    mo_input *input = NULL;
    mo_status s = mo_input_open(path, &input, err);
    if (s != MO_OK) {
        return s;
    }
    part->path = strdup(path);
    if (!part->path) {
        mo_input_close(input);
        mo_fail(err, MO_ENOMEM, "%s: out of memory for its name", path);
        return MO_ENOMEM;
    }
    const mo_gguf_source source = {path, (int64_t)mo_input_bytes(input), input_read, input};
    s = mo_gguf_header_parse(&source, &part->header, err);
    mo_input_close(input);
    return s;
}

/* Removes "-00001-of-00003.gguf" from the path, if it ends so. */
static mo_status split_prefix(const char *path, int no, int count, char *prefix, size_t size, mo_error *err)
{
    char tail[64];
    int tail_length = snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", no + 1, count);
    size_t length = strlen(path);
    if (length <= (size_t)tail_length || strcmp(path + length - tail_length, tail) != 0) {
        return mo_fail(err, MO_EFORMAT,
                       "%s is part %d of a model split into %d files, but its name does not end in "
                       "%s, so the others cannot be found; restore the original names of the parts",
                       path, no + 1, count, tail);
    }
    length -= (size_t)tail_length;
    if (length >= size) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long; move the model to a shorter one",
                       path);
    }
    memcpy(prefix, path, length);
    prefix[length] = 0;
    return MO_OK;
}

static mo_status check_part(const mo_gguf_part *part, int no, int count, mo_error *err)
{
    int64_t its_no, its_count;
    mo_status s = part_integer(part, "split.no", -1, &its_no, err);
    if (s == MO_OK) {
        s = part_integer(part, "split.count", 0, &its_count, err);
    }
    if (s != MO_OK) {
        return s;
    }
    if (its_no != no || its_count != count) {
        return mo_fail(err, MO_EFORMAT,
                       "%s is part %lld of %lld, but part %d of %d was expected; "
                       "the parts are mixed up, download this one again",
                       part->path, (long long)its_no + 1, (long long)its_count, no + 1, count);
    }
    return MO_OK;
}

/* Opens parts 1 .. count-1 in the directory of the first. */
static mo_status open_others(mo_gguf *g, int count, mo_error *err)
{
    char prefix[4096], path[4096];
    mo_status s = split_prefix(g->parts[0].path, 0, count, prefix, sizeof prefix, err);
    mo_gguf_part *parts = s == MO_OK ? realloc(g->parts, (size_t)count * sizeof *parts) : NULL;
    if (s != MO_OK) {
        return s;
    }
    if (!parts) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for %d parts", g->parts[0].path, count);
    }
    memset(parts + 1, 0, (size_t)(count - 1) * sizeof *parts);
    g->parts = parts;
    for (int i = 1; i < count; i++) {
        g->part_count = i + 1;
        s = mo_gguf_part_name(prefix, i, count, path, sizeof path, err);
        if (s == MO_OK) {
            s = open_part(&parts[i], path, err);
            if (s == MO_ENOENT) {
                return mo_fail(err, s,
                               "%s: part %d of %d of the model is missing; download it to the same directory",
                               path, i + 1, count);
            }
        }
        if (s == MO_OK) {
            s = check_part(&parts[i], i, count, err);
        }
        if (s != MO_OK) {
            return s;
        }
    }
    return MO_OK;
}

/* Reads the number of parts from the first file; *count is 1 for a model that is not split. */
static mo_status read_split(const mo_gguf_part *first, int *count, mo_error *err)
{
    int64_t no, n;
    mo_status s = part_integer(first, "split.count", 0, &n, err);
    if (s == MO_OK) {
        s = part_integer(first, "split.no", 0, &no, err);
    }
    if (s != MO_OK) {
        return s;
    }
    *count = 1;
    if (n == 0 || n == 1) {
        return MO_OK;
    }
    if (n < 0 || n > MO_GGUF_MAX_PARTS || no < 0 || no >= n) {
        return mo_fail(err, MO_EFORMAT,
                       "%s claims to be part %lld of %lld, which is not possible; the file is damaged, "
                       "download it again",
                       first->path, (long long)no, (long long)n);
    }
    if (no != 0) {
        char prefix[4096], path[4096 + 32];
        s = split_prefix(first->path, (int)no, (int)n, prefix, sizeof prefix, err);
        if (s == MO_OK) {
            s = mo_gguf_part_name(prefix, 0, (int)n, path, sizeof path, err);
        }
        return s == MO_OK
                   ? mo_fail(err, MO_EINVAL, "%s is part %lld of a split model; give the first part, %.400s",
                             first->path, (long long)no + 1, path)
                   : s;
    }
    *count = (int)n;
    return MO_OK;
}

/* ---- Tensors ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const mo_gguf_tensor *const *)a)->name, (*(const mo_gguf_tensor *const *)b)->name);
}

static mo_status check_total(const mo_gguf *g, mo_error *err)
{
    int64_t total;
    mo_status s = part_integer(&g->parts[0], "split.tensors.count", g->tensor_count, &total, err);
    if (s == MO_OK && g->part_count > 1 && total != g->tensor_count) {
        s = mo_fail(err, MO_EFORMAT,
                    "%s: the model should have %lld tensors, but its %d parts have %lld; the "
                    "parts belong to different models or are damaged, download them again",
                    g->parts[0].path, (long long)total, g->part_count, (long long)g->tensor_count);
    }
    return s;
}

/* Makes a list of all parts' tensors, and a list sorted by name. */
static mo_status gather(mo_gguf *g, mo_error *err)
{
    for (int p = 0; p < g->part_count; p++) {
        g->tensor_count += g->parts[p].header.tensor_count;
    }
    g->tensors = calloc((size_t)g->tensor_count + 1, sizeof *g->tensors);
    g->by_name = calloc((size_t)g->tensor_count + 1, sizeof(void *));
    if (!g->tensors || !g->by_name) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for %lld tensors; free some and try again",
                       g->parts[0].path, (long long)g->tensor_count);
    }
    mo_gguf_tensor *to = g->tensors;
    for (int p = 0; p < g->part_count; p++) {
        mo_gguf_header *h = &g->parts[p].header;
        for (int64_t i = 0; i < h->tensor_count; i++, to++) {
            *to = h->tensors[i];
            to->part = p;
        }
        free(h->tensors);
        h->tensors = NULL;
    }
    for (int64_t i = 0; i < g->tensor_count; i++) {
        g->by_name[i] = &g->tensors[i];
    }
    qsort(g->by_name, (size_t)g->tensor_count, sizeof(void *), by_name);
    for (int64_t i = 1; i < g->tensor_count; i++) {
        const mo_gguf_tensor *t = g->by_name[i];
        if (strcmp(g->by_name[i - 1]->name, t->name) == 0) {
            return mo_fail(err, MO_EFORMAT,
                           "%s: tensor %s occurs twice; the file is damaged "
                           "or malformed, download or convert it again",
                           g->parts[t->part].path, t->name);
        }
    }
    return check_total(g, err);
}

/* ---- Opening ---- */

static mo_gguf *create(mo_error *err)
{
    mo_gguf *g = calloc(1, sizeof *g);
    if (g) {
        g->parts = calloc(1, sizeof *g->parts);
        g->part_count = 1;
    }
    if (!g || !g->parts) {
        free(g);
        mo_fail(err, MO_ENOMEM, "out of memory while opening a model; free some and try again");
        return NULL;
    }
    return g;
}

static mo_status finish(mo_gguf *g, mo_status s, mo_gguf **out)
{
    if (s == MO_OK) {
        *out = g;
    } else {
        mo_gguf_close(g);
    }
    return s;
}

mo_status mo_gguf_open(const char *path, mo_gguf **out, mo_error *err)
{
    int count = 1;
    *out = NULL;
    mo_gguf *g = create(err);
    if (!g) {
        return MO_ENOMEM;
    }
    mo_status s = open_part(&g->parts[0], path, err);
    if (s == MO_OK) {
        s = read_split(&g->parts[0], &count, err);
    }
    if (s == MO_OK && count > 1) {
        s = open_others(g, count, err);
    }
    if (s == MO_OK) {
        s = gather(g, err);
    }
    return finish(g, s, out);
}

typedef struct memory {
    const uint8_t *bytes;
} memory;

static mo_status memory_read(void *ctx, int64_t offset, void *to, size_t bytes, mo_error *err)
{
    (void)err;
    memcpy(to, ((const memory *)ctx)->bytes + offset, bytes);
    return MO_OK;
}

mo_status mo_gguf_open_memory(const uint8_t *bytes, size_t size, const char *name, mo_gguf **out,
                              mo_error *err)
{
    memory m = {bytes};
    int count = 1;
    *out = NULL;
    mo_gguf *g = create(err);
    if (!g) {
        return MO_ENOMEM;
    }
    const mo_gguf_source source = {name, (int64_t)size, memory_read, &m};
    g->parts[0].path = strdup(name);
    if (!g->parts[0].path) {
        mo_fail(err, MO_ENOMEM, "%s: out of memory for its name", name);
        return finish(g, MO_ENOMEM, out);
    }
    mo_status s = mo_gguf_header_parse(&source, &g->parts[0].header, err);
    if (s == MO_OK) {
        s = read_split(&g->parts[0], &count, err);
    }
    if (s == MO_OK && count > 1) {
        s = mo_fail(err, MO_EUNSUPPORTED, "%s is the first of %d parts; open it by its path", name, count);
    }
    if (s == MO_OK) {
        s = gather(g, err);
    }
    return finish(g, s, out);
}

void mo_gguf_close(mo_gguf *g)
{
    if (!g) {
        return;
    }
    for (int p = 0; p < g->part_count; p++) {
        free(g->parts[p].path);
        mo_gguf_header_free(&g->parts[p].header);
    }
    free(g->parts);
    free(g->tensors);
    free(g->by_name);
    free(g);
}

/* ---- Reading ---- */

int mo_gguf_parts(const mo_gguf *g)
{
    return g->part_count;
}

const char *mo_gguf_part_path(const mo_gguf *g, int part)
{
    return part >= 0 && part < g->part_count ? g->parts[part].path : NULL;
}

int64_t mo_gguf_part_bytes(const mo_gguf *g, int part)
{
    return part >= 0 && part < g->part_count ? g->parts[part].header.file_bytes : 0;
}

uint32_t mo_gguf_version(const mo_gguf *g)
{
    return g->parts[0].header.version;
}

int64_t mo_gguf_tensor_count(const mo_gguf *g)
{
    return g->tensor_count;
}

const mo_gguf_tensor *mo_gguf_tensor_at(const mo_gguf *g, int64_t index)
{
    return index >= 0 && index < g->tensor_count ? &g->tensors[index] : NULL;
}

const mo_gguf_tensor *mo_gguf_tensor_find(const mo_gguf *g, const char *name)
{
    const mo_gguf_tensor wanted = {.name = name}, *pointer = &wanted;
    const mo_gguf_tensor **found =
        bsearch(&pointer, g->by_name, (size_t)g->tensor_count, sizeof(void *), by_name);
    return found ? *found : NULL;
}
