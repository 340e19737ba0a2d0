/* Foreign: llama.cpp's command-line options, translated before options are parsed. Options with the same
   meaning are translated. If Moraine decides itself, a note says so and the command continues. Options that
   would change the result are errors. */
#ifndef MO_CLI_FOREIGN_H
#define MO_CLI_FOREIGN_H

#include "cli/options.h"

/* Translates argv in place; it may get shorter. The command's own options are unchanged. Returns -1 to
   continue, CLI_USAGE after printing an error. */
int cli_foreign_translate(const cli_usage *usage, int *argc, char **argv);

#endif
