/* Origin: see origin.h. */
#include "server/http/origin.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool srv_host_name(const char *host, char *name, int size)
{
    const bool bracket = *host == '[';
    const char *begin = host + bracket;
    const size_t length = strcspn(begin, bracket ? "]" : ":");
    const char *end = begin + length;
    if (length == 0 || length >= (size_t)size || (bracket && *end != ']')) {
        return false;
    }
    end += bracket;
    if (*end == ':') { /* a port, which may be empty */
        end += 1 + strspn(end + 1, "0123456789");
    }
    if (*end) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)begin[i];
        if (!(isalnum(c) || strchr(bracket ? ":.%" : "-._", c))) {
            return false;
        }
        name[i] = (char)tolower(c);
    }
    name[length] = '\0';
    if (length > 1 && name[length - 1] == '.') {
        name[length - 1] = '\0';
    }
    return true;
}

/* Is it localhost, 127.*, or ::1? */
static bool is_loopback(const char *name)
{
    const size_t length = strlen(name);
    const bool local = length > 10 && strcmp(name + length - 10, ".localhost") == 0;
    return local || strcmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
           (strncmp(name, "127.", 4) == 0 && name[4 + strspn(name + 4, "0123456789.")] == '\0');
}

static bool listed(const char *const *list, const char *text)
{
    for (; list && *list; list++) {
        if (strcasecmp(*list, text) == 0 || strcmp(*list, "*") == 0) {
            return true;
        }
    }
    return false;
}

bool srv_host_allowed(const srv_origins *origins, const char *host)
{
    char name[256];
    if (!host) {
        return true;
    }
    if (!srv_host_name(host, name, sizeof name)) {
        return false;
    }
    return !origins->loopback || is_loopback(name) || listed(origins->hosts, name);
}

bool srv_origin_allowed(const srv_origins *origins, const char *origin, const char *host, bool *answer)
{
    char name[256];
    *answer = false;
    if (!origin) {
        return true;
    }
    *answer = true;
    if (listed(origins->allowed, origin)) {
        return true;
    }
    const bool local = origins->loopback || listed(origins->allowed, "localhost");
    const char *authority = strstr(origin, "://");
    if (authority) {
        authority += 3;
        if (host && strcasecmp(authority, host) == 0) { /* the server's own page */
            return true;
        }
        if (origins->loopback &&
            strncmp(origin, "vscode-webview://", 17) == 0) { /* no page of the web has it */
            return true;
        }
        if (local && srv_host_name(authority, name, sizeof name) && is_loopback(name)) {
            return true;
        }
    }
    *answer = false;
    return false;
}
