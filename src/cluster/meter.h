/* Meter: measures messages between ranks, with the messages that models send. All ranks call it. Rank 0
   decides who measures: itself with every other rank, and each rank with the next one. */
#ifndef MO_CLUSTER_METER_H
#define MO_CLUSTER_METER_H

#include "cluster/link.h"

/* Between two ranks. */
typedef struct mo_meter_wire {
    /* half of a round trip of a small message to a rank that has waited a while, as for a token */
    double latency_s;
    double bytes_s;   /* of large messages */
    double message_s; /* of each further small message after another */
} mo_meter_wire;

/* For rank 0. lead[ranks]: to every other rank; [0] is not set. next[ranks]: from every rank to the next,
   from the last to rank 0. */
mo_status mo_meter_lead(mo_link *link, mo_meter_wire *lead, mo_meter_wire *next, mo_error *err);
/* For every other rank, until rank 0 has finished. */
mo_status mo_meter_follow(mo_link *link, mo_error *err);

#endif
