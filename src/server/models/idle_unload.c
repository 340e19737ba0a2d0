/* Keeper: see keeper.h. */
#include "server/models/idle_unload.h"
#include "base/clock.h"

#include "server/common/log.h"
#include "server/models/loader.h"

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
                srv_loader_unload(m, one, !one->wanted_away ? "idle" : one->away ? one->away : "requested");
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
                                                    : "the model file is gone; the model is unloaded"),
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
