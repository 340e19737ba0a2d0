/* History: typed messages, kept in a file between chats: one message per line, newlines written as \n. */
#ifndef MO_CLI_HISTORY_H
#define MO_CLI_HISTORY_H

#include <stdbool.h>

enum { CLI_HISTORY_MAX = 1000 }; /* maximum messages kept */

typedef struct cli_history cli_history;

/* option: "off", a path, or NULL for the file `history` in the cache directory, which is created. Other users
   cannot read the file. NULL: history is off, or out of memory. */
cli_history *cli_history_open(const char *option);
void cli_history_close(cli_history *h);

/* Calls fn for each message, oldest first, and shortens a file that is too long. A file that is not regular
   or too large is reported, and nothing is added to it. */
void cli_history_load(cli_history *h, void (*fn)(void *user, const char *text), void *user);

/* Adds a message. Only the first failure is printed; the chat continues. */
void cli_history_add(cli_history *h, const char *text);

#endif
