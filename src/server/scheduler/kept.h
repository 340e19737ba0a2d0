/* Kept: the sessions that an engine keeps for requests that begin alike: snapshots of the prefix cache, and what sequences
 * that are free still hold. For people who want to see or forget them. */
#ifndef SRV_KEPT_H
#define SRV_KEPT_H

#include "server/common/caller.h"
#include "server/scheduler/job.h"
#include "server/scheduler/prefix.h"

typedef struct srv_kept_report {
    char id[32]; /* its own as long as the model is loaded */
    int64_t tokens;
    bool ram, device;   /* where in memory; neither: on disk alone */
    bool sequence;      /* held by a sequence that is free */
    uint64_t bytes;     /* in memory, that it alone holds */
    uint64_t all_bytes; /* with those that it shares */
    int64_t disk_bytes; /* 0: not on disk */
    double idle_s;      /* since its last use; -1: not known */
    bool pinned;
    char name[64]; /* "": none */
} srv_kept_report;

/* Those that the caller sees. At most `limit` are written; returns how many there are. Any thread. */
int srv_engine_kept(srv_engine *engine, const srv_caller *caller, srv_kept_report *out, int limit);

/* Pins or names the one of that id (see srv_prefix_wanted). What a free sequence holds is kept for it, under another id, which is
 * written. MO_ENOENT: the caller has none; MO_EUNSUPPORTED: it cannot be kept. Waits for the step that runs. */
mo_status srv_engine_change_kept(srv_engine *engine, const char *id, const srv_caller *caller,
                                 const srv_prefix_wanted *wanted, char now[32], mo_error *err);

/* Forgets the one of that id, in memory and on disk; NULL: all that the caller may change. Returns how many. Waits for the step that runs. */
int srv_engine_drop_kept(srv_engine *engine, const char *id, const srv_caller *caller);
/* What was forgotten goes back to the system. Not on the engine's thread: it takes a moment. */
void srv_engine_trim(srv_engine *engine);

#endif
