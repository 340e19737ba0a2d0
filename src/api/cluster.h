/* Cluster: the ranks of a run, and opening a model on all of them. */
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
    mo_mpi *mpi; /* NULL: the caller owns the transports */
    mo_link *link;
    int local_ranks;      /* on this machine */
    atomic_bool used;     /* a model is open on it, or ranks are being asked for a plan */
    pthread_mutex_t lock; /* protects `said` and `said_of` */
    /* Hellos of the ranks from before they opened anything, [ranks], and the file they refer to; NULL: none
     * yet. */
    mo_wire_hello *said;
    char *said_of;
    /* State of the model that is open or being opened. */
    bool told; /* other ranks wait for their shares */
    mo_ranks_parts parts;
};

/* Uses existing transports, for ranks in one process. */
mo_status mo_cluster_open_on(const mo_link_options *link, int local_ranks, mo_cluster **out, mo_error *err);

/* Rejects options that several ranks do not support, and disables those they can do without. */
mo_status mo_cluster_check_options(mo_model_options *options, mo_error *err);

/* Ranks on one machine share its free memory. */
void mo_cluster_share_ram(const mo_cluster *cluster, mo_resources *resources);
/* Fills this rank's hello for its file; a status other than MO_OK says why it cannot open the model. */
void mo_cluster_hello(const mo_cluster *cluster, const char *path, const mo_resources *resources,
                      mo_status status, const mo_error *why, mo_wire_hello *out);

/* Rank 0, before loading: collects the hellos, decides which layers or experts each rank gets, and tells the
 * ranks. o gets the common batch and context, resources the ceiling shared with ranks on this machine,
 * requirements this rank's part. Must be followed by mo_cluster_join() or mo_cluster_give_up(). */
mo_status mo_cluster_divide(mo_cluster *cluster, const char *path, mo_model_options *o,
                            mo_resources *resources, mo_requirements_options *requirements, mo_error *err);
/* Rank 0, for a plan: the same for its part with the ceilings in resources; nothing is opened. The other
 * ranks are asked once per file. If a model is open, its stored hellos are used without disturbing the ranks
 * (any thread); plans of another file then fail with MO_EUNSUPPORTED. */
mo_status mo_cluster_plan(mo_cluster *cluster, const char *path, mo_divide divide, mo_resources *resources,
                          mo_requirements_options *requirements, mo_error *err);
/* After this rank's part is open: waits for the other ranks and then leads them. Sets exactly one of *leader
 * and *asker. */
mo_status mo_cluster_join(mo_cluster *cluster, mo_engine *engine, mo_leader **leader,
                          mo_experts_leader **asker, mo_error *err);
/* The model is closed or was not opened: the other ranks wait for the next one. */
void mo_cluster_give_up(mo_cluster *cluster);

#endif
