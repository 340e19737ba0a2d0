/* Open: turns a file and resources into a model ready in RAM. Finds the requirements, plans, loads the
 * permanent part and opens the tiers for the rest. `moraine plan` stops after the plan. */
#ifndef MO_OPEN_OPEN_H
#define MO_OPEN_OPEN_H

#include "open/requirements.h"
#include "open/resources.h"
#include "plan/choice.h"
#include "store/tiers.h"

/* Plans. Removes an automatically chosen device that is too small from the resources; if one of several
 * devices is better alone, only that one remains. On failure *out holds nothing. Any thread. */
mo_status mo_opened_plan(const char *path, const mo_requirements_options *requirements,
                         mo_resources *resources, mo_choice *out, mo_error *err);

/* The same, and decides on speculative decoding. requirements->head says whether the model gets an MTP head
 * or a draft model. If `speculate` is mtp or draft, it does, or the call fails. If it is auto, it does if one
 * exists and its memory does not cause reads from disk. requirements->drafts is reduced if the model, its
 * weights in RAM or its context need the memory; to 0 only with auto. */
mo_status mo_opened_plan_guesses(const char *path, mo_requirements_options *requirements,
                                 mo_resources *resources, mo_choice *out, mo_error *err);

typedef struct mo_open_options {
    mo_resources *resources;
    mo_requirements_options requirements;
    const mo_policy *policy; /* NULL: the default */
    mo_disk_options disk;
    bool predict, skip_missing;
    bool map; /* map the whole file: no tiers, and a plan of the device only */
    mo_pool *pool;
    mo_progress_fn progress;
    void *user;
} mo_open_options;

typedef struct mo_opened {
    mo_choice choice;
    mo_checkpoint *model;
    mo_checkpoint *head; /* MTP head or draft model; NULL: none */
    /* as planned; head is a draft model; head has its own file */
    bool with_head, whole, beside;
    int64_t drafts;  /* maximum draft tokens per session and step, as planned */
    mo_tiers *tiers; /* NULL: nothing is left on disk */
    /* bytes reserved in RAM and on the device, as other models see it */
    int64_t held, device_held;
    mo_location_id run_location[MO_PLAN_DEVICES]; /* several devices: each one's memory, */
    int64_t run_held[MO_PLAN_DEVICES];            /* and the bytes reserved there */
    /* As probed; 0: not measured. RAM: rate of products. */
    double probed_disk_bytes_s, probed_ram_bytes_s;
    double disk_bytes_s; /* rate used by the plan, probed or learned; 0: a guess */
    mo_hot_set hot;      /* experts to load into a static store; none: the store follows its policy */
} mo_opened;

/* Carries out the plan in RAM. On failure *out holds nothing. */
mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err);
void mo_opened_drop(mo_opened *opened); /* accepts a zeroed one */

mo_location_holding mo_opened_holding(const mo_opened *opened); /* any thread */

/* Stores the disk rate measured on the model's file, for later plans. Only reads that bypass the page cache
 * count. */
void mo_opened_learn_disk(const mo_opened *opened, const char *path);

#endif
