/* Model list: see model_list.h. */
#include "server/models/model_list.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "server/common/json_text.h"

enum { LOOK_MS = 200 };

/* As clients can say it: their requests are UTF-8. Takes the text. */
static char *as_text(char *name)
{
    json_t *value = name ? srv_json_ctext(name) : NULL;
    free(name);
    name = value ? strdup(json_string_value(value)) : NULL;
    json_decref(value);
    return name;
}

/* A file's name without its directory, .gguf, and the number of its part. */
static char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    if (!name) {
        return NULL;
    }
    size_t length = strlen(name);
    if (length > 5 && strcasecmp(name + length - 5, ".gguf") == 0) {
        name[length -= 5] = '\0';
    }
    char *part = length > 15 ? name + length - 15 : NULL; /* -00001-of-00002 */
    if (part && strncmp(part, "-00001-of-", 10) == 0 && strspn(part + 10, "0123456789") == 5) {
        *part = '\0';
    }
    return name;
}

bool srv_list_add(srv_models *m, const srv_model_spec *spec, const char *path)
{
    srv_model *model = m->count < SRV_MODELS_MAX ? calloc(1, sizeof *model) : NULL;
    if (!model) {
        return false;
    }
    *model = (srv_model){.all = m, .spec = *spec, .keep_s = spec->keep_s};
    for (int i = 0; !spec->adapters_idle && spec->loading.adapter_scales && i < spec->loading.adapter_count;
         i++) {
        model->adapter_scale[i] = spec->loading.adapter_scales[i];
    }
    model->id = as_text(spec->id ? strdup(spec->id) : name_of(path));
    model->path = strdup(path);
    if (!model->id || !model->path) {
        free(model->id);
        free(model->path);
        free(model);
        return false;
    }
    m->list[m->count++] = model;
    return true;
}

/* A first part, or a model of one file. */
static bool is_model_file(const char *name)
{
    const size_t length = strlen(name);
    if (length <= 5 || strcasecmp(name + length - 5, ".gguf") != 0 || name[0] == '.' ||
        strncasecmp(name, "mmproj", 6) == 0) {
        return false;
    }
    const char *of = strstr(name, "-of-");
    return !(of && of - name >= 6 && of + 9 == name + length - 5 && strncmp(of - 6, "-00001", 6) != 0);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void srv_list_look(srv_models *m)
{
    char *names[SRV_MODELS_MAX];
    int count = 0;
    DIR *directory = m->o.directory ? opendir(m->o.directory) : NULL;
    if (!directory) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) && count < SRV_MODELS_MAX;) {
        char *name = is_model_file(entry->d_name) ? strdup(entry->d_name) : NULL;
        if (name) {
            names[count++] = name;
        }
    }
    closedir(directory);
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 0; i < count; i++) {
        char path[4096];
        bool known = false;
        if (snprintf(path, sizeof path, "%s/%s", m->o.directory, names[i]) < (int)sizeof path) {
            for (int k = 0; k < m->count && !known; k++) {
                known = strcmp(m->list[k]->path, path) == 0;
            }
            if (!known) {
                srv_list_add(m, &m->o.others, path);
            }
        }
        free(names[i]);
    }
}

static bool same_name(const char *a, size_t length, const char *b)
{
    return strlen(b) == length && strncasecmp(a, b, length) == 0;
}

static bool has_alias(const char *alias, const char *name, size_t length)
{
    while (alias && *alias) {
        const size_t n = strcspn(alias, ",");
        if (n == length && strncasecmp(alias, name, n) == 0) {
            return true;
        }
        alias += n + (alias[n] == ',');
    }
    return false;
}

int srv_list_find(srv_models *m, const char *name)
{
    static const char tag[] = ":latest";
    if (!name || !*name) {
        return m->count > 0 ? 0 : -1;
    }
    size_t length = strlen(name);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < m->count; i++) {
            if (same_name(name, length, m->list[i]->id) || has_alias(m->list[i]->spec.alias, name, length)) {
                return i;
            }
        }
        if (length <= sizeof tag - 1 || strcasecmp(name + length - (sizeof tag - 1), tag) != 0) {
            break;
        }
        length -= sizeof tag - 1;
    }
    return -1;
}

bool srv_list_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int srv_list_pinned(const srv_models *m)
{
    int count = 0;
    for (int i = 0; i < m->count; i++) {
        count += m->list[i]->spec.pinned;
    }
    return count;
}

int srv_list_most(const srv_models *m)
{
    return m->o.most > 0 ? m->o.most : srv_list_pinned(m) + 1;
}

int srv_list_loaded(const srv_models *m)
{
    int count = 0;
    for (int i = 0; i < m->count; i++) {
        count += m->list[i]->state == SRV_MODEL_LOADED;
    }
    return count;
}

srv_model *srv_list_victim(srv_models *m, const srv_model *but, bool *busy)
{
    srv_model *oldest = NULL, *waited = NULL;
    for (int i = 0; i < m->count; i++) {
        srv_model *one = m->list[i];
        if (one == but || one->state != SRV_MODEL_LOADED || one->spec.pinned) {
            continue;
        }
        srv_model **best = one->refs ? &waited : &oldest;
        if (!*best || one->used_ns < (*best)->used_ns) {
            *best = one;
        }
    }
    *busy = !oldest && waited;
    return oldest ? oldest : waited;
}

void srv_list_wait(srv_models *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&m->changed, &m->mutex, &until);
}
