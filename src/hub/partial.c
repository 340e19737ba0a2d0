#include "hub/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "gguf/header.h"
#include "hub/identity.h"

enum { PIECES_MAX = 1 << 24, BLOCK = 1 << 20 };

struct hub_partial {
    int fd;
    char path[PATH_MAX], part[PATH_MAX], state[PATH_MAX];
    char identity[HUB_IDENTITY], sha256[65];
    int64_t bytes, piece, count, done;
    uint8_t *there; /* one flag for each piece */
    struct sha256_ctx hash;
    int64_t hashed;
    uint8_t *block;
    bool ended; /* renamed or discarded */
};

static mo_status fail(const hub_partial *p, const char *what, mo_error *err)
{
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return mo_fail(
        err, full ? MO_ENOSPC : MO_EIO, "%s %s: %s%s", p->part, what, strerror(errno),
        full ? "; free some space, or choose another directory, and pull again: the partial download is kept"
             : "");
}

static int64_t piece_bytes(const hub_partial *p, int64_t i)
{
    return i + 1 < p->count ? p->piece : p->bytes - i * p->piece;
}

/* ---- The state file ---- */

static char *digits(const hub_partial *p)
{
    static const char hex[] = "0123456789abcdef";
    const int64_t length = (p->count + 3) / 4;
    char *text = calloc(1, (size_t)length + 1);
    for (int64_t i = 0; text && i < length; i++) {
        int value = 0;
        for (int64_t k = 4 * i; k < 4 * i + 4 && k < p->count; k++) {
            value |= p->there[k] << (k - 4 * i);
        }
        text[i] = hex[value];
    }
    return text;
}

mo_status hub_partial_save(hub_partial *p, mo_error *err)
{
    char made[PATH_MAX + 8];
    if (fdatasync(p->fd) != 0) {
        return fail(p, "cannot be written", err);
    }
    char *pieces = digits(p);
    json_t *root =
        pieces ? json_pack("{s:s, s:I, s:s, s:I, s:s}", "for", "moraine pull", "bytes", (json_int_t)p->bytes,
                           "identity", p->identity, "piece", (json_int_t)p->piece, "there", pieces)
               : NULL;
    snprintf(made, sizeof made, "%s.new", p->state);
    const bool good = root && json_dump_file(root, made, JSON_COMPACT) == 0 && rename(made, p->state) == 0;
    json_decref(root);
    free(pieces);
    return good ? MO_OK : fail(p, "cannot have its state file written", err);
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static mo_status set_pieces(hub_partial *p, int64_t piece, mo_error *err)
{
    p->piece = piece;
    p->count = (p->bytes + piece - 1) / piece;
    p->there = calloc((size_t)p->count, 1);
    return p->there ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory while downloading %s", p->path);
}

/* Restores the state of an earlier run, if it is for the same file. False: it cannot be resumed. */
static bool restore(hub_partial *p)
{
    json_t *root = json_load_file(p->state, 0, NULL);
    json_t *bytes = json_object_get(root, "bytes"), *piece = json_object_get(root, "piece");
    const char *identity = json_string_value(json_object_get(root, "identity"));
    const char *there = json_string_value(json_object_get(root, "there"));
    const int64_t size = (int64_t)json_integer_value(piece);
    mo_error ignored;
    bool good = json_is_integer(bytes) && json_integer_value(bytes) == p->bytes && identity &&
                p->identity[0] && strcmp(identity, p->identity) == 0 && size >= 1 &&
                p->bytes / size < PIECES_MAX && there &&
                (int64_t)strlen(there) == ((p->bytes + size - 1) / size + 3) / 4 &&
                set_pieces(p, size, &ignored) == MO_OK;
    for (int64_t i = 0; good && i < p->count; i++) {
        const int value = digit_value(there[i / 4]);
        good = value >= 0;
        p->there[i] = good && (value >> (i % 4) & 1);
        p->done += p->there[i] ? piece_bytes(p, i) : 0;
    }
    json_decref(root);
    if (!good) {
        free(p->there);
        p->there = NULL;
        p->done = 0;
    }
    return good;
}

/* ---- Opening ---- */

/* Opens and locks FILE.part. If another process has just renamed it, opens it again. */
static mo_status lock(hub_partial *p, mo_error *err)
{
    for (int tries = 0; tries < 10; tries++) {
        struct stat mine, named;
        p->fd = open(p->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (p->fd < 0) {
            return fail(p, "cannot be opened", err);
        }
        if (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
            return mo_fail(err, MO_EINVAL, "%s is being pulled by another process; wait for it", p->path);
        }
        if (fstat(p->fd, &mine) == 0 && stat(p->part, &named) == 0 && mine.st_ino == named.st_ino &&
            mine.st_dev == named.st_dev) {
            return MO_OK;
        }
        close(p->fd);
        p->fd = -1;
    }
    return mo_fail(err, MO_EIO, "%s appears and disappears; is another process pulling it?", p->part);
}

static mo_status begin(hub_partial *p, const hub_partial_spec *spec, bool *begun_anew, mo_error *err)
{
    struct stat st;
    mo_status s = lock(p, err);
    if (s != MO_OK) {
        return s;
    }
    if (fstat(p->fd, &st) != 0) {
        return fail(p, "cannot be read", err);
    }
    if (st.st_size == p->bytes && restore(p)) {
        return MO_OK;
    }
    *begun_anew = st.st_size > 0;
    s = set_pieces(p, spec->piece, err);
    if (s != MO_OK) {
        return s;
    }
    unlink(p->state);
    if (ftruncate(p->fd, 0) != 0) {
        return fail(p, "cannot be written", err);
    }
    /* reserves all space now, if the file system can, so that a full disk is reported early */
    if (fallocate(p->fd, 0, 0, p->bytes) != 0 &&
        ((errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) || ftruncate(p->fd, p->bytes) != 0)) {
        const mo_status failed = fail(p, "cannot be resized", err);
        hub_partial_discard(p);
        return failed;
    }
    return hub_partial_save(p, err);
}

mo_status hub_partial_open(const hub_partial_spec *spec, hub_partial **out, bool *begun_anew, mo_error *err)
{
    hub_partial *p = calloc(1, sizeof *p);
    *out = NULL;
    *begun_anew = false;
    if (!p || !(p->block = malloc(BLOCK))) {
        free(p);
        return mo_fail(err, MO_ENOMEM, "out of memory while downloading %s", spec->path);
    }
    p->fd = -1;
    p->bytes = spec->bytes;
    sha256_init(&p->hash);
    snprintf(p->identity, sizeof p->identity, "%s", spec->identity);
    snprintf(p->sha256, sizeof p->sha256, "%s", spec->sha256);
    mo_status s = MO_OK;
    if (snprintf(p->path, sizeof p->path, "%s", spec->path) >= (int)sizeof p->path - 16) {
        s = mo_fail(err, MO_EINVAL, "%.200s...: the path is too long", spec->path);
    } else {
        snprintf(p->part, sizeof p->part, "%.*s.part", PATH_MAX - 16, p->path);
        snprintf(p->state, sizeof p->state, "%.*s.part.json", PATH_MAX - 16, p->path);
        s = begin(p, spec, begun_anew, err);
    }
    if (s != MO_OK) {
        hub_partial_close(p);
        return s;
    }
    *out = p;
    return MO_OK;
}

void hub_partial_close(hub_partial *p)
{
    if (p) {
        if (p->fd >= 0) {
            close(p->fd);
        }
        free(p->there);
        free(p->block);
        free(p);
    }
}

/* ---- Pieces ---- */

int64_t hub_partial_done(const hub_partial *p)
{
    return p->done;
}

int64_t hub_partial_piece(const hub_partial *p)
{
    return p->piece;
}

bool hub_partial_complete(const hub_partial *p)
{
    return p->done == p->bytes;
}

int64_t hub_partial_missing(const hub_partial *p, int64_t from)
{
    for (int64_t i = (from + p->piece - 1) / p->piece; i < p->count; i++) {
        if (!p->there[i]) {
            return i * p->piece;
        }
    }
    return -1;
}

mo_status hub_partial_write(hub_partial *p, int64_t at, const void *bytes, size_t count, mo_error *err)
{
    for (const char *from = bytes; count > 0;) {
        const ssize_t wrote = pwrite(p->fd, from, count, (off_t)at);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return fail(p, "cannot be written", err);
        }
        from += wrote;
        at += wrote;
        count -= (size_t)wrote;
    }
    return MO_OK;
}

void hub_partial_mark(hub_partial *p, int64_t from, int64_t to)
{
    for (int64_t i = (from + p->piece - 1) / p->piece; i < p->count && i * p->piece + piece_bytes(p, i) <= to;
         i++) {
        p->done += p->there[i] ? 0 : piece_bytes(p, i);
        p->there[i] = 1;
    }
}

mo_status hub_partial_forget(hub_partial *p, mo_error *err)
{
    const bool had = p->done > 0;
    memset(p->there, 0, (size_t)p->count);
    p->done = p->hashed = 0;
    sha256_init(&p->hash);
    return had ? hub_partial_save(p, err) : MO_OK; /* saved before other bytes overwrite the pieces */
}

/* ---- Finishing ---- */

int64_t hub_partial_hash(hub_partial *p, int64_t most)
{
    const int64_t hole = hub_partial_missing(p, p->hashed - p->hashed % p->piece),
                  end = hole < 0 ? p->bytes : hole;
    while (most > 0 && p->hashed < end) {
        const int64_t left = end - p->hashed < BLOCK ? end - p->hashed : BLOCK;
        const ssize_t got = pread(p->fd, p->block, (size_t)left, (off_t)p->hashed);
        if (got <= 0) {
            return -1;
        }
        sha256_update(&p->hash, (size_t)got, p->block);
        p->hashed += got;
        most -= got;
    }
    return p->hashed;
}

static mo_status read_part(void *ctx, int64_t offset, void *to, size_t bytes, mo_error *err)
{
    const hub_partial *p = ctx;
    return pread(p->fd, to, bytes, (off_t)offset) == (ssize_t)bytes ? MO_OK : fail(p, "cannot be read", err);
}

mo_status hub_partial_check(hub_partial *p, mo_error *err)
{
    uint8_t sum[SHA256_DIGEST_SIZE];
    char text[2 * SHA256_DIGEST_SIZE + 1];
    mo_gguf_header header;
    if (!p->sha256[0]) { /* without a checksum, checks the length in its header */
        const mo_gguf_source source = {p->path, p->bytes, read_part, p};
        const mo_status s = mo_gguf_header_parse(&source, &header, err);
        if (s == MO_OK) {
            mo_gguf_header_free(&header);
        }
        return s == MO_EUNSUPPORTED ? MO_OK : s;
    }
    sha256_digest(&p->hash, sizeof sum, sum);
    hub_identity_digits(sum, text);
    if (strcmp(text, p->sha256) != 0) {
        return mo_fail(err, MO_EFORMAT,
                       "%s is damaged: its SHA-256 is %s, expected %s; the file was removed, pull it again",
                       p->path, text, p->sha256);
    }
    return MO_OK;
}

mo_status hub_partial_settle(hub_partial *p, mo_error *err)
{
    if (fsync(p->fd) != 0) {
        return fail(p, "cannot be written", err);
    }
    hub_identity_keep(p->fd, p->identity);
    return MO_OK;
}

const char *hub_partial_path(const hub_partial *p)
{
    return p->part;
}

void hub_partial_named(hub_partial *p)
{
    unlink(p->state);
    p->ended = true;
}

void hub_partial_discard(hub_partial *p)
{
    if (!p->ended) {
        unlink(p->state);
        unlink(p->part);
        p->ended = true;
    }
}
