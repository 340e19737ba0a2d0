/* Counters: what engines have done, added up over those that are gone. */
#ifndef SRV_COUNTERS_H
#define SRV_COUNTERS_H

#include "server/scheduler/job.h"

/* Adds what only ever rises; what is so at the moment is left alone. */
void srv_counters_add(srv_engine_report *sum, const srv_engine_report *report);

#endif
