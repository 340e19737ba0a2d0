/* Wrapping: text that comes in pieces, broken at spaces where a terminal's line ends. Words are written as they come; one that does not fit is taken
 * back and begins the next line. Code between ``` and rows of tables stay as they are, and so does a word that is longer than a line: the
 * terminal itself goes on with them in the next row, so that what is copied is whole. */
#ifndef MO_CLI_WRAPPING_H
#define MO_CLI_WRAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct cli_wrapping {
    FILE *stream;
    bool on;           /* the stream is a terminal with a cursor */
    int width;         /* of the terminal; looked at again with each piece */
    int continued;     /* how often the program had been stopped when it wrote last */
    int column;        /* of the cursor */
    int indent;        /* blanks that the line begins with */
    int spaces;        /* that have come and are not written */
    bool in_word;      /* the last character belongs to one: */
    int word_column;   /* where it begins; 0: it stays where it is */
    size_t word_bytes; /* of it */
    char word[512];
    int ticks;   /* ` that the line begins with */
    bool begins; /* nothing but these and blanks have come in this line */
    bool fenced; /* between ``` and ``` */
    bool as_is;  /* the line is not broken */
} cli_wrapping;

/* For a text that begins at the left edge. Where the stream is no terminal, or nothing is to be wrapped, the text is written as it is. */
void cli_wrapping_begin(cli_wrapping *w, FILE *stream, bool wraps);

/* Writes a piece of it, which has whole characters. The caller flushes the stream. */
void cli_wrapping_put(cli_wrapping *w, const char *text, size_t length);

/* A message on stderr, printed as printf() does, with a newline behind it. */
void cli_wrapping_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Columns of a text that begins with a character of UTF-8, and its bytes. */
int cli_character_columns(const char *text, size_t length, size_t *bytes);

#endif
