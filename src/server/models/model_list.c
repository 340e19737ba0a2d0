/* Model list: see model_list.h. */
#include "server/models/model_list.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/mtp_name.h"
#include "base/wait.h"
#include "server/common/body.h"

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

/* Its id and further names; false: out of memory. */
static bool set_names(srv_model *model, const char *path)
{
    const srv_model_spec *spec = &model->spec;
    model->id = as_text(spec->id ? strdup(spec->id) : name_of(path));
    model->aliases = spec->alias ? strdup(spec->alias) : NULL;
    if (!model->id || (spec->alias && !model->aliases)) {
        return false;
    }
    if (!spec->alias_is_id || !spec->alias) {
        return true;
    }
    const size_t first = strcspn(spec->alias, ",");
    char *id = as_text(strndup(spec->alias, first)), *others = NULL;
    if (!id || asprintf(&others, "%s%s%s", spec->alias + first + (spec->alias[first] == ','),
                        spec->alias[first] ? "," : "", model->id) < 0) {
        free(id);
        return false;
    }
    free(model->id);
    free(model->aliases);
    model->id = id;
    model->aliases = others;
    return true;
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
    model->path = strdup(path);
    if (!set_names(model, path) || !model->path) {
        free(model->id);
        free(model->aliases);
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
        strcasestr(name, "mmproj")) {
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
            if (!known && !mo_mtp_named(path)) {
                srv_model_spec spec = m->o.others;
                spec.loading.mmproj =
                    m->o.encoder ? m->o.encoder(m->o.encoder_user, path) : spec.loading.mmproj;
                srv_list_add(m, &spec, path);
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
            if (same_name(name, length, m->list[i]->id) || has_alias(m->list[i]->aliases, name, length)) {
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
    mo_cond_wait(&m->changed, &m->mutex, mo_clock_in(1e-3 * LOOK_MS));
}

/* Holding: those who use a model hold it; who starts and ends the server opens and closes all (models.h). */

/* ---- Holding ---- */

static bool tell_failure(srv_fault *fault, const srv_model *model, const mo_error *err)
{
    /* What can never succeed is not ours to be tried again: clients do so with all that is 5xx. */
    const srv_fault_kind kind = err->status == MO_ENOENT                                ? SRV_FAULT_MODEL
                                : err->status == MO_EIO || err->status == MO_ECANCELLED ? SRV_FAULT_SERVER
                                                                                        : SRV_FAULT_REQUEST;
    char text[sizeof fault->message];
    srv_fault_words(err, model->path, text, sizeof text);
    return srv_fault_set(fault, kind, "model", "%s cannot be loaded: %s", model->id, text);
}

/* With the mutex held: makes a step towards having it loaded, which may wait. False: it cannot be. */
static bool approach(srv_models *m, srv_model *model, srv_fault *fault)
{
    bool busy = false;
    mo_error err = {0};
    if (m->changing || model->state != SRV_MODEL_UNLOADED) {
        srv_list_wait(m);
        return true;
    }
    const int most = srv_list_most(m);
    if (srv_list_loaded(m) >= most) {
        srv_model *victim = srv_list_victim(m, model, &busy);
        if (!victim) { /* which will not change: nothing to be tried again */
            return srv_fault_set(
                fault, SRV_FAULT_REQUEST, "model",
                "%s cannot be loaded: the limit of %d loaded models is reached, and all are pinned",
                model->id, most);
        }
        if (busy) { /* its answers end, and no new one begins */
            victim->wanted_away = true;
            srv_engine_end_stalled(victim->engine);
            srv_list_wait(m);
            return true;
        }
        m->changing = true;
        srv_loader_unload(m, victim, "another model was requested");
        m->changing = false;
        return true;
    }
    m->changing = true;
    const mo_status status = srv_loader_load(m, model, &err);
    m->changing = false;
    pthread_cond_broadcast(&m->changed);
    return status == MO_OK || tell_failure(fault, model, &err);
}

bool srv_model_ref(srv_models *m, const char *name, srv_request *q, srv_model **out, srv_fault *fault)
{
    bool ok = true;
    *out = NULL;
    pthread_mutex_lock(&m->mutex);
    int index = srv_list_find(m, name);
    if (index < 0 && m->o.directory) {
        srv_list_look(m);
        index = srv_list_find(m, name);
    }
    if (index < 0 && m->count == 1 && !m->o.strict) {
        index = 0;
    }
    srv_model *model = index >= 0 ? m->list[index] : NULL;
    if (!model) {
        srv_fault_set(fault, SRV_FAULT_MODEL, NULL, "model '%s' not found", name ? name : "");
        pthread_mutex_unlock(&m->mutex);
        return false;
    }
    while (ok && !*out) {
        if (m->stopping) {
            ok = srv_fault_set(fault, SRV_FAULT_UNAVAILABLE, NULL, "the server is shutting down");
        } else if (q && srv_request_gone(q)) {
            ok = srv_fault_set(fault, SRV_FAULT_UNAVAILABLE, NULL, "the client has disconnected");
        } else if (model->state == SRV_MODEL_LOADED && !model->wanted_away) {
            model->refs++;
            model->used_ns = mo_clock_ns();
            *out = model;
        } else {
            ok = approach(m, model, fault);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return ok;
}

void srv_model_unref(srv_model *model)
{
    srv_models *m = model->all;
    pthread_mutex_lock(&m->mutex);
    model->refs--;
    model->used_ns = mo_clock_ns();
    if (model->refs == 0) {
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
}

srv_model *srv_models_peek(srv_models *m, int index)
{
    srv_model *model = NULL;
    pthread_mutex_lock(&m->mutex);
    if (index >= 0 && index < m->count && m->list[index]->state == SRV_MODEL_LOADED) {
        model = m->list[index];
        model->refs++;
    }
    pthread_mutex_unlock(&m->mutex);
    return model;
}

void srv_models_unpeek(srv_model *model)
{
    srv_models *m = model->all;
    pthread_mutex_lock(&m->mutex);
    if (--model->refs == 0) {
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
}

mo_model *srv_model_mo(const srv_model *model)
{
    return model->mo;
}

srv_engine *srv_model_engine(const srv_model *model)
{
    return model->engine;
}

const char *srv_model_path(const srv_model *model)
{
    return model->path;
}

const char *srv_model_id(const srv_model *model)
{
    return model->id;
}

int64_t srv_model_context(const srv_model *model)
{
    return model->plan.context;
}

int srv_model_adapters(const srv_model *model, mo_adapter_use out[SRV_ADAPTERS])
{
    int count = 0;
    pthread_mutex_lock(&model->all->mutex);
    for (; count < SRV_ADAPTERS && mo_model_adapter(model->mo, count); count++) {
        out[count] = (mo_adapter_use){mo_model_adapter(model->mo, count), model->adapter_scale[count]};
    }
    pthread_mutex_unlock(&model->all->mutex);
    return count;
}

void srv_model_scale(srv_model *model, const mo_adapter_use *adapters, int count)
{
    pthread_mutex_lock(&model->all->mutex);
    for (int i = 0; i < count; i++) {
        model->adapter_scale[i] = adapters[i].scale;
    }
    pthread_mutex_unlock(&model->all->mutex);
}

const srv_defaults *srv_model_defaults(const srv_model *model)
{
    return &model->spec.defaults;
}

/* ---- Open and close ---- */

mo_status srv_models_open(const srv_models_options *options, srv_models **out, mo_error *err)
{
    bool ok = true;
    srv_models *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        *err = (mo_error){MO_ENOMEM, "out of memory"};
        return MO_ENOMEM;
    }
    m->o = *options;
    m->beginning = true;
    mo_cond_init(&m->changed);
    pthread_mutex_init(&m->mutex, NULL);
    for (int i = 0; i < options->count; i++) {
        ok = ok && srv_list_add(m, &options->specs[i], options->specs[i].path);
    }
    for (int i = 0; ok && i < m->count; i++) {
        if (srv_list_find(m, m->list[i]->id) != i) {
            err->status = MO_EINVAL;
            snprintf(err->detail, sizeof err->detail,
                     "two models are named %s; rename them with a models file", m->list[i]->id);
            srv_models_close(m);
            return MO_EINVAL;
        }
    }
    srv_list_look(m);
    m->has_idle_unload = ok && pthread_create(&m->idle_unload, NULL, srv_idle_unload_run, m) == 0;
    if (!ok || !m->has_idle_unload) {
        srv_models_close(m);
        *err = (mo_error){MO_ENOMEM, "out of memory"};
        return MO_ENOMEM;
    }
    *out = m;
    return MO_OK;
}

mo_status srv_models_begin(srv_models *m, mo_error *err)
{
    mo_status status = MO_OK;
    bool any = false;
    pthread_mutex_lock(&m->mutex);
    for (int i = 0; i < m->o.count && !m->stopping; i++) {
        srv_model *model = m->list[i];
        const bool first = i == 0 && srv_list_most(m) > srv_list_pinned(m);
        if ((first || model->spec.pinned) && model->state == SRV_MODEL_UNLOADED && !m->changing) {
            m->changing = true;
            const mo_status one = srv_loader_load(m, model, err);
            m->changing = false;
            any = any || one == MO_OK;
            status = one != MO_OK ? one : status;
        }
    }
    pthread_mutex_unlock(&m->mutex);
    m->beginning = false;
    return any || m->o.count == 0 ? MO_OK : status;
}

bool srv_models_beginning(srv_models *m)
{
    return m->beginning;
}

void srv_models_stop(srv_models *m, double seconds)
{
    const int64_t end = mo_clock_ns() + (int64_t)(seconds * 1e9);
    pthread_mutex_lock(&m->mutex);
    m->stopping = true;
    pthread_cond_broadcast(&m->changed);
    while (m->changing) {
        srv_list_wait(m);
    }
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < m->count; i++) {
        if (m->list[i]->engine) {
            const double left = (double)(end - mo_clock_ns()) * 1e-9;
            srv_engine_drain(m->list[i]->engine, left > 0 ? left : 0);
        }
    }
}

void srv_models_close(srv_models *m)
{
    if (!m) {
        return;
    }
    pthread_mutex_lock(&m->mutex);
    m->stopping = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    if (m->has_idle_unload) {
        pthread_join(m->idle_unload, NULL);
    }
    for (int i = 0; i < m->count; i++) {
        srv_engine_close(m->list[i]->engine);
        mo_model_close(m->list[i]->mo);
        free(m->list[i]->id);
        free(m->list[i]->aliases);
        free(m->list[i]->path);
        free(m->list[i]);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}
