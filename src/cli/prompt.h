/* Prompt: what `run` is asked, from -p, a file and stdin. */
#ifndef MO_CLI_PROMPT_H
#define MO_CLI_PROMPT_H

#include <stddef.h>

/* The prompt's text, terminated; free() it. given: -p, which stdin follows after an empty line when it is a pipe or a file;
 * file: -f; without both stdin is read, on a terminal after a word about how to end it. Of files and stdin a byte order mark
 * and the last line end are no text, and CR LF is LF. NULL after saying what is wrong, also of a prompt without text. */
char *cli_prompt_read(const char *given, const char *file, size_t *length);

#endif
