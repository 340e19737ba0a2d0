/* Kept: see kept.h. */
#include "server/scheduler/kept.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/scheduler/scheduler.h"

/* Memory: cached sessions share the memory of running ones, and are evicted for them. */

/* What the next step needs of blocks. */
typedef struct demand {
    srv_engine *engine;
    uint64_t need;
} demand;

static bool has_room(void *user)
{
    const demand *r = user;
    mo_kept_report blocks;
    mo_model_kept(r->engine->model, &blocks, sizeof blocks);
    return blocks.free_bytes >= (int64_t)r->need &&
           blocks.snapshot_bytes + blocks.spilled_bytes + blocks.row_bytes <= r->engine->options.cache_bytes;
}

void srv_memory_keep(srv_engine *e, srv_sequence *s, int64_t count)
{
    mo_snapshot *snapshot;
    const srv_prefix_key key = {mo_session_adapters(s->session), s->tokens, count, s->owner};
    if (!e->prefix || s->dirty || count < SRV_WORTHWHILE || srv_prefix_has(e->prefix, &key) ||
        mo_snapshot_open(s->session, &snapshot, NULL) != MO_OK) {
        return; /* it is computed again when it is needed */
    }
    srv_prefix_keep(e->prefix, &key, snapshot);
    srv_prefix_make_room(e->prefix, has_room, &(demand){.engine = e});
}

/* Kept sessions may be in memory that those who run need now. */
void srv_memory_make_room(srv_engine *e, int count)
{
    demand r = {.engine = e};
    srv_prefix_report kept = {0};
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    if (!kept.kept) {
        return;
    }
    for (int i = 0; i < count; i++) {
        const srv_sequence *s = &e->sequences[e->fed[i]];
        r.need += mo_session_need(s->session, s->piece ? s->piece : s->count - s->held);
    }
    srv_prefix_make_room(e->prefix, has_room, &r);
}

void srv_memory_make_room_for(srv_engine *e, uint64_t bytes)
{
    if (e->prefix) {
        srv_prefix_make_room(e->prefix, has_room, &(demand){.engine = e, .need = bytes});
    }
}

static bool never(void *user)
{
    (void)user;
    return false;
}

bool srv_memory_drop_kept(srv_engine *e)
{
    srv_prefix_report kept = {0};
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    if (kept.kept) {
        srv_prefix_make_room(e->prefix, never, NULL);
    }
    return kept.kept > 0;
}

static const char of_cache[] = "prefix-", of_sequence[] = "sequence-";

/* The number of an id that begins like that, above 0; 0: it is another's. */
static uint64_t number_of(const char *id, const char *prefix)
{
    const size_t length = strlen(prefix);
    char *end;
    if (strncmp(id, prefix, length) != 0 || id[length] < '0' || id[length] > '9') {
        return 0;
    }
    const uint64_t number = strtoull(id + length, &end, 10);
    return *end ? 0 : number;
}

/* For unused ones; with the engine's lock. */
static int list_sequences(const srv_engine *e, const srv_caller *caller, srv_kept_report *out, int limit)
{
    int found = 0;
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        if (s->task || s->held == 0 || !srv_caller_sees(caller, s->owner)) {
            continue;
        }
        if (found < limit) {
            out[found] = (srv_kept_report){.tokens = s->held, .sequence = true, .idle_s = -1};
            snprintf(out[found].id, sizeof out[found].id, "%s%d", of_sequence, i + 1);
        }
        found++;
    }
    return found;
}

static int list_prefixes(srv_prefix *prefix, const srv_caller *caller, srv_kept_report *out, int limit)
{
    srv_prefix_entry *list = limit > 0 ? malloc((size_t)limit * sizeof *list) : NULL;
    const int found = srv_prefix_list(prefix, caller, list, list ? limit : 0);
    for (int i = 0; list && i < found && i < limit; i++) {
        const srv_prefix_entry *p = &list[i];
        out[i] = (srv_kept_report){.tokens = p->tokens,
                                   .ram = p->ram,
                                   .device = p->device,
                                   .bytes = p->bytes,
                                   .all_bytes = p->all_bytes,
                                   .disk_bytes = p->disk_bytes,
                                   .idle_s = p->idle_s,
                                   .pinned = p->pinned};
        memcpy(out[i].name, p->name, sizeof out[i].name);
        snprintf(out[i].id, sizeof out[i].id, "%s%llu", of_cache, (unsigned long long)p->number);
    }
    free(list);
    return found;
}

int srv_engine_kept(srv_engine *e, const srv_caller *caller, srv_kept_report *out, int limit)
{
    pthread_mutex_lock(&e->lock);
    const int sequences = list_sequences(e, caller, out, limit);
    pthread_mutex_unlock(&e->lock);
    const int written = sequences < limit ? sequences : limit;
    return sequences + (e->prefix ? list_prefixes(e->prefix, caller, out + written, limit - written) : 0);
}

/* ---- Changing: on the engine's thread, which uses sequences and cache ---- */

typedef struct changing {
    srv_engine *engine;
    const char *id;
    const srv_caller *caller;
    const srv_prefix_wanted *wanted;
    uint64_t number; /* 0: there is none */
    bool unkept;     /* there is one that cannot be kept */
} changing;

static void change(void *user)
{
    changing *c = user;
    srv_engine *e = c->engine;
    const uint64_t slot = number_of(c->id, of_sequence);
    c->number = number_of(c->id, of_cache);
    if (slot > 0 && slot <= (uint64_t)e->parallel) {
        srv_sequence *s = &e->sequences[slot - 1];
        c->unkept = !s->task && s->held > 0 && srv_caller_changes(c->caller, s->owner);
        if (c->unkept && e->prefix) {
            srv_memory_keep(e, s, s->held);
            c->number = srv_prefix_number(
                e->prefix, &(srv_prefix_key){mo_session_adapters(s->session), s->tokens, s->held, s->owner});
        }
    }
    if (!e->prefix || !srv_prefix_want(e->prefix, c->number, c->caller, c->wanted)) {
        c->number = 0;
    }
}

mo_status srv_engine_change_kept(srv_engine *e, const char *id, const srv_caller *caller,
                                 const srv_prefix_wanted *wanted, char now[32], mo_error *err)
{
    changing c = {.engine = e, .id = id, .caller = caller, .wanted = wanted};
    srv_engine_between_steps(e, change, &c);
    snprintf(now, 32, "%s%llu", of_cache, (unsigned long long)c.number);
    if (c.number) {
        return MO_OK;
    }
    err->status = c.unkept ? MO_EUNSUPPORTED : MO_ENOENT;
    snprintf(err->detail, sizeof err->detail, "%s",
             c.unkept ? "it is too short to be cached, or caching is off for this model"
                      : "no session with that id is cached");
    return err->status;
}

/* ---- Forgetting: likewise ---- */

typedef struct dropping {
    srv_engine *engine;
    const char *id; /* NULL: all */
    const srv_caller *caller;
    int dropped;
} dropping;

static void drop(void *user)
{
    dropping *d = user;
    srv_engine *e = d->engine;
    const uint64_t number = d->id ? number_of(d->id, of_cache) : 0;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const bool meant = !d->id || number_of(d->id, of_sequence) == (uint64_t)i + 1;
        if (meant && !s->task && s->held > 0 && srv_caller_changes(d->caller, s->owner) &&
            mo_session_restore(s->session, e->empty, -1, NULL) == MO_OK) {
            pthread_mutex_lock(&e->lock);
            s->held = s->count = 0;
            pthread_mutex_unlock(&e->lock);
            d->dropped++;
        }
    }
    if (e->prefix && (!d->id || number)) {
        d->dropped += srv_prefix_drop(e->prefix, number, d->caller);
    }
}

void srv_engine_trim(srv_engine *e)
{
    mo_model_trim(e->model);
    malloc_trim(0);
}

int srv_engine_drop_kept(srv_engine *e, const char *id, const srv_caller *caller)
{
    dropping d = {.engine = e, .id = id, .caller = caller};
    srv_engine_between_steps(e, drop, &d);
    if (d.dropped > 0) {
        srv_engine_trim(e);
    }
    return d.dropped;
}
