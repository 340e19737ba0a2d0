#include "plan/placement.h"

#include "plan/share.h"

/* ---- Which layers ---- */

/* True if number n of `all` is among `count` that are spread evenly over them. */
static bool among(int64_t n, int64_t count, int64_t all)
{
    return all > 0 && (n + 1) * count / all > n * count / all;
}

/* Location of one layer. */
typedef struct standing {
    bool in_ram, in_vram, by_cpu;
} standing;

/* Iterates over the layers in order: the totals of each kind, and how many have been visited. */
typedef struct cursor {
    const mo_plan_model *model;
    mo_placement_counts counts;
    int all, in_ram;  /* streamable; of these in RAM */
    int ram_streamed; /* in RAM and streamed */
    int seen, seen_ram, seen_disk, seen_streamed, seen_shared;
} cursor;

static cursor begin(const mo_plan_model *m, mo_placement_counts c)
{
    cursor at = {.model = m, .counts = c, .all = m->dense_layers};
    at.in_ram = (c.alone ? c.streamed : at.all) - c.on_disk;
    at.ram_streamed = c.alone || c.streamed > at.in_ram ? at.in_ram : c.streamed;
    return at;
}

/* Streamed layers are spread evenly between the others, so that copies run while those compute. Layers in RAM
 * are streamed first, because the disk is slower than the link. */
static standing next(cursor *at)
{
    const mo_placement_counts *c = &at->counts;
    bool streamed, in_ram;
    if (c->alone) {
        streamed = among(at->seen, c->streamed, at->all);
        in_ram = streamed && !among(at->seen_streamed, c->on_disk, c->streamed);
    } else {
        in_ram = !among(at->seen, c->on_disk, at->all);
        streamed = in_ram ? among(at->seen_ram, at->ram_streamed, at->in_ram)
                          : among(at->seen_disk, c->streamed - at->ram_streamed, c->on_disk);
    }
    const bool shared = streamed && in_ram,
               cpu = shared && among(at->seen_shared, c->by_cpu, at->ram_streamed);
    at->seen++;
    at->seen_ram += in_ram;
    at->seen_disk += !in_ram;
    at->seen_streamed += streamed;
    at->seen_shared += shared;
    return (standing){.in_ram = in_ram, .in_vram = !streamed, .by_cpu = cpu};
}

static mo_plan_layer layer_of(const mo_plan_model *m, int i)
{
    if (m->layer) {
        return m->layer[i];
    }
    const int64_t mean = m->dense_layers ? m->dense_bytes / m->dense_layers : 0;
    return (mo_plan_layer){.bytes = i < m->dense_layers ? mean : 0,
                           .resident = m->dense_layer_bytes,
                           .buffer_bytes = m->dense_buffer_bytes,
                           .device_bytes = m->dense_buffer_bytes,
                           .link_bytes = mean};
}

/* True if a device computes layers. */
static bool has_layers(const mo_plan_model *m, const mo_run_plan *p)
{
    return p->device.ceiling > 0 && !m->core_on_cpu;
}

mo_placement_counts mo_placement_counts_of(const mo_plan_model *m, const mo_run_plan *p)
{
    const bool device = has_layers(m, p);
    const int streamed = device ? p->device.streamed : m->dense_layers;
    const int candidates = p->alone ? streamed : m->dense_layers;
    return (mo_placement_counts){.on_disk = p->mode == MO_PLAN_STREAMED ? candidates - p->dense_resident : 0,
                                 .streamed = streamed,
                                 .by_cpu = p->device.by_cpu,
                                 .alone = p->alone};
}

void mo_placement_list(const mo_plan_model *m, const mo_run_plan *p, mo_layer_location *out)
{
    const bool device = has_layers(m, p);
    cursor at = begin(m, mo_placement_counts_of(m, p));
    for (int i = 0; i < m->layers; i++) {
        const standing l = layer_of(m, i).bytes ? next(&at) : (standing){.in_ram = true, .in_vram = true};
        out[i] = (mo_layer_location){.kept = (uint32_t)l.in_ram << MO_AT_RAM, .runs = MO_AT_RAM};
        if (device) {
            out[i].kept |= (uint32_t)l.in_vram << MO_AT_VRAM;
            out[i].runs = l.by_cpu ? MO_AT_RAM : MO_AT_VRAM;
        }
    }
}

/* ---- Sizes ---- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

mo_placement_sums mo_placement_sum(const mo_plan_model *m, mo_placement_counts counts)
{
    mo_placement_sums s = {0};
    cursor at = begin(m, counts);
    for (int i = 0; i < m->layers; i++) {
        const mo_plan_layer l = layer_of(m, i);
        if (l.bytes == 0) {
            continue;
        }
        const standing p = next(&at);
        if (p.in_ram) {
            s.ram_bytes = mo_plan_sum(s.ram_bytes, l.resident);
            s.group_bytes = larger(s.group_bytes, l.group_bytes);
        } else if (!p.in_vram || !counts.alone) {
            s.ram_buffer_bytes = larger(s.ram_buffer_bytes, l.buffer_bytes);
        }
        if (p.in_vram) {
            s.device_bytes = mo_plan_sum(s.device_bytes, l.device_bytes);
        } else {
            s.device_buffer_bytes = larger(s.device_buffer_bytes, l.device_bytes);
            s.token_link_bytes = mo_plan_sum(s.token_link_bytes, p.by_cpu ? 0 : l.link_bytes);
            s.token_disk_bytes = mo_plan_sum(s.token_disk_bytes, p.in_ram ? 0 : l.bytes);
            s.from_disk += !p.in_ram;
        }
    }
    return s;
}

int mo_placement_fill_ram(const mo_plan_model *m, mo_placement_counts counts, int buffers, int64_t bytes)
{
    const int all = counts.alone ? counts.streamed : m->dense_layers;
    for (int stay = all - buffers > 0 ? all - buffers : 0; stay >= 0; stay--) {
        counts.on_disk = all - stay;
        const mo_placement_sums s = mo_placement_sum(m, counts);
        if (mo_plan_sum(s.ram_bytes, mo_plan_times(buffers, s.ram_buffer_bytes)) <= bytes) {
            return stay;
        }
    }
    return -1;
}

/* How many layers must be streamed through this many buffers. Prefers a multiple of the buffers that copies
 * go to, so that the first layer of a step need not wait for the last one of the previous step. -1: no number
 * fits. */
static int count_streamed(const mo_plan_model *m, mo_placement_counts counts, int buffers, int slots,
                          int64_t bytes, int64_t *least)
{
    int fits = -1, multiple = -1;
    for (int count = 0; count <= m->dense_layers; count++) {
        counts.streamed = count;
        const mo_placement_sums s = mo_placement_sum(m, counts);
        const int64_t needed =
            mo_plan_sum(s.device_bytes, count ? mo_plan_times(buffers, s.device_buffer_bytes) : 0);
        *least = *least < 0 || needed < *least ? needed : *least;
        fits = needed <= bytes && fits < 0 ? count : fits;
        multiple = needed <= bytes && multiple < 0 && count % slots == 0 ? count : multiple;
    }
    return multiple >= 0 ? multiple : fits;
}

/* Cost of streaming in layers. Without a spare buffer the link waits while a layer is reordered. Computed (a
 * layer's bytes twice through VRAM and once over the link), not measured. */
static double cost_of(int streamed, int buffers)
{
    return streamed * (buffers < MO_PLAN_DEVICE_LAYER_BUFFERS ? 1.04 : 1.0);
}

bool mo_placement_fill_device(const mo_plan_model *m, mo_placement_counts counts, bool interleaved,
                              int64_t bytes, int *streamed, int *buffers, int64_t *least)
{
    *streamed = -1;
    *buffers = 0;
    *least = -1;
    for (int b = MO_PLAN_DEVICE_LAYER_BUFFERS; b >= (interleaved ? MO_PLAN_DEVICE_LAYER_BUFFERS_LEAST : 1);
         b--) {
        const int count = count_streamed(m, counts, b, interleaved ? b - 1 : b, bytes, least);
        if (count >= 0 && (*streamed < 0 || cost_of(count, b) < cost_of(*streamed, *buffers))) {
            *streamed = count;
            *buffers = count ? b : 0;
        }
    }
    return *streamed >= 0;
}
