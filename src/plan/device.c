#include "plan/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/share.h"
#include "plan/text.h"
#include "store/vram.h"

/* ---- Sizes ---- */

/* The core without the layers that can pass through a ring: output matrix, tied embedding, padding. Vectors are counted
 * apart. */
static int64_t fixed_core(const mo_plan_model *m)
{
    if (m->device_core_bytes) {
        const int64_t rest = m->device_core_bytes - m->vector_bytes - m->dense_bytes;
        return rest > 0 ? rest : 0;
    }
    return mo_plan_sum(m->core_bytes - m->dense_bytes, m->tied ? m->table_bytes : 0);
}

static int64_t layer_room(const mo_plan_model *m)
{
    return m->device_layer_room ? m->device_layer_room : m->dense_layer_room;
}

/* All layers together, each with the padding of the largest. */
static int64_t all_layers(const mo_plan_model *m)
{
    const int64_t padding =
        m->dense_layers && !m->device_core_bytes ? layer_room(m) - m->dense_layer_bytes : 0;
    return mo_plan_sum(m->dense_bytes, mo_plan_times(m->dense_layers, padding > 0 ? padding : 0));
}

static int64_t class_room(const mo_plan_model *m, int i)
{
    return m->device_room[i] ? m->device_room[i] : m->classes[i].room;
}

/* Room for experts that pass through, with `spare` bytes left and slots for all of them taking `all`. */
static int64_t staging(const mo_plan_model *m, int64_t ceiling, int64_t spare, int64_t all)
{
    int64_t largest = 0;
    for (int i = 0; i < m->class_count; i++) {
        const int64_t room = m->classes[i].bricks ? class_room(m, i) : 0;
        largest = room > largest ? room : largest;
    }
    if (largest > 0 && m->device_stage_room) {
        return mo_vram_staging(m->device_stage_room, ceiling, spare, all);
    }
    return mo_plan_times(m->in_flight ? m->in_flight : MO_PLAN_IN_FLIGHT, largest);
}

static int64_t total(const mo_plan_device *d)
{
    const int64_t parts[] = {d->core, d->vectors, d->kv, d->work, d->staging, d->ring_bytes, d->slots};
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
        s[i] = (mo_plan_share){
            .room = class_room(m, i), .weight = c->used_per_token * (double)c->bytes, .most = c->bricks};
    }
}

/* The fewest places for experts that pass. */
static int64_t least_staging(const mo_plan_model *m)
{
    return staging(m, 0, 0, 0);
}

/* All of the core, no experts. */
static mo_plan_device core_parts(const mo_plan_model *m)
{
    mo_plan_device d = {.core = mo_plan_sum(fixed_core(m), all_layers(m)),
                        .vectors = m->vector_bytes,
                        .kv = m->kv_bytes,
                        .work = mo_plan_sum(m->device_work_bytes, m->device_map_bytes),
                        .staging = least_staging(m),
                        .layers = m->layers};
    d.used = total(&d);
    return d;
}

/* Everything. Nothing passes after the start; a device that says how it is filled needs stages for that. */
static mo_plan_device whole_parts(const mo_plan_model *m, const mo_plan_share *s)
{
    mo_plan_device d = core_parts(m);
    d.staging = m->device_stage_room ? d.staging : 0;
    d.slots = mo_plan_share_most(s, m->class_count);
    for (int i = 0; i < m->class_count; i++) {
        d.class_slots[i] = (int32_t)s[i].most;
    }
    d.used = total(&d);
    return d;
}

/* No layer stays. */
static mo_plan_device streamed_parts(const mo_plan_model *m, int ring)
{
    mo_plan_device d = core_parts(m);
    d.core = fixed_core(m);
    d.ring = ring;
    d.ring_bytes = mo_plan_times(d.ring, layer_room(m));
    d.layers = m->layers - m->dense_layers;
    d.streamed = m->dense_layers;
    d.used = total(&d);
    return d;
}

/* What is left makes room for more experts on their way, before any of them stays. */
static void grow_staging(const mo_plan_model *m, int64_t ceiling, int64_t all, mo_plan_device *d)
{
    if (m->device_stage_room && d->staging) {
        d->staging = staging(m, ceiling, ceiling - (d->used - d->staging), all);
        d->used = total(d);
    }
}

/* Layers that stay count as the largest, whichever they are. No expert stays before every layer does: a token needs
 * all of a layer, and of its experts a few. */
static void fill_layers(const mo_plan_model *m, int64_t ceiling, mo_plan_device *d)
{
    const int64_t most = m->dense_layers - d->ring - 1; /* with more, all would fit instead of the ring */
    const int64_t fit = (ceiling - d->used) / layer_room(m);
    const int64_t stay = fit < most ? fit : most > 0 ? most : 0;
    d->layers += (int)stay;
    d->streamed -= (int)stay;
    d->core += stay * layer_room(m);
    d->used = total(d);
}

static mo_plan_device fill_ring(const mo_plan_model *m, int64_t ceiling, const mo_plan_device *ample,
                                const mo_plan_device *scant)
{
    mo_plan_device large = *ample, small = *scant;
    fill_layers(m, ceiling, &small);
    if (ample->used > ceiling) {
        return small;
    }
    fill_layers(m, ceiling, &large);
    return mo_plan_layer_buffer_cost(small.streamed, small.ring) <
                   mo_plan_layer_buffer_cost(large.streamed, large.ring)
               ? small
               : large;
}

static void fill_slots(const mo_plan_model *m, const mo_plan_limits *l, const mo_plan_share *s,
                       mo_plan_device *d)
{
    int64_t budget = l->vram_bytes - d->used;
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

bool mo_plan_device_place(const mo_plan_model *m, const mo_plan_limits *l, mo_plan_device *out)
{
    mo_plan_share shares[MO_PLAN_CLASSES];
    want_slots(m, shares);
    const int64_t ceiling = l->vram_bytes;
    const mo_plan_device core = core_parts(m), whole = whole_parts(m, shares);
    const mo_plan_device ample = m->dense_layers ? streamed_parts(m, MO_PLAN_DEVICE_LAYER_BUFFERS) : core;
    const mo_plan_device scant =
        m->dense_layers ? streamed_parts(m, MO_PLAN_DEVICE_LAYER_BUFFERS_LEAST) : core;
    const bool limited =
        m->class_count > 0 && (l->cpu_moe || l->vram_expert_bytes) && whole.slots > l->vram_expert_bytes;
    mo_plan_device least = scant.used < core.used ? scant : core;
    least = whole.used < least.used && !limited ? whole : least;
    if (whole.used <= ceiling && !limited) {
        *out = whole;
    } else if (core.used <= ceiling) {
        *out = core;
        grow_staging(m, ceiling, limited ? 0 : whole.slots, out);
        fill_slots(m, l, shares, out);
    } else if (m->dense_layers && scant.used <= ceiling) {
        *out = fill_ring(m, ceiling, &ample, &scant);
        grow_staging(m, ceiling, 0, out);
    } else {
        *out = least;
    }
    count_experts(m, out);
    out->ceiling = ceiling;
    out->least = least.used;
    out->whole = whole.used;
    memcpy(out->why, l->vram_why, sizeof out->why);
    return out->used <= ceiling;
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

/* Bytes per second. */
typedef struct wires {
    double cpu, link, vram, disk;
    double host; /* memory, whoever reads it */
    double both; /* the CPU computes some of the missing experts while others cross the link */
} wires;

static wires wires_of(const mo_rates *r)
{
    wires w = {.cpu = r->ram_bytes_s * r->compute_share,
               .link = r->link_bytes_s > 0 ? r->link_bytes_s : MO_RATES_LINK_GUESS,
               .vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS,
               .disk = r->disk_bytes_s,
               .host = r->host_bytes_s > 0 ? r->host_bytes_s : r->ram_bytes_s};
    w.both = fmax(w.cpu, fmin(w.cpu + w.link, w.host)); /* copies read the same memory as the CPU */
    return w;
}

/* The experts of one class, for a token. */
typedef struct lane {
    double asked, missing, absent, fetched; /* bytes: of a token; not in VRAM; nor in RAM; over the link */
    double hit_s, miss_s, trip_s, disk_s;
    double layer_bytes, layer_alone_s, layer_fetch_s; /* missing, of one layer; by the CPU, with fetches */
} lane;

/* What a layer's missing bytes take when some of them cross the link, and which share does. Whole experts are split so
 * that CPU and link end together. Down matrices, a third of the bytes, travel while the CPU computes gate and up, and
 * are computed by the device then. */
static double fetch_seconds(double bytes, const wires *w, mo_postfetch_mode mode, double *share)
{
    if (mode == MO_POSTFETCH_DOWN) {
        const double third = bytes / 3;
        *share = 1.0 / 3;
        return fmax(fmax(2 * third / w->cpu, third / w->link), bytes / w->host) + third / w->vram +
               MO_PLAN_FETCH_SECONDS;
    }
    *share = fmin(1, w->link / w->both);
    return bytes / w->both + MO_PLAN_FETCH_SECONDS;
}

/* Routing is taken as evenly spread, so a class hits as often as it has slots for its bricks, unless `hits` knows
 * better. */
static lane estimate_class(const mo_plan_model *m, const mo_plan_limits *l, const mo_plan *p, int i,
                           const double *hits, const wires *w, double trip)
{
    const mo_plan_class *c = &m->classes[i];
    lane n = {0};
    if (c->bricks == 0) {
        return n;
    }
    const bool resident = p->mode == MO_PLAN_RESIDENT && l->ram_keeps;
    const double bricks = (double)c->bricks, here = (double)p->device.class_slots[i];
    const double in_ram = resident ? bricks : (double)p->class_slots[i];
    const double hot = hits ? hits[i] * bricks : here; /* as many, used evenly, would serve as well */
    const double there = fmin(bricks, l->ram_keeps ? fmax(hot, in_ram) : hot + in_ram);
    const int used = c->used ? c->used : m->used;
    const double layers = used > 0 ? c->used_per_token / used : m->routed_layers;
    double share;
    n.asked = c->used_per_token * (double)c->bytes;
    n.missing = n.asked * (1 - hot / bricks);
    n.absent = n.asked * (1 - there / bricks);
    n.hit_s = n.asked * (hot / bricks) / w->vram;
    n.disk_s = n.absent / w->disk;
    n.layer_bytes = layers > 0 ? n.missing / layers : 0;
    n.layer_alone_s = n.layer_bytes / w->cpu;
    n.layer_fetch_s = fetch_seconds(n.layer_bytes, w, l->postfetch, &share);
    const bool free = l->postfetch == MO_POSTFETCH_DEFAULT || l->postfetch == MO_POSTFETCH_AUTO;
    const bool fetch =
        free ? n.layer_fetch_s < n.layer_alone_s : l->postfetch != MO_POSTFETCH_OFF && n.missing > 0;
    n.miss_s = layers * (fetch ? n.layer_fetch_s : n.layer_alone_s);
    n.trip_s = here < bricks ? layers * trip : 0;
    n.fetched = fetch ? n.missing * share : 0;
    return n;
}

/* One sentence about the class that misses most. */
static void explain_lane(const mo_plan_limits *l, const lane *most, const wires *w, char *text, size_t size)
{
    char bytes[32];
    const double saved = most->layer_alone_s + MO_PLAN_FETCH_SECONDS - most->layer_fetch_s;
    mo_plan_size_text((int64_t)most->layer_bytes, bytes);
    if (most->asked == 0) {
        snprintf(text, size, "off: there are no experts");
    } else if (most->missing == 0) {
        snprintf(text, size, "off: no expert is missing in VRAM");
    } else if (l->postfetch == MO_POSTFETCH_OFF) {
        snprintf(text, size, "off: as --postfetch or the environment says");
    } else if (most->fetched > 0) {
        snprintf(text, size, "on%s: the %s that a layer misses take %.0f us, with the CPU alone %.0f us",
                 l->postfetch == MO_POSTFETCH_DOWN     ? ", for down matrices"
                 : l->postfetch == MO_POSTFETCH_EXPERT ? ", as --postfetch says"
                                                       : "",
                 bytes, most->layer_fetch_s * 1e6, most->layer_alone_s * 1e6);
    } else if (w->both <= w->cpu) {
        snprintf(text, size, "off: the CPU alone reads memory as fast as CPU and link together, %.1f GB/s",
                 w->cpu / 1e9);
    } else {
        snprintf(text, size, "off: for the %s that a layer misses it would save %.0f us, and costs %.0f us",
                 bytes, saved * 1e6, MO_PLAN_FETCH_SECONDS * 1e6);
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

/* What layers in passage cost beyond their products, and where they come from. They are not counted as hidden behind
 * experts: the link may carry those meanwhile. */
static double estimate_passage(const mo_plan_model *m, const mo_plan_model *rest, const mo_plan_limits *l,
                               const wires *w, mo_plan *p, double *disk_bytes)
{
    const double layer = m->dense_layers ? (double)m->dense_bytes / m->dense_layers : 0;
    const double passing = p->device.streamed;
    double from_disk = p->mode == MO_PLAN_STREAMED ? rest->dense_layers - p->dense_resident : 0;
    from_disk = l->ram_keeps && m->dense_layers ? from_disk * passing / m->dense_layers : from_disk;
    const double hidden = layer / w->vram + MO_PLAN_LAYER_SECONDS;
    const int in_ram = (int)floor(passing - from_disk);
    double seconds;
    p->device.by_cpu =
        mo_plan_split_layers(in_ram, l->cpu_layers ? in_ram : 0, layer / w->cpu + MO_PLAN_HAND_SECONDS,
                             fmax(0, layer / w->link - hidden), &seconds);
    *disk_bytes = from_disk * layer;
    p->device.token_link_bytes = rounded((passing - p->device.by_cpu) * layer);
    return seconds + (passing - in_ram) * fmax(0, layer / fmin(w->link, w->disk) - hidden);
}

/* The serial bound: a layer's core, then its experts on the device, then those that are missing; reads from disk run
 * beside them. Every sum is made so that it falls when more lies in RAM or in VRAM. */
void mo_plan_device_estimate(const mo_plan_model *m, const mo_plan_model *rest, const mo_plan_limits *l,
                             const mo_rates *r, const double *hits, mo_plan *p)
{
    const wires w = wires_of(r);
    const double trip = r->round_trip_s > 0 ? r->round_trip_s : MO_PLAN_TRIP_SECONDS;
    const double core = (double)m->core_bytes + (m->tied ? (double)m->table_bytes : 0);
    mo_plan_device *d = &p->device;
    lane all = {0}, most = {0};
    double layers = 0, disk_bytes;
    d->link_seconds = estimate_passage(m, rest, l, &w, p, &disk_bytes);
    for (int i = 0; i < m->class_count; i++) {
        const lane n = estimate_class(m, l, p, i, hits, &w, trip);
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
    d->fetch = all.fetched > 0;
    d->fetch_share = all.missing > 0 ? all.fetched / all.missing : 0;
    d->hit_rate = all.asked > 0 ? 1 - all.missing / all.asked : 1;
    d->token_link_bytes = mo_plan_sum(d->token_link_bytes, rounded(all.fetched));
    d->token_bytes = rounded(core + all.asked - all.missing + all.fetched);
    d->core_seconds = p->core_seconds = core / w.vram;
    d->hit_seconds = all.hit_s;
    d->miss_seconds = all.miss_s;
    d->overhead_seconds = m->layers * MO_PLAN_LAYER_SECONDS + all.trip_s;
    explain_lane(l, &most, &w, d->lane, sizeof d->lane);
    p->expert_seconds = all.hit_s + all.miss_s;
    p->disk_seconds = (all.absent + disk_bytes) / w.disk;
    p->hit_rate = all.asked > 0 ? 1 - all.absent / all.asked : 1;
    p->token_disk_bytes = rounded(all.absent + disk_bytes);
    p->token_ram_bytes =
        rounded(fmax(0, all.missing - all.absent + (double)d->token_link_bytes - all.fetched - disk_bytes));
    const double seconds = d->core_seconds + m->layers * MO_PLAN_LAYER_SECONDS + d->link_seconds + layers;
    p->tokens_per_second = core + all.asked > 0 && seconds > 0 ? 1 / seconds : 0;
}
