/* Target: see target.h. */
#include "server/http/target.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* In place. A plus means a blank in a query. */
static bool decode(char *text, bool query)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        char c = *from;
        if (c == '%') {
            const int high = digit(from[1]), low = high < 0 ? -1 : digit(from[2]);
            if (low < 0 || high * 16 + low == 0) {
                return false;
            }
            c = (char)(high * 16 + low);
            from += 2;
        } else if (c == '+' && query) {
            c = ' ';
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static bool parse_query(char *text, srv_target *out, const char **why)
{
    char *next;
    for (; text && *text; text = next) {
        next = strchr(text, '&');
        if (next) {
            *next++ = '\0';
        }
        if (*text == '\0') {
            continue;
        }
        if (out->query_count == SRV_QUERIES) {
            *why = "the query has too many parameters";
            return false;
        }
        char *value = strchr(text, '=');
        if (value) {
            *value++ = '\0';
        } else {
            value = text + strlen(text);
        }
        if (!decode(text, true) || !decode(value, true)) {
            *why = "the query has an invalid %-sequence";
            return false;
        }
        out->queries[out->query_count++] = (struct srv_query){text, value};
    }
    return true;
}

/* "http://host/path", which clients of proxies send: the host is copied, and the path is behind it. NULL: no memory. */
static char *take_authority(char *text, char **authority)
{
    const size_t scheme = strncasecmp(text, "http://", 7) == 0    ? 7
                          : strncasecmp(text, "https://", 8) == 0 ? 8
                                                                  : 0;
    if (scheme == 0) {
        return text;
    }
    char *path = text + scheme + strcspn(text + scheme, "/?#");
    *authority = strndup(text + scheme, (size_t)(path - text) - scheme);
    if (*path != '/') { /* "http://host?query" means its root */
        *--path = '/';
    }
    return *authority ? path : NULL;
}

bool srv_target_parse(const char *text, srv_target *out, const char **why)
{
    *out = (srv_target){0};
    *why = NULL;
    out->memory = strdup(text);
    if (!out->memory) {
        return false;
    }
    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7f) {
            *why = "the path has a character that must be written as a %-sequence";
            return false;
        }
    }
    out->path = take_authority(out->memory, &out->authority);
    if (!out->path) {
        return false;
    }
    if (out->path[0] != '/' && strcmp(out->path, "*") != 0) {
        *why = "the path must begin with /";
        return false;
    }
    out->path[strcspn(out->path, "#")] = '\0';
    char *query = strchr(out->path, '?');
    if (query) {
        *query++ = '\0';
    }
    if (!decode(out->path, false)) {
        *why = "the path has an invalid %-sequence";
        return false;
    }
    return parse_query(query, out, why);
}

void srv_target_free(srv_target *target)
{
    free(target->memory);
    free(target->authority);
    *target = (srv_target){0};
}

const char *srv_target_query(const srv_target *target, const char *name)
{
    for (int i = 0; i < target->query_count; i++) {
        if (strcmp(target->queries[i].name, name) == 0) {
            return target->queries[i].value;
        }
    }
    return NULL;
}
