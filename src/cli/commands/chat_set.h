/* Chat set: the settings of a conversation that /set shows and changes. */
#ifndef MO_CLI_CHAT_SET_H
#define MO_CLI_CHAT_SET_H

#include "cli/generate.h"

typedef struct cli_chat_settings {
    cli_sampling sampling;
    int64_t limit; /* maximum tokens of an answer; -1: no limit */
    char **texts;  /* owned texts, which the settings point to */
    size_t text_count, text_space;
} cli_chat_settings;

void cli_chat_settings_close(cli_chat_settings *settings);

/* Sets "NAME VALUE" from the next answer on. Prints the change, or an error without changing anything. */
void cli_chat_set(cli_chat_settings *settings, cli_generation *g, const char *words);

/* Prints a table of all settings on stderr. */
void cli_chat_set_show(const cli_chat_settings *settings, const cli_generation *g);

#endif
