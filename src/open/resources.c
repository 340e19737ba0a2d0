#include "open/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "hotcache/toggles.h"
#include "plan/disk_rate.h"
#include "plan/limits.h"

/* ---- Settings ---- */

/* An empty environment. */
static const char *nothing(void *user, const char *name)
{
    (void)user;
    (void)name;
    return NULL;
}

static mo_status read_settings(const mo_resources_ask *ask, mo_resources *m, mo_postfetch_notes *notes,
                               mo_error *err)
{
    mo_hot_toggles toggles;
    mo_status status = mo_hot_request_make(&ask->options->learning.hot_cache, &m->hot, err);
    if (status == MO_OK) {
        status = mo_postfetch_settings(ask->options->postfetch, ask->options->environment ? NULL : nothing,
                                       NULL, &m->postfetch, notes, err);
    }
    if (status == MO_OK) {
        status = mo_precision_find(ask->options->prompt_precision, ask->options->environment ? NULL : "",
                                   &m->precision, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_hot_toggles_read(ask->options->environment ? environ : NULL, &toggles);
    for (int i = 0; i < toggles.lines && (m->hot.file || ask->to_open); i++) {
        mo_log(MO_LOG_WARN, "learning", "%s", toggles.line[i]);
    }
    m->hot.no_fill = toggles.no_fill;
    memcpy(m->hot.words, toggles.words, sizeof m->hot.words);
    m->serial = toggles.serial;
    return MO_OK;
}

/* ---- The device ---- */

/* The given ceiling of this device; 0: none. */
static int64_t ceiling_of(const mo_resources_ask *ask, int number)
{
    const mo_model_options *o = ask->options;
    const int64_t own = number < o->vram_each_count ? o->vram_each[number] : 0;
    return own > 0 ? own : o->vram_bytes;
}

/* Free memory there, including memory about to be freed. */
static int64_t free_of(const mo_resources_ask *ask, const mo_device_info *info)
{
    const int64_t more = mo_location_holding_at(&ask->instead, mo_location_here(MO_TIER_VRAM, info->index));
    return info->total_bytes - info->free_bytes < more ? info->total_bytes : info->free_bytes + more;
}

/* Memory held there by other models. */
static int64_t held_by_others(const mo_resources *m, mo_location_id location)
{
    return mo_location_held(location) - mo_location_holding_at(&m->instead, location);
}

/* MiB that an automatically sized hot cache leaves free; -1: no such cache. */
static int64_t hot_reserve(const mo_resources *m)
{
    return m->hot.file && m->hot.max_mib < 0 ? m->hot.reserve_mib : -1;
}

static void limit_device(const mo_resources_ask *ask, int number, int device, int64_t free_bytes,
                         const mo_resources *m, mo_plan_limits *limits)
{
    mo_plan_limits_device(ceiling_of(ask, number), free_bytes, hot_reserve(m), limits);
    limits->vram_location = mo_location_here(MO_TIER_VRAM, device);
}

/* The device of another machine, from its file. */
static mo_status describe_device(const mo_resources_ask *ask, mo_resources *m, mo_error *err)
{
    const bool none = ask->options->device && strcmp(ask->options->device, "none") == 0;
    const bool any = !ask->options->device || strcmp(ask->options->device, "auto") == 0;
    m->device_bytes = m->rates.vram_bytes;
    if (!none && !any) {
        return mo_fail(
            err, MO_EINVAL,
            "`device` \"%.40s\": the description of the machine says which it has; use \"none\" to ignore it",
            ask->options->device);
    }
    if (m->rates.vram_bytes > 0 && !none) {
        char name[sizeof m->rates.device];
        snprintf(name, sizeof name, "%s", m->rates.device[0] ? m->rates.device : "the described device");
        m->device_measured = mo_rates_for_device(&m->rates, name, 0, 0, 0);
        limit_device(ask, 0, 0, m->rates.vram_bytes, m, &m->limits);
    } else if (!none) {
        snprintf(m->why, sizeof m->why, "the described machine has none");
    }
    return MO_OK;
}

static bool same_device(mo_device *a, mo_device *b)
{
    mo_device_info one, other;
    mo_device_describe(a, &one);
    mo_device_describe(b, &other);
    return strcmp(one.kind, other.kind) == 0 && one.index == other.index;
}

/* Free memory for device `number` of the list; a device may be listed several times. */
static int64_t free_for(const mo_resources_ask *ask, mo_device *const *devices, int count, int number,
                        int64_t free_bytes)
{
    int64_t given[MO_DEVICES];
    int times = 0, own = 0;
    for (int i = 0; i < count; i++) {
        if (same_device(devices[i], devices[number])) {
            own = i == number ? times : own;
            given[times++] = ceiling_of(ask, i);
        }
    }
    return mo_plan_limits_share(given, times, own, free_bytes);
}

static mo_status list_devices(const mo_resources_ask *ask, int count, mo_resources *m, mo_error *err)
{
    bool bf16 = false;
    m->each = calloc((size_t)count, sizeof *m->each);
    m->alone = calloc((size_t)count, sizeof *m->alone);
    if (!m->each || !m->alone) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a list of devices");
    }
    m->device_count = count;
    m->device_bytes = 0;
    for (int i = 0; i < count; i++) {
        mo_device_info info;
        mo_plan_device_limits *c = &m->each[i];
        mo_device_describe(m->devices[i], &info);
        c->rates = m->rates;
        m->each_measured[i] = mo_rates_for_device(&c->rates, info.name, info.link_bytes_s, info.link_copy_s,
                                                  info.memory_bytes_s);
        limit_device(ask, i, info.index, free_for(ask, m->devices, count, i, free_of(ask, &info)), m,
                     &c->limits);
        m->alone[i].rates = c->rates;
        limit_device(ask, i, info.index, free_of(ask, &info), m, &m->alone[i].limits);
        m->device_bytes += info.total_bytes;
        m->each_bf16[i] = info.bf16;
        bf16 |= info.bf16;
        m->limits.vram_bytes += c->limits.vram_bytes; /* until the model is known */
    }
    m->precision.precision = bf16 ? m->precision.precision : MO_PRECISION_EXACT;
    m->rates = m->each[0].rates;
    m->device_measured = m->each_measured[0];
    m->limits.vram_location = m->each[0].limits.vram_location;
    return MO_OK;
}

static mo_status check_ceilings(const mo_resources_ask *ask, int count, mo_error *err)
{
    for (int i = count > 0 ? count : 1; i < ask->options->vram_each_count; i++) {
        if (ask->options->vram_each[i] > 0) {
            return mo_fail(err, MO_EINVAL, "`vram_each` has ceilings for more than the %d available devices",
                           count);
        }
    }
    return MO_OK;
}

/* Removes devices that failed before. */
static void leave_out(const mo_resources_ask *ask, mo_resources *m, int *count)
{
    int left = 0;
    for (int i = 0; i < *count; i++) {
        mo_device_info info;
        mo_device_describe(m->devices[i], &info);
        if (info.index < 32 && (ask->without >> info.index & 1)) {
            mo_device_close(m->devices[i]);
        } else {
            m->devices[left++] = m->devices[i];
        }
    }
    *count = left;
}

static mo_status find_device(const mo_resources_ask *ask, mo_resources *m, mo_error *err)
{
    mo_device_info info;
    int count = 0;
    /* If a ceiling for its memory was given, the error reports it. */
    const bool told = ask->to_open && ceiling_of(ask, 0) == 0;
    mo_status status =
        mo_devices_choose(ask->options->device, told, m->devices, &count, m->why, sizeof m->why, err);
    if (status == MO_OK && ask->without && m->any_device) {
        leave_out(ask, m, &count);
    }
    m->device = count > 0 ? m->devices[0] : NULL;
    m->found = m->device_count = count;
    if (status == MO_OK) {
        status = check_ceilings(ask, count, err);
    }
    if (status == MO_OK && count > 1) {
        return list_devices(ask, count, m, err);
    }
    if (status == MO_OK && m->device) {
        m->device_count = 0;
        mo_device_describe(m->device, &info);
        m->device_bytes = info.total_bytes;
        m->device_measured = mo_rates_for_device(&m->rates, info.name, info.link_bytes_s, info.link_copy_s,
                                                 info.memory_bytes_s);
        limit_device(ask, 0, info.index, free_of(ask, &info), m, &m->limits);
        m->precision.precision = info.bf16 ? m->precision.precision : MO_PRECISION_EXACT;
    }
    return status;
}

/* Gives each device the shared limits and its own ceiling. */
static void share_limits(const mo_resources *m, mo_plan_device_limits *each)
{
    for (int i = 0; i < m->device_count; i++) {
        mo_plan_limits *own = &each[i].limits, all = m->limits;
        all.vram_bytes = own->vram_bytes;
        all.vram_held = own->vram_held;
        all.vram_lacking = own->vram_lacking;
        all.vram_there = own->vram_there;
        all.vram_margin = own->vram_margin;
        all.vram_location = own->vram_location;
        memcpy(all.vram_why, own->vram_why, sizeof all.vram_why);
        *own = all;
    }
}

static void free_devices(mo_resources *m)
{
    free(m->each);
    free(m->alone);
    m->each = m->alone = NULL;
    m->device_count = 0;
}

void mo_resources_close(mo_resources *m)
{
    for (int i = 1; i < m->device_count; i++) {
        mo_device_close(m->devices[i]);
    }
    mo_device_close(m->device);
    m->device = NULL;
    free_devices(m);
}

void mo_resources_drop_device(mo_resources *m, const char *why)
{
    snprintf(m->why, sizeof m->why, "%.255s", why);
    mo_resources_close(m);
    m->limits.vram_bytes = 0;
    m->hot.file = NULL;
}

void mo_resources_use_device(mo_resources *m, int number)
{
    mo_device_info info;
    mo_device *device = m->devices[number];
    for (int i = 0; i < m->device_count; i++) {
        if (i != number) {
            mo_device_close(m->devices[i]);
        }
    }
    mo_device_describe(device, &info);
    m->limits = m->alone[number].limits;
    m->rates = m->alone[number].rates;
    m->device_measured = m->each_measured[number];
    m->device_bytes = info.total_bytes;
    if (!m->each_bf16[number] && m->precision.precision != MO_PRECISION_EXACT) {
        mo_log(MO_LOG_WARN, "device", "%s has no bf16 matrix products: prompts are computed exactly",
               info.name);
        m->precision.precision = MO_PRECISION_EXACT;
    }
    free_devices(m);
    m->device = m->devices[0] = device;
}

/* ---- Described machines ---- */

static mo_status describe(const mo_resources_ask *ask, const char *gpu, mo_resources *m, mo_error *err)
{
    mo_described parts = ask->parts;
    parts.gpu = gpu;
    m->other_machine = true;
    if (ask->options->ram_bytes > 0) {
        m->rates.ram_bytes = 0; /* not this machine's */
    }
    return mo_described_apply(&parts, &m->rates, m->described, sizeof m->described, err);
}

/* An unnamed GPU of which only the ceiling is known. */
static mo_status describe_any(const mo_resources_ask *ask, mo_resources *m, mo_error *err)
{
    const mo_status status = describe(ask, mo_described_gpu_with(ceiling_of(ask, 0))->name, m, err);
    return status == MO_OK ? describe_device(ask, m, err) : status;
}

/* Finds the rates and the device: this machine's, or those of a file or of described parts. */
static mo_status find_machine(const mo_resources_ask *ask, mo_resources *m, mo_error *err)
{
    const mo_described *parts = &ask->parts;
    const mo_model_options *o = ask->options;
    const bool any = !o->device || strcmp(o->device, "auto") == 0;
    const bool unnamed = parts->gpu && strcmp(parts->gpu, "auto") == 0;
    const bool given = (parts->gpu && !unnamed) || parts->cpu || parts->disk || parts->ram_bytes;
    mo_status status = MO_OK;
    if (ask->machine) {
        status = mo_rates_load(ask->machine, &m->rates, err);
    } else {
        m->rates = mo_rates_here();
    }
    if (status == MO_OK && given) {
        status = describe(ask, unnamed ? NULL : parts->gpu, m, err);
    }
    m->probed_disk_bytes_s = m->rates.measured ? m->rates.disk_bytes_s : 0;
    if (status != MO_OK) {
        return status;
    }
    if (ask->machine || (parts->gpu && !unnamed)) {
        return describe_device(ask, m, err);
    }
    if (parts->ram_bytes) { /* no GPU of this machine */
        return ceiling_of(ask, 0) > 0 ? describe_any(ask, m, err) : describe_device(ask, m, err);
    }
    status = find_device(ask, m, err);
    const bool one = ceiling_of(ask, 0) > 0 && o->vram_each_count < 2;
    return status == MO_OK && !m->device && unnamed && any && one ? describe_any(ask, m, err) : status;
}

/* ---- All resources ---- */

void mo_resources_know_disk(mo_resources *m, const char *path)
{
    const double found = m->other_machine ? 0 : mo_disk_rate_known(path);
    if (found > 0) {
        m->rates.disk_bytes_s = found;
        m->disk_learned = true;
    }
    for (int i = 0; i < m->device_count; i++) {
        m->each[i].rates.disk_bytes_s = m->alone[i].rates.disk_bytes_s = m->rates.disk_bytes_s;
    }
}

void mo_resources_count_held(mo_resources *m)
{
    mo_plan_limits *l = &m->limits;
    l->ram_held = m->ram_given && !m->other_machine ? held_by_others(m, mo_location_here(MO_TIER_RAM, 0)) : 0;
    l->vram_held = m->vram_given && !m->other_machine ? held_by_others(m, l->vram_location) : 0;
    for (int i = 0; i < 2 * m->device_count; i++) {
        const int number = i / 2;
        mo_plan_limits *own = i % 2 ? &m->alone[number].limits : &m->each[number].limits;
        own->ram_held = l->ram_held;
        own->vram_held = m->vram_given && own->vram_margin == 0 ? held_by_others(m, own->vram_location) : 0;
    }
}

static mo_status find_limits(const mo_resources_ask *ask, mo_resources *m, mo_error *err)
{
    if (hot_reserve(m) >= 0 && m->limits.vram_bytes == 0 && ask->options->ram_bytes == 0) {
        m->limits.reserve_bytes = hot_reserve(m) << 20; /* the cache's reserve, not the plan's */
    }
    if (ask->options->map) { /* the kernel decides which pages stay */
        m->limits.ram_bytes = INT64_MAX;
    } else {
        const bool elsewhere = ask->machine || ask->parts.ram_bytes || (m->described[0] && m->ram_given);
        const mo_status status = mo_plan_limits_find(elsewhere ? NULL : "", &m->rates, &m->limits, err);
        if (status != MO_OK) {
            return status;
        }
    }
    if (m->limits.vram_bytes == 0 && ceiling_of(ask, 0) > 0) {
        return mo_fail(err, MO_EDEVICE, "`vram_bytes` requires a device, but there is none%s%s",
                       m->why[0] ? ": " : "", m->why);
    }
    return MO_OK;
}

mo_status mo_resources_find(const mo_resources_ask *ask, mo_resources *out, mo_error *err)
{
    mo_resources m = {.ram_given = ask->options->ram_bytes > 0,
                      .vram_given = ceiling_of(ask, 0) > 0,
                      .other_machine = ask->machine != NULL,
                      .instead = ask->instead,
                      .any_device = !ceiling_of(ask, 0) &&
                                    (!ask->options->device || strcmp(ask->options->device, "auto") == 0)};
    mo_postfetch_notes notes = {.count = 0};
    mo_status status = read_settings(ask, &m, &notes, err);
    if (status != MO_OK) {
        return status;
    }
    /* RAM keeps everything it would need alone: losing the device costs speed, not the session. */
    m.limits = (mo_plan_limits){.ram_keeps = true,
                                .cpu_layers = true,
                                .ram_bytes = ask->options->ram_bytes,
                                .reserve_bytes = -1,
                                /* the cache has all experts in VRAM */
                                .cpu_moe = ask->options->cpu_moe || m.hot.file,
                                .postfetch = m.postfetch.force_cpu ? MO_POSTFETCH_OFF : m.postfetch.mode};
    if (m.limits.postfetch != MO_POSTFETCH_OFF) {
        m.limits.staging_bytes = m.postfetch.scratch_mb << 20;
    }
    status = find_machine(ask, &m, err);
    if (status == MO_OK && m.device && ask->to_open) {
        mo_postfetch_unknown(ask->options->environment ? environ : NULL, &notes);
        for (int i = 0; i < notes.count; i++) {
            mo_log(MO_LOG_WARN, "device", "%s", notes.line[i]);
        }
    }
    if (status == MO_OK) {
        status = find_limits(ask, &m, err);
    }
    if (status != MO_OK) {
        mo_resources_close(&m);
        return status;
    }
    share_limits(&m, m.each);
    share_limits(&m, m.alone);
    *out = m;
    return MO_OK;
}
