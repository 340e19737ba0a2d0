/* Version: the program's version and build options. */
#ifndef MO_CLI_VERSION_H
#define MO_CLI_VERSION_H

/* Prints on stdout. */
void cli_version_print(void);

#endif
