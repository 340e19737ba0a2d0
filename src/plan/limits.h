/* Plan limits: how much memory a plan may count on. */
#ifndef MO_PLAN_LIMITS_H
#define MO_PLAN_LIMITS_H

#include "plan/plan.h"

/* Fills what limits leave open: ram_bytes when it is 0, available_bytes and why in any case. `root` is put
 * before every path ("" for this machine, a directory with proc/ and sys/ in tests); NULL plans for
 * another machine, whose memory is rates->ram_bytes.
 *
 * The ceiling is the smaller of what MemAvailable and what the memory cgroups (v1 and v2, file cache
 * counted as free) leave, each less its reserve. Unless it is given, the reserve is 6 %, but at least 512
 * MiB of MemAvailable (other programs) or 128 MiB of a cgroup (the kernel's tables and caches), and at
 * most a quarter of either.
 *
 * A ceiling that was given is kept, even if it is more than can be had: why says so then, and ram_bytes
 * exceeds available_bytes. MO_EUNSUPPORTED when nothing says how much there is. Any thread. */
mo_status mo_plan_limits_find(const char *root, const mo_rates *rates, mo_plan_limits *limits, mo_error *err);

enum { MO_PLAN_VRAM_RESERVE_MIB = 256 };

/* Fills vram_bytes, vram_lacking, vram_margin and vram_why for a device with this much free memory, its own context already taken off. asked > 0 is
 * a ceiling that was given: kept without a reserve, but never more than is free. Otherwise what is free, less the reserve
 * (for the driver's own growth, and other programs: MO_PLAN_VRAM_RESERVE_MIB, or reserve_mib if that is less and not negative), at
 * most a quarter of it. Any thread. */
void mo_plan_limits_device(int64_t asked, int64_t free_bytes, int64_t reserve_mib, mo_plan_limits *limits);

/* A device's free memory for number `own` of the `count` times that it is named, with these ceilings (0: none). Those with a
 * ceiling have it, and the others share the rest alike; where the ceilings are too much together, all share alike. */
int64_t mo_plan_limits_share(const int64_t *given, int count, int own, int64_t free_bytes);

#endif
