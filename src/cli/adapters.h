/* Adapters: the options for LoRA adapters, in all commands that run a model. */
#ifndef MO_CLI_ADAPTERS_H
#define MO_CLI_ADAPTERS_H

#include <moraine_server.h>

#include "cli/options.h"

/* Stores the adapters of --lora and --lora-scaled in the model's options; the lists live as long as the
   process. False after printing the error. */
bool cli_adapters_set(const char *command, const cli_texts *plain, const cli_texts *scaled,
                      mo_model_options *out);

#endif
