#include "cli/print/wrapping.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/print/terminal.h"

static bool moves_cursor(FILE *stream)
{
    const char *term = getenv("TERM");
    return cli_terminal_is(stream) && term && *term && strcmp(term, "dumb") != 0;
}

static void begin_line(cli_wrapping *w)
{
    w->column = w->indent = w->spaces = w->ticks = 0;
    w->in_word = false;
    w->begins = true;
    w->as_is = w->fenced;
}

void cli_wrapping_begin(cli_wrapping *w, FILE *stream, bool wraps)
{
    *w = (cli_wrapping){.stream = stream, .on = wraps && moves_cursor(stream)};
    if (w->on) {
        setlocale(LC_CTYPE, "C.UTF-8"); /* for wcwidth() */
        w->width = cli_terminal_width(stream);
        w->continued = cli_terminal_continued();
        begin_line(w);
    }
}

int cli_character_columns(const char *text, size_t length, size_t *bytes)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t wanted = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    wchar_t code = wanted == 1 ? first : first & (0x7f >> wanted);
    *bytes = 1;
    for (; *bytes < wanted && *bytes < length && ((unsigned char)text[*bytes] & 0xc0) == 0x80; ++*bytes) {
        code = code << 6 | ((unsigned char)text[*bytes] & 0x3f);
    }
    const int columns = *bytes == wanted && first != 0 ? wcwidth(code) : 1;
    return columns < 0 ? (first < 0x20 ? 0 : 1) : columns;
}

/* A window that became narrower shows the line in several rows, and its last word anywhere. */
static void look_at_width(cli_wrapping *w)
{
    const int now = cli_terminal_width(w->stream);
    if (now != w->width) {
        w->width = now;
        w->column %= now;
        w->word_column = 0;
    }
}

/* After a stop the cursor is on another, empty line, because a shell has written above. */
static void look_at_stops(cli_wrapping *w)
{
    const int now = cli_terminal_continued();
    if (now != w->continued) {
        w->continued = now;
        w->column = w->indent = w->spaces = w->word_column = 0;
        w->in_word = false;
    }
}

static void end_line(cli_wrapping *w)
{
    fputc('\n', w->stream);
    begin_line(w);
}

/* Begins a new line on the terminal, which is not a new line of the text. */
static void break_line(cli_wrapping *w)
{
    fputc('\n', w->stream);
    w->column = w->indent = w->spaces = 0;
}

/* Erases the last word and writes it on a new line. */
static void move_word(cli_wrapping *w)
{
    const int columns = w->column - w->word_column;
    if (columns > 0) {
        fprintf(w->stream, "\033[%dD\033[K", columns);
    }
    break_line(w);
    fwrite(w->word, 1, w->word_bytes, w->stream);
    w->column = columns;
    w->word_column = 0;
}

static void write_character(cli_wrapping *w, const char *text, size_t bytes, int columns)
{
    fwrite(text, 1, bytes, w->stream);
    w->column += columns;
    if (w->column >= w->width) { /* the word is longer than a line; the terminal has wrapped it */
        w->column -= w->width;
        w->word_column = 0;
    }
    if (w->word_bytes + bytes > sizeof w->word) {
        w->word_column = 0;
    } else {
        memcpy(w->word + w->word_bytes, text, bytes);
        w->word_bytes += bytes;
    }
}

/* Decides by the beginning of a line whether it is wrapped. */
static void look_at_begin(cli_wrapping *w, char c)
{
    w->ticks = c == '`' ? w->ticks + 1 : 0;
    w->begins = c == ' ' || (w->ticks > 0 && w->ticks < 3);
    w->indent += c == ' ';
    if (w->ticks == 3) {
        w->fenced = !w->fenced;
        w->as_is = true;
    }
    w->as_is = w->as_is || c == '|' || c == '\t';
}

static void put_word(cli_wrapping *w, const char *text, size_t bytes, int columns)
{
    /* terminals differ about a cursor after the last column */
    const int last = w->width - 1;
    const bool begins = w->spaces > 0 || !w->in_word || columns > 1; /* each wide character is a word */
    if (begins && w->column > w->indent && w->column + w->spaces + columns > last) {
        break_line(w);
    }
    if (begins) {
        fprintf(w->stream, "%*s", w->spaces, "");
        w->column += w->spaces;
        w->spaces = 0;
        w->word_column = w->column;
        w->word_bytes = 0;
        w->in_word = true;
    } else if (w->column + columns > last && w->word_column > w->indent) {
        move_word(w);
    }
    write_character(w, text, bytes, columns);
}

static void put_character(cli_wrapping *w, const char *text, size_t bytes, int columns)
{
    const char c = text[0];
    if (c == '\n') {
        end_line(w);
        return;
    }
    if (w->begins) {
        look_at_begin(w, c);
    }
    if (w->as_is || (w->begins && c == ' ')) {
        fwrite(text, 1, bytes, w->stream);
        w->column += columns;
    } else if (c == ' ') {
        w->spaces++;
    } else {
        put_word(w, text, bytes, c == '\t' ? 8 - w->column % 8 : columns);
    }
}

void cli_wrapping_put(cli_wrapping *w, const char *text, size_t length)
{
    if (!w->on) {
        fwrite(text, 1, length, w->stream);
        return;
    }
    look_at_stops(w);
    look_at_width(w);
    for (size_t bytes; length > 0; text += bytes, length -= bytes) {
        const int columns = cli_character_columns(text, length, &bytes);
        put_character(w, text, bytes, columns);
    }
}

void cli_wrapping_say(const char *format, ...)
{
    cli_wrapping w;
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        cli_wrapping_begin(&w, stderr, true);
        cli_wrapping_put(&w, text, (size_t)length);
        fputc('\n', stderr);
        free(text);
    }
}
