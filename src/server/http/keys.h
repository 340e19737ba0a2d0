/* Keys: the API keys that clients authenticate with. They come from an option, the environment and a file
 * that can be reloaded at runtime. Comparisons take constant time.
 *
 * Every key identifies a client. The identity is the name in the file, which several keys may share, or else
 * the key itself, as a salted hash: files that name an owner reveal nothing about the key. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include "moraine_server.h"
#include "server/common/caller.h"

typedef struct srv_keys srv_keys;

/* The owner of a key. */
typedef struct srv_key_owner {
    char name[64]; /* name in the log, such as "key2": its position, unless the file gives a name */
    char owner
        [65]; /* the client's identity in hexadecimal digits: the owner of its stored data; "" without keys */
    srv_caller caller;
    int priority;
} srv_key_owner;

typedef struct srv_keys_options {
    const char *list; /* comma-separated administrator keys; NULL: none */
    /* A file with one key per line, optionally followed by name=NAME, priority=N and admin. Lines starting
     * with # are comments. NULL: none. A file without keys is an error, because the server would be open to
     * everyone. */
    const char *path;
    const char *salt_directory; /* where the salt is stored across restarts; NULL: not stored */
    bool share_prefixes;        /* all callers have owner 0 */
} srv_keys_options;

mo_status srv_keys_open(const srv_keys_options *options, srv_keys **out, mo_error *err);
void srv_keys_close(srv_keys *keys);

/* Reloads the file. On failure the keys are unchanged. Any thread. */
mo_status srv_keys_reload(srv_keys *keys, mo_error *err);

int srv_keys_count(srv_keys *keys);

/* True if the key is valid. If no keys exist, any text (or NULL) is valid, name and owner are "" and the
 * caller is an administrator. Any thread. */
bool srv_keys_check(srv_keys *keys, const char *shown, srv_key_owner *out);

#endif
