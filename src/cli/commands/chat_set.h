/* Chat set: the settings of a conversation that /set shows and changes. */
#ifndef MO_CLI_CHAT_SET_H
#define MO_CLI_CHAT_SET_H

#include "cli/generate.h"

typedef struct cli_chat_settings {
    cli_sampling sampling;
    int64_t limit; /* tokens of an answer; -1: none */
    char **texts;  /* that these point into */
    size_t text_count, text_space;
} cli_chat_settings;

void cli_chat_settings_close(cli_chat_settings *settings);

/* "NAME VALUE": the generation has that setting from the next answer on. Says what was changed, or what is wrong with it; then nothing is. */
void cli_chat_set(cli_chat_settings *settings, cli_generation *g, const char *words);

/* A table of all of them on stderr. */
void cli_chat_set_show(const cli_chat_settings *settings, const cli_generation *g);

#endif
