/* Follower: a rank with later layers of a model. Executes the heads that the previous rank sends, on its own
   layers' sessions and snapshots, which have rank 0's numbers. */
#ifndef MO_CLUSTER_FOLLOWER_H
#define MO_CLUSTER_FOLLOWER_H

#include "cluster/link.h"
#include "engine/engine.h"

/* Serves until rank 0 closes the model (MO_OK) or the link is lost. Returns its errors to rank 0. */
mo_status mo_follower_run(mo_link *link, mo_engine *engine, mo_error *err);

/* Waits for a head without a time limit. Passes it on at once if this rank adds nothing to it. */
mo_status mo_follower_head(mo_link *link, mo_wire_head *head, mo_error *err);

#endif
