/* Prefix: the prefix cache, a tree of token sequences with session snapshots at some of its nodes. Snapshots
 * share memory with sessions and with each other. When the owner of the memory needs space, the least
 * recently used snapshots move from device memory to RAM and are then dropped. With a directory, a separate
 * thread also writes snapshots there; they survive restarts, and dropped ones are reloaded on demand.
 *
 * One thread at a time. */
#ifndef SRV_PREFIX_H
#define SRV_PREFIX_H

#include "moraine_server.h"
#include "server/common/caller.h"

typedef struct srv_prefix srv_prefix;

typedef struct srv_prefix_options {
    const mo_model *model; /* model of the sessions; required with a directory */
    int64_t bytes;         /* in RAM */
    bool rewinds; /* sessions can be rewound to any position: a snapshot serves every prefix of its tokens */
    const char *directory; /* NULL: none */
    int64_t directory_bytes;
    const char *key; /* identifies how snapshots in the directory must have been made */
} srv_prefix_options;

typedef struct srv_prefix_report {
    uint64_t kept;                  /* in memory */
    uint64_t bytes;                 /* of snapshots from the directory, which share no memory */
    uint64_t disk_kept, disk_bytes; /* complete in the directory */
    uint64_t disk_failures;
} srv_prefix_report;

mo_status srv_prefix_open(const srv_prefix_options *options, srv_prefix **out, mo_error *err);
/* Finishes pending writes first. Accepts NULL. */
void srv_prefix_close(srv_prefix *prefix);

/* Length of the common prefix. */
static inline int64_t srv_tokens_alike(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count)
{
    const int64_t count = a_count < b_count ? a_count : b_count;
    int64_t i = 0;
    while (i < count && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* A sequence: its tokens, adapters (as mo_session_adapters()) and owner. Sequences with different adapters or
 * owners share nothing. Searches also find entries of owner 0; the common prefix of such a sequence is kept
 * for all. */
typedef struct srv_prefix_key {
    uint64_t adapters;
    const int32_t *tokens;
    int64_t count;
    uint64_t owner; /* 0: shared by all */
} srv_prefix_key;

/* The snapshot that covers most of the tokens, and how many; NULL: none. It is borrowed: it stays valid until
 * srv_prefix_return() or the next search, even if it is dropped. Only one thread may borrow. */
const mo_snapshot *srv_prefix_find(srv_prefix *prefix, const srv_prefix_key *key, int64_t *usable);
void srv_prefix_return(srv_prefix *prefix);
/* Longest common prefix with any sequence of the tree, with or without a snapshot. */
int64_t srv_prefix_common(srv_prefix *prefix, const srv_prefix_key *key);
/* True if there is a snapshot of exactly this sequence, or one that serves it equally well. */
bool srv_prefix_has(srv_prefix *prefix, const srv_prefix_key *key);
/* Takes ownership of the snapshot. */
void srv_prefix_keep(srv_prefix *prefix, const srv_prefix_key *key, mo_snapshot *snapshot);
/* Moves or drops snapshots, least recently used first, until enough() is true. Returns false if none is
 * left. */
bool srv_prefix_make_room(srv_prefix *prefix, bool (*enough)(void *user), void *user);

enum { SRV_PREFIX_NAME = 64 };

/* User settings of an entry, valid as long as the cache is open. */
typedef struct srv_prefix_wanted {
    bool set_pin, pin; /* pinned entries are evicted last, in memory and in the directory */
    const char *name;  /* for lists, shorter than SRV_PREFIX_NAME; NULL: unchanged */
} srv_prefix_wanted;
/* Returns false if there is no entry with this number that the caller may change. Any thread. */
bool srv_prefix_want(srv_prefix *prefix, uint64_t number, const srv_caller *caller,
                     const srv_prefix_wanted *wanted);
/* The number of the entry that serves exactly this sequence; 0: none. */
uint64_t srv_prefix_number(srv_prefix *prefix, const srv_prefix_key *key);

/* Lists the entries visible to the caller, least recently used first. Writes at most `limit`; returns their
 * total number. Any thread. Waits while an entry is moved from a device, but not while one is read from
 * disk. */
typedef struct srv_prefix_entry {
    uint64_t number;    /* unique while the cache is open */
    int64_t tokens;     /* from the start */
    bool ram, device;   /* location in memory; neither: only on disk */
    uint64_t bytes;     /* in memory, not shared */
    uint64_t all_bytes; /* including shared bytes */
    int64_t disk_bytes; /* 0: not on disk */
    double idle_s;      /* since its last use, or since the cache was opened */
    bool pinned;
    char name[SRV_PREFIX_NAME]; /* "": none */
} srv_prefix_entry;
int srv_prefix_list(srv_prefix *prefix, const srv_caller *caller, srv_prefix_entry *out, int limit);
/* Drops the entry with this number, in memory and on disk; 0: all that the caller may change. Returns their
 * number. */
int srv_prefix_drop(srv_prefix *prefix, uint64_t number, const srv_caller *caller);

/* Any thread, even while another uses the cache. */
void srv_prefix_describe(srv_prefix *prefix, srv_prefix_report *out);

#endif
