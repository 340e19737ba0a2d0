/* The words that `moraine serve` is given: LLAMA_ARG_... of the environment as options, then those of the command line, which win. */
#ifndef MO_CLI_SERVE_WORDS_H
#define MO_CLI_SERVE_WORDS_H

#include "cli/options.h"

enum { CLI_SERVE_WORDS = 512 };

/* Fills words[CLI_SERVE_WORDS], ended by NULL, and returns how many there are; they are never freed. */
int cli_serve_words(int argc, char **argv, const cli_option *options, int count, char **words);

#endif
