#include "plan/choice.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "plan/least.h"
#include "plan/prompt.h"

/* Minimum context. A shorter context is better than no plan, and than a plan without the device. */
enum { CONTEXT_LEAST = 512, CONTEXT_LEAST_DEVICE = 2048 };

/* Automatically chosen devices share a model only if tokens are this much faster than on the best one
 * alone. */
#define WORTH_SHARING 1.02

/* ---- A context and devices ---- */

static mo_status need(const mo_choice_ask *ask, int64_t batch, int64_t context, mo_choice *out, mo_error *err)
{
    mo_choice_drop(out);
    return ask->need(ask->user, batch, context, &out->model, err);
}

static mo_status prefixed(const mo_choice_ask *ask, mo_status status, mo_error *err)
{
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", ask->name);
}

/* True if some layers use the router choice of another layer. They must be on the same device. */
static bool joins(const mo_plan_model *m)
{
    bool some = false;
    for (int i = 0; m->layer && i < m->layers; i++) {
        some = some || m->layer[i].joined;
    }
    return some;
}

static mo_status plan_alone(const mo_choice_ask *ask, const mo_plan_device_limits *with, int64_t context,
                            mo_choice *out, mo_error *err)
{
    const mo_status status = need(ask, ask->batch, context, out, err);
    mo_plan_limits limits = with->limits;
    if (status != MO_OK) {
        return status;
    }
    limits.cpu_layers = limits.cpu_layers && !joins(&out->model);
    return prefixed(ask, mo_plan_choose(&out->model, &limits, &with->rates, &out->plan, err), err);
}

/* Plans as if the devices were one. Each has its own pinned memory. */
static mo_status plan_together(const mo_choice_ask *ask, int64_t batch, int64_t context, mo_choice *out,
                               mo_error *err)
{
    const mo_status status = need(ask, batch, context, out, err);
    if (status != MO_OK) {
        return status;
    }
    mo_plan_model *m = &out->model;
    m->device_host_bytes = ask->device_count * (m->device_host_bytes + m->device_piece_bytes);
    for (int i = 0; i < m->batch_count; i++) {
        mo_plan_batch *b = &m->batches[i];
        b->device_host_bytes = ask->device_count * (b->device_host_bytes + b->device_piece_bytes);
    }
    const mo_plan_device_limits sum = mo_plan_devices_sum(m, ask->each, ask->device_count);
    return prefixed(ask, mo_plan_choose(m, &sum.limits, &sum.rates, &out->plan, err), err);
}

/* Plans RAM and the batch for all devices together, then divides the layers with their sizes for this
 * batch. */
static mo_status plan_divided(const mo_choice_ask *ask, int64_t context, mo_choice *out, mo_error *err)
{
    mo_status status = plan_together(ask, ask->batch, context, out, err);
    if (status == MO_OK && ask->batch == 0) {
        char why[sizeof out->plan.batch_why];
        memcpy(why, out->plan.batch_why, sizeof why);
        status = plan_together(ask, out->model.batch, out->model.context, out, err);
        memcpy(out->plan.batch_why, why, sizeof why);
    }
    if (status != MO_OK || out->model.core_on_cpu) {
        return status;
    }
    out->division = calloc(1, sizeof *out->division);
    return prefixed(ask,
                    out->division
                        ? mo_plan_divide(&out->model, ask->each, ask->device_count, !ask->any_device,
                                         &out->plan, out->division, err)
                        : mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again"),
                    err);
}

/* ---- The context ---- */

/* Why a device was too small: the error of the context that needs the least VRAM. */
typedef struct refusal {
    int64_t vram_bytes; /* 0: none yet */
    mo_error why;
} refusal;

static void keep_lowest(const mo_plan_device_limits *one, const mo_choice *c, const mo_error *why,
                        refusal *lowest)
{
    const int64_t vram = one ? mo_plan_least_vram(&c->model, &one->limits) : 0;
    if (lowest->vram_bytes == 0 || (vram > 0 && vram < lowest->vram_bytes)) {
        *lowest = (refusal){.vram_bytes = vram, .why = *why};
    }
}

/* Plans with one device or none, or with all devices (one NULL). A default context is halved until the model
 * fits. On a device that is too small for every context, the longest may need the least VRAM: a KV cache that
 * is most of the memory can move to RAM. *longest: the first context tried. */
static mo_status plan_with(const mo_choice_ask *ask, const mo_plan_device_limits *one, int64_t *longest,
                           mo_choice *out, mo_error *err)
{
    const int64_t vram = one ? one->limits.vram_bytes : ask->machine.limits.vram_bytes;
    const int64_t least = vram && ask->any_device ? CONTEXT_LEAST_DEVICE : CONTEXT_LEAST;
    refusal lowest = {0};
    mo_status status = MO_OK;
    for (int64_t context = ask->context;; context = out->model.context / 2) {
        status = one ? plan_alone(ask, one, context, out, err) : plan_divided(ask, context, out, err);
        *longest = context == ask->context ? out->model.context : *longest;
        if (status == MO_EDEVICE) {
            keep_lowest(one, out, err, &lowest);
        }
        if ((status != MO_ENOMEM && status != MO_EDEVICE) || ask->context || out->model.context / 2 < least) {
            break;
        }
    }
    if (status == MO_EDEVICE && lowest.vram_bytes > 0) {
        *err = lowest.why;
    }
    return status;
}

/* ---- The devices ---- */

/* The single device with the fastest tokens; *speed: its tokens per second. *out: scratch space. */
static int fastest_device(const mo_choice_ask *ask, mo_choice *out, double *speed)
{
    int best = 0;
    *speed = 0;
    for (int i = 0; i < ask->device_count; i++) {
        mo_error ignored = {0};
        if (plan_alone(ask, &ask->alone[i], ask->context, out, &ignored) == MO_OK &&
            out->plan.tokens_per_second > *speed) {
            *speed = out->plan.tokens_per_second;
            best = i;
        }
    }
    return best;
}

/* Several devices share the layers unless one of them alone is faster: it can stream layers that do not fit.
 * The log then gives the reason. Returns the device to use; -1: all. *out: scratch space. */
static int choose_device(const mo_choice_ask *ask, mo_choice *out)
{
    mo_error why = {0};
    int64_t longest = 0;
    double alone = 0;
    const bool named = !ask->any_device;
    const mo_status status = plan_with(ask, NULL, &longest, out, &why);
    const bool divided = status == MO_OK && out->division && out->division->count > 1;
    const int first = status == MO_OK && out->division ? out->division->run[0].device : 0;
    const double shared = out->plan.tokens_per_second;
    if (status == MO_OK && (joins(&out->model) || out->model.core_on_cpu)) {
        const char *what = out->model.core_on_cpu ? "experts of a model whose layers the CPU computes"
                                                  : "layers that share the positions of an indexer";
        const int one = fastest_device(ask, out, &alone);
        mo_log(named ? MO_LOG_WARN : MO_LOG_INFO, "device",
               "only one of %d devices is used, %s: %s are not divided among devices", ask->device_count,
               ask->each[one].rates.device, what);
        return one;
    }
    const int best = divided && named ? 0 : fastest_device(ask, out, &alone);
    if (divided && (named || !(shared < WORTH_SHARING * alone))) {
        return -1;
    }
    const int device = status == MO_OK && !divided && named ? first : best;
    mo_log(named ? MO_LOG_WARN : MO_LOG_INFO, "device", "only one of %d devices is used, %s: %s",
           ask->device_count, ask->each[device].rates.device,
           status != MO_OK ? why.detail
           : divided       ? "the others would not make a token faster"
                           : "the others are too small for a layer, or would make a token slower");
    return device;
}

/* ---- The choice ---- */

/* Warns once if the rates were measured before those of experts by size: missing experts are then divided by
 * the rates of large copies. */
static void note_old(const mo_rates *r, const mo_choice *c)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (r->old && c->plan.device.ceiling && c->model.class_count && !atomic_flag_test_and_set(&said)) {
        mo_log(MO_LOG_WARN, "plan",
               "the machine's rates are older than those of experts by size: who computes missing ones is "
               "planned by "
               "the rates of large copies; moraine probe measures the others");
    }
}

mo_status mo_choice_make(const mo_choice_ask *ask, mo_choice *out, mo_error *err)
{
    int64_t longest = 0;
    mo_error why = {0}, small = {0};
    const bool several = ask->device_count > 1;
    *out = (mo_choice){0};
    const int alone = several ? choose_device(ask, out) : -1;
    mo_plan_device_limits machine = alone >= 0 ? ask->alone[alone] : ask->machine;
    mo_status status = plan_with(ask, several && alone < 0 ? NULL : &machine, &longest, out, &small);
    if (status == MO_EDEVICE && ask->any_device) {
        why = small;
        machine.limits.vram_bytes = 0;
        status = plan_with(ask, &machine, &longest, out, &small);
    }
    out->layers = status == MO_OK ? calloc((size_t)out->model.layers + 1, sizeof *out->layers) : NULL;
    if (status == MO_OK && !out->layers) {
        status = mo_fail(&small, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    if (status == MO_OK) {
        mo_placement_list(&out->model, &out->plan, out->layers);
        note_old(&machine.rates, out);
    } else {
        mo_choice_drop(out);
        mo_fail(err, status, "%s", small.detail);
    }
    out->wanted_context = longest;
    out->alone = alone;
    snprintf(out->why, sizeof out->why, "%.255s", why.detail);
    return status;
}

void mo_choice_tell(const mo_choice *c)
{
    if (c->model.context < c->wanted_context) {
        mo_log(MO_LOG_WARN, "plan",
               "the context is %lld tokens instead of %lld: there is no "
               "memory for more; raise `ram_bytes`%s, or set `context`",
               (long long)c->model.context, (long long)c->wanted_context,
               c->plan.device.ceiling ? " or `vram_bytes`" : "");
    }
}

void mo_choice_drop(mo_choice *c)
{
    free((mo_plan_layer *)c->model.layer);
    free(c->layers);
    free(c->division);
    *c = (mo_choice){0};
}

mo_placement mo_choice_view(const mo_choice *c)
{
    return (mo_placement){.model = &c->model, .plan = &c->plan, .layers = c->layers};
}
