/* Prefix tree: the sequences of tokens that are known, with what they have in common stored once. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/scheduler/prefix_parts.h"

void srv_prefix_count(srv_prefix *p, int kept, int64_t bytes, int disk_kept, int64_t disk_bytes)
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

void srv_prefix_unlist(srv_prefix *p, srv_node *n)
{
    if (n->listed) {
        *(n->older ? &n->older->newer : &p->oldest) = n->newer;
        *(n->newer ? &n->newer->older : &p->newest) = n->older;
        n->older = n->newer = NULL;
        n->listed = false;
    }
}

void srv_prefix_touch(srv_prefix *p, srv_node *n)
{
    n->number = n->number ? n->number : ++p->numbers;
    n->used_ns = mo_clock_ns();
    srv_prefix_unlist(p, n);
    n->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = n;
    p->newest = n;
    n->listed = true;
}

/* The deepest node that the tokens begin with. *matched: tokens that are alike, those of the edge to *below included, which
 * they leave within; NULL: they leave at the node. */
srv_node *srv_prefix_match(const srv_prefix *p, const int32_t *tokens, int64_t count, int64_t *matched,
                           srv_node **below)
{
    const srv_node *at = &p->root;
    *matched = 0;
    *below = NULL;
    for (;;) {
        srv_node *next = at->child;
        while (next && (*matched == count || next->tokens[0] != tokens[*matched])) {
            next = next->sibling;
        }
        if (!next) {
            return (srv_node *)at;
        }
        const int64_t alike =
            srv_tokens_alike(next->tokens, next->count, tokens + *matched, count - *matched);
        *matched += alike;
        if (alike < next->count) {
            *below = next;
            return (srv_node *)at;
        }
        at = next;
    }
}

bool srv_node_has_snapshot(const srv_node *n)
{
    return n->held || n->name[0];
}

/* A snapshot at the node or below, one in RAM before one on disk. */
srv_node *srv_node_any_below(srv_node *n)
{
    srv_node *on_disk = NULL;
    for (srv_node *at = n; at;) {
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
static void prune(srv_prefix *p, srv_node *n)
{
    while (n != &p->root && !n->child && !srv_node_has_snapshot(n)) {
        srv_node *parent = n->parent;
        srv_node **at = &parent->child;
        while (*at != n) {
            at = &(*at)->sibling;
        }
        *at = n->sibling;
        srv_prefix_unlist(p, n);
        free(n->tokens);
        free(n);
        n = parent;
    }
}

/* Splits the edge to the node after this many tokens. NULL: out of memory. */
static srv_node *split(srv_node *n, int64_t at)
{
    srv_node *upper = calloc(1, sizeof *upper);
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
    srv_node **link = &n->parent->child;
    while (*link != n) {
        link = &(*link)->sibling;
    }
    *link = upper;
    *upper = (srv_node){.parent = n->parent,
                        .child = n,
                        .sibling = n->sibling,
                        .tokens = first,
                        .count = at,
                        .depth = n->depth - n->count + at,
                        .owner = n->owner,
                        .marks = n->marks};
    free(n->tokens);
    n->tokens = second;
    n->count -= at;
    n->parent = upper;
    n->sibling = NULL;
    return upper;
}

/* The node of exactly these tokens, made if need be. NULL: no memory. */
srv_node *srv_prefix_node(srv_prefix *p, const int32_t *tokens, int64_t count)
{
    int64_t matched;
    srv_node *below;
    srv_node *at = srv_prefix_match(p, tokens, count, &matched, &below);
    if (below) {
        at = split(below, matched - at->depth);
    }
    if (!at || matched == count) {
        return at;
    }
    srv_node *n = calloc(1, sizeof *n);
    int32_t *own = malloc(sizeof *own * (size_t)(count - matched));
    if (!n || !own) {
        free(n);
        free(own);
        prune(p, at);
        return NULL;
    }
    memcpy(own, tokens + matched, sizeof *own * (size_t)(count - matched));
    *n = (srv_node){
        .parent = at, .sibling = at->child, .tokens = own, .count = count - matched, .depth = count};
    n->marks = srv_way_marks(tokens, count, &n->owner);
    at->child = n;
    return n;
}
