/* Tiers: the parts of a model that do not stay in RAM, and their access. Opened between loading and the
 * engine; the plan decides which parts exist. */
#ifndef MO_STORE_TIERS_H
#define MO_STORE_TIERS_H

#include "experts/store.h"
#include "store/layer_buffer.h"
#include "store/rows.h"

/* Whether prefetching pays, and how far ahead. */
typedef struct mo_prefetch_state {
    bool on;            /* predictions by routers: until too many were wrong */
    bool layers;        /* whole layers, without a router's prediction; not part of the checks */
    int distance, most; /* current distance of predictions in layers; maximum */
    /* predictions of each distance at its last check */
    mo_prefetch_counters last_checked[MO_PREFETCH_DISTANCE_MAX + 1];
    int64_t last_checked_ns; /* start of the current disk usage period of the farthest; 0: none */
    uint64_t busy_ns;        /* disk busy time at that start */
} mo_prefetch_state;

typedef struct mo_tiers {
    mo_expert_table *experts;
    mo_store *store;         /* experts; NULL: all in RAM */
    mo_layer_buffer *layers; /* cores of layers; NULL: all in RAM */
    mo_rows *rows;           /* the embedding; NULL: in RAM */
    mo_prefetch_state prefetch;
    bool skip_missing; /* lossy: experts that are not in RAM are skipped */
    uint64_t skipped;  /* skipped picks */
} mo_tiers;

typedef struct mo_tiers_options {
    mo_store_options store; /* used if the loader left experts on disk */
    int layer_slots;        /* for layers that the loader left on disk; 0: a device gets all of them */
    int64_t pass_bytes;     /* with layer_slots 0: memory to read them through */
    bool predict, skip_missing;
} mo_tiers_options;

/* Opens everything that the loader left on disk. The model must outlive the tiers. */
mo_status mo_tiers_open(const mo_checkpoint *model, const mo_tiers_options *options, mo_tiers **out,
                        mo_error *err);
void mo_tiers_close(mo_tiers *tiers); /* NULL is allowed */

#endif
