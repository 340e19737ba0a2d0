/* Late: what to do about copies of a layer's missing experts that may arrive late: wait for them, leave the late ones to the
 * CPU, or send none. It follows the layer's own measured times. Used by the thread that runs the step. */
#ifndef MO_EXPERTS_LATE_H
#define MO_EXPERTS_LATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mo_late_way {
    MO_LATE_WAIT, /* send, and wait for all of it */
    MO_LATE_LEAVE, /* send what is likely to arrive in time; the CPU computes the rest, and what is late after all */
    MO_LATE_NONE, /* send nothing: the CPU computes all */
    MO_LATE_WAYS
} mo_late_way;

/* A layer's. */
typedef struct mo_late {
    double seconds[MO_LATE_WAYS]; /* for each missing expert, as measured; 0: not yet */
    uint32_t used[MO_LATE_WAYS];  /* the turn in which a way was last taken */
    uint32_t turns;
    double cpu_seconds; /* that the CPU takes for one of its experts; 0: not known */
} mo_late;

/* The way of the next turn, of those that are allowed (at least one). The fastest; others are tried again the more seldom, the slower
 * they are, so that trials cost a few per cent. expected[]: seconds for each expert where nothing was measured; 0: not known
 * either, which is worth a trial. */
mo_late_way mo_late_choose(mo_late *l, const bool *allowed, const double *expected);

/* The turn took so long for each expert. A single slow turn hardly counts. */
void mo_late_observe(mo_late *l, mo_late_way way, double seconds);
void mo_late_observe_cpu(mo_late *l, double seconds);

/* How many of `count` experts to send so that all arrive in time: expert i needs copy_s[i] on the link, and saves the CPU saved[i] of
 * its work for one. */
int mo_late_fit(const mo_late *l, const double *copy_s, const double *saved, int count);

#endif
