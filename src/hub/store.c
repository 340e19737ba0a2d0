#include "hub/store.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mtp_name.h"
#include "base/status.h"
#include "hub/encoder.h"
#include "hub/label.h"
#include "hub/naming.h"

enum { DEPTH_MAX = 6, FOUND_MAX = 10000 };

/* ---- The directory ---- */

mo_status hub_store_directory(const char *given, char *path, size_t size, mo_error *err)
{
    const char *named = given && *given ? given : getenv("MORAINE_MODELS");
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int used;
    if (named && *named) {
        used = snprintf(path, size, "%s", named);
    } else if (data && data[0] == '/') { /* the XDG specification says to ignore relative paths */
        used = snprintf(path, size, "%s/moraine/models", data);
    } else if (home && home[0] == '/') {
        used = snprintf(path, size, "%s/.local/share/moraine/models", home);
    } else {
        return mo_fail(err, MO_ENOENT,
                       "there is no directory for models: none of MORAINE_MODELS, "
                       "XDG_DATA_HOME and HOME is set to a path; set one");
    }
    if (used < 0 || (size_t)used >= size) {
        return mo_fail(err, MO_EINVAL, "the path of the model directory is too long");
    }
    while (used > 1 && path[used - 1] == '/') {
        path[--used] = '\0';
    }
    return MO_OK;
}

mo_status hub_store_make_folders(const char *path, mo_error *err)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long", path);
    }
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        struct stat st;
        if (mkdir(part, 0777) != 0 && errno != EEXIST && stat(part, &st) != 0) {
            return mo_fail(err, errno == ENOSPC || errno == EDQUOT ? MO_ENOSPC : MO_EIO,
                           "%s: cannot create the directory: %s", part, strerror(errno));
        }
        *slash = '/';
    }
    return MO_OK;
}

/* ---- Scanning ---- */

typedef struct found {
    char *path;    /* complete path */
    size_t inside; /* offset of the part below owner/repo */
    int64_t bytes, modified_s;
    bool partial;
} found;

typedef struct search {
    found *items;
    int count;
    bool no_memory;
} search;

static bool ends_with(const char *name, const char *tail)
{
    const size_t length = strlen(name), behind = strlen(tail);
    return length > behind && strcasecmp(name + length - behind, tail) == 0;
}

static void note(search *s, const char *path, size_t inside, const struct stat *st)
{
    const bool partial = ends_with(path, ".gguf.part") || ends_with(path, ".gguf" HUB_ASIDE);
    if (s->count >= FOUND_MAX || (!partial && !ends_with(path, ".gguf"))) {
        return;
    }
    char *copy = strdup(path);
    found *items = copy ? realloc(s->items, (size_t)(s->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(copy);
        s->no_memory = true;
        return;
    }
    s->items = items;
    found *f = &items[s->count++];
    *f = (found){.inside = inside, .modified_s = st->st_mtim.tv_sec, .partial = partial};
    f->path = copy;
    f->bytes = partial ? (int64_t)st->st_blocks * 512 : st->st_size;
}

/* Follows folders, but no links to folders, so that it ends. */
static void look(search *s, char *path, size_t length, size_t inside, int depth)
{
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        struct stat st;
        const size_t name = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length + 1 + name + 1 > PATH_MAX) {
            continue;
        }
        path[length] = '/';
        memcpy(path + length + 1, entry->d_name, name + 1);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
            look(s, path, length + 1 + name, depth <= 1 ? length + 1 + name + 1 : inside, depth + 1);
        } else if (depth >= 2 && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            note(s, path, inside, &st);
        }
        path[length] = '\0';
    }
    if (directory) {
        closedir(directory);
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const found *)a)->path, ((const found *)b)->path);
}

/* Is this another file of the same model? Its name differs only in the part's number and .part. */
static bool belongs(const found *first, const found *other)
{
    char a[PATH_MAX], b[PATH_MAX];
    int no, count, other_no, other_count;
    size_t prefix, other_prefix;
    snprintf(a, sizeof a, "%.*s", (int)strlen(first->path) - (first->partial ? 5 : 0), first->path);
    snprintf(b, sizeof b, "%.*s", (int)strlen(other->path) - (other->partial ? 5 : 0), other->path);
    if (!hub_label_split(a, &no, &count, &prefix)) {
        return strcmp(a, b) == 0;
    }
    return hub_label_split(b, &other_no, &other_count, &other_prefix) && other_prefix == prefix &&
           other_count == count && strncmp(a, b, prefix) == 0;
}

static bool is_encoder(const found *f)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s", (int)strlen(f->path) - (f->partial ? 5 : 0), f->path);
    return hub_encoder_named(path);
}

static bool is_part_of_model(const found *f)
{
    return is_encoder(f) || mo_mtp_named(f->path);
}

static int parts_of(const found *f)
{
    char path[PATH_MAX];
    int no, count;
    size_t prefix;
    snprintf(path, sizeof path, "%.*s", (int)strlen(f->path) - (f->partial ? 5 : 0), f->path);
    return hub_label_split(path, &no, &count, &prefix) ? count : 1;
}

/* Describes the model of `count` files. Takes ownership of their paths. */
static bool describe(hub_model *m, found *f, int count, const char *directory)
{
    const char *owner = f->path + strlen(directory) + 1, *repo = strchr(owner, '/') + 1;
    snprintf(m->owner, sizeof m->owner, "%.*s", (int)(repo - 1 - owner), owner);
    snprintf(m->repo, sizeof m->repo, "%.*s", (int)strcspn(repo, "/"), repo);
    snprintf(m->path, sizeof m->path, "%.*s", (int)strlen(f->path + f->inside) - (f->partial ? 5 : 0),
             f->path + f->inside);
    hub_label_of(m->path, m->label, sizeof m->label);
    m->files = calloc((size_t)count + 1, sizeof *m->files);
    if (!m->files) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        m->files[m->count++] = f[i].path;
        f[i].path = NULL;
        m->bytes += f[i].bytes;
        m->modified_s = f[i].modified_s > m->modified_s ? f[i].modified_s : m->modified_s;
    }
    return true;
}

/* Models with the same repository (these are adjacent) and label are distinguished by file names. */
static void name_apart(hub_models *models)
{
    hub_model *m = models->items;
    for (int i = 0; i < models->count; i++) {
        for (int k = i + 1;
             k < models->count && strcmp(m[k].owner, m[i].owner) == 0 && strcmp(m[k].repo, m[i].repo) == 0;
             k++) {
            if (hub_label_same(m[i].label, m[k].label)) {
                m[i].apart = m[k].apart = true;
            }
        }
    }
    for (int i = 0; i < models->count; i++) {
        if (m[i].apart) {
            hub_label_stem(m[i].path, m[i].label, sizeof m[i].label);
        }
        snprintf(m[i].name, sizeof m[i].name, "%s/%s:%s", m[i].owner, m[i].repo, m[i].label);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const hub_model *)a)->name, ((const hub_model *)b)->name);
}

mo_status hub_models_scan(const char *directory, hub_models *out, mo_error *err)
{
    search s = {0};
    char path[PATH_MAX];
    *out = (hub_models){0};
    if (snprintf(path, sizeof path, "%s", directory) >= (int)sizeof path) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long", directory);
    }
    look(&s, path, strlen(path), 0, 0);
    if (s.count > 1) {
        qsort(s.items, (size_t)s.count, sizeof *s.items, by_path);
    }
    out->items = calloc((size_t)s.count + 1, sizeof *out->items);
    bool good = out->items && !s.no_memory;
    for (int i = 0, next; good && i < s.count; i = next) {
        if (is_part_of_model(&s.items[i])) { /* used with a model, not one itself */
            next = i + 1;
            continue;
        }
        const int parts = parts_of(&s.items[i]);
        int whole = 0;
        for (next = i; next < s.count && belongs(&s.items[i], &s.items[next]); next++) {
            whole += !s.items[next].partial;
        }
        out->items[out->count].whole = whole >= parts;
        good = describe(&out->items[out->count++], &s.items[i], next - i, directory);
    }
    for (int i = 0; i < s.count; i++) {
        free(s.items[i].path);
    }
    free(s.items);
    if (out->items) {
        name_apart(out);
    }
    if (out->items && out->count > 1) {
        qsort(out->items, (size_t)out->count, sizeof *out->items, by_name);
    }
    return good ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the list of models");
}

void hub_models_free(hub_models *models)
{
    for (int i = 0; i < models->count; i++) {
        for (int f = 0; f < models->items[i].count; f++) {
            free(models->items[i].files[f]);
        }
        free(models->items[i].files);
    }
    free(models->items);
    *models = (hub_models){0};
}

bool hub_model_meant(const hub_model *m, const hub_reference *r)
{
    return strcasecmp(m->owner, r->owner) == 0 && strcasecmp(m->repo, r->repo) == 0 &&
           hub_label_means(m->path, r->file, r->quant);
}

const hub_model *hub_models_find(const hub_models *models, const hub_reference *r, bool *several)
{
    int *fit = calloc((size_t)models->count + 1, sizeof *fit);
    const char **paths = calloc((size_t)models->count + 1, sizeof *paths);
    int count = 0;
    for (int i = 0; fit && paths && i < models->count; i++) {
        const hub_model *m = &models->items[i];
        if (m->whole && hub_model_meant(m, r)) {
            fit[count] = i;
            paths[count++] = m->path;
        }
    }
    const int chosen = count ? hub_label_choose(paths, count, r->file, r->quant) : HUB_NONE;
    const hub_model *m = chosen >= 0 ? &models->items[fit[chosen]] : NULL;
    *several = chosen == HUB_SEVERAL;
    free(fit);
    free(paths);
    return m;
}

/* ---- Removing ---- */

/* Removes a file, the files next to it from an unfinished download, and empty folders. */
static mo_status remove_file(const char *directory, const char *file, mo_error *err)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s.json", file);
    if (ends_with(file, ".part")) {
        unlink(path);
    }
    if (unlink(file) != 0 && errno != ENOENT) {
        return mo_fail(err, MO_EIO, "cannot remove %s: %s", file, strerror(errno));
    }
    snprintf(path, sizeof path, "%s", file);
    for (char *slash; (slash = strrchr(path, '/')) && (size_t)(slash - path) > strlen(directory);) {
        *slash = '\0';
        if (rmdir(path) != 0) { /* not empty */
            break;
        }
    }
    return MO_OK;
}

/* Removes the repository's encoders when no model is left. */
static mo_status remove_encoders(const char *directory, const hub_model *m, mo_error *err)
{
    search s = {0};
    char path[PATH_MAX];
    bool needed = false;
    mo_status status = MO_OK;
    if (snprintf(path, sizeof path, "%s/%s/%s", directory, m->owner, m->repo) >= (int)sizeof path) {
        return MO_OK;
    }
    look(&s, path, strlen(path), strlen(path) + 1, 2);
    for (int i = 0; i < s.count; i++) {
        needed = needed || !is_encoder(&s.items[i]);
    }
    for (int i = 0; i < s.count; i++) {
        if (!needed && !s.no_memory && status == MO_OK) {
            status = remove_file(directory, s.items[i].path, err);
        }
        free(s.items[i].path);
    }
    free(s.items);
    return status;
}

mo_status hub_model_remove(const char *directory, const hub_model *m, mo_error *err)
{
    mo_status s = MO_OK;
    for (int i = 0; i < m->count && s == MO_OK;
         i++) { /* the first part first: the rest is not a model any more */
        s = remove_file(directory, m->files[i], err);
    }
    return s == MO_OK ? remove_encoders(directory, m, err) : s;
}
