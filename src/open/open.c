#include "open/open.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "hotcache/plan.h"
#include "model/family.h"
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

/* Does not log: several plans may be made before one is chosen. */
static mo_status make_plan(const char *path, const mo_requirements_options *requirements,
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
    if (status == MO_OK && out->model.core_on_cpu && out->plan.device.ceiling && resources->hot.file) {
        mo_choice_drop(out);
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: the CPU computes the layers of this model, and the hot cache is not implemented "
                       "for a device with experts alone; omit `hot_cache.file` (the profile of earlier runs "
                       "chooses the experts then), or set `device` to none",
                       path);
    }
    return status;
}

/* Applies the chosen plan: a device that it leaves out is closed, so that others can use it. */
static void settle(mo_resources *resources, const mo_choice *taken)
{
    if (taken->why[0]) {
        mo_resources_drop_device(resources, taken->why);
    }
    mo_choice_tell(taken);
}

mo_status mo_opened_plan(const char *path, const mo_requirements_options *requirements,
                         mo_resources *resources, mo_choice *out, mo_error *err)
{
    const mo_status status = make_plan(path, requirements, resources, out, err);
    if (status == MO_OK) {
        settle(resources, out);
    }
    return status;
}

/* Reports whether the file has a head that can be run. */
static mo_status finds_head(const char *file, bool *out, mo_error *err)
{
    mo_gguf *g = NULL;
    const mo_status status = mo_gguf_open(file, &g, err);
    *out = status == MO_OK && mo_family_finds_head(g);
    mo_gguf_close(g);
    return status;
}

/* Looks for a runnable head in the expected file or in one next to it. A named file without a head may be a
 * draft model. */
static mo_status look_for_head(const char *path, mo_requirements_options *o, mo_error *err)
{
    const mo_model_options *asked = o->asked;
    char made[PATH_MAX];
    const char *file = mo_head_path(path, asked, false, made, sizeof made);
    const char *other = mo_head_path(path, asked, true, made, sizeof made);
    mo_status status = finds_head(file, &o->head, err);
    if (status == MO_OK && !o->head && !asked->draft_model && other && access(other, R_OK) == 0) {
        status = finds_head(other, &o->head, err);
        o->beside = o->head |= status != MO_OK; /* `auto` skips an unreadable head */
    }
    if (status != MO_OK) {
        return status;
    }
    o->whole = asked->speculate == MO_SPECULATE_DRAFT ||
               (!o->head && asked->draft_model && asked->speculate == MO_SPECULATE_AUTO);
    o->head |= o->whole;
    return o->head || asked->speculate != MO_SPECULATE_MTP
               ? MO_OK
               : mo_fail(err, MO_EUNSUPPORTED,
                         "%s has no MTP head that this version can run; name a file that has one as "
                         "`draft_model`, or choose `speculate` auto",
                         file);
}

/* Decides whether a head or draft model is requested and can be run. */
static mo_status want_head(const char *path, mo_requirements_options *o, mo_error *err)
{
    const mo_model_options *asked = o->asked;
    const bool needed = mo_requirements_need_head(asked);
    o->whole = o->beside = false;
    o->head = o->drafts && asked->batch != 1 && (needed || asked->speculate == MO_SPECULATE_AUTO);
    if (o->range.first > 0 || o->experts.alone) { /* rank 0 has it */
        o->head = false;
    }
    return o->head ? look_for_head(path, o, err) : MO_OK;
}

/* Either RAM or a named device. */
static bool lacks_memory(mo_status status)
{
    return status == MO_ENOMEM || status == MO_EDEVICE;
}

/* True if the plan leaves weights on disk. With a device, RAM only holds the rest. */
static bool reads_disk(const mo_run_plan *p)
{
    return p->device.ceiling ? p->token_disk_bytes > 0 : p->mode != MO_PLAN_RESIDENT;
}

static mo_status plan_head(const char *path, mo_requirements_options *requirements, mo_resources *resources,
                           mo_choice *out, mo_error *err)
{
    const bool needed = mo_requirements_need_head(requirements->asked);
    mo_status status = want_head(path, requirements, err);
    if (status == MO_OK) {
        status = make_plan(path, requirements, resources, out, err);
    } else {
        *out = (mo_choice){0};
    }
    const bool named = requirements->asked->draft_model;
    const bool small = lacks_memory(status) || (status == MO_OK && reads_disk(&out->plan));
    const bool broken = status != MO_OK && !lacks_memory(status) && !named;
    if (!requirements->head || needed || !(small || broken)) {
        return status;
    }
    mo_choice_drop(out);
    requirements->head = false;
    status = make_plan(path, requirements, resources, out, err);
    requirements->lack = small ? MO_HEAD_LACKS_MEMORY : MO_HEAD_UNREADABLE;
    return status;
}

/* Minimum planned token speed compared with the plan without draft tokens. */
#define SLOWER 0.98

/* True if a plan lacks nothing that another successful plan has: the device, the context and, unless
 * speculative decoding was requested by name, the token speed. */
static bool is_as_good(const mo_requirements_options *r, mo_status status, const mo_choice *plan,
                       const mo_choice *other)
{
    return status == MO_OK && plan->model.context >= other->model.context &&
           (!plan->why[0] || other->why[0]) &&
           (r->asked->speculate != MO_SPECULATE_AUTO ||
            plan->plan.tokens_per_second >= SLOWER * other->plan.tokens_per_second);
}

/* Uses the plan without head or draft model if that may be left out and the plan is as good as *least. *now:
 * scratch space. */
static bool plan_without_head(const char *path, mo_requirements_options *requirements,
                              mo_resources *resources, const mo_choice *least, mo_choice *now, mo_choice *out)
{
    mo_error own = {0};
    if (!requirements->head || mo_requirements_need_head(requirements->asked)) {
        return false;
    }
    requirements->head = false;
    if (make_plan(path, requirements, resources, now, &own) == MO_OK) {
        if (is_as_good(requirements, MO_OK, now, least)) {
            requirements->lack = MO_HEAD_LACKS_MEMORY;
            mo_choice_drop(out);
            *out = *now;
            return true;
        }
        mo_choice_drop(now);
    }
    requirements->head = true;
    return false;
}

/* Uses the plan with fewer draft tokens, or none, if it is as good as *least, the plan without any. Otherwise
 * keeps the current plan. *now: scratch space. */
static mo_status plan_fewer(const char *path, mo_requirements_options *requirements, mo_resources *resources,
                            mo_status status, mo_choice *least, mo_choice *now, mo_choice *out)
{
    static const int64_t fewer[] = {16, 4, 1};
    const int64_t asked = requirements->drafts;
    if (plan_without_head(path, requirements, resources, least, now, out)) {
        return MO_OK;
    }
    for (size_t i = 0; i < sizeof fewer / sizeof *fewer; i++) {
        mo_error own = {0};
        requirements->drafts = fewer[i];
        if (fewer[i] >= asked || make_plan(path, requirements, resources, now, &own) != MO_OK) {
            continue;
        }
        if (is_as_good(requirements, MO_OK, now, least)) {
            mo_choice_drop(out);
            *out = *now;
            return MO_OK;
        }
        mo_choice_drop(now);
    }
    requirements->drafts = asked;
    if (requirements->asked->speculate == MO_SPECULATE_AUTO) {
        requirements->drafts = 0;
        requirements->lack = requirements->head ? MO_HEAD_LACKS_MEMORY : requirements->lack;
        requirements->head = false;
        mo_choice_drop(out);
        *out = *least;
        *least = (mo_choice){0};
        return MO_OK;
    }
    return status;
}

/* Compares the current plan with plans with fewer draft tokens. space: [2] scratch space. */
static mo_status compare_plans(const char *path, mo_requirements_options *requirements,
                               mo_resources *resources, mo_status status, mo_choice *space, mo_choice *out,
                               mo_error *err)
{
    const int64_t wanted = requirements->drafts;
    const bool head = requirements->head;
    mo_error own = {0};
    requirements->drafts = 0;
    requirements->head = head && mo_requirements_need_head(requirements->asked);
    const mo_status without = make_plan(path, requirements, resources, &space[0], &own);
    requirements->drafts = wanted;
    requirements->head = head;
    if (without == MO_OK && !is_as_good(requirements, status, out, &space[0])) {
        status = plan_fewer(path, requirements, resources, status, &space[0], &space[1], out);
    }
    if (without == MO_OK) {
        mo_choice_drop(&space[0]);
    } else if (requirements->asked->speculate == MO_SPECULATE_AUTO && err) {
        *err = own; /* reports the minimum requirement */
    }
    return status;
}

mo_status mo_opened_plan_guesses(const char *path, mo_requirements_options *requirements,
                                 mo_resources *resources, mo_choice *out, mo_error *err)
{
    mo_status status = plan_head(path, requirements, resources, out, err);
    const bool halved = status == MO_OK && !requirements->context && out->model.context < MO_CHOICE_CONTEXT;
    const bool spills = status == MO_OK && (out->plan.mode != MO_PLAN_RESIDENT || out->plan.device.ceiling ||
                                            out->why[0]); /* more than RAM, or than the device */
    if (requirements->drafts && (lacks_memory(status) || spills || halved)) {
        mo_choice *space = calloc(2, sizeof *space); /* too large for the stack */
        status = space ? compare_plans(path, requirements, resources, status, space, out, err) : status;
        free(space);
    }
    if (status == MO_OK) {
        settle(resources, out);
    }
    return status;
}

/* ---- Opening ---- */

static mo_status open_tiers(const mo_open_options *o, mo_opened *out, mo_error *err)
{
    mo_tiers_options t = {.layer_slots = out->choice.plan.layer_buffers,
                          .pass_bytes = out->choice.plan.layer_pass,
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
                                     .head_used = out->with_head,
                                     .pool = o->pool,
                                     .progress = o->progress,
                                     .user = o->user};
    const mo_status status = mo_checkpoint_load(path, &options, &out->model, err);
    free(leave);
    return status;
}

static mo_status load_head(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_load_options options = {.map = o->map,
                                     .interleave = o->requirements.interleave,
                                     .context = o->requirements.context,
                                     .head = !out->whole,
                                     .head_used = true,
                                     .pool = o->pool,
                                     .progress = o->progress,
                                     .user = o->user};
    char made[PATH_MAX];
    const mo_status status = mo_checkpoint_load(
        mo_head_path(path, o->requirements.asked, out->beside, made, sizeof made), &options, &out->head, err);
    return status == MO_OK ? mo_checkpoint_borrow(out->head, out->model, err) : status;
}

/* Logged only when a model is opened; servers make many plans first. */
static void tell_fewer(const mo_model_options *asked, int64_t wanted, int64_t drafts)
{
    const bool named = asked->speculate != MO_SPECULATE_AUTO || asked->draft_max || asked->draft_model;
    const mo_log_level level = named ? MO_LOG_WARN : MO_LOG_INFO;
    if (drafts == 0 && wanted > 0) {
        mo_log(
            level, "speculate",
            "nothing is guessed: the model needs the memory; every token is computed by a step of its own");
    } else if (drafts < wanted) {
        mo_log(level, "speculate",
               "at most %lld tokens are guessed at once, not %lld: the model needs the memory",
               (long long)drafts, (long long)wanted);
    }
}

/* Likewise. */
static void tell_head(const char *path, const mo_requirements_options *r)
{
    if (r->lack == MO_HEAD_LACKS_MEMORY) {
        mo_log(r->asked->draft_model ? MO_LOG_WARN : MO_LOG_INFO, "speculate",
               "the %s is left out: the model's weights or context need its memory; "
               "`speculate` %s takes it all the same",
               r->whole ? "draft model" : "MTP head", r->whole ? "draft" : "mtp");
    } else if (r->lack == MO_HEAD_UNREADABLE) {
        char made[PATH_MAX];
        mo_log(MO_LOG_WARN, "speculate",
               "the MTP head of %s is left out: it cannot be read; `speculate` mtp says why",
               mo_head_path(path, r->asked, r->beside, made, sizeof made));
    }
}

/* A mapped model has no plan that would check its head; an unreadable one is left out if allowed. */
static mo_status want_mapped_head(const char *path, mo_requirements_options *r, mo_error *err)
{
    mo_status status = want_head(path, r, err);
    const bool may = r->head && !mo_requirements_need_head(r->asked) && !r->asked->draft_model;
    if (status == MO_OK && may) {
        mo_plan_model m = {0};
        status = mo_requirements_of(path, r, &m, err);
        mo_requirements_drop(&m);
    }
    if (status != MO_OK && may) {
        r->head = false;
        r->lack = MO_HEAD_UNREADABLE;
        tell_head(path, r);
        status = MO_OK;
    }
    return status;
}

/* A mapped model has no RAM plan, only one of the device if there is one. */
static mo_status plan(const char *path, const mo_open_options *o, mo_opened *out, mo_error *err)
{
    const mo_plan_limits *l = &o->resources->limits;
    mo_requirements_options requirements = o->requirements;
    out->drafts = requirements.drafts;
    if (o->map && !l->vram_bytes) {
        const mo_status status = want_mapped_head(path, &requirements, err);
        out->with_head = requirements.head;
        out->whole = requirements.whole;
        out->beside = requirements.beside;
        return status;
    }
    const mo_status status = mo_opened_plan_guesses(path, &requirements, o->resources, &out->choice, err);
    out->with_head = requirements.head;
    out->whole = requirements.whole;
    out->beside = requirements.beside;
    out->drafts = requirements.drafts;
    if (status == MO_OK) {
        tell_fewer(requirements.asked, o->requirements.drafts, out->drafts);
        tell_head(path, &requirements);
    }
    if (status == MO_OK && o->map) {
        const mo_run_plan device = out->choice.plan;
        out->choice.plan = (mo_run_plan){.device = device.device, .location_count = device.location_count};
        memcpy(out->choice.plan.location, device.location, sizeof device.location);
    } else if (status == MO_OK && l->available_bytes > 0 && l->ram_bytes > l->available_bytes) {
        mo_log(MO_LOG_WARN, "plan", "%s", out->choice.plan.why);
    }
    return status;
}

/* Plans the slots of a hot set in RAM. With a device the hot cache is there, and RAM follows its policy. */
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

/* Reserves these bytes of RAM and the planned bytes on the device, including the sessions; a hot cache gets
 * the rest of the device's ceiling. */
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

/* Plans and reserves under one lock, so that models do not plan with the same free memory. */
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
    if (status == MO_OK && out->with_head) {
        status = load_head(path, options, out, err);
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
    mo_checkpoint_free(o->head);
    mo_checkpoint_free(o->model);
    mo_location_hold(o->choice.plan.location[MO_AT_RAM], -o->held);
    mo_location_hold(o->choice.plan.location[MO_AT_VRAM], -o->device_held);
    for (int i = 0; i < MO_PLAN_DEVICES; i++) {
        mo_location_hold(o->run_location[i], -o->run_held[i]);
    }
    mo_choice_drop(&o->choice);
    *o = (mo_opened){0};
}
