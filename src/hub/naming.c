#include "hub/naming.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

static const char *aside_of(const char *path, char text[PATH_MAX + 8])
{
    snprintf(text, PATH_MAX + 8, "%s" HUB_ASIDE, path);
    return text;
}

/* Renames a file out of the way; a missing file is fine. False: see errno. */
static bool put_aside(const char *path)
{
    char aside[PATH_MAX + 8];
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) { /* not a file */
        errno = EISDIR;
        return false;
    }
    return rename(path, aside_of(path, aside)) == 0 || errno == ENOENT;
}

static bool put_back(const char *path)
{
    char aside[PATH_MAX + 8];
    return rename(aside_of(path, aside), path) == 0 || errno == ENOENT;
}

/* Renames an existing file out of the way, then gives the new one its name, unless it has it already. */
static bool take_name(const hub_named *f)
{
    char aside[PATH_MAX + 8];
    if (!f->partial) {
        return !f->aside || rename(aside_of(f->path, aside), f->path) == 0;
    }
    if (!put_aside(f->path)) {
        return false;
    }
    if (rename(hub_partial_path(f->partial), f->path) == 0) {
        return true;
    }
    const int why = errno;
    put_back(f->path);
    errno = why;
    return false;
}

static void give_up_name(const hub_named *f)
{
    if (!f->partial) {
        if (f->aside) {
            put_aside(f->path);
        }
    } else if (rename(f->path, hub_partial_path(f->partial)) == 0) {
        put_back(f->path);
    }
}

static mo_status fail(const char *path, mo_error *err)
{
    return mo_fail(err, MO_EIO, "cannot rename %s: %s", path, strerror(errno));
}

/* Renames all others, and the first one last. */
static mo_status rename_all(const hub_named *files, int count, mo_error *err)
{
    const hub_named *first = &files[0];
    const bool had_name = access(first->path, F_OK) == 0; /* if not, a killed run may have renamed it */
    mo_status s = MO_OK;
    int done = count;
    if (!put_aside(first->path)) {
        return fail(first->path, err);
    }
    while (s == MO_OK && done > 1) {
        const hub_named *f = &files[done - 1];
        s = take_name(f) ? MO_OK : fail(f->path, err);
        done -= s == MO_OK;
    }
    if (s == MO_OK && !(first->partial ? rename(hub_partial_path(first->partial), first->path) == 0
                                       : put_back(first->path))) {
        s = fail(first->path, err);
    }
    for (int i = done; s != MO_OK && i < count; i++) {
        give_up_name(&files[i]);
    }
    if (s != MO_OK && had_name) {
        put_back(first->path);
    }
    return s;
}

mo_status hub_names_give(const hub_named *files, int count, mo_error *err)
{
    char aside[PATH_MAX + 8];
    mo_status s = MO_OK;
    bool others = false;
    for (int i = 0; i < count && s == MO_OK; i++) {
        s = files[i].partial ? hub_partial_settle(files[i].partial, err) : MO_OK;
        others = others || (i > 0 && (files[i].partial || files[i].aside));
    }
    if (s != MO_OK) {
        return s;
    }
    if (others) {
        s = rename_all(files, count, err);
    } else if (files[0].partial) { /* replaces the existing file at once */
        s = rename(hub_partial_path(files[0].partial), files[0].path) == 0 ? MO_OK : fail(files[0].path, err);
    } else if (access(files[0].path, F_OK) != 0 && !put_back(files[0].path)) {
        s = fail(files[0].path, err);
    }
    for (int i = 0; i < count && s == MO_OK; i++) {
        if (files[i].partial) {
            hub_partial_named(files[i].partial);
        }
        if (access(files[i].path, F_OK) == 0) { /* otherwise the last copy of the old file would be lost */
            unlink(aside_of(files[i].path, aside));
        }
    }
    return s;
}
