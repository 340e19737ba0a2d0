/* Resources: the input of a plan: the machine's rates and limits, the device, and the settings that affect
 * them. `moraine plan` and opening a model both use this module, so both plan with the same values. */
#ifndef MO_OPEN_RESOURCES_H
#define MO_OPEN_RESOURCES_H

#include "device/choice.h"
#include "hotcache/selection.h"
#include "plan/described.h"
#include "plan/divide.h"
#include "plan/postfetch.h"
#include "plan/precision.h"
#include "plan/rates.h"

typedef struct mo_resources_ask {
    const mo_model_options *options;
    const char *machine; /* file describing another machine; NULL: this one */
    /* parts of a described machine; gpu "auto": a described GPU if only a ceiling is given */
    mo_described parts;
    bool to_open;                /* for opening, not just a plan: messages about the environment are logged */
    unsigned without;            /* automatically chosen GPUs to leave out, one bit each */
    mo_location_holding instead; /* memory of a model of this process that counts as free */
} mo_resources_ask;

typedef struct mo_resources {
    mo_rates rates;
    mo_plan_limits limits;
    mo_hot_request hot; /* including the environment */
    bool serial;        /* likewise */
    mo_postfetch postfetch;
    mo_precision_rule precision; /* as requested; exact if no device supports it */
    mo_device *device; /* this machine's, closed by the caller; NULL: none, or described in a file */
    int found;         /* number of devices before a single one was chosen */
    /* Several devices: `device` is the first, and limits and rates are their sums. Closed by the caller
     * too. */
    int device_count; /* 0: one device or none */
    mo_device *devices[MO_DEVICES];
    mo_plan_device_limits *each; /* [device_count] */
    mo_plan_device_limits *
        alone; /* [device_count] each device on its own: one that is named twice then has all of its memory */
    bool each_measured[MO_DEVICES];
    bool each_bf16[MO_DEVICES]; /* supports products in bfloat16 */
    bool ram_given;             /* the RAM ceiling was given */
    bool vram_given;            /* likewise */
    char described[256];     /* one sentence: the described machine; "": this machine, or one from a file */
    bool other_machine;      /* another machine, where this process holds nothing */
    bool any_device;         /* chosen automatically: if it is too small, the model runs without it */
    bool device_measured;    /* its rates were measured */
    int64_t device_bytes;    /* total device memory */
    char why[MO_DEVICE_WHY]; /* why there is no device */
    double probed_disk_bytes_s;  /* the probed rate; 0: not probed */
    bool disk_learned;           /* the disk rate was learned from running models */
    mo_location_holding instead; /* as in mo_resources_ask */
} mo_resources;

/* On failure *out holds nothing. Any thread. */
mo_status mo_resources_find(const mo_resources_ask *ask, mo_resources *out, mo_error *err);

/* Uses the learned disk rate if models have run from this file's disk on this machine. */
void mo_resources_know_disk(mo_resources *resources, const char *path);

/* Counts the bytes that models of this process hold under given ceilings; measured free memory already
 * excludes them. Until the new plan's memory is reserved, no other plan may be made in between. */
void mo_resources_count_held(mo_resources *resources);

/* Leaves out the device, or all of several, together with the hot cache; `why` is the reason. */
void mo_resources_drop_device(mo_resources *resources, const char *why);
/* Uses only this one of several devices; closes the others. */
void mo_resources_use_device(mo_resources *resources, int number);
void mo_resources_close(mo_resources *resources);

#endif
