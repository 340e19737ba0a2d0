/* Replay: simulates a trace with a number of slots and a policy: hits, bytes, time. Uses the store's slots
   and policies, and like the store one pool for each size of expert. */
#ifndef MO_PROFILE_REPLAY_H
#define MO_PROFILE_REPLAY_H

#include "experts/policy.h"
#include "plan/rates.h"
#include "profile/trace.h"

typedef struct mo_replay_setup {
    const mo_policy *policy; /* NULL: the offline optimum, which knows future needs */
    int64_t budget_bytes;    /* for slots; divided among sizes in proportion to the bytes of their experts */
    int step;                /* maximum tokens of a pass; longer passes are split; 0: as recorded */
    /* Warm start: previous picks of each expert, [layers][experts]. They are given to the policy, and the
       slots are filled with the most frequent. NULL: empty slots, no information. */
    const uint64_t *seeds;
    mo_rates rates;
} mo_replay_setup;

/* Runs a replay. MO_EINVAL if the budget is too small for the experts of one token in one layer, for each
   size. Any number of threads may replay one trace.

   The optimum evicts the expert that is needed last (Belady). With all needs of a layer pinned during a pass,
   as in the store, no policy that starts with the same slots can miss less if those needs fit the slots.
   Otherwise (long prompts, few slots) it is close to optimal. */
mo_status mo_replay_run(const mo_trace *trace, const mo_replay_setup *options, mo_replay_report *out,
                        mo_error *err);

#endif
