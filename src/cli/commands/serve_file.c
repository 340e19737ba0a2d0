#include "cli/commands/serve_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/infile.h"

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* Reads the whole file. NULL after printing the error. */
static char *read_text(const char *command, const char *path)
{
    size_t length = 0;
    char *text = cli_read_file(command, path, &length);
    if (text && strlen(text) != length) { /* text after a NUL would be ignored */
        fprintf(stderr, "moraine %s: %s: contains a NUL byte; it must be plain text\n", command, path);
        free(text);
        text = NULL;
    }
    return text;
}

static bool begin(cli_sections *s, char *name)
{
    cli_section *item = realloc(s->item, (size_t)(s->count + 1) * sizeof *item);
    if (!item) {
        return false;
    }
    s->item = item;
    s->item[s->count++] = (cli_section){.name = name, .words = {"serve"}, .count = 1};
    return true;
}

/* Adds "name = value" or "name" as an option. */
static bool add(cli_section *section, char *line)
{
    char *value = strchr(line, '=');
    char *word = malloc(strlen(line) + 4);
    if (!word || section->count + 1 >= CLI_SECTION_WORDS) {
        free(word);
        return false;
    }
    if (value) {
        *value++ = '\0';
        sprintf(word, "--%s=%s", trim(line), trim(value));
    } else {
        sprintf(word, "--%s", trim(line));
    }
    section->words[section->count++] = word;
    section->words[section->count] = NULL;
    return true;
}

bool cli_sections_read(const char *command, const char *path, cli_sections *out)
{
    int number = 0;
    *out = (cli_sections){.memory = read_text(command, path)};
    for (char *line = out->memory, *next; line && *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next ? (*next = '\0', 1) : 0;
        number++;
        line = trim(line);
        const size_t length = strlen(line);
        if (length == 0 || *line == '#' || *line == ';') {
            continue;
        }
        bool ok;
        if (*line == '[' && line[length - 1] == ']' && length > 2) {
            line[length - 1] = '\0';
            ok = begin(out, trim(line + 1));
        } else {
            ok = out->count > 0 && *line != '[' && add(&out->item[out->count - 1], line);
        }
        if (!ok) {
            fprintf(stderr, "moraine %s: %s, line %d: expected [name], or option = value after a [name]\n",
                    command, path, number);
            return false;
        }
    }
    if (out->memory && out->count == 0) {
        fprintf(stderr, "moraine %s: %s defines no model\n", command, path);
        return false;
    }
    return out->memory != NULL;
}
