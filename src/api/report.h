/* Reports: the counters of an open model, for any thread at any time. */
#ifndef MO_API_REPORT_H
#define MO_API_REPORT_H

#include "moraine.h"

typedef struct mo_reports mo_reports;

/* Begins to publish what the model's engine counts. The engine is opened; no step runs yet. */
mo_status mo_reports_open(mo_model *model, mo_error *err);
void mo_reports_close(mo_reports *reports); /* NULL is allowed */

#endif
