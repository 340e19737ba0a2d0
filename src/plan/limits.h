/* Plan limits: how much memory a plan may use. */
#ifndef MO_PLAN_LIMITS_H
#define MO_PLAN_LIMITS_H

#include "plan/plan.h"

/* Fills the open limits: ram_bytes if it is 0, available_bytes and why always. `root` is prepended to every
 * path ("" for this machine, a directory with proc/ and sys/ in tests). root NULL plans for another machine
 * with rates->ram_bytes of memory.
 *
 * The ceiling is the smaller of MemAvailable and the free memory of the cgroups (v1 and v2, file cache
 * counted as free), each less its reserve. The default reserve is 6 %, but at least 512 MiB of MemAvailable
 * (other programs) or 128 MiB of a cgroup (kernel tables and caches), and at most a quarter of either.
 *
 * A given ceiling is kept even if it exceeds available_bytes; why then says so. MO_EUNSUPPORTED: the amount
 * of memory is unknown. Any thread. */
mo_status mo_plan_limits_find(const char *root, const mo_rates *rates, mo_plan_limits *limits, mo_error *err);

enum { MO_PLAN_VRAM_RESERVE_MIB = 256 };

/* Fills vram_bytes, vram_lacking, vram_margin and vram_why. free_bytes excludes the device's own context.
 * asked > 0 is a given ceiling: no reserve, but at most the free bytes. Otherwise the ceiling is the free
 * bytes less a reserve for driver growth and other programs: MO_PLAN_VRAM_RESERVE_MIB, or reserve_mib if that
 * is less and not negative, at most a quarter of the free bytes. Any thread. */
void mo_plan_limits_device(int64_t asked, int64_t free_bytes, int64_t reserve_mib, mo_plan_limits *limits);

/* Share of a device's free memory for entry `own` of the `count` times the device is named; given: their
 * ceilings (0: none). Entries with a ceiling get it and the others share the rest equally. If the ceilings
 * exceed the free memory, all share equally. */
int64_t mo_plan_limits_share(const int64_t *given, int count, int own, int64_t free_bytes);

#endif
