/* Meter: how long messages between ranks take, measured with the messages that models send. All ranks call it; rank 0 says in turn who
 * measures with whom: itself with every other, and each rank with the one after it. */
#ifndef MO_CLUSTER_METER_H
#define MO_CLUSTER_METER_H

#include "cluster/link.h"

/* Between two ranks. */
typedef struct mo_meter_wire {
    double
        latency_s; /* half of a round trip of a small message, to a rank that has waited a while, as for a token */
    double bytes_s;   /* of large ones */
    double message_s; /* of each further small one behind another */
} mo_meter_wire;

/* Rank 0. lead[ranks]: with every other, [0] is not set; next[ranks]: of every rank with the one after it, of the last with rank 0. */
mo_status mo_meter_lead(mo_link *link, mo_meter_wire *lead, mo_meter_wire *next, mo_error *err);
/* Every other rank, until rank 0 is done. */
mo_status mo_meter_follow(mo_link *link, mo_error *err);

#endif
