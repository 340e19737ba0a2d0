/* Status JSON: see status_json.h. */
#include "server/status/status_json.h"

#include "base/clock.h"

enum { JOBS_MAX = 256 };

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static json_t *phase_json(const mo_tier_phase *p)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:I, s:f}", "passes", (json_int_t)p->passes, "experts",
                     (json_int_t)p->asked, "hits", (json_int_t)p->hits, "hit_rate",
                     ratio((double)p->hits, (double)p->asked), "disk_bytes", (json_int_t)p->bytes, "wait_s",
                     (double)p->wait_ns * 1e-9);
}

static json_t *tiers_json(mo_model *model)
{
    mo_tier_report t;
    mo_model_tiers(model, &t, sizeof t);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:o, s:o, s:I, s:I, s:f, s:f, s:s}",
                     "mode", t.mode, "policy", t.policy, "ceiling_bytes", (json_int_t)t.ceiling_bytes,
                     "planned_bytes", (json_int_t)t.planned_bytes, "expert_bytes", (json_int_t)t.expert_bytes,
                     "slot_bytes", (json_int_t)t.slot_bytes, "slots", (int)t.slots, "filled", (int)t.filled,
                     "streamed_layers", t.streamed_layers, "prompt", phase_json(&t.prompt), "generation",
                     phase_json(&t.generation), "disk_reads", (json_int_t)t.disk_reads, "disk_bytes",
                     (json_int_t)t.disk_bytes, "disk_busy_s", (double)t.disk_busy_ns * 1e-9,
                     "disk_probed_bytes_s", t.disk_probed_bytes_s, "disk_method",
                     t.disk_method ? t.disk_method : "");
}

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

json_t *srv_lanes_json(const mo_device_layer *l)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "served", (json_int_t)l->served,
                     "fetched", (json_int_t)l->fetched, "core_s", seconds(l->core_ns), "turn_s",
                     seconds(l->turn_ns), "cpu_s", seconds(l->cpu_ns), "fetch_s", seconds(l->fetch_ns),
                     "hidden_s", seconds(l->hidden_ns), "host_wait_s", seconds(l->host_wait_ns),
                     "device_wait_s", seconds(l->device_wait_ns), "region_s", seconds(l->region_ns));
}

static json_t *device_json(mo_model *model)
{
    mo_device_report d;
    mo_model_device(model, &d, sizeof d);
    if (!d.name) {
        return json_null();
    }
    return json_pack("{s:s, s:b, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:f, "
                     "s:f, s:f, s:o, s:o}",
                     "name", d.name, "lost", d.lost, "limit_bytes", (json_int_t)d.limit_bytes, "peak_bytes",
                     (json_int_t)d.peak_bytes, "slots", (int)d.slots, "filled", (int)d.filled, "slot_bytes",
                     (json_int_t)d.slot_bytes, "steps", (json_int_t)d.steps, "experts", (json_int_t)d.asked,
                     "hits", (json_int_t)d.hits, "hit_rate", ratio((double)d.hits, (double)d.asked), "by_cpu",
                     (json_int_t)d.by_cpu, "fetched", (json_int_t)d.fetched, "fetched_bytes",
                     (json_int_t)d.fetched_bytes, "cpu_bytes", (json_int_t)d.cpu_bytes, "step_s",
                     seconds(d.step_ns), "idle_s", seconds(d.idle_ns), "layer_p50_s", d.layer_p50_s,
                     "layer_p99_s", d.layer_p99_s, "lanes", srv_lanes_json(&d.lanes), "hot_cache",
                     json_pack("{s:I, s:I, s:I, s:f, s:I}", "updates", (json_int_t)d.updates, "exchanged",
                               (json_int_t)d.exchanged, "failed", (json_int_t)d.exchange_failed, "hot_ratio",
                               ratio((double)d.hits, (double)d.asked), "bytes", (json_int_t)d.slot_bytes));
}

/* By the table of statistics; null: nothing is guessed. */
static json_t *speculation_json(mo_model *model)
{
    static const char *const names[] = {"draft_max", "drafted", "accepted", "tokens_per_step", "gain"};
    static const char *const stats[] = {"speculation.draft_max", "speculation.drafted",
                                        "speculation.accepted", "speculation.tokens_per_step",
                                        "speculation.gain"};
    double values[5];
    if (mo_model_stats(model, stats, 5, values, NULL) != MO_OK || values[0] == 0) {
        return json_null();
    }
    json_t *out = json_object();
    for (int i = 0; i < 5; i++) {
        json_object_set_new(out, names[i],
                            i < 3 ? json_integer((json_int_t)values[i]) : json_real(values[i]));
    }
    return out;
}

static json_t *wire_json(const char *name, uint64_t bytes, double bytes_s, double probed)
{
    return json_pack("{s:s, s:I, s:f, s:f}", "name", name, "bytes", (json_int_t)bytes, "bytes_s", bytes_s,
                     "probed_bytes_s", probed);
}

/* From disk, from RAM to the CPU, and to the device if there is one. */
static json_t *wires_json(mo_model *model, const srv_pulse *p)
{
    mo_tier_report t;
    mo_device_report d;
    mo_model_tiers(model, &t, sizeof t);
    mo_model_device(model, &d, sizeof d);
    json_t *list = json_array();
    json_array_append_new(list, wire_json("disk", p->all.disk_bytes, p->disk_bytes_s, t.disk_probed_bytes_s));
    json_array_append_new(list, wire_json("ram", p->all.ram_bytes, p->ram_bytes_s, t.ram_probed_bytes_s));
    if (d.name) {
        json_array_append_new(list,
                              wire_json("link", p->all.link_bytes, p->link_bytes_s, d.link_probed_bytes_s));
    }
    return list;
}

static json_t *now_json(const srv_pulse *p)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "prompt_tokens_s", p->prompt_tokens_s,
                     "predicted_tokens_s", p->predicted_tokens_s, "experts_per_token", p->experts_per_token,
                     "hits_per_token", p->hits_per_token, "disk_bytes_per_token", p->disk_bytes_per_token,
                     "link_bytes_per_token", p->link_bytes_per_token);
}

static json_t *job_json(const srv_job_report *j, bool own)
{
    static const char *const states[] = {[SRV_QUEUED] = "queued",
                                         [SRV_PROMPT] = "prompt",
                                         [SRV_GENERATING] = "generating",
                                         [SRV_PAUSED] = "paused"};
    json_t *job = json_pack("{s:s, s:I}", "state", states[j->state], "answer_tokens",
                            (json_int_t)j->usage.completion_tokens);
    if (own) {
        json_t *more = json_pack(
            "{s:I, s:i, s:i, s:I, s:I, s:I}", "job", (json_int_t)j->job, "priority", j->priority, "choices",
            j->choices, "prompt_tokens", (json_int_t)j->usage.prompt_tokens, "cached_tokens",
            (json_int_t)j->usage.cached_tokens, "prompt_done", (json_int_t)j->usage.prompt_done);
        json_object_update(job, more);
        json_decref(more);
    }
    return job;
}

json_t *srv_jobs_json(srv_engine *engine, const srv_caller *caller)
{
    srv_job_report list[JOBS_MAX];
    json_t *jobs = json_array();
    const int count = srv_engine_jobs(engine, list, JOBS_MAX);
    for (int i = 0; i < count && i < JOBS_MAX; i++) {
        json_array_append_new(jobs, job_json(&list[i], srv_caller_sees(caller, list[i].owner)));
    }
    return jobs;
}

static json_t *engine_json(srv_engine *engine, const srv_caller *caller)
{
    srv_engine_report r;
    srv_engine_describe(engine, &r);
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, "
                     "s:I, s:I, s:I, s:o}",
                     "parallel", r.parallel, "busy", r.busy, "running", r.running, "queued", r.queued,
                     "queue", r.queue, "context", (json_int_t)r.context, "done", (json_int_t)r.done, "failed",
                     (json_int_t)r.failed, "cancelled", (json_int_t)r.cancelled, "refused",
                     (json_int_t)r.refused, "steps", (json_int_t)r.steps, "prompt_tokens",
                     (json_int_t)r.prompt_tokens, "cached_tokens", (json_int_t)r.cached_tokens,
                     "predicted_tokens", (json_int_t)r.predicted_tokens, "prompt_tokens_s",
                     ratio((double)r.prompt_tokens, r.prompt_s), "predicted_tokens_s",
                     ratio((double)r.predicted_tokens, r.predicted_s), "kept_sessions", (json_int_t)r.kept,
                     "kept_session_bytes", (json_int_t)r.kept_bytes, "disk_sessions", (json_int_t)r.disk_kept,
                     "disk_session_bytes", (json_int_t)r.disk_bytes, "jobs", srv_jobs_json(engine, caller));
}

static json_t *loaded_json(srv_model *model, const srv_caller *caller)
{
    const srv_pulse pulse = srv_model_pulse(model);
    mo_model *mo = srv_model_mo(model);
    mo_model_info info;
    mo_counter_report counters;
    mo_model_describe(mo, &info, sizeof info);
    mo_model_counters(mo, &counters, sizeof counters);
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "architecture", info.architecture, "isa", info.isa, "threads", info.threads, "layers",
                     info.layers, "experts", info.experts, "experts_used", info.experts_used,
                     "bytes_per_token", (json_int_t)info.bytes_per_token, "expert_picks",
                     (json_int_t)counters.expert_picks, "experts_run", (json_int_t)counters.experts_run,
                     "now", now_json(&pulse), "wires", wires_json(mo, &pulse), "tiers", tiers_json(mo),
                     "device", device_json(mo), "speculation", speculation_json(mo), "engine",
                     engine_json(srv_model_engine(model), caller));
}

static json_t *model_json(srv_models *models, int index, const srv_caller *caller)
{
    static const char *const states[] = {[SRV_MODEL_UNLOADED] = "unloaded",
                                         [SRV_MODEL_LOADING] = "loading",
                                         [SRV_MODEL_LOADED] = "loaded",
                                         [SRV_MODEL_LEAVING] = "unloading"};
    srv_model_report r;
    if (!srv_models_describe(models, index, &r)) {
        return NULL;
    }
    json_t *out =
        json_pack("{s:s, s:s, s:b, s:b, s:I, s:I, s:i, s:I}", "id", r.id, "state", states[r.state], "pinned",
                  r.pinned, "failed", r.failed, "context", (json_int_t)r.context, "made_for",
                  (json_int_t)r.made_for, "parallel", r.parallel, "file_bytes", (json_int_t)r.file_bytes);
    if (r.state == SRV_MODEL_LOADING) {
        json_object_set_new(out, "load_share", json_real(r.load_share));
    }
    srv_model *model = srv_models_peek(models, index);
    if (model) {
        json_t *more = loaded_json(model, caller);
        json_object_update(out, more);
        json_decref(more);
        srv_models_unpeek(model);
    }
    return out;
}

json_t *srv_status_json(const srv_status *status, const srv_caller *caller, bool uptime)
{
    srv_models *models = status->models;
    srv_http_report http;
    json_t *list = json_array();
    for (int i = 0, count = srv_models_count(models); i < count; i++) {
        json_array_append_new(list, model_json(models, i, caller));
    }
    srv_http_describe(status->http, &http);
    json_t *root = json_pack("{s:s, s:o, s:{s:i, s:i, s:I, s:I}}", "version", mo_version(), "models", list,
                             "http", "connections", http.connections, "busy", http.busy, "requests",
                             (json_int_t)http.requests, "abandoned", (json_int_t)http.abandoned);
    if (uptime) {
        json_object_set_new(root, "uptime_s", json_real(mo_clock_s() - status->begun_s));
    }
    return root;
}
