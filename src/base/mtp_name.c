#include "base/mtp_name.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool mo_mtp_named(const char *path)
{
    static const char end[] = "-mtp.gguf";
    const size_t length = strlen(path);
    char model[PATH_MAX];
    struct stat head, whole;
    if (length < sizeof end || strcmp(path + length - (sizeof end - 1), end) != 0 ||
        snprintf(model, sizeof model, "%.*s.gguf", (int)(length - (sizeof end - 1)), path) >=
            (int)sizeof model) {
        return false;
    }
    return stat(model, &whole) == 0 && stat(path, &head) == 0 && head.st_size < whole.st_size / 2;
}
