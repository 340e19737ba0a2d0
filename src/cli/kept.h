/* Kept: texts that live as long as the process, for options and tables. */
#ifndef MO_CLI_KEPT_H
#define MO_CLI_KEPT_H

/* The same pointer for equal texts; any thread. NULL when out of memory. */
const char *cli_keep(const char *text);

#endif
