/* The arguments of `moraine serve`: LLAMA_ARG_... variables as options, then the command line, which wins. */
#ifndef MO_CLI_SERVE_WORDS_H
#define MO_CLI_SERVE_WORDS_H

#include "cli/options.h"

enum { CLI_SERVE_WORDS = 512 };

/* Fills words[CLI_SERVE_WORDS], terminated by NULL, and returns their number. They are never freed. */
int cli_serve_words(int argc, char **argv, const cli_option *options, int count, char **words);

#endif
