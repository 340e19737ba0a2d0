/* Plan share: divides a budget of bytes into slots for experts of several sizes. Sums and products saturate,
 * because sizes come from files: sizes that overflow do not fit either. */
#ifndef MO_PLAN_SHARE_H
#define MO_PLAN_SHARE_H

#include <stdint.h>

/* Experts of one size that want slots. */
typedef struct mo_plan_share {
    int64_t slot_bytes;  /* size of one slot */
    double weight;       /* bytes that a token reads of all experts of this size */
    int64_t least, most; /* slots: the minimum; the number of experts */
    int64_t held;        /* experts stored in another tier, counted as if stored here */
} mo_plan_share;

int64_t mo_plan_sum(int64_t a, int64_t b);
int64_t mo_plan_times(int64_t a, int64_t b);

/* Bytes of the minimum and of the maximum number of slots. */
int64_t mo_plan_share_least(const mo_plan_share *shares, int count);
int64_t mo_plan_share_most(const mo_plan_share *shares, int count);

/* Divides the budget, which must cover the minimum; returns the bytes of the slots. With a larger budget, or
 * more experts in another tier, no size gets fewer slots. */
int64_t mo_plan_share_out(const mo_plan_share *shares, int count, int64_t budget, int32_t *slots);

/* Bytes of staging for experts in transit to the device, in stages of `stage` bytes. `spare` bytes are left
 * under the ceiling; slots for all experts take `all` (0: experts do not stay). The result keeps a link busy,
 * or is the minimum if every expert can stay instead. It is not rounded to whole stages, so that a higher
 * ceiling never leaves less for slots. */
enum {
    MO_PLAN_STAGES_LEAST = 2,
    MO_PLAN_STAGES_AHEAD = 12, /* enough for a prompt's experts to cross at nearly the link's rate */
    MO_PLAN_STAGES = 192,
    /* granularity of device allocations in bytes */
    MO_PLAN_GRAIN = 256,
};
int64_t mo_plan_staging(int64_t stage, int64_t ceiling, int64_t spare, int64_t all);

#endif
