#include "cli/commands/synthetic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/model_header.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

static bool on_synth(void *user, int64_t done, int64_t total)
{
    (void)total;
    cli_progress_update(user, (uint64_t)done);
    return !cli_interrupted();
}

/* The model that a synthetic one imitates. */
typedef struct likeness {
    const char *shape; /* name of a published shape; NULL: use the header */
    cli_model_header header;
    char stem[256]; /* of the new file's name */
} likeness;

/* A header's name as part of a file name: "owner/repo:Q4_K_M" becomes "owner-repo-Q4_K_M-synthetic". */
static void name_after(const char *name, char *stem, size_t size)
{
    const char *slash = strrchr(name, '/');
    const bool path = slash && (*name == '/' || *name == '.' || access(name, F_OK) == 0);
    snprintf(stem, size, "%.200s", path ? slash + 1 : name);
    char *end = strstr(stem, ".gguf");
    if (end) {
        *end = '\0';
    }
    for (char *c = stem; *c; c++) {
        *c = *c == '/' || *c == ':' ? '-' : *c;
    }
    const size_t used = strlen(stem);
    snprintf(stem + used, size - used, "-synthetic");
}

/* Reports before writing that an architecture does not run. Too little memory is no error: it may suffice for
   fewer layers or on another machine. */
static int check_runs(const likeness *like, const mo_model_options *model)
{
    mo_error err;
    mo_plan_report *r = calloc(1, sizeof *r);
    const mo_status status = r ? mo_plan_file(like->header.path, model, NULL, r, sizeof *r, &err) : MO_OK;
    free(r);
    if (status == MO_OK || status == MO_ENOMEM || status == MO_EDEVICE) {
        return CLI_OK;
    }
    cli_model_header_say(&like->header, err.detail, sizeof err.detail);
    cli_say_error("bench", &err);
    fprintf(stderr, "moraine bench: it does not run, so nothing was written\n");
    return status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
}

/* Finds a published shape, or the header of a file, a pulled model or a hub's model. Returns an exit code;
   close the header after CLI_OK. */
static int find_likeness(const char *given, const mo_model_options *model, likeness *out)
{
    mo_error err;
    mo_synth_info info;
    *out = (likeness){.header = {.fd = -1}};
    if (mo_synth_measure(given, NULL, &info, sizeof info, &err) == MO_OK) {
        out->shape = given;
        snprintf(out->stem, sizeof out->stem, "%s", given);
        return CLI_OK;
    }
    int code = cli_model_header_open("bench", given, false, &out->header);
    if (code != CLI_OK) {
        return strchr(given, '/') ? code : CLI_USAGE; /* not a shape, file or model */
    }
    if (out->header.fd >= 0) { /* a prefix of a shape's name */
        out->shape = out->header.name;
        snprintf(out->stem, sizeof out->stem, "%.200s", out->shape);
        return CLI_OK;
    }
    name_after(out->header.name, out->stem, sizeof out->stem);
    code = check_runs(out, model);
    if (code != CLI_OK) {
        cli_model_header_close(&out->header);
    }
    return code;
}

static mo_status measure_alike(const likeness *like, const mo_synth_options *o, mo_synth_info *info,
                               mo_error *err)
{
    return like->shape
               ? mo_synth_measure(like->shape, o, info, sizeof *info, err)
               : mo_synth_like_measure(like->header.path, like->header.name, o, info, sizeof *info, err);
}

static int write_model(const likeness *like, const mo_synth_options *o, const char *path, int64_t bytes)
{
    mo_error err;
    cli_progress progress;
    cli_progress_begin(&progress, like->stem, (uint64_t)bytes);
    const mo_status status =
        like->shape ? mo_synth(like->shape, path, o, on_synth, &progress, &err)
                    : mo_synth_like(like->header.path, like->header.name, path, o, on_synth, &progress, &err);
    cli_progress_end(&progress);
    if (status != MO_OK) {
        cli_say_error("bench", &err);
    }
    return status == MO_OK ? CLI_OK : CLI_FAILED;
}

/* Writes the model to the current directory, unless it exists already. Asks before writing a large one on a
   terminal. Returns an exit code. */
#define LARGE_BYTES ((int64_t)1 << 30)
static int make_alike(const likeness *like, int64_t layers, char *path, size_t size)
{
    mo_error err;
    mo_synth_info info;
    mo_synth_options options = mo_synth_options_default();
    options.layers = (int)layers;
    if (layers) {
        snprintf(path, size, "%s-%" PRId64 "-layers.gguf", like->stem, layers);
    } else {
        snprintf(path, size, "%s.gguf", like->stem);
    }
    if (measure_alike(like, &options, &info, &err) != MO_OK) {
        cli_say_error("bench", &err);
        return err.status == MO_ENOENT || err.status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    if (access(path, R_OK) == 0) {
        fprintf(stderr, "moraine bench: using existing %s\n", path);
        return CLI_OK;
    }
    char bytes[32];
    fprintf(stderr, "moraine bench: writing %s, %s of random weights, which is kept%s\n", path,
            cli_bytes_text((uint64_t)info.file_bytes, bytes),
            layers || info.layers <= 4 ? "" : "; --layers 4 makes a smaller one");
    if (info.file_bytes > LARGE_BYTES && cli_terminal_is(stdin) && cli_terminal_is(stderr) &&
        !cli_ask("Write it now?")) {
        return CLI_FAILED;
    }
    return write_model(like, &options, path, info.file_bytes);
}

int cli_synthetic_make(const char *given, int64_t layers, const mo_model_options *model, char *path,
                       size_t size)
{
    likeness like;
    int code = find_likeness(given, model, &like);
    if (code == CLI_OK) {
        code = make_alike(&like, layers, path, size);
        cli_model_header_close(&like.header);
    }
    return code;
}
