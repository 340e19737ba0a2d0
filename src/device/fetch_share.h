/* Fetch share: how many of the experts that a layer misses cross the link while the CPU computes the others. Plans and runs decide
 * by it, a plan with probed rates, a run with those that it observes. Any thread. */
#ifndef MO_DEVICE_FETCH_SHARE_H
#define MO_DEVICE_FETCH_SHARE_H

/* A fetch must save this much of a layer's time: it costs launches and another round of waiting. */
#define MO_FETCH_PAYS_S 20e-6
/* Fixed cost of a fetch: until the first copy starts, and until the last one is computed. Of a small
 * expert that is as much as its copy. It is the link's alone. */
#define MO_FETCH_START_S 45e-6

/* Seconds of one expert. */
typedef struct mo_fetch_costs {
    double cpu_alone; /* computed while nothing crosses; infinite: some must cross */
    double cpu;       /* while others cross */
    double link;
} mo_fetch_costs;

/* How many of `count` experts, at most `most`, cross, so that link and CPU end together. *seconds (may be NULL): of the layer's missing
 * experts; it never falls when count rises. */
int mo_fetch_share(const mo_fetch_costs *costs, int count, int most, double *seconds);

#endif
