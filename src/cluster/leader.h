/* Leader: rank 0 of a model whose layers are divided: implements mo_remote_layers by messages. */
#ifndef MO_CLUSTER_LEADER_H
#define MO_CLUSTER_LEADER_H

#include "cluster/link.h"
#include "engine/engine.h"

typedef struct mo_leader mo_leader;

/* For an engine with the first layers. first[ranks + 1]: the first layer of every rank. Sets the engine's
   remote layers. The caller keeps the link; the engine outlives the leader. */
mo_status mo_leader_open(mo_link *link, mo_engine *engine, const int *first, mo_leader **out, mo_error *err);
/* Call after all sessions and snapshots are closed. Closes the model in the other ranks. NULL is allowed. */
void mo_leader_close(mo_leader *leader);
void mo_leader_traffic(mo_leader *leader, mo_traffic_report *out); /* any thread */

enum { MO_LEADER_TOKENS = 64 };
/* Number of groups for a step of several sessions, by its tokens, [MO_LEADER_TOKENS + 1]; the last element is
   for all larger numbers. Default: one group. Call before the first step. */
void mo_leader_group(mo_leader *leader, const uint8_t *by_tokens);

#endif
