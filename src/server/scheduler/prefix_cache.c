/* Prefix cache: what prefix.h promises, on the tree and what is kept at its nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "moraine_server.h"
#include "server/scheduler/prefix_parts.h"

/* ---- Opening and closing ---------------------------------------------------------------------- */

static void found_file(void *user, const char *name, const int32_t *tokens, int64_t length, int64_t bytes)
{
    srv_prefix *p = user;
    srv_node *n = srv_prefix_node(p, tokens, length);
    if (n && !n->name[0]) {
        strncpy(n->name, name, sizeof n->name - 1);
        n->disk_bytes = bytes;
        srv_prefix_count(p, 0, 0, 1, bytes);
        srv_prefix_touch(p, n);
    }
}

static mo_status open_directory(srv_prefix *p, mo_error *err)
{
    mo_status status =
        srv_cachedir_open(p->options.directory, p->options.key, p->options.directory_bytes, &p->dir, err);
    if (status == MO_OK) {
        status = srv_cachedir_each(p->dir, found_file, p, err);
    }
    if (status == MO_OK && pthread_create(&p->writer, NULL, srv_prefix_run_writer, p) != 0) {
        err->status = status = MO_ENOMEM;
        strcpy(err->detail, "cannot start a thread");
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
        strcpy(err->detail, "out of memory for a prefix cache");
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
    srv_prefix_let_go(p->lent);
    for (srv_node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        srv_prefix_drop_ram(p, n);
        n->name[0] = 0; /* the file stays */
    }
    srv_prefix_tidy(p, &p->root);
    srv_cachedir_close(p->dir);
    pthread_mutex_destroy(&p->tree);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->more);
    free(p);
}

/* ---- Use -------------------------------------------------------------------------------------- */

/* The ways of a search: of the owner's own, and of what is for all. */
typedef struct ways {
    srv_way way[2];
    int count;
} ways;

static void ways_free(ways *w)
{
    for (int i = 0; i < w->count; i++) {
        free(w->way[i].own);
    }
}

/* False: no memory. */
static bool ways_open(const srv_prefix_key *key, ways *out)
{
    *out = (ways){.count = 1};
    if (!srv_way_open(key, key->owner, &out->way[0])) {
        return false;
    }
    if (key->owner) {
        out->count += srv_way_open(key, 0, &out->way[1]);
    }
    return true;
}

/* The node whose snapshot saves most, and how many tokens. */
static srv_node *find_on(srv_prefix *p, const srv_way *w, int64_t *usable)
{
    int64_t matched;
    srv_node *below;
    srv_node *at = srv_prefix_match(p, w->tokens, w->count, &matched, &below);
    srv_node *n = p->options.rewinds && matched > w->marks ? srv_node_any_below(below ? below : at) : NULL;
    *usable = matched - w->marks;
    if (!n) {
        for (n = at; n && !srv_node_has_snapshot(n); n = n->parent) {
        }
        *usable = n ? n->depth - w->marks : 0;
    }
    *usable = *usable > 0 ? *usable : 0;
    return n && *usable ? n : NULL;
}

static srv_node *find(srv_prefix *p, const ways *w, int64_t *usable)
{
    srv_node *best = NULL;
    *usable = 0;
    for (int i = 0; i < w->count; i++) {
        int64_t saved;
        srv_node *n = find_on(p, &w->way[i], &saved);
        if (n && saved > *usable) {
            best = n;
            *usable = saved;
        }
    }
    return best;
}

const mo_snapshot *srv_prefix_find(srv_prefix *p, const srv_prefix_key *key, int64_t *usable)
{
    const mo_snapshot *snapshot = NULL;
    srv_node *n;
    ways w;
    *usable = 0;
    if (!ways_open(key, &w)) {
        return NULL;
    }
    pthread_mutex_lock(&p->tree);
    srv_prefix_let_go(p->lent);
    p->lent = NULL;
    bool memory = true;
    while ((n = find(p, &w, usable)) && !n->held && memory) {
        memory = srv_prefix_load(p, n);
        srv_prefix_tidy(p, &p->root); /* it may have been no good; another may be */
    }
    if (n && !n->held) {
        n = NULL;
        *usable = 0;
    }
    if (n) {
        srv_prefix_touch(p, n);
        srv_prefix_shrink(p, n);
        p->lent = n->held;
        p->lent->holders++;
        snapshot = p->lent->snapshot;
    }
    pthread_mutex_unlock(&p->tree);
    ways_free(&w);
    return snapshot;
}

void srv_prefix_return(srv_prefix *p)
{
    pthread_mutex_lock(&p->tree);
    srv_prefix_let_go(p->lent);
    p->lent = NULL;
    pthread_mutex_unlock(&p->tree);
}

/* With the tree's lock. */
static int64_t common_on(const srv_prefix *p, const srv_way *w)
{
    int64_t matched;
    srv_node *below;
    srv_prefix_match(p, w->tokens, w->count, &matched, &below);
    return matched > w->marks ? matched - w->marks : 0;
}

int64_t srv_prefix_common(srv_prefix *p, const srv_prefix_key *key)
{
    int64_t most = 0;
    ways w;
    if (!ways_open(key, &w)) {
        return 0;
    }
    pthread_mutex_lock(&p->tree);
    for (int i = 0; i < w.count; i++) {
        const int64_t common = common_on(p, &w.way[i]);
        most = common > most ? common : most;
    }
    pthread_mutex_unlock(&p->tree);
    ways_free(&w);
    return most;
}

/* The number of the one that serves exactly this sequence; touched: it counts as used. */
static uint64_t number_of(srv_prefix *p, const srv_prefix_key *key, bool touched)
{
    int64_t usable;
    uint64_t number = 0;
    ways w;
    if (!ways_open(key, &w)) {
        return 0;
    }
    pthread_mutex_lock(&p->tree);
    srv_node *n = find(p, &w, &usable);
    if (n && usable == key->count) {
        number = n->number;
        if (touched) {
            srv_prefix_touch(p, n);
        }
    }
    pthread_mutex_unlock(&p->tree);
    ways_free(&w);
    return number;
}

bool srv_prefix_has(srv_prefix *p, const srv_prefix_key *key)
{
    return number_of(p, key, true) != 0;
}

/* One in memory that has most of the way in common and stays: not one that is all beginning of this one and goes when this one is kept
 * (srv_prefix_drop_shorter()). */
static const mo_snapshot *beside(const srv_prefix *p, const srv_way *w)
{
    int64_t matched;
    srv_node *below;
    srv_node *at = srv_prefix_match(p, w->tokens, w->count, &matched, &below);
    for (const srv_node *own = NULL; at && at->depth >= w->marks; own = at, at = at->parent) {
        if (!p->options.rewinds && at->held) {
            return at->held->snapshot;
        }
        for (srv_node *child = at->child; child; child = child->sibling) {
            const srv_node *other = child != own ? srv_node_any_below(child) : NULL;
            if (other && other->held && (!below || child == below)) {
                return other->held->snapshot;
            }
        }
        below = NULL;
    }
    return NULL;
}

/* Where the sequence parts from another, in the middle of a block, it keeps only what is its own there. What fails costs memory alone. */
static void make_delta(const srv_prefix *p, const srv_way *w, mo_snapshot *snapshot)
{
    const mo_snapshot *on = beside(p, w);
    if (on) {
        mo_snapshot_lean(snapshot, on, NULL);
    }
}

static void keep(srv_prefix *p, const srv_way *w, mo_snapshot *snapshot)
{
    make_delta(p, w, snapshot);
    srv_node *n = srv_prefix_node(p, w->tokens, w->count);
    if (!n || n->held || !srv_prefix_hold(p, n, snapshot, 0)) {
        if (!n || n->held) {
            mo_snapshot_close(snapshot);
        }
        srv_prefix_tidy(p, &p->root);
        return;
    }
    srv_prefix_write(p, n, w->tokens, w->count);
    srv_prefix_drop_shorter(p, n);
    srv_prefix_shrink(p, n);
    srv_prefix_tidy(p, &p->root);
}

void srv_prefix_keep(srv_prefix *p, const srv_prefix_key *key, mo_snapshot *snapshot)
{
    ways w;
    if (!ways_open(key, &w)) {
        mo_snapshot_close(snapshot);
        return;
    }
    pthread_mutex_lock(&p->tree);
    const bool for_all = w.count > 1 && common_on(p, &w.way[1]) == key->count;
    keep(p, &w.way[for_all], snapshot);
    pthread_mutex_unlock(&p->tree);
    ways_free(&w);
}

/* One that a writer or a borrower holds as well stays where it is, and frees nothing. */
static bool is_movable(const srv_node *n)
{
    return n->held && n->held->holders == 1;
}

/* Moves a snapshot from a device to RAM, in the place of older ones where memory is short. A device that is lost is no reason to
 * drop what is in RAM. */
static bool spill(srv_prefix *p, srv_node *n)
{
    mo_status status;
    for (srv_node *older = p->oldest; (status = mo_snapshot_spill(n->held->snapshot, NULL)) != MO_OK;
         older = older->newer) {
        if (status != MO_ENOMEM) {
            return false;
        }
        while (older && (older == n || older->pinned || !is_movable(older) ||
                         mo_snapshot_on_device(older->held->snapshot))) {
            older = older->newer;
        }
        if (!older) {
            return false;
        }
        srv_prefix_drop_ram(p, older);
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
    for (int pinned = 0; pinned < 2; pinned++) {
        for (srv_node *n = p->oldest; n && !is_enough; n = n->newer) {
            if (!is_movable(n) || n->pinned != (pinned > 0)) {
                continue;
            }
            const bool device = mo_snapshot_on_device(n->held->snapshot);
            if (!device || !spill(p, n)) {
                srv_prefix_drop_ram(p, n);
            }
            is_enough = enough(user);
        }
    }
    for (srv_node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if (!srv_node_has_snapshot(n)) {
            srv_prefix_unlist(p, n);
        }
    }
    srv_prefix_tidy(p, &p->root);
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

int srv_prefix_list(srv_prefix *p, const srv_caller *caller, srv_prefix_entry *out, int limit)
{
    int found = 0;
    pthread_mutex_lock(&p->tree);
    const int64_t now = mo_clock_ns();
    for (const srv_node *n = p->oldest; n; n = n->newer) {
        if (!srv_caller_sees(caller, n->owner)) {
            continue;
        }
        if (found++ < limit) {
            srv_prefix_entry *e = &out[found - 1];
            *e = (srv_prefix_entry){.number = n->number,
                                    .tokens = n->depth - n->marks,
                                    .disk_bytes = n->name[0] ? n->disk_bytes : 0,
                                    .idle_s = (double)(now - n->used_ns) * 1e-9,
                                    .pinned = n->pinned};
            memcpy(e->name, n->label, sizeof e->name);
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

bool srv_prefix_want(srv_prefix *p, uint64_t number, const srv_caller *caller,
                     const srv_prefix_wanted *wanted)
{
    pthread_mutex_lock(&p->tree);
    srv_node *n = p->oldest;
    while (n && (n->number != number || !srv_caller_changes(caller, n->owner))) {
        n = n->newer;
    }
    if (n) {
        n->pinned = wanted->set_pin ? wanted->pin : n->pinned;
        if (wanted->name) {
            strncpy(n->label, wanted->name, sizeof n->label - 1);
        }
    }
    pthread_mutex_unlock(&p->tree);
    return n != NULL;
}

uint64_t srv_prefix_number(srv_prefix *p, const srv_prefix_key *key)
{
    return number_of(p, key, false);
}

int srv_prefix_drop(srv_prefix *p, uint64_t number, const srv_caller *caller)
{
    int dropped = 0;
    pthread_mutex_lock(&p->tree);
    for (srv_node *n = p->oldest, *newer; n; n = newer) {
        newer = n->newer;
        if ((number == 0 || n->number == number) && srv_caller_changes(caller, n->owner)) {
            if (n->held) {
                srv_prefix_unwrite(p, n->held);
            }
            srv_prefix_drop_ram(p, n);
            srv_prefix_drop_disk(p, n);
            srv_prefix_unlist(p, n);
            dropped++;
        }
    }
    srv_prefix_tidy(p, &p->root);
    pthread_mutex_unlock(&p->tree);
    return dropped;
}
