/* Report: the counters of all objects. Reading never waits for a step: the changes of a step are published at
 * its end. The clock and the memory have their own locks. */
#include "gpu/report.h"

/* Called in a turn. */
static mo_device_report gather(const mo_gpu *gpu)
{
    const mo_hot_counters hot = mo_hot_update_count(gpu->hot.update);
    mo_device_report r = {
        .steps = gpu->steps,
        .limit_bytes = gpu->memory.limit,
        .core_bytes = gpu->core.bytes,
        .work_bytes = gpu->scratch.bytes,
        .streamed_layers = gpu->lost ? 0 : gpu->layer_buffer.count - gpu->layer_buffer.cpu.count,
        .host_layers = gpu->layer_buffer.cpu.count,
        .layer_buffer_bytes =
            gpu->layer_buffer.count ? gpu->layer_buffer.buffers * gpu->layer_buffer.slot_bytes : 0,
        .streamed_bytes = gpu->layer_buffer.bytes,
        .streamed_ns = gpu->layer_buffer.ns,
        .stage_bytes = gpu->experts.staging_bytes + gpu->mover.stage_bytes,
        .asked = gpu->experts.asked,
        .hits = gpu->experts.hits,
        .fetched = gpu->experts.fetched,
        .fetched_bytes = gpu->experts.fetched_bytes + gpu->ahead.counters.filled_bytes,
        .fetch_failed = gpu->link.failed,
        .cpu_bytes_s = 1.0 / (gpu->lanes.alone ? gpu->lanes.rates.alone : gpu->lanes.rates.cpu).s_per_byte,
        .link_bytes_s = 1.0 / gpu->lanes.rates.link.s_per_byte,
        .round_trip_s = gpu->lanes.round_trip_s,
        .wait_ns = gpu->lanes.wait_ns,
        .cpu_ns = gpu->lanes.cpu_ns,
        .cpu_bytes = gpu->lanes.cpu_bytes,
        .by_cpu = gpu->lanes.by_cpu,
        .host_ns = gpu->lanes.host_ns,
        .late = gpu->lanes.late,
        .fetch_ns = gpu->lanes.fetch_ns,
        .hidden_ns = gpu->lanes.hidden_ns,
        .updates = hot.updates,
        .exchanged = hot.exchanged,
        .exchange_failed = hot.failed,
    };
    mo_vram_slots(gpu->experts.where.vram, &r.slots, &r.filled, &r.slot_bytes);
    if (gpu->lost) {
        r.core_bytes = r.slot_bytes = 0;
        r.slots = r.filled = 0;
    }
    return r;
}

void mo_gpu_report_publish(mo_gpu *gpu)
{
    const mo_device_report now = gather(gpu);
    pthread_mutex_lock(&gpu->report_lock);
    gpu->report = now;
    pthread_mutex_unlock(&gpu->report_lock);
}

static void read_one(mo_gpu *gpu, mo_device_report *out)
{
    pthread_mutex_lock(&gpu->report_lock);
    *out = gpu->report;
    pthread_mutex_unlock(&gpu->report_lock);
    out->peak_bytes = mo_gpu_memory_peak(&gpu->memory);
    mo_gpu_clock_report(gpu->lanes.clock, out);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Adds another device of the row: its sizes and counters. Steps are common, rates are those of the first
 * device. */
static void add(mo_device_report *sum, const mo_device_report *r)
{
    sum->limit_bytes += r->limit_bytes;
    sum->peak_bytes += r->peak_bytes;
    sum->core_bytes += r->core_bytes;
    sum->work_bytes += r->work_bytes;
    sum->stage_bytes += r->stage_bytes;
    sum->slots += r->slots;
    sum->filled += r->filled;
    sum->slot_bytes += r->slot_bytes;
    sum->streamed_layers += r->streamed_layers;
    sum->host_layers += r->host_layers;
    sum->layer_buffer_bytes += r->layer_buffer_bytes;
    sum->streamed_bytes += r->streamed_bytes;
    sum->streamed_ns += r->streamed_ns;
    sum->host_ns += r->host_ns;
    sum->asked += r->asked;
    sum->hits += r->hits;
    sum->by_cpu += r->by_cpu;
    sum->fetched += r->fetched;
    sum->fetch_failed += r->fetch_failed;
    sum->late += r->late;
    sum->fetched_bytes += r->fetched_bytes;
    sum->cpu_bytes += r->cpu_bytes;
    sum->wait_ns += r->wait_ns;
    sum->cpu_ns += r->cpu_ns;
    sum->fetch_ns += r->fetch_ns;
    sum->hidden_ns += r->hidden_ns;
    sum->step_ns += r->step_ns;
    sum->idle_ns += r->idle_ns;
    sum->updates += r->updates;
    sum->exchanged += r->exchanged;
    sum->exchange_failed += r->exchange_failed;
    mo_gpu_clock_add(&sum->lanes, &r->lanes);
    sum->layer_p50_s = larger(sum->layer_p50_s, r->layer_p50_s);
    sum->layer_p99_s = larger(sum->layer_p99_s, r->layer_p99_s);
}

void mo_gpu_report_read(mo_gpu *gpu, mo_device_report *out)
{
    read_one(gpu, out);
    for (mo_gpu *g = gpu->next; g; g = g->next) {
        mo_device_report one;
        read_one(g, &one);
        add(out, &one);
    }
}
