/* Synthetic: creates a model with random weights and another's shape, for `bench`. One thread. */
#ifndef MO_CLI_COMMANDS_SYNTHETIC_H
#define MO_CLI_COMMANDS_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

/* given: a published shape, a file, a pulled model, or a hub's model, of which only the header is fetched.
   First checks with these options whether it can run. layers: number of first layers, 0: all. Prints how many
   bytes are written, and asks on a terminal if they are many. An existing file is reused. Returns the exit
   code and the file's path. */
int cli_synthetic_make(const char *given, int64_t layers, const mo_model_options *model, char *path,
                       size_t size);

#endif
