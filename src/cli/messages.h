/* Messages: what the library says, in the words of the command line. The library names a setting in backquotes, as the
 * member of its option struct is called (`ram_bytes`); here it becomes the option that a user can type (--ram). */
#ifndef MO_CLI_MESSAGES_H
#define MO_CLI_MESSAGES_H

#include <moraine_server.h>

/* Puts options in the place of settings, in a buffer of `size` bytes. */
void cli_name_options(char *text, size_t size);

/* "moraine COMMAND: what went wrong" on stderr, broken between words on a terminal. */
void cli_say_error(const char *command, const mo_error *err);

#endif
