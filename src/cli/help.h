/* Help: what --help prints of a command: its usage, its options in groups, examples. */
#ifndef MO_CLI_HELP_H
#define MO_CLI_HELP_H

#include "cli/options.h"

void cli_help_print(const cli_usage *usage);

#endif
