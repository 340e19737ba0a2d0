/* Hints: which options set what the library's messages name. */
#ifndef MO_CLI_HINTS_H
#define MO_CLI_HINTS_H

#include "moraine.h"

/* The message of a model that could not be planned or opened, on stderr, in one line with the options that may help. */
void cli_say_with_hint(const char *command, const mo_error *err);

#endif
