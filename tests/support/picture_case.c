#include "picture_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define DATA MO_TEST_DATA "/pictures/"

void *picture_file(const char *name, size_t bytes, size_t *size)
{
    const char *more = getenv("MO_TEST_ORACLE");
    char path[512];
    snprintf(path, sizeof path, DATA "%s", name);
    FILE *f = fopen(path, "rb");
    if (!f && more) {
        snprintf(path, sizeof path, "%s/pictures/%s", more, name);
        f = fopen(path, "rb");
    }
    if (!f) {
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    const size_t all = (size_t)ftell(f);
    rewind(f);
    void *data = malloc(all ? all : 1);
    if (!data || (bytes && bytes != all) || fread(data, 1, all, f) != all) {
        fail_msg("%s has not %zu bytes", path, bytes);
    }
    fclose(f);
    if (size) {
        *size = all;
    }
    return data;
}

/* A text as the list has it, with \n for newlines. */
static void read_prompt(const char *from, char *to, size_t size)
{
    size_t n = 0;
    for (; *from && *from != '"' && n + 1 < size; from++) {
        const bool newline = from[0] == '\\' && from[1] == 'n';
        to[n++] = newline ? '\n' : *from;
        from += newline;
    }
    to[n] = 0;
}

static void read_line(picture_case *c, const char *line)
{
    long long number = 0, first = 0, columns = 0, lines = 0;
    char *at = (char *)line;
    int used = 0;
    if (strncmp(line, "prompt \"", 8) == 0) {
        read_prompt(line + 8, c->prompt, sizeof c->prompt);
    } else if (sscanf(line, "picture %63s", c->file[c->images < PICTURE_IMAGES ? c->images : 0]) == 1) {
        c->images++;
    } else if (sscanf(line, "text %lld %lld%n", &first, &number, &used) == 2) {
        for (at += used; number > 0; number--) {
            c->tokens[c->count++] = (int32_t)strtol(at, &at, 10);
        }
    } else if (sscanf(line, "image %lld %lld %lld %lld", &first, &number, &columns, &lines) == 4) {
        c->columns[number] = columns;
        c->lines[number] = lines;
        for (int64_t i = 0; i < columns * lines; i++) {
            c->tokens[c->count++] = (int32_t)(-1 - number);
        }
    } else if (sscanf(line, "greedy %lld%n", &number, &used) == 1) {
        at += used;
        for (int i = 0; i < PICTURE_GREEDY; i++) {
            c->greedy[i] = (int32_t)strtol(at, &at, 10);
        }
    } else if (sscanf(line, "logits %*s %lld %lld", &number, &first) == 2) {
        assert_int_equal(number, c->count);
        c->vocab = first;
    } else if (sscanf(line, "case %47s", c->name) != 1) {
        sscanf(line, "model %31[^.]", c->model);
    }
}

void picture_cases_read(picture_case out[PICTURE_CASES])
{
    static char line[8192];
    int count = 0;
    FILE *f = fopen(DATA "index.txt", "r");
    assert_non_null(f);
    memset(out, 0, sizeof *out * PICTURE_CASES);
    while (fgets(line, sizeof line, f) && count < PICTURE_CASES) {
        if (strncmp(line, "end", 3) == 0) {
            count++;
        } else {
            read_line(&out[count], line);
        }
    }
    fclose(f);
    assert_int_equal(count, PICTURE_CASES);
}
