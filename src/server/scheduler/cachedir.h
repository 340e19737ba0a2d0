/* Cache directory: cached sessions as files. A file is written to a temporary name, synced and renamed, so that one that is
 * there is whole whatever happened while it was written; and it is held against its checksums and the key of the model
 * before it is used.
 *
 * Any thread; no two calls for one name at once, but for the removal of one that is being read. */
#ifndef SRV_CACHEDIR_H
#define SRV_CACHEDIR_H

#include "moraine_server.h"

typedef struct srv_cachedir srv_cachedir;

enum { SRV_CACHEDIR_NAME = 48 };

/* Makes the directory if need be, removes what unfinished writes left, and the oldest files beyond the limit. key: what
 * sessions must have been made with; others are left alone. */
mo_status srv_cachedir_open(const char *directory, const char *key, int64_t limit, srv_cachedir **out,
                            mo_error *err);
void srv_cachedir_close(srv_cachedir *dir); /* NULL is allowed */

/* Every session of the key whose beginning is sound, the one used longest ago first. */
typedef void (*srv_cachedir_fn)(void *user, const char *name, const int32_t *tokens, int64_t count,
                                int64_t bytes);
mo_status srv_cachedir_each(srv_cachedir *dir, srv_cachedir_fn fn, void *user, mo_error *err);

/* The state of a session that holds the tokens. When this returns MO_OK the file is on the disk for good. */
mo_status srv_cachedir_write(srv_cachedir *dir, const int32_t *tokens, int64_t count, const uint8_t *state,
                             size_t size, char name[SRV_CACHEDIR_NAME], int64_t *bytes, mo_error *err);
/* mo_free() *state. MO_EFORMAT: it is damaged or another's. */
mo_status srv_cachedir_read(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                            uint8_t **state, size_t *size, mo_error *err);
/* The same by a chosen name, which is not a path; free() *tokens. Names of other ends than ".session" count neither for
 * the limit nor in srv_cachedir_each(). */
mo_status srv_cachedir_write_as(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                                const uint8_t *state, size_t size, int64_t *bytes, mo_error *err);
mo_status srv_cachedir_read_as(srv_cachedir *dir, const char *name, int32_t **tokens, int64_t *count,
                               uint8_t **state, size_t *size, mo_error *err);
void srv_cachedir_remove(srv_cachedir *dir, const char *name);

#endif
