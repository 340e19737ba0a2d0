/* Late copies: decides what to do if copies of a layer's missing experts may arrive late: wait for them,
 * leave late ones to the CPU, or send none. The decision follows the layer's own measured times. Used by the
 * thread that runs the step. */
#ifndef MO_EXPERTS_LATE_H
#define MO_EXPERTS_LATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mo_late_way {
    MO_LATE_WAIT, /* send, and wait for all copies */
    /* send those that are likely to arrive in time; the CPU computes the others, and any that are late */
    MO_LATE_LEAVE,
    MO_LATE_NONE, /* send nothing: the CPU computes all */
    MO_LATE_WAYS
} mo_late_way;

/* The state of one layer. */
typedef struct mo_late {
    double seconds[MO_LATE_WAYS]; /* per missing expert, as measured; 0: not measured */
    uint32_t used[MO_LATE_WAYS];  /* turn in which this way was last taken */
    uint32_t turns;
    double cpu_seconds; /* CPU time of one expert; 0: not known */
} mo_late;

/* Chooses the way of the next turn among the allowed ones (at least one): the fastest. Slower ways are
 * retried, the slower the more rarely, so that trials cost a few per cent. expected[]: seconds per expert
 * where nothing was measured; 0: not known, which is worth a trial. */
mo_late_way mo_late_choose(mo_late *l, const bool *allowed, const double *expected);

/* Records the seconds per expert of a turn. A single slow turn hardly counts. */
void mo_late_observe(mo_late *l, mo_late_way way, double seconds);
void mo_late_observe_cpu(mo_late *l, double seconds);

/* How many of `count` experts to send so that all arrive in time. Expert i takes copy_s[i] on the link, and
 * saves saved[i] times the CPU's time for one expert. */
int mo_late_fit(const mo_late *l, const double *copy_s, const double *saved, int count);

#endif
