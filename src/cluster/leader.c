#include "cluster/leader.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/status.h"
#include "cluster/traffic.h"
#include "engine/adapter.h"
#include "engine/forward.h"
#include "engine/logits.h"

/* Orders that are not sent yet. */
typedef struct orders {
    mo_wire_order *list;
    int count;
    size_t limit;
} orders;

/* A message being sent. */
typedef struct outgoing {
    mo_wire_head head;
    orders told;
    mo_wire_slice slices[MO_WIRE_SLICES];
    mo_wire_use uses[MO_WIRE_SLICES * MO_ADAPTERS_USED];
    int32_t *tokens;      /* [batch] */
    float *x;             /* [batch][width] */
    mo_row_place *places; /* [batch], if the model reads pictures */
    float *features;      /* [batch][features behind later layers][width] */
    int64_t place_count, row_count;
    uint64_t begun; /* number of sends begun when all of it was in flight */
} outgoing;

struct mo_leader {
    mo_remote_layers remote_layers;
    mo_link *link;
    mo_engine *engine;
    int *first;           /* [ranks + 1] */
    int features;         /* number of features of a picture row for layers of other ranks */
    int64_t *part_bytes;  /* [ranks] bytes of a saved state being loaded */
    pthread_mutex_t lock; /* protects the following members */
    orders pending;
    int64_t numbers;
    bool untold;        /* out of memory: other ranks hold objects that cannot be named any more */
    mo_traffic traffic; /* has its own lock */

    uint8_t groups[MO_LEADER_TOKENS + 1]; /* for steps of several sessions, by the number of tokens */

    /* Protected by the engine's lock: */
    outgoing out[2]; /* used alternately: one is filled while the other is sent */
    int turn;
    int unanswered;           /* steps whose results have not arrived */
    int64_t sent_ns, came_ns; /* when sending the last step began, and when its rows arrived */
    mo_wire_result result;
};

/* ---- Orders ------------------------------------------------------------------------------------ */

/* Adds an order. number, if not NULL, gets a new number, that of the order's state or snapshot. */
static mo_status add_order(mo_leader *l, mo_wire_order order, int64_t *number, mo_error *err)
{
    mo_status status = MO_OK;
    pthread_mutex_lock(&l->lock);
    if (!mo_array_reserve(&l->pending.list, &l->pending.limit, (size_t)l->pending.count + 1,
                          sizeof *l->pending.list)) {
        l->untold |= number == NULL;
        status = mo_fail(err, MO_ENOMEM, "out of memory for messages to other ranks");
    } else {
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

static mo_status open_snapshot(void *owner, int64_t state, int64_t length, int64_t *number, mo_error *err)
{
    const mo_wire_order order = {.change = MO_WIRE_SNAPSHOT_OPENS, .state = state, .length = length};
    return add_order(owner, order, number, err);
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

/* The next message to fill. */
static mo_status next_outgoing(mo_leader *l, outgoing **out, mo_error *err)
{
    outgoing *o = &l->out[l->turn];
    *out = o;
    return mo_link_flush_to(l->link, o->begun, err);
}

static void is_on_its_way(mo_leader *l, outgoing *o)
{
    o->begun = mo_link_begun(l->link);
    l->turn = !l->turn;
}

/* Sends a head to rank 1, with all orders not sent yet. The caller sends what follows. */
static mo_status send_head(mo_leader *l, outgoing *o, mo_wire_kind kind, mo_error *err)
{
    pthread_mutex_lock(&l->lock);
    const orders told = o->told;
    o->told = l->pending;
    l->pending = told;
    l->pending.count = 0;
    const bool untold = l->untold;
    pthread_mutex_unlock(&l->lock);
    if (untold) {
        return mo_fail(err, MO_ENOMEM, "out of memory while notifying other ranks; restart the run");
    }
    o->head.order = MO_WIRE_ORDER;
    o->head.kind = kind;
    o->head.serial = mo_link_next_serial(l->link);
    o->head.order_count = o->told.count;
    const mo_status status = mo_link_send(l->link, 1, &o->head, sizeof o->head, err);
    return status != MO_OK
               ? status
               : mo_link_send(l->link, 1, o->told.list, sizeof *o->told.list * (size_t)o->told.count, err);
}

/* Receives a rank's result; its failure is returned. */
static mo_status receive_result(mo_leader *l, int from, mo_error *err)
{
    mo_wire_result *r = &l->result;
    const mo_status status = mo_link_receive(l->link, from, r, sizeof *r, false, err);
    if (status != MO_OK || r->status == MO_OK) {
        return status;
    }
    return mo_fail(err, (mo_status)r->status, "rank %d: %.*s", r->rank, MO_WIRE_TEXT, r->detail);
}

/* Receives results until at most `most` are outstanding. Failed pieces need no report: the next step of their
   session fails with the same error. */
static mo_status take_results(mo_leader *l, int most, mo_error *err)
{
    mo_status status = MO_OK;
    while (status == MO_OK && l->unanswered > most) {
        status =
            mo_link_receive(l->link, mo_link_ranks(l->link) - 1, &l->result, sizeof l->result, false, err);
        l->unanswered--;
    }
    return status;
}

/* ---- Steps ------------------------------------------------------------------------------------- */

static void list_adapters(outgoing *o, int slice, const mo_forward *f)
{
    const mo_adapter_list *list = f->slices[slice].adapters;
    for (int i = 0; list && i < list->count; i++) {
        o->uses[o->head.use_count++] =
            (mo_wire_use){.slice = slice,
                          .adapter = mo_engine_adapter_number(f->engine, &list->use[i].adapter->lora),
                          .scale = list->use[i].scale};
    }
}

/* For the slice whose first token is number t of the step. */
static void list_places(const mo_leader *l, outgoing *o, int slice, const mo_forward *f, int64_t t)
{
    const mo_slice *s = &f->slices[slice];
    const size_t values = (size_t)(l->features * f->spec->width);
    for (int64_t at = s->state->length; s->images && at < s->state->length + s->count; at++, t++) {
        mo_row_place *p = &o->places[o->place_count++];
        const float *row = l->features ? mo_forward_feature(f, f->spec->layer_count, t) : NULL;
        mo_image_list_position(s->images, at, p->position);
        p->ahead = (int32_t)(mo_forward_end_seen(f, t) - at - 1);
        p->added = 0;
        if (row) {
            memcpy(o->features + (size_t)o->row_count * values, row, sizeof *row * values);
            p->added = (int32_t)++o->row_count;
        }
    }
}

static void list_slices(const mo_leader *l, outgoing *o, const mo_forward *f)
{
    int64_t t = 0;
    o->head.use_count = 0;
    o->head.number = l->features;
    o->place_count = o->row_count = 0;
    for (int i = 0; i < f->slice_count; i++) {
        const mo_slice *s = &f->slices[i];
        o->slices[i] = (mo_wire_slice){.state = s->state->number,
                                       .position = s->state->length,
                                       .count = s->count,
                                       .wanted = s->logits ? s->count - s->logits_from : 0,
                                       .prompt = s->prompt,
                                       .drafts = (int32_t)s->drafts,
                                       .pictures = s->images != NULL};
        list_adapters(o, i, f);
        list_places(l, o, i, f, t);
        memcpy(o->tokens + t, s->tokens, sizeof *o->tokens * (size_t)s->count);
        t += s->count;
    }
    o->head.slice_count = f->slice_count;
    o->head.tokens = t;
    o->head.work_ns = 0;
    memcpy(o->x, f->w->x, sizeof(float) * (size_t)(t * f->spec->width));
}

static mo_status send_step(mo_leader *l, const mo_forward *f, mo_error *err)
{
    outgoing *o = NULL;
    mo_status status = next_outgoing(l, &o, err);
    if (status != MO_OK) {
        return status;
    }
    list_slices(l, o, f);
    l->sent_ns = mo_clock_ns();
    status = send_head(l, o, MO_WIRE_STEP, err);
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->slices, sizeof *o->slices * (size_t)f->slice_count, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->uses, sizeof *o->uses * (size_t)o->head.use_count, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->tokens, sizeof *o->tokens * (size_t)f->tokens, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->places, sizeof *o->places * (size_t)o->place_count, err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->features,
                              sizeof(float) * (size_t)(o->row_count * l->features * f->spec->width), err);
    }
    if (status == MO_OK) {
        status = mo_link_send(l->link, 1, o->x, sizeof(float) * (size_t)(f->tokens * f->spec->width), err);
    }
    is_on_its_way(l, o);
    return status;
}

/* Moves the received rows from the beginning of their part of the stream to the rows of their tokens. */
static void spread_rows(const mo_forward *f, float *x, int64_t rows)
{
    const int64_t width = f->spec->width;
    for (int64_t i = rows - 1; i >= 0; i--) {
        const int64_t token = f->w->logits.token[i];
        if (token != i) {
            memmove(x + token * width, x + i * width, sizeof(float) * (size_t)width);
        }
    }
}

/* Counts a step during which rank 0 only waited for its result. */
static void count_traffic(mo_leader *l, const mo_forward *f, int64_t rows, int64_t wait_ns)
{
    const size_t row = sizeof(float) * (size_t)f->spec->width;
    mo_traffic_count(&l->traffic,
                     &(mo_traffic_step){.tokens = (uint64_t)f->tokens,
                                        .sent_bytes = sizeof(mo_wire_head) +
                                                      sizeof(mo_wire_slice) * (size_t)f->slice_count +
                                                      (sizeof(int32_t) + row) * (size_t)f->tokens,
                                        .received_bytes = sizeof l->result + row * (size_t)rows,
                                        .wait_ns = (uint64_t)wait_ns,
                                        .work_ns = (uint64_t)l->result.work_ns});
}

void mo_leader_traffic(mo_leader *l, mo_traffic_report *out)
{
    mo_traffic_read(&l->traffic, out);
}

static void accepted(void *owner, const mo_forward *f)
{
    for (int i = 0; i < f->slice_count; i++) {
        const mo_slice *s = &f->slices[i];
        const mo_wire_order order = {.change = MO_WIRE_ACCEPTS,
                                     .state = s->state->number,
                                     .length = s->drafts ? s->pick->accepted : 0};
        if (s->drafts) {
            add_order(owner, order, NULL, NULL);
        }
    }
}

static mo_status begin(void *owner, mo_forward *f, mo_error *err)
{
    return send_step(owner, f, err);
}

/* Results of steps without a waiter arrive first. */
static mo_status end(void *owner, mo_forward *f, float *x, mo_error *err)
{
    mo_leader *l = owner;
    const int last = mo_link_ranks(l->link) - 1;
    int slices;
    const int64_t rows = mo_logits_list(f, &slices);
    mo_status status = take_results(l, 0, err);
    if (status == MO_OK) {
        l->result = (mo_wire_result){0};
        status = receive_result(l, last, err);
        f->forget = l->result.forget != 0;
        f->stale |= status == MO_EDEVICE; /* another rank's device; that rank knows */
    }
    if (status == MO_OK) {
        status =
            mo_link_receive(l->link, last, x, sizeof(float) * (size_t)(rows * f->spec->width), false, err);
    }
    l->came_ns = mo_clock_ns();
    if (status == MO_OK) {
        spread_rows(f, x, rows);
    }
    return status;
}

static mo_status step(void *owner, mo_forward *f, mo_error *err)
{
    mo_leader *l = owner;
    const bool alone = l->unanswered == 0;
    int slices;
    const int64_t rows = mo_logits_list(f, &slices);
    mo_status status = send_step(l, f, err);
    if (status == MO_OK && rows == 0) {
        l->unanswered++;
        return take_results(l, mo_wire_ahead(mo_link_ranks(l->link)), err);
    }
    if (status == MO_OK) {
        status = end(l, f, f->w->x, err);
    }
    if (status == MO_OK && alone) {
        count_traffic(l, f, rows, l->came_ns - l->sent_ns);
    }
    return status;
}

static int groups(void *owner, int64_t tokens)
{
    const mo_leader *l = owner;
    return l->groups[tokens < MO_LEADER_TOKENS ? tokens : MO_LEADER_TOKENS];
}

void mo_leader_group(mo_leader *l, const uint8_t *by_tokens)
{
    for (int i = 0; i <= MO_LEADER_TOKENS; i++) {
        l->groups[i] = by_tokens[i] < MO_REMOTE_GROUPS ? by_tokens[i] : MO_REMOTE_GROUPS;
    }
}

/* ---- Saved states ------------------------------------------------------------------------------ */

/* Receives the result of every rank, so that none is left over. If bytes is not NULL, reads the bytes of
   each, `left` in total. */
static mo_status collect(mo_leader *l, uint8_t *bytes, size_t left, mo_error *err)
{
    mo_status status = MO_OK;
    mo_error own = {0};
    for (int r = 1; r < mo_link_ranks(l->link); r++) {
        mo_status one = receive_result(l, r, &own);
        const size_t part = one == MO_OK && bytes ? (size_t)l->result.rows : 0;
        if (one == MO_OK && part > left) {
            one = mo_fail(&own, MO_EFORMAT, "rank %d sent more of a saved state than expected", r);
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
               ? mo_fail(err, MO_EFORMAT, "the other ranks sent less of a saved state than expected")
               : status;
}

static mo_status save(void *owner, int64_t snapshot, uint8_t *out, size_t bytes, mo_error *err)
{
    mo_leader *l = owner;
    outgoing *o = NULL;
    mo_status status = next_outgoing(l, &o, err);
    if (status == MO_OK) {
        o->head.number = snapshot;
        status = send_head(l, o, MO_WIRE_SAVE, err);
        is_on_its_way(l, o);
    }
    if (status == MO_OK) {
        status = take_results(l, 0, err);
    }
    return status == MO_OK ? collect(l, out, bytes, err) : status;
}

static mo_status load(void *owner, const mo_state *state, int64_t length, const uint8_t *saved, mo_error *err)
{
    mo_leader *l = owner;
    outgoing *o = NULL;
    mo_status status = next_outgoing(l, &o, err);
    if (status == MO_OK) {
        o->head.number = state->number;
        o->head.length = length;
        status = send_head(l, o, MO_WIRE_LOAD, err);
        is_on_its_way(l, o);
    }
    if (status == MO_OK) {
        status = take_results(l, 0, err);
    }
    for (int r = 1; r < mo_link_ranks(l->link) && status == MO_OK; r++) {
        const size_t part = (size_t)mo_state_saved_part(state, l->first[r], l->first[r + 1], length);
        l->part_bytes[r] = (int64_t)part;
        status = mo_link_send(l->link, r, &l->part_bytes[r], sizeof *l->part_bytes, err);
        if (status == MO_OK) {
            status = mo_link_send(l->link, r, saved, part, err);
        }
        saved += part;
    }
    if (status == MO_OK) {
        status = mo_link_flush(l->link, err);
    }
    return status == MO_OK ? collect(l, NULL, 0, err) : status;
}

/* ---- Opening and closing ---- */

mo_status mo_leader_open(mo_link *link, mo_engine *engine, const int *first, mo_leader **out, mo_error *err)
{
    enum { ORDERS = 64 };
    const size_t ranks = (size_t)mo_link_ranks(link), batch = (size_t)engine->batch;
    const size_t width = (size_t)engine->spec->width;
    const mo_picture_rule *rule = &engine->spec->pictures;
    mo_leader *l = calloc(1, sizeof *l);
    *out = NULL;
    if (l) {
        pthread_mutex_init(&l->lock, NULL);
        mo_traffic_open(&l->traffic, MO_DIVIDE_LAYERS, mo_link_ranks(link));
        l->link = link;
        l->engine = engine;
        l->first = malloc(sizeof *l->first * (ranks + 1));
        l->part_bytes = malloc(sizeof *l->part_bytes * ranks);
        l->features = rule->features > engine->spec->layer_count && ranks > 1
                          ? rule->features - engine->spec->layer_count
                          : 0;
        l->pending = (orders){malloc(sizeof *l->pending.list * ORDERS), 0, ORDERS};
    }
    bool whole = l && l->first && l->part_bytes && l->pending.list;
    for (int i = 0; i < 2 && whole; i++) {
        outgoing *o = &l->out[i];
        o->tokens = malloc(sizeof *o->tokens * batch);
        o->x = malloc(sizeof *o->x * batch * width);
        o->places = malloc(rule->accepted ? sizeof *o->places * batch : 1);
        o->features = malloc(l->features ? sizeof *o->features * batch * (size_t)l->features * width : 1);
        o->told = (orders){malloc(sizeof *o->told.list * ORDERS), 0, ORDERS};
        whole = o->tokens && o->x && o->places && o->features && o->told.list;
    }
    if (!whole) {
        mo_leader_close(l);
        return mo_fail(err, MO_ENOMEM, "out of memory for messages to other ranks");
    }
    memcpy(l->first, first, sizeof *first * (ranks + 1));
    l->remote_layers = (mo_remote_layers){.owner = l,
                                          .step = step,
                                          .accepted = accepted,
                                          .groups = groups,
                                          .begin = begin,
                                          .end = end,
                                          .open_state = open_state,
                                          .close_state = close_state,
                                          .open_snapshot = open_snapshot,
                                          .close_snapshot = close_snapshot,
                                          .restore = restore,
                                          .save = save,
                                          .load = load};
    engine->remote_layers = &l->remote_layers;
    *out = l;
    return MO_OK;
}

void mo_leader_close(mo_leader *l)
{
    if (l) {
        mo_error err;
        if (l->engine && l->engine->remote_layers) {
            if (mo_link_flush(l->link, &err) == MO_OK && take_results(l, 0, &err) == MO_OK) {
                send_head(l, &l->out[0], MO_WIRE_CLOSE, &err);
                mo_link_flush(l->link, &err);
            }
            l->engine->remote_layers = NULL;
        }
        mo_traffic_close(&l->traffic);
        pthread_mutex_destroy(&l->lock);
        for (int i = 0; i < 2; i++) {
            free(l->out[i].told.list);
            free(l->out[i].tokens);
            free(l->out[i].x);
            free(l->out[i].places);
            free(l->out[i].features);
        }
        free(l->pending.list);
        free(l->first);
        free(l->part_bytes);
        free(l);
    }
}
