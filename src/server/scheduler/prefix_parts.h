/* The prefix cache in parts: a tree of token sequences, what is kept at its nodes, and the thread that writes that to a directory.
 * prefix.h is its public side. All functions are called under the tree's lock. */
#ifndef SRV_PREFIX_PARTS_H
#define SRV_PREFIX_PARTS_H

#include <pthread.h>

#include "server/scheduler/cachedir.h"
#include "server/scheduler/prefix.h"

/* A snapshot that a writer or a borrower may hold longer than the tree. */
typedef struct srv_snapshot_ref {
    mo_snapshot *snapshot;
    int holders; /* under the tree's lock */
} srv_snapshot_ref;

/* The tokens from its parent to it; a snapshot of all tokens from the root to its end, in RAM, on disk, or both. */
typedef struct srv_node {
    struct srv_node *parent, *child, *sibling;
    int32_t *tokens;
    int64_t count;
    int64_t depth;          /* tokens from the root */
    uint64_t owner;         /* of what is at the node and below, once the way to it says that */
    int marks;              /* of the tokens from the root: those that stand for owner and adapters */
    srv_snapshot_ref *held; /* NULL: not in RAM */
    int64_t bytes;
    char name[SRV_CACHEDIR_NAME]; /* "": not on disk */
    int64_t disk_bytes;
    struct srv_node *older, *newer; /* of those with a snapshot, by use */
    bool listed;
    uint64_t number; /* since it was listed first */
    int64_t used_ns;
    bool pinned;
    char label[SRV_PREFIX_NAME];
} srv_node;

typedef struct srv_writing { /* a snapshot on its way to the disk */
    srv_snapshot_ref *held;
    int32_t *tokens;
    int64_t count;
    bool unwanted; /* it was dropped meanwhile */
    struct srv_writing *next;
} srv_writing;

struct srv_prefix {
    srv_prefix_options options;
    srv_cachedir *dir; /* NULL: none */
    pthread_t writer;  /* where there is a directory */

    pthread_mutex_t tree;
    /* Under the tree's lock: */
    srv_node root;
    srv_node *oldest, *newest;
    int64_t bytes, disk_bytes;
    srv_snapshot_ref *lent;          /* by srv_prefix_find(); NULL: none */
    srv_writing *first, *last, *now; /* now: being written */
    int waiting;
    uint64_t numbers;
    bool failing; /* the last write did */
    pthread_cond_t more;
    bool closing;

    pthread_mutex_t lock; /* of the report, held only briefly */
    srv_prefix_report report;
};

/* ---- Ways (prefix_way.c) ---------------------------------------------------------------------- */

/* A way through the tree: owner and adapters come before the tokens, as marks that are below 0 as no token is. */
typedef struct srv_way {
    const int32_t *tokens;
    int64_t count;
    int marks;
    int32_t *own; /* NULL: the tokens are the caller's */
} srv_way;

/* False: no memory. free() way->own. */
bool srv_way_open(const srv_prefix_key *key, uint64_t owner, srv_way *out);
/* How many of the tokens are marks, and whose they are. */
int srv_way_marks(const int32_t *tokens, int64_t count, uint64_t *owner);

/* ---- The tree (prefix_tree.c) ----------------------------------------------------------------- */

/* Adds to what is reported. */
void srv_prefix_count(srv_prefix *prefix, int kept, int64_t bytes, int disk_kept, int64_t disk_bytes);

/* The list of nodes with a snapshot: takes one out, and puts one at its end, as the one used last. */
void srv_prefix_unlist(srv_prefix *prefix, srv_node *node);
void srv_prefix_touch(srv_prefix *prefix, srv_node *node);

bool srv_node_has_snapshot(const srv_node *node);
/* A snapshot at the node or below, one in RAM before one on disk; NULL: none. */
srv_node *srv_node_any_below(srv_node *node);
/* The deepest node that the tokens begin with. *matched: tokens that are alike, those of the edge to *below included, which
 * they leave within; NULL: they leave at the node. */
srv_node *srv_prefix_match(const srv_prefix *prefix, const int32_t *tokens, int64_t count, int64_t *matched,
                           srv_node **below);
/* The node of exactly these tokens, made if need be. NULL: no memory. */
srv_node *srv_prefix_node(srv_prefix *prefix, const int32_t *tokens, int64_t count);

/* ---- What is kept (prefix_store.c) ------------------------------------------------------------ */

/* Takes the snapshot over; false: no memory, and it is closed. */
bool srv_prefix_hold(srv_prefix *prefix, srv_node *node, mo_snapshot *snapshot, int64_t bytes);
void srv_prefix_drop_ram(srv_prefix *prefix, srv_node *node);
/* One holder less; the last one closes the snapshot. NULL is allowed. */
void srv_prefix_let_go(srv_snapshot_ref *held);
void srv_prefix_drop_disk(srv_prefix *prefix, srv_node *node);
/* Drops what the node's snapshot serves as well. */
void srv_prefix_drop_shorter(srv_prefix *prefix, const srv_node *node);
/* Drops from the directory what was used longest ago until its budget is kept; `spared` stays. Then tidy. */
void srv_prefix_shrink(srv_prefix *prefix, const srv_node *spared);
/* Frees nodes, of those below one and itself, that hold nothing and lead nowhere. */
void srv_prefix_tidy(srv_prefix *prefix, srv_node *node);
/* Brings a snapshot from disk, or forgets it if it is of no use. The tree's lock is released while the file is read: look at the tree
 * again, where the node may have changed or be gone. False: no memory. */
bool srv_prefix_load(srv_prefix *prefix, const srv_node *node);

/* Gives the node's snapshot to the writer, where there is a directory and it is not there yet. */
void srv_prefix_write(srv_prefix *prefix, srv_node *node, const int32_t *tokens, int64_t count);
/* What waits to be written, or is being written, is not to be found again. */
void srv_prefix_unwrite(srv_prefix *prefix, const srv_snapshot_ref *held);
void *srv_prefix_run_writer(void *prefix);

#endif
