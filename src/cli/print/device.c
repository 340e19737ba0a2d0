#include "cli/print/device.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/print/terminal.h"

void cli_device_subtract(mo_device_report *r, const mo_device_report *before)
{
    r->steps -= before->steps;
    r->asked -= before->asked;
    r->hits -= before->hits;
    r->by_cpu -= before->by_cpu;
    r->fetched -= before->fetched;
    r->fetch_failed -= before->fetch_failed;
    r->late -= before->late;
    r->fetched_bytes -= before->fetched_bytes;
    r->cpu_bytes -= before->cpu_bytes;
    r->wait_ns -= before->wait_ns;
    r->cpu_ns -= before->cpu_ns;
    r->fetch_ns -= before->fetch_ns;
    r->hidden_ns -= before->hidden_ns;
    r->streamed_bytes -= before->streamed_bytes;
    r->streamed_ns -= before->streamed_ns;
    r->host_ns -= before->host_ns;
    r->updates -= before->updates;
    r->exchanged -= before->exchanged;
    r->exchange_failed -= before->exchange_failed;
}

void cli_device_lanes_begin(cli_device_lanes *l)
{
    mo_model_device(l->model, &l->before, sizeof l->before);
}

void cli_device_lanes_end(cli_device_lanes *l)
{
    mo_device_report now;
    mo_model_device(l->model, &now, sizeof now);
    l->wait_ns += now.wait_ns - l->before.wait_ns;
    l->cpu_ns += now.cpu_ns - l->before.cpu_ns;
    l->fetch_ns += now.fetch_ns - l->before.fetch_ns;
    l->hidden_ns += now.hidden_ns - l->before.hidden_ns;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Layers that do not fit in VRAM. */
static void print_passage(const mo_device_report *r, uint64_t tokens)
{
    char a[32];
    if (r->streamed_layers + r->host_layers == 0) {
        return;
    }
    printf("  layers         %d do not fit: %d streamed through buffers of %s, %d computed by the CPU\n",
           r->streamed_layers + r->host_layers, r->streamed_layers,
           cli_bytes_text((uint64_t)r->layer_buffer_bytes, a), r->host_layers);
    if (r->streamed_ns) {
        printf("                 streamed at %.1f GB/s", (double)r->streamed_bytes / (double)r->streamed_ns);
        if (tokens && r->host_layers) {
            printf("; %.2f ms of CPU time per token", (double)r->host_ns * 1e-6 / (double)tokens);
        }
        printf("\n");
    }
}

/* Data in VRAM does not occupy RAM: the sum of both is what need not be read. */
static void print_sum(const mo_device_report *r, const mo_tier_report *tiers)
{
    char a[32];
    if (r->slots && tiers->slots) {
        const long long placed = (long long)r->filled + tiers->filled;
        printf("  with RAM       %lld of %lld experts held, %.0f %%; %s read at startup, %" PRIu64
               " moved from RAM to VRAM, %" PRIu64 " moved back\n",
               placed, (long long)tiers->experts, percent((uint64_t)placed, (uint64_t)tiers->experts),
               cli_bytes_text(tiers->start_bytes, a), tiers->yielded, tiers->taken);
    }
}

void cli_device_print(const mo_device_report *r, const mo_tier_report *tiers,
                      const cli_device_lanes *generating, uint64_t tokens, double seconds)
{
    char a[32], b[32], c[32], d[32];
    if (!r->name) {
        return;
    }
    printf("device           %s%s: peak %s of %s; core %s, work %s\n", r->name,
           r->lost ? " (lost; continued on the CPU)" : "", cli_bytes_text((uint64_t)r->peak_bytes, a),
           cli_bytes_text((uint64_t)r->limit_bytes, b), cli_bytes_text((uint64_t)r->core_bytes, c),
           cli_bytes_text((uint64_t)(r->work_bytes + r->stage_bytes), d));
    print_passage(r, tokens);
    if (r->slots ||
        r->asked) { /* prefetched experts that were not chosen count as fetched, not as requested */
        const uint64_t there = r->hits + r->by_cpu, crossed = r->asked > there ? r->asked - there : 0;
        printf("  experts        %d of %d slots filled (%s); of %" PRIu64
               " requested, %.1f %% in VRAM, %.1f %% "
               "fetched, %.1f %% computed by the CPU\n",
               r->filled, r->slots, cli_bytes_text((uint64_t)r->slot_bytes, a), r->asked,
               percent(r->hits, r->asked), percent(crossed, r->asked), percent(r->by_cpu, r->asked));
    }
    print_sum(r, tiers);
    /* not if the device only has experts */
    if (r->asked && tokens && seconds > 0.0 && r->cpu_bytes_s > 0.0) {
        const double ms = 1e-6 / (double)tokens;
        printf("  per token      %.2f ms: waiting for "
               "routing %.2f, experts on the CPU %.2f, "
               "copies %.2f (%.0f %% overlapped)\n",
               seconds * 1e3 / (double)tokens, (double)generating->wait_ns * ms,
               (double)generating->cpu_ns * ms, (double)generating->fetch_ns * ms,
               percent(generating->hidden_ns, generating->fetch_ns));
        printf("  rates          CPU %.1f GB/s, link %.1f GB/s\n", r->cpu_bytes_s * 1e-9,
               r->link_bytes_s * 1e-9);
    }
    if (r->updates || r->exchanged) {
        printf("  hot cache      %" PRIu64 " updates, %" PRIu64 " experts exchanged, %" PRIu64
               " copies failed\n",
               r->updates, r->exchanged, r->exchange_failed);
    }
    if (r->late) {
        printf("  late copies    %" PRIu64 ", computed by the CPU\n", r->late);
    }
    if (r->fetch_failed) {
        printf("  failed copies  %" PRIu64 ", computed by the CPU or sent again\n", r->fetch_failed);
    }
}

json_t *cli_device_json(const mo_device_report *r)
{
    if (!r->name) {
        return json_null();
    }
    json_t *out = json_pack(
        "{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f}",
        "name", r->name, "lost", r->lost, "limit_bytes", (json_int_t)r->limit_bytes, "peak_bytes",
        (json_int_t)r->peak_bytes, "core_bytes", (json_int_t)r->core_bytes, "work_bytes",
        (json_int_t)r->work_bytes, "stage_bytes", (json_int_t)r->stage_bytes, "slots", (int)r->slots,
        "filled", (int)r->filled, "slot_bytes", (json_int_t)r->slot_bytes, "asked", (json_int_t)r->asked,
        "hits", (json_int_t)r->hits, "by_cpu", (json_int_t)r->by_cpu, "fetched", (json_int_t)r->fetched,
        "fetch_failed", (json_int_t)r->fetch_failed, "late", (json_int_t)r->late, "fetched_bytes",
        (json_int_t)r->fetched_bytes, "cpu_bytes", (json_int_t)r->cpu_bytes, "wait_seconds",
        (double)r->wait_ns * 1e-9, "cpu_seconds", (double)r->cpu_ns * 1e-9, "fetch_seconds",
        (double)r->fetch_ns * 1e-9, "hidden_seconds", (double)r->hidden_ns * 1e-9, "cpu_bytes_s",
        r->cpu_bytes_s, "link_bytes_s", r->link_bytes_s);
    json_object_set_new(out, "layers",
                        json_pack("{s:i,s:i,s:I,s:I,s:f,s:f}", "passing", (int)r->streamed_layers, "by_cpu",
                                  (int)r->host_layers, "layer_buffer_bytes",
                                  (json_int_t)r->layer_buffer_bytes, "streamed_bytes",
                                  (json_int_t)r->streamed_bytes, "passed_seconds",
                                  (double)r->streamed_ns * 1e-9, "cpu_seconds", (double)r->host_ns * 1e-9));
    json_object_set_new(out, "hot_cache",
                        json_pack("{s:I,s:I,s:I}", "updates", (json_int_t)r->updates, "exchanged",
                                  (json_int_t)r->exchanged, "failed", (json_int_t)r->exchange_failed));
    return out;
}
