/* The log of `moraine serve`: format, level, and messages of the library. */
#ifndef MO_CLI_SERVE_LOG_H
#define MO_CLI_SERVE_LOG_H

#include <stdbool.h>

/* level: NULL: info. False after printing the error. */
bool cli_serve_log(const char *format, const char *level);
/* Writes the library's messages up to this level to the log, with option names instead of settings. */
void cli_serve_log_library(void);

#endif
