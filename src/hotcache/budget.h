/* Hot budget: bytes of VRAM or RAM for hot experts, by the options. */
#ifndef MO_HOTCACHE_BUDGET_H
#define MO_HOTCACHE_BUDGET_H

#include "moraine.h"

enum {
    MO_HOT_BUDGET_OFF = 0,
    MO_HOT_BUDGET_AUTO = -1,
    MO_HOT_RESERVE_MIB = 1024, /* left free by an automatic budget unless the user sets a reserve */
};

/* The free bytes after the KV cache (0 if it is allocated already) and the reserve, in whole MiB; at least 0.
   Sums saturate. */
uint64_t mo_hot_budget_auto(uint64_t free_bytes, uint64_t kv_bytes, uint64_t reserve_mib);

/* The bytes for max_mib: MO_HOT_BUDGET_OFF, MO_HOT_BUDGET_AUTO or a fixed number of MiB. MO_EINVAL for
 * another negative number. */
mo_status mo_hot_budget(int64_t max_mib, uint64_t free_bytes, uint64_t kv_bytes, uint64_t reserve_mib,
                        uint64_t *bytes, mo_error *err);

#endif
