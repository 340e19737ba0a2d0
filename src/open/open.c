#include "open/open.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "plan/disk_rate.h"
#include "plan/least.h"
#include "plan/prompt.h"

/* ---- Planning ---- */

/* Shorter sessions are better than no plan, and than a plan without the device; this is the minimum. */
enum { CONTEXT_LEAST = 512, CONTEXT_LEAST_DEVICE = 2048 };

/* Automatically chosen devices share a model if a token is this much faster than with the best of them alone. */
#define WORTH_SHARING 1.02

static mo_status need(const char *path, const mo_requirements_options *requirements, mo_placed *out,
                      mo_error *err)
{
    *out = (mo_placed){0};
    const mo_status status = mo_requirements_of(path, requirements, &out->requirements, err);
    if (status != MO_OK) {
        return status;
    }
    out->layers = calloc((size_t)out->requirements.model.layers + 1, sizeof *out->layers);
    return out->layers ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
}

static mo_status place_on(const char *path, const mo_requirements_options *requirements,
                          const mo_plan_limits *limits, const mo_rates *rates, mo_placed *out, mo_error *err)
{
    mo_status status = need(path, requirements, out, err);
    if (status == MO_OK) {
        status = mo_plan_choose(&out->requirements.model, limits, rates, &out->plan, err);
    }
    return status == MO_OK || !out->layers ? status : mo_fail_prefix(err, status, "%s", path);
}

/* As if the devices were one. Each has pinned memory of its own. */
static mo_status place_together(const char *path, const mo_requirements_options *requirements,
                                const mo_resources *resources, mo_placed *out, mo_error *err)
{
    mo_status status = need(path, requirements, out, err);
    if (status != MO_OK) {
        return status;
    }
    mo_plan_model *m = &out->requirements.model;
    m->device_host_bytes = resources->device_count * (m->device_host_bytes + m->device_piece_bytes);
    for (int i = 0; i < m->batch_count; i++) {
        mo_plan_batch *b = &m->batches[i];
        b->device_host_bytes = resources->device_count * (b->device_host_bytes + b->device_piece_bytes);
    }
    mo_plan_device_limits sum = mo_plan_devices_sum(m, resources->each, resources->device_count);
    return mo_plan_choose(m, &sum.limits, &sum.rates, &out->plan, err);
}

/* RAM and the batch are decided for all devices together; then, with what layers need for this batch, their layers. */
static mo_status place_divided(const char *path, const mo_requirements_options *requirements,
                               const mo_resources *resources, mo_placed *out, mo_error *err)
{
    mo_requirements_options o = *requirements;
    mo_status status = place_together(path, &o, resources, out, err);
    if (status == MO_OK && o.batch == 0) {
        char why[sizeof out->plan.batch_why];
        memcpy(why, out->plan.batch_why, sizeof why);
        o.batch = out->requirements.model.batch;
        o.context = out->requirements.model.context;
        mo_placed_drop(out);
        status = place_together(path, &o, resources, out, err);
        memcpy(out->plan.batch_why, why, sizeof why);
    }
    if (status == MO_OK) {
        out->division = calloc(1, sizeof *out->division);
        status = out->division
                     ? mo_plan_divide(&out->requirements.model, resources->each, resources->device_count,
                                      !resources->any_device, &out->plan, out->division, err)
                     : mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    return status == MO_OK || !out->layers ? status : mo_fail_prefix(err, status, "%s", path);
}

static mo_status place_once(const char *path, const mo_requirements_options *requirements,
                            const mo_resources *resources, mo_placed *out, mo_error *err)
{
    return resources->device_count > 1
               ? place_divided(path, requirements, resources, out, err)
               : place_on(path, requirements, &resources->limits, &resources->rates, out, err);
}

/* Why a device was too small: the sentence of the context that needs the fewest bytes of it. */
typedef struct refusal {
    int64_t vram_bytes; /* 0: none yet */
    mo_error why;
} refusal;

static void keep_lowest(const mo_resources *resources, const mo_placed *p, const mo_error *why,
                        refusal *lowest)
{
    const int64_t vram =
        resources->device_count > 1 ? 0 : mo_plan_least_vram(&p->requirements.model, &resources->limits);
    if (lowest->vram_bytes == 0 || (vram > 0 && vram < lowest->vram_bytes)) {
        *lowest = (refusal){.vram_bytes = vram, .why = *why};
    }
}

/* A default context is halved until the model fits. If a device is too small for all of them, the longest may need least:
 * a KV cache that is most of the memory can be in RAM. *asked: the one before. */
static mo_status place(const char *path, const mo_requirements_options *requirements,
                       const mo_resources *resources, int64_t *asked, mo_placed *out, mo_error *err)
{
    const int64_t least =
        resources->limits.vram_bytes && resources->any_device ? CONTEXT_LEAST_DEVICE : CONTEXT_LEAST;
    mo_requirements_options o = *requirements;
    refusal lowest = {0};
    mo_status status = place_once(path, &o, resources, out, err);
    *asked = out->requirements.model.context;
    while ((status == MO_ENOMEM || status == MO_EDEVICE) && requirements->context == 0 &&
           out->requirements.model.context / 2 >= least) {
        if (status == MO_EDEVICE) {
            keep_lowest(resources, out, err, &lowest);
        }
        o.context = out->requirements.model.context / 2;
        mo_placed_drop(out);
        status = place_once(path, &o, resources, out, err);
    }
    if (status == MO_EDEVICE && lowest.vram_bytes > 0) {
        keep_lowest(resources, out, err, &lowest);
        *err = lowest.why;
    }
    return status;
}

/* The device with which alone a token is fastest, and how many there are then in a second. *alone: to plan in. */
static int fastest_device(const char *path, const mo_requirements_options *requirements,
                          const mo_resources *resources, mo_placed *alone, double *speed)
{
    int best = 0;
    *speed = 0;
    for (int i = 0; i < resources->device_count; i++) {
        mo_error ignored = {0};
        const mo_plan_device_limits *c = &resources->alone[i];
        if (place_on(path, requirements, &c->limits, &c->rates, alone, &ignored) == MO_OK &&
            alone->plan.tokens_per_second > *speed) {
            *speed = alone->plan.tokens_per_second;
            best = i;
        }
        mo_placed_drop(alone);
    }
    return best;
}

/* Several devices share the layers, unless one of them alone does better: it can stream what does not fit. If several
 * were named, this is logged. Plans are large: both are on the heap. */
static mo_status settle_devices(const char *path, const mo_requirements_options *requirements,
                                mo_resources *resources, mo_error *err)
{
    mo_placed *shared = calloc(2, sizeof *shared);
    if (!shared) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    mo_error why = {0};
    int64_t asked;
    double alone = 0;
    const bool named = !resources->any_device;
    const mo_status status = place(path, requirements, resources, &asked, shared, &why);
    const bool divided = status == MO_OK && shared->division->count > 1;
    const int best = divided && named ? 0 : fastest_device(path, requirements, resources, shared + 1, &alone);
    if (!divided || (!named && shared->plan.tokens_per_second < WORTH_SHARING * alone)) {
        const int device = status == MO_OK && !divided && named ? shared->division->run[0].device : best;
        mo_log(named ? MO_LOG_WARN : MO_LOG_INFO, "device", "only one of %d devices is used, %s: %s",
               resources->device_count, resources->each[device].rates.device,
               status != MO_OK ? why.detail
               : divided       ? "the others would not make a token faster"
                               : "the others are too small for a layer, or would make a token slower");
        mo_resources_use_device(resources, device);
    }
    mo_placed_drop(shared);
    free(shared);
    return MO_OK;
}

mo_status mo_placed_make(const char *path, const mo_requirements_options *requirements,
                         mo_resources *resources, mo_placed *out, mo_error *err)
{
    mo_error small = {0};
    int64_t asked = 0;
    mo_resources_count_held(resources);
    mo_status status =
        resources->device_count > 1 ? settle_devices(path, requirements, resources, err) : MO_OK;
    if (status != MO_OK) {
        *out = (mo_placed){0};
        return status;
    }
    status = place(path, requirements, resources, &asked, out, &small);
    if (status == MO_EDEVICE && resources->any_device) {
        mo_resources_drop_device(resources, small.detail);
        mo_placed_drop(out);
        status = place(path, requirements, resources, &asked, out, &small);
    }
    if (status != MO_OK) {
        mo_placed_drop(out);
        return mo_fail(err, status, "%s", small.detail);
    }
    if (out->requirements.model.context < asked) {
        mo_log(MO_LOG_WARN, "plan",
               "the context is %lld tokens instead of %lld: there is no "
               "memory for more; raise `ram_bytes`%s, or set `context`",
               (long long)out->requirements.model.context, (long long)asked,
               resources->limits.vram_bytes ? " or `vram_bytes`" : "");
    }
    mo_placement_list(&out->requirements.model, &out->plan, out->layers);
    return MO_OK;
}

void mo_placed_drop(mo_placed *p)
{
    mo_requirements_drop(&p->requirements);
    free(p->layers);
    free(p->division);
    *p = (mo_placed){0};
}

mo_placement mo_placed_view(const mo_placed *p)
{
    return (mo_placement){.model = &p->requirements.model, .plan = &p->plan, .layers = p->layers};
}

/* ---- Opening ---- */

/* With a device the hot cache is there, and RAM follows its policy. */
static bool wants_hot_set(const mo_open_options *o)
{
    return o->resources->hot.file && !o->resources->limits.vram_bytes;
}

/* The slots: those of the hot set where there is one, otherwise as planned. */
static mo_status choose_slots(const mo_open_options *o, uint64_t hot_bytes, mo_opened *out, mo_error *err)
{
    mo_expert_table *experts = NULL;
    mo_status status = mo_expert_table_create(out->model, &experts, err);
    if (status == MO_OK) {
        status = mo_hot_set_choose(&o->resources->hot, out->model, experts, hot_bytes, &out->placed.plan,
                                   &out->hot, err);
    }
    mo_expert_table_destroy(experts);
    return status;
}

static mo_status open_tiers(const mo_open_options *o, uint64_t hot_bytes, mo_opened *out, mo_error *err)
{
    mo_tiers_options t = {.layer_slots = out->placed.plan.layer_buffers,
                          .predict = o->predict,
                          .skip_missing = o->skip_missing};
    size_t homes = 0;
    mo_status status = MO_OK;
    mo_checkpoint_homes(out->model, &homes);
    if (homes == 0) {
        return MO_OK;
    }
    if (hot_bytes > 0) {
        status = choose_slots(o, hot_bytes, out, err);
    }
    if (status != MO_OK) {
        return status;
    }
    t.store.policy = o->policy;
    t.store.disk = o->disk;
    t.store.static_set = hot_bytes > 0;
    for (int i = 0; i < MO_EXPERT_CLASSES; i++) {
        t.store.class_slots[i] = out->placed.plan.class_slots[i];
    }
    return mo_tiers_open(out->model, &t, &out->tiers, err);
}

static mo_status load(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_model *m = &out->placed.requirements.model;
    bool *leave = calloc((size_t)m->layers + 1, sizeof *leave);
    const bool resident = out->placed.plan.mode == MO_PLAN_RESIDENT;
    if (!leave) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %s; free some and try again", path);
    }
    for (int i = 0; i < m->layers; i++) {
        leave[i] = !mo_layer_kept(&out->placed.layers[i], MO_AT_RAM);
    }
    const mo_load_options options = {.map = o->map,
                                     .interleave = o->requirements.interleave,
                                     .leave_experts = !o->map && !resident && m->class_count > 0,
                                     .leave_table = !o->map,
                                     .leave_layer = o->map ? NULL : leave,
                                     .context = m->context,
                                     .range = o->requirements.range,
                                     .experts = o->requirements.experts,
                                     .pool = o->pool,
                                     .progress = o->progress,
                                     .user = o->user};
    const mo_status status = mo_checkpoint_load(path, &options, &out->model, err);
    free(leave);
    return status;
}

/* A hot set has its own idea of how much is in RAM: *bytes of experts, 0 where none is wanted or all fit. */
static mo_status plan_hot_set(const mo_open_options *o, mo_opened *out, uint64_t *bytes, mo_error *err)
{
    bool slots = false;
    if (!wants_hot_set(o)) {
        return MO_OK;
    }
    if (o->map) {
        return mo_fail(err, MO_EINVAL,
                       "`hot_cache.file` cannot be combined with `map`: the system manages the memory of a "
                       "mapped model");
    }
    const mo_status status =
        mo_hot_set_budget(&o->resources->hot, &out->placed.requirements.model, &out->placed.plan,
                          !o->resources->ram_given, bytes, &slots, err);
    if (status == MO_OK && slots) {
        out->placed.plan.mode = MO_PLAN_SLOTS;
    }
    return status;
}

/* A mapped model has no plan of RAM, and one of the device alone where there is one. */
static mo_status plan(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_limits *l = &o->resources->limits;
    if (o->map && !l->vram_bytes) {
        return MO_OK;
    }
    const mo_status status = mo_placed_make(path, &o->requirements, o->resources, &out->placed, err);
    if (status == MO_OK && o->map) {
        const mo_plan device = out->placed.plan;
        out->placed.plan = (mo_plan){.device = device.device, .location_count = device.location_count};
        memcpy(out->placed.plan.location, device.location, sizeof device.location);
    } else if (status == MO_OK && l->available_bytes > 0 && l->ram_bytes > l->available_bytes) {
        mo_log(MO_LOG_WARN, "plan", "%s", out->placed.plan.why);
    }
    return status;
}

/* From here on these bytes of RAM are reserved, and on the device what the plan counts, also for sessions; a hot
 * cache has all that its device's ceiling leaves. */
static void hold(const mo_open_options *o, int64_t bytes, mo_opened *out)
{
    const mo_plan *p = &out->placed.plan;
    const mo_plan_division *d = out->placed.division;
    const int64_t device = d ? 0 : o->resources->hot.file ? p->device.ceiling : p->device.used;
    mo_location_hold(p->location[MO_AT_RAM], bytes - out->held);
    mo_location_hold(p->location[MO_AT_VRAM], device - out->device_held);
    out->held = bytes;
    out->device_held = device;
    for (int i = 0; d && i < d->count; i++) {
        const mo_plan_device *r = &d->run[i].plan;
        const int64_t taken = o->resources->hot.file ? r->ceiling : r->used;
        out->run_location[i] = o->resources->each[d->run[i].device].limits.vram_location;
        mo_location_hold(out->run_location[i], taken - out->run_held[i]);
        out->run_held[i] = taken;
    }
}

/* Plans and holds, one model at a time: what the others hold is counted under the lock as well. How many slots a hot set
 * takes is known later, so until then it holds all that is left of a ceiling that was given. */
static mo_status plan_and_hold(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    static pthread_mutex_t planning = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&planning);
    const mo_status status = plan(path, o, out, err);
    if (status == MO_OK && out->placed.layers) {
        const mo_plan *p = &out->placed.plan;
        hold(o, wants_hot_set(o) && o->resources->ram_given ? p->ceiling : p->used, out);
    }
    pthread_mutex_unlock(&planning);
    return status;
}

mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err)
{
    const mo_rates *rates = &options->resources->rates;
    uint64_t hot_bytes = 0;
    *out = (mo_opened){
        .probed_disk_bytes_s = options->resources->probed_disk_bytes_s,
        .disk_bytes_s = rates->measured || options->resources->disk_learned ? rates->disk_bytes_s : 0.0,
        .probed_ram_bytes_s = rates->measured ? rates->ram_bytes_s * rates->compute_share : 0.0};
    mo_status status = plan_and_hold(path, options, out, err);
    if (status == MO_OK) {
        status = plan_hot_set(options, out, &hot_bytes, err);
    }
    if (status == MO_OK) {
        status = load(path, options, out, err);
    }
    if (status == MO_OK) {
        status = open_tiers(options, hot_bytes, out, err);
    }
    if (status == MO_OK && wants_hot_set(options)) {
        hold(options, out->placed.plan.used, out); /* the hot set has slots of its own number */
    }
    if (status != MO_OK) {
        mo_opened_drop(out);
    }
    return status;
}

static void add_reads(const mo_disk *disk, mo_disk_counters *sum)
{
    const mo_disk_counters c =
        disk && mo_disk_io(disk) == MO_IO_DIRECT ? mo_disk_count(disk) : (mo_disk_counters){0};
    sum->bytes += c.bytes;
    sum->busy_ns += c.busy_ns;
}

void mo_opened_learn_disk(const mo_opened *o, const char *path)
{
    mo_error err = {0};
    mo_disk_counters sum = {0};
    if (o->tiers) {
        add_reads(o->tiers->store ? mo_store_disk(o->tiers->store) : NULL, &sum);
        add_reads(o->tiers->layers ? mo_layer_buffer_disk(o->tiers->layers) : NULL, &sum);
    }
    if (mo_disk_rate_note(path, sum.bytes, sum.busy_ns, o->disk_bytes_s, &err) != MO_OK) {
        mo_log(MO_LOG_INFO, "learning", "the measured disk speed is not saved: %s", err.detail);
    }
}

_Static_assert((int)MO_HOLDING_LOCATIONS >= MO_PLAN_DEVICES + 2, "RAM, a device, or several");

mo_location_holding mo_opened_holding(const mo_opened *o)
{
    mo_location_holding h = {0};
    mo_location_holding_add(&h, o->placed.plan.location[MO_AT_RAM], o->held);
    mo_location_holding_add(&h, o->placed.plan.location[MO_AT_VRAM], o->device_held);
    for (int i = 0; i < MO_PLAN_DEVICES; i++) {
        mo_location_holding_add(&h, o->run_location[i], o->run_held[i]);
    }
    return h;
}

void mo_opened_drop(mo_opened *o)
{
    mo_hot_set_drop(&o->hot);
    mo_tiers_close(o->tiers);
    mo_checkpoint_free(o->model);
    mo_location_hold(o->placed.plan.location[MO_AT_RAM], -o->held);
    mo_location_hold(o->placed.plan.location[MO_AT_VRAM], -o->device_held);
    for (int i = 0; i < MO_PLAN_DEVICES; i++) {
        mo_location_hold(o->run_location[i], -o->run_held[i]);
    }
    mo_placed_drop(&o->placed);
    *o = (mo_opened){0};
}
