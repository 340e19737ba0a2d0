/* Statistics: values of open models and of plans by name. One table says what there is; where a model measures what a plan
 * expects, both have one name. */
#ifndef MO_API_STATS_H
#define MO_API_STATS_H

#include "moraine_server.h"

/* What a model's values are read from, all at one time. */
typedef struct mo_run_look {
    mo_model_info info;
    mo_counter_report counters;
    mo_speculation_report speculation;
    mo_tier_report tiers;
    mo_tier_phase both; /* the sum of both phases of `tiers` */
    mo_split_report split;
    mo_device_report device;
    bool has_device;
    mo_kept_report kept;
    mo_traffic_report traffic;
    /* Computed from those; 0: nothing to divide by. */
    double tokens_per_second, prompt_tokens_per_second, ram_hit_rate, device_hit_rate;
} mo_run_look;

/* What a plan's values are read from. */
typedef struct mo_plan_look {
    mo_plan_report report;
    int64_t ram_slots; /* of all classes; 0 where every expert is resident, as models report it */
    bool has_device, has_hot_cache;
} mo_plan_look;

typedef struct mo_layer_look {
    int experts; /* that the layer's router chooses among */
} mo_layer_look;

typedef enum mo_stat_type {
    MO_STAT_NONE, /* there is no such value */
    MO_STAT_BOOL,
    MO_STAT_INT,
    MO_STAT_UNSIGNED,
    MO_STAT_I64,
    MO_STAT_U64,
    MO_STAT_DOUBLE
} mo_stat_type;

/* What the index of a value counts, and the struct that has the value. */
typedef enum mo_stat_list {
    MO_STAT_ONE,           /* only index 0: mo_run_look, mo_plan_look */
    MO_STAT_LAYERS,        /* layers: mo_layer_look */
    MO_STAT_DEVICE_LAYERS, /* layers: mo_device_layer, 0 for those that needed no host */
    MO_STAT_EXPERTS,       /* layer * experts + expert: mo_expert_report */
    MO_STAT_CLASSES,       /* sizes of experts: mo_plan_report_class */
    MO_STAT_CARDS          /* devices, where there are several: mo_plan_report_card */
} mo_stat_list;

typedef struct mo_stat_member {
    size_t offset;
    mo_stat_type type;
} mo_stat_member;

typedef struct mo_stat {
    const char *name, *about;
    mo_stat_list list;
    mo_stat_member run, plan; /* of open models, and of plans; the type may be NONE */
} mo_stat;

/* By number, NULL past the last; and by name, of which `length` bytes count: MO_ENOENT with the nearest. */
const mo_stat *mo_stat_at(int index);
mo_status mo_stat_find(const char *name, size_t length, const mo_stat **out, mo_error *err);

double mo_stat_value(const void *from, mo_stat_member member);

/* MO_EINVAL: the index is not below the count. */
mo_status mo_stat_check_index(const mo_stat *stat, int64_t index, int64_t count, mo_error *err);

#endif
