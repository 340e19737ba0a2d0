/* Ranks: divides a model among ranks by layers or by experts. A run, its plan and plans for hosts all use
 * this module. plan/division.h does the arithmetic. */
#ifndef MO_PLAN_RANKS_H
#define MO_PLAN_RANKS_H

#include "plan/division.h"
#include "plan/plan.h"

enum {
    MO_RANKS_BATCH = 256, /* default tokens per step: few, so that a prompt has pieces for all ranks */
    MO_RANKS_TOKENS = 64, /* longest step whose number of groups is listed */
};

/* Ranks use a device only if it is named: otherwise "none". */
const char *mo_ranks_device(const char *device);
/* The division to use. Experts can be skipped only if layers are divided. */
mo_divide mo_ranks_way(mo_divide asked, bool skip_missing);

/* A whole model with a known batch, converted for divisions. The caller frees its layers. On failure *out is
 * zero. */
mo_status mo_ranks_model(const mo_plan_model *model, mo_division_model *out, mo_error *err);
/* Sets a rank's memory other than layers. `vram_bytes` is the device's ceiling before, and the VRAM left for
 * layers after. */
void mo_ranks_settle(const mo_plan_model *model, int rank, mo_division_rank *machine);

/* The part of a model on each rank. */
typedef struct mo_ranks_parts {
    mo_divide way;
    char why[256]; /* the reason, if no division was given; "": nothing was measured */
    int *first;    /* [ranks + 1] first layer or expert of each rank */
    /* By layers: number of groups for a step of several sessions, indexed by its tokens; the last entry is
     * for all longer steps. */
    uint8_t groups[MO_RANKS_TOKENS + 1];
} mo_ranks_parts;

/* Divides as parts->way says. AUTO: the faster way by the measured network between the named machines
 * [ranks]; without a measurement by layers (by experts if layers cannot be divided). Settles the machines
 * [ranks]. */
mo_status mo_ranks_divide(const mo_plan_model *model, mo_division_rank *machines, const char *const *names,
                          int ranks, mo_ranks_parts *parts, mo_error *err);
/* A rank's part of bytes that belong to the sessions: divided with the layers, or all on rank 0. */
int64_t mo_ranks_part(const mo_ranks_parts *parts, int ranks, int rank, int64_t bytes);
/* Fails if a rank with this ceiling would refuse its layers. Counts only the RAM that its device needs. */
mo_status mo_ranks_check(const mo_plan_model *part, const mo_rates *rates, int64_t ram_bytes, bool device,
                         mo_error *err);

#endif
