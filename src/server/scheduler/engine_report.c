/* Engine report: what an engine tells of itself while it works. */
#include "base/clock.h"
#include "server/scheduler/engine.h"

void srv_engine_describe(srv_engine *e, srv_engine_report *out)
{
    srv_prefix_report kept = {0};
    mo_kept_report blocks;
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    mo_model_kept(e->model, &blocks, sizeof blocks);
    pthread_mutex_lock(&e->lock);
    *out = e->counts;
    out->parallel = e->parallel;
    for (int i = 0; i < e->parallel; i++) {
        out->busy += e->sequences[i].task != NULL;
    }
    out->queued = e->queue.count;
    out->queue = e->options.queue;
    out->running = e->task_count - e->queue.count;
    out->context = e->context;
    out->stopping = e->stopping;
    pthread_mutex_unlock(&e->lock);
    out->kept = kept.kept;
    out->kept_bytes =
        kept.bytes + (uint64_t)(blocks.snapshot_bytes + blocks.spilled_bytes + blocks.row_bytes);
    out->disk_kept = kept.disk_kept;
    out->disk_bytes = kept.disk_bytes;
    out->disk_failures = kept.disk_failures;
}

const mo_model_info *srv_engine_info(const srv_engine *e)
{
    return &e->info;
}

int srv_engine_queue(const srv_engine *e)
{
    return e->options.queue;
}

void srv_engine_tokens(srv_engine *e, uint64_t *prompt, uint64_t *predicted)
{
    pthread_mutex_lock(&e->lock);
    *prompt = e->counts.prompt_tokens;
    *predicted = e->counts.predicted_tokens;
    pthread_mutex_unlock(&e->lock);
}

int srv_engine_jobs(srv_engine *e, srv_job_report *out, int limit)
{
    const double now = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    const int count = e->task_count;
    int i = 0;
    for (const srv_task *t = e->tasks; t && i < limit; t = t->newer, i++) {
        out[i] = (srv_job_report){.job = t->id,
                                  .client = t->client,
                                  .state = t->paused && t->state == SRV_GENERATING ? SRV_PAUSED : t->state,
                                  .priority = t->priority,
                                  .choices = t->choices,
                                  .first_slot = t->slots[0],
                                  .age_s = now - t->submitted,
                                  .usage = {.prompt_tokens = t->prompt,
                                            .cached_tokens = t->cached,
                                            .prompt_done = t->cached + t->computed,
                                            .completion_tokens = t->generated},
                                  .max_tokens = t->max_tokens};
    }
    pthread_mutex_unlock(&e->lock);
    return count;
}

int srv_engine_slots(srv_engine *e, srv_slot_report *out, int limit)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->parallel && i < limit; i++) {
        const srv_sequence *s = &e->sequences[i];
        const int64_t most = s->task ? s->task->max_tokens : -1;
        out[i] = (srv_slot_report){.job = s->task ? s->task->id : 0,
                                   .last_job = s->last_job,
                                   .choice = s->choice,
                                   .context = e->context,
                                   .prompt_tokens = s->prompt,
                                   .prompt_done = s->held < s->prompt ? s->held : s->prompt,
                                   .cached_tokens = s->cached,
                                   .generated = s->generated,
                                   .remaining = most < 0 ? -1 : most - s->generated,
                                   .max_tokens = most};
        if (s->task) {
            out[i].sampler = s->task->sampler;
            out[i].sampler.bias = NULL;
            out[i].sampler.bias_count = 0;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return e->parallel;
}
