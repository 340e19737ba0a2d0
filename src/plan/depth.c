#include "plan/depth.h"

#include <math.h>

#include "plan/kv_in_ram.h"
#include "plan/prompt_cost.h"

/* KV cache bytes of all layers, and of the device layers whose KV cache is in RAM: the last movable ones. */
static double read_bytes(const mo_plan_model *m, int kv_in_ram_layers, double *kv_in_ram)
{
    double all = 0;
    *kv_in_ram = 0;
    for (int i = m->layers - 1; m->layer && i >= 0; i--) {
        const mo_plan_layer *l = &m->layer[i];
        all += (double)l->read_bytes;
        if (kv_in_ram_layers > 0 && l->kv_bytes > 0) {
            *kv_in_ram += (double)l->read_bytes;
            kv_in_ram_layers--;
        }
    }
    return all;
}

/* Layers computed by the CPU have their KV cache in RAM. */
static double device_seconds(const mo_plan_model *m, const mo_rates *r, const mo_plan_device *d)
{
    double kv_in_ram;
    const double all = read_bytes(m, d->kv_in_ram_layers, &kv_in_ram);
    const double vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS;
    const double by_cpu = m->layers > 0 ? (all - kv_in_ram) * d->by_cpu / m->layers : 0;
    return kv_in_ram / mo_rates_link(r, 0, 0) + by_cpu / mo_rates_products(r) +
           (all - kv_in_ram - by_cpu) / vram;
}

/* Every tile of queries reads all positions before it, as fast as products read weights. On an H200, 2048
 * tokens after 32,768 positions: 4.5 TB/s (Qwen3-30B) and 2.8 TB/s (gpt-oss-20b). KV cache staged from RAM is
 * read in VRAM too. */
static double prompt_rate(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p)
{
    const int64_t tokens = m->batch < m->context ? m->batch : m->context;
    const double vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS;
    double bytes = 0;
    if (!m->layer || tokens < 1) {
        return 0;
    }
    for (int i = 0; i < m->layers; i++) {
        const mo_plan_layer *l = &m->layer[i];
        const int64_t reads = mo_plan_tiles(tokens, l->queries) * mo_plan_tile_reads(l->queries);
        bytes += (double)reads * (double)l->read_bytes;
    }
    const double crossing =
        mo_plan_kv_in_ram_crossing(m, p->device.kv_in_ram_layers, m->context - tokens, tokens);
    const double seconds =
        mo_plan_batch_seconds(m, r, p, (double)tokens) + bytes / vram + crossing / mo_rates_link(r, 0, 0);
    return seconds > 0 ? (double)tokens / seconds : 0;
}

mo_plan_depth mo_plan_depth_of(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p)
{
    const mo_plan_device *d = &p->device;
    const bool device = d->ceiling > 0 && !m->core_on_cpu;
    double kv_in_ram;
    if (p->tokens_per_second <= 0) {
        return (mo_plan_depth){0};
    }
    /* The plan's own speed already counts half of the link traffic for a KV cache in RAM. */
    const double half =
        device ? mo_plan_kv_in_ram_token(m, d->kv_in_ram_layers, d->kv_in_ram_bytes) / mo_rates_link(r, 0, 0)
               : 0;
    const double empty = fmax(1 / p->tokens_per_second - half, 0);
    const double attention =
        device ? device_seconds(m, r, d) : read_bytes(m, 0, &kv_in_ram) / mo_rates_products(r);
    return (mo_plan_depth){.empty = empty > 0 ? 1 / empty : p->tokens_per_second,
                           .full = empty + attention > 0 ? 1 / (empty + attention) : p->tokens_per_second,
                           .attention_seconds = attention,
                           .prompt_full = device ? prompt_rate(m, r, p) : 0};
}
