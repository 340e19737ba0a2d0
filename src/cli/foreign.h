/* Foreign: words of llama.cpp's command lines, compared with whole arguments before options are parsed. Words with the same meaning are
 * translated; where Moraine decides by itself a note says so and the command continues; what would change the result is refused. */
#ifndef MO_CLI_FOREIGN_H
#define MO_CLI_FOREIGN_H

#include "cli/options.h"

/* Translates argv in place, which may get shorter. A word that is an option of the command is left to it. Returns -1 to go on,
 * CLI_USAGE after saying what is refused. */
int cli_foreign_translate(const cli_usage *usage, int *argc, char **argv);

#endif
