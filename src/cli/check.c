#include "cli/check.h"
#include "cli/messages.h"

#include <moraine_tools.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files -------------------------------------------------------------------------------------- */

static bool refuse(const char *command, const char *what, const char *path, const char *why)
{
    fprintf(stderr, "moraine %s: %s %s: %s\n", command, what, path, why);
    return false;
}

bool cli_check_readable(const char *command, const char *what, const char *path)
{
    struct stat st;
    if (!path || strcmp(path, "-") == 0) {
        return true;
    }
    if (access(path, R_OK) != 0) {
        return refuse(command, what, path, strerror(errno));
    }
    return (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) || refuse(command, what, path, "is a directory");
}

bool cli_check_writable(const char *command, const char *what, const char *path)
{
    struct stat st;
    char copy[PATH_MAX];
    if (!path) {
        return true;
    }
    if (strlen(path) >= sizeof copy) {
        return refuse(command, what, path, "the name is too long");
    }
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            return refuse(command, what, path, "is a directory; give a file name");
        }
        return access(path, W_OK) == 0 || refuse(command, what, path, strerror(errno));
    }
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) { /* cp does not guess here either */
        return refuse(command, what, path, "is a symbolic link to a missing file");
    }
    snprintf(copy, sizeof copy, "%s", path);
    const char *directory = dirname(copy);
    if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return refuse(command, what, path, "its directory does not exist; create it first");
    }
    return access(directory, W_OK | X_OK) == 0 || refuse(command, what, path, strerror(errno));
}

static bool check_learning(const char *command, const mo_learning_options *o)
{
    const bool kept = o->profile && strcmp(o->profile, "off") != 0 && strcmp(o->profile, "auto") != 0;
    return (!kept || cli_check_writable(command, "--profile", o->profile)) &&
           cli_check_writable(command, "--warm-file", o->warm_file) &&
           cli_check_writable(command, "--moe-layer-perf-out", o->perf_out) &&
           cli_check_readable(command, "--moe-hot-cache", o->hot_cache.file);
}

/* ---- Model -------------------------------------------------------------------------------------- */

static bool has_vocabulary(const mo_file *file)
{
    mo_metadata_info m;
    for (int64_t i = 0; mo_file_metadata(file, i, &m, sizeof m); i++) {
        if (strcmp(m.key, "tokenizer.ggml.tokens") == 0) {
            return m.is_array && m.count > 0;
        }
    }
    return false;
}

static int64_t vocabulary(const mo_file *file)
{
    mo_tensor_info t;
    for (int64_t i = 0; mo_file_tensor(file, i, &t, sizeof t); i++) {
        if (strcmp(t.name, "token_embd.weight") == 0) {
            return t.size[1];
        }
    }
    return 0;
}

static bool biases_fit(const char *command, const mo_file *file, const char *bias)
{
    const int64_t most = bias ? vocabulary(file) : 0;
    int32_t id;
    float value;
    while (most > 0 && cli_pairs_next(&bias, &id, &value)) {
        if (id >= most) {
            fprintf(stderr,
                    "moraine %s: --logit-bias %" PRId32 ": the vocabulary has %" PRId64
                    " tokens, numbered from 0\n",
                    command, id, most);
            return false;
        }
    }
    return true;
}

/* The number of positions in a session; 0 if the header does not have it. */
static int64_t positions(const mo_file_info *info, const cli_loading *l)
{
    const int64_t usual = 8192; /* the default of mo_model_options in moraine.h */
    if (l->model.context) {
        return l->model.context;
    }
    return info->context_length < usual ? info->context_length : usual;
}

/* Warns if more positions are requested than the model was trained for. */
static void warn_of_length(const char *command, const mo_file_info *info, const cli_loading *l)
{
    if (info->context_length <= 0 || l->model.context <= info->context_length) {
        return;
    }
    if (!l->own_context) {
        fprintf(stderr,
                "moraine %s: warning: --ctx %" PRId64 " exceeds this model's training context of %" PRId64
                " tokens; text beyond it may be incoherent\n",
                command, l->model.context, info->context_length);
    } else if (l->measures) {
        fprintf(stderr,
                "moraine %s: warning: %" PRId64
                " tokens are measured, more than this model's training context of %" PRId64
                " tokens: the speed is valid, but "
                "text beyond it may be incoherent\n",
                command, l->model.context, info->context_length);
    } else {
        fprintf(stderr,
                "moraine %s: warning: windows of %" PRId64
                " tokens exceed this model's training context of %" PRId64
                " tokens; perplexity beyond it means little\n",
                command, l->model.context, info->context_length);
    }
}

void cli_check_length(const char *command, const char *path, const cli_loading *l)
{
    mo_file *file = NULL;
    mo_file_info info;
    if (mo_file_open(path, &file, NULL) == MO_OK &&
        mo_file_summarize(file, &info, sizeof info, NULL) == MO_OK) {
        warn_of_length(command, &info, l);
    }
    mo_file_close(file);
}

static bool check_header(const char *command, const char *path, const mo_file *file, const cli_loading *l)
{
    mo_file_info info;
    mo_error err;
    if (mo_file_check_type(file, &err) != MO_OK) {
        cli_say_error(command, &err);
        return false;
    }
    if (l->vocabulary && !has_vocabulary(file)) {
        fprintf(stderr,
                "moraine %s: %s has no vocabulary and "
                "cannot read or write text; eval "
                "--tokens and bench accept such models\n",
                command, path);
        return false;
    }
    if (!biases_fit(command, file, l->bias)) {
        return false;
    }
    if (mo_file_summarize(file, &info, sizeof info, &err) != MO_OK) {
        return true; /* opening the model reports the error */
    }
    warn_of_length(command, &info, l);
    return true;
}

int cli_check_model(const char *command, const char *path, const cli_loading *l)
{
    mo_file *file = NULL;
    mo_error err;
    if (!check_learning(command, &l->model.learning)) {
        return CLI_FAILED;
    }
    if (mo_file_open(path, &file, &err) != MO_OK) {
        cli_say_error(command, &err);
        return CLI_FAILED;
    }
    const bool fine = check_header(command, path, file, l);
    mo_file_close(file);
    return fine ? CLI_OK : CLI_FAILED;
}

/* A text has at most as many tokens as bytes, so short texts need no counting. */
static int check_tokens(const char *command, const char *path, int64_t most, const char *text, size_t length)
{
    int32_t *ids = NULL;
    size_t count = 0;
    mo_error err;
    if (most < 1 || length <= (size_t)most ||
        mo_tokenize_file(path, text, length, 0, &ids, &count, &err) != MO_OK) {
        return CLI_OK; /* opening the model reports the error */
    }
    mo_free(ids);
    if (count > (size_t)most) {
        fprintf(stderr,
                "moraine %s: the prompt has %zu tokens but the context only %" PRId64
                "; shorten the prompt or increase --ctx\n",
                command, count, most);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_check_prompt(const char *command, const char *path, const cli_loading *l, const char *text,
                     size_t length)
{
    mo_file *file = NULL;
    mo_file_info info;
    const bool known = mo_file_open(path, &file, NULL) == MO_OK &&
                       mo_file_summarize(file, &info, sizeof info, NULL) == MO_OK;
    const int code = known ? check_tokens(command, path, positions(&info, l), text, length) : CLI_OK;
    mo_file_close(file);
    return code;
}
