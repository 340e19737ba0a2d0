#include "api/open.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "plan/prompt.h"

/* ---- Planning ---- */

/* Sessions of fewer positions are better than no plan, and than a plan without the device; but these have at least so many. */
enum { CONTEXT_LEAST = 512, CONTEXT_LEAST_DEVICE = 2048 };

static mo_status place_once(const char *path, const mo_needs_options *needs, const mo_means *means,
                            mo_placed *out, mo_error *err)
{
    *out = (mo_placed){0};
    mo_status status = mo_needs_of(path, needs, &out->needs, err);
    if (status != MO_OK) {
        return status;
    }
    out->layers = calloc((size_t)out->needs.model.layers + 1, sizeof *out->layers);
    status = out->layers ? mo_plan_choose(&out->needs.model, &means->limits, &means->rates, &out->plan, err)
                         : mo_fail(err, MO_ENOMEM, "no memory for a plan; free some and try again");
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", path);
}

/* A context that nobody gave is halved until the model fits. *asked: the one before. */
static mo_status place(const char *path, const mo_needs_options *needs, const mo_means *means, int64_t *asked,
                       mo_placed *out, mo_error *err)
{
    const int64_t least =
        means->limits.vram_bytes && means->any_device ? CONTEXT_LEAST_DEVICE : CONTEXT_LEAST;
    mo_needs_options o = *needs;
    mo_status status = place_once(path, &o, means, out, err);
    *asked = out->needs.model.context;
    while ((status == MO_ENOMEM || status == MO_EDEVICE) && needs->context == 0 &&
           out->needs.model.context / 2 >= least) {
        o.context = out->needs.model.context / 2;
        mo_placed_drop(out);
        status = place_once(path, &o, means, out, err);
    }
    return status;
}

mo_status mo_placed_make(const char *path, const mo_needs_options *needs, mo_means *means, mo_placed *out,
                         mo_error *err)
{
    mo_error small = {0};
    int64_t asked = 0;
    mo_means_count_held(means);
    mo_status status = place(path, needs, means, &asked, out, &small);
    if (status == MO_EDEVICE && means->any_device) {
        mo_means_drop_device(means, small.detail);
        mo_placed_drop(out);
        status = place(path, needs, means, &asked, out, &small);
    }
    if (status != MO_OK) {
        mo_placed_drop(out);
        return mo_fail(err, status, "%s", small.detail);
    }
    if (out->needs.model.context < asked) {
        mo_log(
            MO_LOG_WARN, "plan",
            "sessions have %lld positions instead of %lld: memory does not hold more; raise `ram_bytes`%s, "
            "or give `context`",
            (long long)out->needs.model.context, (long long)asked,
            means->limits.vram_bytes ? " or `vram_bytes`" : "");
    }
    mo_placement_list(&out->needs.model, &out->plan, out->layers);
    return MO_OK;
}

void mo_placed_drop(mo_placed *p)
{
    mo_needs_drop(&p->needs);
    free(p->layers);
    *p = (mo_placed){0};
}

mo_placement mo_placed_view(const mo_placed *p)
{
    return (mo_placement){.model = &p->needs.model, .plan = &p->plan, .layers = p->layers};
}

/* ---- Opening ---- */

/* With a device the hot cache is there, and RAM follows its policy. */
static bool wants_hot_set(const mo_open_options *o)
{
    return o->means->hot.file && !o->means->limits.vram_bytes;
}

/* The slots: those of the hot set where there is one, otherwise as planned. */
static mo_status choose_slots(const mo_open_options *o, uint64_t hot_bytes, mo_opened *out, mo_error *err)
{
    mo_bricks *bricks = NULL;
    mo_status status = mo_bricks_create(out->model, &bricks, err);
    if (status == MO_OK) {
        status = mo_hot_set_choose(&o->means->hot, out->model, bricks, hot_bytes, &out->placed.plan,
                                   &out->hot, err);
    }
    mo_bricks_destroy(bricks);
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
    t.store.still = hot_bytes > 0;
    for (int i = 0; i < MO_BRICK_CLASSES; i++) {
        t.store.class_slots[i] = out->placed.plan.class_slots[i];
    }
    return mo_tiers_open(out->model, &t, &out->tiers, err);
}

static mo_status load(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_model *m = &out->placed.needs.model;
    bool *leave = calloc((size_t)m->layers + 1, sizeof *leave);
    const bool resident = out->placed.plan.mode == MO_PLAN_RESIDENT;
    if (!leave) {
        return mo_fail(err, MO_ENOMEM, "no memory for opening %s; free some and try again", path);
    }
    for (int i = 0; i < m->layers; i++) {
        leave[i] = !mo_layer_kept(&out->placed.layers[i], MO_AT_RAM);
    }
    const mo_load_options options = {.map = o->map,
                                     .interleave = o->needs.interleave,
                                     .leave_experts = !o->map && !resident && m->class_count > 0,
                                     .leave_table = !o->map,
                                     .leave_layer = o->map ? NULL : leave,
                                     .context = m->context,
                                     .range = o->needs.range,
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
        return mo_fail(
            err, MO_EINVAL,
            "a mapped model leaves its memory to the system; `hot_cache.file` needs it without `map`");
    }
    const mo_status status = mo_hot_set_budget(&o->means->hot, &out->placed.needs.model, &out->placed.plan,
                                               !o->means->ram_given, bytes, &slots, err);
    if (status == MO_OK && slots) {
        out->placed.plan.mode = MO_PLAN_SLOTS;
    }
    return status;
}

/* A mapped model has no plan of RAM, and one of the device alone where there is one. */
static mo_status plan(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_limits *l = &o->means->limits;
    if (o->map && !l->vram_bytes) {
        return MO_OK;
    }
    const mo_status status = mo_placed_make(path, &o->needs, o->means, &out->placed, err);
    if (status == MO_OK && o->map) {
        const mo_plan device = out->placed.plan;
        out->placed.plan = (mo_plan){.device = device.device, .place_count = device.place_count};
        memcpy(out->placed.plan.place, device.place, sizeof device.place);
    } else if (status == MO_OK && l->available_bytes > 0 && l->ram_bytes > l->available_bytes) {
        mo_log(MO_LOG_WARN, "plan", "%s", out->placed.plan.why);
    }
    return status;
}

/* So many bytes of RAM are held from here on, and on the device what the plan counts, also what sessions will need; a hot
 * cache has all that its device's ceiling leaves. */
static void hold(const mo_open_options *o, int64_t bytes, mo_opened *out)
{
    const mo_plan *p = &out->placed.plan;
    const int64_t device = o->means->hot.file ? p->device.ceiling : p->device.used;
    mo_place_hold(p->place[MO_AT_RAM], bytes - out->held);
    mo_place_hold(p->place[MO_AT_VRAM], device - out->device_held);
    out->held = bytes;
    out->device_held = device;
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
        hold(o, wants_hot_set(o) && o->means->ram_given ? p->ceiling : p->used, out);
    }
    pthread_mutex_unlock(&planning);
    return status;
}

mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err)
{
    const mo_rates *rates = &options->means->rates;
    uint64_t hot_bytes = 0;
    *out =
        (mo_opened){.probed_disk_bytes_s = rates->measured ? rates->disk_bytes_s : 0.0,
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

void mo_opened_drop(mo_opened *o)
{
    mo_hot_set_drop(&o->hot);
    mo_tiers_close(o->tiers);
    mo_checkpoint_free(o->model);
    mo_place_hold(o->placed.plan.place[MO_AT_RAM], -o->held);
    mo_place_hold(o->placed.plan.place[MO_AT_VRAM], -o->device_held);
    mo_placed_drop(&o->placed);
    *o = (mo_opened){0};
}
