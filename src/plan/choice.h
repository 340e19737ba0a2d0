/* Choice: makes the plan of a model whose context, batch or devices may be open. A default context is halved
 * until the model fits. Several devices share the layers unless one of them alone is faster. An automatically
 * chosen device that is too small is not used. Opening a model and `moraine plan` both use this module. */
#ifndef MO_PLAN_CHOICE_H
#define MO_PLAN_CHOICE_H

#include "plan/divide.h"
#include "plan/placement.h"

/* This batch is used without a plan and when the logits of every token are kept. Otherwise the plan chooses
 * the batch. */
enum { MO_CHOICE_BATCH = 512, MO_CHOICE_CONTEXT = 8192 };

/* The first context to try; made_for: the model's own. */
static inline int64_t mo_choice_context(int64_t asked, int64_t made_for)
{
    return asked ? asked : made_for < MO_CHOICE_CONTEXT ? made_for : MO_CHOICE_CONTEXT;
}

/* The model's requirements with this batch and context (0: open). Allocates the layers. On failure *out is
 * zero. */
typedef mo_status (*mo_choice_need)(void *user, int64_t batch, int64_t context, mo_plan_model *out,
                                    mo_error *err);

typedef struct mo_choice_ask {
    const char *name; /* model name for messages */
    mo_choice_need need;
    void *user;
    int64_t batch, context;             /* 0: open */
    mo_plan_device_limits machine;      /* includes the device, if any; the sum of several devices */
    int device_count;                   /* 0: one device or none */
    const mo_plan_device_limits *each;  /* [device_count] */
    const mo_plan_device_limits *alone; /* [device_count] each device on its own */
    bool any_device;                    /* the device was chosen automatically and may be left out */
} mo_choice_ask;

typedef struct mo_choice {
    mo_plan_model model;
    mo_run_plan plan;
    mo_layer_location *layers;  /* [model.layers] */
    mo_plan_division *division; /* layer ranges of several devices; NULL: not divided */
    int64_t wanted_context;     /* the model's context may be smaller */
    int alone;                  /* the only device used of several; -1: no such choice was made */
    char why[256];              /* why the device, or all of several, is left out; "": it is used */
} mo_choice;

/* On failure *out holds only the choice of devices. Any thread. */
mo_status mo_choice_make(const mo_choice_ask *ask, mo_choice *out, mo_error *err);
void mo_choice_tell(const mo_choice *choice);         /* logs if the context is not what was wanted */
void mo_choice_drop(mo_choice *choice);               /* accepts a zeroed choice */
mo_placement mo_choice_view(const mo_choice *choice); /* valid as long as the choice */

#endif
