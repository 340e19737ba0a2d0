/* Memory: what is kept of sessions lies in the memory of those that run, and makes room for them. */
#include "server/scheduler/scheduler.h"

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
    const srv_prefix_key key = {mo_session_adapters(s->session), s->tokens, count};
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
        r.need += mo_session_need(s->session, e->feeds[i].count - s->held);
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
