#include "cli/pulling.h"

#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/plan_words.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"
#include "hub/pull.h"
#include "hub/store.h"

#define LEFT_FREE ((int64_t)2 << 30) /* a disk with less free is nearly full */

typedef struct show {
    const char *command;
    cli_progress progress;
} show;

/* ---- While it runs ---- */

static bool on_progress(void *user, const char *label, int64_t done, int64_t total)
{
    show *s = user;
    if (s->progress.label != label || s->progress.total != (uint64_t)total) {
        cli_progress_end(&s->progress);
        cli_progress_begin(&s->progress, label, (uint64_t)total);
        s->progress.before = (uint64_t)done;
        s->progress.lines = true;
    }
    cli_progress_update(&s->progress, (uint64_t)done);
    return true;
}

static bool on_goes_on(void *user)
{
    (void)user;
    if (cli_interrupted()) {
        cli_signals_patience(); /* until what has come is written down */
    }
    return !cli_interrupted();
}

static void on_says(void *user, const char *text)
{
    show *s = user;
    cli_progress_end(&s->progress);
    fprintf(stderr, "moraine %s: %s\n", s->command, text);
}

/* ---- Before ---- */

static int print_listing(const hub_reference *r, const hub_listing *l)
{
    char a[32];
    for (int i = 0; i < l->count; i++) {
        const hub_choice *c = &l->choices[i];
        printf("%s/%s:%s  %s in %d %s\n", r->owner, r->repo, c->label, cli_bytes_text((uint64_t)c->bytes, a),
               c->count, c->count == 1 ? "file" : "files");
    }
    if (l->count == 0) {
        fprintf(stderr,
                "moraine pull: %s/%s has no complete GGUF model; repositories "
                "with models for Moraine have names that end in -GGUF\n",
                r->owner, r->repo);
    }
    return CLI_OK;
}

static void tell_size(const hub_pull_info *info, const char *directory)
{
    char a[32], b[32];
    fprintf(stderr, "%s: %s in %d %s\n", info->name, cli_bytes_text((uint64_t)info->bytes, a), info->files,
            info->files == 1 ? "file" : "files");
    if (info->free_bytes >= 0) {
        fprintf(stderr, "disk: %s needed, %s free in %s\n", cli_bytes_text((uint64_t)info->need_bytes, a),
                cli_bytes_text((uint64_t)info->free_bytes, b), directory);
    }
    const int64_t left = info->free_bytes - info->need_bytes;
    if (info->free_bytes >= 0 && left >= 0 && left < LEFT_FREE) {
        fprintf(stderr, "warning: only %s of that disk will be left free\n",
                cli_bytes_text((uint64_t)left, a));
    }
}

/* What a run here would be like. False: it cannot be run at all, or the header cannot be had; *status says which. */
static bool tell_plan(hub_pull *pull, mo_status *status, mo_error *err)
{
    mo_plan_report r;
    *status = hub_pull_plan(pull, &r, err);
    if (*status == MO_OK) {
        char speed[32];
        const char *unit = cli_speed_text(r.tokens_per_second, speed);
        fprintf(stderr, "this machine: %s; about %s %s expected%s\n", cli_plan_words(&r), speed, unit,
                r.measured ? "" : " (estimate; moraine probe measures this machine)");
    } else if (*status == MO_ENOMEM || *status == MO_EDEVICE) {
        cli_name_options(err->detail, sizeof err->detail);
        fprintf(stderr, "this machine: cannot run it: %s\n", err->detail);
    }
    return *status == MO_OK || *status == MO_ENOMEM || *status == MO_EDEVICE;
}

/* ---- All of it ---- */

static int fail(const char *command, const mo_error *err)
{
    if (err->status == MO_ECANCELLED) {
        fprintf(stderr, "moraine %s: interrupted\n", command);
    } else {
        cli_say_error(command, err);
    }
    return CLI_FAILED;
}

/* -1: go on; otherwise the exit code. */
static int before(const char *command, hub_pull *pull, const cli_pulling *p, const char *directory)
{
    mo_error err = {0};
    mo_status status;
    hub_pull_info info;
    hub_pull_describe(pull, &info);
    tell_size(&info, directory);
    if (info.free_bytes >= 0 && info.need_bytes > info.free_bytes) {
        fprintf(stderr,
                "moraine %s: not enough disk space in %s; free some, "
                "or choose another directory with MORAINE_MODELS%s\n",
                command, directory, strcmp(command, "pull") == 0 ? " or --dir" : "");
        return CLI_FAILED;
    }
    if (!tell_plan(pull, &status, &err) && (status == MO_ECANCELLED || status == MO_EIO || !p->force)) {
        fail(command, &err);
        if (status != MO_ECANCELLED && status != MO_EIO) {
            fprintf(stderr, "moraine %s: nothing was downloaded%s\n", command,
                    strcmp(command, "pull") == 0 ? "; --force downloads it anyway" : "");
        }
        return CLI_FAILED;
    }
    if (p->dry) {
        return CLI_OK;
    }
    return !p->asks || cli_ask("Pull it now?") ? -1 : CLI_FAILED;
}

static int fetch(const char *command, hub_pull *pull, const cli_pulling *p, const char *directory, show *s,
                 const char *name)
{
    mo_error err = {0};
    hub_pull_info info;
    const mo_status chosen = hub_pull_choose(pull, &err);
    cli_progress_end(&s->progress); /* of a file that was there and had to be checked */
    if (chosen != MO_OK) {
        return fail(command, &err);
    }
    hub_pull_describe(pull, &info);
    if (info.there) {
        if (!p->dry) {
            return -1;
        }
        fprintf(stderr, "%s is already downloaded\n", info.name);
        return CLI_OK;
    }
    const int code = before(command, pull, p, directory);
    if (code >= 0) {
        return code;
    }
    const mo_status status = hub_pull_run(pull, &err);
    cli_progress_end(&s->progress);
    if (status != MO_OK) {
        fail(command, &err);
        if (status == MO_ECANCELLED || status == MO_EIO || status == MO_ENOSPC) {
            fprintf(stderr, "moraine %s: the partial download is kept; moraine pull %s resumes it\n", command,
                    name);
        }
        return CLI_FAILED;
    }
    return -1;
}

int cli_pulling_run(const char *command, const char *name, const cli_pulling *p, char *path, size_t size)
{
    const char *mirror = p->mirror ? p->mirror : getenv("HF_ENDPOINT");
    char directory[4096];
    mo_error err = {0};
    hub_reference reference;
    hub_pull *pull = NULL;
    hub_pull_info info;
    show s = {.command = command};
    path[0] = '\0';
    mirror = mirror && *mirror ? mirror : NULL;
    if (mirror && strncmp(mirror, "https://", 8) != 0 && strncmp(mirror, "http://", 7) != 0) {
        fprintf(stderr, "moraine %s: %s is not the URL of a mirror; expected https://...\n", command, mirror);
        return CLI_USAGE;
    }
    if (hub_reference_parse(name, mirror, &reference, &err) != MO_OK ||
        hub_store_directory(p->directory, directory, sizeof directory, &err) != MO_OK) {
        cli_say_error(command, &err);
        return CLI_USAGE;
    }
    const hub_pull_options options = {.directory = directory,
                                      .endpoint = mirror,
                                      .connections = (int)p->connections,
                                      .piece = (int64_t)p->piece,
                                      .timeout_s = (int)p->timeout_s,
                                      .tries = (int)p->tries,
                                      .progress = on_progress,
                                      .goes_on = on_goes_on,
                                      .says = on_says,
                                      .user = &s};
    if (hub_pull_open(&reference, &options, &pull, &err) != MO_OK) {
        return fail(command, &err);
    }
    int code = p->list ? print_listing(&reference, hub_pull_listing(pull))
                       : fetch(command, pull, p, directory, &s, name);
    if (code < 0) {
        hub_pull_describe(pull, &info);
        snprintf(path, size, "%s", info.path);
        code = CLI_OK;
    }
    hub_pull_close(pull);
    return code;
}
