/* Parts of the prefix cache: the tree of token sequences, the snapshots at its nodes, and the writer thread
 * of the directory. prefix.h is the public interface. All functions require the tree's lock. */
#ifndef SRV_PREFIX_PARTS_H
#define SRV_PREFIX_PARTS_H

#include <pthread.h>

#include "server/scheduler/cachedir.h"
#include "server/scheduler/prefix.h"

/* A snapshot that the writer or a borrower may hold longer than the tree. */
typedef struct srv_snapshot_ref {
    mo_snapshot *snapshot;
    int holders; /* protected by the tree's lock */
} srv_snapshot_ref;

/* A node: the tokens from its parent to it, and optionally a snapshot of all tokens from the root, in RAM, on
 * disk, or both. */
typedef struct srv_node {
    struct srv_node *parent, *child, *sibling;
    int32_t *tokens;
    int64_t count;
    int64_t depth;          /* tokens from the root */
    uint64_t owner;         /* of the node and its subtree, once the path determines it */
    int marks;              /* number of leading tokens that encode owner and adapters */
    srv_snapshot_ref *held; /* NULL: not in RAM */
    int64_t bytes;
    char name[SRV_CACHEDIR_NAME]; /* "": not on disk */
    int64_t disk_bytes;
    struct srv_node *older, *newer; /* in the list of nodes with a snapshot, by use */
    bool listed;
    uint64_t number; /* assigned when first listed */
    int64_t used_ns;
    bool pinned;
    char label[SRV_PREFIX_NAME];
} srv_node;

typedef struct srv_writing { /* a snapshot being written to disk */
    srv_snapshot_ref *held;
    int32_t *tokens;
    int64_t count;
    bool unwanted; /* dropped meanwhile */
    struct srv_writing *next;
} srv_writing;

struct srv_prefix {
    srv_prefix_options options;
    srv_cachedir *dir; /* NULL: none */
    pthread_t writer;  /* only with a directory */

    pthread_mutex_t tree;
    /* Protected by the tree's lock: */
    srv_node root;
    srv_node *oldest, *newest;
    int64_t bytes, disk_bytes;
    srv_snapshot_ref *lent;          /* by srv_prefix_find(); NULL: none */
    srv_writing *first, *last, *now; /* now: being written */
    int waiting;
    uint64_t numbers;
    bool failing; /* the last write failed */
    pthread_cond_t more;
    bool closing;

    pthread_mutex_t lock; /* protects the report, held only briefly */
    srv_prefix_report report;
};

/* ---- Paths (prefix_way.c) ---------------------------------------------------------------------- */

/* A path through the tree: owner and adapters precede the tokens, encoded as marks below 0, which no token
 * is. */
typedef struct srv_way {
    const int32_t *tokens;
    int64_t count;
    int marks;
    int32_t *own; /* NULL: the tokens belong to the caller */
} srv_way;

/* Returns false if out of memory. free() way->own. */
bool srv_way_open(const srv_prefix_key *key, uint64_t owner, srv_way *out);
/* The number of marks among the tokens, and their owner. */
int srv_way_marks(const int32_t *tokens, int64_t count, uint64_t *owner);

/* ---- The tree (prefix_tree.c) ----------------------------------------------------------------- */

/* Adds to the report. */
void srv_prefix_count(srv_prefix *prefix, int kept, int64_t bytes, int disk_kept, int64_t disk_bytes);

/* The list of nodes with a snapshot: removes a node; moves it to the end as the most recently used. */
void srv_prefix_unlist(srv_prefix *prefix, srv_node *node);
void srv_prefix_touch(srv_prefix *prefix, srv_node *node);

bool srv_node_has_snapshot(const srv_node *node);
/* A snapshot at the node or below, preferably in RAM; NULL: none. */
srv_node *srv_node_any_below(srv_node *node);
/* The deepest node whose tokens are a prefix of these. *matched: length of the common prefix, including that
 * on the edge to *below; *below NULL: the tokens end or differ at the node. */
srv_node *srv_prefix_match(const srv_prefix *prefix, const int32_t *tokens, int64_t count, int64_t *matched,
                           srv_node **below);
/* The node of exactly these tokens, created if necessary. NULL: out of memory. */
srv_node *srv_prefix_node(srv_prefix *prefix, const int32_t *tokens, int64_t count);

/* ---- Storage (prefix_store.c) ------------------------------------------------------------ */

/* Takes ownership of the snapshot; if out of memory, closes it and returns false. */
bool srv_prefix_hold(srv_prefix *prefix, srv_node *node, mo_snapshot *snapshot, int64_t bytes);
void srv_prefix_drop_ram(srv_prefix *prefix, srv_node *node);
/* Drops a reference; the last one closes the snapshot. Accepts NULL. */
void srv_prefix_let_go(srv_snapshot_ref *held);
void srv_prefix_drop_disk(srv_prefix *prefix, srv_node *node);
/* Drops snapshots that the node's snapshot makes redundant. */
void srv_prefix_drop_shorter(srv_prefix *prefix, const srv_node *node);
/* Drops the least recently used entries from the directory until it is within its budget; keeps `spared`.
 * Call tidy afterwards. */
void srv_prefix_shrink(srv_prefix *prefix, const srv_node *spared);
/* Frees nodes without snapshots and descendants, at this node and below. */
void srv_prefix_tidy(srv_prefix *prefix, srv_node *node);
/* Loads a snapshot from disk, or drops it if it is unusable. Releases the tree's lock while reading:
 * afterwards the node may have changed or be gone, so search again. Returns false if out of memory. */
bool srv_prefix_load(srv_prefix *prefix, const srv_node *node);

/* Queues the node's snapshot for writing, if there is a directory that does not have it yet. */
void srv_prefix_write(srv_prefix *prefix, srv_node *node, const int32_t *tokens, int64_t count);
/* Cancels a pending or running write, so that it is not found again. */
void srv_prefix_unwrite(srv_prefix *prefix, const srv_snapshot_ref *held);
void *srv_prefix_run_writer(void *prefix);

#endif
