#include "cli/input.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/history.h"
#include "cli/lines.h"

#define QUOTES "\"\"\""

struct cli_input {
    cli_lines *lines;
    cli_history *history; /* NULL: no history */
    mo_bytes text;        /* the current message */
};

static void recall(void *lines, const char *text)
{
    cli_lines_remember(lines, text);
}

cli_input *cli_input_open(const char *history, const char *const *words)
{
    cli_input *in = calloc(1, sizeof *in);
    if (!in) {
        return NULL;
    }
    in->lines = cli_lines_open();
    if (!in->lines) {
        free(in);
        return NULL;
    }
    cli_lines_complete(in->lines, words);
    if (cli_lines_edited(in->lines)) { /* lines from a file are not added */
        in->history = cli_history_open(history);
        cli_history_load(in->history, recall, in->lines);
    }
    return in;
}

void cli_input_close(cli_input *in)
{
    if (in) {
        cli_lines_close(in->lines);
        cli_history_close(in->history);
        mo_bytes_free(&in->text);
        free(in);
    }
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    const size_t n = strlen(end);
    return length >= n && memcmp(text + length - n, end, n) == 0;
}

/* Adds lines to the message until it is complete. Each line decides whether another follows. */
static cli_line read_message(cli_input *in, bool *quoted)
{
    const char *line;
    mo_bytes_clear(&in->text);
    *quoted = false;
    for (int number = 0;; number++) {
        cli_line got = cli_lines_read(in->lines, number ? ". " : "> ", &line);
        if (got != CLI_LINE) { /* an unfinished message at the end of a file counts too */
            return got == CLI_LINE_END && in->text.length > 0 ? CLI_LINE : got;
        }
        size_t length = strlen(line);
        if (number == 0 && strncmp(line, QUOTES, 3) == 0) {
            *quoted = true;
            line += 3;
            length -= 3;
        }
        const bool closed = *quoted && ends_with(line, length, QUOTES);
        const bool goes_on = *quoted ? !closed : ends_with(line, length, "\\");
        length -= closed ? 3 : goes_on && !*quoted ? 1 : 0;
        mo_bytes_add(&in->text, line, length);
        if (in->text.failed) {
            return CLI_LINE_END;
        }
        if (!goes_on) {
            return CLI_LINE;
        }
        mo_bytes_add(&in->text, "\n", 1);
    }
}

const char *cli_input_read(cli_input *in, bool *literal)
{
    bool quoted;
    cli_line got;
    do {
        got = read_message(in, &quoted);
    } while (got == CLI_LINE_GIVEN_UP);
    mo_bytes_add(&in->text, "", 0); /* the text may be empty, but not NULL */
    if (got == CLI_LINE_END || in->text.failed) {
        return NULL;
    }
    char *text = in->text.data;
    while (in->text.length > 0 && text[in->text.length - 1] == '\n') {
        text[--in->text.length] = '\0';
    }
    text += strspn(text, "\n");
    *literal = quoted || strchr(text, '\n');
    if (text[0]) {
        cli_lines_remember(in->lines, text);
        cli_history_add(in->history, text);
    }
    return text;
}
