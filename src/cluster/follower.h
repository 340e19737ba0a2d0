/* Follower: a rank with later layers of a model. Does what heads from the rank before it say, with sessions and snapshots of its own
 * layers under rank 0's numbers. */
#ifndef MO_CLUSTER_FOLLOWER_H
#define MO_CLUSTER_FOLLOWER_H

#include "cluster/link.h"
#include "engine/engine.h"

/* Serves until rank 0 closes the model (MO_OK) or the link is lost. What a head asks for and this rank cannot do is rank 0's to bear. */
mo_status mo_follower_run(mo_link *link, mo_engine *engine, mo_error *err);

/* Waits for a head, for as long as it takes, and passes it on where it has nothing behind it that this rank adds to. */
mo_status mo_follower_head(mo_link *link, mo_wire_head *head, mo_error *err);

#endif
