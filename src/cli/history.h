/* History: what was typed, kept in a file from chat to chat: one message a line, newlines written as \n. */
#ifndef MO_CLI_HISTORY_H
#define MO_CLI_HISTORY_H

#include <stdbool.h>

enum { CLI_HISTORY_MAX = 1000 }; /* messages that are kept */

typedef struct cli_history cli_history;

/* option: "off", a path, or NULL for the file `history` in the cache directory, which is made. Other users cannot read the
 * file. NULL when nothing is to be kept, or memory is out. */
cli_history *cli_history_open(const char *option);
void cli_history_close(cli_history *h);

/* Calls fn with every message that is there, the oldest first; shortens a file that has grown too long. What
 * is no regular file, or larger than any history, is refused with a sentence, and nothing is added to it. */
void cli_history_load(cli_history *h, void (*fn)(void *user, const char *text), void *user);

/* Adds one. A failure is said once, and the chat goes on. */
void cli_history_add(cli_history *h, const char *text);

#endif
