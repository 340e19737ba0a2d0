/* Lines: typed input, with editing and history on a terminal. The line is redrawn after a stop (Ctrl-Z) and
   when the window's size changes. */
#ifndef MO_CLI_LINES_H
#define MO_CLI_LINES_H

#include <stdbool.h>

typedef struct cli_lines cli_lines;

/* Terminals are read as UTF-8, whatever the locale, because models use UTF-8. NULL when out of memory. */
cli_lines *cli_lines_open(void);
void cli_lines_close(cli_lines *lines);

typedef enum cli_line {
    CLI_LINE,          /* a line was read */
    CLI_LINE_GIVEN_UP, /* Ctrl-C during editing */
    CLI_LINE_END,      /* end of input: Ctrl-D, or a signal that ends the program and counts as caught */
} cli_line;

/* The next line without its end, valid until the next call. Text pasted at once is one line, including
   newlines. The prompt is shown only on a terminal. */
cli_line cli_lines_read(cli_lines *lines, const char *prompt, const char **line);

/* Is input typed on a terminal? */
bool cli_lines_edited(const cli_lines *lines);

/* Words for Tab completion, terminated by NULL; must stay valid. Completes them at the beginning of a line,
   and file names after them. */
void cli_lines_complete(cli_lines *lines, const char *const *words);

/* Adds a line to the history of the arrow keys. */
void cli_lines_remember(cli_lines *lines, const char *text);

#endif
