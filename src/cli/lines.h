/* Lines: what a person types, with editing and history on a terminal, plainly otherwise. A program that was stopped (Ctrl-Z) and a window that
 * changes its size find the line again. */
#ifndef MO_CLI_LINES_H
#define MO_CLI_LINES_H

#include <stdbool.h>

typedef struct cli_lines cli_lines;

/* Terminals are read as UTF-8, whatever the locale: that is what models read and write. NULL when memory is out. */
cli_lines *cli_lines_open(void);
void cli_lines_close(cli_lines *lines);

typedef enum cli_line {
    CLI_LINE,          /* there is one */
    CLI_LINE_GIVEN_UP, /* Ctrl-C while it was edited */
    CLI_LINE_END,      /* of input: Ctrl-D, or a signal that ends the program, which counts as caught */
} cli_line;

/* The next line without its end, valid until the next call. What was pasted at once is in one line, newlines and all.
 * The prompt is shown on a terminal alone. */
cli_line cli_lines_read(cli_lines *lines, const char *prompt, const char **line);

/* Is there a person at a terminal? */
bool cli_lines_edited(const cli_lines *lines);

/* Words, NULL behind the last, which stay as they are: Tab completes them at the beginning of a line, and names of files behind them. */
void cli_lines_complete(cli_lines *lines, const char *const *words);

/* What the arrow keys will find. */
void cli_lines_remember(cli_lines *lines, const char *text);

#endif
