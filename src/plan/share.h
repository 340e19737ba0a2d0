/* Plan share: a budget of bytes as slots for experts of several sizes. Sums and products saturate: sizes come from
 * files, and what cannot be counted does not fit either. */
#ifndef MO_PLAN_SHARE_H
#define MO_PLAN_SHARE_H

#include <stdint.h>

/* Experts of one size that want slots. */
typedef struct mo_plan_share {
    int64_t slot_bytes;  /* of one slot */
    double weight;       /* bytes that a token reads of all its experts */
    int64_t least, most; /* slots: what it works with; as many as there are experts */
    int64_t held;        /* experts that are stored in another tier and count as if stored here */
} mo_plan_share;

int64_t mo_plan_sum(int64_t a, int64_t b);
int64_t mo_plan_times(int64_t a, int64_t b);

/* Bytes of the fewest slots, and of the most. */
int64_t mo_plan_share_least(const mo_plan_share *shares, int count);
int64_t mo_plan_share_most(const mo_plan_share *shares, int count);

/* Shares the budget, which is at least the bytes of the fewest; returns the bytes of the slots. A larger budget, or
 * more experts in another tier, leaves no size with fewer places than it had. */
int64_t mo_plan_share_out(const mo_plan_share *shares, int count, int64_t budget, int32_t *slots);

/* Bytes of stages, places for experts on their way to the device, each of `stage` bytes: `spare` are left under the ceiling,
 * and slots for all experts would take `all` (0: they are not to stay). As many as keep a link busy; the fewest where every
 * expert can stay instead. Not rounded to whole stages, so that a higher ceiling never leaves less for slots. */
enum {
    MO_PLAN_STAGES_LEAST = 2,
    MO_PLAN_STAGES_AHEAD = 12, /* with which a prompt's experts cross at nearly the link's rate */
    MO_PLAN_STAGES = 192,
    MO_PLAN_GRAIN =
        256, /* bytes in which a device hands out memory: what is not a multiple of it takes more */
};
int64_t mo_plan_staging(int64_t stage, int64_t ceiling, int64_t spare, int64_t all);

#endif
