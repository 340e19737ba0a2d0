/* Ranks: how a model is divided among the ranks of a run: by layers or by experts, and which of them each rank has. A run, its
 * plan and plans for hosts decide here. plan/division.h does the arithmetic. */
#ifndef MO_PLAN_RANKS_H
#define MO_PLAN_RANKS_H

#include "plan/division.h"
#include "plan/plan.h"

enum {
    MO_RANKS_BATCH = 256, /* default tokens of a step: few, so that a prompt has pieces and all ranks work */
    MO_RANKS_TOKENS = 64, /* most tokens of a step whose number of groups is listed */
};

/* Ranks use only devices that are named: otherwise "none". */
const char *mo_ranks_device(const char *device);
/* The division that is asked for. Experts can be skipped only where layers are divided. */
mo_divide mo_ranks_way(mo_divide asked, bool skip_missing);

/* A whole model with a known batch as divisions see it; its layers are the caller's to free. On failure *out is zero. */
mo_status mo_ranks_model(const mo_plan_model *model, mo_division_model *out, mo_error *err);
/* Sets a rank's memory apart from layers. `vram_bytes` is the device's ceiling before, and what is left for layers after. */
void mo_ranks_settle(const mo_plan_model *model, int rank, mo_division_rank *machine);

/* Which rank has which part of a model. */
typedef struct mo_ranks_parts {
    mo_divide way;
    char why[256]; /* if no division was given; "": nothing was measured */
    int *first;    /* [ranks + 1] the layers of every rank, or the experts */
    /* By layers: the groups of a step of several sessions by its tokens, the last for all of more. */
    uint8_t groups[MO_RANKS_TOKENS + 1];
} mo_ranks_parts;

/* Divides as parts->way says. AUTO: the faster way by the measured network between machines of these names [ranks], or
 * layers if it was not measured (experts, where layers cannot be divided). Settles the machines [ranks]. */
mo_status mo_ranks_divide(const mo_plan_model *model, mo_division_rank *machines, const char *const *names,
                          int ranks, mo_ranks_parts *parts, mo_error *err);
/* A rank's part of bytes that are with the sessions: these are divided with the layers, or rank 0's. */
int64_t mo_ranks_part(const mo_ranks_parts *parts, int ranks, int rank, int64_t bytes);
/* Fails if a rank with this ceiling would refuse its layers. Of its device only the RAM that it takes is counted. */
mo_status mo_ranks_check(const mo_plan_model *part, const mo_rates *rates, int64_t ram_bytes, bool device,
                         mo_error *err);

#endif
