/* Link: a rank's messages to others, with detection of lost ranks. A thread sends several heartbeats per
   time-out (every rank to rank 0, rank 0 to every rank) and checks those received. A rank that is silent for
   a time-out is lost. The run is also lost if rank 0 waits and no rank makes progress, unless a rank is
   computing or reading: it gets MO_LINK_PATIENCE time-outs for one layer. Then every wait ends with an error
   that names the rank, messages in flight are abandoned, and the link cannot be used any more. */
#ifndef MO_CLUSTER_LINK_H
#define MO_CLUSTER_LINK_H

#include <stdatomic.h>

#include "cluster/wire.h"
#include "net/transport.h"

typedef struct mo_link mo_link;

enum { MO_LINK_PATIENCE = 60 };

/* Uses two transports of the same ranks and owns neither. The data transport is used by the thread that calls
   the functions below, the heartbeats' by the link's own thread. on_lost (may be NULL) is called once, from
   any thread, with the reason. */
typedef struct mo_link_options {
    mo_transport *data, *beats;
    int64_t timeout_ns;
    void (*on_lost)(void *user, const char *why);
    void *user;
    /* A counter that grows while the machine works for this rank; called by the link's thread. NULL: CPU
       time and disk reads of the process. */
    uint64_t (*work)(void *user);
} mo_link_options;

mo_status mo_link_open(const mo_link_options *options, mo_link **out, mo_error *err);
/* Stops the heartbeats; other ranks see whether this rank left properly. NULL is allowed. */
void mo_link_close(mo_link *link);

int mo_link_rank(const mo_link *link);
int mo_link_ranks(const mo_link *link);
/* Replaces the time-out of the options. Any thread. */
void mo_link_set_timeout(mo_link *link, int64_t timeout_ns);

/* Begins to send. The bytes must not change until mo_link_flush(). Long messages are split. */
mo_status mo_link_send(mo_link *link, int to, const void *data, size_t bytes, mo_error *err);
mo_status mo_link_flush(mo_link *link, mo_error *err);
/* The number of sends begun; and waiting for the sends before that number, but not for later ones. */
uint64_t mo_link_begun(const mo_link *link);
mo_status mo_link_flush_to(mo_link *link, uint64_t begun, mo_error *err);
/* Waits for this many bytes. idle: without a timeout. */
mo_status mo_link_receive(mo_link *link, int from, void *data, size_t bytes, bool idle, mo_error *err);
/* Receives this many bytes and discards them. */
mo_status mo_link_discard(mo_link *link, int from, size_t bytes, mo_error *err);

/* Reports progress of this rank, such as a finished layer. Any thread. */
void mo_link_moved(mo_link *link);
/* A counter that changes while this rank works; NULL: none. Must stay valid until the next call. */
void mo_link_watch(mo_link *link, const atomic_ullong *count);
/* The number of the next head that rank 0 sends, or of the head that another rank has received. */
uint64_t mo_link_next_serial(mo_link *link);
void mo_link_serial(mo_link *link, uint64_t serial);

/* Rank 0 ends the run: leaving ranks are not reported as lost from now on. */
void mo_link_leave(mo_link *link);
/* This rank fails: sends the reason to the others. */
void mo_link_fail(mo_link *link, const mo_error *why);
/* MO_OK, or why the link cannot be used any more. */
mo_status mo_link_status(mo_link *link, mo_error *err);

#endif
