/* Prompt: the prompt of `run`, from -p, a file and stdin. */
#ifndef MO_CLI_PROMPT_H
#define MO_CLI_PROMPT_H

#include <stddef.h>

/* The prompt's text, terminated; free() it. given: -p; if stdin is a pipe or a file, its text follows after
   an empty line. file: -f. Without both stdin is read; on a terminal, after a line about how to end it. In
   files and stdin a byte order mark and the last line end are removed, and CR LF becomes LF. NULL after
   printing the error; an empty prompt is an error. */
char *cli_prompt_read(const char *given, const char *file, size_t *length);

#endif
