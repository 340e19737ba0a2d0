/* Lines: what a person types, with editing and history on a terminal, plainly otherwise. */
#ifndef MO_CLI_LINES_H
#define MO_CLI_LINES_H

#include <stdbool.h>

typedef struct cli_lines cli_lines;

cli_lines *cli_lines_open(const char *prompt); /* NULL when memory is out */
void cli_lines_close(cli_lines *lines);

/* The next line without its newline, valid until the next call; NULL at the end of input (Ctrl-D). Ctrl-C
 * while a line is edited gives it up and begins anew. */
const char *cli_lines_read(cli_lines *lines);

#endif
