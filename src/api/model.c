/* The public API of models: opening, closing, describing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mapped.h"
#include "base/status.h"
#include "engine/draft_model.h"
#include "engine/head.h"
#include "gguf/fingerprint.h"
#include "hotcache/budget.h"
#include "open/settings.h"
#include "plan/choice.h"
#include "plan/device.h"
#include "plan/text.h"

static const mo_model_options defaults = {
    .size = sizeof(mo_model_options),
    .learning.hot_cache = {.auto_reserve_mib = MO_HOT_RESERVE_MIB, .layer_curve = 0.5}};

void mo_model_options_init(mo_model_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

const char *mo_isa_name(int index)
{
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    return index >= 0 && index < count ? sets[index]->name : NULL;
}

static void warn_no_device(const char *why, const char *hot)
{
    mo_log(MO_LOG_WARN, "device", "%s; the CPU computes everything%s%s", why,
           hot ? ", without a hot cache, because one in RAM must be requested without a device: " : "",
           hot ? hot : "");
}

static mo_status refuse_policy(const char *name, mo_error *err)
{
    char names[128] = "";
    for (int i = 0; mo_policy_at(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", mo_policy_at(i)->name);
    }
    return mo_fail(err, MO_EINVAL, "unknown `policy` \"%.60s\"; choose one of %s", name, names);
}

static mo_requirements_options requirements_of(const mo_model *m, const mo_model_options *o,
                                               const mo_kernels *kernels, const mo_resources *resources)
{
    return (mo_requirements_options){.asked = o,
                                     .batch = o->batch,
                                     .context = o->context,
                                     .kept_bytes = o->kept_bytes,
                                     .threads = mo_pool_threads(m->pool),
                                     .interleave = o->map ? 0 : kernels->interleave,
                                     .precision = resources->precision,
                                     .range = m->range,
                                     .experts = m->experts,
                                     .peers = m->cluster ? mo_cluster_ranks(m->cluster) - 1 : 1,
                                     .drafts = mo_requirements_drafts(o)};
}

static mo_status open_files(mo_model *m, const char *path, const mo_model_options *o, mo_resources *resources,
                            const mo_kernels *kernels, mo_error *err)
{
    mo_open_options options = {
        .resources = resources,
        .requirements = requirements_of(m, o, kernels, resources),
        .disk = {.io = o->io, .readers = o->readers},
        .predict = !o->no_prediction,
        .skip_missing = o->skip_missing,
        .map = o->map,
        .pool = m->pool,
        .progress = o->progress,
        .user = o->user,
    };
    if (o->policy) {
        options.policy = mo_policy_find(o->policy);
        if (!options.policy) {
            return refuse_policy(o->policy, err);
        }
    }
    const char *hot = resources->hot.file;
    const bool device = resources->device != NULL;
    mo_resources_know_disk(resources, path);
    const mo_status status = mo_opened_make(path, &options, &m->opened, err);
    m->checkpoint = m->opened.model;
    m->mapped = o->map;
    if (status == MO_OK && device && !resources->device) {
        warn_no_device(resources->why, hot);
    }
    return status;
}

/* Rate of expert copies alone, for reports. */
static double experts_rate(const mo_plan_model *requirements, const mo_rates *rates)
{
    double bytes = 0, seconds = 0;
    for (int i = 0; i < requirements->class_count; i++) {
        const mo_plan_class *c = &requirements->classes[i];
        const double used = c->used_per_token * (double)c->bytes;
        bytes += used;
        seconds += used / mo_rates_link(rates, (double)c->bytes, MO_RATES_EXPERT_COPIES);
    }
    return seconds > 0 ? bytes / seconds : rates->link_bytes_s;
}

/* Maximum draft tokens per step, as planned; 0: none. */
static int64_t draft_max(const mo_model *m)
{
    const mo_expert_range *experts = &mo_checkpoint_spec(m->checkpoint)->experts;
    return experts->alone ? 0 : m->opened.drafts;
}

/* The lanes start with the rates by which the plan divided missing experts. */
static void begin_lanes(const mo_model *m, const mo_rates *rates, bool device_measured, mo_gpu_options *o)
{
    const mo_choice *choice = &m->opened.choice;
    double alone, cpu, link;
    mo_plan_device_lanes(&choice->model, rates, &choice->plan, &alone, &cpu, &link);
    o->alone_bytes_s = rates->measured ? alone : 0;
    o->cpu_bytes_s = rates->measured && device_measured ? cpu : o->alone_bytes_s;
    o->link_bytes_s = device_measured ? link : 0;
}

static mo_gpu_options gpu_options(const mo_model *m, const mo_model_options *o, const mo_kernels *kernels,
                                  const mo_resources *resources)
{
    const mo_plan_model *requirements = &m->opened.choice.model;
    const mo_requirements_options asked = requirements_of(m, o, kernels, resources);
    const mo_rates *rates = &resources->rates;
    mo_gpu_options options = {
        .device = m->device,
        .batch = requirements->batch,
        .context = requirements->context,
        .states = mo_requirements_states(&asked, requirements->batch, requirements->context, true),
        .placement = mo_choice_view(&m->opened.choice),
        .policy = o->policy ? mo_policy_find(o->policy) : NULL,
        .tiers = m->opened.tiers,
        .hot = &resources->hot,
        .serial = resources->serial,
        .postfetch = &resources->postfetch,
        .round_trip_s = resources->device_measured ? rates->round_trip_s : 0,
        .draft_max = draft_max(m),
        .precision = resources->precision,
        .progress = o->progress,
        .user = o->user,
    };
    begin_lanes(m, rates, resources->device_measured, &options);
    options.requests = mo_learning_requests(m->learning, &options.request_count);
    return options;
}

/* Options for the device of a layer range; `plan` and `hot` hold its part. */
static void take_run(const mo_model *m, const mo_resources *resources, const mo_plan_run *run,
                     mo_run_plan *plan, mo_hot_request *hot, mo_gpu_options *o)
{
    const mo_choice *choice = &m->opened.choice;
    const mo_rates *rates = &resources->each[run->device].rates;
    const bool measured = resources->each_measured[run->device];
    *plan = choice->plan;
    plan->device = run->plan;
    *hot = resources->hot;
    if (hot->file && hot->max_mib > 0) { /* of all together; a device whose share is nothing has no slots */
        const int layers = choice->model.layers;
        hot->max_mib = hot->max_mib * run->end / layers - hot->max_mib * run->first / layers;
        hot->file = hot->max_mib > 0 ? hot->file : NULL;
    }
    o->device = resources->devices[run->device];
    o->first = run->first;
    o->end = run->end;
    o->placement.plan = plan;
    o->hot = hot;
    begin_lanes(m, rates, measured, o);
    o->round_trip_s = measured ? rates->round_trip_s : 0;
    o->precision = resources->precision;
    if (!resources->each_bf16[run->device] && resources->precision.precision != MO_PRECISION_EXACT) {
        mo_log(MO_LOG_WARN, "device",
               "%s has no bf16 matrix products: layers %d to %d are computed exactly in prompts, too",
               rates->device, run->first, run->end - 1);
        o->precision.precision = MO_PRECISION_EXACT;
    }
}

/* Opens one device: the first, or a further one. */
static mo_status open_run(mo_model *m, const mo_gpu_options *o, bool first, mo_error *err)
{
    if (mo_spec_device_experts(mo_checkpoint_spec(m->checkpoint))) {
        return first ? mo_gpu_expert_device_open(m->checkpoint, o, &m->expert_device, err)
                     : mo_gpu_expert_device_join(m->expert_device, m->checkpoint, o, err);
    }
    return first ? mo_gpu_open(m->checkpoint, o, &m->gpu, err) : mo_gpu_join(m->gpu, m->checkpoint, o, err);
}

/* Opens several devices, each with its layer range. */
static mo_status open_runs(mo_model *m, mo_gpu_options *options, const mo_resources *resources, int *failing,
                           mo_error *err)
{
    const mo_plan_division *d = m->opened.choice.division;
    mo_run_plan *plan = malloc(sizeof *plan);
    mo_hot_request hot;
    mo_status status =
        plan ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory while opening a model on devices");
    for (int i = 0; plan && i < d->count && status == MO_OK; i++) {
        take_run(m, resources, &d->run[i], plan, &hot, options);
        status = open_run(m, options, i == 0, err);
        *failing = d->run[i].device;
    }
    if (status == MO_OK && m->gpu) {
        mo_gpu_divide_batches(m->gpu, d->piece);
    } else if (status != MO_OK) {
        mo_gpu_close(m->gpu);
        mo_gpu_expert_device_close(m->expert_device);
        m->gpu = NULL;
        m->expert_device = NULL;
    }
    free(plan);
    return status;
}

/* Stores the names of the devices in use. */
static void name_devices(mo_model *m, const mo_resources *resources)
{
    const mo_plan_division *d = m->opened.choice.division;
    mo_device_info info;
    for (int i = 0; i == 0 || (d && i < d->count); i++) {
        const size_t used = strlen(m->device_name);
        mo_device_describe(d ? resources->devices[d->run[i].device] : m->device, &info);
        snprintf(m->device_name + used, sizeof m->device_name - used, "%s%s", i ? " + " : "", info.name);
    }
}

/* If one of several automatically chosen devices failed to open, the model is opened again without it. An
 * unreadable file or too little RAM is not the device's fault and would fail on the next one too. */
static bool leave_out(mo_model *m, const mo_model_options *o, const mo_resources *resources, int number,
                      mo_status status, const mo_error *why)
{
    mo_device_info info;
    mo_device_describe(resources->devices[number], &info);
    const bool its_fault = status == MO_EDEVICE || status == mo_device_refusal(resources->devices[number]);
    if (!its_fault || o->cluster || m->range.count || info.index >= 32) {
        return false;
    }
    mo_log(MO_LOG_WARN, "device", "%s; the device is not used", why->detail);
    m->without |= 1U << info.index;
    m->again = true;
    return true;
}

/* A failing device is an error only if it was requested by name; otherwise others or the CPU run the
 * model. */
static mo_status open_gpu(mo_model *m, const mo_model_options *o, const mo_kernels *kernels,
                          const mo_resources *resources, mo_error *err)
{
    if (!m->device) {
        return MO_OK;
    }
    name_devices(m, resources);
    m->probed_link_bytes_s = resources->device_measured ? resources->rates.link_bytes_s : 0;
    m->probed_experts_bytes_s =
        resources->device_measured ? experts_rate(&m->opened.choice.model, &resources->rates) : 0;
    m->probed_host_bytes_s = resources->device_measured ? resources->rates.host_bytes_s : 0;
    mo_gpu_options options = gpu_options(m, o, kernels, resources);
    mo_error failed = {0};
    /* if there is one device, it is the first */
    int failing = resources->found > 1 && !m->opened.choice.division ? 0 : -1;
    mo_status status = m->opened.choice.division ? open_runs(m, &options, resources, &failing, &failed)
                                                 : open_run(m, &options, true, &failed);
    if (status != MO_OK && status != MO_ECANCELLED && resources->any_device && failing >= 0 &&
        leave_out(m, o, resources, failing, status, &failed)) {
        return mo_fail(err, status, "%s", failed.detail);
    }
    if (status == MO_EDEVICE && m->experts.alone) { /* as if it were lost at the first request */
        mo_log(MO_LOG_WARN, "device", "%s; the CPU computes this rank's experts", failed.detail);
        return MO_OK;
    }
    if (status != MO_OK && status != MO_ECANCELLED && resources->any_device) {
        warn_no_device(failed.detail, resources->hot.file);
        return MO_OK;
    }
    return status == MO_OK ? MO_OK : mo_fail(err, status, "%s", failed.detail);
}

/* Logs why drafts were requested but are not computed. */
static void tell_drafts(const mo_model *m, const mo_model_options *o)
{
    const mo_accelerator *gpu = mo_gpu_accelerator(m->gpu);
    const char *why = NULL;
    if (m->engine->batch == 1) {
        why = "the batch is 1";
    } else if (gpu && !gpu->draft_rows && draft_max(m)) { /* otherwise the plan has logged why */
        why = "the device does not support the size of this model's recurrent states";
    }
    if (o->speculate != MO_SPECULATE_OFF && why) {
        mo_log(MO_LOG_WARN, "speculate",
               "speculative decoding is off: %s; every token is computed by a step of its own", why);
    }
}

static const mo_where *where_on_device(void *owner, int layer)
{
    return mo_gpu_expert_device_where(owner, layer);
}

/* A device with layers also fills RAM during its first steps; one with only experts does not. */
static mo_status warm_beside(mo_model *m, const mo_model_options *o, mo_error *err)
{
    return m->expert_device ? mo_learning_warm_rest(m->learning, where_on_device, m->expert_device,
                                                    o->progress, o->user, err)
                            : MO_OK;
}

static mo_status open_engine(mo_model *m, const mo_model_options *o, const mo_kernels *kernels,
                             const mo_resources *resources, mo_error *err)
{
    const mo_model_spec *spec = mo_checkpoint_spec(m->checkpoint);
    const mo_requirements_options asked = requirements_of(m, o, kernels, resources);
    const mo_plan_model *planned = m->opened.choice.layers ? &m->opened.choice.model : NULL;
    const mo_engine_options options = {
        .kernels = kernels,
        .pool = m->pool,
        .batch = planned    ? planned->batch
                 : o->batch ? o->batch
                            : MO_CHOICE_BATCH,
        .context = planned ? planned->context : mo_choice_context(o->context, spec->context),
        .tiers = m->opened.tiers,
        .tally = mo_learning_tally(m->learning),
        .accelerator = mo_gpu_accelerator(m->gpu),
        .states = mo_requirements_states(&asked, 0, 0, false),
        .fingerprint = mo_gguf_fingerprint(mo_checkpoint_gguf(m->checkpoint)),
        .draft_max = draft_max(m),
    };
    const mo_status status = mo_engine_create(m->checkpoint, &options, &m->engine, err);
    if (status == MO_OK && m->opened.head) {
        mo_state_size states = mo_requirements_states(&asked, 0, m->engine->context, false);
        states.kept_bytes = 0;
        const bool late = mo_head_is_late(spec, o->speculate == MO_SPECULATE_AUTO);
        const mo_status head =
            m->opened.whole ? mo_draft_model_open(m->engine, m->opened.head, &states, &m->engine->head, err)
                            : mo_head_open(m->engine, m->opened.head, &states, late, &m->engine->head, err);
        if (head != MO_OK) {
            return head;
        }
    }
    if (status == MO_OK) {
        tell_drafts(m, o);
        if (o->speculate == MO_SPECULATE_AUTO && !o->draft_model) {
            mo_step_times_limit(&m->times, mo_spec_layers(spec));
        }
        m->engine->timed = mo_learning_times(m->learning);
        if (m->expert_device) {
            mo_workers_add(&m->engine->workers, mo_gpu_expert_device_worker(m->expert_device));
        }
    }
    return status;
}

/* Logs why bfloat16 was requested but is not used. */
static void tell_precision(const mo_model *m, const mo_model_options *o, const mo_resources *resources)
{
    if (o->prompt_precision == MO_PRECISION_EXACT || m->engine->precision == o->prompt_precision) {
        return;
    }
    if (!m->gpu) {
        mo_log(MO_LOG_WARN, "device", "`prompt_precision` bf16 has no effect: %s computes exactly",
               m->experts.alone && m->expert_device ? "a rank with experts only"
               : m->expert_device                   ? "with this model a device"
                                                    : "the CPU");
    } else if (resources->precision.precision == MO_PRECISION_EXACT) {
        mo_log(MO_LOG_WARN, "device",
               "`prompt_precision` bf16 has no effect: "
               "%s computes exactly; bf16 kernels "
               "need a GPU of compute capability 8.0",
               m->device_name);
    } else {
        mo_log(MO_LOG_WARN, "device",
               "`prompt_precision` bf16 has no effect: steps "
               "have at most %lld tokens (`batch`), and it "
               "applies above %lld (LLAMA_FP4_PREFILL_M)",
               (long long)m->engine->batch, (long long)resources->precision.more_than);
    }
}

/* A model without a readable vocabulary still works with token ids. But lack of memory is an error, or
 * results would differ between runs. */
static mo_status open_text(mo_model *m, const char *given, mo_error *err)
{
    const mo_gguf *g = mo_checkpoint_gguf(m->checkpoint);
    mo_status status = mo_tokenizer_create(g, &m->tokenizer, &m->no_tokenizer);
    if (status == MO_OK) {
        status = mo_lexicon_open(m->tokenizer, mo_checkpoint_spec(m->checkpoint)->vocab, &m->lexicon,
                                 &m->no_tokenizer);
    }
    if (status == MO_ENOMEM) {
        return mo_fail(err, MO_ENOMEM, "%s: %s", mo_checkpoint_path(m->checkpoint), m->no_tokenizer.detail);
    }
    m->chat = mo_chat_detect(g, m->tokenizer);
    return mo_model_open_templates(m, given, err);
}

mo_status mo_model_find_resources(const mo_model_options *o, unsigned without, mo_resources *resources,
                                  mo_error *err)
{
    return mo_resources_find(&(mo_resources_ask){.options = o, .to_open = true, .without = without},
                             resources, err);
}

/* Divides a model among ranks: the others get their layers or experts, this rank the rest, the batch and the
 * context. */
static mo_status divide(mo_model *m, const char *path, mo_model_options *o, mo_resources *resources,
                        const mo_kernels *kernels, mo_error *err)
{
    if (!o->cluster || mo_cluster_ranks(o->cluster) < 2) {
        return MO_OK;
    }
    if (atomic_exchange(&o->cluster->used, true)) {
        return mo_fail(err, MO_EUNSUPPORTED, "ranks share one model at a time; close the other one first");
    }
    m->cluster = o->cluster;
    mo_requirements_options requirements = requirements_of(m, o, kernels, resources);
    const mo_status status = mo_cluster_divide(o->cluster, path, o, resources, &requirements, err);
    m->range = requirements.range;
    m->experts = requirements.experts;
    return status;
}

/* Opens everything but text. */
static mo_status open_weights(mo_model *m, const char *path, mo_model_options *o, const mo_kernels *kernels,
                              mo_error *err)
{
    mo_resources resources = {0};
    mo_status status = mo_model_find_resources(o, m->without, &resources, err);
    if (status == MO_OK) {
        const int cores = mo_machine_cores_usable(""), fewer = mo_rates_threads(&resources.rates, cores);
        status = mo_pool_create(o->threads ? o->threads : fewer < cores ? fewer : 0, &m->pool, err);
    }
    if (status == MO_OK) {
        status = divide(m, path, o, &resources, kernels, err);
    }
    if (status == MO_OK) {
        status = open_files(m, path, o, &resources, kernels, err);
    }
    m->device = resources.device;
    for (int i = 1; i < resources.device_count; i++) {
        m->others[i - 1] = resources.devices[i];
    }
    if (status == MO_OK) {
        status = mo_learning_open(&m->opened, &o->learning, &resources.hot, o->progress, o->user,
                                  &m->learning, err);
    }
    if (status == MO_OK) {
        status = open_gpu(m, o, kernels, &resources, err);
    }
    if (status == MO_OK) {
        status = warm_beside(m, o, err);
    }
    if (status == MO_OK) {
        status = open_engine(m, o, kernels, &resources, err);
    }
    if (status == MO_OK) {
        status = mo_model_open_adapters(m, o, err);
    }
    if (status == MO_OK) {
        status = mo_model_open_encoder(m, o, err);
    }
    if (status == MO_OK) {
        status = mo_reports_open(m, err);
    }
    if (status == MO_OK) {
        status = mo_checkpoint_check(m->checkpoint, err);
    }
    if (status == MO_OK) {
        tell_precision(m, o, &resources);
    }
    free(resources.each);
    free(resources.alone);
    return status;
}

/* *again: must be opened again without the devices that *without now names. */
static mo_status open_once(const char *path, mo_model_options *o, const mo_kernels *kernels,
                           mo_layer_range range, mo_expert_range experts, unsigned *without, bool *again,
                           mo_model **out, mo_error *err)
{
    *again = false;
    mo_model *m = calloc(1, sizeof *m);
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %s", path);
    }
    m->range = range;
    m->without = *without;
    m->guess_text = mo_requirements_guess_text(o);
    const char *profile = o->learning.profile;
    /* NULL: not learned */
    m->disk_path = profile && strcmp(profile, "auto") == 0 ? strdup(path) : NULL;
    m->experts = experts;
    pthread_mutex_init(&m->profile_lock, NULL);
    pthread_mutex_init(&m->masks_lock, NULL);
    mo_step_times_init(&m->times);
    sigset_t before;
    if (o->map) {
        mo_mapped_enter(&before);
    }
    mo_status status = open_weights(m, path, o, kernels, err);
    if (o->map) {
        mo_mapped_leave(&before);
    }
    if (status == MO_OK && !range.count) {
        status = open_text(m, o->chat_template, err);
    }
    if (status == MO_OK && m->cluster) {
        status = mo_cluster_join(m->cluster, m->engine, &m->leader, &m->asker, err);
    }
    if (status != MO_OK) {
        *again = m->again;
        *without = m->without;
        mo_model_close(m);
        return status;
    }
    *out = m;
    return MO_OK;
}

static mo_status open_model(const char *path, const mo_model_options *options, mo_layer_range range,
                            mo_expert_range experts, mo_model **out, mo_error *err)
{
    mo_model_options o = defaults;
    const mo_kernels *kernels = NULL;
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_model_options", err);
    if (status == MO_OK) {
        status = mo_settings_check(&o, err);
    }
    const bool divided = range.count || (o.cluster && mo_cluster_ranks(o.cluster) > 1);
    if (status == MO_OK && divided) {
        status = mo_cluster_check_options(&o, err);
    }
    if (status == MO_OK) {
        status = mo_kernels_select(o.isa, &kernels, err);
    }
    if (status != MO_OK) {
        return status;
    }
    unsigned without = 0;
    bool again;
    do {
        status = open_once(path, &o, kernels, range, experts, &without, &again, out, err);
    } while (again);
    return status;
}

mo_status mo_model_open(const char *path, const mo_model_options *options, mo_model **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    *out = NULL;
    const mo_status status = mo_check_path(path, "path", __func__, err);
    return status == MO_OK ? open_model(path, options, (mo_layer_range){0}, (mo_expert_range){0}, out, err)
                           : status;
}

mo_status mo_model_open_part(const char *path, const mo_model_options *options, mo_layer_range range,
                             mo_expert_range experts, mo_model **out, mo_error *err)
{
    return open_model(path, options, range, experts, out, err);
}

/* Records the experts that only devices hold, for the warm-start file. If there is no memory for the list,
 * the file only has RAM's. */
static void note_vram(mo_model *model)
{
    const mo_model_spec *spec = model->checkpoint ? mo_checkpoint_spec(model->checkpoint) : NULL;
    if ((!model->gpu && !model->expert_device) || !spec || !mo_learning_saves_warm(model->learning)) {
        return;
    }
    int32_t count = 0;
    mo_store_request *list =
        calloc((size_t)mo_store_experts(model->opened.tiers->store)->expert_count + 1, sizeof *list);
    for (int i = 0; list && i < spec->layer_count; i++) {
        const mo_where *where =
            model->gpu ? mo_gpu_where(model->gpu, i) : mo_gpu_expert_device_where(model->expert_device, i);
        for (int e = 0; where && spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
            if (mo_where_address(where, i, e) && !mo_store_resident(model->opened.tiers->store, i, e)) {
                list[count++] = (mo_store_request){.layer = i, .expert = e};
            }
        }
    }
    if (list) {
        mo_learning_note_vram(model->learning, list, count);
    }
}

void mo_model_close(mo_model *model)
{
    if (model && (!model->engine || mo_engine_check_process(model->engine, NULL) == MO_OK)) {
        mo_leader_close(model->leader);
        mo_experts_leave(model->asker);
        if (model->cluster) {
            mo_cluster_give_up(model->cluster);
            atomic_store(&model->cluster->used, false);
        }
        mo_model_close_templates(model);
        mo_mask_thread_close(model->masks);
        pthread_mutex_destroy(&model->masks_lock);
        mo_step_times_drop(&model->times);
        mo_lexicon_close(model->lexicon);
        mo_tokenizer_destroy(model->tokenizer);
        mo_model_close_adapters(model);
        mo_model_close_encoder(model);
        mo_head_close(model->engine ? model->engine->head : NULL);
        mo_engine_destroy(model->engine);
        mo_reports_close(model->reports);
        pthread_mutex_destroy(&model->profile_lock);
        note_vram(model);
        mo_gpu_close(model->gpu);
        mo_gpu_expert_device_close(model->expert_device);
        mo_device_close(model->device);
        for (int i = 0; i < MO_DEVICES - 1; i++) {
            mo_device_close(model->others[i]);
        }
        mo_learning_close(model->learning);
        if (model->disk_path) {
            mo_opened_learn_disk(&model->opened, model->disk_path);
            free(model->disk_path);
        }
        mo_opened_drop(&model->opened);
        mo_pool_destroy(model->pool);
        free(model);
    }
}

const char *mo_policy_name(int index, const char **summary)
{
    const mo_policy *policy = mo_policy_at(index);
    if (policy && summary) {
        *summary = policy->summary;
    }
    return policy ? policy->name : NULL;
}

void mo_model_describe(const mo_model *model, mo_model_info *out, size_t size)
{
    const mo_model_spec *f = model->engine->spec;
    const mo_gguf *g = mo_checkpoint_gguf(model->checkpoint);
    const mo_checkpoint_bytes bytes = mo_checkpoint_resident(model->checkpoint);
    mo_model_info info = {
        .path = mo_checkpoint_path(model->checkpoint),
        .isa = model->engine->kernels->name,
        .threads = mo_pool_threads(model->pool),
        .layers = f->all_count,
        .vocab = f->vocab,
        .width = f->width,
        .context = model->engine->context,
        .batch = model->engine->batch,
        .core_bytes = bytes.core,
        .expert_bytes = bytes.experts,
        .table_bytes = bytes.table,
        .vector_bytes = bytes.vectors,
        .work_bytes = model->engine->space.bytes,
        .bytes_per_token = mo_checkpoint_bytes_per_token(model->checkpoint),
        .has_vocabulary = model->tokenizer != NULL,
        .fingerprint = mo_gguf_fingerprint(g),
        .rewinds = true,
        .prompt_precision = model->engine->precision,
    };
    for (int i = 0; i < f->all_count; i++) {
        const mo_layer *l = &f->all_layers[i];
        info.rewinds &=
            !mo_layer_recurrent(l) && (l->attention.window == 0 || l->attention.window >= info.context);
        if (l->routed) {
            info.experts = l->moe.experts;
            info.experts_used = l->moe.used;
        }
    }
    mo_gguf_string_or(g, "general.architecture", "", &info.architecture, NULL);
    mo_gguf_string_or(g, "general.name", "", &info.name, NULL);
    mo_report_write(out, size, &info, sizeof info);
}

const char *mo_model_text(const mo_model *model, const char *key)
{
    static const char template[] = "chat_template";
    const size_t prefix = sizeof template - 1;
    if (!model || !key) {
        return NULL;
    }
    if (strncmp(key, template, prefix) == 0 && (!key[prefix] || key[prefix] == '.')) {
        return mo_model_chat_template(model, key[prefix] ? key + prefix + 1 : NULL);
    }
    const mo_tiers *tiers = model->opened.tiers;
    const struct {
        const char *key, *text;
    } texts[] = {
        {"chat_format", mo_model_chat_name(model)},
        {"tool_format", mo_model_tool_format(model)},
        {"device", model->gpu ? model->device_name : NULL},
        {"tier.mode", model->mapped ? "mapped" : mo_plan_mode_text(&model->opened.choice.plan)},
        {"tier.policy", tiers && tiers->store ? mo_store_policy(tiers->store)->name : ""},
        {"disk_method", model->disk_method},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].key, key) == 0) {
            return texts[i].text;
        }
    }
    return NULL;
}

int mo_model_layer_experts(const mo_model *model, int layer)
{
    const mo_model_spec *f = model->engine->spec;
    const bool routed = layer >= 0 && layer < f->layer_count && f->layers[layer].routed;
    return routed ? f->layers[layer].moe.experts : 0;
}
