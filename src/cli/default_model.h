/* Default model: the model of a command without a MODEL: from the environment, or the built-in pebble, which
   is installed with the program. */
#ifndef MO_CLI_DEFAULT_MODEL_H
#define MO_CLI_DEFAULT_MODEL_H

#include <stdbool.h>

/* The default model in --help. */
#define CLI_DEFAULT_MODEL_HELP                                                                               \
    " Without MODEL, uses the model named by MORAINE_MODEL, or else the built-in pebble."

/* The path of the model: `given`, which may be "pebble" or the name of a pulled model (pulled.h); the default
   if it is NULL. Prints the choice of a default on stderr unless `quiet`. NULL, with *code set, after
   printing the error. Valid until the next call; one thread. */
const char *cli_model_path(const char *command, const char *given, bool quiet, int *code);

/* Does an argument look like a model, not like a text? */
bool cli_model_name(const char *path);

#endif
