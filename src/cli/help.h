/* Help: prints --help of a command: usage, grouped options, examples. */
#ifndef MO_CLI_HELP_H
#define MO_CLI_HELP_H

#include "cli/options.h"

void cli_help_print(const cli_usage *usage);

#endif
