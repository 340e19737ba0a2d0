#include "cli/commands/serve_check.h"

#include <moraine_server.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/http/origin.h"

bool cli_check_names(const char *option, const char *list)
{
    for (const char *at = list; at;) {
        const size_t length = strcspn(at, ",");
        if (strspn(at, " \t") >= length) {
            fprintf(stderr, "moraine serve: --%s has an empty name; separate names with commas\n", option);
            return false;
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return true;
}

/* Is this "scheme://host" or "scheme://host:port", as browsers send it, without a path? */
static bool is_origin(const char *text)
{
    char name[256];
    const char *at = text;
    while (isalnum((unsigned char)*at) || (*at && strchr("+-.", *at))) {
        at++;
    }
    return at > text && strncmp(at, "://", 3) == 0 && srv_host_name(at + 3, name, sizeof name);
}

bool cli_check_origins(const char *const *origins)
{
    for (; origins && *origins; origins++) {
        if (strcmp(*origins, "*") != 0 && strcmp(*origins, "null") != 0 &&
            strcmp(*origins, "localhost") != 0 && !is_origin(*origins)) {
            fprintf(stderr,
                    "moraine serve: --cors-origins: %s is not an origin; use https://chat.example "
                    "or http://localhost:3000, without a path, localhost for pages of this machine, or * for "
                    "all\n",
                    *origins);
            return false;
        }
    }
    return true;
}

static bool is_host(const char *text)
{
    char name[256];
    struct in6_addr address;
    return (srv_host_name(text, name, sizeof name) && strcasecmp(name, text) == 0) ||
           inet_pton(AF_INET6, text, &address) == 1;
}

bool cli_check_hosts(const char *const *hosts)
{
    for (; hosts && *hosts; hosts++) {
        if (strcmp(*hosts, "*") != 0 && !is_host(*hosts)) {
            fprintf(stderr,
                    "moraine serve: --allow-hosts: %s is not a host name; use "
                    "box.example, without scheme, port or path, or * for all\n",
                    *hosts);
            return false;
        }
    }
    return true;
}

bool cli_check_template(const char *option, const char *text)
{
    mo_error err = {0};
    if (text && mo_chat_template_check(text, &err) != MO_OK) {
        fprintf(stderr, "moraine serve: --%s: %s\n", option, err.detail);
        return false;
    }
    return true;
}

bool cli_check_request(const char *option, const char *path, const char *text)
{
    json_t *root = json_loads(text, 0, NULL);
    const bool object = json_is_object(root);
    json_decref(root);
    if (!object) {
        fprintf(stderr,
                "moraine serve: --%s: %s is not a JSON object; "
                "expected a client request with \"messages\"\n",
                option, path);
    }
    return object;
}

bool cli_check_directory(const char *option, const char *path)
{
    if (!path) {
        return true;
    }
    DIR *directory = opendir(path);
    if (!directory) {
        fprintf(stderr, "moraine serve: --%s: %s: %s\n", option, path, strerror(errno));
        return false;
    }
    closedir(directory);
    return true;
}
