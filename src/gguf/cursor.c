#include "gguf/cursor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size_text.h"
#include "base/status.h"

mo_status mo_cursor_damaged(mo_cursor *c, const char *what)
{
    return mo_fail(c->err, MO_EFORMAT, "%s: %s %s; the file is damaged, download it again", c->source->name,
                   c->where, what);
}

mo_status mo_cursor_no_memory(mo_cursor *c)
{
    return mo_fail(c->err, MO_ENOMEM, "%s: out of memory for the header; free some and try again",
                   c->source->name);
}

static uint64_t remaining(const mo_cursor *c)
{
    return (uint64_t)c->source->bytes - c->at;
}

mo_status mo_cursor_need(mo_cursor *c, uint64_t n)
{
    if (n <= c->loaded - c->at) {
        return MO_OK;
    }
    if (n > MO_HEADER_LIMIT - c->at) {
        return mo_cursor_damaged(c, "claims more bytes than a header may have");
    }
    if (n > remaining(c)) {
        char text[32];
        return mo_fail(c->err, MO_EFORMAT,
                       "%s: the file ends inside its header, in %s; the download is probably cut short: at "
                       "least %s are missing",
                       c->source->name, c->where, mo_size_text(n - remaining(c), text));
    }
    size_t want = c->at + (size_t)n;
    if (want > c->capacity) {
        size_t capacity = c->capacity ? c->capacity * 2 : (size_t)256 << 10;
        capacity = capacity < want ? want : capacity;
        if (capacity > (uint64_t)c->source->bytes) {
            capacity = (size_t)c->source->bytes;
        }
        uint8_t *bytes = realloc(c->bytes, capacity);
        if (!bytes) {
            return mo_cursor_no_memory(c);
        }
        c->bytes = bytes;
        c->capacity = capacity;
    }
    mo_status s = c->source->read(c->source->ctx, (int64_t)c->loaded, c->bytes + c->loaded,
                                  c->capacity - c->loaded, c->err);
    if (s != MO_OK) {
        return s;
    }
    c->loaded = c->capacity;
    return MO_OK;
}

mo_status mo_cursor_read(mo_cursor *c, void *to, size_t n)
{
    mo_status s = mo_cursor_need(c, n);
    if (s == MO_OK) {
        memcpy(to, c->bytes + c->at, n);
        c->at += n;
    }
    return s;
}

mo_status mo_cursor_skip(mo_cursor *c, uint64_t n)
{
    mo_status s = mo_cursor_need(c, n);
    if (s == MO_OK) {
        c->at += (size_t)n;
    }
    return s;
}

mo_status mo_cursor_skip_string(mo_cursor *c, size_t *at, size_t *length)
{
    uint64_t n;
    mo_status s = mo_cursor_read(c, &n, sizeof n);
    if (s != MO_OK) {
        return s;
    }
    *at = c->at;
    s = mo_cursor_skip(c, n);
    *length = (size_t)n;
    return s;
}

mo_status mo_cursor_read_name(mo_cursor *c, mo_arena *arena, size_t limit, const char **out)
{
    size_t at, length;
    mo_status s = mo_cursor_skip_string(c, &at, &length);
    if (s != MO_OK) {
        return s;
    }
    if (length == 0) {
        return mo_cursor_damaged(c, "has an empty name");
    }
    if (length > limit) {
        char what[80];
        snprintf(what, sizeof what, "has a name of %zu bytes where %zu are allowed", length, limit);
        return mo_cursor_damaged(c, what);
    }
    for (size_t i = 0; i < length; i++) {
        if (c->bytes[at + i] < 0x20 || c->bytes[at + i] == 0x7f) {
            return mo_cursor_damaged(c, "has a control character in its name");
        }
    }
    *out = mo_arena_text(arena, (const char *)c->bytes + at, length);
    return *out ? MO_OK : mo_cursor_no_memory(c);
}
