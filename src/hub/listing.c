#include "hub/listing.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/status.h"
#include "hub/encoder.h"
#include "hub/label.h"

enum { FILES_MAX = 4000 };

#define BYTES_MAX ((json_int_t)1 << 50)

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory for the list of files");
}

/* ---- Files ---- */

/* Is the file a model or an encoder? Files of statistics are not. */
static bool is_useful(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return !strcasestr(name, "imatrix");
}

static bool is_listed(const hub_file *files, int count, const char *path)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

static mo_status add(hub_listing *l, hub_file **list, int *count, const char *path, const char *url,
                     int64_t bytes, const char *sha256, mo_error *err)
{
    if (*count >= FILES_MAX) { /* checked before the linear search below */
        l->cut = true;
        return MO_OK;
    }
    if (is_listed(*list, *count, path)) {
        return MO_OK;
    }
    hub_file *files = realloc(*list, (size_t)(*count + 1) * sizeof *files);
    if (!files) {
        return no_memory(err);
    }
    *list = files;
    hub_file *f = &files[*count];
    *f = (hub_file){.path = strdup(path), .url = url ? strdup(url) : NULL, .bytes = bytes};
    snprintf(f->sha256, sizeof f->sha256, "%s", sha256);
    if (!f->path || (url && !f->url)) {
        free(f->path);
        free(f->url);
        return no_memory(err);
    }
    ++*count;
    return MO_OK;
}

mo_status hub_listing_add_file(hub_listing *l, const char *path, const char *url, mo_error *err)
{
    return add(l, &l->files, &l->file_count, path, url, -1, "", err);
}

static mo_status add_entry(hub_listing *l, json_t *entry, mo_error *err)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *path = json_string_value(json_object_get(entry, "path"));
    json_t *lfs = json_object_get(entry, "lfs");
    const char *oid = json_string_value(json_object_get(lfs, "oid"));
    json_t *size = json_object_get(lfs, "size");
    size = json_is_integer(size) ? size : json_object_get(entry, "size");
    if (!type || strcmp(type, "file") != 0 || !path || !hub_path_safe(path) || !is_useful(path) ||
        !json_is_integer(size) || json_integer_value(size) <= 0 || json_integer_value(size) > BYTES_MAX) {
        return MO_OK;
    }
    char sha256[65] = "";
    if (oid && strncmp(oid, "sha256:", 7) == 0) {
        oid += 7;
    }
    if (oid && strlen(oid) == 64 && strspn(oid, "0123456789abcdefABCDEF") == 64) {
        for (int i = 0; i < 64; i++) {
            sha256[i] = (char)tolower((unsigned char)oid[i]);
        }
    }
    const bool encoder = hub_encoder_named(path);
    return add(l, encoder ? &l->encoders : &l->files, encoder ? &l->encoder_count : &l->file_count, path,
               NULL, (int64_t)json_integer_value(size), sha256, err);
}

mo_status hub_listing_add(hub_listing *l, const char *json, size_t length, mo_error *err)
{
    json_error_t wrong;
    bool no_memory;
    json_t *root = mo_json_load(json, length, 0, &wrong, &no_memory), *entry;
    size_t i;
    mo_status s = MO_OK;
    if (no_memory) {
        return mo_fail(err, MO_ENOMEM, "out of memory while reading the list of files");
    }
    if (!json_is_array(root)) {
        json_decref(root);
        return mo_fail(err, MO_EFORMAT, "the list of files is not in the format of a hub (%s); check the URL",
                       root ? "no array" : wrong.text);
    }
    json_array_foreach(root, i, entry)
    {
        s = s == MO_OK ? add_entry(l, entry, err) : s;
    }
    json_decref(root);
    return s;
}

/* ---- Models ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

/* The number of consecutive parts of a split model from this one; 0 if one is missing. */
static int parts_at(const hub_listing *l, int first)
{
    int no, count, other_no, other_count;
    size_t prefix, other;
    const char *path = l->files[first].path;
    if (!hub_label_split(path, &no, &count, &prefix)) {
        return 1;
    }
    if (no != 1 || count > l->file_count - first) {
        return 0;
    }
    for (int i = 1; i < count; i++) {
        const char *next = l->files[first + i].path;
        if (!hub_label_split(next, &other_no, &other_count, &other) || other != prefix ||
            strncmp(path, next, prefix) != 0 || other_no != i + 1 || other_count != count) {
            return 0;
        }
    }
    return count;
}

/* Models with the same label are distinguished by name. */
static void name_apart(hub_listing *l)
{
    for (int i = 0; i < l->count; i++) {
        hub_choice *c = &l->choices[i];
        for (int k = i + 1; k < l->count && !c->apart; k++) {
            c->apart = hub_label_same(c->label, l->choices[k].label);
        }
        for (int k = 0; k < i && !c->apart; k++) {
            c->apart = hub_label_same(c->label, l->choices[k].label);
        }
    }
    for (int i = 0; i < l->count; i++) {
        hub_choice *c = &l->choices[i];
        if (c->apart) {
            hub_label_stem(c->files[0].path, c->label, sizeof c->label);
        }
    }
}

mo_status hub_listing_finish(hub_listing *l, mo_error *err)
{
    if (l->file_count > 1) {
        qsort(l->files, (size_t)l->file_count, sizeof *l->files, by_path);
    }
    l->count = 0;
    l->choices = calloc((size_t)l->file_count + 1, sizeof *l->choices);
    if (!l->choices) {
        return no_memory(err);
    }
    for (int i = 0, parts; i < l->file_count; i += parts ? parts : 1) {
        parts = parts_at(l, i);
        if (parts > 0) {
            hub_choice *c = &l->choices[l->count++];
            *c = (hub_choice){.files = &l->files[i], .count = parts};
            hub_label_of(l->files[i].path, c->label, sizeof c->label);
            for (int p = 0; p < parts; p++) {
                c->bytes += l->files[i + p].bytes > 0 ? l->files[i + p].bytes : 0;
            }
        }
    }
    name_apart(l);
    return MO_OK;
}

/* "Q4_K_M, Q8_0, F16": matching labels, or all. */
static void name_all(const hub_listing *l, const char *file, const char *quant, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < l->count && used + HUB_NAME + 8 < size; i++) {
        if (hub_label_means(l->choices[i].files[0].path, file, quant)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", l->choices[i].label);
        }
    }
}

mo_status hub_listing_choose(const hub_listing *l, const hub_reference *r, const hub_choice **out,
                             mo_error *err)
{
    char names[700];
    *out = NULL;
    if (l->count == 0) {
        return mo_fail(
            err, MO_ENOENT,
            "%s/%s has no GGUF file; repositories with models for Moraine have names that end in -GGUF",
            r->owner, r->repo);
    }
    const char **paths = calloc((size_t)l->count, sizeof *paths);
    if (!paths) {
        return no_memory(err);
    }
    for (int i = 0; i < l->count; i++) {
        paths[i] = l->choices[i].files[0].path;
    }
    const int found = hub_label_choose(paths, l->count, r->file, r->quant);
    free(paths);
    if (found >= 0) {
        *out = &l->choices[found];
        return MO_OK;
    }
    if (found == HUB_NONE) {
        name_all(l, "", "", names, sizeof names);
        return mo_fail(err, MO_ENOENT, "%s/%s has no %s, only %s", r->owner, r->repo,
                       r->file[0] ? r->file : r->quant, names);
    }
    name_all(l, r->file, r->quant, names, sizeof names);
    return mo_fail(
        err, MO_ENOENT,
        "%s/%s%s%s has several models; choose one, as %s/%s:%.*s, or by its URL. The models are %s", r->owner,
        r->repo, r->quant[0] ? ":" : "", r->quant, r->owner, r->repo, (int)strcspn(names, ","), names, names);
}

const hub_file *hub_listing_encoder(const hub_listing *l, const char *model, const char *named)
{
    const hub_file *best = NULL;
    for (int i = 0; i < l->encoder_count; i++) {
        const hub_file *f = &l->encoders[i];
        const char *slash = strrchr(f->path, '/');
        const bool meant = named ? strcmp(f->path, named) == 0 || (slash && strcmp(slash + 1, named) == 0)
                                 : hub_encoder_beside(f->path, model);
        if (meant && (!best || hub_encoder_better(f->path, best->path, model))) {
            best = f;
        }
    }
    return best;
}

static void free_files(hub_file *files, int count)
{
    for (int i = 0; i < count; i++) {
        free(files[i].path);
        free(files[i].url);
    }
    free(files);
}

void hub_listing_free(hub_listing *l)
{
    free_files(l->files, l->file_count);
    free_files(l->encoders, l->encoder_count);
    free(l->choices);
    *l = (hub_listing){0};
}
