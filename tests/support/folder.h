/* A folder of the test program's own, for files that it writes. */
#ifndef MO_TESTS_FOLDER_H
#define MO_TESTS_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[100];

/* Both are for cmocka's setup and teardown, and return 0 when they went well. The second fails when a test has left
 * something behind, the third removes whatever there is. */
static inline int folder_make(void **state)
{
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/moraine-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_remove_empty(void **state)
{
    (void)state;
    return rmdir(folder);
}

static inline int folder_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int folder_remove(void **state)
{
    (void)state;
    return nftw(folder, folder_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file there; a few may be in use at a time. */
static inline const char *in_folder(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Files that are there; -1: it cannot be read. */
static inline int folder_count(void)
{
    int count = 0;
    DIR *d = opendir(folder);
    if (!d) {
        return -1;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        count += e->d_name[0] != '.';
    }
    closedir(d);
    return count;
}

/* Writes a text file, with the folders of its path, which begins with a slash. */
static inline int folder_put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", folder, path);
    for (char *p = full + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    return f && fputs(text, f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

#endif
