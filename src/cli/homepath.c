#include "cli/homepath.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *cli_homepath(const char *path)
{
    const char *home = getenv("HOME");
    char *whole = NULL;
    if (path[0] != '~' || (path[1] && path[1] != '/') || !home || !home[0]) {
        return strdup(path);
    }
    return asprintf(&whole, "%s%s", home, path + 1) < 0 ? NULL : whole;
}
