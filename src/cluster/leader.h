/* Leader: rank 0's side of a model whose layers are divided. What the engine's relay asks for becomes messages to the ranks that
 * follow. */
#ifndef MO_CLUSTER_LEADER_H
#define MO_CLUSTER_LEADER_H

#include "cluster/link.h"
#include "engine/engine.h"

typedef struct mo_leader mo_leader;

/* For an engine that has the first layers; first[ranks + 1]: where every rank's begin. Sets the engine's relay. The link stays the
 * caller's, the engine outlives the leader. */
mo_status mo_leader_open(mo_link *link, mo_engine *engine, const int *first, mo_leader **out, mo_error *err);
/* After all sessions and snapshots: the others close the model too. NULL is allowed. */
void mo_leader_close(mo_leader *leader);
void mo_leader_traffic(mo_leader *leader, mo_traffic_report *out); /* any thread */

enum { MO_LEADER_TOKENS = 64 };
/* Into how many groups a step of several sessions goes, by its tokens, [MO_LEADER_TOKENS + 1], the last for all of more. Without it: one. Before
 * the first step. */
void mo_leader_group(mo_leader *leader, const uint8_t *by_tokens);

#endif
