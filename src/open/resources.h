/* Means: what there is to plan with: the machine's rates and limits, the device, and the settings that decide about them.
 * `moraine plan` and opening a model find them here, so that both plan with the same. */
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
    const char *machine; /* a file that describes another one; NULL: this one */
    mo_described
        parts; /* of a described machine; gpu "auto": a described one if there is none, but a ceiling for it */
    bool to_open;     /* not just a plan: what the user should hear about the environment is logged */
    unsigned without; /* automatically chosen GPUs to leave out, one bit each */
    mo_location_holding instead; /* of a model of this process, which counts as free */
} mo_resources_ask;

typedef struct mo_resources {
    mo_rates rates;
    mo_plan_limits limits;
    mo_hot_request hot; /* with what the environment says */
    bool serial;        /* likewise */
    mo_postfetch postfetch;
    mo_precision_rule precision; /* as it was asked for; where no device can: exact */
    mo_device *device; /* this machine's, the caller's to close; NULL: none, or described in a file */
    int found;         /* how many devices there were, before one of them was chosen to be used alone */
    /* Several devices: `device` is the first of them, and limits and rates count them together. The caller's to close, too. */
    int device_count; /* 0: there are not several */
    mo_device *devices[MO_DEVICES];
    mo_plan_device_limits *each; /* [device_count] */
    mo_plan_device_limits *
        alone; /* [device_count] each without the others: one that is named twice has all of its memory then */
    bool each_measured[MO_DEVICES];
    bool each_bf16[MO_DEVICES]; /* it has products in bfloat16 */
    bool ram_given;             /* the ceiling of RAM was asked for, not found */
    bool vram_given;            /* likewise */
    char described[256];     /* one sentence: which machine is described; "": this one, or that of a file */
    bool other_machine;      /* another machine, where the models of this process hold nothing */
    bool any_device;         /* chosen automatically: if it is too small, the model runs without it */
    bool device_measured;    /* its rates */
    int64_t device_bytes;    /* that it has */
    char why[MO_DEVICE_WHY]; /* there is no device */
    double probed_disk_bytes_s;  /* of the rates, as probed; 0: not probed */
    bool disk_learned;           /* the disk's is what models ran with */
    mo_location_holding instead; /* as in mo_resources_ask */
} mo_resources;

/* On failure *out holds nothing. Any thread. */
mo_status mo_resources_find(const mo_resources_ask *ask, mo_resources *out, mo_error *err);

/* The disk of the model's file, where models have run from it on this machine, is as fast as they found it. */
void mo_resources_know_disk(mo_resources *resources, const char *path);

/* Counts what models of this process hold under ceilings that were given; what is found free already lacks it. Who then holds
 * what is planned keeps others from planning between. */
void mo_resources_count_held(mo_resources *resources);

/* The device is left out, or all of several, with the hot cache; `why` says what for. */
void mo_resources_drop_device(mo_resources *resources, const char *why);
/* Only this one of several devices is used: the others are closed. */
void mo_resources_use_device(mo_resources *resources, int number);
/* Closes the devices. */
void mo_resources_close(mo_resources *resources);

#endif
