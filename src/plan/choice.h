/* Choice: the plan of a model for which the context, the batch or the devices may be left open. A default context is halved until
 * the model fits. Several devices share the layers unless one of them alone does better. A device that was chosen automatically
 * and is too small is not used. Opening a model and `moraine plan` both decide here. */
#ifndef MO_PLAN_CHOICE_H
#define MO_PLAN_CHOICE_H

#include "plan/divide.h"
#include "plan/placement.h"

/* The batch is that of models without a plan, and where logits of every token are kept; otherwise the plan chooses it. */
enum { MO_CHOICE_BATCH = 512, MO_CHOICE_CONTEXT = 8192 };

/* The context to begin with; made_for: the model's own. */
static inline int64_t mo_choice_context(int64_t asked, int64_t made_for)
{
    return asked ? asked : made_for < MO_CHOICE_CONTEXT ? made_for : MO_CHOICE_CONTEXT;
}

/* What the model needs with this batch and context (0: open). Its layers are allocated. On failure *out is zero. */
typedef mo_status (*mo_choice_need)(void *user, int64_t batch, int64_t context, mo_plan_model *out,
                                    mo_error *err);

typedef struct mo_choice_ask {
    const char *name; /* of the model, for messages */
    mo_choice_need need;
    void *user;
    int64_t batch, context;             /* 0: open */
    mo_plan_device_limits machine;      /* with its device, if it has one; of several the sum */
    int device_count;                   /* 0: there are not several */
    const mo_plan_device_limits *each;  /* [device_count] */
    const mo_plan_device_limits *alone; /* [device_count] each without the others */
    bool any_device;                    /* chosen automatically: it may be left out */
} mo_choice_ask;

typedef struct mo_choice {
    mo_plan_model model;
    mo_run_plan plan;
    mo_layer_location *layers;  /* [model.layers] */
    mo_plan_division *division; /* the plan's device is several, with these runs of layers; NULL: it is not */
    int64_t wanted_context;     /* the model's may be less */
    int alone;                  /* of several devices only this one is used; -1: no such choice was made */
    char why[256]; /* the device, or all of several, is left out for this reason; "": it is not */
} mo_choice;

/* On failure *out holds only the choice of devices. Any thread. */
mo_status mo_choice_make(const mo_choice_ask *ask, mo_choice *out, mo_error *err);
void mo_choice_tell(const mo_choice *choice);         /* the log says if the context is not what was wanted */
void mo_choice_drop(mo_choice *choice);               /* a zeroed one is allowed */
mo_placement mo_choice_view(const mo_choice *choice); /* valid as long as that */

#endif
