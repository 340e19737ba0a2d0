#include "cli/print/tiers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/print/terminal.h"

static void subtract_phase(mo_tier_phase *p, const mo_tier_phase *before)
{
    p->passes -= before->passes;
    p->asked -= before->asked;
    p->hits -= before->hits;
    p->bytes -= before->bytes;
    p->wait_ns -= before->wait_ns;
}

void cli_tiers_subtract(mo_tier_report *r, const mo_tier_report *before)
{
    subtract_phase(&r->prompt, &before->prompt);
    subtract_phase(&r->generation, &before->generation);
    r->guessed -= before->guessed;
    r->useful -= before->useful;
    r->late -= before->late;
    r->wasted -= before->wasted;
    r->known -= before->known;
    r->guessed_bytes -= before->guessed_bytes;
    r->evictions -= before->evictions;
    r->start_bytes -= before->start_bytes;
    r->yielded -= before->yielded;
    r->taken -= before->taken;
    r->skipped -= before->skipped;
    r->layers_streamed -= before->layers_streamed;
    r->layer_bytes -= before->layer_bytes;
    r->layer_wait_ns -= before->layer_wait_ns;
    r->disk_reads -= before->disk_reads;
    r->disk_bytes -= before->disk_bytes;
    r->disk_busy_ns -= before->disk_busy_ns;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static void print_phase(const char *name, const mo_tier_phase *p)
{
    char a[32];
    if (p->passes) {
        printf("%-16s %5.1f %% of %" PRIu64 " experts in RAM; per pass %s from disk, %.2f ms waiting\n", name,
               percent(p->hits, p->asked), p->asked, cli_bytes_text(p->bytes / p->passes, a),
               (double)p->wait_ns * 1e-6 / (double)p->passes);
    }
}

static void print_experts(const mo_tier_report *r)
{
    char a[32], b[32];
    printf("tiers            ceiling %s, planned %s; %d of %d slots filled, policy %s\n",
           cli_bytes_text((uint64_t)r->ceiling_bytes, a), cli_bytes_text((uint64_t)r->planned_bytes, b),
           r->filled, r->slots, r->policy);
    print_phase("  prompt", &r->prompt);
    print_phase("  generation", &r->generation);
    if (r->guessed) {
        printf("  prefetched     %" PRIu64 " experts (%s): %" PRIu64 " useful, %" PRIu64 " late, %" PRIu64
               " wasted\n",
               r->guessed, cli_bytes_text(r->guessed_bytes, a), r->useful, r->late, r->wasted);
    }
    if (r->known) {
        printf("  known          %" PRIu64
               " experts were read in advance because the token ids determine them\n",
               r->known);
    }
    if (r->skipped) {
        printf("  skipped        %" PRIu64 " experts: results are not exact (--skip-missing)\n", r->skipped);
    }
}

/* Bytes from disk for a pass: missing or predicted experts, and streamed layers. */
static double bytes_per_pass(const mo_tier_report *r)
{
    const double passes = (double)r->generation.passes;
    const double experts = passes > 0.0 ? (double)(r->generation.bytes + r->guessed_bytes) / passes : 0.0;
    const double rounds = r->streamed_layers ? (double)r->layers_streamed / r->streamed_layers : 0.0;
    return experts + (rounds > 0.0 ? (double)r->layer_bytes / rounds : 0.0);
}

void cli_tiers_print(const mo_tier_report *r, uint64_t generated, int together, double seconds)
{
    char a[32], b[32];
    if (r->slots) {
        print_experts(r);
    }
    if (r->streamed_layers) {
        printf("streamed         %d layers through %d slots: %s, %.1f ms waiting in total\n",
               r->streamed_layers, r->layer_buffer, cli_bytes_text(r->layer_bytes, a),
               (double)r->layer_wait_ns * 1e-6);
    }
    if (r->disk_reads) {
        const double busy = (double)r->disk_busy_ns * 1e-9;
        printf("disk             %s: %s in %" PRIu64 " reads, %.2f GB/s while busy\n", r->disk_method,
               cli_bytes_text(r->disk_bytes, a), r->disk_reads,
               busy > 0.0 ? (double)r->disk_bytes * 1e-9 / busy : 0.0);
    }
    const double per_token = bytes_per_pass(r) / together;
    if (r->disk_reads && generated && seconds > 0.0) {
        const double rate = per_token * (double)generated / seconds;
        printf("                 %s per token; %.2f GB/s averaged over generation",
               cli_bytes_text((uint64_t)per_token, b), rate * 1e-9);
        if (r->disk_probed_bytes_s > 0.0) {
            const double share = 100.0 * rate / r->disk_probed_bytes_s;
            if (share > 100.0) {
                printf(", above the");
            } else {
                printf(", %.0f %% of the", share);
            }
            printf(" %.2f measured by moraine probe", r->disk_probed_bytes_s * 1e-9);
        }
        printf("\n");
    }
}

cli_tiers_sum cli_tiers_add_up(mo_model *model, bool shared)
{
    mo_tier_report t;
    mo_device_report d;
    mo_model_tiers(model, &t, sizeof t);
    mo_model_device(model, &d, sizeof d);
    const bool device = d.name && !d.lost;
    cli_tiers_sum s = {.ram_bytes = t.planned_bytes,
                       .vram_bytes = device ? d.peak_bytes : 0,
                       .experts = t.experts,
                       .layers = t.layers,
                       .kept = t.layers - t.streamed_layers,
                       .shared = shared};
    /* or RAM has all experts */
    const int64_t places = t.slots ? t.slots + (device ? d.slots : 0) : s.experts;
    s.held = places < s.experts ? places : s.experts;
    return s;
}

void cli_tiers_print_sum(const cli_tiers_sum *s)
{
    char ram[32], vram[32];
    if (s->vram_bytes == 0 && s->held == s->experts && s->kept == s->layers) {
        return;
    }
    fprintf(stderr, "tiers: RAM %s", cli_bytes_text((uint64_t)s->ram_bytes, ram));
    if (s->vram_bytes) {
        fprintf(stderr, " + VRAM %s", cli_bytes_text((uint64_t)s->vram_bytes, vram));
    }
    fprintf(stderr, " hold");
    if (s->experts) {
        fprintf(stderr, " %" PRId64 " of %" PRId64 " experts (%.0f %%) and", s->held, s->experts,
                percent((uint64_t)s->held, (uint64_t)s->experts));
    }
    fprintf(stderr, " %d of %d layers%s%s\n", s->kept, s->layers, s->shared ? " that rank 0 has" : "",
            s->held < s->experts || s->kept < s->layers ? "; the rest is read from disk" : "");
}

json_t *cli_tiers_sum_json(const cli_tiers_sum *s)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:i,s:i}", "ram_bytes", (json_int_t)s->ram_bytes, "vram_bytes",
                     (json_int_t)s->vram_bytes, "experts", (json_int_t)s->experts, "experts_held",
                     (json_int_t)s->held, "layers", s->layers, "layers_held", s->kept);
}

void cli_tiers_left_out(const char *command, mo_model *model)
{
    mo_tier_report r = {0};
    if (model) {
        mo_model_tiers(model, &r, sizeof r);
    }
    if (r.skipped) {
        fprintf(stderr,
                "moraine %s: %" PRIu64 " experts were skipped (--skip-missing): results are not exact\n",
                command, r.skipped);
    }
}

static json_t *phase_json(const mo_tier_phase *p)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f}", "passes", (json_int_t)p->passes, "asked", (json_int_t)p->asked,
                     "hits", (json_int_t)p->hits, "disk_bytes", (json_int_t)p->bytes, "wait_seconds",
                     (double)p->wait_ns * 1e-9);
}

json_t *cli_tiers_json(const mo_tier_report *r)
{
    return json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:i,s:i,s:i,s:i,s:o,s:o,s:{s:I,s:I,s:I,s:I,s:I,s:I},s:I,s:I,s:{s:I,s:I,s:f}"
        ","
        "s:{s:s,s:I,s:I,s:f,s:f},s:I,s:{s:I,s:I,s:I}}",
        "mode", r->mode, "policy", r->policy, "ceiling_bytes", (json_int_t)r->ceiling_bytes, "planned_bytes",
        (json_int_t)r->planned_bytes, "expert_bytes", (json_int_t)r->expert_bytes, "slot_bytes",
        (json_int_t)r->slot_bytes, "slots", (int)r->slots, "filled", (int)r->filled, "streamed_layers",
        r->streamed_layers, "layer_buffers", r->layer_buffer, "prompt", phase_json(&r->prompt), "generation",
        phase_json(&r->generation), "read_ahead", "experts", (json_int_t)r->guessed, "useful",
        (json_int_t)r->useful, "late", (json_int_t)r->late, "wasted", (json_int_t)r->wasted, "bytes",
        (json_int_t)r->guessed_bytes, "known", (json_int_t)r->known, "evictions", (json_int_t)r->evictions,
        "skipped", (json_int_t)r->skipped, "layers", "streamed", (json_int_t)r->layers_streamed, "bytes",
        (json_int_t)r->layer_bytes, "wait_seconds", (double)r->layer_wait_ns * 1e-9, "disk", "method",
        r->disk_method, "reads", (json_int_t)r->disk_reads, "bytes", (json_int_t)r->disk_bytes,
        "busy_seconds", (double)r->disk_busy_ns * 1e-9, "probed_bytes_s", r->disk_probed_bytes_s, "experts",
        (json_int_t)r->experts, "device", "start_bytes", (json_int_t)r->start_bytes, "yielded",
        (json_int_t)r->yielded, "taken", (json_int_t)r->taken);
}
