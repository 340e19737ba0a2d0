/* Names of the profile's times and lanes in JSON. Private to json.c and parse.c. */
#ifndef MO_PROFILE_KEYS_H
#define MO_PROFILE_KEYS_H

#include "profile/profile.h"

enum { MO_PROFILE_OWN_FORMAT = 1 };

/* In the schema: microseconds per call. */
static const char *const mo_profile_key_time[MO_TIMES] = {
    [MO_TIME_MOE] = "total_moe_time_per_call_us",
    [MO_TIME_ROUTING] = "routing_time_per_call_us",
    [MO_TIME_HOT] = "parallel_hot_lane_wall_time_per_call_us",
    [MO_TIME_COLD] = "parallel_cold_lane_wall_time_per_call_us",
    [MO_TIME_JOIN] = "parallel_join_wait_time_per_call_us",
    [MO_TIME_REGION] = "parallel_region_wall_time_per_call_us",
    [MO_TIME_WORKLIST] = "worklist_time_per_call_us",
    [MO_TIME_PRODUCTS] = "expert_matmul_time_per_call_us",
    [MO_TIME_MERGE] = "merge_time_per_call_us",
    [MO_TIME_GATHER] = "gather_scatter_time_per_call_us",
    [MO_TIME_HOT_BRANCH] = "hot_branch_time_per_call_us",
    [MO_TIME_COLD_BRANCH] = "cold_branch_time_per_call_us",
    [MO_TIME_HOT_PRODUCTS] = "hot_expert_matmul_time_per_call_us",
    [MO_TIME_COLD_PRODUCTS] = "cold_expert_matmul_time_per_call_us",
    [MO_TIME_COLD_GATHER] = "cold_gather_scatter_time_per_call_us",
};

/* In the schema: how often a lane ran or had no work, and fallbacks. Reasons are in a separate object with
   our own names, because the original reasons concern ggml's graphs. */
static const char *const mo_profile_key_lane[MO_LANE_COUNTS] = {
    [MO_LANE_HOT_RUNS] = "parallel_hot_launches",
    [MO_LANE_COLD_RUNS] = "parallel_cold_launches",
    [MO_LANE_HOT_SKIPS] = "parallel_hot_skips_zero",
    [MO_LANE_COLD_SKIPS] = "parallel_cold_skips_zero",
};
#define MO_PROFILE_KEY_FALLBACKS "parallel_fallbacks"
#define MO_PROFILE_KEY_REASONS   "parallel_fallback_reasons"

/* In the "moraine" part: nanoseconds of all timed calls. */
static const char *const mo_profile_key_own_time[MO_TIMES] = {
    [MO_TIME_MOE] = "moe",
    [MO_TIME_ROUTING] = "routing",
    [MO_TIME_HOT] = "hot",
    [MO_TIME_COLD] = "cold",
    [MO_TIME_JOIN] = "join",
    [MO_TIME_REGION] = "region",
    [MO_TIME_WORKLIST] = "worklist",
    [MO_TIME_PRODUCTS] = "products",
    [MO_TIME_MERGE] = "merge",
    [MO_TIME_GATHER] = "gather",
    [MO_TIME_HOT_BRANCH] = "hot_branch",
    [MO_TIME_COLD_BRANCH] = "cold_branch",
    [MO_TIME_HOT_PRODUCTS] = "hot_products",
    [MO_TIME_COLD_PRODUCTS] = "cold_products",
    [MO_TIME_COLD_GATHER] = "cold_gather",
};

#endif
