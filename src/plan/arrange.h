/* Arrange: plans the contents of RAM. A model can be arranged in RAM in several ways. Pure arithmetic on
 * sizes. */
#ifndef MO_PLAN_ARRANGE_H
#define MO_PLAN_ARRANGE_H

#include "plan/placement.h"
#include "plan/share.h"

/* The input: a model and the slots that its expert classes want. */
typedef struct mo_wanted {
    mo_plan_model model;
    mo_plan_share shares[MO_PLAN_CLASSES];
    const mo_plan_model *whole;
    mo_placement_counts counts; /* layers, as far as already decided */
    bool beside;                /* a device holds the rest: experts in RAM are in slots, even if all fit */
    bool unbuffered; /* every layer is in RAM or on the device: none is read from disk while running */
} mo_wanted;

/* device: a device is in use. first: the device's contents; RAM then holds only the rest. NULL: RAM holds
 * everything. The model belongs to the caller and must outlive the result. */
mo_wanted mo_plan_want(const mo_plan_model *model, bool device, const mo_plan_device *first);

/* Arrangements of RAM with a device. */
typedef enum mo_arrangement {
    MO_ARRANGE_AS_FITS, /* the first that fits, from everything to the minimum */
    MO_ARRANGE_SLOTS,   /* experts in slots, even if all would fit: staging then takes less VRAM */
    MO_ARRANGE_DISK, /* no layer core stays, slots get the remaining RAM; nothing is reordered while copied */
    MO_ARRANGEMENTS
} mo_arrangement;

/* Returns false if it does not fit. *p is then unchanged, except for MO_ARRANGE_AS_FITS, which stores the
 * smallest arrangement. */
bool mo_plan_arrange(const mo_wanted *w, mo_arrangement how, int64_t ceiling, mo_run_plan *p);

/* The parts of the smallest arrangement in a mode; `used` is their sum. False: the model does not support the
 * mode. */
bool mo_plan_arrange_least(const mo_wanted *w, mo_plan_mode mode, mo_run_plan *p);

/* Bytes of the buffer that layers of this size pass through on their way to a device when a model is opened.
 * The buffer is freed before the KV cache and the working memory are allocated and is no larger than they
 * are, so the plan need not count it. */
int64_t mo_plan_pass_bytes(const mo_wanted *w, int64_t layer_buffer_bytes);

/* True if the minimum number of slots takes less RAM than keeping all experts. Slots then fit wherever all
 * experts fit. */
bool mo_plan_slots_take_less(const mo_wanted *w);

#endif
