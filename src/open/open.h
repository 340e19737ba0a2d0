/* Opened: from a file and the means to a model in RAM that is ready: needs, plan, load what stays, open the tiers for the
 * rest. `moraine plan` stops after the plan. */
#ifndef MO_OPEN_OPEN_H
#define MO_OPEN_OPEN_H

#include "open/requirements.h"
#include "open/resources.h"
#include "plan/choice.h"
#include "store/tiers.h"

/* Plans. An automatically chosen device that is too small is removed from the resources; of several the one that is used alone, where
 * that is better, is all that is left there. On failure *out holds nothing. Any thread. */
mo_status mo_opened_plan(const char *path, const mo_requirements_options *requirements,
                         mo_resources *resources, mo_choice *out, mo_error *err);

/* The same, and decides on guesses: requirements->head says whether the model gets an MTP head or a draft model. Where `speculate` is mtp or draft it does, or
 * that fails; where it is auto, if there is one and nothing has to be read from disk for want of its memory.
 * requirements->drafts becomes less where the model, its weights in RAM or its context need that memory; 0 only where it is auto. */
mo_status mo_opened_plan_guesses(const char *path, mo_requirements_options *requirements,
                                 mo_resources *resources, mo_choice *out, mo_error *err);

typedef struct mo_open_options {
    mo_resources *resources;
    mo_requirements_options requirements;
    const mo_policy *policy; /* NULL: the default */
    mo_disk_options disk;
    bool predict, skip_missing;
    bool map; /* the whole file is mapped: no tiers, and a plan of the device alone */
    mo_pool *pool;
    mo_progress_fn progress;
    void *user;
} mo_open_options;

typedef struct mo_opened {
    mo_choice choice;
    mo_checkpoint *model;
    mo_checkpoint *head;                          /* the MTP head or draft model; NULL: none */
    bool with_head, whole, beside;                /* as planned; it is a draft model; it has its own file */
    int64_t drafts;                               /* of a session in a step at most, as planned */
    mo_tiers *tiers;                              /* NULL: nothing is left on disk */
    int64_t held, device_held;                    /* what other models find taken, in RAM and on the device */
    mo_location_id run_location[MO_PLAN_DEVICES]; /* of several devices: each one's memory, */
    int64_t run_held[MO_PLAN_DEVICES];            /* and what is taken there */
    /* As probed; 0: not measured. RAM: as products read it. */
    double probed_disk_bytes_s, probed_ram_bytes_s;
    double disk_bytes_s; /* with what it was planned, as probed or found before; 0: a guess */
    mo_hot_set hot; /* to be brought in, into a store that stands still; none: the store follows its policy */
} mo_opened;

/* Carries the plan out in RAM. On failure *out holds nothing. */
mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err);
void mo_opened_drop(mo_opened *opened); /* a zeroed one is allowed */

mo_location_holding mo_opened_holding(const mo_opened *opened); /* any thread */

/* Keeps what the disk of the model's file was found to give, for plans to come: of reads past the page cache. */
void mo_opened_learn_disk(const mo_opened *opened, const char *path);

#endif
