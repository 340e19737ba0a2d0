/* Routes: see routes.h. */
#include "server/http/routes.h"

#include <stdio.h>
#include <string.h>

static bool match(const char *pattern, const char *path, srv_part *parts, int *count)
{
    *count = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *path++) {
                return false;
            }
            continue;
        }
        const bool rest = pattern[1] == '*';
        const size_t length = rest ? strlen(path) : strcspn(path, "/");
        if (length == 0 || *count == SRV_PARTS) {
            return false;
        }
        parts[(*count)++] = (srv_part){path, length};
        path += length;
        pattern += rest ? 3 : 2;
    }
    return *path == '\0';
}

/* Does the path match? The parts that the pattern's {} stand for, at most SRV_PARTS, and how many. */
static bool matches(const char *pattern, const char *path, srv_part *parts, int *count)
{
    static const char prefix[] = "[/v1]";
    if (strncmp(pattern, prefix, sizeof prefix - 1) == 0) {
        pattern += sizeof prefix - 1;
        if (strncmp(path, "/v1/", 4) == 0 && match(pattern, path + 3, parts, count)) {
            return true;
        }
    }
    return match(pattern, path, parts, count);
}

static void add_method(char *allow, size_t size, const char *method)
{
    if (!strstr(allow, method)) {
        const size_t used = strlen(allow);
        snprintf(allow + used, size - used, "%s%s", used ? ", " : "", method);
    }
}

const srv_route *srv_routes_find(const srv_route_table *tables, const char *method, const char *path,
                                 srv_part *parts, int *count, void **owner, char *allow, size_t size)
{
    allow[0] = '\0';
    for (; tables->routes; tables++) {
        for (const srv_route *r = tables->routes; r->method; r++) {
            if (matches(r->path, path, parts, count)) {
                if (strcmp(r->method, method) == 0) {
                    *owner = tables->owner;
                    return r;
                }
                if (strcmp(r->method, "GET") == 0) {
                    add_method(allow, size, "GET, HEAD");
                } else {
                    add_method(allow, size, r->method);
                }
            }
        }
    }
    *count = 0;
    *owner = NULL;
    return NULL;
}
