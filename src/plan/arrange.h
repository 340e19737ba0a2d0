/* Arrange: what is in RAM, in each of the ways in which a model can lie there. Pure arithmetic on sizes. */
#ifndef MO_PLAN_ARRANGE_H
#define MO_PLAN_ARRANGE_H

#include "plan/placement.h"
#include "plan/share.h"

/* What there is to place: a model, and the slots its classes want. */
typedef struct mo_wanted {
    mo_plan_model model;
    mo_plan_share shares[MO_PLAN_CLASSES];
    const mo_plan_model *whole;
    mo_placement_counts counts; /* of layers, as far as they are decided */
    bool beside;     /* a device, which has the rest: experts here are in slots, even all of them */
    bool unbuffered; /* a device has every layer that RAM does not: none is read while running */
} mo_wanted;

/* device: there is one. first: what is on it already, so that RAM gets the rest; NULL: RAM keeps everything. The model is
 * the caller's as long as the result. */
mo_wanted mo_plan_want(const mo_plan_model *model, bool device, const mo_plan_device *first);

/* How RAM can be arranged with a device. */
typedef enum mo_arrangement {
    MO_ARRANGE_AS_FITS, /* the first that does, from everything to the least */
    MO_ARRANGE_SLOTS, /* experts in slots, even where all would fit: fewer bytes of VRAM for what is on its way */
    MO_ARRANGE_DISK, /* no layer's core stays, and what is left is for slots: nothing is put in order on its way */
    MO_ARRANGEMENTS
} mo_arrangement;

/* False: it does not fit. *p is then not touched, but for the first arrangement the smallest one. */
bool mo_plan_arrange(const mo_wanted *w, mo_arrangement how, int64_t ceiling, mo_run_plan *p);

/* The parts of the smallest arrangement in a mode, with `used` their sum. False: the model has no such mode. */
bool mo_plan_arrange_least(const mo_wanted *w, mo_plan_mode mode, mo_run_plan *p);

/* Memory through which layers of such buffers are read for a device when a model is opened. It is free again before KV cache and
 * working memory are allocated, and takes no more than these, so the plan need not count it. */
int64_t mo_plan_pass_bytes(const mo_wanted *w, int64_t layer_buffer_bytes);

/* Do the fewest slots take less RAM than all experts for good? Then they are possible wherever those are. */
bool mo_plan_slots_take_less(const mo_wanted *w);

#endif
