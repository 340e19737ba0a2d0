#include "open/open.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "hotcache/plan.h"
#include "plan/disk_rate.h"

/* ---- Planning ---- */

typedef struct description {
    const char *path;
    const mo_requirements_options *options;
} description;

static mo_status need(void *user, int64_t batch, int64_t context, mo_plan_model *out, mo_error *err)
{
    const description *d = user;
    mo_requirements_options o = *d->options;
    o.batch = batch;
    o.context = context;
    return mo_requirements_of(d->path, &o, out, err);
}

mo_status mo_opened_plan(const char *path, const mo_requirements_options *requirements,
                         mo_resources *resources, mo_choice *out, mo_error *err)
{
    mo_resources_count_held(resources);
    const mo_choice_ask ask = {.name = path,
                               .need = need,
                               .user = &(description){.path = path, .options = requirements},
                               .batch = requirements->batch,
                               .context = requirements->context,
                               .machine = {.limits = resources->limits, .rates = resources->rates},
                               .device_count = resources->device_count,
                               .each = resources->each,
                               .alone = resources->alone,
                               .any_device = resources->any_device};
    const mo_status status = mo_choice_make(&ask, out, err);
    if (out->alone >= 0) {
        mo_resources_use_device(resources, out->alone);
    }
    if (out->why[0]) {
        mo_resources_drop_device(resources, out->why);
    }
    return status;
}

/* ---- Opening ---- */

static mo_status open_tiers(const mo_open_options *o, mo_opened *out, mo_error *err)
{
    mo_tiers_options t = {.layer_slots = out->choice.plan.layer_buffers,
                          .predict = o->predict,
                          .skip_missing = o->skip_missing};
    size_t homes = 0;
    mo_checkpoint_homes(out->model, &homes);
    if (homes == 0) {
        return MO_OK;
    }
    t.store.policy = o->policy;
    t.store.disk = o->disk;
    t.store.static_set = out->hot.requests != NULL;
    for (int i = 0; i < MO_EXPERT_CLASSES; i++) {
        t.store.class_slots[i] = out->choice.plan.class_slots[i];
    }
    return mo_tiers_open(out->model, &t, &out->tiers, err);
}

static mo_status load(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_model *m = &out->choice.model;
    bool *leave = calloc((size_t)m->layers + 1, sizeof *leave);
    const bool resident = out->choice.plan.mode == MO_PLAN_RESIDENT;
    if (!leave) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %s; free some and try again", path);
    }
    for (int i = 0; i < m->layers; i++) {
        leave[i] = !mo_layer_kept(&out->choice.layers[i], MO_AT_RAM);
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

/* A mapped model has no plan of RAM, and one of the device alone where there is one. */
static mo_status plan(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_limits *l = &o->resources->limits;
    if (o->map && !l->vram_bytes) {
        return MO_OK;
    }
    const mo_status status = mo_opened_plan(path, &o->requirements, o->resources, &out->choice, err);
    if (status == MO_OK && o->map) {
        const mo_run_plan device = out->choice.plan;
        out->choice.plan = (mo_run_plan){.device = device.device, .location_count = device.location_count};
        memcpy(out->choice.plan.location, device.location, sizeof device.location);
    } else if (status == MO_OK && l->available_bytes > 0 && l->ram_bytes > l->available_bytes) {
        mo_log(MO_LOG_WARN, "plan", "%s", out->choice.plan.why);
    }
    return status;
}

/* The slots of a hot set in RAM. With a device the hot cache is there, and RAM follows its policy. */
static mo_status plan_hot_set(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_resources *r = o->resources;
    if (!r->hot.file || r->limits.vram_bytes) {
        return MO_OK;
    }
    return o->map ? mo_fail(err, MO_EINVAL,
                            "`hot_cache.file` cannot be combined with `map`: the system manages the memory "
                            "of a mapped model")
                  : mo_hot_plan_ram(path, &r->hot, &out->choice.model, !r->ram_given, &out->choice.plan,
                                    &out->hot, NULL, err);
}

/* From here on these bytes of RAM are reserved, and on the device what the plan counts, also for sessions; a hot
 * cache has all that its device's ceiling leaves. */
static void hold(const mo_resources *resources, mo_opened *out)
{
    const mo_run_plan *p = &out->choice.plan;
    const mo_plan_division *d = out->choice.division;
    out->held = p->used;
    out->device_held = d ? 0 : resources->hot.file ? p->device.ceiling : p->device.used;
    mo_location_hold(p->location[MO_AT_RAM], out->held);
    mo_location_hold(p->location[MO_AT_VRAM], out->device_held);
    for (int i = 0; d && i < d->count; i++) {
        const mo_plan_device *r = &d->run[i].plan;
        out->run_held[i] = resources->hot.file ? r->ceiling : r->used;
        out->run_location[i] = resources->each[d->run[i].device].limits.vram_location;
        mo_location_hold(out->run_location[i], out->run_held[i]);
    }
}

/* Plans and holds, one model at a time: what the others hold is counted under the lock as well. */
static mo_status plan_and_hold(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    static pthread_mutex_t planning = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&planning);
    mo_status status = plan(path, o, out, err);
    if (status == MO_OK) {
        status = plan_hot_set(path, o, out, err);
    }
    if (status == MO_OK && out->choice.layers) {
        hold(o->resources, out);
    }
    pthread_mutex_unlock(&planning);
    return status;
}

mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err)
{
    const mo_rates *rates = &options->resources->rates;
    *out = (mo_opened){
        .probed_disk_bytes_s = options->resources->probed_disk_bytes_s,
        .disk_bytes_s = rates->measured || options->resources->disk_learned ? rates->disk_bytes_s : 0.0,
        .probed_ram_bytes_s = rates->measured ? rates->ram_bytes_s * rates->compute_share : 0.0};
    mo_status status = plan_and_hold(path, options, out, err);
    if (status == MO_OK) {
        status = load(path, options, out, err);
    }
    if (status == MO_OK) {
        status = open_tiers(options, out, err);
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
    mo_location_holding_add(&h, o->choice.plan.location[MO_AT_RAM], o->held);
    mo_location_holding_add(&h, o->choice.plan.location[MO_AT_VRAM], o->device_held);
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
    mo_location_hold(o->choice.plan.location[MO_AT_RAM], -o->held);
    mo_location_hold(o->choice.plan.location[MO_AT_VRAM], -o->device_held);
    for (int i = 0; i < MO_PLAN_DEVICES; i++) {
        mo_location_hold(o->run_location[i], -o->run_held[i]);
    }
    mo_choice_drop(&o->choice);
    *o = (mo_opened){0};
}
