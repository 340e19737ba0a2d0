/* Models: see models.h. */
#include "server/models.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "moraine_tools.h"
#include "server/log.h"
#include "server/window.h"

enum { MODELS_MAX = 1024, LOOK_MS = 200 };

#define USUAL_CACHE_BYTES ((int64_t)1 << 30)

struct srv_model {
    srv_models *all;
    srv_model_spec spec;
    char *id, *path;

    /* Of the file; read once, by srv_models_describe(). */
    bool looked;
    char architecture[64], format[16];
    int64_t file_bytes, parameters, made_for, modified;

    /* Under the models' mutex. */
    srv_model_state state;
    int holds;
    bool wanted_away; /* unload it as soon as nobody holds it; nobody new gets it */
    bool failed;
    double keep_s;
    int64_t used_ns;
    double load_s;
    srv_window window;
    _Atomic int load_permille;
    srv_engine_report past; /* of engines that are gone */
    struct stat opened;     /* its file when it was loaded */
    const char *away;       /* why it is wanted away; NULL: somebody asked */
    srv_pulse pulse;
    int64_t pulse_ns; /* when these were counted: */
    uint64_t pulse_prompt, pulse_predicted;

    /* Constant while it is loaded. */
    mo_model *mo;
    srv_engine *engine;
};

struct srv_models {
    srv_models_options o;
    pthread_mutex_t mutex; /* of the list and of what the models say */
    pthread_cond_t changed;
    srv_model *list[MODELS_MAX];
    int count;
    bool changing; /* one model is being loaded or unloaded */
    _Atomic bool stopping;
    _Atomic bool beginning;
    pthread_t keeper;
    bool has_keeper;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- The list ---- */

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

/* With the mutex held. */
static bool add(srv_models *m, const srv_model_spec *spec, const char *path)
{
    srv_model *model = m->count < MODELS_MAX ? calloc(1, sizeof *model) : NULL;
    if (!model) {
        return false;
    }
    *model = (srv_model){.all = m, .spec = *spec, .keep_s = spec->keep_s};
    model->id = spec->id ? strdup(spec->id) : name_of(path);
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

/* With the mutex held: files that have come since. */
static void look_into_directory(srv_models *m)
{
    char *names[MODELS_MAX];
    int count = 0;
    DIR *directory = m->o.directory ? opendir(m->o.directory) : NULL;
    if (!directory) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) && count < MODELS_MAX;) {
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
                add(m, &m->o.others, path);
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

/* With the mutex held. -1: none. */
static int find(srv_models *m, const char *name)
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

/* ---- Loading and unloading: one at a time, without the mutex ---- */

static bool on_progress(void *user, int64_t done, int64_t total)
{
    srv_model *model = user;
    atomic_store(&model->load_permille, total > 0 ? (int)(done * 1000 / total) : 0);
    return !model->all->stopping; /* a flag that only ever rises */
}

static mo_status open_model(srv_model *model, mo_error *err)
{
    const srv_model_spec *s = &model->spec;
    mo_model_options o = s->loading;
    srv_window w;
    const int64_t cache = s->engine.cache_bytes;
    const srv_window_wish wish = {.context = s->context,
                                  .context_all = s->context_all,
                                  .parallel = s->parallel,
                                  .kept_bytes = cache < 0    ? 0
                                                : cache == 0 ? USUAL_CACHE_BYTES
                                                             : cache};
    mo_status status = srv_window_choose(model->path, &o, &wish, &w, err);
    if (status != MO_OK) {
        return status;
    }
    o.context = w.context;
    o.sessions = w.parallel;
    o.kept_bytes = w.kept_bytes;
    o.kept_device_bytes = w.kept_device_bytes;
    o.progress = on_progress;
    o.user = model;
    status = mo_model_open(model->path, &o, &model->mo, err);
    if (status != MO_OK) {
        return status;
    }
    if (stat(model->path, &model->opened) != 0) {
        model->opened = (struct stat){0};
    }
    srv_engine_options e = s->engine;
    e.parallel = w.parallel;
    e.context = w.context;
    e.kv = o.kv;
    e.lossy = o.skip_missing;
    status = srv_engine_open(model->mo, &e, &model->engine, err);
    if (status != MO_OK) {
        mo_model_close(model->mo);
        model->mo = NULL;
    }
    model->window = w;
    return status;
}

static void add_histogram(srv_histogram *sum, const srv_histogram *h)
{
    for (int i = 0; i < SRV_BUCKETS; i++) {
        sum->buckets[i] += h->buckets[i];
    }
    sum->count += h->count;
    sum->sum += h->sum;
}

static void add_counters(srv_engine_report *sum, const srv_engine_report *r)
{
    sum->accepted += r->accepted;
    sum->done += r->done;
    sum->failed += r->failed;
    sum->cancelled += r->cancelled;
    sum->refused += r->refused;
    sum->steps += r->steps;
    sum->step_sequences += r->step_sequences;
    sum->prompt_tokens += r->prompt_tokens;
    sum->cached_tokens += r->cached_tokens;
    sum->predicted_tokens += r->predicted_tokens;
    sum->prompt_s += r->prompt_s;
    sum->predicted_s += r->predicted_s;
    sum->longest = r->longest > sum->longest ? r->longest : sum->longest;
    sum->disk_failures += r->disk_failures;
    add_histogram(&sum->first, &r->first);
    add_histogram(&sum->between, &r->between);
}

/* With the mutex held and `changing` set by the caller; gives the mutex up meanwhile. */
static void unload(srv_models *m, srv_model *model, const char *why)
{
    srv_engine_report last;
    model->state = SRV_MODEL_LEAVING;
    pthread_mutex_unlock(&m->mutex);
    srv_engine_describe(model->engine, &last);
    srv_engine_close(model->engine);
    mo_model_close(model->mo);
    srv_log(MO_LOG_INFO, "unloaded",
            (srv_field[]){SRV_TEXT_FIELD("model", model->id), SRV_TEXT_FIELD("why", why), {0}});
    pthread_mutex_lock(&m->mutex);
    add_counters(&model->past, &last);
    model->mo = NULL;
    model->engine = NULL;
    model->wanted_away = false;
    model->away = NULL;
    model->keep_s = model->spec.keep_s;
    model->state = SRV_MODEL_UNLOADED;
    pthread_cond_broadcast(&m->changed);
}

/* With the mutex held: the loaded model that was used longest ago and may go; *busy says that one would have to be waited
 * for. */
static srv_model *pick_victim(srv_models *m, const srv_model *but, bool *busy)
{
    srv_model *oldest = NULL, *waited = NULL;
    for (int i = 0; i < m->count; i++) {
        srv_model *one = m->list[i];
        if (one == but || one->state != SRV_MODEL_LOADED || one->spec.pinned) {
            continue;
        }
        srv_model **best = one->holds ? &waited : &oldest;
        if (!*best || one->used_ns < (*best)->used_ns) {
            *best = one;
        }
    }
    *busy = !oldest && waited;
    return oldest ? oldest : waited;
}

/* With the mutex held. */
static int pinned_count(const srv_models *m)
{
    int count = 0;
    for (int i = 0; i < m->count; i++) {
        count += m->list[i]->spec.pinned;
    }
    return count;
}

/* How many may be loaded at once: as was said, or those that are pinned and one more. With the mutex held. */
static int most_loaded(const srv_models *m)
{
    return m->o.most > 0 ? m->o.most : pinned_count(m) + 1;
}

static int loaded_count(const srv_models *m)
{
    int count = 0;
    for (int i = 0; i < m->count; i++) {
        count += m->list[i]->state == SRV_MODEL_LOADED;
    }
    return count;
}

/* With the mutex held and `changing` set; gives the mutex up meanwhile. */
static mo_status load(srv_models *m, srv_model *model, mo_error *err)
{
    mo_status status;
    bool busy;
    model->state = SRV_MODEL_LOADING;
    model->load_permille = 0;
    const int64_t begin = now_ns();
    for (;;) {
        pthread_mutex_unlock(&m->mutex);
        status = open_model(model, err);
        pthread_mutex_lock(&m->mutex);
        srv_model *victim = status == MO_ENOMEM || status == MO_EDEVICE ? pick_victim(m, model, &busy) : NULL;
        if (!victim || busy || m->stopping) {
            break;
        }
        unload(m, victim, "its memory is needed");
    }
    model->failed = status != MO_OK;
    model->state = status == MO_OK ? SRV_MODEL_LOADED : SRV_MODEL_UNLOADED;
    model->load_s = (double)(now_ns() - begin) * 1e-9;
    model->used_ns = now_ns();
    pthread_cond_broadcast(&m->changed);
    if (status == MO_OK) {
        const srv_window *w = &model->window;
        srv_log(MO_LOG_INFO, "loaded",
                (srv_field[]){SRV_TEXT_FIELD("model", model->id),
                              SRV_REAL_FIELD("seconds", model->load_s),
                              SRV_INT_FIELD("parallel", w->parallel),
                              SRV_INT_FIELD("ctx", w->context),
                              SRV_INT_FIELD("ctx_size", w->context * w->parallel),
                              SRV_INT_FIELD("made_for", w->made_for),
                              SRV_INT_FIELD("cache_mib", (w->kept_bytes + w->kept_device_bytes) >> 20),
                              {0}});
    } else {
        char text[1024];
        srv_fault_words(err, NULL, text, sizeof text);
        srv_log(MO_LOG_ERROR, "load_failed",
                (srv_field[]){SRV_TEXT_FIELD("model", model->id), SRV_TEXT_FIELD("message", text), {0}});
    }
    return status;
}

/* ---- Holding ---- */

static void wait_a_little(srv_models *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&m->changed, &m->mutex, &until);
}

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
static bool approach(srv_models *m, srv_model *model, double *load_s, srv_fault *fault)
{
    bool busy = false;
    mo_error err = {0};
    if (m->changing || model->state != SRV_MODEL_UNLOADED) {
        wait_a_little(m);
        return true;
    }
    const int most = most_loaded(m);
    if (loaded_count(m) >= most) {
        srv_model *victim = pick_victim(m, model, &busy);
        if (!victim) { /* which will not change: nothing to be tried again */
            return srv_fault_set(fault, SRV_FAULT_REQUEST, "model",
                                 "%s cannot be loaded: the server keeps %d at once, and those are pinned",
                                 model->id, most);
        }
        if (busy) { /* its answers end, and nobody new begins one */
            victim->wanted_away = true;
            srv_engine_end_stalled(victim->engine);
            wait_a_little(m);
            return true;
        }
        m->changing = true;
        unload(m, victim, "another is asked for");
        m->changing = false;
        return true;
    }
    m->changing = true;
    const mo_status status = load(m, model, &err);
    m->changing = false;
    pthread_cond_broadcast(&m->changed);
    *load_s += model->load_s;
    return status == MO_OK || tell_failure(fault, model, &err);
}

bool srv_models_hold(srv_models *m, const char *name, srv_request *q, srv_model **out, double *load_s,
                     srv_fault *fault)
{
    bool ok = true;
    *load_s = 0;
    *out = NULL;
    pthread_mutex_lock(&m->mutex);
    int index = find(m, name);
    if (index < 0 && m->o.directory) {
        look_into_directory(m);
        index = find(m, name);
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
            ok = srv_fault_set(fault, SRV_FAULT_UNAVAILABLE, NULL, "the client has left");
        } else if (model->state == SRV_MODEL_LOADED && !model->wanted_away) {
            model->holds++;
            model->used_ns = now_ns();
            *out = model;
        } else {
            ok = approach(m, model, load_s, fault);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return ok;
}

void srv_model_release(srv_model *model)
{
    srv_models *m = model->all;
    pthread_mutex_lock(&m->mutex);
    model->holds--;
    model->used_ns = now_ns();
    if (model->holds == 0) {
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
        model->holds++;
    }
    pthread_mutex_unlock(&m->mutex);
    return model;
}

void srv_models_unpeek(srv_model *model)
{
    srv_models *m = model->all;
    pthread_mutex_lock(&m->mutex);
    if (--model->holds == 0) {
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
    return model->window.context;
}

int srv_model_parallel(const srv_model *model)
{
    return model->window.parallel;
}

const srv_defaults *srv_model_defaults(const srv_model *model)
{
    return &model->spec.defaults;
}

void srv_model_doubt(srv_model *model)
{
    struct stat now;
    const struct stat *then = &model->opened;
    const bool there = stat(model->path, &now) == 0;
    if (there && now.st_size == then->st_size && now.st_ino == then->st_ino &&
        now.st_mtim.tv_sec == then->st_mtim.tv_sec && now.st_mtim.tv_nsec == then->st_mtim.tv_nsec) {
        return;
    }
    pthread_mutex_lock(&model->all->mutex);
    const bool first = model->state == SRV_MODEL_LOADED && !model->wanted_away;
    if (first) {
        model->wanted_away = true;
        model->away = "its file changed";
        pthread_cond_broadcast(&model->all->changed);
    }
    pthread_mutex_unlock(&model->all->mutex);
    if (first) {
        srv_log(
            MO_LOG_WARN, "changed",
            (srv_field[]){SRV_TEXT_FIELD("model", model->id),
                          SRV_TEXT_FIELD("message", there ? "its file was changed while it was in use: it "
                                                            "is loaded again when it is asked for"
                                                          : "its file is gone: it is unloaded"),
                          {0}});
    }
}

void srv_model_keep(srv_model *model, double seconds)
{
    pthread_mutex_lock(&model->all->mutex);
    model->keep_s = seconds;
    pthread_mutex_unlock(&model->all->mutex);
}

/* ---- The keeper: unloads what is idle, and counts what happens in a second ---- */

/* With the mutex held. */
static void take_pulse(srv_model *model)
{
    const int64_t now = now_ns();
    const double seconds = (double)(now - model->pulse_ns) * 1e-9;
    srv_engine_report r;
    if (model->state != SRV_MODEL_LOADED || seconds < 1.0) {
        return;
    }
    srv_engine_describe(model->engine, &r);
    /* An engine that was opened since begins at 0. */
    const uint64_t prompt = r.prompt_tokens >= model->pulse_prompt ? model->pulse_prompt : 0;
    const uint64_t predicted = r.predicted_tokens >= model->pulse_predicted ? model->pulse_predicted : 0;
    model->pulse = (srv_pulse){.prompt_tokens_s = (double)(r.prompt_tokens - prompt) / seconds,
                               .predicted_tokens_s = (double)(r.predicted_tokens - predicted) / seconds};
    model->pulse_ns = now;
    model->pulse_prompt = r.prompt_tokens;
    model->pulse_predicted = r.predicted_tokens;
}

srv_pulse srv_model_pulse(const srv_model *model)
{
    pthread_mutex_lock(&model->all->mutex);
    const srv_pulse pulse = model->pulse;
    pthread_mutex_unlock(&model->all->mutex);
    return pulse;
}

static void *keep(void *user)
{
    srv_models *m = user;
    pthread_mutex_lock(&m->mutex);
    while (!m->stopping) {
        wait_a_little(m);
        for (int i = 0; i < m->count && !m->changing && !m->stopping; i++) {
            srv_model *one = m->list[i];
            take_pulse(one);
            const double idle = (double)(now_ns() - one->used_ns) * 1e-9;
            const bool due =
                one->wanted_away || (!one->spec.pinned && one->keep_s >= 0 && idle >= one->keep_s);
            if (one->state == SRV_MODEL_LOADED && one->holds == 0 && due) {
                m->changing = true;
                unload(m, one, !one->wanted_away ? "idle" : one->away ? one->away : "asked");
                m->changing = false;
                pthread_cond_broadcast(&m->changed);
            }
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
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
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&m->mutex, NULL);
    for (int i = 0; i < options->count; i++) {
        ok = ok && add(m, &options->specs[i], options->specs[i].path);
    }
    look_into_directory(m);
    m->has_keeper = ok && pthread_create(&m->keeper, NULL, keep, m) == 0;
    if (!ok || !m->has_keeper) {
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
        const bool first = i == 0 && most_loaded(m) > pinned_count(m);
        if ((first || model->spec.pinned) && model->state == SRV_MODEL_UNLOADED && !m->changing) {
            m->changing = true;
            const mo_status one = load(m, model, err);
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
    const int64_t end = now_ns() + (int64_t)(seconds * 1e9);
    pthread_mutex_lock(&m->mutex);
    m->stopping = true;
    pthread_cond_broadcast(&m->changed);
    while (m->changing) {
        wait_a_little(m);
    }
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < m->count; i++) {
        if (m->list[i]->engine) {
            const double left = (double)(end - now_ns()) * 1e-9;
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
    if (m->has_keeper) {
        pthread_join(m->keeper, NULL);
    }
    for (int i = 0; i < m->count; i++) {
        srv_engine_close(m->list[i]->engine);
        mo_model_close(m->list[i]->mo);
        free(m->list[i]->id);
        free(m->list[i]->path);
        free(m->list[i]);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* ---- Reports ---- */

int srv_models_count(srv_models *m)
{
    pthread_mutex_lock(&m->mutex);
    look_into_directory(m);
    const int count = m->count;
    pthread_mutex_unlock(&m->mutex);
    return count;
}

int srv_models_find(srv_models *m, const char *name)
{
    pthread_mutex_lock(&m->mutex);
    int index = find(m, name);
    if (index < 0 && m->o.directory) {
        look_into_directory(m);
        index = find(m, name);
    }
    pthread_mutex_unlock(&m->mutex);
    return index;
}

/* What the file says: read without the mutex, kept under it. */
static void look_at_file(srv_models *m, srv_model *model)
{
    struct stat st;
    mo_file *file = NULL;
    mo_file_info info = {0};
    char architecture[64] = "", format[16] = "";
    const bool there = stat(model->path, &st) == 0;
    if (there && mo_file_open(model->path, &file, NULL) == MO_OK) {
        if (mo_file_summarize(file, &info, sizeof info, NULL) == MO_OK) {
            snprintf(architecture, sizeof architecture, "%s", info.architecture);
            snprintf(format, sizeof format, "%s", info.formats > 0 ? info.format[0].type : "");
        }
        mo_file_close(file);
    }
    pthread_mutex_lock(&m->mutex);
    memcpy(model->architecture, architecture, sizeof architecture);
    memcpy(model->format, format, sizeof format);
    model->file_bytes = info.file_bytes ? info.file_bytes : there ? (int64_t)st.st_size : 0;
    model->parameters = info.parameters;
    model->made_for = info.context_length;
    model->modified = there ? (int64_t)st.st_mtime : 0;
    model->looked = true;
    pthread_mutex_unlock(&m->mutex);
}

bool srv_models_describe(srv_models *m, int index, srv_model_report *out)
{
    pthread_mutex_lock(&m->mutex);
    srv_model *model = index >= 0 && index < m->count ? m->list[index] : NULL;
    const bool look = model && !model->looked;
    pthread_mutex_unlock(&m->mutex);
    if (!model) {
        return false;
    }
    if (look) {
        look_at_file(m, model);
    }
    pthread_mutex_lock(&m->mutex);
    *out = (srv_model_report){
        .id = model->id,
        .path = model->path,
        .alias = model->spec.alias,
        .state = model->state,
        .load_share = model->load_permille / 1000.0,
        .pinned = model->spec.pinned,
        .failed = model->failed,
        .context = model->window.context ? model->window.context : model->spec.context,
        .made_for = model->made_for,
        .parallel = model->window.parallel,
        .idle_s = model->holds ? -1 : (double)(now_ns() - model->used_ns) * 1e-9,
        .keep_s = model->keep_s,
        .file_bytes = model->file_bytes,
        .parameters = model->parameters,
        .modified = model->modified,
        .architecture = model->architecture,
        .format = model->format,
        .past_requests = model->past.accepted,
    };
    pthread_mutex_unlock(&m->mutex);
    return true;
}

const mo_model_options *srv_models_loading(srv_models *m, int index)
{
    pthread_mutex_lock(&m->mutex);
    const mo_model_options *loading = &m->list[index]->spec.loading;
    pthread_mutex_unlock(&m->mutex);
    return loading;
}

void srv_models_totals(srv_models *m, srv_engine_report *out)
{
    *out = (srv_engine_report){0};
    pthread_mutex_lock(&m->mutex);
    const int count = m->count;
    for (int i = 0; i < count; i++) {
        add_counters(out, &m->list[i]->past);
    }
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < count; i++) {
        srv_model *model = srv_models_peek(m, i);
        if (model) {
            srv_engine_report now;
            srv_engine_describe(model->engine, &now);
            add_counters(out, &now);
            out->parallel += now.parallel;
            out->busy += now.busy;
            out->queued += now.queued;
            out->queue += now.queue;
            out->running += now.running;
            out->kept += now.kept;
            out->kept_bytes += now.kept_bytes;
            out->disk_kept += now.disk_kept;
            out->disk_bytes += now.disk_bytes;
            srv_models_unpeek(model);
        }
    }
}

bool srv_models_unload(srv_models *m, int index)
{
    bool ok = false;
    pthread_mutex_lock(&m->mutex);
    if (index >= 0 && index < m->count) {
        srv_model *model = m->list[index];
        ok = model->state == SRV_MODEL_LOADED && !model->spec.pinned;
        model->wanted_away = model->wanted_away || ok;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return ok;
}
