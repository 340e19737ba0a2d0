/* Sizes come from files, so sums and products saturate: sizes that overflow do not fit either. */
#include "plan/make.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan/arrange.h"
#include "plan/device.h"
#include "plan/kv_in_ram.h"
#include "plan/least.h"
#include "plan/placement.h"
#include "plan/prompt_cost.h"
#include "plan/request.h"
#include "plan/share.h"
#include "plan/text.h"

#define SIZE_MOST  ((int64_t)1 << 60) /* limit of every size in a model */
#define USED_LEAST 1e-6               /* of experts per token, unless 0 */
#define USED_MOST  1e9
/* An arrangement of RAM other than the first that fits must be this much faster, because prompts and reports
 * favor the first. */
#define WORTH 1.01

/* ---- Checks ---- */

static mo_status check_class(const mo_plan_class *c, int index, mo_error *err)
{
    const bool used =
        c->used_per_token == 0 || (c->used_per_token >= USED_LEAST && c->used_per_token <= USED_MOST);
    if (c->bytes < 0 || c->bytes > SIZE_MOST || c->slot_bytes < c->bytes || c->slot_bytes > SIZE_MOST ||
        c->experts < 0 || c->experts > INT32_MAX || (c->experts > 0 && c->slot_bytes == 0) || c->used < 0 ||
        !used) {
        return mo_fail(err, MO_EINVAL,
                       "cannot plan this model: class %d of its experts has %" PRId64 " experts of %" PRId64
                       " bytes in slots of %" PRId64 ", of which a token uses %g",
                       index, c->experts, c->bytes, c->slot_bytes, c->used_per_token);
    }
    return MO_OK;
}

static mo_status check_model(const mo_plan_model *m, mo_error *err)
{
    const struct {
        const char *name;
        int64_t bytes;
    } sizes[] = {{"core", m->core_bytes},
                 {"vectors", m->vector_bytes},
                 {"embedding", m->table_bytes},
                 {"output matrix", m->output_bytes},
                 {"layers", m->dense_bytes},
                 {"largest layer", m->dense_layer_bytes},
                 {"slot for a layer", m->dense_buffer_bytes},
                 {"experts", m->resident_bytes},
                 {"KV cache", m->kv_bytes},
                 {"working memory", m->work_bytes},
                 {"other memory", m->other_bytes},
                 {"staging", m->staging_bytes},
                 {"core on a device", m->device_core_bytes},
                 {"reordered rows on a device", m->device_group_bytes},
                 {"KV cache on a device", m->device_kv_bytes},
                 {"working memory on a device", m->device_work_bytes},
                 {"idle memory on a device", m->device_idle_bytes},
                 {"staging on a device", m->device_stage_bytes},
                 {"staging on a device", m->device_stage_plain},
                 {"memory for a device", m->device_host_bytes},
                 {"table of experts on a device", m->device_map_bytes}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].bytes < 0 || sizes[i].bytes > SIZE_MOST) {
            return mo_fail(err, MO_EINVAL, "cannot plan this model: its %s of %" PRId64 " bytes",
                           sizes[i].name, sizes[i].bytes);
        }
    }
    if (m->layers < 0 || m->used < 0 || m->class_count < 0 || m->class_count > MO_PLAN_CLASSES ||
        m->dense_layers < 0 || m->in_flight < 0) {
        return mo_fail(err, MO_EINVAL,
                       "cannot plan this model: %d layers, %d experts used, %d "
                       "sizes of experts, %d streamed layers, %d concurrent reads",
                       m->layers, m->used, m->class_count, m->dense_layers, m->in_flight);
    }
    if (m->dense_layers > 0 && (m->dense_layer_bytes < 1 || m->dense_buffer_bytes < m->dense_layer_bytes ||
                                m->dense_bytes > m->core_bytes ||
                                m->dense_bytes > mo_plan_times(m->dense_layers, m->dense_layer_bytes))) {
        return mo_fail(err, MO_EINVAL,
                       "cannot plan this model: %d layers of at most %" PRId64 " bytes in slots of %" PRId64
                       " are given as %" PRId64 " bytes of a core of %" PRId64,
                       m->dense_layers, m->dense_layer_bytes, m->dense_buffer_bytes, m->dense_bytes,
                       m->core_bytes);
    }
    mo_status status = MO_OK;
    for (int i = 0; i < m->class_count && status == MO_OK; i++) {
        status = check_class(&m->classes[i], i, err);
        if (status == MO_OK && (m->device_slot_bytes[i] < 0 || m->device_slot_bytes[i] > SIZE_MOST)) {
            status = mo_fail(err, MO_EINVAL,
                             "cannot plan this model: class %d of its experts in slots of %" PRId64
                             " bytes on a device",
                             i, m->device_slot_bytes[i]);
        }
    }
    return status;
}

static mo_status check_limits(const mo_plan_limits *l, const mo_rates *r, mo_error *err)
{
    if (l->ram_bytes < 1) {
        return mo_fail(err, MO_EINVAL,
                       "invalid RAM ceiling of %" PRId64 " bytes; `ram_bytes` must be above 0", l->ram_bytes);
    }
    if (l->ram_held < 0 || l->vram_held < 0) {
        return mo_fail(err, MO_EINVAL, "other models cannot hold %" PRId64 " bytes",
                       l->ram_held < 0 ? l->ram_held : l->vram_held);
    }
    if (l->vram_bytes < 0 || l->vram_expert_bytes < 0) {
        return mo_fail(err, MO_EINVAL,
                       "invalid VRAM ceiling of %" PRId64 " bytes; `vram_bytes` must be above 0",
                       l->vram_bytes < 0 ? l->vram_bytes : l->vram_expert_bytes);
    }
    const double compute = r->ram_bytes_s * r->compute_share;
    if (!(compute > 0 && isfinite(compute)) || !(r->disk_bytes_s > 0 && isfinite(r->disk_bytes_s))) {
        return mo_fail(err, MO_EINVAL,
                       "the machine's rates must be above 0: memory %g bytes/s, share reached "
                       "by products %g, disk %g bytes/s; measure them with moraine probe",
                       r->ram_bytes_s, r->compute_share, r->disk_bytes_s);
    }
    return MO_OK;
}

/* ---- Speed ---- */

static int64_t rounded(double bytes)
{
    return bytes < (double)INT64_MAX ? (int64_t)llround(bytes) : INT64_MAX;
}

/* Per token: the core's products, and for every layer the longer of its experts' products and missing reads
 * plus a part of the shorter. A streamed layer adds the time by which its read exceeds its products. Assumes
 * evenly spread routing, so a class hits in proportion to its slots, unless `hits` is given. Every sum is
 * arranged to decrease when more is in RAM, in floating point too. */
static void estimate(const mo_plan_model *m, const mo_rates *r, const double *hits, mo_run_plan *p)
{
    const double compute = mo_rates_products(r), disk = r->disk_bytes_s;
    const double experts = p->mode == MO_PLAN_RESIDENT ? compute : mo_rates_slots(r);
    const double core = (double)m->core_bytes + (double)p->table;
    double missing = 0, asked = 0, layers = 0;
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        const double bytes = c->experts ? c->used_per_token * (double)c->bytes : 0;
        const double there = p->mode == MO_PLAN_RESIDENT ? (double)c->experts : (double)p->class_slots[i];
        const double share = hits ? hits[i] : there / (double)c->experts;
        const double absent = c->experts ? bytes * (1 - share) : 0;
        layers += mo_rates_layer(bytes / experts, absent / disk);
        missing += absent;
        asked += bytes;
        if (p->mode != MO_PLAN_RESIDENT) {
            p->expert_resident = mo_plan_sum(p->expert_resident, mo_plan_times(p->class_slots[i], c->bytes));
        }
    }
    const mo_placement_counts counts = mo_placement_counts_of(m, p);
    const double streamed = counts.on_disk ? (double)mo_placement_sum(m, counts).token_disk_bytes : 0;
    p->core_seconds = core / compute;
    p->expert_seconds = asked / experts;
    p->disk_seconds = (missing + streamed) / disk;
    p->hit_rate = asked > 0 ? 1 - missing / asked : 1;
    p->token_disk_bytes = rounded(missing + streamed);
    p->token_ram_bytes = rounded(fmax(0, core + asked - missing - streamed));
    const double seconds = p->core_seconds + fmax(0, streamed / disk - streamed / compute) + layers;
    p->tokens_per_second = seconds > 0 ? 1 / seconds : 0;
}

/* ---- The plan ---- */

static void list_locations(const mo_plan_limits *l, mo_run_plan *p)
{
    p->location[MO_AT_DISK] = mo_location_here(MO_TIER_DISK, 0);
    p->location[MO_AT_RAM] = mo_location_here(MO_TIER_RAM, 0);
    p->location[MO_AT_VRAM] = l->vram_location;
    p->location_count = l->vram_bytes > 0 ? MO_AT_VRAM + 1 : MO_AT_RAM + 1;
}

static void explain(const mo_plan_limits *l, mo_run_plan *p)
{
    char size[32], held[32];
    if (l->why[0]) {
        snprintf(p->why, sizeof p->why, "%s", l->why);
    } else {
        snprintf(p->why, sizeof p->why, "a ceiling of %s was given", mo_plan_size_text(l->ram_bytes, size));
    }
    if (l->ram_held > 0) {
        const size_t used = strlen(p->why);
        snprintf(p->why + used, sizeof p->why - used, ", other models use %s",
                 mo_plan_size_text(l->ram_held, held));
    }
}

/* Link traffic besides experts if some layers have their KV cache in RAM and others are streamed. */
typedef struct crossing {
    double token;   /* bytes: streamed layers, and the KV cache of half a context */
    double request; /* the same for a request (plan/request.h) */
} crossing;

/* A placement with the KV cache of some layers in RAM. */
typedef struct kv_moved {
    mo_run_plan ram;
    mo_plan_device device;
    int64_t bytes; /* KV cache of these layers */
    bool fits;     /* the device has enough memory */
    crossing link;
} kv_moved;

static crossing crossing_of(const mo_plan_model *m, const mo_plan_device *d, int count,
                            int64_t kv_in_ram_bytes)
{
    const double layers = d->streamed ? (double)m->dense_bytes * d->streamed / m->dense_layers : 0;
    const int64_t prompt = m->context < MO_PLAN_PROMPT_MOST ? m->context : MO_PLAN_PROMPT_MOST;
    const int64_t steps = m->batch > 0 ? (prompt + m->batch - 1) / m->batch : prompt > 0;
    crossing c = {.token = layers + mo_plan_kv_in_ram_token(m, count, kv_in_ram_bytes)};
    c.request = prompt > 0
                    ? c.token * (double)prompt / MO_PLAN_PROMPT_PER_ANSWER + layers * (double)steps +
                          mo_plan_kv_in_ram_prompt(m, count, mo_plan_request_from(m->context, prompt), prompt)
                    : c.token;
    return c;
}

/* Returns false if RAM has no space for this many layers; then more do not fit either. */
static bool kv_to_ram(const mo_wanted *w, const mo_plan_limits *l, mo_arrangement how, int64_t ceiling,
                      int count, kv_moved *out)
{
    out->bytes = mo_plan_device_kv_of_last(w->whole, count);
    out->device = (mo_plan_device){0};
    { /* separate scope from the model below: callers may have small stacks */
        mo_wanted more = *w;
        more.model.kv_bytes = mo_plan_sum(more.model.kv_bytes, out->bytes);
        if (!mo_plan_arrange(&more, how, ceiling, &out->ram)) {
            return false;
        }
    }
    const mo_plan_model model = mo_plan_device_kv_to_ram(w->whole, out->bytes);
    out->fits = mo_plan_device_place(&model, l, &out->ram, &out->device);
    out->link = crossing_of(&model, &out->device, count, out->bytes);
    return true;
}

/* Adopts a placement with the KV cache of `count` layers in RAM. */
static void take_kv_in_ram(const kv_moved *c, int count, mo_run_plan *p, mo_plan_device *d)
{
    const mo_run_plan was = *p;
    *p = c->ram;
    p->alone = was.alone;
    p->location_count = was.location_count;
    memcpy(p->location, was.location, sizeof p->location);
    memcpy(p->why, was.why, sizeof p->why);
    *d = c->device;
    d->kv_in_ram_layers = count;
    d->kv_in_ram_bytes = c->bytes;
}

/* Number of layers, at most `most`, whose KV cache goes to RAM: the one with the least link traffic for a
 * request, within a limit per token. 0: none, `hot`. */
static int kv_in_ram_within(const mo_wanted *w, const mo_plan_limits *l, mo_arrangement how, int64_t ceiling,
                            int most, double token, const crossing *hot)
{
    double best = hot && hot->token <= token ? hot->request : INFINITY;
    int chosen = 0;
    kv_moved c;
    for (int n = 1; n <= most && kv_to_ram(w, l, how, ceiling, n, &c); n++) {
        if (c.fits && c.link.token <= token && c.link.request < best) {
            best = c.link.request;
            chosen = n;
        }
    }
    return chosen;
}

/* Places the device's part after RAM. If it does not fit, or layers must be streamed, the KV cache of some
 * layers moves to RAM, and RAM is placed again. The number of layers minimizes the link traffic of a request
 * among those with nearly the least traffic per answer token. Returns false if nothing fits; *d is then the
 * smallest arrangement. */
static bool place_beside(const mo_wanted *w, const mo_plan_limits *l, mo_arrangement how, int64_t ceiling,
                         mo_run_plan *p, mo_plan_device *d)
{
    const bool fits = mo_plan_device_place(w->whole, l, p, d);
    const int most = mo_plan_device_kv_movable(w->whole, d);
    const crossing none = {.token = INFINITY, .request = INFINITY};
    const crossing hot = fits ? crossing_of(w->whole, d, 0, 0) : none;
    const int64_t whole = d->whole;
    crossing best = hot;
    double token = hot.token;
    int64_t least = d->least;
    int chosen = 0, smallest = 0;
    kv_moved c;
    for (int n = 1; n <= most && kv_to_ram(w, l, how, ceiling, n, &c); n++) {
        if (c.fits && c.link.request < best.request) {
            best = c.link;
            chosen = n;
        }
        token = c.fits ? fmin(token, c.link.token) : token;
        smallest = c.device.least < least ? n : smallest;
        least = c.device.least < least ? c.device.least : least;
    }
    const bool any = isfinite(best.request);
    if (any && best.token > MO_PLAN_TOKEN_WORTH * token) {
        chosen = kv_in_ram_within(w, l, how, ceiling, most, MO_PLAN_TOKEN_WORTH * token, fits ? &hot : NULL);
    }
    const int count = any ? chosen : smallest;
    if (count > 0 && kv_to_ram(w, l, how, ceiling, count, &c)) {
        take_kv_in_ram(&c, count, p, d);
    }
    d->whole = whole;
    d->least = least;
    return any;
}

/* The same with another arrangement of RAM, if that fits. If the device then fits, or lacks less, *p is
 * replaced. */
static bool place_otherwise(const mo_wanted *w, const mo_plan_limits *l, mo_arrangement how, int64_t ceiling,
                            mo_run_plan *p, mo_plan_device *d)
{
    mo_run_plan other;
    mo_plan_device beside = {0};
    if (!mo_plan_arrange(w, how, ceiling, &other)) {
        return false;
    }
    other.alone = p->alone;
    other.location_count = p->location_count;
    memcpy(other.location, p->location, sizeof other.location);
    memcpy(other.why, p->why, sizeof other.why);
    const bool fits = place_beside(w, l, how, ceiling, &other, &beside);
    if (fits || beside.least < d->least) {
        beside.whole = d->whole;
        *p = other;
        *d = beside;
    }
    return fits;
}

/* If the device's share of RAM leaves no space for all experts, they go to slots. If it leaves none for some
 * layers that RAM keeps (RAM must then pass the largest itself), RAM keeps no layer: more RAM must never make
 * a plan impossible. */
static bool place_with_device(const mo_wanted *w, const mo_plan_limits *l, int64_t ceiling, mo_run_plan *p,
                              mo_plan_device *d)
{
    const bool streamed = p->mode == MO_PLAN_STREAMED;
    return place_beside(w, l, MO_ARRANGE_AS_FITS, ceiling, p, d) ||
           (mo_plan_slots_take_less(w) && place_otherwise(w, l, MO_ARRANGE_SLOTS, ceiling, p, d)) ||
           (streamed && place_otherwise(w, l, MO_ARRANGE_DISK, ceiling, p, d));
}

/* Number of layers that are neither in RAM nor in VRAM. */
static int from_disk(const mo_plan_model *m, const mo_run_plan *p)
{
    return mo_placement_sum(m, mo_placement_counts_of(m, p)).from_disk;
}

/* Replaces *p by another arrangement of RAM if it fits and is faster by the factor `worth`. Without layer
 * buffers the device must have every layer that RAM does not. */
static void compare(const mo_wanted *w, const mo_plan_limits *limits, const mo_rates *rates, double worth,
                    mo_run_plan *q, mo_run_plan *p)
{
    q->ceiling = p->ceiling;
    if (q->used > q->ceiling || !mo_plan_device_place(w->whole, limits, q, &q->device) ||
        (q->mode == MO_PLAN_STREAMED && from_disk(w->whole, q) > 0)) {
        return;
    }
    q->least = p->least;
    q->whole = p->whole;
    q->device.least = p->device.least;
    memcpy(q->location, p->location, sizeof q->location);
    q->location_count = p->location_count;
    memcpy(q->why, p->why, sizeof q->why);
    mo_plan_device_estimate(w->whole, limits, rates, NULL, q);
    if (p->mode == MO_PLAN_RESIDENT && q->device.hit_rate < 1 &&
        mo_plan_request_seconds(w->whole, rates, q) > mo_plan_request_seconds(w->whole, rates, p)) {
        /* experts that are all in RAM permanently cross in larger windows, which makes prompts faster */
        return;
    }
    if (q->tokens_per_second >= worth * p->tokens_per_second) {
        *p = *q;
    }
}

/* With a device, the first arrangement of RAM that fits need not be the fastest. If everything fits, experts
 * in slots need less staging, so VRAM may hold all experts. If the device has every layer, RAM may leave the
 * cores on disk and hold experts instead. More memory improves every candidate and so their maximum, except
 * within the margin for a change. */
static void prefer(const mo_wanted *w, const mo_plan_limits *limits, const mo_rates *rates, mo_run_plan *p)
{
    const int64_t ceiling = p->ceiling;
    /* not even the state has enough space */
    if (w->model.class_count == 0 || p->device.kv_in_ram_layers > 0) {
        return;
    }
    for (mo_arrangement how = MO_ARRANGE_SLOTS; how < MO_ARRANGEMENTS; how++) {
        mo_run_plan q;
        if ((how != MO_ARRANGE_SLOTS || p->mode != MO_PLAN_SLOTS) && mo_plan_arrange(w, how, ceiling, &q)) {
            compare(w, limits, rates, WORTH, &q, p);
        }
    }
}

/* ---- Without layer buffers ---- */

/* Buffers for layers in VRAM would have no reader, so their memory goes to layers and experts. Tried whenever
 * RAM streams, since such a plan may leave no layer on disk where one with buffers would. Afterwards *w has
 * no buffers. */
static void drop_buffers(mo_wanted *w, const mo_plan_limits *limits, const mo_rates *rates, mo_run_plan *p)
{
    static const mo_arrangement ways[] = {MO_ARRANGE_AS_FITS, MO_ARRANGE_DISK};
    const bool streams = p->mode == MO_PLAN_STREAMED && p->device.kv_in_ram_layers == 0;
    mo_run_plan q;
    w->unbuffered = true;
    for (int i = 0; streams && i < (w->model.class_count > 0 ? 2 : 1); i++) {
        if (mo_plan_arrange(w, ways[i], p->ceiling, &q)) {
            compare(w, limits, rates, 1, &q, p);
        }
    }
    if (p->mode == MO_PLAN_STREAMED && p->layer_buffers > 0 && from_disk(w->whole, p) == 0) {
        const int64_t buffer =
            mo_placement_sum(w->whole, mo_placement_counts_of(w->whole, p)).ram_buffer_bytes;
        const int64_t saved = mo_plan_times(p->layer_buffers, buffer);
        p->layer_pass = mo_plan_pass_bytes(w, buffer);
        p->staging -= saved;
        p->used -= saved;
        p->layer_buffers = 0;
    }
}

/* ---- Refusals ---- */

/* Finds the lowest sufficient ceilings, each with the other unchanged. */
static mo_status refuse(const mo_plan_model *model, const mo_plan_limits *limits, const mo_run_plan *plan,
                        mo_error *err)
{
    mo_plan_advice a = {.ram = plan->used,
                        .ram_held = limits->ram_held,
                        .vram_held = mo_plan_vram_held(limits),
                        .ram_ceiling = limits->ram_bytes};
    if (err && limits->vram_bytes > 0 && limits->ram_keeps) {
        const int64_t ram = mo_plan_least_ram(model, limits);
        a.ram = ram > 0 ? ram : a.ram;
        if (ram == 0) { /* VRAM is too small as well */
            mo_plan_limits enough = *limits;
            enough.ram_bytes = mo_plan_sum(a.ram, limits->ram_held);
            a.vram = mo_plan_sum(mo_plan_least_vram(model, &enough), mo_plan_vram_held(limits));
        }
    }
    a.ram = mo_plan_sum(a.ram, limits->ram_held);
    return mo_plan_refuse(plan, &a, err);
}

static mo_status refuse_device(const mo_plan_model *model, const mo_plan_limits *limits,
                               const mo_plan_device *d, mo_error *err)
{
    mo_plan_advice a = {.vram = mo_plan_sum(d->least, mo_plan_vram_held(limits)),
                        .vram_there = limits->vram_there,
                        .vram_held = mo_plan_vram_held(limits),
                        .vram_ceiling = limits->vram_bytes};
    if (err) {
        const int64_t vram = mo_plan_least_vram(model, limits), ram = mo_plan_least_ram(model, limits);
        a.vram = vram > 0 ? mo_plan_sum(vram, a.vram_held) : a.vram;
        a.ram = mo_plan_sum(ram, limits->ram_held);
        /* a ceiling below the current one is no advice */
        a.ram = ram > 0 && a.ram > limits->ram_bytes ? a.ram : 0;
    }
    return mo_plan_refuse_device(d, &a, err);
}

/* A limit on staging must hold one copy of Post-Fetch: a down matrix or an expert. Prompts copy whole
 * experts, so staging always holds one. */
static mo_status check_scratch(const mo_plan_model *m, const mo_plan_limits *limits, const mo_plan_device *d,
                               mo_error *err)
{
    const int64_t mib = (int64_t)1 << 20, layouts = d->staged ? 2 : 1;
    const bool down = limits->postfetch == MO_POSTFETCH_DOWN && m->device_down_bytes > 0;
    const int64_t one = down ? layouts * m->device_down_bytes : d->stage_bytes;
    if (!limits->staging_bytes || limits->staging_bytes >= one) {
        return MO_OK;
    }
    return mo_fail(err, MO_EINVAL,
                   "LLAMA_POSTFETCH_SCRATCHPAD_MB=%" PRId64 ": too small; the minimum is %" PRId64
                   ", for %s%s; 0 means as much as needed",
                   limits->staging_bytes / mib, (one + mib - 1) / mib,
                   down ? "one down matrix" : "one expert",
                   d->staged ? " in the layouts of RAM and of the file" : "");
}

mo_status mo_plan_make(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                       mo_run_plan *out, mo_error *err)
{
    mo_run_plan plan;
    mo_status status = check_model(model, err);
    if (status == MO_OK) {
        status = check_limits(limits, rates, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const bool device = limits->vram_bytes > 0, rest = device && !limits->ram_keeps;
    mo_plan_device on_device = {0};
    if (rest && !mo_plan_device_place(model, limits, NULL, &on_device)) {
        const int64_t held = mo_plan_vram_held(limits);
        return mo_plan_refuse_device(&on_device,
                                     &(mo_plan_advice){.vram = mo_plan_sum(on_device.least, held),
                                                       .vram_held = held,
                                                       .vram_ceiling = limits->vram_bytes},
                                     err);
    }
    /* the device first: RAM gets the rest */
    mo_wanted w = mo_plan_want(model, device, rest ? &on_device : NULL);
    const int64_t left = limits->ram_bytes - limits->ram_held;
    const bool fits = mo_plan_arrange(&w, MO_ARRANGE_AS_FITS, left > 0 ? left : 0, &plan);
    list_locations(limits, &plan);
    explain(limits, &plan);
    if (!fits) {
        return refuse(model, limits, &plan, err);
    }
    plan.alone = rest;
    if (device && !rest && !place_with_device(&w, limits, left > 0 ? left : 0, &plan, &on_device)) {
        return refuse_device(model, limits, &on_device, err);
    }
    plan.device = on_device;
    if (device) {
        mo_plan_device_estimate(model, limits, rates, NULL, &plan);
        if (!rest && !limits->plain) {
            prefer(&w, limits, rates, &plan);
        }
        if (!rest) {
            drop_buffers(&w, limits, rates, &plan);
        }
    } else {
        estimate(model, rates, NULL, &plan);
    }
    status = check_scratch(model, limits, &plan.device, err);
    if (status == MO_OK) {
        *out = plan;
    }
    return status;
}

void mo_plan_estimate(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                      const double *hits, mo_run_plan *plan)
{
    if (plan->mode != MO_PLAN_RESIDENT) {
        plan->expert_resident = 0; /* already counted with the slots */
    }
    if (plan->device.ceiling) {
        mo_plan_device_estimate(model, limits, rates, hits, plan);
    } else {
        estimate(model, rates, hits, plan);
    }
}
