/* Statistics: values of open models and of plans by name, defined in one table. A value that a plan predicts
 * and a model measures has one name. */
#ifndef MO_API_STATS_H
#define MO_API_STATS_H

#include "moraine_server.h"

/* Source of a model's values, all taken at one time. */
typedef struct mo_run_look {
    mo_model_info info;
    mo_counter_report counters;
    mo_speculation_report speculation;
    mo_tier_report tiers;
    mo_tier_phase both; /* sum of both phases of `tiers` */
    mo_split_report split;
    mo_device_report device;
    bool has_device;
    mo_kept_report kept;
    mo_traffic_report traffic;
    /* Computed from those; 0: undefined. */
    double tokens_per_second, prompt_tokens_per_second, ram_hit_rate, device_hit_rate;
} mo_run_look;

/* Source of a plan's values. */
typedef struct mo_plan_look {
    mo_plan_report report;
    int64_t ram_slots; /* all classes; 0 if every expert is resident, as models report it */
    bool has_device, has_hot_cache;
} mo_plan_look;

typedef struct mo_layer_look {
    int experts; /* number that the layer's router chooses from */
} mo_layer_look;

typedef enum mo_stat_type {
    MO_STAT_NONE, /* no such value */
    MO_STAT_BOOL,
    MO_STAT_INT,
    MO_STAT_UNSIGNED,
    MO_STAT_I64,
    MO_STAT_U64,
    MO_STAT_DOUBLE
} mo_stat_type;

/* The meaning of a value's index, and the struct with the value. */
typedef enum mo_stat_list {
    MO_STAT_ONE,           /* index 0 only: mo_run_look, mo_plan_look */
    MO_STAT_LAYERS,        /* layers: mo_layer_look */
    MO_STAT_DEVICE_LAYERS, /* layers: mo_device_layer, 0 for layers that need no host */
    MO_STAT_EXPERTS,       /* layer * experts + expert: mo_expert_report */
    MO_STAT_CLASSES,       /* expert sizes: mo_plan_report_class */
    MO_STAT_CARDS          /* devices, if several: mo_plan_report_card */
} mo_stat_list;

typedef struct mo_stat_member {
    size_t offset;
    mo_stat_type type;
} mo_stat_member;

typedef struct mo_stat {
    const char *name, *about;
    mo_stat_list list;
    mo_stat_member run, plan; /* of open models, of plans; type may be NONE */
} mo_stat;

/* By index, NULL past the last. By name, `length` bytes: MO_ENOENT suggests the nearest name. */
const mo_stat *mo_stat_at(int index);
mo_status mo_stat_find(const char *name, size_t length, const mo_stat **out, mo_error *err);

double mo_stat_value(const void *from, mo_stat_member member);

/* MO_EINVAL: the index is out of range. */
mo_status mo_stat_check_index(const mo_stat *stat, int64_t index, int64_t count, mo_error *err);

#endif
