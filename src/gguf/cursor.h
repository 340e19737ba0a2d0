/* Cursor: a position in a header being read. Memory grows with the bytes actually read, never with a number
   in the file. Private to the module. */
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

/* Fail with a sentence: `what` is wrong at the current place. */
mo_status mo_cursor_damaged(mo_cursor *c, const char *what);
mo_status mo_cursor_no_memory(mo_cursor *c);

/* Makes [at, at + n) readable from c->bytes. */
mo_status mo_cursor_need(mo_cursor *c, uint64_t n);
/* Copies n bytes, or skips them if `to` is NULL. */
mo_status mo_cursor_read(mo_cursor *c, void *to, size_t n);
mo_status mo_cursor_skip(mo_cursor *c, uint64_t n);
/* Skips a string; *at is the offset of its bytes. */
mo_status mo_cursor_skip_string(mo_cursor *c, size_t *at, size_t *length);
/* A key or tensor name: printable, terminated, owned by the arena. */
mo_status mo_cursor_read_name(mo_cursor *c, mo_arena *arena, size_t limit, const char **out);

#endif
