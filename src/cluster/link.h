/* Link: a rank's messages to others, with a watch on them. A thread sends a beat to the other side several times per time-out (every
 * rank to rank 0, rank 0 to every rank) and looks for theirs: one that is silent for as long is lost, and so is a run in which
 * rank 0 waits and nothing moves anywhere, unless a rank is at work: it computes or reads, and gets MO_LINK_PATIENCE time-outs for
 * what is one layer. Then every wait ends with a sentence that names the rank, messages that were under way are given up, and the
 * link is of no more use. */
#ifndef MO_CLUSTER_LINK_H
#define MO_CLUSTER_LINK_H

#include <stdatomic.h>

#include "cluster/wire.h"
#include "net/transport.h"

typedef struct mo_link mo_link;

enum { MO_LINK_PATIENCE = 60 };

/* Keeps and uses the two transports, of the same ranks; owns neither. The data's is used by the thread that calls what follows, the
 * beats' by the link's own. on_lost, which may be NULL, is called once, by any thread, with what is said. */
typedef struct mo_link_options {
    mo_transport *data, *beats;
    int64_t timeout_ns;
    void (*on_lost)(void *user, const char *why);
    void *user;
    /* A count that grows while the machine works for this rank; asked by the link's own thread. NULL: what the process takes of
     * processors and disks. */
    uint64_t (*work)(void *user);
} mo_link_options;

mo_status mo_link_open(const mo_link_options *options, mo_link **out, mo_error *err);
/* Stops the beats: others see that this rank has left, in order or not. NULL is allowed. */
void mo_link_close(mo_link *link);

int mo_link_rank(const mo_link *link);
int mo_link_ranks(const mo_link *link);
/* Another time-out than that of the options, from now on. Any thread. */
void mo_link_set_timeout(mo_link *link, int64_t timeout_ns);

/* Begins to send; the bytes stay as they are until mo_link_flush(). Longer ones than the transport takes go in pieces. */
mo_status mo_link_send(mo_link *link, int to, const void *data, size_t bytes, mo_error *err);
mo_status mo_link_flush(mo_link *link, mo_error *err);
/* How many sends were begun; and a flush of those before that, while later ones may still be under way. */
uint64_t mo_link_begun(const mo_link *link);
mo_status mo_link_flush_to(mo_link *link, uint64_t begun, mo_error *err);
/* Waits for this many bytes. idle: without a timeout. */
mo_status mo_link_receive(mo_link *link, int from, void *data, size_t bytes, bool idle, mo_error *err);
/* Waits for this many bytes and discards them. */
mo_status mo_link_discard(mo_link *link, int from, size_t bytes, mo_error *err);

/* Something moves, such as a layer that was computed: of this rank, any thread. */
void mo_link_moved(mo_link *link);
/* A count that moves while this rank works; NULL: none. It stays there until this is called again. */
void mo_link_watch(mo_link *link, const atomic_ullong *count);
/* The number of the head that rank 0 is about to send; the one that another rank has received. */
uint64_t mo_link_next_serial(mo_link *link);
void mo_link_serial(mo_link *link, uint64_t serial);

/* Rank 0 ends the run: who leaves is not missed from now on. */
void mo_link_leave(mo_link *link);
/* This rank gives up: sends the reason to the others. */
void mo_link_fail(mo_link *link, const mo_error *why);
/* MO_OK, or why the link is of no more use. */
mo_status mo_link_status(mo_link *link, mo_error *err);

#endif
