#include "plan/limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/cgroup.h"
#include "base/status.h"
#include "base/textfile.h"
#include "plan/share.h"
#include "plan/text.h"

#define MIB ((int64_t)1 << 20)

/* One source of information about available memory. */
typedef struct source {
    const char *name;
    int64_t available, reserve;
} source;

static int64_t clamped(uint64_t bytes)
{
    return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

static source make_source(const char *name, uint64_t available, int64_t least, int64_t asked)
{
    source s = {.name = name, .available = clamped(available)};
    const int64_t quarter = s.available / 4;
    s.reserve = s.available / 100 * 6;
    s.reserve = s.reserve < least ? least : s.reserve;
    s.reserve = s.reserve > quarter ? quarter : s.reserve;
    s.reserve = asked >= 0 ? asked : s.reserve;
    return s;
}

static bool read_available(const char *root, uint64_t *bytes)
{
    char meminfo[8192], value[64];
    mo_textfile_read(meminfo, sizeof meminfo, "%s/proc/meminfo", root);
    return mo_textfile_value(meminfo, "MemAvailable", value, sizeof value) &&
           sscanf(value, "%" SCNu64 " kB", bytes) == 1 && !__builtin_mul_overflow(*bytes, 1024, bytes);
}

/* The source with the least memory. Returns false if none is known. */
static bool find_source(const char *root, const mo_rates *rates, int64_t asked, source *out)
{
    if (!root) {
        *out = make_source("the described machine", (uint64_t)rates->ram_bytes, 512 * MIB, asked);
        return rates->ram_bytes > 0;
    }
    uint64_t free_bytes = 0;
    const bool counted = read_available(root, &free_bytes);
    const mo_cgroup group = mo_cgroup_read(root);
    const bool limited = group.memory_limit_bytes > 0;
    const source memory = make_source("MemAvailable", free_bytes, 512 * MIB, asked);
    const source rest = make_source("the memory cgroup", group.memory_available_bytes, 128 * MIB, asked);
    const bool tighter = rest.available - rest.reserve < memory.available - memory.reserve;
    *out = limited && (tighter || !counted) ? rest : memory;
    return limited || counted;
}

static mo_status fail_unknown(const char *root, mo_error *err)
{
    return mo_fail(err, MO_EUNSUPPORTED,
                   root ? "free memory cannot be read from /proc/meminfo; set it "
                          "with `ram_bytes`"
                        : "the description of the machine has no ram_bytes; add it, or set it "
                          "with `ram_bytes`");
}

static void keep_given(const source *s, bool known, mo_plan_limits *l)
{
    char asked[32], there[32];
    mo_plan_size_text(l->ram_bytes, asked);
    if (known && l->ram_bytes > s->available) {
        snprintf(l->why, sizeof l->why,
                 "a RAM ceiling of %s was given, but %s has only %s: the system may swap or kill the process",
                 asked, s->name, mo_plan_size_text(s->available, there));
    } else {
        snprintf(l->why, sizeof l->why, "a RAM ceiling of %s was given", asked);
    }
}

mo_status mo_plan_limits_find(const char *root, const mo_rates *rates, mo_plan_limits *limits, mo_error *err)
{
    source s;
    char there[32], reserve[32];
    const bool known = find_source(root, rates, limits->reserve_bytes, &s);
    if (!known && limits->ram_bytes <= 0) {
        return fail_unknown(root, err);
    }
    limits->available_bytes = known ? s.available : 0;
    if (limits->ram_bytes > 0) {
        keep_given(&s, known, limits);
        return MO_OK;
    }
    mo_plan_size_text(s.available, there);
    mo_plan_size_text(s.reserve, reserve);
    if (s.reserve >= s.available) {
        return mo_fail(err, MO_ENOMEM,
                       "%s has %s left, and %s of it is reserved for other "
                       "programs; free some memory, or set `ram_bytes`",
                       s.name, there, reserve);
    }
    limits->ram_bytes = s.available - s.reserve;
    snprintf(limits->why, sizeof limits->why, "%s has %s, %s of it left for other programs", s.name, there,
             reserve);
    return MO_OK;
}

void mo_plan_limits_device(int64_t asked, int64_t free_bytes, int64_t reserve_mib, mo_plan_limits *l)
{
    char size[32], there[32], reserve[32];
    const bool less = reserve_mib >= 0 && reserve_mib < MO_PLAN_VRAM_RESERVE_MIB;
    const int64_t most = less ? reserve_mib : MO_PLAN_VRAM_RESERVE_MIB;
    const int64_t left = most < free_bytes / 4 / MIB ? most * MIB : free_bytes / 4;
    mo_plan_size_text(asked, size);
    mo_plan_size_text(free_bytes, there);
    mo_plan_size_text(left, reserve);
    if (asked > free_bytes) {
        l->vram_bytes = free_bytes;
        snprintf(l->vram_why, sizeof l->vram_why,
                 "a ceiling of %s was given, but the device has only %s free", size, there);
    } else if (asked > 0) {
        l->vram_bytes = asked;
        snprintf(l->vram_why, sizeof l->vram_why, "a ceiling of %s was given", size);
    } else {
        l->vram_bytes = free_bytes - left;
        snprintf(l->vram_why, sizeof l->vram_why, "the device has %s free, %s of it left unused", there,
                 reserve);
    }
    l->vram_lacking = asked > free_bytes ? asked - free_bytes : 0;
    l->vram_there = free_bytes;
    l->vram_margin = asked > 0 ? 0 : free_bytes - l->vram_bytes;
    /* a device without memory must fail, not be ignored */
    l->vram_bytes = l->vram_bytes > 0 ? l->vram_bytes : 1;
}

int64_t mo_plan_limits_share(const int64_t *given, int count, int own, int64_t free_bytes)
{
    int64_t sum = 0, open = 0;
    for (int i = 0; i < count; i++) {
        sum = mo_plan_sum(sum, given[i]);
        open += given[i] == 0;
    }
    return count < 2 || sum > free_bytes ? free_bytes / (count < 1 ? 1 : count)
           : given[own] > 0              ? given[own]
                                         : (free_bytes - sum) / (open < 1 ? 1 : open);
}
