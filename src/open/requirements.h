/* Requirements: the memory a model needs, computed from its file's description; nothing is loaded. Engine,
 * sessions and the device report their sizes; plans only see numbers. */
#ifndef MO_OPEN_REQUIREMENTS_H
#define MO_OPEN_REQUIREMENTS_H

#include "kv/state.h"
#include "model/load.h"
#include "plan/plan.h"
#include "plan/precision.h"
#include "vision/encoder.h"

typedef enum mo_head_lack { MO_HEAD_NO_LACK, MO_HEAD_LACKS_MEMORY, MO_HEAD_UNREADABLE } mo_head_lack;

typedef struct mo_requirements_options {
    /* sessions, caches, adapters; but not the following, which plans decide: */
    const mo_model_options *asked;
    int64_t batch, context;      /* 0: chosen by the plan, plan/choice.h */
    int64_t kept_bytes;          /* snapshots in RAM: this rank's part */
    int threads;                 /* compute threads */
    int interleave;              /* rows per group in RAM that the kernels want; 0: the file's layout */
    mo_precision_rule precision; /* of a device's batches */
    mo_layer_range range;        /* only these layers */
    mo_expert_range experts;     /* only these experts of them */
    int peers;                   /* ranks that this one exchanges messages with */
    /* include the MTP head or draft model in the file that mo_head_path() names */
    bool head;
    bool whole;        /* the head is a draft model, not an MTP head */
    bool beside;       /* the MTP head has its own file next to the model's */
    int64_t drafts;    /* maximum draft tokens per session and step; 0: none */
    mo_head_lack lack; /* why there is no head although the file has one or one was given */
} mo_requirements_options;

/* Planned size of the sessions in RAM, or on a device. */
mo_state_size mo_requirements_states(const mo_requirements_options *options, int64_t batch, int64_t context,
                                     bool device);

/* Maximum requested draft tokens per session and step; 0: none. */
int64_t mo_requirements_drafts(const mo_model_options *asked);

/* True if tokens are drafted from the text; true if the head or draft model must not be left out. */
bool mo_requirements_guess_text(const mo_model_options *asked);
bool mo_requirements_need_head(const mo_model_options *asked);

/* Path of the file with the MTP head or draft model for these options; beside: NAME-mtp.gguf for NAME.gguf,
 * which is written to `made`. NULL: the name is too long. */
const char *mo_head_path(const char *path, const mo_model_options *asked, bool beside, char *made,
                         size_t size);

/* Fails unless the model accepts the rows that this encoder makes. */
mo_status mo_requirements_fit_encoder(const mo_encoder *e, const char *path, const mo_model_spec *spec,
                                      mo_error *err);

/* Input for mo_plan_choose(), which chooses an open batch. Any thread. On failure *out is zero. */
mo_status mo_requirements_of(const char *path, const mo_requirements_options *options, mo_plan_model *out,
                             mo_error *err);
void mo_requirements_drop(mo_plan_model *model); /* frees its layers; accepts a zeroed one */

#endif
