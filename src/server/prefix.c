#include "server/prefix.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cachedir.h"
#include "server/log.h"

/* ---- Snapshots that a writer may hold longer than the tree ------------------------------------ */

typedef struct holder {
    mo_snapshot *snapshot;
    int holders; /* under the tree's lock */
} holder;

/* ---- The tree --------------------------------------------------------------------------------- */

/* The tokens from its parent to it; a snapshot of all tokens from the root to its end, in RAM, on disk, or both. */
typedef struct node {
    struct node *parent, *child, *sibling;
    int32_t *tokens;
    int64_t count;
    int64_t depth; /* tokens from the root */
    holder *held;  /* NULL: not in RAM */
    int64_t bytes;
    char name[SRV_CACHEDIR_NAME]; /* "": not on disk */
    int64_t disk_bytes;
    struct node *older, *newer; /* of those with a snapshot, by use */
    bool listed;
    uint64_t number; /* since it was listed first */
    int64_t used_ns;
} node;

typedef struct writing { /* a snapshot on its way to the disk */
    holder *held;
    int32_t *tokens;
    int64_t count;
    bool unwanted; /* it was dropped meanwhile */
    struct writing *next;
} writing;

struct srv_prefix {
    srv_prefix_options options;
    srv_cachedir *dir; /* NULL: none */
    pthread_t writer;  /* where there is a directory */

    pthread_mutex_t tree;
    /* Under the tree's lock: */
    node root;
    node *oldest, *newest;
    int64_t bytes, disk_bytes;
    writing *first, *last, *now; /* now: being written */
    int waiting;
    uint64_t numbers;
    bool failing; /* the last write did */
    pthread_cond_t more;
    bool closing;

    pthread_mutex_t lock; /* of the report, which nobody holds for long */
    srv_prefix_report report;
};

enum { WRITINGS_MAX = 64 }; /* snapshots that wait for the disk hold memory: further ones are not written */

static void count(srv_prefix *p, int kept, int64_t bytes, int disk_kept, int64_t disk_bytes)
{
    p->bytes += bytes;
    p->disk_bytes += disk_bytes;
    pthread_mutex_lock(&p->lock);
    p->report.kept += (uint64_t)(int64_t)kept;
    p->report.bytes += (uint64_t)bytes;
    p->report.disk_kept += (uint64_t)(int64_t)disk_kept;
    p->report.disk_bytes += (uint64_t)disk_bytes;
    pthread_mutex_unlock(&p->lock);
}

static void leave_list(srv_prefix *p, node *n)
{
    if (n->listed) {
        *(n->older ? &n->older->newer : &p->oldest) = n->newer;
        *(n->newer ? &n->newer->older : &p->newest) = n->older;
        n->older = n->newer = NULL;
        n->listed = false;
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void touch(srv_prefix *p, node *n)
{
    n->number = n->number ? n->number : ++p->numbers;
    n->used_ns = now_ns();
    leave_list(p, n);
    n->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = n;
    p->newest = n;
    n->listed = true;
}

static int64_t alike_of(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count)
{
    const int64_t count = a_count < b_count ? a_count : b_count;
    int64_t i = 0;
    while (i < count && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* The deepest node that the tokens begin with. *matched: tokens that are alike, those of the edge to *below included, which
 * they leave within; NULL: they leave at the node. */
static node *walk(const srv_prefix *p, const int32_t *tokens, int64_t count, int64_t *matched, node **below)
{
    const node *at = &p->root;
    *matched = 0;
    *below = NULL;
    for (;;) {
        node *next = at->child;
        while (next && (*matched == count || next->tokens[0] != tokens[*matched])) {
            next = next->sibling;
        }
        if (!next) {
            return (node *)at;
        }
        const int64_t alike = alike_of(next->tokens, next->count, tokens + *matched, count - *matched);
        *matched += alike;
        if (alike < next->count) {
            *below = next;
            return (node *)at;
        }
        at = next;
    }
}

static bool has_snapshot(const node *n)
{
    return n->held || n->name[0];
}

/* A snapshot at the node or below, one in RAM before one on disk. */
static node *any_below(node *n)
{
    node *on_disk = NULL;
    for (node *at = n; at;) {
        if (at->held) {
            return at;
        }
        on_disk = on_disk || !at->name[0] ? on_disk : at;
        if (at->child) {
            at = at->child;
            continue;
        }
        while (at && at != n && !at->sibling) {
            at = at->parent;
        }
        at = at && at != n ? at->sibling : NULL;
    }
    return on_disk;
}

/* Nodes that hold nothing and lead nowhere go. */
static void prune(srv_prefix *p, node *n)
{
    while (n != &p->root && !n->child && !has_snapshot(n)) {
        node *parent = n->parent;
        node **at = &parent->child;
        while (*at != n) {
            at = &(*at)->sibling;
        }
        *at = n->sibling;
        leave_list(p, n);
        free(n->tokens);
        free(n);
        n = parent;
    }
}

/* Cuts the edge to the node after so many tokens. NULL: no memory. */
static node *split(node *n, int64_t at)
{
    node *upper = calloc(1, sizeof *upper);
    int32_t *first = malloc(sizeof *first * (size_t)at);
    int32_t *second = malloc(sizeof *second * (size_t)(n->count - at));
    if (!upper || !first || !second) {
        free(upper);
        free(first);
        free(second);
        return NULL;
    }
    memcpy(first, n->tokens, sizeof *first * (size_t)at);
    memcpy(second, n->tokens + at, sizeof *second * (size_t)(n->count - at));
    node **link = &n->parent->child;
    while (*link != n) {
        link = &(*link)->sibling;
    }
    *link = upper;
    *upper = (node){.parent = n->parent,
                    .child = n,
                    .sibling = n->sibling,
                    .tokens = first,
                    .count = at,
                    .depth = n->depth - n->count + at};
    free(n->tokens);
    n->tokens = second;
    n->count -= at;
    n->parent = upper;
    n->sibling = NULL;
    return upper;
}

/* The node of exactly these tokens, made if need be. NULL: no memory. */
static node *node_of(srv_prefix *p, const int32_t *tokens, int64_t count)
{
    int64_t matched;
    node *below;
    node *at = walk(p, tokens, count, &matched, &below);
    if (below) {
        at = split(below, matched - at->depth);
    }
    if (!at || matched == count) {
        return at;
    }
    node *n = calloc(1, sizeof *n);
    int32_t *own = malloc(sizeof *own * (size_t)(count - matched));
    if (!n || !own) {
        free(n);
        free(own);
        prune(p, at);
        return NULL;
    }
    memcpy(own, tokens + matched, sizeof *own * (size_t)(count - matched));
    *n = (node){.parent = at, .sibling = at->child, .tokens = own, .count = count - matched, .depth = count};
    at->child = n;
    return n;
}

/* ---- RAM and disk ----------------------------------------------------------------------------- */

static void let_go(holder *h)
{
    if (--h->holders == 0) {
        mo_snapshot_close(h->snapshot);
        free(h);
    }
}

static void drop_ram(srv_prefix *p, node *n)
{
    if (n->held) {
        count(p, -1, -n->bytes, 0, 0);
        let_go(n->held);
        n->held = NULL;
    }
}

static void drop_disk(srv_prefix *p, node *n)
{
    if (n->name[0]) {
        srv_cachedir_remove(p->dir, n->name);
        n->name[0] = 0;
        count(p, 0, 0, -1, -n->disk_bytes);
    }
}

/* What was used longest ago goes until the directory's budget is kept; `spared` stays. */
static void shrink(srv_prefix *p, const node *spared)
{
    for (node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if (n != spared && n->name[0] && p->disk_bytes > p->options.directory_bytes) {
            drop_disk(p, n);
        }
        if (!has_snapshot(n)) {
            leave_list(p, n);
        }
    }
}

/* Prunes what shrink() emptied. */
static void tidy(srv_prefix *p, node *n)
{
    for (node *child = n->child, *next; child; child = next) {
        next = child->sibling;
        tidy(p, child);
    }
    if (n != &p->root && !n->child && !has_snapshot(n)) {
        node **at = &n->parent->child;
        while (*at != n) {
            at = &(*at)->sibling;
        }
        *at = n->sibling;
        leave_list(p, n);
        free(n->tokens);
        free(n);
    }
}

/* Where sessions can go back, this one serves those it continues as well. Their files stay until its own is there, so that none
 * is lost whatever happens meanwhile. */
static void drop_shorter(srv_prefix *p, const node *n)
{
    for (node *up = n->parent; p->options.rewinds && up; up = up->parent) {
        if (n->held) {
            drop_ram(p, up);
        }
        if (n->name[0]) {
            drop_disk(p, up);
        }
        if (!has_snapshot(up)) {
            leave_list(p, up);
        }
    }
}

static bool hold(srv_prefix *p, node *n, mo_snapshot *snapshot, int64_t bytes)
{
    holder *h = malloc(sizeof *h);
    if (!h) {
        mo_snapshot_close(snapshot);
        return false;
    }
    *h = (holder){snapshot, 1};
    n->held = h;
    n->bytes = bytes;
    count(p, 1, bytes, 0, 0);
    touch(p, n);
    return true;
}

static void path_of(const node *n, int32_t *out)
{
    for (; n->parent; n = n->parent) {
        memcpy(out + n->depth - n->count, n->tokens, sizeof *out * (size_t)n->count);
    }
}

/* Brings a snapshot from disk; one that is of no use is forgotten. */
static bool load(srv_prefix *p, node *n)
{
    uint8_t *bytes = NULL;
    size_t size;
    mo_snapshot *snapshot = NULL;
    int32_t *tokens = malloc(sizeof *tokens * (size_t)n->depth);
    if (tokens) {
        path_of(n, tokens);
        if (srv_cachedir_read(p->dir, n->name, tokens, n->depth, &bytes, &size, NULL) == MO_OK) {
            mo_snapshot_open_bytes(bytes, size, &snapshot, NULL);
        }
    }
    free(tokens);
    free(bytes);
    if (!snapshot) {
        drop_disk(p, n);
        return false;
    }
    return hold(p, n, snapshot, (int64_t)size);
}

/* ---- The writer ------------------------------------------------------------------------------- */

/* Loud, and once until a write goes well again. */
static void note_failure(srv_prefix *p, const mo_error *err)
{
    if (!p->failing) {
        srv_say(MO_LOG_WARN, "cache", "%s; sessions are kept in memory only", err->detail);
    }
    p->failing = true;
    pthread_mutex_lock(&p->lock);
    p->report.disk_failures++;
    pthread_mutex_unlock(&p->lock);
}

/* The file is there: from now on the session outlives this process. */
static void note_file(srv_prefix *p, const writing *w, const char *name, int64_t bytes)
{
    node *n = node_of(p, w->tokens, w->count);
    if (!n) {
        srv_cachedir_remove(p->dir, name);
        return;
    }
    if (!n->name[0]) {
        memcpy(n->name, name, sizeof n->name);
        n->disk_bytes = bytes;
        count(p, 0, 0, 1, bytes);
    }
    if (!n->listed) {
        touch(p, n);
    }
    drop_shorter(p, n);
    shrink(p, n);
    tidy(p, &p->root);
}

static bool write_out(srv_prefix *p, const writing *w, char *name, int64_t *disk_bytes, mo_error *err)
{
    uint8_t *bytes = NULL;
    size_t size;
    const bool done =
        mo_snapshot_write(w->held->snapshot, &bytes, &size, err) == MO_OK &&
        srv_cachedir_write(p->dir, w->tokens, w->count, bytes, size, name, disk_bytes, err) == MO_OK;
    mo_free(bytes);
    return done;
}

static void *run_writer(void *arg)
{
    srv_prefix *p = arg;
    pthread_mutex_lock(&p->tree);
    for (;;) {
        while (!p->first && !p->closing) {
            pthread_cond_wait(&p->more, &p->tree);
        }
        writing *w = p->first;
        if (!w) {
            break;
        }
        p->first = w->next;
        p->last = p->first ? p->last : NULL;
        p->now = w;
        char name[SRV_CACHEDIR_NAME];
        int64_t disk_bytes = 0;
        mo_error err = {0};
        const bool wanted = !w->unwanted;
        pthread_mutex_unlock(&p->tree);
        const bool done = wanted && write_out(p, w, name, &disk_bytes, &err);
        pthread_mutex_lock(&p->tree);
        p->now = NULL;
        let_go(w->held);
        p->waiting--;
        if (done && w->unwanted) {
            srv_cachedir_remove(p->dir, name);
        } else if (done) {
            p->failing = false;
            note_file(p, w, name, disk_bytes);
        } else if (wanted) {
            note_failure(p, &err);
        }
        free(w->tokens);
        free(w);
    }
    pthread_mutex_unlock(&p->tree);
    return NULL;
}

static void send_to_disk(srv_prefix *p, node *n, const int32_t *tokens, int64_t length)
{
    if (!p->dir || n->name[0] || p->waiting >= WRITINGS_MAX) {
        return;
    }
    writing *w = calloc(1, sizeof *w);
    int32_t *own = malloc(sizeof *own * (size_t)length);
    if (!w || !own) {
        free(w);
        free(own);
        return;
    }
    memcpy(own, tokens, sizeof *own * (size_t)length);
    n->held->holders++;
    *w = (writing){.held = n->held, .tokens = own, .count = length};
    *(p->last ? &p->last->next : &p->first) = w;
    p->last = w;
    p->waiting++;
    pthread_cond_signal(&p->more);
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

static void found_file(void *user, const char *name, const int32_t *tokens, int64_t length, int64_t bytes)
{
    srv_prefix *p = user;
    node *n = node_of(p, tokens, length);
    if (n && !n->name[0]) {
        strncpy(n->name, name, sizeof n->name - 1);
        n->disk_bytes = bytes;
        count(p, 0, 0, 1, bytes);
        touch(p, n);
    }
}

static mo_status open_directory(srv_prefix *p, mo_error *err)
{
    mo_status status =
        srv_cachedir_open(p->options.directory, p->options.key, p->options.directory_bytes, &p->dir, err);
    if (status == MO_OK) {
        status = srv_cachedir_each(p->dir, found_file, p, err);
    }
    if (status == MO_OK && pthread_create(&p->writer, NULL, run_writer, p) != 0) {
        err->status = status = MO_ENOMEM;
        strcpy(err->detail, "no thread could be started");
    }
    if (status != MO_OK) {
        srv_cachedir_close(p->dir);
        p->dir = NULL;
    }
    return status;
}

mo_status srv_prefix_open(const srv_prefix_options *options, srv_prefix **out, mo_error *err)
{
    srv_prefix *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) {
        err->status = MO_ENOMEM;
        strcpy(err->detail, "no memory for a prefix cache");
        return MO_ENOMEM;
    }
    p->options = *options;
    pthread_mutex_init(&p->tree, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    const mo_status status = options->directory ? open_directory(p, err) : MO_OK;
    p->options.directory = p->options.key = NULL; /* the caller's */
    if (status != MO_OK) {
        srv_prefix_close(p);
        return status;
    }
    *out = p;
    return MO_OK;
}

void srv_prefix_close(srv_prefix *p)
{
    if (!p) {
        return;
    }
    if (p->dir) {
        pthread_mutex_lock(&p->tree);
        p->closing = true;
        pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->tree);
        pthread_join(p->writer, NULL);
    }
    for (node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        drop_ram(p, n);
        n->name[0] = 0; /* the file stays */
    }
    tidy(p, &p->root);
    srv_cachedir_close(p->dir);
    pthread_mutex_destroy(&p->tree);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->more);
    free(p);
}

/* ---- Use -------------------------------------------------------------------------------------- */

/* The node whose snapshot saves most, and how many tokens. */
static node *find(srv_prefix *p, const int32_t *tokens, int64_t length, int64_t *usable)
{
    int64_t matched;
    node *below;
    node *at = walk(p, tokens, length, &matched, &below);
    node *n = p->options.rewinds && matched > 0 ? any_below(below ? below : at) : NULL;
    *usable = matched;
    if (!n) {
        for (n = at; n && !has_snapshot(n); n = n->parent) {
        }
        *usable = n ? n->depth : 0;
    }
    return n && *usable ? n : NULL;
}

const mo_snapshot *srv_prefix_find(srv_prefix *p, const int32_t *tokens, int64_t length, int64_t *usable)
{
    const mo_snapshot *snapshot = NULL;
    node *n;
    pthread_mutex_lock(&p->tree);
    while ((n = find(p, tokens, length, usable)) && !n->held && !load(p, n)) {
        tidy(p, &p->root); /* that one was no good; another may be */
    }
    if (n) {
        touch(p, n);
        shrink(p, n);
        snapshot = n->held->snapshot;
    }
    pthread_mutex_unlock(&p->tree);
    return snapshot;
}

int64_t srv_prefix_common(srv_prefix *p, const int32_t *tokens, int64_t length)
{
    int64_t matched;
    node *below;
    pthread_mutex_lock(&p->tree);
    walk(p, tokens, length, &matched, &below);
    pthread_mutex_unlock(&p->tree);
    return matched;
}

bool srv_prefix_has(srv_prefix *p, const int32_t *tokens, int64_t length)
{
    int64_t usable;
    pthread_mutex_lock(&p->tree);
    node *n = find(p, tokens, length, &usable);
    const bool has = n && usable == length;
    if (has) {
        touch(p, n);
    }
    pthread_mutex_unlock(&p->tree);
    return has;
}

void srv_prefix_keep(srv_prefix *p, const int32_t *tokens, int64_t length, mo_snapshot *snapshot)
{
    pthread_mutex_lock(&p->tree);
    node *n = node_of(p, tokens, length);
    if (!n || n->held || !hold(p, n, snapshot, 0)) {
        if (!n || n->held) {
            mo_snapshot_close(snapshot);
        }
        tidy(p, &p->root);
        pthread_mutex_unlock(&p->tree);
        return;
    }
    send_to_disk(p, n, tokens, length);
    drop_shorter(p, n);
    shrink(p, n);
    tidy(p, &p->root);
    pthread_mutex_unlock(&p->tree);
}

/* One that a writer holds as well stays where it is, and frees nothing. */
static bool is_movable(const node *n)
{
    return n->held && n->held->holders == 1;
}

/* Moves a snapshot from a device to RAM, in the place of older ones if need be. */
static bool spill(srv_prefix *p, node *n)
{
    for (node *older = p->oldest; mo_snapshot_spill(n->held->snapshot, NULL) != MO_OK; older = older->newer) {
        while (older && (older == n || !is_movable(older) || mo_snapshot_on_device(older->held->snapshot))) {
            older = older->newer;
        }
        if (!older) {
            return false;
        }
        drop_ram(p, older);
    }
    return true;
}

bool srv_prefix_make_room(srv_prefix *p, bool (*enough)(void *user), void *user)
{
    bool is_enough = enough(user);
    if (is_enough) {
        return true;
    }
    pthread_mutex_lock(&p->tree);
    for (node *n = p->oldest; n && !is_enough; n = n->newer) {
        if (!is_movable(n)) {
            continue;
        }
        const bool device = mo_snapshot_on_device(n->held->snapshot);
        if (!device || !spill(p, n)) {
            drop_ram(p, n);
        }
        is_enough = enough(user);
    }
    for (node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if (!has_snapshot(n)) {
            leave_list(p, n);
        }
    }
    tidy(p, &p->root);
    pthread_mutex_unlock(&p->tree);
    return is_enough;
}

void srv_prefix_describe(srv_prefix *p, srv_prefix_report *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->report;
    pthread_mutex_unlock(&p->lock);
}

/* ---- For people ------------------------------------------------------------------------------- */

int srv_prefix_list(srv_prefix *p, srv_prefix_entry *out, int limit)
{
    int found = 0;
    pthread_mutex_lock(&p->tree);
    const int64_t now = now_ns();
    for (const node *n = p->oldest; n; n = n->newer, found++) {
        if (found < limit) {
            srv_prefix_entry *e = &out[found];
            *e = (srv_prefix_entry){.number = n->number,
                                    .tokens = n->depth,
                                    .disk_bytes = n->name[0] ? n->disk_bytes : 0,
                                    .idle_s = (double)(now - n->used_ns) * 1e-9};
            if (n->held) {
                e->device = mo_snapshot_on_device(n->held->snapshot);
                e->ram = !e->device;
                e->bytes = mo_snapshot_bytes(n->held->snapshot, &e->all_bytes);
            }
        }
    }
    pthread_mutex_unlock(&p->tree);
    return found;
}

/* What waits to be written, or is being written, is not to be found again. */
static void forget_writing(srv_prefix *p, const holder *held)
{
    for (writing *w = p->first; w; w = w->next) {
        w->unwanted = w->unwanted || w->held == held;
    }
    if (p->now && p->now->held == held) {
        p->now->unwanted = true;
    }
}

int srv_prefix_drop(srv_prefix *p, uint64_t number)
{
    int dropped = 0;
    pthread_mutex_lock(&p->tree);
    for (node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if (number == 0 || n->number == number) {
            if (n->held) {
                forget_writing(p, n->held);
            }
            drop_ram(p, n);
            drop_disk(p, n);
            leave_list(p, n);
            dropped++;
        }
    }
    tidy(p, &p->root);
    pthread_mutex_unlock(&p->tree);
    return dropped;
}
