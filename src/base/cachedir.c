#include "base/cachedir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

mo_status mo_cachedir_path(const char *name, char *path, size_t size, mo_error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && cache[0] == '/'; /* the XDG specification says to ignore relative paths */
    if (!own && (!home || home[0] != '/')) {
        return mo_fail(
            err, MO_ENOENT,
            "there is no directory for %s: neither XDG_CACHE_HOME nor HOME is an absolute path; set one",
            name);
    }
    const int used = snprintf(path, size, "%s%s/moraine/%s", own ? cache : home, own ? "" : "/.cache", name);
    if (used < 0 || (size_t)used >= size) {
        return mo_fail(err, MO_EINVAL,
                       "the path of the cache directory is too long; set a shorter XDG_CACHE_HOME");
    }
    return MO_OK;
}

mo_status mo_cachedir_make(const char *path, mo_error *err)
{
    char part[PATH_MAX];
    const size_t length = strlen(path);
    mo_error none;
    /* Directories of a path given by the user are not created: it may be mistyped. */
    if (mo_cachedir_path("", part, sizeof part, &none) != MO_OK || strncmp(path, part, strlen(part)) != 0) {
        return MO_OK;
    }
    if (length >= sizeof part) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long", path);
    }
    memcpy(part, path, length + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            const int code = errno;
            struct stat st;
            if (stat(part, &st) != 0) { /* the directory above may not be writable */
                return mo_fail(err, code == ENOSPC || code == EDQUOT ? MO_ENOSPC : MO_EIO,
                               "%s: cannot create the directory: %s", part, strerror(code));
            }
        }
        *slash = '/';
    }
    return MO_OK;
}
