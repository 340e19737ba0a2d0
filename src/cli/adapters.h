/* Adapters: the options that name LoRA adapters, for every command that runs a model. */
#ifndef MO_CLI_ADAPTERS_H
#define MO_CLI_ADAPTERS_H

#include <moraine_server.h>

#include "cli/options.h"

/* Puts those of --lora and --lora-scaled where they belong; what they point to is kept as long as the process. False after saying what is wrong. */
bool cli_adapters_set(const char *command, const cli_texts *plain, const cli_texts *scaled,
                      mo_model_options *out);

#endif
