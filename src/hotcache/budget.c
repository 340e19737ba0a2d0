#include "hotcache/budget.h"

#include <inttypes.h>

#include "base/status.h"

enum { MIB_SHIFT = 20 };

static uint64_t from_mib(uint64_t mib)
{
    return mib > UINT64_MAX >> MIB_SHIFT ? UINT64_MAX : mib << MIB_SHIFT;
}

uint64_t mo_hot_budget_auto(uint64_t free_bytes, uint64_t kv_bytes, uint64_t reserve_mib)
{
    const uint64_t reserve = from_mib(reserve_mib);
    if (kv_bytes > UINT64_MAX - reserve || free_bytes <= kv_bytes + reserve) {
        return 0;
    }
    return (free_bytes - kv_bytes - reserve) >> MIB_SHIFT << MIB_SHIFT;
}

mo_status mo_hot_budget(int64_t max_mib, uint64_t free_bytes, uint64_t kv_bytes, uint64_t reserve_mib,
                        uint64_t *bytes, mo_error *err)
{
    if (max_mib < MO_HOT_BUDGET_AUTO) {
        return mo_fail(
            err, MO_EINVAL,
            "%" PRId64
            " MiB is not a valid size of the hot cache; use 0 for none, -1 for all free memory, or a size",
            max_mib);
    }
    *bytes = max_mib == MO_HOT_BUDGET_AUTO ? mo_hot_budget_auto(free_bytes, kv_bytes, reserve_mib)
                                           : from_mib((uint64_t)max_mib);
    return MO_OK;
}
