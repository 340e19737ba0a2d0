/* Replay: what would have happened to a trace's tokens with some slots and a policy: hits, bytes, time. Uses
 * the same slots and policies as the store, one pool per size of expert as the store has them. */
#ifndef MO_PROFILE_REPLAY_H
#define MO_PROFILE_REPLAY_H

#include "experts/policy.h"
#include "plan/rates.h"
#include "profile/trace.h"

typedef struct mo_replay_setup {
    const mo_policy *policy; /* NULL: the offline optimum, which knows the future */
    int64_t budget_bytes;    /* for slots; split among sizes in proportion to the bytes of their experts */
    int step;                /* most tokens of a pass: longer ones are cut; 0: as recorded */
    /* Warm start: how often [layers][experts] were picked before; the policy is informed, and the slots are filled
     * with the most picked. NULL: empty slots and a policy that knows nothing. */
    const uint64_t *seeds;
    mo_rates rates;
} mo_replay_setup;

/* Replays. MO_EINVAL when the budget does not hold what one token uses of one layer, for each size of expert.
 * Pure: any number of threads may replay one trace.
 *
 * The optimum evicts the expert that is needed last (Belady). With every layer's needs of a pass pinned, as the
 * store has them, no policy that starts with the same slots can miss less, as long as those needs fit into the
 * slots; where they do not (long prompts, few slots) it is close to that. */
mo_status mo_replay_run(const mo_trace *trace, const mo_replay_setup *options, mo_replay_report *out,
                        mo_error *err);

#endif
