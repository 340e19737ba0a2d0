#include "base/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool mo_textfile_read(char *text, size_t bytes, const char *path_fmt, ...)
{
    char path[8192];
    va_list args;
    va_start(args, path_fmt);
    int length = vsnprintf(path, sizeof path, path_fmt, args);
    va_end(args);
    text[0] = 0;
    if (length < 0 || (size_t)length >= sizeof path) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t used = 0;
    while (used + 1 < bytes) {
        ssize_t n = read(fd, text + used, bytes - 1 - used);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        used += (size_t)n;
    }
    close(fd);
    text[used] = 0;
    return used > 0;
}

bool mo_textfile_value(const char *text, const char *key, char *value, size_t bytes)
{
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncmp(p, key, n) == 0 && strchr(" \t:", p[n])) {
            p += n;
            p += strspn(p, " \t:");
            size_t length = strcspn(p, "\n");
            length = length < bytes - 1 ? length : bytes - 1;
            memcpy(value, p, length);
            value[length] = 0;
            return true;
        }
    }
    return false;
}
