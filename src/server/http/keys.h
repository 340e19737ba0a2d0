/* Keys: what a client must show to be served. They come from an option, from the environment and from a file that can be
 * read again while the server runs. Compared in a time that depends on no key.
 *
 * Every key is a client. Its identity is the name that the file gives it, which several keys may share, or else the key itself:
 * a hash with a salt, so that files that name an owner say nothing about a key. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include "moraine_server.h"
#include "server/common/caller.h"

typedef struct srv_keys srv_keys;

/* Who shows a key. */
typedef struct srv_key_owner {
    char name[64]; /* what the log calls it, as "key2": its place, unless the file gives a name */
    char owner
        [65]; /* the client's identity in hexadecimal digits: what is kept belongs to it; "" without keys */
    srv_caller caller;
    int priority;
} srv_key_owner;

typedef struct srv_keys_options {
    const char *list; /* keys with commas between them, all of administrators; NULL: none */
    /* A file with one key a line, which may be followed by name=NAME, priority=N and admin; lines that begin with # are comments.
     * NULL: none. A file without a key is an error: it would open the server to everyone. */
    const char *path;
    const char *salt_directory; /* where the salt outlives the process; NULL: it does not */
    bool share_prefixes;        /* all callers have owner 0 */
} srv_keys_options;

mo_status srv_keys_open(const srv_keys_options *options, srv_keys **out, mo_error *err);
void srv_keys_close(srv_keys *keys);

/* Reads the file again. On failure the keys stay as they were. Any thread. */
mo_status srv_keys_reload(srv_keys *keys, mo_error *err);

int srv_keys_count(srv_keys *keys);

/* Is it one of them? Without any key every text is right, also NULL, and name and owner are "" and the caller is an
 * administrator. Any thread. */
bool srv_keys_check(srv_keys *keys, const char *shown, srv_key_owner *out);

#endif
