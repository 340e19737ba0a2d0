/* Messages: prints the library's messages with option names. The library writes a setting in backquotes by
   its struct member (`ram_bytes`); here it becomes the user's option (--ram). */
#ifndef MO_CLI_MESSAGES_H
#define MO_CLI_MESSAGES_H

#include <moraine_server.h>

/* Replaces settings by options, in a buffer of `size` bytes. */
void cli_name_options(char *text, size_t size);

/* Prints "moraine COMMAND: message" on stderr, wrapped on a terminal. */
void cli_say_error(const char *command, const mo_error *err);

#endif
