/* Needs: what a model asks of a machine's memory, found from its file's description; nothing is loaded. Engine, sessions and
 * the device's part say how much they take; plans see numbers alone. */
#ifndef MO_OPEN_REQUIREMENTS_H
#define MO_OPEN_REQUIREMENTS_H

#include "kv/state.h"
#include "model/load.h"
#include "plan/plan.h"
#include "plan/precision.h"

typedef struct mo_requirements_options {
    const mo_model_options *asked; /* sessions, caches, adapters; not these, on which plans decide: */
    int64_t batch, context;        /* 0: the plan's choice, plan/choice.h */
    int64_t kept_bytes;            /* for snapshots in RAM: this rank's part */
    int threads;                   /* that compute */
    int interleave;                /* rows per group in RAM, as the kernels like them; 0: the file's layout */
    mo_precision_rule precision;   /* of a device's batches */
    mo_layer_range range;          /* these layers alone */
    mo_expert_range experts;       /* of their experts these alone */
    int peers;                     /* ranks that this one talks to */
} mo_requirements_options;

/* What is planned for sessions in RAM, or on a device. */
mo_state_size mo_requirements_states(const mo_requirements_options *options, int64_t batch, int64_t context,
                                     bool device);

/* For mo_plan_choose(), which decides on a batch that was left open. Any thread. On failure *out is zero. */
mo_status mo_requirements_of(const char *path, const mo_requirements_options *options, mo_plan_model *out,
                             mo_error *err);
void mo_requirements_drop(mo_plan_model *model); /* frees its layers; a zeroed one is allowed */

#endif
