/* Exit codes of the program. */
#ifndef MO_CLI_EXIT_CODE_H
#define MO_CLI_EXIT_CODE_H

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#endif
