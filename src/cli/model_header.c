#include "cli/model_header.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/default_model.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/pulled.h"
#include "cli/pulling.h"
#include "moraine_server.h"

/* For a name that is neither a file nor a pulled model nor a possible name on a hub. */
static void say_unknown(const char *command, const char *given, const mo_error *err)
{
    const char *hint = strstr(err->detail, "did you mean");
    fprintf(stderr, "moraine %s: there is no file %s, and no known model of that name%s%s%s\n", command,
            given,
            hint ? "; "
                 : "; moraine synth --list prints the names, and owner/repo names a repository of GGUF files",
            hint ? hint : "", "");
}

/* Opens a shape's header in memory. MO_ENOENT: no such shape. */
static mo_status open_shape(const char *given, cli_model_header *out, mo_error *err)
{
    const char *name;
    out->fd = memfd_create("moraine-header", MFD_CLOEXEC);
    if (out->fd < 0) {
        snprintf(err->detail, sizeof err->detail, "cannot create a file in memory: %s", strerror(errno));
        return err->status = MO_EIO;
    }
    const mo_status status = mo_synth_header(given, out->fd, &name, err);
    if (status != MO_OK) {
        close(out->fd);
        out->fd = -1;
        return status;
    }
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
    snprintf(out->name, sizeof out->name, "%s", name);
    return MO_OK;
}

static int take_path(const char *path, cli_model_header *out)
{
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->name, sizeof out->name, "%s", path);
    return CLI_OK;
}

static int fetch(const char *command, const char *given, const char *remote, cli_model_header *out)
{
#ifdef MO_PULL
    if (strcmp(given, remote) != 0) {
        fprintf(stderr, "%s: %s\n", given, remote);
    }
    return cli_pulling_header(command, remote, out->path, sizeof out->path, out->name, sizeof out->name,
                              &out->fetched);
#else
    (void)out;
    fprintf(stderr, "moraine %s: %s is not here (%s), and this program was built without libcurl\n", command,
            given, remote);
    return CLI_FAILED;
#endif
}

int cli_model_header_open(const char *command, const char *given, bool quiet, cli_model_header *out)
{
    mo_error err = {0};
    int code = CLI_FAILED;
    *out = (cli_model_header){.fd = -1};
    if (!given || strcmp(given, "pebble") == 0) {
        const char *path = cli_model_path(command, given, quiet, &code);
        return path ? take_path(path, out) : code;
    }
    const cli_pulled_found found = cli_pulled_find(command, given);
    if (found.path || found.refused) {
        return found.path ? take_path(found.path, out) : CLI_USAGE;
    }
    const mo_status status = strchr(given, '/') ? MO_ENOENT : open_shape(given, out, &err);
    if (status == MO_OK) {
        return CLI_OK;
    }
    if (status != MO_ENOENT) {
        cli_say_error(command, &err);
        return CLI_FAILED;
    }
    if (found.remote) {
        return fetch(command, given, found.remote, out);
    }
    say_unknown(command, given, &err);
    return CLI_FAILED;
}

void cli_model_header_close(cli_model_header *h)
{
    if (h->fd >= 0) {
        close(h->fd);
        h->fd = -1;
    }
#ifdef MO_PULL
    if (h->fetched) {
        cli_pulling_header_remove(h->path);
        h->fetched = false;
    }
#endif
}

void cli_model_header_say(const cli_model_header *h, char *text, size_t size)
{
    const size_t from = strlen(h->path), to = strlen(h->name);
    for (char *at = strstr(text, h->path); at && strcmp(h->path, h->name) != 0; at = strstr(at, h->path)) {
        const size_t rest = strlen(at + from) + 1;
        if ((size_t)(at - text) + to + rest > size) {
            return;
        }
        memmove(at + to, at + from, rest);
        memcpy(at, h->name, to);
        at += to;
    }
}
