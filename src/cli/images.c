#include "cli/images.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/check.h"
#include "cli/infile.h"
#include "cli/kept.h"
#include "cli/messages.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"
#include "hub/encoder.h"
#include "hub/picture_model.h"

void cli_image_options(cli_options *to, cli_loading *l)
{
    const cli_option table[] = {
        {"mmproj", 0, CLI_TEXT, "FILE|auto|none",
         "file of the encoder with which the model reads pictures; auto: the mmproj file beside the model "
         "(default: auto, for run where there are pictures)",
         &l->mmproj, 0, 0},
        {"no-mmproj", 0, CLI_FLAG, NULL, "same as --mmproj none", &l->no_mmproj, 0, 0},
        {"image-min-tokens", 0, CLI_INTEGER, "N",
         "a picture becomes at least N tokens: smaller ones are enlarged (default: the encoder's)",
         &l->model.image_min_tokens, 1, 65536},
        {"image-max-tokens", 0, CLI_INTEGER, "N",
         "a picture becomes at most N tokens: larger ones are reduced (default: the encoder's)",
         &l->model.image_max_tokens, 1, 65536},
    };
    CLI_OPTIONS_ADD(to, table);
}

/* ---- The encoder's file ---- */

/* A number in a file's metadata; 0: missing. */
static int64_t number_of(const mo_file *file, const char *suffix)
{
    mo_metadata_info info;
    mo_value value;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        const size_t length = strlen(info.key), n = strlen(suffix);
        if (length > n && strcmp(info.key + length - n, suffix) == 0 && !info.is_array &&
            mo_file_metadata_value(file, i, 0, &value)) {
            const bool is_signed = value.type == MO_VALUE_I32 || value.type == MO_VALUE_I64;
            return is_signed ? value.as.i : (int64_t)value.as.u;
        }
    }
    return 0;
}

/* Does the encoder produce rows of the model's width? */
static bool fits(const mo_file *model, const char *path)
{
    mo_file *file = NULL;
    mo_encoder_info info;
    bool good =
        mo_file_open(path, &file, NULL) == MO_OK && mo_file_encoder(file, &info, sizeof info, NULL) == MO_OK;
    if (good) {
        good = hub_reads_pictures(model, info.projector) &&
               info.text_width == number_of(model, ".embedding_length") &&
               info.features == number_of(model, ".n_deepstack_layers");
    }
    mo_file_close(file);
    return good;
}

/* Finds the best encoder in a folder; path[size] is "" if there is none. False: cannot read the folder. */
static bool find_in(const char *folder, const char *model, const mo_file *file, char *path, size_t size)
{
    char other[4096 + 256];
    DIR *d = opendir(folder);
    if (!d) {
        return false;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        snprintf(other, sizeof other, "%s%s", strcmp(folder, "./") == 0 ? "" : folder, e->d_name);
        if (hub_encoder_named(e->d_name) && strcmp(other, model) != 0 &&
            (!path[0] || hub_encoder_better(other, path, model)) && fits(file, other)) {
            snprintf(path, size, "%s", other);
        }
    }
    closedir(d);
    return true;
}

/* Finds the encoder next to a model; *out NULL: there is none. False after printing an error. */
static bool find_beside(const char *command, const char *model, const mo_file *file, const char **out)
{
    const char *slash = strrchr(model, '/');
    char folder[4096], path[4096 + 256] = "";
    size_t above;
    *out = NULL;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model) + 1 : 2, slash ? model : "./");
    const bool read = find_in(folder, model, file, path, sizeof path);
    if (!read) {
        fprintf(stderr, "moraine %s: the folder of %s cannot be read; name the encoder with --mmproj\n",
                command, model);
    } else if (!path[0] && hub_encoder_above(model, &above)) {
        snprintf(folder, sizeof folder, "%.*s", above ? (int)above : 2, above ? model : "./");
        find_in(folder, model, file, path, sizeof path);
    }
    if (path[0]) {
        *out = cli_keep(path);
    }
    return read;
}

bool cli_images_find_encoder(const char *command, const char *model, cli_encoder_need need, cli_loading *l)
{
    if (l->no_mmproj) {
        l->mmproj = "none";
    }
    const bool any = !l->mmproj || strcmp(l->mmproj, "auto") == 0;
    const char *found = NULL;
    mo_file *file = NULL;
    l->model.mmproj = NULL;
    if (l->mmproj && strcmp(l->mmproj, "none") == 0) {
        if (need == CLI_ENCODER_NEEDED) {
            fprintf(stderr, "moraine %s: --image needs an encoder, but --mmproj is none\n", command);
        }
        return need != CLI_ENCODER_NEEDED;
    }
    if (!any) {
        l->model.mmproj = l->mmproj;
        return cli_check_readable(command, "--mmproj", l->mmproj);
    }
    if (need == CLI_ENCODER_NAMED || !model) {
        return true;
    }
    if (mo_file_open(model, &file, NULL) != MO_OK) {
        return true; /* loading it reports errors */
    }
    const bool looked = find_beside(command, model, file, &found);
    mo_file_close(file);
    if (!looked) {
        return need == CLI_ENCODER_IF_THERE;
    }
    if (!found && need == CLI_ENCODER_NEEDED) {
        fprintf(
            stderr,
            "moraine %s: --image needs the encoder of the model, a file whose name has \"mmproj\" and ends "
            "in .gguf; put it beside %s or name it with --mmproj\n",
            command, model);
        return false;
    }
    l->model.mmproj = found;
    return true;
}

/* ---- Pictures ---- */

/* A progress bar for slow encoding. */
typedef struct encoding {
    cli_progress progress;
    double began;
    bool shown;
} encoding;

static bool on_layer(void *user, int64_t done, int64_t total)
{
    encoding *e = user;
    if (!e->shown && mo_clock_s() - e->began > 1) {
        cli_progress_begin(&e->progress, "picture", (uint64_t)total);
        e->progress.tokens = true;
        e->shown = true;
    }
    if (e->shown) {
        cli_progress_update(&e->progress, (uint64_t)done);
    }
    return !cli_interrupted();
}

bool cli_images_check(const char *command, const cli_texts *files)
{
    for (int i = 0; i < files->count; i++) {
        if (!cli_check_readable(command, "--image", files->item[i])) {
            return false;
        }
    }
    return true;
}

static mo_status open_one(mo_model *model, const void *bytes, size_t size, mo_image **out, mo_error *err)
{
    encoding e = {.began = mo_clock_s()};
    mo_status status = mo_image_open(model, bytes, size, out, err);
    if (status == MO_OK) {
        status = mo_image_encode(*out, on_layer, &e, err);
    }
    if (e.shown) {
        cli_progress_end(&e.progress);
    }
    return status;
}

static bool make_space(cli_images *images, int count)
{
    const size_t all = (size_t)images->count + (size_t)count;
    const bool made = mo_array_reserve(&images->item, &images->space, all, sizeof(mo_image *));
    if (!made) {
        fprintf(stderr, "moraine %s: out of memory\n", images->command);
    }
    return made;
}

bool cli_images_add(cli_images *images, const char *command, mo_model *model, const char *path)
{
    mo_error err;
    mo_image *image = NULL;
    size_t size = 0;
    images->command = command;
    char *bytes = make_space(images, 1) ? cli_read_file(command, path, &size) : NULL;
    if (!bytes) {
        return false;
    }
    const mo_status status = open_one(model, bytes, size, &image, &err);
    free(bytes);
    if (status != MO_OK) {
        cli_name_options(err.detail, sizeof err.detail);
        fprintf(stderr, "moraine %s: %s: %s\n", command, path, err.detail);
        mo_image_close(image);
        return false;
    }
    images->item[images->count++] = image;
    return true;
}

bool cli_images_open(cli_images *images, const char *command, mo_model *model, const cli_texts *files)
{
    bool ok = true;
    *images = (cli_images){.command = command};
    for (int i = 0; ok && i < files->count; i++) {
        ok = cli_images_add(images, command, model, files->item[i]);
    }
    return ok;
}

void cli_images_close(cli_images *images)
{
    cli_images_remove(images, 0, images->count);
    free(images->item);
    *images = (cli_images){0};
}

void cli_images_remove(cli_images *images, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        mo_image_close(images->item[i]);
    }
    images->count -= count;
    for (int i = first; i < images->count; i++) {
        images->item[i] = images->item[i + count];
    }
}

bool cli_images_move(cli_images *images, int first, cli_images *to)
{
    to->command = images->command;
    if (!make_space(to, images->count - first)) {
        return false;
    }
    for (int i = first; i < images->count; i++) {
        to->item[to->count++] = images->item[i];
    }
    images->count = first;
    return true;
}

char *cli_images_mark(const cli_images *images, const char *text, size_t *length)
{
    const size_t n = strlen(MO_IMAGE_MARK);
    int marks = 0;
    for (const char *at = text; (at = memmem(at, *length - (size_t)(at - text), MO_IMAGE_MARK, n)); at += n) {
        marks++;
    }
    if (marks && marks != images->count) {
        fprintf(stderr, "moraine %s: the text has %d marks " MO_IMAGE_MARK " for pictures, but there %s %d\n",
                images->command, marks, images->count == 1 ? "is" : "are", images->count);
        return NULL;
    }
    const size_t before = marks ? 0 : n * (size_t)images->count;
    char *out = malloc(before + *length + 1);
    if (!out) {
        fprintf(stderr, "moraine %s: out of memory\n", images->command);
        return NULL;
    }
    char *end = out;
    for (size_t i = 0; i < before; i += n) {
        end = stpcpy(end, MO_IMAGE_MARK);
    }
    memcpy(end, text, *length + 1);
    *length += before;
    return out;
}

int32_t *cli_images_place(const cli_images *images, const int32_t *ids, size_t *count)
{
    int32_t *out = NULL;
    mo_error err;
    if (mo_images_place(images->item, images->count, ids, *count, &out, count, &err) != MO_OK) {
        cli_say_error(images->command, &err);
    }
    return out;
}
