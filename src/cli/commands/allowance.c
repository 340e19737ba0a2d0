#include "cli/commands/allowance.h"

#include <stdio.h>

#include "cli/print/terminal.h"

static double mean_expert_bytes(mo_model *model)
{
    mo_model_info info;
    double bytes = 0.0, experts = 0.0;
    mo_model_describe(model, &info, sizeof info);
    for (int layer = 0; layer < info.layers; layer++) {
        mo_expert_report first;
        const int count = mo_model_experts(model, layer, &first, sizeof first, 1);
        bytes += count > 0 ? (double)first.bytes * count : 0.0;
        experts += count;
    }
    return experts > 0.0 ? bytes / experts : 0.0;
}

void cli_allowance_begin(cli_allowance *a, mo_model *model)
{
    mo_model_device(model, &a->before, sizeof a->before);
}

void cli_allowance_end(cli_allowance *a, mo_model *model)
{
    mo_device_report now;
    mo_tier_report tiers;
    mo_model_device(model, &now, sizeof now);
    mo_model_tiers(model, &tiers, sizeof tiers);
    a->steps += now.steps - a->before.steps;
    a->chosen += now.asked - a->before.asked;
    a->missing += (now.asked - a->before.asked) - (now.hits - a->before.hits);
    a->expert_bytes = mean_expert_bytes(model);
    a->cpu_bytes_s = tiers.ram_probed_bytes_s;
    a->link_bytes_s = now.experts_probed_bytes_s;
    a->host_bytes_s = now.host_probed_bytes_s;
}

static double step_bytes(const cli_allowance *a)
{
    return a->steps ? (double)a->missing / (double)a->steps * a->expert_bytes : 0.0;
}

/* The common rate of CPU and link, because copies read the same memory as the CPU. 0: not measured. */
static double wires_bytes_s(const cli_allowance *a)
{
    double both = a->cpu_bytes_s + a->link_bytes_s;
    if (a->cpu_bytes_s <= 0.0 || a->link_bytes_s <= 0.0) {
        return 0.0;
    }
    if (a->host_bytes_s > 0.0 && both > a->host_bytes_s) {
        both = a->host_bytes_s;
    }
    return both > a->cpu_bytes_s ? both : a->cpu_bytes_s;
}

static double allowed_tps(const cli_allowance *a, int64_t sequences)
{
    const double bytes = step_bytes(a);
    return bytes > 0.0 ? (double)sequences * wires_bytes_s(a) / bytes : 0.0;
}

void cli_allowance_print(const cli_allowance *a, int64_t sequences, double tps)
{
    const double allowed = allowed_tps(a, sequences);
    char bytes[32];
    if (a->missing == 0 || a->steps == 0) {
        return;
    }
    printf("bandwidth        a step chose %.0f experts, %.0f of them not in VRAM: %s",
           (double)a->chosen / (double)a->steps, (double)a->missing / (double)a->steps,
           cli_bytes_text((uint64_t)step_bytes(a), bytes));
    if (allowed > 0.0) {
        printf("; CPU %.1f + link %.1f, together %.1f GB/s, allow %.1f tokens/s; %.0f %% reached\n",
               a->cpu_bytes_s * 1e-9, a->link_bytes_s * 1e-9, wires_bytes_s(a) * 1e-9, allowed,
               100.0 * tps / allowed);
    } else {
        printf(" (run moraine probe to see what the bandwidth allows)\n");
    }
}

json_t *cli_allowance_json(const cli_allowance *a, int64_t sequences, double tps)
{
    const double allowed = allowed_tps(a, sequences);
    if (a->missing == 0 || a->steps == 0) {
        return json_null();
    }
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "experts_per_step",
                     (double)a->chosen / (double)a->steps, "missing_per_step",
                     (double)a->missing / (double)a->steps, "bytes_per_step", step_bytes(a), "cpu_bytes_s",
                     a->cpu_bytes_s, "link_bytes_s", a->link_bytes_s, "together_bytes_s", wires_bytes_s(a),
                     "allowed_tps", allowed, "share", allowed > 0.0 ? tps / allowed : 0.0);
}
