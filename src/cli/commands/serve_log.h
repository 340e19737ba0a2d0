/* The log of `moraine serve`: its format and level, and what the library says in it. */
#ifndef MO_CLI_SERVE_LOG_H
#define MO_CLI_SERVE_LOG_H

#include <stdbool.h>

/* level: NULL: info. False after saying what is wrong. */
bool cli_serve_log(const char *format, const char *level);
/* Messages of the library up to that level become lines of the log, with options in the place of settings. */
void cli_serve_log_library(void);

#endif
