#include "cli/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/infile.h"
#include "cli/messages.h"

/* May the file be written: is it absent, or a profile as they are written here? */
static bool is_ours(const char *path)
{
    static const char begin[] = "{\"enabled\":";
    char found[sizeof begin - 1];
    struct stat st;
    if (stat(path, &st) != 0) {
        return errno == ENOENT;
    }
    const int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    const bool ours = fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof found &&
                      memcmp(found, begin, sizeof found) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return ours;
}

static void show_in(const char *json, const char *path)
{
    if (!is_ours(path)) {
        fprintf(stderr, "moraine chat: %s exists and is not a profile; name another file or remove it\n",
                path);
        return;
    }
    FILE *f = fopen(path, "w");
    bool good = f && fprintf(f, "%s\n", json) > 0;
    good = f && fclose(f) == 0 && good;
    if (good) {
        fprintf(stderr, "written to %s\n", path);
    } else {
        perror(path);
    }
}

void cli_profile_show(mo_model *model, const char *path)
{
    mo_error err;
    char *json = NULL;
    if (mo_model_profile(model, &json, &err) != MO_OK) {
        cli_say_error("chat", &err);
    } else if (path) {
        show_in(json, path);
    } else {
        printf("%s\n", json);
    }
    free(json);
}

void cli_profile_apply(mo_model *model, const char *path)
{
    mo_error err;
    mo_profile_report a;
    size_t length = 0;
    char *text = cli_read_file("chat", path, &length);
    if (!text) {
        return;
    }
    const mo_status status = mo_model_profile_apply(model, text, length, &a, sizeof a, &err);
    if (status != MO_OK) {
        cli_name_options(err.detail, sizeof err.detail);
        fprintf(stderr, "moraine chat: %s: %s\n", path, err.detail);
    }
    if (status == MO_OK || a.active) {
        printf("{\"success\":%s,\"active\":%s,\"update_rate\":%.1f,\"exchanged\":%" PRIu64
               ",\"candidates\":%" PRIu64 ",\"max_exchange\":%" PRIu64 ",\"hot_experts\":%" PRIu64
               ",\"layers_changed\":%" PRIu64 "}\n",
               a.success ? "true" : "false", a.active ? "true" : "false", a.update_rate, a.exchanged,
               a.candidates, a.max_exchange, a.hot_experts, a.layers_changed);
    }
    free(text);
}
