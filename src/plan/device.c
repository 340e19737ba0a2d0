#include "plan/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/fetch_share.h"
#include "plan/kv_in_ram.h"
#include "plan/placement.h"
#include "plan/share.h"
#include "plan/text.h"

/* Upload buffer size that keeps the link busy. */
#define UPLOAD_BYTES ((int64_t)8 << 20)
/* If a smaller share of the missing bytes is fetched, the fetch lane counts as off. */
#define SELDOM 0.05
/* One part in this many of the ceiling may be staging before all layers are in VRAM. */
enum { AHEAD_PART = 32 };

/* ---- Sizes ---- */

/* Bytes of all layers. If they are not listed, each counts as the largest. */
static int64_t all_layers(const mo_plan_model *m)
{
    if (m->layer) {
        return mo_placement_sum(m, (mo_placement_counts){0}).device_bytes;
    }
    const int64_t padding =
        m->dense_layers && !m->device_core_bytes ? m->dense_buffer_bytes - m->dense_layer_bytes : 0;
    return mo_plan_sum(m->dense_bytes, mo_plan_times(m->dense_layers, padding > 0 ? padding : 0));
}

/* Bytes of the core without streamable layers and vectors: output matrix, tied embedding, padding. */
static int64_t fixed_core(const mo_plan_model *m)
{
    if (m->device_core_bytes) {
        const int64_t rest =
            m->device_core_bytes - m->vector_bytes - (m->layer ? all_layers(m) : m->dense_bytes);
        return rest > 0 ? rest : 0;
    }
    return mo_plan_sum(m->core_bytes - m->dense_bytes, m->tied ? m->table_bytes : 0);
}

static int64_t class_slot_bytes(const mo_plan_model *m, int i)
{
    return m->device_slot_bytes[i] ? m->device_slot_bytes[i] : m->classes[i].slot_bytes;
}

/* Bytes of an expert in transit: doubled if RAM has another layout than the file. */
static int64_t stage_bytes(const mo_plan_model *m, const mo_run_plan *ram)
{
    const bool interleaved = ram && ram->mode == MO_PLAN_RESIDENT;
    return interleaved || !m->device_stage_plain ? m->device_stage_bytes : m->device_stage_plain;
}

/* Bytes of staging with `spare` bytes left and slots for all experts taking `all`. */
static int64_t staging(const mo_plan_model *m, int64_t stage, int64_t ceiling, int64_t spare, int64_t all)
{
    int64_t largest = 0;
    for (int i = 0; i < m->class_count; i++) {
        const int64_t bytes = m->classes[i].experts ? class_slot_bytes(m, i) : 0;
        largest = bytes > largest ? bytes : largest;
    }
    if (largest > 0 && stage) {
        return mo_plan_staging(stage, ceiling, spare, all);
    }
    return mo_plan_times(m->in_flight ? m->in_flight : MO_PLAN_IN_FLIGHT, largest);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The same with a given limit, which may go below the minimum number of stages but leaves at least one. */
static int64_t limited_staging(const mo_plan_limits *l, int64_t stage, int64_t bytes)
{
    if (!l->staging_bytes || !stage) {
        return bytes;
    }
    const int64_t most = smaller(bytes, l->staging_bytes / MO_PLAN_GRAIN * MO_PLAN_GRAIN);
    return most > stage ? most : stage;
}

static int64_t total(const mo_plan_device *d)
{
    const int64_t parts[] = {d->core, d->vectors, d->kv, d->work, d->staging, d->layer_buffer_bytes,
                             d->slots};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bytes = mo_plan_sum(bytes, parts[i]);
    }
    return bytes;
}

/* ---- Places ---- */

static void want_slots(const mo_plan_model *m, mo_plan_share *s)
{
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        s[i] = (mo_plan_share){.slot_bytes = class_slot_bytes(m, i),
                               .weight = c->used_per_token * (double)c->bytes,
                               .most = c->experts};
    }
}

/* All of the core, no experts, minimum staging. */
static mo_plan_device core_parts(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *ram)
{
    const int64_t stage = stage_bytes(m, ram);
    mo_plan_device d = {.core = mo_plan_sum(fixed_core(m), all_layers(m)),
                        .vectors = m->vector_bytes,
                        .kv = m->device_kv_bytes ? m->device_kv_bytes : m->kv_bytes,
                        .work = mo_plan_sum(m->device_work_bytes, m->device_map_bytes),
                        .staging = limited_staging(l, stage, staging(m, stage, 0, 0, 0)),
                        .stage_bytes = stage,
                        .staged =
                            stage > 0 && stage == m->device_stage_bytes && stage != m->device_stage_plain,
                        .layers = m->layers};
    d.used = total(&d);
    return d;
}

/* The same with enough stages to keep the link busy in prompts, even at the cost of some streamed layers.
 * Staging is limited to a part of the ceiling and does not depend on RAM's layout. With two stages, experts
 * of Qwen3-30B crossed to an H200 at 21 GB/s instead of 47. */
static mo_plan_device stages_ahead(const mo_plan_model *m, const mo_plan_limits *l,
                                   const mo_plan_device *core, int64_t ceiling)
{
    mo_plan_device d = *core;
    const int64_t most =
        smaller(ceiling / AHEAD_PART, mo_plan_times(MO_PLAN_STAGES_AHEAD, m->device_stage_bytes));
    const int64_t bytes = l->staging_bytes ? smaller(most, l->staging_bytes) : most;
    if (m->class_count > 0 && d.stage_bytes && d.staging && bytes > d.staging) {
        d.staging = bytes / MO_PLAN_GRAIN * MO_PLAN_GRAIN;
        d.used = total(&d);
    }
    return d;
}

/* Everything in VRAM. Nothing is in transit after the start; a device that reports how it is filled needs
 * stages for that. */
static mo_plan_device whole_parts(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *ram,
                                  const mo_plan_share *s)
{
    mo_plan_device d = core_parts(m, l, ram);
    d.staging = d.stage_bytes ? d.staging : 0;
    d.slots = mo_plan_share_most(s, m->class_count);
    for (int i = 0; i < m->class_count; i++) {
        d.class_slots[i] = (int32_t)s[i].most;
    }
    d.used = total(&d);
    return d;
}

/* Peak memory while the core is uploaded, before sessions, stages and slots are allocated. */
static int64_t upload_peak(const mo_plan_device *d, int64_t group_bytes)
{
    return mo_plan_sum(mo_plan_sum(d->core, d->vectors),
                       mo_plan_sum(mo_plan_sum(d->work, d->layer_buffer_bytes), group_bytes));
}

static int64_t needed(const mo_plan_device *d, int64_t group_bytes)
{
    const int64_t peak = upload_peak(d, group_bytes);
    return d->used > peak ? d->used : peak;
}

/* Streams the minimum number of layers. Layers come before experts: a token needs all of a layer but only a
 * few of its experts. *least: the lowest ceiling for this. */
static bool stream_layers(const mo_plan_model *m, int64_t ceiling, mo_placement_counts counts,
                          int64_t group_bytes, mo_plan_device *d, int64_t *least)
{
    const int64_t layers = all_layers(m);
    mo_plan_device fixed = *d;
    fixed.core -= layers;
    fixed.used = total(&fixed);
    const int64_t others = needed(&fixed, group_bytes);
    int streamed, buffers;
    int64_t bytes;
    const bool fits =
        mo_placement_fill_device(m, counts, d->interleaved, ceiling - others, &streamed, &buffers, &bytes);
    *least = mo_plan_sum(others, bytes);
    if (!fits) { /* use the smallest arrangement */
        mo_placement_fill_device(m, counts, d->interleaved, bytes, &streamed, &buffers, &bytes);
    }
    counts.streamed = streamed;
    const mo_placement_sums s = mo_placement_sum(m, counts);
    d->core = mo_plan_sum(fixed.core, s.device_bytes);
    d->streamed = streamed;
    d->layers = m->layers - streamed;
    d->layer_buffers = buffers;
    d->layer_buffer_bytes = mo_plan_times(buffers, s.device_buffer_bytes);
    d->used = total(d);
    return fits;
}

/* Remaining memory becomes staging before any expert stays: up to the given size, as far as stages can use
 * it. */
static void grow_staging(const mo_plan_model *m, const mo_plan_limits *l, int64_t ceiling, int64_t all,
                         mo_plan_device *d)
{
    if (d->stage_bytes && d->staging) {
        const int64_t spare = ceiling - (d->used - d->staging);
        const int64_t asked =
            smaller(smaller(l->staging_bytes, spare), mo_plan_times(MO_PLAN_STAGES, d->stage_bytes));
        const int64_t bytes = l->staging_bytes ? asked : staging(m, d->stage_bytes, ceiling, spare, all);
        d->staging = bytes - d->staging < MO_PLAN_GRAIN ? d->staging : bytes / MO_PLAN_GRAIN * MO_PLAN_GRAIN;
        d->used = total(d);
    }
}

static void fill_slots(const mo_plan_model *m, const mo_plan_limits *l, int64_t ceiling,
                       const mo_plan_share *s, mo_plan_device *d)
{
    int64_t budget = ceiling - d->used;
    if (l->vram_expert_bytes || l->cpu_moe) {
        budget = budget < l->vram_expert_bytes ? budget : l->vram_expert_bytes;
    }
    d->slots = mo_plan_share_out(s, m->class_count, budget, d->class_slots);
    d->used = total(d);
}

static void count_experts(const mo_plan_model *m, mo_plan_device *d)
{
    for (int i = 0; i < m->class_count; i++) {
        d->expert_resident =
            mo_plan_sum(d->expert_resident, mo_plan_times(d->class_slots[i], m->classes[i].bytes));
    }
}

/* Size of the upload buffer: half of the free memory is always enough. */
static int64_t choose_upload(const mo_plan_device *d, int64_t ceiling, int64_t group_bytes)
{
    const int64_t half = (ceiling - upload_peak(d, 0)) / 2,
                  wanted = half < UPLOAD_BYTES ? half : UPLOAD_BYTES;
    return group_bytes == 0 ? 0 : wanted > group_bytes ? wanted / MO_PLAN_GRAIN * MO_PLAN_GRAIN : group_bytes;
}

int64_t mo_plan_vram_held(const mo_plan_limits *l)
{
    return l->vram_held > l->vram_lacking ? l->vram_held - l->vram_lacking : 0;
}

/* The smaller of the ceiling minus other models, and the free memory, which already excludes them. */
static int64_t ceiling_of(const mo_plan_limits *l)
{
    const int64_t held = mo_plan_vram_held(l);
    return l->vram_bytes > held ? l->vram_bytes - held : 1;
}

/* The model as the device sees it: if the CPU computes the layers, only the experts and their tables. */
static mo_plan_model seen_by_device(const mo_plan_model *m)
{
    mo_plan_model seen = *m;
    if (m->core_on_cpu) {
        seen.layer = NULL;
        seen.layers = seen.dense_layers = 0;
        seen.core_bytes = m->device_core_bytes;
        seen.dense_bytes = seen.dense_layer_bytes = seen.dense_buffer_bytes = seen.vector_bytes = 0;
        seen.kv_bytes = seen.device_kv_bytes = 0;
        seen.tied = false;
    }
    return seen;
}

static bool place(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *ram,
                  mo_plan_device *out)
{
    mo_plan_share shares[MO_PLAN_CLASSES];
    want_slots(m, shares);
    const int64_t ceiling = ceiling_of(l);
    mo_placement_counts counts = ram ? mo_placement_counts_of(m, ram) : (mo_placement_counts){.alone = true};
    /* RAM places the core before anything is streamed, so it interleaves exactly what it holds. */
    const mo_placement_sums in_ram = mo_placement_sum(
        m, (mo_placement_counts){.on_disk = counts.on_disk, .streamed = m->dense_layers, .alone = !ram});
    const int64_t group =
        m->device_group_bytes > in_ram.group_bytes ? m->device_group_bytes : in_ram.group_bytes;
    mo_plan_device core = core_parts(m, l, ram), whole = whole_parts(m, l, ram, shares);
    core.interleaved = whole.interleaved = !m->layer || group > 0;
    const bool limited =
        m->class_count > 0 && (l->cpu_moe || l->vram_expert_bytes) && whole.slots > l->vram_expert_bytes;
    const mo_plan_device ahead = stages_ahead(m, l, &core, ceiling);
    mo_plan_device streamed = core, streamed_ahead = ahead;
    int64_t least = needed(&core, group), streamed_least = INT64_MAX, unused;
    const bool streams =
        m->dense_layers && stream_layers(m, ceiling, counts, group, &streamed, &streamed_least);
    const bool streams_ahead =
        m->dense_layers && stream_layers(m, ceiling, counts, group, &streamed_ahead, &unused);
    if (needed(&whole, group) < least && !limited) {
        least = needed(&whole, group);
    }
    if (needed(&whole, group) <= ceiling && !limited) {
        *out = whole;
    } else if (needed(&ahead, group) <= ceiling || (needed(&core, group) <= ceiling && !streams_ahead)) {
        *out = core;
        grow_staging(m, l, ceiling, limited ? 0 : whole.slots, out);
        fill_slots(m, l, ceiling, shares, out);
    } else if (streams_ahead) {
        *out = streamed_ahead;
        grow_staging(m, l, ceiling, 0, out);
    } else if (streams) {
        *out = streamed;
        grow_staging(m, l, ceiling, 0, out);
    } else {
        *out = streamed_least < least ? streamed : least < needed(&core, group) ? whole : core;
    }
    count_experts(m, out);
    out->ceiling = ceiling;
    out->margin = l->vram_margin;
    out->least = streamed_least < least ? streamed_least : least;
    out->whole = needed(&whole, group);
    out->upload = choose_upload(out, ceiling, group);
    out->scratch = l->staging_bytes ? smaller(l->staging_bytes, out->staging) : out->staging;
    memcpy(out->why, l->vram_why, sizeof out->why);
    return out->least <= ceiling;
}

bool mo_plan_device_place(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *ram,
                          mo_plan_device *out)
{
    const mo_plan_model seen = seen_by_device(m);
    return place(&seen, l, ram, out);
}

/* ---- KV cache in RAM ---- */

int mo_plan_device_kv_movable(const mo_plan_model *m, const mo_plan_device *hot)
{
    int count = 0;
    for (int i = 0; m->layer && i < m->layers && m->device_kv_bytes > hot->least / 2; i++) {
        count += m->layer[i].kv_bytes > 0;
    }
    return count;
}

int64_t mo_plan_device_kv_of_last(const mo_plan_model *m, int count)
{
    int64_t bytes = 0;
    for (int i = m->layers - 1; i >= 0 && count > 0; i--) {
        bytes = mo_plan_sum(bytes, m->layer[i].kv_bytes);
        count -= m->layer[i].kv_bytes > 0;
    }
    return bytes;
}

mo_plan_model mo_plan_device_kv_to_ram(const mo_plan_model *m, int64_t bytes)
{
    mo_plan_model rest = *m;
    rest.device_kv_bytes -= bytes / MO_PLAN_GRAIN * MO_PLAN_GRAIN;
    return rest;
}

mo_plan_model mo_plan_device_rest(const mo_plan_model *m, const mo_plan_device *d)
{
    mo_plan_model rest = *m;
    const int64_t most = mo_plan_times(d->streamed, m->dense_layer_bytes);
    rest.dense_layers = d->streamed;
    rest.dense_bytes = rest.core_bytes = most < m->dense_bytes ? most : m->dense_bytes;
    rest.tied = false;
    rest.kv_bytes = 0;
    return rest;
}

/* ---- Speed ---- */

/* Rates in bytes per second. */
typedef struct wires {
    double cpu, link, vram, disk;
    double core; /* of the core, on the processor that computes it */
    double host; /* memory, all readers together */
    double both; /* the CPU computes some of the missing experts while others cross the link: */
    double both_cpu, both_link;
} wires;

/* Copies and the CPU read the same memory: estimates both rates from the single ones if they were not
 * measured together. */
static void divide_memory(wires *w)
{
    w->both = fmax(w->cpu, fmin(w->cpu + w->link, w->host));
    const double narrow = fmax(1, (w->cpu + w->link) / w->both);
    w->both_cpu = w->cpu / narrow;
    w->both_link = w->link / narrow;
}

static wires wires_of(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p)
{
    wires w = {.cpu = p->mode == MO_PLAN_RESIDENT ? mo_rates_products(r) : mo_rates_slots(r),
               .link = mo_rates_link(r, 0, 0), /* for large transfers */
               .vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS,
               .disk = r->disk_bytes_s,
               .host = r->host_bytes_s > 0 ? r->host_bytes_s : r->ram_bytes_s};
    w.core = m->core_on_cpu ? mo_rates_products(r) : w.vram;
    divide_memory(&w);
    return w;
}

/* The rates for experts of a class; small experts get lower ones. */
static wires wires_for(const wires *all, const mo_rates *r, const mo_plan_class *c)
{
    wires w = *all;
    mo_rates_expert e;
    w.link = mo_rates_link(r, (double)c->bytes, MO_RATES_EXPERT_COPIES);
    divide_memory(&w);
    if (mo_rates_expert_of(r, (double)c->bytes, &e)) {
        /* slots have another layout than was measured */
        const double layout = all->cpu / mo_rates_products(r);
        w.cpu = layout * e.cpu_bytes_s;
        w.both_cpu = layout * e.both_cpu_bytes_s;
        w.both_link = e.both_link_bytes_s;
        w.both = fmax(w.cpu, w.both_cpu + w.both_link);
    }
    return w;
}

void mo_plan_device_lanes(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p, double *alone,
                          double *cpu, double *link)
{
    const wires all = wires_of(m, r, p);
    double bytes = 0, seconds[3] = {0};
    for (int i = 0; i < m->class_count; i++) {
        const wires w = wires_for(&all, r, &m->classes[i]);
        const double used = m->classes[i].used_per_token * (double)m->classes[i].bytes;
        bytes += used;
        seconds[0] += used / w.cpu;
        seconds[1] += used / w.both_cpu;
        seconds[2] += used / w.both_link;
    }
    *alone = bytes > 0 ? bytes / seconds[0] : all.cpu;
    *cpu = bytes > 0 ? bytes / seconds[1] : all.both_cpu;
    *link = bytes > 0 ? bytes / seconds[2] : all.both_link;
}

/* Experts of one class for a token. */
typedef struct lane {
    /* bytes: of a token; not in VRAM; not in RAM either; over the link */
    double asked, missing, absent, fetched;
    double hit_s, miss_s, trip_s, disk_s;
    /* missing bytes of one layer; seconds on the CPU alone; seconds with fetches */
    double layer_bytes, layer_alone_s, layer_fetch_s;
    double expert_bytes;
    wires wires;
} lane;

/* Seconds of a layer's missing bytes in Post-Fetch's down mode. Down matrices, a third of the bytes, are
 * copied while the CPU computes gate and up; the device computes them. */
static double down_seconds(double bytes, const wires *w)
{
    const double third = bytes / 3;
    return fmax(fmax(2 * third / w->cpu, MO_FETCH_START_S + third / w->link), bytes / w->host) +
           third / w->vram + MO_PLAN_FETCH_SECONDS;
}

/* Seconds of a layer where each of `used` experts is missing with probability `missing`. Whole experts are
 * divided, as in a run; forced: at least some cross. The mean of all cases; *share of the missing ones
 * crosses. */
static double divided_seconds(double expert_bytes, const wires *w, int used, double missing, bool forced,
                              double *share)
{
    const mo_fetch_costs costs = {.cpu_alone = forced ? INFINITY : expert_bytes / w->cpu,
                                  .cpu = expert_bytes / w->both_cpu,
                                  .link = expert_bytes / w->both_link};
    double seconds = 0, crossing = 0, ways = 1;
    for (int k = 0; k <= used; k++) {
        double layer;
        const int sent = mo_fetch_share(&costs, k, k, &layer);
        const double p = ways * pow(missing, k) * pow(1 - missing, used - k);
        seconds += p * layer;
        crossing += p * sent;
        ways *= (double)(used - k) / (k + 1);
    }
    *share = missing > 0 ? fmin(1, crossing / (used * missing)) : 0;
    return seconds;
}

/* Assumes evenly spread routing, so a class hits in proportion to its slots, unless `hits` is given. */
static lane estimate_class(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *p, int i,
                           const double *hits, const wires *w, double trip)
{
    const mo_plan_class *c = &m->classes[i];
    lane n = {.expert_bytes = (double)c->bytes, .wires = *w};
    if (c->experts == 0) {
        return n;
    }
    const bool resident = p->mode == MO_PLAN_RESIDENT && l->ram_keeps;
    const double experts = (double)c->experts, here = (double)p->device.class_slots[i];
    const double in_ram = resident ? experts : (double)p->class_slots[i];
    /* the number of evenly used experts with the same hit rate */
    const double hot = hits ? hits[i] * experts : here;
    const double there = fmin(experts, hot + in_ram); /* experts in VRAM free their place in RAM */
    const int used = c->used ? c->used : m->used;
    const double layers = used > 0 ? c->used_per_token / used : m->routed_layers;
    double share = 0;
    n.asked = c->used_per_token * (double)c->bytes;
    n.missing = n.asked * (1 - hot / experts);
    n.absent = n.asked * (1 - there / experts);
    n.hit_s = n.asked * (hot / experts) / w->vram;
    n.disk_s = n.absent / w->disk;
    n.layer_bytes = layers > 0 ? n.missing / layers : 0;
    n.layer_alone_s = n.layer_bytes / w->cpu;
    if (l->postfetch == MO_POSTFETCH_OFF || m->core_on_cpu) {
        n.layer_fetch_s = n.layer_alone_s;
    } else if (l->postfetch == MO_POSTFETCH_DOWN) {
        n.layer_fetch_s = down_seconds(n.layer_bytes, w);
        share = 1.0 / 3;
    } else {
        n.layer_fetch_s = divided_seconds(n.expert_bytes, w, used, fmax(0, 1 - hot / experts),
                                          l->postfetch == MO_POSTFETCH_EXPERT, &share);
    }
    const bool fetch = n.missing > 0 && share > 0;
    n.miss_s = layers * (fetch ? n.layer_fetch_s : n.layer_alone_s);
    n.trip_s = here < experts || m->core_on_cpu ? layers * trip : 0;
    n.fetched = fetch ? n.missing * share : 0;
    return n;
}

/* Fixed cost of the layers on the device, beyond their bytes. */
static double layers_seconds(const mo_plan_model *m, double hit_rate)
{
    if (m->core_on_cpu) {
        return 0;
    }
    const int attention = m->layers - m->recurrent_layers;
    return m->layers * MO_PLAN_LAYER_SECONDS -
           attention * hit_rate * (MO_PLAN_LAYER_SECONDS - MO_PLAN_JOINED_SECONDS);
}

/* Describes the class that misses most in one sentence. */
static void explain_lane(const mo_plan_model *m, const mo_plan_limits *l, const lane *most, char *text,
                         size_t size)
{
    const wires *w = &most->wires;
    char bytes[32], expert[32];
    mo_plan_size_text((int64_t)most->layer_bytes, bytes);
    mo_plan_size_text((int64_t)most->expert_bytes, expert);
    if (most->asked == 0) {
        snprintf(text, size, "off: the model has no experts");
    } else if (most->missing == 0) {
        snprintf(text, size, "off: all experts are in VRAM");
    } else if (m->core_on_cpu) {
        snprintf(text, size, "off: the CPU computes the layers, and experts that are not in VRAM");
    } else if (l->postfetch == MO_POSTFETCH_OFF) {
        snprintf(text, size, "off: set by `postfetch` or the environment");
    } else if (most->fetched >= SELDOM * most->missing) {
        snprintf(text, size,
                 "on%s: the %s missing per layer take %.0f us, with the "
                 "CPU alone %.0f us; an expert of %s is copied at %.1f GB/s",
                 l->postfetch == MO_POSTFETCH_DOWN     ? ", for down matrices"
                 : l->postfetch == MO_POSTFETCH_EXPERT ? ", set by `postfetch`"
                                                       : "",
                 bytes, most->layer_fetch_s * 1e6, most->layer_alone_s * 1e6, expert, w->link / 1e9);
    } else if (w->both <= w->cpu) {
        snprintf(text, size, "off: the CPU alone reads memory as fast as CPU and link together, %.1f GB/s",
                 w->cpu / 1e9);
    } else {
        snprintf(
            text, size,
            "off: for the %s missing per layer, %.0f us with the CPU alone, it would seldom save anything",
            bytes, most->layer_alone_s * 1e6);
    }
}

static int64_t rounded(double bytes)
{
    return bytes < (double)INT64_MAX ? (int64_t)llround(bytes) : INT64_MAX;
}

int mo_plan_split_layers(int count, int candidates, double cpu_s, double link_s, double *seconds)
{
    int share = 0;
    *seconds = count * link_s;
    for (int c = 1; c <= candidates; c++) {
        const double both = fmax(c * cpu_s, (count - c) * link_s);
        if (both < *seconds) {
            *seconds = both;
            share = c;
        }
    }
    return share;
}

/* Cost of streamed layers beyond their products, and where they are read from. It is not hidden behind
 * experts, because the link may carry those meanwhile. */
static double estimate_streamed(const mo_plan_model *m, const mo_plan_limits *l, const wires *w,
                                mo_run_plan *p, double *disk_bytes)
{
    if (m->core_on_cpu) {
        *disk_bytes = (double)mo_placement_sum(m, mo_placement_counts_of(m, p)).token_disk_bytes;
        return fmax(0, *disk_bytes / w->disk - *disk_bytes / w->core);
    }
    const double layer = m->dense_layers ? (double)m->dense_bytes / m->dense_layers : 0;
    mo_placement_counts counts = mo_placement_counts_of(m, p);
    counts.by_cpu = 0;
    const int from_disk = mo_placement_sum(m, counts).from_disk, in_ram = p->device.streamed - from_disk;
    const double hidden = layer / w->vram + MO_PLAN_LAYER_SECONDS;
    double seconds;
    counts.by_cpu = p->device.by_cpu =
        mo_plan_split_layers(in_ram, l->cpu_layers ? in_ram : 0, layer / w->cpu + MO_PLAN_HAND_SECONDS,
                             fmax(0, layer / w->link - hidden), &seconds);
    const mo_placement_sums s = mo_placement_sum(m, counts);
    *disk_bytes = (double)s.token_disk_bytes;
    p->device.token_link_bytes = s.token_link_bytes;
    return seconds + from_disk * fmax(0, layer / fmin(w->link, w->disk) - hidden);
}

/* The serial bound: a layer's core, then its experts on the device, then missing ones; disk reads run in
 * parallel. Every sum is arranged to decrease when more is in RAM or VRAM. */
void mo_plan_device_estimate(const mo_plan_model *m, const mo_plan_limits *l, const mo_rates *r,
                             const double *hits, mo_run_plan *p)
{
    const wires w = wires_of(m, r, p);
    const double trip = r->round_trip_s > 0 ? r->round_trip_s : MO_PLAN_TRIP_SECONDS;
    const double core = (double)m->core_bytes + (m->tied ? (double)m->table_bytes : 0);
    mo_plan_device *d = &p->device;
    lane all = {0}, most = {0};
    double layers = 0, disk_bytes;
    d->link_seconds = estimate_streamed(m, l, &w, p, &disk_bytes) +
                      mo_plan_kv_in_ram_token(m, d->kv_in_ram_layers, d->kv_in_ram_bytes) / w.link;
    for (int i = 0; i < m->class_count; i++) {
        const wires own = wires_for(&w, r, &m->classes[i]);
        const lane n = estimate_class(m, l, p, i, hits, &own, trip);
        layers += fmax(n.hit_s + n.miss_s + n.trip_s, n.disk_s);
        all.asked += n.asked;
        all.missing += n.missing;
        all.absent += n.absent;
        all.fetched += n.fetched;
        all.hit_s += n.hit_s;
        all.miss_s += n.miss_s;
        all.trip_s += n.trip_s;
        most = n.layer_bytes > most.layer_bytes || i == 0 ? n : most;
    }
    for (int i = 0; i < m->class_count && !(p->mode == MO_PLAN_RESIDENT && l->ram_keeps); i++) {
        const mo_plan_class *c = &m->classes[i];
        p->expert_resident = mo_plan_sum(p->expert_resident, mo_plan_times(p->class_slots[i], c->bytes));
    }
    d->fetch_share = all.missing > 0 ? all.fetched / all.missing : 0;
    d->fetch = d->fetch_share >= SELDOM;
    d->hit_rate = all.asked > 0 ? 1 - all.missing / all.asked : 1;
    d->token_link_bytes = mo_plan_sum(d->token_link_bytes, rounded(all.fetched));
    d->token_bytes = rounded((m->core_on_cpu ? 0 : core) + all.asked - all.missing + all.fetched);
    d->core_seconds = p->core_seconds = core / w.core;
    d->hit_seconds = all.hit_s;
    d->miss_seconds = all.miss_s;
    const double own = layers_seconds(m, m->class_count ? d->hit_rate : 0);
    d->overhead_seconds = own + all.trip_s;
    explain_lane(m, l, &most, d->lane, sizeof d->lane);
    p->expert_seconds = all.hit_s + all.miss_s;
    p->disk_seconds = (all.absent + disk_bytes) / w.disk;
    p->hit_rate = all.asked > 0 ? 1 - all.absent / all.asked : 1;
    p->token_disk_bytes = rounded(all.absent + disk_bytes);
    p->token_ram_bytes = rounded(fmax(0, (m->core_on_cpu ? core : 0) + all.missing - all.absent +
                                             (double)d->token_link_bytes - all.fetched - disk_bytes));
    const double seconds = d->core_seconds + own + d->link_seconds + layers;
    p->tokens_per_second = core + all.asked > 0 && seconds > 0 ? 1 / seconds : 0;
}
