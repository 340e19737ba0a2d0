/* Cache directory: cached sessions as files. Files are written to a temporary name, synced and renamed, so a
 * file with its final name is complete. Before use, checksums and the model's key are verified.
 *
 * Any thread; no two concurrent calls for one name, except removing one that is being read. */
#ifndef SRV_CACHEDIR_H
#define SRV_CACHEDIR_H

#include "moraine_server.h"

typedef struct srv_cachedir srv_cachedir;

enum { SRV_CACHEDIR_NAME = 48 };

/* Creates the directory if necessary, and removes leftovers of unfinished writes and the oldest files beyond
 * the limit. key: identifies how sessions must have been made; files with other keys are left alone. */
mo_status srv_cachedir_open(const char *directory, const char *key, int64_t limit, srv_cachedir **out,
                            mo_error *err);
void srv_cachedir_close(srv_cachedir *dir); /* accepts NULL */

/* Calls fn for every session with the key and a valid header, least recently used first. */
typedef void (*srv_cachedir_fn)(void *user, const char *name, const int32_t *tokens, int64_t count,
                                int64_t bytes);
mo_status srv_cachedir_each(srv_cachedir *dir, srv_cachedir_fn fn, void *user, mo_error *err);

/* Writes the state of a session that holds the tokens. After MO_OK the file is safely on disk. */
mo_status srv_cachedir_write(srv_cachedir *dir, const int32_t *tokens, int64_t count, const uint8_t *state,
                             size_t size, char name[SRV_CACHEDIR_NAME], int64_t *bytes, mo_error *err);
/* The caller calls mo_free() on *state. MO_EFORMAT: damaged, or made with another key. */
mo_status srv_cachedir_read(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                            uint8_t **state, size_t *size, mo_error *err);
/* The same with a chosen name, which is not a path; free() *tokens. *bytes: of the file. Names that do not end in ".session" count
 * neither for the limit nor in srv_cachedir_each(). */
mo_status srv_cachedir_write_as(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                                const uint8_t *state, size_t size, int64_t *bytes, mo_error *err);
mo_status srv_cachedir_read_as(srv_cachedir *dir, const char *name, int32_t **tokens, int64_t *count,
                               uint8_t **state, size_t *size, int64_t *bytes, mo_error *err);
void srv_cachedir_remove(srv_cachedir *dir, const char *name);

#endif
