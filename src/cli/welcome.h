/* Welcome: what to do next, for who typed nothing but the program's name. */
#ifndef MO_CLI_WELCOME_H
#define MO_CLI_WELCOME_H

/* On stderr. */
void cli_welcome_print(void);

#endif
