/* Version: what this program is, and what was built into it. */
#ifndef MO_CLI_VERSION_H
#define MO_CLI_VERSION_H

/* On stdout. */
void cli_version_print(void);

#endif
