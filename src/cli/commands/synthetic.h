/* Synthetic: a model with random weights of the shape of another, made in the current directory for `bench`. One thread. */
#ifndef MO_CLI_COMMANDS_SYNTHETIC_H
#define MO_CLI_COMMANDS_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

/* given: a published shape, a file, a pulled model, or one of a hub, of which the header is read; whether that runs is asked with these options
 * first. layers: from the first, 0: all. Says how many bytes are written and at a terminal asks before many; a file that is there is used. The exit
 * code, and the file's path. */
int cli_synthetic_make(const char *given, int64_t layers, const mo_model_options *model, char *path,
                       size_t size);

#endif
