#include "api/means.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "hotcache/toggles.h"
#include "plan/limits.h"

/* ---- Settings ---- */

static mo_status read_settings(const mo_means_ask *ask, mo_means *m, mo_postfetch_notes *notes, mo_error *err)
{
    mo_hot_toggles toggles;
    mo_status status = mo_hot_request_make(ask->hot_cache, &m->hot, err);
    if (status == MO_OK) {
        status = mo_postfetch_settings(ask->postfetch, NULL, NULL, &m->postfetch, notes, err);
    }
    if (status == MO_OK) {
        status = mo_precision_find(ask->precision, NULL, &m->precision, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_hot_toggles_read(environ, &toggles);
    for (int i = 0; i < toggles.lines && (m->hot.file || ask->to_open); i++) {
        mo_log(MO_LOG_WARN, "learning", "%s", toggles.line[i]);
    }
    m->hot.no_fill = toggles.no_fill;
    m->serial = toggles.serial;
    return MO_OK;
}

/* ---- The device ---- */

/* With a hot cache no other expert stays in VRAM, and what it leaves free may be less than usual. */
static void limit_device(const mo_means_ask *ask, int device, int64_t free_bytes, mo_means *m)
{
    const bool less = m->hot.file && m->hot.max_mib < 0 && m->hot.reserve_mib < MO_PLAN_VRAM_RESERVE_MIB;
    mo_plan_limits_device(ask->vram_bytes, free_bytes, less ? m->hot.reserve_mib : MO_PLAN_VRAM_RESERVE_MIB,
                          &m->limits);
    m->limits.cpu_moe |= m->hot.file != NULL;
    m->limits.vram_place = mo_place_here(MO_TIER_VRAM, device);
}

/* Another machine's device is what its file says. */
static mo_status describe_device(const mo_means_ask *ask, mo_means *m, mo_error *err)
{
    const bool none = ask->device && strcmp(ask->device, "none") == 0;
    const bool any = !ask->device || strcmp(ask->device, "auto") == 0;
    m->device_bytes = m->rates.vram_bytes;
    if (!none && !any) {
        return mo_fail(
            err, MO_EINVAL,
            "device \"%.40s\": the file says which device the other machine has; \"none\" leaves it out",
            ask->device);
    }
    if (m->rates.vram_bytes > 0 && !none) {
        char name[sizeof m->rates.device];
        snprintf(name, sizeof name, "%s", m->rates.device[0] ? m->rates.device : "the device described");
        m->device_measured = mo_rates_for_device(&m->rates, name, 0, 0);
        limit_device(ask, 0, m->rates.vram_bytes, m);
    } else if (!none) {
        snprintf(m->why, sizeof m->why, "the machine described has none");
    }
    return MO_OK;
}

static mo_status find_device(const mo_means_ask *ask, mo_means *m, mo_error *err)
{
    mo_device_info info;
    /* Who asked for a ceiling of its memory is told in the error. */
    const bool told = ask->to_open && ask->vram_bytes == 0;
    const mo_status status = (told ? mo_device_choose_verbose : mo_device_choose)(ask->device, &m->device,
                                                                                  m->why, sizeof m->why, err);
    if (status == MO_OK && m->device) {
        mo_device_describe(m->device, &info);
        m->device_bytes = info.total_bytes;
        m->device_measured =
            mo_rates_for_device(&m->rates, info.name, info.link_bytes_s, info.memory_bytes_s);
        limit_device(ask, info.index, info.free_bytes, m);
        m->precision.precision = info.wide ? m->precision.precision : MO_PRECISION_EXACT;
    }
    return status;
}

void mo_means_drop_device(mo_means *m, const char *why)
{
    snprintf(m->why, sizeof m->why, "%.255s", why);
    mo_device_close(m->device);
    m->device = NULL;
    m->limits.vram_bytes = 0;
    m->hot.file = NULL;
}

/* ---- Together ---- */

void mo_means_count_held(mo_means *m)
{
    mo_plan_limits *l = &m->limits;
    l->ram_held = m->ram_given && !m->elsewhere ? mo_place_held(mo_place_here(MO_TIER_RAM, 0)) : 0;
    l->vram_held = m->vram_given && !m->elsewhere ? mo_place_held(l->vram_place) : 0;
}

static mo_status find_limits(const mo_means_ask *ask, mo_means *m, mo_error *err)
{
    if (m->hot.file && m->hot.max_mib < 0 && m->limits.vram_bytes == 0 && ask->ram_bytes == 0) {
        m->limits.reserve_bytes = m->hot.reserve_mib << 20; /* its reserve, not the plan's */
    }
    if (ask->mapped) {
        m->limits.ram_bytes = INT64_MAX;
    } else {
        const mo_status status = mo_plan_limits_find(ask->machine ? NULL : "", &m->rates, &m->limits, err);
        if (status != MO_OK) {
            return status;
        }
    }
    if (m->limits.vram_bytes == 0 && ask->vram_bytes > 0) {
        return mo_fail(err, MO_EDEVICE, "`vram_bytes` needs a device, and there is none%s%s",
                       m->why[0] ? ": " : "", m->why);
    }
    return MO_OK;
}

mo_status mo_means_find(const mo_means_ask *ask, mo_means *out, mo_error *err)
{
    mo_means m = {.ram_given = ask->ram_bytes > 0,
                  .vram_given = ask->vram_bytes > 0,
                  .elsewhere = ask->machine != NULL,
                  .any_device = !ask->vram_bytes && (!ask->device || strcmp(ask->device, "auto") == 0)};
    mo_postfetch_notes notes = {.count = 0};
    mo_status status = read_settings(ask, &m, &notes, err);
    if (status != MO_OK) {
        return status;
    }
    /* RAM keeps what it would hold alone: a device that is lost costs speed, not the session. */
    m.limits = (mo_plan_limits){.ram_keeps = true,
                                .cpu_layers = true,
                                .ram_bytes = ask->ram_bytes,
                                .reserve_bytes = -1,
                                .cpu_moe = ask->cpu_moe,
                                .postfetch = m.postfetch.force_cpu ? MO_POSTFETCH_OFF : m.postfetch.mode};
    if (m.limits.postfetch != MO_POSTFETCH_OFF) {
        m.limits.staging_bytes = m.postfetch.scratch_mb << 20;
    }
    if (ask->machine) {
        status = mo_rates_load(ask->machine, &m.rates, err);
    } else {
        m.rates = mo_rates_here();
    }
    if (status == MO_OK) {
        status = ask->machine ? describe_device(ask, &m, err) : find_device(ask, &m, err);
    }
    if (status == MO_OK && m.device && ask->to_open) {
        mo_postfetch_unknown(environ, &notes);
        for (int i = 0; i < notes.count; i++) {
            mo_log(MO_LOG_WARN, "device", "%s", notes.line[i]);
        }
    }
    if (status == MO_OK) {
        status = find_limits(ask, &m, err);
    }
    if (status != MO_OK) {
        mo_device_close(m.device);
        return status;
    }
    *out = m;
    return MO_OK;
}
