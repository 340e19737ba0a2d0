/* Log: how the library speaks, and nothing else does. A fallback says once what, why and what it costs. */
#ifndef MO_BASE_LOG_H
#define MO_BASE_LOG_H

#include "moraine.h"

/* Formats one line and hands it to the callback of mo_log_set(). Any thread. */
void mo_log(mo_log_level level, const char *subsystem, const char *fmt, ...) MO_PRINTF(3, 4);
/* The same whatever level is wanted: somebody has asked for just these lines. */
void mo_log_asked(mo_log_level level, const char *subsystem, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
