/* Prefix: the prefix cache. A tree of token sequences, with snapshots of sessions that held them at some of its nodes. They
 * share their memory with sessions and with each other; the owner of the memory asks for space, and the ones used
 * longest ago go first, from a device's memory to RAM before they are dropped. With a directory, snapshots are also written
 * there, by a thread of its own, and found again after a restart; those that were dropped are read back when they are
 * needed.
 *
 * One thread at a time. */
#ifndef SRV_PREFIX_H
#define SRV_PREFIX_H

#include "moraine_server.h"
#include "server/common/caller.h"

typedef struct srv_prefix srv_prefix;

typedef struct srv_prefix_options {
    const mo_model *model; /* whose sessions they are; with a directory */
    int64_t bytes;         /* in RAM */
    bool rewinds; /* a session can go back to any position: a snapshot serves every beginning of its tokens */
    const char *directory; /* NULL: none */
    int64_t directory_bytes;
    const char *key; /* what snapshots of the directory must have been made with */
} srv_prefix_options;

typedef struct srv_prefix_report {
    uint64_t kept;                  /* in memory */
    uint64_t bytes;                 /* of those that share none, since they came from the directory */
    uint64_t disk_kept, disk_bytes; /* whole and safe in the directory */
    uint64_t disk_failures;
} srv_prefix_report;

mo_status srv_prefix_open(const srv_prefix_options *options, srv_prefix **out, mo_error *err);
/* What waits to be written is written first. NULL is allowed. */
void srv_prefix_close(srv_prefix *prefix);

/* The number of tokens that are equal at the beginning. */
static inline int64_t srv_tokens_alike(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count)
{
    const int64_t count = a_count < b_count ? a_count : b_count;
    int64_t i = 0;
    while (i < count && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* A sequence: tokens, what they are computed with, as mo_session_adapters() says, and whose they are: sequences of other adapters or
 * owners have nothing in common. A search also finds what belongs to owner 0; the beginning of such a sequence is kept for all. */
typedef struct srv_prefix_key {
    uint64_t adapters;
    const int32_t *tokens;
    int64_t count;
    uint64_t owner; /* 0: all */
} srv_prefix_key;

/* The snapshot that saves most of the tokens, and how many; NULL: none does. It is lent: whatever is dropped meanwhile, it stays
 * until srv_prefix_return() or the next search. One thread borrows. */
const mo_snapshot *srv_prefix_find(srv_prefix *prefix, const srv_prefix_key *key, int64_t *usable);
void srv_prefix_return(srv_prefix *prefix);
/* How many tokens any sequence of the tree begins with alike, with or without a snapshot there. */
int64_t srv_prefix_common(srv_prefix *prefix, const srv_prefix_key *key);
/* Is there a snapshot of exactly this sequence, or one that serves it as well? */
bool srv_prefix_has(srv_prefix *prefix, const srv_prefix_key *key);
/* Takes the snapshot over. */
void srv_prefix_keep(srv_prefix *prefix, const srv_prefix_key *key, mo_snapshot *snapshot);
/* Moves or drops snapshots, the one used longest ago first, until enough() says so. False: none is left. */
bool srv_prefix_make_room(srv_prefix *prefix, bool (*enough)(void *user), void *user);

enum { SRV_PREFIX_NAME = 64 };

/* User settings of a cached one. It lasts as long as the cache is open. */
typedef struct srv_prefix_wanted {
    bool set_pin, pin; /* pinned ones are evicted last, in memory and in the directory */
    const char *name;  /* for those who look at the list, shorter than SRV_PREFIX_NAME; NULL: as it is */
} srv_prefix_wanted;
/* False: there is none of that number that the caller may change. Any thread. */
bool srv_prefix_want(srv_prefix *prefix, uint64_t number, const srv_caller *caller,
                     const srv_prefix_wanted *wanted);
/* The number of the one that serves exactly this sequence; 0: there is none. */
uint64_t srv_prefix_number(srv_prefix *prefix, const srv_prefix_key *key);

/* What is kept and the caller sees, the one used longest ago first. At most `limit` are written; returns how many there are. Any thread; waits for
 * one that is being moved from a device, not for one that is being read from disk. */
typedef struct srv_prefix_entry {
    uint64_t number;    /* its own as long as the cache is open */
    int64_t tokens;     /* from the beginning */
    bool ram, device;   /* in memory: where; neither: on disk alone */
    uint64_t bytes;     /* in memory, that it alone holds */
    uint64_t all_bytes; /* with those that it shares */
    int64_t disk_bytes; /* 0: not on disk */
    double idle_s;      /* since its last use, or since the cache was opened */
    bool pinned;
    char name[SRV_PREFIX_NAME]; /* "": none */
} srv_prefix_entry;
int srv_prefix_list(srv_prefix *prefix, const srv_caller *caller, srv_prefix_entry *out, int limit);
/* Forgets the one of that number, in memory and on disk; 0: all that the caller may change. Returns how many. */
int srv_prefix_drop(srv_prefix *prefix, uint64_t number, const srv_caller *caller);

/* Any thread may read the report while another uses the cache. */
void srv_prefix_describe(srv_prefix *prefix, srv_prefix_report *out);

#endif
