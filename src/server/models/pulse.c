/* Pulse: see pulse.h. */
#include "server/models/pulse.h"

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
