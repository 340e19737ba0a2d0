/* Wrapping: wraps streamed text at spaces on a terminal. Words are written as they arrive; a word that does
   not fit is erased and begins the next line. Code between ``` and table rows are not wrapped, nor are words
   longer than a line: there the terminal wraps, so that copied text is complete. */
#ifndef MO_CLI_WRAPPING_H
#define MO_CLI_WRAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct cli_wrapping {
    FILE *stream;
    bool on;           /* the stream is a terminal with a cursor */
    int width;         /* of the terminal; read again for each piece */
    int continued;     /* value of the stop counter at the last write */
    int column;        /* of the cursor */
    int indent;        /* blanks at the beginning of the line */
    int spaces;        /* received and not written yet */
    bool in_word;      /* the last character belongs to a word: */
    int word_column;   /* column where the word begins; 0: it is not moved */
    size_t word_bytes; /* length of the word */
    char word[512];
    int ticks;   /* ` at the beginning of the line */
    bool begins; /* the line contains only these and blanks so far */
    bool fenced; /* between ``` and ``` */
    bool as_is;  /* the line is not wrapped */
} cli_wrapping;

/* Begins a text at the left edge. It is not wrapped without a terminal or if wrapping is off. */
void cli_wrapping_begin(cli_wrapping *w, FILE *stream, bool wraps);

/* Writes a piece, which consists of whole characters. The caller flushes the stream. */
void cli_wrapping_put(cli_wrapping *w, const char *text, size_t length);

/* Prints a message on stderr as printf() does, with a newline. */
void cli_wrapping_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The columns of the first UTF-8 character of a text, and its bytes. */
int cli_character_columns(const char *text, size_t length, size_t *bytes);

#endif
