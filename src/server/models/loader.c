/* Loader: see model_list.h. */
#include <malloc.h>
#include <string.h>

#include "base/clock.h"
#include "server/common/log.h"
#include "server/models/model_list.h"
#include "server/scheduler/job.h"

#define USUAL_CACHE_BYTES ((int64_t)1 << 30)

static bool on_progress(void *user, int64_t done, int64_t total)
{
    srv_model *model = user;
    atomic_store(&model->load_permille, total > 0 ? (int)(done * 1000 / total) : 0);
    return !model->all->stopping; /* a flag that only ever rises */
}

/* Before the first request: a device's kernels and programs. */
static void warm_up(const srv_model *model)
{
    mo_device_report device;
    mo_model_device(model->mo, &device, sizeof device);
    if (device.name && !device.lost) {
        const int64_t begin = mo_clock_ns();
        const int steps = srv_engine_warmup(model->engine, &model->all->stopping);
        srv_log(MO_LOG_INFO, "rehearsed",
                (srv_log_field[]){SRV_TEXT_FIELD("model", model->id),
                                  SRV_TEXT_FIELD("device", device.name),
                                  SRV_INT_FIELD("steps", steps),
                                  SRV_REAL_FIELD("seconds", (double)(mo_clock_ns() - begin) * 1e-9),
                                  {0}});
    }
}

/* Options that change nothing with this model are not passed over in silence. */
static void drop_useless(const srv_model *model, srv_engine_options *e)
{
    mo_tier_report tiers;
    mo_device_report device;
    mo_model_tiers(model->mo, &tiers, sizeof tiers);
    mo_model_device(model->mo, &device, sizeof device);
    if (e->discover > 0 && !device.name && strcmp(tiers.mode, "resident") == 0) {
        e->discover = 0;
        srv_log(MO_LOG_WARN, "discover",
                (srv_log_field[]){SRV_TEXT_FIELD("model", model->id),
                                  SRV_TEXT_FIELD("message", "no effect: the whole model is in RAM"),
                                  {0}});
    }
}

/* Without the mutex: nothing of the model that others may read is written here. */
static mo_status open_model(srv_model *model, mo_server_plan *plan, mo_error *err)
{
    const srv_model_spec *s = &model->spec;
    mo_model_options o = s->loading;
    mo_server_plan w;
    if (s->adapters_idle) {
        o.adapter_scales = NULL; /* sessions begin without them */
    }
    const int64_t cache = s->engine.cache_bytes;
    const mo_server_request asked = {.context = s->context,
                                     .context_all = s->context_all,
                                     .parallel = s->parallel,
                                     .kept_bytes = cache < 0    ? 0
                                                   : cache == 0 ? USUAL_CACHE_BYTES
                                                                : cache};
    mo_status status = mo_plan_server(model->path, &o, &asked, &w, err);
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
    drop_useless(model, &e);
    status = srv_engine_open(model->mo, &e, &model->engine, err);
    if (status != MO_OK) {
        mo_model_close(model->mo);
        model->mo = NULL;
    } else {
        warm_up(model);
    }
    *plan = w;
    return status;
}

void srv_loader_unload(srv_models *m, srv_model *model, const char *why)
{
    srv_engine_report last;
    model->state = SRV_MODEL_LEAVING;
    pthread_mutex_unlock(&m->mutex);
    srv_engine_describe(model->engine, &last);
    srv_engine_close(model->engine);
    mo_model_close(model->mo);
    malloc_trim(0);
    srv_log(MO_LOG_INFO, "unloaded",
            (srv_log_field[]){SRV_TEXT_FIELD("model", model->id), SRV_TEXT_FIELD("why", why), {0}});
    pthread_mutex_lock(&m->mutex);
    srv_counters_add(&model->past, &last);
    model->mo = NULL;
    model->engine = NULL;
    model->wanted_away = false;
    model->away = NULL;
    model->keep_s = model->spec.keep_s;
    model->state = SRV_MODEL_UNLOADED;
    pthread_cond_broadcast(&m->changed);
}

static void tell_loaded(const srv_model *model)
{
    const mo_server_plan *w = &model->plan;
    srv_log(MO_LOG_INFO, "loaded",
            (srv_log_field[]){SRV_TEXT_FIELD("model", model->id),
                              SRV_REAL_FIELD("seconds", model->load_s),
                              SRV_INT_FIELD("parallel", w->parallel),
                              SRV_INT_FIELD("ctx", w->context),
                              SRV_INT_FIELD("ctx_size", w->context * w->parallel),
                              SRV_INT_FIELD("made_for", w->made_for),
                              SRV_INT_FIELD("cache_mib", (w->kept_bytes + w->kept_device_bytes) >> 20),
                              {0}});
    if (w->made_for > 0 && w->context > w->made_for) {
        srv_say(MO_LOG_WARN, "window",
                "sequences of %s have a context of %lld tokens, more than the "
                "training context of %lld; text beyond it may be incoherent",
                model->id, (long long)w->context, (long long)w->made_for);
    }
}

mo_status srv_loader_load(srv_models *m, srv_model *model, mo_error *err)
{
    mo_status status;
    mo_server_plan plan = {0};
    bool busy;
    model->state = SRV_MODEL_LOADING;
    model->load_permille = 0;
    const int64_t begin = mo_clock_ns();
    for (;;) {
        pthread_mutex_unlock(&m->mutex);
        status = open_model(model, &plan, err);
        pthread_mutex_lock(&m->mutex);
        srv_model *victim =
            status == MO_ENOMEM || status == MO_EDEVICE ? srv_list_victim(m, model, &busy) : NULL;
        if (!victim || busy || m->stopping) {
            break;
        }
        srv_loader_unload(m, victim, "its memory is needed for another model");
    }
    if (status == MO_OK) {
        model->plan = plan;
    }
    model->failed = status != MO_OK;
    model->state = status == MO_OK ? SRV_MODEL_LOADED : SRV_MODEL_UNLOADED;
    model->load_s = (double)(mo_clock_ns() - begin) * 1e-9;
    model->used_ns = mo_clock_ns();
    pthread_cond_broadcast(&m->changed);
    if (status == MO_OK) {
        tell_loaded(model);
    } else {
        char text[1024];
        srv_fault_words(err, NULL, text, sizeof text);
        srv_log(MO_LOG_ERROR, "load_failed",
                (srv_log_field[]){SRV_TEXT_FIELD("model", model->id), SRV_TEXT_FIELD("message", text), {0}});
    }
    return status;
}

/* With the mutex held. */
static void take_pulse(srv_model *model)
{
    const int64_t now = mo_clock_ns();
    const double seconds = (double)(now - model->pulse_ns) * 1e-9;
    srv_pulse_counts counts;
    if (model->state != SRV_MODEL_LOADED || seconds < 1.0) {
        return;
    }
    srv_pulse_count(model->mo, model->engine, &counts);
    model->pulse = srv_pulse_between(&model->pulse.all, &counts, seconds);
    model->pulse_ns = now;
}

/* A request may have said that the model stays for 0 seconds, as moraine stop does. */
static const char *why_due(const srv_model *model)
{
    const bool requested = model->wanted_away || (model->keep_s == 0 && model->spec.keep_s != 0);
    return model->away ? model->away : requested ? "requested" : "idle";
}

void *srv_idle_unload_run(void *user)
{
    srv_models *m = user;
    pthread_mutex_lock(&m->mutex);
    while (!m->stopping) {
        srv_list_wait(m);
        for (int i = 0; i < m->count && !m->changing && !m->stopping; i++) {
            srv_model *one = m->list[i];
            take_pulse(one);
            const double idle = (double)(mo_clock_ns() - one->used_ns) * 1e-9;
            const bool due =
                one->wanted_away || (!one->spec.pinned && one->keep_s >= 0 && idle >= one->keep_s);
            if (one->state == SRV_MODEL_LOADED && one->refs == 0 && due) {
                m->changing = true;
                srv_loader_unload(m, one, why_due(one));
                m->changing = false;
                pthread_cond_broadcast(&m->changed);
            }
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* ---- What others tell it ---- */

void srv_model_doubt(srv_model *model)
{
    struct stat now;
    const bool there = stat(model->path, &now) == 0;
    if (there && srv_list_same_file(&now, &model->opened)) {
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
        srv_log(MO_LOG_WARN, "changed",
                (srv_log_field[]){
                    SRV_TEXT_FIELD("model", model->id),
                    SRV_TEXT_FIELD("message", there ? "the model file was changed while in "
                                                      "use; it is reloaded on the next request"
                                                    : "the model file was removed; the model is unloaded"),
                    {0}});
    }
}

void srv_model_keep(srv_model *model, double seconds)
{
    pthread_mutex_lock(&model->all->mutex);
    model->keep_s = seconds;
    pthread_mutex_unlock(&model->all->mutex);
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

srv_pulse srv_model_pulse(const srv_model *model)
{
    pthread_mutex_lock(&model->all->mutex);
    const srv_pulse pulse = model->pulse;
    pthread_mutex_unlock(&model->all->mutex);
    return pulse;
}
