#include "experts/policy.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* A seed is worth a few steps' touches, so that real use soon outweighs it. */
enum { SEED_TOUCHES = 64 };

static uint64_t seed_touches(uint64_t hits, uint64_t most)
{
    return most ? (uint64_t)((double)hits / (double)most * SEED_TOUCHES) : 0;
}

/* ---- Least recently used ---- */

static void touch_lru(mo_policy_entry *e, uint64_t now, uint32_t picks)
{
    (void)picks;
    e->last = now;
    e->count++;
    e->key = (double)now;
}

/* Below every touched expert, ordered by hits. */
static void seed_lru(mo_policy_entry *e, uint64_t hits, uint64_t most)
{
    e->key = most ? (double)hits / (double)most - 1.0 : -1.0;
}

/* ---- Least frequently used ---- */

static void touch_lfu(mo_policy_entry *e, uint64_t now, uint32_t picks)
{
    (void)picks; /* a long prompt would outvote all answers */
    e->last = now;
    e->count++;
    e->key = (double)e->count;
}

static void seed_lfu(mo_policy_entry *e, uint64_t hits, uint64_t most)
{
    e->count = seed_touches(hits, most);
    e->key = (double)e->count;
}

/* ---- Priority: the eviction rule of the warm-start idea (docs/background.md) ----
 *
 * P = count * 0.25^((now - last) / 128). Its logarithm to base 4, minus now / 128, which is the same for all
 * experts, changes only with a touch. In that document a step is one call of the expert's layer. Here it is
 * one pass through the model, which calls every layer once. */

static void touch_priority(mo_policy_entry *e, uint64_t now, uint32_t picks)
{
    (void)picks;
    e->last = now;
    e->count++;
    e->key = log2((double)e->count) / 2.0 + (double)now / 128.0;
}

static void seed_priority(mo_policy_entry *e, uint64_t hits, uint64_t most)
{
    e->count = seed_touches(hits, most);
    e->key = e->count ? log2((double)e->count) / 2.0 : -1.0;
}

/* ---- The list ---- */

static const mo_policy policies[] = {
    {.name = "auto", .summary = "learns the weight of recency and frequency", .learns = true},
    {.name = "lru", .summary = "evicts the least recently used", .touch = touch_lru, .seed = seed_lru},
    {.name = "lfu", .summary = "evicts the least frequently used", .touch = touch_lfu, .seed = seed_lfu},
    {.name = "priority",
     .summary = "evicts the lowest use count, which decays to a quarter after 128 passes without use and "
                "restarts after an eviction",
     .forgets = true,
     .touch = touch_priority,
     .seed = seed_priority},
};

const mo_policy *mo_policy_at(int index)
{
    const int count = (int)(sizeof policies / sizeof *policies);
    return index >= 0 && index < count ? &policies[index] : NULL;
}

const mo_policy *mo_policy_find(const char *name)
{
    for (int i = 0; mo_policy_at(i); i++) {
        if (strcmp(name, policies[i].name) == 0) {
            return &policies[i];
        }
    }
    return NULL;
}
