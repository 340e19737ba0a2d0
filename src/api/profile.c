/* The public API of learned profiles. */
#include "api/model.h"
#include "base/growing.h"

/* Between these two calls the caller owns engine and device; NULL: the hot cache is in RAM, or there is
 * none. */
static mo_gpu *begin_use(const mo_model *model)
{
    mo_engine_take_turn(model->engine);
    mo_gpu *gpu = mo_model_gpu(model);
    if (gpu) {
        mo_gpu_enter(gpu);
    }
    return gpu;
}

/* The engine handles a lost device wherever it is noticed: the CPU computes the next step, and one line is
 * logged. Returns true if the device was lost. */
static bool end_use(const mo_model *model, mo_gpu *gpu, mo_status status, const mo_error *err)
{
    const bool lost = gpu && status == MO_EDEVICE;
    if (gpu) {
        mo_gpu_leave(gpu);
    }
    if (lost) {
        mo_engine_lose_accelerator(model->engine, err);
    }
    pthread_mutex_unlock(&model->engine->lock);
    return lost;
}

/* The hot caches of the devices, if any. */
static mo_hot_caches caches_of(const mo_gpu *gpu)
{
    mo_hot_caches all = {0};
    for (int i = 0; i < mo_gpu_parts(gpu); i++) {
        mo_hot_update *hot = mo_gpu_hot_update(gpu, i);
        if (hot) {
            all.of[all.count++] = hot;
        }
    }
    return all;
}

mo_status mo_model_request_done(mo_model *model, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model)
    if (mo_engine_check_process(model->engine, err) != MO_OK) {
        return err->status;
    }
    mo_gpu *gpu = begin_use(model);
    const mo_hot_caches hot = caches_of(gpu);
    const mo_status status = mo_learning_request_done(model->learning, &hot, err);
    return end_use(model, gpu, status, err) ? MO_OK : status; /* a lost device costs speed, not the request */
}

mo_status mo_model_profile(mo_model *model, char **json, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json)
    size_t length;
    *json = NULL;
    pthread_mutex_lock(&model->profile_lock); /* not the engine's lock, which a running step holds */
    const mo_status status = mo_learning_json(model->learning, json, &length, err);
    pthread_mutex_unlock(&model->profile_lock);
    return status;
}

mo_status mo_model_profile_reset(mo_model *model, const char *perf_mode, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model)
    mo_profile_mode mode;
    mo_status status = mo_learning_mode_find(perf_mode, &mode, err);
    mo_gpu *gpu = begin_use(model);
    pthread_mutex_lock(&model->profile_lock);
    if (status == MO_OK) {
        const mo_hot_caches hot = caches_of(gpu);
        status = mo_learning_reset(model->learning, &hot,
                                   perf_mode ? mode : mo_learning_mode(model->learning), err);
        model->engine->tally = mo_learning_tally(model->learning);
        model->engine->timed = mo_learning_times(model->learning);
    }
    pthread_mutex_unlock(&model->profile_lock);
    end_use(model, gpu, status, err);
    return status;
}

mo_status mo_model_profile_apply(mo_model *model, const char *json, size_t length, mo_profile_report *out,
                                 size_t size, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json, out)
    mo_exchange_stats stats;
    mo_gpu *gpu = begin_use(model);
    const mo_hot_caches hot = caches_of(gpu);
    const mo_status status = mo_learning_apply_json(model->learning, &hot, json, length, &stats, err);
    end_use(model, gpu, status, err);
    const mo_profile_report report = {.success = status == MO_OK,
                                      .active = stats.active,
                                      .update_rate = stats.update_rate,
                                      .exchanged = stats.exchanged,
                                      .candidates = stats.candidates,
                                      .max_exchange = stats.max_exchange,
                                      .hot_experts = stats.hot_experts,
                                      .layers_changed = stats.layers_changed};
    mo_report_write(out, size, &report, sizeof report);
    return status;
}
