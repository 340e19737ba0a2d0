/* Kept: the sessions an engine keeps for requests with the same prefix: snapshots of the prefix cache, and
 * the contents of free sequences. Lets users list and drop them. */
#ifndef SRV_KEPT_H
#define SRV_KEPT_H

#include "server/common/caller.h"
#include "server/scheduler/job.h"
#include "server/scheduler/prefix.h"

typedef struct srv_kept_report {
    char id[32]; /* unique while the model is loaded */
    int64_t tokens;
    bool ram, device;   /* location in memory; neither: only on disk */
    bool sequence;      /* held by a free sequence */
    uint64_t bytes;     /* in memory, not shared */
    uint64_t all_bytes; /* including shared bytes */
    int64_t disk_bytes; /* 0: not on disk */
    double idle_s;      /* since its last use; -1: unknown */
    bool pinned;
    char name[64]; /* "": none */
} srv_kept_report;

/* Lists the entries visible to the caller. Writes at most `limit`; returns their total number. Any thread. */
int srv_engine_kept(srv_engine *engine, const srv_caller *caller, srv_kept_report *out, int limit);

/* Pins or names the entry with this id (see srv_prefix_wanted). The contents of a free sequence are cached
 * first under a new id, which is written to now. MO_ENOENT: no such entry of this caller. MO_EUNSUPPORTED: it
 * cannot be cached. Waits for the running step. */
mo_status srv_engine_change_kept(srv_engine *engine, const char *id, const srv_caller *caller,
                                 const srv_prefix_wanted *wanted, char now[32], mo_error *err);

/* Drops the entry with this id, in memory and on disk; NULL: all that the caller may change. Returns their
 * number. Waits for the running step. */
int srv_engine_drop_kept(srv_engine *engine, const char *id, const srv_caller *caller);
/* Returns freed memory to the system. Slow, so not on the engine's thread. */
void srv_engine_trim(srv_engine *engine);

#endif
