#include "cli/prompt.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/infile.h"

/* Removes what editors add to a text. The last newline of a command-line argument is kept unless CR LF. */
static void clean(char *text, size_t *length, bool typed)
{
    const bool marked = *length > 0 && (text[*length - 1] == '\r' ||
                                        (*length > 1 && memcmp(text + *length - 2, "\r\n", 2) == 0));
    *length -= *length > 0 && text[*length - 1] == '\r'; /* what $(...) leaves of a last line */
    size_t from = *length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, to = 0;
    for (; from < *length; from++) {
        if (text[from] != '\r' || from + 1 == *length || text[from + 1] != '\n') {
            text[to++] = text[from];
        }
    }
    to -= (!typed || marked) && to > 0 && text[to - 1] == '\n';
    text[to] = '\0';
    *length = to;
}

/* Is there input besides -p? Terminals, sockets and /dev/null are not read. */
static bool stdin_has_text(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

enum { PATIENCE_MS = 2000 };

static char *read_beside(size_t *length)
{
    struct pollfd waits = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&waits, 1, PATIENCE_MS) == 0) {
        fprintf(stderr,
                "moraine run: waiting for stdin, which is part of the prompt (use </dev/null if not)\n");
    }
    return cli_read_file("run", "-", length);
}

static char *join(char *first, char *second, size_t *length, size_t second_length)
{
    char *both = first && second ? malloc(*length + second_length + 3) : NULL;
    if (both) {
        memcpy(both, first, *length);
        both[*length] = both[*length + 1] = '\n';
        memcpy(both + *length + 2, second, second_length + 1);
        *length += second_length + 2;
    }
    free(first);
    free(second);
    return both;
}

char *cli_prompt_read(const char *given, const char *file, size_t *length)
{
    char *text;
    if (given) {
        text = strdup(given);
        *length = strlen(given);
        if (text) {
            clean(text, length, true);
        }
        size_t more_length = 0;
        char *more = stdin_has_text() ? read_beside(&more_length) : NULL;
        if (more) {
            clean(more, &more_length, false);
        }
        if (more_length > 0) {
            text = join(text, more, length, more_length);
        } else {
            free(more);
        }
    } else {
        if (!file && isatty(STDIN_FILENO)) {
            fprintf(stderr, "Type the prompt, then press Ctrl-D on a new line.\n");
        }
        text = cli_read_file("run", file ? file : "-", length);
        if (text) {
            clean(text, length, false);
        }
    }
    if (text && strspn(text, " \t\n\r") == *length) {
        fprintf(stderr, "moraine run: the prompt is empty; give one with -p, -f or on stdin\n");
        free(text);
        return NULL;
    }
    return text;
}
