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
#include "hub/header.h"
#include "hub/pull.h"
#include "hub/store.h"

enum { DIRECTORY = 4096 };
#define LEFT_FREE ((int64_t)2 << 30) /* with less free space the disk is nearly full */

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
        cli_signals_patience(); /* until the state is saved */
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
    for (int i = 0; i < l->encoder_count; i++) {
        fprintf(stderr, "%s, an encoder of pictures  %s\n", l->encoders[i].path,
                cli_bytes_text((uint64_t)l->encoders[i].bytes, a));
    }
    if (l->count == 0) {
        fprintf(stderr,
                "moraine pull: %s/%s has no complete GGUF model; repositories "
                "with models for Moraine have names that end in -GGUF\n",
                r->owner, r->repo);
    }
    return CLI_OK;
}

/* Would the file fit and leave the disk nearly full? */
static bool fills_disk(const hub_pull_info *info)
{
    const int64_t left = info->free_bytes - info->need_bytes;
    return info->free_bytes >= 0 && left >= 0 && left < LEFT_FREE;
}

static void tell_size(const hub_pull_info *info, const char *directory)
{
    char a[32], b[32];
    fprintf(stderr, "%s: %s in %d %s\n", info->name, cli_bytes_text((uint64_t)info->bytes, a), info->files,
            info->files == 1 ? "file" : "files");
    if (info->encoder) {
        fprintf(stderr, "of it %s, with which it reads pictures: %s; --mmproj none leaves it out\n",
                info->encoder, cli_bytes_text((uint64_t)info->encoder_bytes, a));
    }
    if (info->free_bytes >= 0) {
        fprintf(stderr, "disk: %s needed, %s free in %s\n", cli_bytes_text((uint64_t)info->need_bytes, a),
                cli_bytes_text((uint64_t)info->free_bytes, b), directory);
    }
    if (fills_disk(info)) {
        fprintf(stderr, "warning: only %s of that disk will be left free\n",
                cli_bytes_text((uint64_t)(info->free_bytes - info->need_bytes), a));
    }
}

/* Prints the plan for this machine, or a described one. */
static void tell_plan(mo_status status, mo_plan_report *r, mo_error *err)
{
    const char *where = r->described[0] ? "described machine" : "this machine";
    if (status == MO_OK) {
        char speed[32];
        const char *unit = cli_speed_text(r->tokens_per_second, speed);
        if (r->described[0]) {
            fprintf(stderr, "%s: %s\n", where, r->described);
        }
        fprintf(stderr, "%s: %s; about %s %s expected%s\n", where, cli_plan_words(r), speed, unit,
                r->measured       ? ""
                : r->described[0] ? " (estimate)"
                                  : " (estimate; moraine probe measures this machine)");
    } else {
        cli_name_options(err->detail, sizeof err->detail);
        fprintf(stderr, "%s: cannot run it: %s\n", where, err->detail);
    }
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

static int refuse(const char *command, mo_status status, const mo_error *err)
{
    fail(command, err);
    if (status != MO_ECANCELLED && status != MO_EIO) {
        fprintf(stderr, "moraine %s: nothing was downloaded%s\n", command,
                strcmp(command, "pull") == 0 ? "; --force downloads it anyway" : "");
    }
    return CLI_FAILED;
}

/* Checks before a download. -1: continue; otherwise the exit code. First reports that it cannot run here. */
static int before(const char *command, hub_pull *pull, const cli_pulling *p, const char *directory)
{
    const mo_model_options usual = mo_model_options_default();
    mo_error err = {0};
    hub_pull_info info;
    mo_plan_report *r = calloc(1, sizeof *r);
    if (!r) {
        fprintf(stderr, "moraine %s: out of memory for a plan\n", command);
        return CLI_FAILED;
    }
    const mo_status status = hub_pull_plan(pull, p->model ? p->model : &usual, p->extra, r, &err);
    const bool runs = status == MO_OK || status == MO_ENOMEM || status == MO_EDEVICE;
    if (!runs && (status == MO_ECANCELLED || status == MO_EIO || status == MO_EINVAL || !p->force)) {
        free(r);
        const int code = refuse(command, status, &err);
        return status == MO_EINVAL ? CLI_USAGE : code;
    }
    hub_pull_describe(pull, &info);
    tell_size(&info, directory);
    if (runs) {
        tell_plan(status, r, &err);
    }
    free(r);
    if (info.free_bytes >= 0 && info.need_bytes > info.free_bytes) {
        fprintf(stderr,
                "moraine %s: not enough disk space in %s; free some, "
                "or choose another directory with MORAINE_MODELS%s\n",
                command, directory, strcmp(command, "pull") == 0 ? " or --dir" : "");
        return CLI_FAILED;
    }
    if (p->dry) {
        return CLI_OK;
    }
    if (fills_disk(&info) && !p->force && isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) {
        return cli_ask("Pull it anyway?") ? -1 : CLI_FAILED;
    }
    return !p->asks || cli_ask("Pull it now?") ? -1 : CLI_FAILED;
}

static int fetch(const char *command, hub_pull *pull, const cli_pulling *p, const char *directory, show *s,
                 const char *name)
{
    mo_error err = {0};
    hub_pull_info info;
    const mo_status chosen = hub_pull_choose(pull, &err);
    cli_progress_end(&s->progress); /* for an existing file that was checked */
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

/* CLI_OK, or the exit code after printing the error. directory: 4096 bytes; must outlive the pull, as s. */
static int open_pull(const char *command, const char *name, const cli_pulling *p, char *directory, show *s,
                     hub_reference *reference, hub_pull **out)
{
    const char *mirror = p->mirror ? p->mirror : getenv("HF_ENDPOINT");
    mo_error err = {0};
    mirror = mirror && *mirror ? mirror : NULL;
    if (mirror && strncmp(mirror, "https://", 8) != 0 && strncmp(mirror, "http://", 7) != 0) {
        fprintf(stderr, "moraine %s: %s is not the URL of a mirror; expected https://...\n", command, mirror);
        return CLI_USAGE;
    }
    if (hub_reference_parse(name, mirror, reference, &err) != MO_OK ||
        hub_store_directory(p->directory, directory, DIRECTORY, &err) != MO_OK) {
        cli_say_error(command, &err);
        return CLI_USAGE;
    }
    const hub_pull_options options = {.directory = directory,
                                      .endpoint = mirror,
                                      .encoder =
                                          p->mmproj && strcmp(p->mmproj, "auto") != 0 ? p->mmproj : NULL,
                                      .connections = (int)p->connections,
                                      .piece = (int64_t)p->piece,
                                      .timeout_s = (int)p->timeout_s,
                                      .tries = (int)p->tries,
                                      .progress = on_progress,
                                      .goes_on = on_goes_on,
                                      .says = on_says,
                                      .user = s};
    return hub_pull_open(reference, &options, out, &err) == MO_OK ? CLI_OK : fail(command, &err);
}

int cli_pulling_run(const char *command, const char *name, const cli_pulling *p, char *path, size_t size)
{
    char directory[DIRECTORY];
    hub_reference reference;
    hub_pull *pull = NULL;
    hub_pull_info info;
    show s = {.command = command};
    path[0] = '\0';
    int code = open_pull(command, name, p, directory, &s, &reference, &pull);
    if (code != CLI_OK) {
        return code;
    }
    code = p->list ? print_listing(&reference, hub_pull_listing(pull))
                   : fetch(command, pull, p, directory, &s, name);
    if (code < 0) {
        hub_pull_describe(pull, &info);
        snprintf(path, size, "%s", info.path);
        code = CLI_OK;
    }
    hub_pull_close(pull);
    return code;
}

int cli_pulling_header(const char *command, const char *name, char *path, size_t size, char *shown,
                       size_t shown_size, bool *fetched)
{
    cli_pulling p = CLI_PULLING_DEFAULT;
    char directory[DIRECTORY];
    hub_reference reference;
    hub_pull *pull = NULL;
    hub_pull_info info;
    mo_error err = {0};
    p.mmproj = "none";
    show s = {.command = command};
    int code = open_pull(command, name, &p, directory, &s, &reference, &pull);
    if (code != CLI_OK) {
        return code;
    }
    mo_status status = hub_pull_choose(pull, &err);
    cli_progress_end(&s.progress);
    if (status == MO_OK) {
        hub_pull_describe(pull, &info);
        snprintf(shown, shown_size, "%s", info.there ? info.path : info.name);
        snprintf(path, size, "%s", info.path);
        *fetched = !info.there;
        status = info.there ? MO_OK : hub_pull_header(pull, path, size, &err);
    }
    hub_pull_close(pull);
    return status == MO_OK ? CLI_OK : fail(command, &err);
}

void cli_pulling_header_remove(const char *path)
{
    hub_header_remove(path);
}
