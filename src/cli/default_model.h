/* Default model: the model a command uses when none is named: what the environment says, or the built-in
 * pebble, which is installed with the program. */
#ifndef MO_CLI_DEFAULT_MODEL_H
#define MO_CLI_DEFAULT_MODEL_H

#include <stdbool.h>

/* What every command's --help says of it. */
#define CLI_DEFAULT_MODEL_HELP                                                                               \
    " Without MODEL, uses the model named by MORAINE_MODEL, or else the built-in pebble."

/* The path of the model to use: `given`, which may be the name of a pulled one (pulled.h) or "pebble", or the default when that is NULL. One line on stderr says which one
 * was chosen unless `quiet`. NULL, with *code set, after saying what to do when there is none. The text lives
 * until the next call; one thread. */
const char *cli_model_path(const char *command, const char *given, bool quiet, int *code);

/* Does an argument look like a model rather than a text? */
bool cli_model_name(const char *path);

#endif
