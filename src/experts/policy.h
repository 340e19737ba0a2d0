/* Policies: which expert is evicted when a slot is needed. Most policies give every expert a key that changes
 * only when the expert is touched. Time passes equally for all experts, so one heap serves these policies:
 * the lowest key is evicted. The default policy learns instead (adaptive.h). Entries of experts that are not
 * resident are kept, unless the policy forgets them. */
#ifndef MO_EXPERTS_POLICY_H
#define MO_EXPERTS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_policy_entry {
    /* compared between experts; with a learning policy the chance expected at the last look */
    double key;
    double score, slow; /* private to the policy */
    uint64_t last;      /* step of the last touch; 0: never */
    uint64_t count;     /* touches since the start, or since the entry was erased */
} mo_policy_entry;

typedef struct mo_policy {
    const char *name;
    const char *summary; /* one line for --help */
    bool forgets;        /* eviction erases the entry */
    bool learns;         /* mo_adaptive decides; touch and seed are NULL */
    /* The expert was routed to by `picks` >= 1 tokens in step `now` (a pass through the model, counted from
     * 1). */
    void (*touch)(mo_policy_entry *entry, uint64_t now, uint32_t picks);
    /* Seeds an expert from a profile before its first touch: its hits, and the most hits of any expert. */
    void (*seed)(mo_policy_entry *entry, uint64_t hits, uint64_t most);
} mo_policy;

/* The policies: "auto" (the default: learns what recency and frequency are worth), "lru", "lfu", "priority"
 * (a decayed count). NULL: unknown name, or past the end. */
const mo_policy *mo_policy_find(const char *name);
const mo_policy *mo_policy_at(int index);

#endif
