#include "cli/adapters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ADAPTERS_MAX = 16 };

/* The adapters of one model. */
typedef struct list {
    struct list *before;
    const char *path[ADAPTERS_MAX];
    float scale[ADAPTERS_MAX];
    int count;
} list;

/* Prints the error and frees `what`, which may be NULL. */
static bool refuse(const char *command, char *what, const char *why)
{
    fprintf(stderr, "moraine %s: --lora %s: %s\n", command, what ? what : "", why);
    free(what);
    return false;
}

/* Adds FILE or FILE:SCALE. A number after the last colon is a scale if no file has the whole name. */
static bool add(const char *command, const char *text, size_t length, bool scaled, list *l)
{
    char *path = strndup(text, length);
    if (!path) {
        return refuse(command, NULL, "out of memory");
    }
    if (l->count == ADAPTERS_MAX) {
        return refuse(command, path, "more than 16 adapters");
    }
    float scale = 1.0f;
    char *colon = access(path, F_OK) == 0 ? NULL : strrchr(path, ':');
    if (colon) {
        char *end;
        scale = strtof(colon + 1, &end);
        if (end == colon + 1 || *end || isnan(scale)) {
            return refuse(command, path, "expected a number after the colon, as in FILE:0.5");
        }
        if (!isfinite(scale)) {
            return refuse(command, path, "the number after the colon is too large");
        }
        *colon = '\0';
    } else if (scaled) {
        return refuse(command, path, "expected a scale, as in FILE:0.5");
    }
    if (access(path, R_OK) != 0) {
        return refuse(command, path, strerror(errno));
    }
    l->path[l->count] = path;
    l->scale[l->count++] = scale;
    return true;
}

static bool add_all(const char *command, const cli_texts *texts, bool scaled, list *l)
{
    for (int i = 0; i < texts->count; i++) {
        const char *at = texts->item[i];
        const bool whole = access(at, F_OK) == 0; /* a file name that contains a comma */
        while (*at) {
            const size_t length = whole ? strlen(at) : strcspn(at, ",");
            if (length > 0 && !add(command, at, length, scaled, l)) {
                return false;
            }
            at += length + (at[length] != '\0');
        }
    }
    return true;
}

bool cli_adapters_set(const char *command, const cli_texts *plain, const cli_texts *scaled,
                      mo_model_options *out)
{
    static list *all;
    if (plain->count == 0 && scaled->count == 0) {
        return true;
    }
    list *l = calloc(1, sizeof *l);
    if (!l) {
        return refuse(command, NULL, "out of memory");
    }
    l->before = all;
    all = l;
    if (!add_all(command, plain, false, l) || !add_all(command, scaled, true, l)) {
        return false;
    }
    out->adapters = l->path;
    out->adapter_scales = l->scale;
    out->adapter_count = l->count;
    return true;
}
