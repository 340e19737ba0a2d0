#include "cluster/leader.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/forward.h"
#include "engine/logits.h"

/* What is not told yet. */
typedef struct orders {
    mo_wire_order *list;
    int count, limit;
} orders;

struct mo_leader {
    mo_relay relay;
    mo_link *link;
    mo_engine *engine;
    int *first;           /* [ranks + 1] */
    pthread_mutex_t lock; /* guards what follows */
    orders pending;
    int64_t numbers;
    bool untold; /* memory was out: others hold what nobody can name any more */

    /* Of the message that is made, under the engine's lock: */
    mo_wire_head head;
    orders told;
    mo_wire_slice slices[MO_WIRE_SLICES];
    int32_t *tokens; /* [batch] */
    mo_wire_result result;
};

/* ---- Orders ------------------------------------------------------------------------------------ */

/* number, where it is not NULL, gets a new one, which is that of the order's state or snapshot. */
static mo_status add_order(mo_leader *l, mo_wire_order order, int64_t *number, mo_error *err)
{
    mo_status status = MO_OK;
    pthread_mutex_lock(&l->lock);
    if (l->pending.count == l->pending.limit) {
        const int limit = l->pending.limit * 2;
        mo_wire_order *more = realloc(l->pending.list, sizeof *more * (size_t)limit);
        if (more) {
            l->pending.list = more;
            l->pending.limit = limit;
        } else {
            l->untold |= number == NULL;
            status = mo_fail(err, MO_ENOMEM, "no memory for what other ranks are to be told");
        }
    }
    if (status == MO_OK) {
        if (number) {
            *number = ++l->numbers;
            *(order.change == MO_WIRE_STATE_OPENS ? &order.state : &order.snapshot) = *number;
        }
        l->pending.list[l->pending.count++] = order;
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

static mo_status open_state(void *owner, mo_kv_type kv, int64_t context, int64_t *number, mo_error *err)
{
    const mo_wire_order order = {.change = MO_WIRE_STATE_OPENS, .kv = (int32_t)kv, .length = context};
    return add_order(owner, order, number, err);
}

static void close_state(void *owner, int64_t number)
{
    add_order(owner, (mo_wire_order){.change = MO_WIRE_STATE_CLOSES, .state = number}, NULL, NULL);
}

static mo_status open_snapshot(void *owner, int64_t state, int64_t *number, mo_error *err)
{
    return add_order(owner, (mo_wire_order){.change = MO_WIRE_SNAPSHOT_OPENS, .state = state}, number, err);
}

static void close_snapshot(void *owner, int64_t number)
{
    add_order(owner, (mo_wire_order){.change = MO_WIRE_SNAPSHOT_CLOSES, .snapshot = number}, NULL, NULL);
}

static mo_status restore(void *owner, int64_t state, int64_t snapshot, int64_t length, mo_error *err)
{
    const mo_wire_order order = {
        .change = MO_WIRE_RESTORES, .state = state, .snapshot = snapshot, .length = length};
    return add_order(owner, order, NULL, err);
}

/* ---- Heads ------------------------------------------------------------------------------------- */

/* Sends a head to rank 1, with the orders that are not told yet. What follows it is sent by the caller. */
static mo_status send_head(mo_leader *l, mo_wire_kind kind, mo_error *err)
{
    mo_status status = mo_link_flush(l->link, err); /* what is sent from here may change now */
    if (status != MO_OK) {
        return status;
    }
    pthread_mutex_lock(&l->lock);
    const orders told = l->told;
    l->told = l->pending;
    l->pending = told;
    l->pending.count = 0;
    const bool untold = l->untold;
    pthread_mutex_unlock(&l->lock);
    if (untold) {
        return mo_fail(err, MO_ENOMEM,
                       "memory was out when other ranks had to be told something; start anew");
    }
    l->head.order = MO_WIRE_ORDER;
    l->head.kind = kind;
    l->head.serial = mo_link_next_serial(l->link);
    l->head.order_count = l->told.count;
    status = mo_link_send(l->link, 1, &l->head, sizeof l->head, err);
    return status != MO_OK
               ? status
               : mo_link_send(l->link, 1, l->told.list, sizeof *l->told.list * (size_t)l->told.count, err);
}

/* The answer of a rank; its failure becomes ours. */
static mo_status receive_result(mo_leader *l, int from, mo_error *err)
{
    mo_wire_result *r = &l->result;
    const mo_status status = mo_link_receive(l->link, from, r, sizeof *r, false, err);
    if (status != MO_OK || r->status == MO_OK) {
        return status;
    }
    return mo_fail(err, (mo_status)r->status, "rank %d: %.*s", r->rank, MO_WIRE_TEXT, r->detail);
}

/* ---- Steps ------------------------------------------------------------------------------------- */

static void list_slices(mo_leader *l, const mo_forward *f)
{
    int64_t t = 0;
    for (int i = 0; i < f->slice_count; i++) {
        const mo_slice *s = &f->slices[i];
        l->slices[i] = (mo_wire_slice){.state = s->state->number,
                                       .position = s->state->length,
                                       .count = s->count,
                                       .wanted = s->logits ? s->count - s->logits_from : 0,
                                       .prompt = s->prompt};
        memcpy(l->tokens + t, s->tokens, sizeof *l->tokens * (size_t)s->count);
        t += s->count;
    }
    l->head.slice_count = f->slice_count;
    l->head.tokens = t;
}

/* The rows that came back, from the beginning of the stream to where their tokens are. */
static void spread_rows(const mo_forward *f, int64_t rows)
{
    const int64_t width = f->spec->width;
    for (int64_t i = rows - 1; i >= 0; i--) {
        const int64_t token = f->w->logits_token[i];
        if (token != i) {
            memmove(f->w->x + token * width, f->w->x + i * width, sizeof(float) * (size_t)width);
        }
    }
}

static mo_status step(void *owner, mo_forward *f, mo_error *err)
{
    mo_leader *l = owner;
    const int last = mo_link_ranks(l->link) - 1;
    int slices;
    const int64_t rows = mo_logits_list(f, &slices), width = f->spec->width;
    mo_status status = mo_link_flush(l->link, err);
    if (status != MO_OK) {
        return status;
    }
    list_slices(l, f);
    status = send_head(l, MO_WIRE_STEP, err);
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, l->slices, sizeof *l->slices * (size_t)f->slice_count, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, l->tokens, sizeof *l->tokens * (size_t)f->tokens, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, f->w->x, sizeof(float) * (size_t)(f->tokens * width), err);
    }
    if (status == MO_OK) { /* rows come back to where the stream was */
        status = mo_link_flush(l->link, err);
    }
    if (status == MO_OK) {
        l->result = (mo_wire_result){0};
        status = receive_result(l, last, err);
        f->forget = l->result.forget != 0;
    }
    if (status == MO_OK) {
        status = mo_link_receive(l->link, last, f->w->x, sizeof(float) * (size_t)(rows * width), false, err);
    }
    if (status == MO_OK) {
        spread_rows(f, rows);
    }
    return status;
}

/* ---- Saved states ------------------------------------------------------------------------------ */

/* Waits for every rank's answer, so that none is left over. bytes, where it is not NULL, gets what each has of `left` bytes. */
static mo_status collect(mo_leader *l, uint8_t *bytes, size_t left, mo_error *err)
{
    mo_status status = MO_OK;
    mo_error own = {0};
    for (int r = 1; r < mo_link_ranks(l->link); r++) {
        mo_status one = receive_result(l, r, &own);
        const size_t part = one == MO_OK && bytes ? (size_t)l->result.rows : 0;
        if (one == MO_OK && part > left) {
            one = mo_fail(&own, MO_EFORMAT, "rank %d has more of a saved state than belongs to it", r);
            mo_link_fail(l->link, &own);
        } else if (one == MO_OK && part) {
            one = mo_link_receive(l->link, r, bytes, part, false, &own);
            bytes += part;
            left -= part;
        }
        if (one != MO_OK && status == MO_OK) {
            status = one;
            *err = own;
        }
    }
    return status == MO_OK && bytes && left
               ? mo_fail(err, MO_EFORMAT, "other ranks have less of a saved state than belongs to them")
               : status;
}

static mo_status save(void *owner, int64_t snapshot, uint8_t *out, size_t bytes, mo_error *err)
{
    mo_leader *l = owner;
    l->head.number = snapshot;
    const mo_status status = send_head(l, MO_WIRE_SAVE, err);
    return status == MO_OK ? collect(l, out, bytes, err) : status;
}

static mo_status load(void *owner, const mo_state *state, int64_t length, const uint8_t *saved, mo_error *err)
{
    mo_leader *l = owner;
    l->head.number = state->number;
    l->head.length = length;
    mo_status status = send_head(l, MO_WIRE_LOAD, err);
    for (int r = 1; r < mo_link_ranks(l->link) && status == MO_OK; r++) {
        const size_t part = (size_t)mo_state_saved_part(state, l->first[r], l->first[r + 1], length);
        status = mo_link_send(l->link, r, saved, part, err);
        saved += part;
    }
    if (status == MO_OK) {
        status = mo_link_flush(l->link, err);
    }
    return status == MO_OK ? collect(l, NULL, 0, err) : status;
}

/* ---- Life -------------------------------------------------------------------------------------- */

mo_status mo_leader_open(mo_link *link, mo_engine *engine, const int *first, mo_leader **out, mo_error *err)
{
    enum { ORDERS = 64 };
    const size_t ranks = (size_t)mo_link_ranks(link);
    mo_leader *l = calloc(1, sizeof *l);
    *out = NULL;
    if (l) {
        pthread_mutex_init(&l->lock, NULL);
        l->link = link;
        l->engine = engine;
        l->first = malloc(sizeof *l->first * (ranks + 1));
        l->tokens = malloc(sizeof *l->tokens * (size_t)engine->batch);
        l->pending = (orders){malloc(sizeof *l->pending.list * ORDERS), 0, ORDERS};
        l->told = (orders){malloc(sizeof *l->told.list * ORDERS), 0, ORDERS};
    }
    if (!l || !l->first || !l->tokens || !l->pending.list || !l->told.list) {
        mo_leader_close(l);
        return mo_fail(err, MO_ENOMEM, "no memory for messages to other ranks");
    }
    memcpy(l->first, first, sizeof *first * (ranks + 1));
    l->relay = (mo_relay){.owner = l,
                          .step = step,
                          .open_state = open_state,
                          .close_state = close_state,
                          .open_snapshot = open_snapshot,
                          .close_snapshot = close_snapshot,
                          .restore = restore,
                          .save = save,
                          .load = load};
    engine->relay = &l->relay;
    *out = l;
    return MO_OK;
}

void mo_leader_close(mo_leader *l)
{
    if (l) {
        mo_error err;
        if (l->engine && l->engine->relay) {
            send_head(l, MO_WIRE_CLOSE, &err);
            mo_link_flush(l->link, &err);
            l->engine->relay = NULL;
        }
        pthread_mutex_destroy(&l->lock);
        free(l->pending.list);
        free(l->told.list);
        free(l->tokens);
        free(l->first);
        free(l);
    }
}
