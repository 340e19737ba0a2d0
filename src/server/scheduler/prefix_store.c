/* Prefix store: snapshots at the nodes of the tree, in memory and in a directory, and the thread that writes them there. */
#include <stdlib.h>
#include <string.h>

#include "moraine_server.h"
#include "server/common/log.h"
#include "server/scheduler/prefix_parts.h"

enum { WRITINGS_MAX = 64 }; /* snapshots that wait for the disk hold memory: further ones are not written */

/* ---- RAM and disk ----------------------------------------------------------------------------- */

void srv_prefix_let_go(srv_snapshot_ref *h)
{
    if (h && --h->holders == 0) {
        mo_snapshot_close(h->snapshot);
        free(h);
    }
}

void srv_prefix_drop_ram(srv_prefix *p, srv_node *n)
{
    if (n->held) {
        srv_prefix_count(p, -1, -n->bytes, 0, 0);
        srv_prefix_let_go(n->held);
        n->held = NULL;
    }
}

void srv_prefix_drop_disk(srv_prefix *p, srv_node *n)
{
    if (n->name[0]) {
        srv_cachedir_remove(p->dir, n->name);
        n->name[0] = 0;
        srv_prefix_count(p, 0, 0, -1, -n->disk_bytes);
    }
}

/* What was used longest ago goes until the directory's budget is kept; `spared` stays. */
void srv_prefix_shrink(srv_prefix *p, const srv_node *spared)
{
    for (srv_node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if (n != spared && !n->pinned && n->name[0] && p->disk_bytes > p->options.directory_bytes) {
            srv_prefix_drop_disk(p, n);
        }
        if (!srv_node_has_snapshot(n)) {
            srv_prefix_unlist(p, n);
        }
    }
}

/* Prunes what srv_prefix_shrink() emptied. */
void srv_prefix_tidy(srv_prefix *p, srv_node *n)
{
    for (srv_node *child = n->child, *next; child; child = next) {
        next = child->sibling;
        srv_prefix_tidy(p, child);
    }
    if (n != &p->root && !n->child && !srv_node_has_snapshot(n)) {
        srv_node **at = &n->parent->child;
        while (*at != n) {
            at = &(*at)->sibling;
        }
        *at = n->sibling;
        srv_prefix_unlist(p, n);
        free(n->tokens);
        free(n);
    }
}

/* Where sessions can go back, this one serves those it continues as well. Their files stay until its own is there, so that none
 * is lost whatever happens meanwhile. */
void srv_prefix_drop_shorter(srv_prefix *p, const srv_node *n)
{
    for (srv_node *up = n->parent; p->options.rewinds && up; up = up->parent) {
        if (up->pinned) {
            continue;
        }
        if (n->held) {
            srv_prefix_drop_ram(p, up);
        }
        if (n->name[0]) {
            srv_prefix_drop_disk(p, up);
        }
        if (!srv_node_has_snapshot(up)) {
            srv_prefix_unlist(p, up);
        }
    }
}

bool srv_prefix_hold(srv_prefix *p, srv_node *n, mo_snapshot *snapshot, int64_t bytes)
{
    srv_snapshot_ref *h = malloc(sizeof *h);
    if (!h) {
        mo_snapshot_close(snapshot);
        return false;
    }
    *h = (srv_snapshot_ref){snapshot, 1};
    n->held = h;
    n->bytes = bytes;
    srv_prefix_count(p, 1, bytes, 0, 0);
    srv_prefix_touch(p, n);
    return true;
}

static void path_of(const srv_node *n, int32_t *out)
{
    for (; n->parent; n = n->parent) {
        memcpy(out + n->depth - n->count, n->tokens, sizeof *out * (size_t)n->count);
    }
}

/* Is it of exactly these tokens? What stands for adapters before them is below 0. */
static bool holds(const mo_snapshot *snapshot, const int32_t *tokens, int64_t count)
{
    while (count > 0 && *tokens < 0) {
        tokens++;
        count--;
    }
    return mo_snapshot_length(snapshot) == count &&
           memcmp(mo_snapshot_tokens(snapshot), tokens, sizeof *tokens * (size_t)count) == 0;
}

/* Without the tree's lock; NULL: it is of no use. */
static mo_snapshot *read_file(srv_prefix *p, const char *name, const int32_t *tokens, int64_t count,
                              size_t *size)
{
    uint8_t *bytes = NULL;
    mo_snapshot *snapshot = NULL;
    if (srv_cachedir_read(p->dir, name, tokens, count, &bytes, size, NULL) == MO_OK) {
        mo_snapshot_read(p->options.model, bytes, *size, &snapshot, NULL);
    }
    free(bytes);
    if (snapshot && !holds(snapshot, tokens, count)) {
        mo_snapshot_close(snapshot);
        snapshot = NULL;
    }
    return snapshot;
}

static srv_node *node_of_file(const srv_prefix *p, const char *name)
{
    srv_node *n = p->oldest;
    while (n && strcmp(n->name, name) != 0) {
        n = n->newer;
    }
    return n;
}

bool srv_prefix_load(srv_prefix *p, const srv_node *node)
{
    char name[SRV_CACHEDIR_NAME];
    const int64_t count = node->depth;
    size_t size = 0;
    int32_t *tokens = calloc((size_t)count + 1, sizeof *tokens);
    if (!tokens) {
        return false;
    }
    path_of(node, tokens);
    memcpy(name, node->name, sizeof name);
    pthread_mutex_unlock(&p->tree);
    mo_snapshot *snapshot = read_file(p, name, tokens, count, &size);
    pthread_mutex_lock(&p->tree);
    free(tokens);
    srv_node *n = node_of_file(p, name); /* the node itself may be gone */
    if (!n || n->held) {
        mo_snapshot_close(snapshot);
        return true;
    }
    if (snapshot) {
        return srv_prefix_hold(p, n, snapshot, (int64_t)size);
    }
    srv_prefix_drop_disk(p, n);
    return true;
}

/* ---- The writer ------------------------------------------------------------------------------- */

/* Loud, and once until a write goes well again. */
static void note_failure(srv_prefix *p, const mo_error *err)
{
    if (!p->failing) {
        srv_say(MO_LOG_WARN, "cache", "%s; sessions are cached in memory only", err->detail);
    }
    p->failing = true;
    pthread_mutex_lock(&p->lock);
    p->report.disk_failures++;
    pthread_mutex_unlock(&p->lock);
}

/* The file is there: from now on the session outlives this process. */
static void note_file(srv_prefix *p, const srv_writing *w, const char *name, int64_t bytes)
{
    srv_node *n = srv_prefix_node(p, w->tokens, w->count);
    if (!n) {
        srv_cachedir_remove(p->dir, name);
        return;
    }
    if (!n->name[0]) {
        memcpy(n->name, name, sizeof n->name);
        n->disk_bytes = bytes;
        srv_prefix_count(p, 0, 0, 1, bytes);
    }
    if (!n->listed) {
        srv_prefix_touch(p, n);
    }
    srv_prefix_drop_shorter(p, n);
    srv_prefix_shrink(p, n);
    srv_prefix_tidy(p, &p->root);
}

static bool write_out(srv_prefix *p, const srv_writing *w, char *name, int64_t *disk_bytes, mo_error *err)
{
    uint8_t *bytes = NULL;
    size_t size;
    const bool done =
        mo_snapshot_write(w->held->snapshot, &bytes, &size, err) == MO_OK &&
        srv_cachedir_write(p->dir, w->tokens, w->count, bytes, size, name, disk_bytes, err) == MO_OK;
    mo_free(bytes);
    return done;
}

void *srv_prefix_run_writer(void *arg)
{
    srv_prefix *p = arg;
    pthread_mutex_lock(&p->tree);
    for (;;) {
        while (!p->first && !p->closing) {
            pthread_cond_wait(&p->more, &p->tree);
        }
        srv_writing *w = p->first;
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
        srv_prefix_let_go(w->held);
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

void srv_prefix_write(srv_prefix *p, srv_node *n, const int32_t *tokens, int64_t length)
{
    if (!p->dir || n->name[0] || p->waiting >= WRITINGS_MAX) {
        return;
    }
    srv_writing *w = calloc(1, sizeof *w);
    int32_t *own = malloc(sizeof *own * (size_t)length);
    if (!w || !own) {
        free(w);
        free(own);
        return;
    }
    memcpy(own, tokens, sizeof *own * (size_t)length);
    n->held->holders++;
    *w = (srv_writing){.held = n->held, .tokens = own, .count = length};
    *(p->last ? &p->last->next : &p->first) = w;
    p->last = w;
    p->waiting++;
    pthread_cond_signal(&p->more);
}

/* What waits to be written, or is being written, is not to be found again. */
void srv_prefix_unwrite(srv_prefix *p, const srv_snapshot_ref *held)
{
    for (srv_writing *w = p->first; w; w = w->next) {
        w->unwanted = w->unwanted || w->held == held;
    }
    if (p->now && p->now->held == held) {
        p->now->unwanted = true;
    }
}
