/* Tiers: what of a model is not in RAM for good, and how the engine gets at it. Opened between loading
 * and the engine; which parts there are follows from the plan. */
#ifndef MO_STORE_TIERS_H
#define MO_STORE_TIERS_H

#include "experts/store.h"
#include "store/layer_buffer.h"
#include "store/rows.h"

/* Does reading ahead pay, and how far? */
typedef struct mo_prefetch_state {
    bool on;            /* by routers: until too many guesses were wrong */
    bool layers;        /* whole layers, which are not predicted by a router, and not checked with those */
    int distance, most; /* layers ahead that are guessed for, and that may be */
    mo_prefetch_counters
        last_checked[MO_PREFETCH_DISTANCE_MAX + 1]; /* predictions of each distance at its last check */
    int64_t last_checked_ns; /* start of the disk usage for the next check of the farthest; 0: not yet */
    uint64_t busy_ns;        /* how long that had been busy then */
} mo_prefetch_state;

typedef struct mo_tiers {
    mo_expert_table *experts;
    mo_store *store;         /* experts; NULL: all in RAM */
    mo_layer_buffer *layers; /* cores of layers; NULL: all in RAM */
    mo_rows *rows;           /* the embedding; NULL: in RAM */
    mo_prefetch_state prefetch;
    bool skip_missing; /* lossy: experts that are not in RAM are left out */
    uint64_t skipped;  /* picks left out */
} mo_tiers;

typedef struct mo_tiers_options {
    mo_store_options store; /* used when the loader left experts on disk */
    int layer_slots;        /* for layers that the loader left there; 0: a device gets all of these */
    int64_t pass_bytes;     /* with 0: memory through which they are read for it */
    bool predict, skip_missing;
} mo_tiers_options;

/* Opens what the loader left on disk. The model outlives the tiers. */
mo_status mo_tiers_open(const mo_checkpoint *model, const mo_tiers_options *options, mo_tiers **out,
                        mo_error *err);
void mo_tiers_close(mo_tiers *tiers); /* NULL is allowed */

#endif
