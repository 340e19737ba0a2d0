/* Needs: what a model asks of a machine's memory, found from its file's description; nothing is loaded. Engine, sessions and
 * the device's part say how much they take; plans see numbers alone. */
#ifndef MO_OPEN_REQUIREMENTS_H
#define MO_OPEN_REQUIREMENTS_H

#include "kv/state.h"
#include "model/load.h"
#include "plan/plan.h"
#include "plan/precision.h"
#include "vision/encoder.h"

typedef enum mo_head_lack { MO_HEAD_NO_LACK, MO_HEAD_LACKS_MEMORY, MO_HEAD_UNREADABLE } mo_head_lack;

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
    bool head;                     /* with what computes guesses, in the file that mo_head_path() names: */
    bool whole;                    /* a draft model, not an MTP head */
    bool beside;                   /* an MTP head in a file of its own, which lies beside the model's */
    int64_t drafts;                /* most of a session in a step; 0: none */
    mo_head_lack lack;             /* why there is no head although the file has one or one was given */
} mo_requirements_options;

/* What is planned for sessions in RAM, or on a device. */
mo_state_size mo_requirements_states(const mo_requirements_options *options, int64_t batch, int64_t context,
                                     bool device);

/* The most drafts of a session in a step that are asked for; 0: none. */
int64_t mo_requirements_drafts(const mo_model_options *asked);

/* Are texts guessed from? And may a source that computes guesses not be left out? */
bool mo_requirements_guess_text(const mo_model_options *asked);
bool mo_requirements_need_head(const mo_model_options *asked);

/* The file that has the MTP head of a model that is opened with these options, or its draft model; beside: NAME-mtp.gguf for NAME.gguf, which is
 * put together in `made` of that size. NULL: no file can have that name. */
const char *mo_head_path(const char *path, const mo_model_options *asked, bool beside, char *made,
                         size_t size);

/* Are the rows that the encoder of this file makes those that the model reads? */
mo_status mo_requirements_fit_encoder(const mo_encoder *e, const char *path, const mo_model_spec *spec,
                                      mo_error *err);

/* For mo_plan_choose(), which decides on a batch that was left open. Any thread. On failure *out is zero. */
mo_status mo_requirements_of(const char *path, const mo_requirements_options *options, mo_plan_model *out,
                             mo_error *err);
void mo_requirements_drop(mo_plan_model *model); /* frees its layers; a zeroed one is allowed */

#endif
