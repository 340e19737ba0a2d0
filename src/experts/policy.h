/* Policies: which expert is evicted when a slot is needed. Most give every expert a key that changes only when the expert is
 * touched, so one heap serves them all: time passes for every expert alike, and the lowest key goes first. The
 * default learns instead (adaptive.h). What is known of experts that are not resident is kept too, unless the
 * policy forgets it. */
#ifndef MO_EXPERTS_POLICY_H
#define MO_EXPERTS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_policy_entry {
    double key; /* compared between experts; of a policy that learns: the chance that was expected when
                           it was last looked at */
    double score, slow; /* the policy's own */
    uint64_t last;      /* step of the last touch; 0: never */
    uint64_t count;     /* touches since the start, or since it was forgotten */
} mo_policy_entry;

typedef struct mo_policy {
    const char *name;
    const char *summary; /* one line for --help */
    bool forgets;        /* eviction erases the entry, as its definition wants */
    bool learns;         /* mo_adaptive decides; touch and seed are NULL */
    /* The expert was routed to in step `now` (one pass through the model, counted from 1) by `picks` >= 1
     * tokens. */
    void (*touch)(mo_policy_entry *entry, uint64_t now, uint32_t picks);
    /* Before the expert's first touch: what a profile knows. hits of the expert, most of any expert. */
    void (*seed)(mo_policy_entry *entry, uint64_t hits, uint64_t most);
} mo_policy;

/* The policies: "auto" (our own, the default: learns what recency and frequency are worth), "lru", "lfu",
 * "priority" (a decayed count). NULL when there is none of that name, or past the end. */
const mo_policy *mo_policy_find(const char *name);
const mo_policy *mo_policy_at(int index);

#endif
