/* Log: the only output of the library. A fallback is logged once, with its reason and cost. */
#ifndef MO_BASE_LOG_H
#define MO_BASE_LOG_H

#include "moraine.h"

/* Formats a line and passes it to the callback of mo_log_set(). Any thread. */
void mo_log(mo_log_level level, const char *subsystem, const char *fmt, ...) MO_PRINTF(3, 4);
/* The same for lines that were requested explicitly: any level is logged. */
void mo_log_asked(mo_log_level level, const char *subsystem, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
