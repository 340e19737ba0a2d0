#include "plan/prompt_cost.h"

#include <math.h>

#include "plan/kv_in_ram.h"
#include "plan/placement.h"
#include "plan/request.h"

/* Fixed cost of a batch's layer on a device: about twenty launches, and a round trip of the router choice. */
#define BATCH_LAYER_SECONDS 150e-6
/* Maximum experts copied together, as in gpu/windows.c. */
#define WINDOW 16

double mo_plan_share_used(double used, double experts, double tokens)
{
    return experts > used ? -expm1(tokens * log1p(-used / experts)) : 1;
}

static void add_class(const mo_plan_model *m, const mo_run_plan *p, int i, double tokens,
                      mo_plan_batch_bytes *b)
{
    const mo_plan_class *c = &m->classes[i];
    const int used = c->used ? c->used : m->used;
    const double chosen = (double)c->experts;
    if (c->experts == 0 || used == 0) {
        return;
    }
    const double layers = c->used_per_token / used, experts = layers > 0 ? chosen / layers : chosen;
    const double bytes = chosen * (double)c->bytes * mo_plan_share_used(used, experts, tokens);
    const double here = (double)p->device.class_slots[i] / chosen;
    const double in_ram = p->mode == MO_PLAN_RESIDENT ? 1 : (double)p->class_slots[i] / chosen;
    const double there = fmin(1, here + in_ram); /* experts in VRAM free their place in RAM */
    /* Neighboring experts in RAM that cross together need one copy per matrix. Experts from disk cross one by
     * one. */
    const double crossing = mo_plan_share_used(used, experts, tokens) * (1 - here);
    const double apart = in_ram < 1 ? 1 : fmax(1 - crossing, 1.0 / WINDOW);
    const bool crosses = p->device.ceiling && !m->core_on_cpu;
    /* the device computes its experts in parallel to the others */
    const double mine = m->core_on_cpu ? 1 - here : 1;
    b->copies += crosses ? chosen * crossing * apart * MO_RATES_EXPERT_COPIES : 0;
    b->used += bytes * mine;
    b->token += c->used_per_token * (double)c->bytes * mine;
    b->link += crosses ? bytes * (1 - here) : 0;
    b->disk += bytes * (1 - there);
}

mo_plan_batch_bytes mo_plan_batch_bytes_of(const mo_plan_model *m, const mo_run_plan *p, double tokens)
{
    const double core = (double)m->core_bytes + (m->tied ? (double)m->table_bytes : 0);
    mo_placement_counts counts = mo_placement_counts_of(m, p);
    counts.by_cpu = 0; /* applies to single tokens only */
    const mo_placement_sums s = mo_placement_sum(m, counts);
    mo_plan_batch_bytes b = {.used = core,
                             .token = core - (double)m->output_bytes,
                             .link = p->device.ceiling && !m->core_on_cpu ? (double)s.token_link_bytes : 0,
                             .disk = (double)s.token_disk_bytes};
    b.token = fmax(0, b.token);
    for (int i = 0; i < m->class_count; i++) {
        add_class(m, p, i, tokens, &b);
    }
    return b;
}

/* Products overlap with copies and reads, except for a part of the shorter one. On an H200 a prompt of 2048
 * with all experts in RAM reads 6,000 tokens/s (Qwen3-30B); products alone would allow 9,500 and the link
 * 6,800. */
double mo_plan_batch_seconds(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p, double tokens)
{
    const mo_plan_batch_bytes b = mo_plan_batch_bytes_of(m, p, tokens);
    const bool device = p->device.ceiling > 0 && !m->core_on_cpu;
    const double cpu = p->mode == MO_PLAN_RESIDENT ? mo_rates_products(r) : mo_rates_slots(r);
    const double vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS;
    const double link = mo_rates_link(r, b.link, b.copies);
    const double memory = device ? vram : cpu, reuse = !device             ? MO_PLAN_CPU_REUSE
                                                       : r->vram_reuse > 0 ? r->vram_reuse
                                                                           : MO_PLAN_DEVICE_REUSE;
    const double products = b.used / memory + tokens * b.token / (reuse * memory);
    const double reads = b.disk / r->disk_bytes_s;
    return device ? mo_rates_layer(products, fmax(b.link / link, reads)) + m->layers * BATCH_LAYER_SECONDS
                  : mo_rates_layer(products, reads);
}

double mo_plan_prompt_seconds(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p, int64_t tokens)
{
    const double kv_in_ram =
        mo_plan_kv_in_ram_prompt(m, p->device.kv_in_ram_layers, 0, tokens) / mo_rates_link(r, 0, 0);
    const int64_t batch = m->batch > 0 && m->batch < tokens ? m->batch : tokens;
    const int64_t whole = batch > 0 ? tokens / batch : 0, rest = batch > 0 ? tokens % batch : 0;
    return (double)whole * (whole ? mo_plan_batch_seconds(m, r, p, (double)batch) : 0) +
           (rest ? mo_plan_batch_seconds(m, r, p, (double)rest) : 0) + kv_in_ram;
}

double mo_plan_request_seconds(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p)
{
    const int layers = p->device.kv_in_ram_layers;
    const int64_t prompt = mo_plan_request_prompt(m->context),
                  from = mo_plan_request_from(m->context, prompt);
    const double answer = (double)prompt / MO_PLAN_PROMPT_PER_ANSWER;
    const double deeper =
        mo_plan_kv_in_ram_prompt(m, layers, from, prompt) - mo_plan_kv_in_ram_prompt(m, layers, 0, prompt);
    return mo_plan_prompt_seconds(m, r, p, prompt) + deeper / mo_rates_link(r, 0, 0) +
           (p->tokens_per_second > 0 ? answer / p->tokens_per_second : 0);
}
