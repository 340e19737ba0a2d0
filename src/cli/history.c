#include "cli/history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A thousand messages need less, unless books are pasted. Files beyond this limit are not read. */
#define BYTES_MAX ((off_t)64 << 20)

struct cli_history {
    char path[PATH_MAX];
    bool own;    /* in the cache directory, which may have to be created */
    bool failed; /* a failure was printed */
};

/* The path in the cache directory. False if there is no such directory. */
static bool own_path(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool named = cache && cache[0] == '/';
    if (!named && (!home || home[0] != '/')) {
        return false;
    }
    const int used =
        snprintf(path, size, "%s%s/moraine/history", named ? cache : home, named ? "" : "/.cache");
    return used > 0 && (size_t)used < size;
}

cli_history *cli_history_open(const char *option)
{
    if (option && strcmp(option, "off") == 0) {
        return NULL;
    }
    cli_history *h = calloc(1, sizeof *h);
    if (h) {
        h->own = !option;
        const bool known = option ? snprintf(h->path, sizeof h->path, "%s", option) < (int)sizeof h->path
                                  : own_path(h->path, sizeof h->path);
        if (!known) {
            free(h);
            h = NULL;
        }
    }
    return h;
}

void cli_history_close(cli_history *h)
{
    free(h);
}

/* A message as one line with a newline; free() it. */
static char *escape(const char *text)
{
    char *line = malloc(2 * strlen(text) + 2), *to = line;
    if (line) {
        for (; *text; text++) {
            if (*text == '\n' || *text == '\\') {
                *to++ = '\\';
            }
            *to++ = *text == '\n' ? 'n' : *text;
        }
        memcpy(to, "\n", 2);
    }
    return line;
}

static void unescape(char *line)
{
    char *to = line;
    line[strcspn(line, "\n")] = '\0';
    for (const char *from = line; *from; from++) {
        if (*from == '\\' && from[1]) {
            from++;
            *to++ = *from == 'n' ? '\n' : *from;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* Copies f without its first `skip` lines to a new file, which replaces the old one. */
static void shorten(const cli_history *h, FILE *f, long skip)
{
    char real[PATH_MAX], part[PATH_MAX + 8];
    char *line = NULL;
    size_t space = 0;
    if (!realpath(h->path, real)) { /* keeps a link */
        return;
    }
    snprintf(part, sizeof part, "%s.part", real);
    const int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) { /* another chat is doing it, or it is not possible */
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    rewind(f);
    bool ok = true;
    for (long i = 0; ok && getline(&line, &space, f) >= 0; i++) {
        ok = i < skip || fputs(line, out) >= 0;
    }
    ok = fclose(out) == 0 && ok;
    if (!ok || rename(part, real) != 0) {
        unlink(part);
    }
    free(line);
}

/* NULL: nothing to read. A file that is not a history is reported once and not changed. */
static FILE *open_history(cli_history *h)
{
    struct stat st;
    /* O_NONBLOCK: opening a pipe would wait for a writer */
    const int fd = open(h->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    const bool known = fstat(fd, &st) == 0, regular = known && S_ISREG(st.st_mode);
    if (!regular || st.st_size > BYTES_MAX) {
        fprintf(stderr, "moraine chat: %s %s; history is off\n", h->path,
                regular ? "is larger than 64 MiB" : "is not a regular file");
        h->failed = true;
        close(fd);
        return NULL;
    }
    FILE *f = fdopen(fd, "r");
    if (!f) {
        close(fd);
    }
    return f;
}

void cli_history_load(cli_history *h, void (*fn)(void *user, const char *text), void *user)
{
    char *line = NULL;
    size_t space = 0;
    long lines = 0;
    FILE *f = h ? open_history(h) : NULL;
    if (!f) {
        return;
    }
    while (getline(&line, &space, f) >= 0) {
        unescape(line);
        if (line[0]) {
            fn(user, line);
        }
        lines++;
    }
    if (lines > 2 * CLI_HISTORY_MAX) {
        shorten(h, f, lines - CLI_HISTORY_MAX);
    }
    free(line);
    fclose(f);
}

/* Creates the cache directory with the permissions that XDG requires. */
static void make_directories(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0700); /* opening the file reports failures */
        *slash = '/';
    }
}

void cli_history_add(cli_history *h, const char *text)
{
    if (!h || h->failed) {
        return;
    }
    if (h->own) {
        make_directories(h->path);
    }
    char *line = escape(text);
    const int fd = line ? open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600) : -1;
    const size_t length = line ? strlen(line) : 0;
    /* One write, so that lines of two chats do not mix. */
    if (fd < 0 || write(fd, line, length) != (ssize_t)length) {
        fprintf(stderr, "moraine chat: cannot write the history to %s: %s\n", h->path, strerror(errno));
        h->failed = true;
    }
    if (fd >= 0) {
        close(fd);
    }
    free(line);
}
