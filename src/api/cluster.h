/* Cluster: the ranks of a run, and how a model is opened on all of them. */
#ifndef MO_API_CLUSTER_H
#define MO_API_CLUSTER_H

#include <pthread.h>

#include "cluster/experts.h"
#include "cluster/leader.h"
#include "net/mpi.h"
#include "open/open.h"
#include "open/requirements.h"
#include "open/resources.h"
#include "plan/ranks.h"

struct mo_cluster {
    mo_mpi *mpi; /* NULL: the transports are owned by the caller */
    mo_link *link;
    int local_ranks;      /* on this machine */
    atomic_bool used;     /* a model is open on it, or ranks are being asked for a plan */
    pthread_mutex_t lock; /* guards `said` and `said_of` */
    /* What ranks said of themselves before they opened anything, [ranks], and of which file; NULL: nothing yet. */
    mo_wire_hello *said;
    char *said_of;
    /* Of the model that is open, or being opened: */
    bool told; /* others wait for their shares */
    mo_ranks_parts parts;
};

/* On transports that are there, for ranks of one process. */
mo_status mo_cluster_open_on(const mo_link_options *link, int local_ranks, mo_cluster **out, mo_error *err);

/* What is refused with several ranks; and what they do without. */
mo_status mo_cluster_check_options(mo_model_options *options, mo_error *err);

/* Ranks on one machine share what is free there. */
void mo_cluster_share_ram(const mo_cluster *cluster, mo_resources *resources);
/* What this rank says of itself and of its file; a status that is not MO_OK says why it cannot open the model. */
void mo_cluster_hello(const mo_cluster *cluster, const char *path, const mo_resources *resources,
                      mo_status status, const mo_error *why, mo_wire_hello *out);

/* Rank 0, before it loads: hears of all ranks, decides which layers or experts each has, and tells them. o gets the batch and the context that
 * all have, means a ceiling that ranks on this machine share, needs the part of this rank. Afterwards mo_cluster_join() or
 * mo_cluster_give_up() is called. */
mo_status mo_cluster_divide(mo_cluster *cluster, const char *path, mo_model_options *o,
                            mo_resources *resources, mo_requirements_options *requirements, mo_error *err);
/* Rank 0, for a plan: the same for its part, with its ceilings as means has them; nothing is opened. The others are asked once for each file;
 * of one that is open they have said it, and are not disturbed (any thread); of another one nothing is known then: MO_EUNSUPPORTED. */
mo_status mo_cluster_plan(mo_cluster *cluster, const char *path, mo_divide divide, mo_resources *resources,
                          mo_requirements_options *requirements, mo_error *err);
/* When its part is open: waits for the others, and leads them from then on: one of the two is there afterwards. */
mo_status mo_cluster_join(mo_cluster *cluster, mo_engine *engine, mo_leader **leader,
                          mo_experts_leader **asker, mo_error *err);
/* It is not opened, or is closed: the others wait for the next one. */
void mo_cluster_give_up(mo_cluster *cluster);

#endif
