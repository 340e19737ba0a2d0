/* Welcome: what to do next, printed when the program is started without arguments. */
#ifndef MO_CLI_WELCOME_H
#define MO_CLI_WELCOME_H

/* Prints on stderr. */
void cli_welcome_print(void);

#endif
