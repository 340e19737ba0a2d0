/* Model report: what the models say of themselves (models.h). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "moraine_server.h"
#include "server/models/model_list.h"
#include "server/scheduler/job.h"

/* What the CPU alone has read: the core once for every step, and the experts that were run. Experts of other sizes than the mean
 * make it inexact where layers differ. */
static uint64_t cpu_bytes(mo_model *model, const mo_tier_report *tiers, const mo_counter_report *counters)
{
    mo_model_info info;
    int64_t experts = 0, routed = 0;
    mo_model_describe(model, &info, sizeof info);
    for (int layer = 0; layer < info.layers; layer++) {
        const int count = mo_model_layer_experts(model, layer);
        experts += count;
        routed += count > 0;
    }
    const double mean = experts ? (double)tiers->expert_bytes / (double)experts : 0;
    const double core = (double)info.bytes_per_token - mean * (double)(routed * info.experts_used);
    return (uint64_t)((core > 0 ? core : 0) * (double)counters->steps + mean * (double)counters->experts_run);
}

void srv_pulse_count(mo_model *model, srv_engine *engine, srv_pulse_counts *out)
{
    mo_tier_report tiers;
    mo_device_report device;
    mo_counter_report counters;
    *out = (srv_pulse_counts){0};
    srv_engine_tokens(engine, &out->prompt, &out->predicted);
    mo_model_tiers(model, &tiers, sizeof tiers);
    mo_model_device(model, &device, sizeof device);
    mo_model_counters(model, &counters, sizeof counters);
    out->disk_bytes = tiers.disk_bytes;
    if (device.name) {
        out->experts = device.asked;
        out->hits = device.hits;
        out->ram_bytes = device.cpu_bytes;
        out->link_bytes = device.fetched_bytes + device.streamed_bytes;
        return;
    }
    out->experts = tiers.prompt.asked + tiers.generation.asked;
    out->hits = tiers.prompt.hits + tiers.generation.hits;
    if (out->experts == 0) { /* nothing comes and goes */
        out->experts = out->hits = counters.experts_run;
    }
    out->ram_bytes = cpu_bytes(model, &tiers, &counters);
}

static double since(uint64_t before, uint64_t now)
{
    return (double)(now >= before ? now - before : now);
}

srv_pulse srv_pulse_between(const srv_pulse_counts *before, const srv_pulse_counts *now, double seconds)
{
    const double prompt = since(before->prompt, now->prompt),
                 predicted = since(before->predicted, now->predicted),
                 disk = since(before->disk_bytes, now->disk_bytes),
                 link = since(before->link_bytes, now->link_bytes);
    srv_pulse p = {.all = *now,
                   .prompt_tokens_s = prompt / seconds,
                   .predicted_tokens_s = predicted / seconds,
                   .disk_bytes_s = disk / seconds,
                   .ram_bytes_s = since(before->ram_bytes, now->ram_bytes) / seconds,
                   .link_bytes_s = link / seconds};
    if (prompt + predicted > 0) {
        const double each = 1 / (prompt + predicted);
        p.experts_per_token = since(before->experts, now->experts) * each;
        p.hits_per_token = since(before->hits, now->hits) * each;
        p.disk_bytes_per_token = disk * each;
        p.link_bytes_per_token = link * each;
    }
    return p;
}

int srv_models_count(srv_models *m)
{
    pthread_mutex_lock(&m->mutex);
    srv_list_look(m);
    const int count = m->count;
    pthread_mutex_unlock(&m->mutex);
    return count;
}

int srv_models_find(srv_models *m, const char *name)
{
    pthread_mutex_lock(&m->mutex);
    int index = srv_list_find(m, name);
    if (index < 0 && m->o.directory) {
        srv_list_look(m);
        index = srv_list_find(m, name);
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
    model->seen = there ? st : (struct stat){0};
    pthread_mutex_unlock(&m->mutex);
}

bool srv_models_describe(srv_models *m, int index, srv_model_report *out)
{
    struct stat now;
    pthread_mutex_lock(&m->mutex);
    srv_model *model = index >= 0 && index < m->count ? m->list[index] : NULL;
    pthread_mutex_unlock(&m->mutex);
    if (!model) {
        return false;
    }
    const bool there = stat(model->path, &now) == 0;
    pthread_mutex_lock(&m->mutex);
    const bool look = !model->looked || (there && !srv_list_same_file(&now, &model->seen));
    pthread_mutex_unlock(&m->mutex);
    if (look) {
        look_at_file(m, model);
    }
    pthread_mutex_lock(&m->mutex);
    *out = (srv_model_report){
        .id = model->id,
        .path = model->path,
        .alias = model->aliases,
        .state = model->state,
        .load_share = model->load_permille / 1000.0,
        .pinned = model->spec.pinned,
        .failed = model->failed,
        .context = model->plan.context ? model->plan.context : model->spec.context,
        .made_for = model->made_for,
        .parallel = model->plan.parallel,
        .idle_s = model->refs ? -1 : (double)(mo_clock_ns() - model->used_ns) * 1e-9,
        .keep_s = model->keep_s,
        .file_bytes = model->file_bytes,
        .parameters = model->parameters,
        .modified = model->modified,
        .past_requests = model->past.accepted,
        .defaults = &model->spec.defaults,
        .pictures = model->spec.loading.mmproj != NULL,
    };
    memcpy(out->architecture, model->architecture, sizeof out->architecture);
    memcpy(out->format, model->format, sizeof out->format);
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
        srv_counters_add(out, &m->list[i]->past);
    }
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < count; i++) {
        srv_model *model = srv_models_peek(m, i);
        if (model) {
            srv_engine_report now;
            srv_engine_describe(model->engine, &now);
            srv_counters_add(out, &now);
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
