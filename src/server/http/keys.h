/* Keys: what a client must show to be served. They come from an option, from the environment and from a file that can be
 * read again while the server runs. Compared in a time that depends on no key. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include "moraine_server.h"

typedef struct srv_keys srv_keys;

/* Who shows a key. */
typedef struct srv_key_owner {
    char name[64]; /* what the log calls it, as "key2": its place, unless the file gives a name */
    char owner
        [65]; /* what is kept for it belongs to: a digest of the key, so that no other key ever has the same */
    int priority;
} srv_key_owner;

/* `list`: keys with commas between them, or NULL. `path`: a file with one key a line, which may be followed by
 * name=NAME and priority=N; lines that begin with # are comments; NULL: none. A file without a key is an error: it would
 * open the server to everyone. */
mo_status srv_keys_open(const char *list, const char *path, srv_keys **out, mo_error *err);
void srv_keys_close(srv_keys *keys);

/* Reads the file again. On failure the keys stay as they were. Any thread. */
mo_status srv_keys_reload(srv_keys *keys, mo_error *err);

int srv_keys_count(srv_keys *keys);

/* Is it one of them? Without any key every text is right, also NULL, and name and owner are "". Any thread. */
bool srv_keys_check(srv_keys *keys, const char *shown, srv_key_owner *out);

#endif
