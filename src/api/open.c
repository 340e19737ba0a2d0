#include "api/open.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "plan/limits.h"

/* Spreads the layers that are streamed evenly over the model, so that the disk reads the next one while those
 * between compute. */
static void choose_layers(const mo_plan_model *m, const mo_plan *plan, bool *leave)
{
    const int64_t left = m->dense_layers - plan->dense_resident;
    for (int64_t i = 0; i < m->layers; i++) {
        leave[i] = (i + 1) * left / m->layers > i * left / m->layers;
    }
}

static bool wants_hot_set(const mo_open_options *o)
{
    return o->hot && o->hot->file;
}

static mo_status make_plan(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    mo_plan_limits limits = o->limits;
    if (wants_hot_set(o) && o->hot->max_mib < 0 && limits.ram_bytes == 0) {
        limits.reserve_bytes = o->hot->reserve_mib << 20; /* its reserve, not the plan's */
    }
    mo_status status = mo_needs_of(path, &o->survey, &out->asked, err);
    if (status == MO_OK) {
        status = mo_plan_limits_find("", &o->rates, &limits, err);
    }
    if (status == MO_OK) {
        status = mo_plan_make(&out->asked, &limits, &o->rates, &out->plan, err);
    }
    if (status == MO_OK && limits.available_bytes > 0 && limits.ram_bytes > limits.available_bytes) {
        mo_log(MO_LOG_WARN, "plan", "%s", out->plan.why);
    }
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", path);
}

/* The slots: those of the hot set where there is one, otherwise as planned. */
static mo_status choose_slots(const mo_open_options *o, uint64_t hot_bytes, mo_opened *out, mo_error *err)
{
    mo_bricks *bricks = NULL;
    mo_status status = mo_bricks_create(out->model, &bricks, err);
    if (status == MO_OK) {
        status = mo_hot_set_choose(o->hot, out->model, bricks, hot_bytes, &out->plan, &out->hot, err);
    }
    mo_bricks_destroy(bricks);
    return status;
}

static mo_status open_tiers(const mo_open_options *o, uint64_t hot_bytes, mo_opened *out, mo_error *err)
{
    mo_tiers_options t = {.ring = out->plan.ring, .predict = o->predict, .skip_missing = o->skip_missing};
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
        t.store.class_slots[i] = out->plan.class_slots[i];
    }
    return mo_tiers_open(out->model, &t, &out->tiers, err);
}

static mo_status load(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    bool *leave = calloc((size_t)out->asked.layers + 1, sizeof *leave);
    const bool resident = out->plan.mode == MO_PLAN_RESIDENT;
    if (!leave) {
        return mo_fail(err, MO_ENOMEM, "no memory for opening %s; free some and try again", path);
    }
    if (out->plan.mode == MO_PLAN_STREAMED) {
        choose_layers(&out->asked, &out->plan, leave);
    }
    const mo_load_options options = {.map = o->map,
                                     .interleave = o->interleave,
                                     .leave_experts = !o->map && !resident && out->asked.class_count > 0,
                                     .leave_table = !o->map,
                                     .leave_layer = o->map ? NULL : leave,
                                     .pool = o->pool,
                                     .progress = o->progress,
                                     .user = o->user};
    const mo_status status = mo_checkpoint_load(path, &options, &out->model, err);
    free(leave);
    return status;
}

/* A hot set has its own idea of how much lies in RAM: *bytes of experts, 0 where none is wanted or all fit. */
static mo_status plan_hot_set(const mo_open_options *o, mo_opened *out, uint64_t *bytes, mo_error *err)
{
    bool slots = false;
    if (!wants_hot_set(o)) {
        return MO_OK;
    }
    if (o->map) {
        return mo_fail(
            err, MO_EINVAL,
            "a mapped model leaves its memory to the system; --moe-hot-cache needs it without --mmap");
    }
    const mo_status status =
        mo_hot_set_budget(o->hot, &out->asked, &out->plan, o->limits.ram_bytes == 0, bytes, &slots, err);
    if (status == MO_OK && slots) {
        out->plan.mode = MO_PLAN_SLOTS;
    }
    return status;
}

mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err)
{
    uint64_t hot_bytes = 0;
    *out = (mo_opened){.probed_disk_bytes_s = options->rates.measured ? options->rates.disk_bytes_s : 0.0};
    mo_status status = options->map ? MO_OK : make_plan(path, options, out, err);
    if (status == MO_OK) {
        status = plan_hot_set(options, out, &hot_bytes, err);
    }
    if (status == MO_OK) {
        status = load(path, options, out, err);
    }
    if (status == MO_OK) {
        status = open_tiers(options, hot_bytes, out, err);
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
    *o = (mo_opened){0};
}
