/* Terminal: widths, bold text, readable sizes, a progress bar. */
#ifndef MO_CLI_TERMINAL_H
#define MO_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Is the stream a terminal? */
bool cli_terminal_is(FILE *stream);

/* Columns of the stream's terminal; 80 if it is not a terminal or the width is unknown. */
int cli_terminal_width(FILE *stream);

/* Counts how often the program continued after a stop (Ctrl-Z), because the shell may have written on the
   terminal. For a signal handler. */
void cli_terminal_continue(void);
int cli_terminal_continued(void);

/* Escape sequences for a heading. "" if stdout is not a terminal, is dumb, or NO_COLOR is set. */
const char *cli_terminal_bold(void);
const char *cli_terminal_plain(void);

/* Prints text and a newline on stdout, wrapped at spaces. Lines after the first are indented; the cursor must
   be in column `indent`. */
void cli_terminal_wrap(const char *text, int indent);

/* Writes "17.3 GiB" or "512 B" to text, which holds at least 32 bytes, and returns it. */
const char *cli_bytes_text(uint64_t bytes, char *text);

/* Writes "30.5 B" or "494 M" to text, which holds at least 32 bytes, and returns it. */
const char *cli_count_text(uint64_t count, char *text);

/* Writes a speed with at least two significant digits, and returns its unit: "35.10" and "tokens/s", or below
   0.1 "14" and "s a token". text holds at least 32 bytes. */
const char *cli_speed_text(double tokens_per_second, char *text);

/* Writes "120 ms", "3.4 s", "35 s" or "14 min" to text, which holds at least 32 bytes, and returns it. */
const char *cli_seconds_text(double seconds, char *text);

/* Asks "... [y/N]" on stderr and reads the answer from stdin. */
bool cli_ask(const char *question);

/* The approximate number of columns of a UTF-8 text: one for each code point. */
int cli_text_columns(const char *text);

/* ---- Progress ---- */

/* A progress bar on stderr with rate and time left. If stderr is not a terminal: nothing, or a line now and
   then. One thread at a time. */
typedef struct cli_progress {
    const char *label;
    uint64_t total;  /* bytes; 0: unknown */
    bool tokens;     /* count tokens, not bytes; set after beginning */
    uint64_t before; /* done before the beginning; set after beginning */
    bool lines;      /* without a terminal print a line every ten seconds; set after beginning */
    int64_t start_ns, drawn_ns;
    bool shown; /* stderr is a terminal */
    bool drawn; /* the line is not empty */
} cli_progress;

void cli_progress_begin(cli_progress *p, const char *label, uint64_t total);
void cli_progress_update(cli_progress *p, uint64_t done); /* fast; redraws ten times a second */
void cli_progress_end(cli_progress *p);                   /* clears the line */

/* Shows "round 2 of 5: answer" on stderr until it is hidden; only on a terminal. Rounds count from 0. */
void cli_rounds_show(int64_t round, int64_t rounds, const char *part);
void cli_rounds_hide(void);

/* Flushes stdout. On failure returns false; cli_stdout_finish() prints the reason. */
bool cli_stdout_flush(void);

/* Flushes and closes stdout. False if a write failed, now or before; prints the first reason on stderr,
   unless the reader of a pipe has gone. */
bool cli_stdout_finish(void);

#endif
