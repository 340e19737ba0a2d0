/* Terminal: what people see: widths, bold text, sizes for reading, a progress bar. */
#ifndef MO_CLI_TERMINAL_H
#define MO_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Is it a terminal? */
bool cli_terminal_is(FILE *stream);

/* Columns of the stream's terminal; 80 when it is none or does not say. */
int cli_terminal_width(FILE *stream);

/* Counts how often the program continued after a stop (Ctrl-Z), when the shell has written on the terminal. For a signal handler. */
void cli_terminal_continue(void);
int cli_terminal_continued(void);

/* Escape sequences for a heading, or "" when stdout is no terminal, is dumb, or NO_COLOR is set. */
const char *cli_terminal_bold(void);
const char *cli_terminal_plain(void);

/* Prints text on stdout, broken at spaces, and a newline. Lines after the first are indented; the
 * cursor stands at column `indent` when it is called. */
void cli_terminal_wrap(const char *text, int indent);

/* "17.3 GiB", "512 B"; text holds at least 32 bytes and is returned. */
const char *cli_bytes_text(uint64_t bytes, char *text);

/* "30.5 B", "494 M"; text holds at least 32 bytes and is returned. */
const char *cli_count_text(uint64_t count, char *text);

/* Writes the number of a speed, with two significant digits at least, and returns its unit: "35.10" and "tokens/s", or below 0.1
 * "14" and "s a token"; text holds at least 32 bytes. */
const char *cli_speed_text(double tokens_per_second, char *text);

/* "120 ms", "3.4 s", "35 s", "14 min"; text holds at least 32 bytes and is returned. */
const char *cli_seconds_text(double seconds, char *text);

/* Asks "... [y/N]" on stderr and reads a line from stdin. */
bool cli_ask(const char *question);

/* How many columns a terminated UTF-8 text takes, roughly: one per code point. */
int cli_text_columns(const char *text);

/* ---- Progress ---- */

/* A bar on stderr with rate and time left; when stderr is no terminal silent, or a line now and then. One thread at a time. */
typedef struct cli_progress {
    const char *label;
    uint64_t total;  /* bytes; 0: not known */
    bool tokens;     /* it counts tokens instead of bytes; set after beginning */
    uint64_t before; /* of it was done when it began; set after beginning */
    bool lines;      /* where stderr is no terminal, a line every ten seconds; set after beginning */
    int64_t start_ns, drawn_ns;
    bool shown; /* stderr is a terminal */
    bool drawn; /* something stands on the line */
} cli_progress;

void cli_progress_begin(cli_progress *p, const char *label, uint64_t total);
void cli_progress_update(cli_progress *p, uint64_t done); /* cheap; draws ten times a second */
void cli_progress_end(cli_progress *p);                   /* clears the line */

/* "round 2 of 5: answer" on a terminal's line on stderr, until it is hidden; nothing elsewhere. Rounds count from 0. */
void cli_rounds_show(int64_t round, int64_t rounds, const char *part);
void cli_rounds_hide(void);

/* Flushes stdout. False when that fails; cli_stdout_finish() says why. */
bool cli_stdout_flush(void);

/* Flushes and closes stdout. False when something could not be written, now or before; says so on stderr, with the first
 * reason, unless the reader of a pipe has gone. */
bool cli_stdout_finish(void);

#endif
