#include "cli/infile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* more than any useful text, less than a mistyped device gives */
#define TEXT_BYTES_MAX ((size_t)256 << 20)

/* Reads until the end or one byte past the limit. NULL when out of memory. */
static char *read_stream(FILE *f, size_t *used)
{
    size_t space = 1 << 16;
    char *text = malloc(space);
    *used = 0;
    while (text && *used <= TEXT_BYTES_MAX) {
        const size_t got = fread(text + *used, 1, space - *used - 1, f);
        *used += got;
        if (got == 0 || feof(f)) { /* reading on would need another Ctrl-D on a terminal */
            break;
        }
        if (space - *used < 2) {
            char *more = realloc(text, space *= 2);
            if (!more) {
                free(text);
            }
            text = more;
        }
    }
    return text;
}

char *cli_read_file(const char *command, const char *path, size_t *length)
{
    const bool input = strcmp(path, "-") == 0;
    FILE *f = input ? stdin : fopen(path, "rb");
    char *text = f ? read_stream(f, length) : NULL;
    const char *why = !f ? strerror(errno) : !text ? strerror(ENOMEM) : ferror(f) ? strerror(errno) : NULL;
    if (!why && *length > TEXT_BYTES_MAX) {
        why = "it is larger than 256 MiB";
    }
    if (why) {
        fprintf(stderr, "moraine %s: cannot read %s: %s\n", command, input ? "standard input" : path, why);
        free(text);
        text = NULL;
    } else if (text) {
        text[*length] = '\0';
    }
    if (f && !input) {
        fclose(f);
    }
    return text;
}
