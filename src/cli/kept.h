/* Kept: texts that are the process's: options and tables may point to them. */
#ifndef MO_CLI_KEPT_H
#define MO_CLI_KEPT_H

/* The same one for the same text; any thread. NULL when memory is out. */
const char *cli_keep(const char *text);

#endif
