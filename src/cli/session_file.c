#include "cli/session_file.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/print/json.h"
#include "cli/signals.h"

/* Followed by the text (JSON: conversation and tokens) and the state (mo_snapshot_write()). */
typedef struct header {
    char magic[8];
    uint64_t fingerprint; /* of the model */
    uint64_t kv;
    uint64_t text_bytes, state_bytes;
    uint64_t check; /* of text and state */
} header;

static const char session_magic[8] = {'M', 'O', 'S', 'E', 'S', 'S', '0', '2'};
enum { SESSION_KIND = 6 }; /* common bytes of all versions */
static const char *const kv_names[] = {[MO_KV_I16] = "i16", [MO_KV_F32] = "f32", [MO_KV_Q8_0] = "q8_0"};

struct cli_session_file {
    const char *command, *path;
    char *bytes;
    header head;
    const uint8_t *state;
    json_t *root;
};

/* FNV-1a over eight-byte words: detects damage at memory speed. */
static uint64_t check_of(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0x100000001B3u;
    }
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * 0x100000001B3u;
    }
    return hash;
}

/* ---- Reading ---- */

static bool damaged(const cli_session_file *f, const char *why)
{
    fprintf(stderr, "moraine %s: %s %s\n", f->command, f->path, why);
    return false;
}

static bool parse(cli_session_file *f, size_t size)
{
    header *h = &f->head;
    if (size < sizeof *h || memcmp(f->bytes, session_magic, sizeof session_magic) != 0) {
        return damaged(f, size >= SESSION_KIND && memcmp(f->bytes, session_magic, SESSION_KIND) == 0
                              ? "is a session of an incompatible version of "
                                "moraine; start a new one in another file"
                              : "is not a session file; name another file");
    }
    memcpy(h, f->bytes, sizeof *h);
    const size_t rest = size - sizeof *h;
    const char *text = f->bytes + sizeof *h;
    if (h->kv >= sizeof kv_names / sizeof *kv_names || h->text_bytes > rest ||
        h->state_bytes != rest - h->text_bytes ||
        h->check !=
            check_of(check_of(h->fingerprint, text, h->text_bytes), text + h->text_bytes, h->state_bytes)) {
        return damaged(f, "is damaged or truncated; start a new session");
    }
    f->state = (const uint8_t *)text + h->text_bytes;
    f->root = json_loadb(text, h->text_bytes, 0, NULL);
    return f->root || damaged(f, "is damaged: its text is not JSON; start a new session");
}

/* Can a new file be created there? */
static bool can_begin(const char *command, const char *path)
{
    char *copy = strdup(path);
    const bool ok = copy && access(dirname(copy), W_OK | X_OK) == 0;
    if (!ok) {
        fprintf(stderr, "moraine %s: cannot save the session to %s: %s\n", command, path, strerror(errno));
    }
    free(copy);
    return ok;
}

/* Reads a whole regular file. NULL after printing the error. */
static char *read_all(const char *command, const char *path, size_t *size)
{
    struct stat st;
    FILE *in = NULL;
    char *bytes = NULL;
    errno = 0;
    in = fopen(path, "rbe");
    if (in && fstat(fileno(in), &st) == 0) {
        *size = (size_t)st.st_size;
        bytes = malloc(*size + 1);
        if (bytes && fread(bytes, 1, *size, in) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (!bytes) {
        fprintf(stderr, "moraine %s: cannot read %s: %s\n", command, path,
                errno ? strerror(errno) : "the file was truncated");
    }
    if (in) {
        fclose(in);
    }
    return bytes;
}

cli_session_file *cli_session_file_open(const char *command, const char *path, int *code)
{
    struct stat st;
    *code = CLI_FAILED;
    if (stat(path, &st) != 0 && errno == ENOENT) {
        *code = can_begin(command, path) ? CLI_OK : CLI_FAILED;
        return NULL;
    }
    cli_session_file *f = calloc(1, sizeof *f);
    if (!f) {
        return NULL;
    }
    *f = (cli_session_file){.command = command, .path = path};
    size_t size = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        damaged(f, "is not a regular file");
    } else {
        f->bytes = read_all(command, path, &size);
    }
    if (!f->bytes || !parse(f, size)) {
        cli_session_file_close(f);
        return NULL;
    }
    *code = CLI_OK;
    return f;
}

void cli_session_file_close(cli_session_file *f)
{
    if (f) {
        json_decref(f->root);
        free(f->bytes);
        free(f);
    }
}

bool cli_session_file_is_raw(const cli_session_file *f)
{
    return json_is_true(json_object_get(f->root, "raw"));
}

static bool fits(const cli_session_file *f, const cli_generation *g)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    const json_int_t held = json_integer_value(json_object_get(f->root, "held"));
    if (f->head.fingerprint != info.fingerprint) {
        const char *name = json_string_value(json_object_get(f->root, "model"));
        fprintf(stderr,
                "moraine %s: the session in %s belongs to another "
                "model%s%s; start a new one or use that model\n",
                f->command, f->path, name && *name ? ", " : "", name ? name : "");
        return false;
    }
    if (f->head.kv != g->kv) {
        fprintf(stderr,
                "moraine %s: the session in %s has a KV cache in format %s; continue it with --kv %s\n",
                f->command, f->path, kv_names[f->head.kv], kv_names[f->head.kv]);
        return false;
    }
    if (held > info.context) {
        fprintf(stderr, "moraine %s: the session in %s has %lld tokens; --ctx %lld is too small for it\n",
                f->command, f->path, (long long)held, (long long)info.context);
        return false;
    }
    return true;
}

static bool restore_tokens(const cli_session_file *f, cli_generation *g)
{
    const json_t *array = json_object_get(f->root, "tokens");
    const size_t count = json_array_size(array);
    int32_t *ids = malloc(sizeof *ids * (count + 1));
    for (size_t i = 0; ids && i < count; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    const bool ok = ids && cli_generation_set(g, ids, count);
    free(ids);
    return ok;
}

bool cli_session_file_restore(const cli_session_file *f, cli_generation *g, cli_conversation *c)
{
    mo_error err;
    mo_snapshot *snapshot = NULL;
    if (!fits(f, g)) {
        return false;
    }
    mo_status status = f->head.state_bytes == 0
                           ? MO_OK
                           : mo_snapshot_read(g->model, f->state, f->head.state_bytes, &snapshot, &err);
    if (status == MO_OK && snapshot) {
        status = mo_session_restore(g->session, snapshot, -1, &err);
    }
    mo_snapshot_close(snapshot);
    if (status != MO_OK) {
        cli_name_options(err.detail, sizeof err.detail);
        fprintf(stderr, "moraine %s: %s: %s\n", f->command, f->path, err.detail);
        return false;
    }
    return (restore_tokens(f, g) && cli_conversation_read(c, json_object_get(f->root, "messages"))) ||
           damaged(f, "is damaged: its conversation cannot be read; start a new session");
}

/* ---- Writing ---- */

/* The text; free() it. NULL when out of memory. */
static char *text_of(const cli_generation *g, const cli_conversation *c, bool raw)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    json_t *tokens = json_array(), *messages = cli_conversation_json(c), *name = cli_json_string(info.name);
    for (int64_t i = 0; tokens && i < g->count; i++) {
        json_array_append_new(tokens, json_integer(g->tokens[i]));
    }
    json_t *root =
        tokens && messages && name
            ? json_pack("{s:o, s:b, s:I, s:o, s:o}", "model", name, "raw", raw, "held",
                        (json_int_t)mo_session_length(g->session), "messages", messages, "tokens", tokens)
            : NULL;
    char *text = root ? mo_json_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

/* Why the file must not be replaced: it is not a session file. NULL: it may be. */
static const char *foreign(const char *path)
{
    struct stat st;
    char magic[sizeof session_magic];
    if (stat(path, &st) != 0) {
        return errno == ENOENT ? NULL : strerror(errno);
    }
    if (!S_ISREG(st.st_mode)) {
        return "it is not a regular file; name another";
    }
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return strerror(errno);
    }
    const bool session = read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                         memcmp(magic, session_magic, SESSION_KIND) == 0; /* any version */
    close(fd);
    return session ? NULL : "it exists and is not a session file; name another or remove it";
}

/* PATH.part- and six letters, created by mkstemp(). */
static const char mark[] = ".part-";
enum { LETTERS = 6 };

/* Removes temporary files of killed processes. Running processes hold a lock on theirs. */
static void sweep_parts(const char *path)
{
    char folder[PATH_MAX], part[PATH_MAX + 256];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *rest = entry->d_name + length;
        if (strncmp(entry->d_name, name, length) != 0 || strncmp(rest, mark, sizeof mark - 1) != 0 ||
            strlen(rest) != sizeof mark - 1 + LETTERS) {
            continue;
        }
        snprintf(part, sizeof part, "%s/%s", folder, entry->d_name);
        const int fd = open(part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlink(part);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* Creates and locks a temporary file; its name is written to `part`. -1: see errno. */
static int open_part(const char *path, char *part, size_t size)
{
    for (;;) {
        struct stat st;
        snprintf(part, size, "%s%sXXXXXX", path, mark);
        const int fd = mkstemp(part);
        if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &st) != 0 || st.st_nlink > 0) {
            return fd;
        }
        close(fd); /* another process removed it before it was locked */
    }
}

/* Writes the parts to a temporary file and renames it. */
static bool write_parts(const char *path, const header *h, const char *text, const uint8_t *state)
{
    char part[PATH_MAX + 16], *real = realpath(path, NULL); /* keeps a link */
    sweep_parts(real ? real : path);
    const int fd = open_part(real ? real : path, part, sizeof part);
    cli_signals_discard(fd >= 0 ? part : NULL);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    bool ok = f && fwrite(h, sizeof *h, 1, f) == 1 && fwrite(text, 1, h->text_bytes, f) == h->text_bytes &&
              (!state || fwrite(state, 1, h->state_bytes, f) == h->state_bytes) && fflush(f) == 0 &&
              fsync(fd) == 0;
    int code = errno;
    if (f && fclose(f) != 0 && ok) {
        code = errno;
        ok = false;
    }
    if (ok && rename(part, real ? real : path) != 0) {
        code = errno;
        ok = false;
    }
    if (!ok && fd >= 0) {
        unlink(part);
    }
    cli_signals_discard(NULL);
    free(real);
    errno = code;
    return ok;
}

bool cli_session_file_write(const char *path, const cli_generation *g, const cli_conversation *c, bool raw)
{
    mo_error err = {.detail = "out of memory"};
    mo_model_info info;
    mo_snapshot *snapshot = NULL;
    uint8_t *state = NULL;
    size_t state_bytes = 0;
    mo_model_describe(g->model, &info, sizeof info);
    const char *why = foreign(path);
    char *text = why ? NULL : text_of(g, c, raw);
    mo_status status = why ? MO_EIO : text ? MO_OK : MO_ENOMEM;
    if (why) {
        snprintf(err.detail, sizeof err.detail, "%s", why);
    }
    if (status == MO_OK && mo_session_length(g->session) > 0) {
        status = mo_snapshot_open(g->session, &snapshot, &err);
        status = status == MO_OK ? mo_snapshot_write(snapshot, &state, &state_bytes, &err) : status;
    }
    if (status == MO_OK) {
        header h = {.fingerprint = info.fingerprint,
                    .kv = g->kv,
                    .text_bytes = strlen(text),
                    .state_bytes = state_bytes};
        memcpy(h.magic, session_magic, sizeof h.magic);
        h.check = check_of(check_of(h.fingerprint, text, h.text_bytes), state, state_bytes);
        if (!write_parts(path, &h, text, state)) {
            status = MO_EIO;
            snprintf(err.detail, sizeof err.detail, "%s", strerror(errno));
        }
    }
    if (status != MO_OK) {
        cli_name_options(err.detail, sizeof err.detail);
        fprintf(stderr, "moraine %s: cannot save the session to %s: %s\n", g->command, path, err.detail);
    }
    mo_snapshot_close(snapshot);
    mo_free(state);
    free(text);
    return status == MO_OK;
}
