/* Adapters: the options that name LoRA adapters, for every command that runs a model. */
#ifndef MO_CLI_ADAPTERS_H
#define MO_CLI_ADAPTERS_H

#include <moraine.h>

#include "cli/options.h"

typedef struct cli_adapters {
    cli_texts plain, scaled;
} cli_adapters;

/* Entries for a command's option table; a is a cli_adapters that outlives it. */
#define CLI_ADAPTER_OPTIONS(a)                                                                               \
    {"lora",                                                                                                 \
     0,                                                                                                      \
     CLI_TEXTS,                                                                                              \
     "FILE[:SCALE]",                                                                                         \
     "LoRA adapter (GGUF) and its scale (default: 1); may be repeated or comma-separated",                   \
     &(a).plain,                                                                                             \
     0,                                                                                                      \
     0},                                                                                                     \
    {                                                                                                        \
        "lora-scaled", 0, CLI_TEXTS, "FILE:SCALE", "same as --lora; llama.cpp's name", &(a).scaled, 0, 0     \
    }

/* Puts them where they belong; what they point to is kept as long as the process. False after saying what is wrong. */
bool cli_adapters_set(const char *command, const cli_adapters *a, mo_model_options *out);

#endif
