/* Cursor: a place in a header that is being read. Memory grows with the bytes really read, never with a number that the
 * file claims. Private to the module. */
#ifndef MO_GGUF_CURSOR_H
#define MO_GGUF_CURSOR_H

#include "base/arena.h"
#include "gguf/header.h"

#define MO_HEADER_LIMIT ((uint64_t)1 << 30) /* bytes; the largest published vocabularies take 20 MB */

typedef struct mo_cursor {
    const mo_gguf_source *source;
    uint8_t *bytes;
    size_t loaded, capacity, at;
    char where[160]; /* what is being read, for errors */
    mo_error *err;
} mo_cursor;

/* Fail with a sentence; `what` is wrong with what is being read. */
mo_status mo_cursor_damaged(mo_cursor *c, const char *what);
mo_status mo_cursor_no_memory(mo_cursor *c);

/* Makes [at, at + n) readable from c->bytes. */
mo_status mo_cursor_need(mo_cursor *c, uint64_t n);
/* Copies n bytes, or only moves over them. */
mo_status mo_cursor_read(mo_cursor *c, void *to, size_t n);
mo_status mo_cursor_skip(mo_cursor *c, uint64_t n);
/* Moves over a string; *at is where its bytes begin. */
mo_status mo_cursor_skip_string(mo_cursor *c, size_t *at, size_t *length);
/* A key or tensor name: printable, terminated, owned by the arena. */
mo_status mo_cursor_read_name(mo_cursor *c, mo_arena *arena, size_t limit, const char **out);

#endif
