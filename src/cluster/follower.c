#include "cluster/follower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/session.h"
#include "engine/snapshot.h"

/* A session or snapshot of rank 0. */
typedef struct entry {
    int64_t number;
    mo_session *session;
    mo_snapshot *snapshot;
    mo_error error; /* why it is missing or invalid */
} entry;

/* A head and its data, as received and as sent on. */
typedef struct work {
    mo_wire_head head;
    mo_wire_order *orders;
    int order_limit;
    mo_wire_slice slices[MO_WIRE_SLICES];
    mo_wire_use uses[MO_WIRE_SLICES * MO_ADAPTERS_USED];
    int32_t *tokens;      /* [batch] */
    float *x;             /* [batch][width] the stream after this rank's layers */
    mo_row_place *places; /* [batch], if the model reads pictures; their number, */
    int64_t place_count;
    float *features; /* and the features of picture rows for layers of this rank and later ones */
    int64_t row_count;
    size_t feature_limit; /* maximum number of values */
    mo_wire_result result;
    uint64_t begun; /* number of sends begun when all of it was in flight */
} work;

typedef struct follower {
    mo_link *link;
    mo_engine *engine;
    int rank, ranks;
    entry *entries;
    int count;
    size_t limit;

    work works[2], *w;   /* used alternately: one is sent while the next is computed; the current one */
    int64_t worked_from; /* when the stream of the current step arrived */
    mo_slice parts[MO_WIRE_SLICES];
    mo_adapter_list adapters[MO_WIRE_SLICES]; /* of the parts */

    /* The last step, until it is known which of its drafts were accepted: */
    mo_slice drafted[MO_WIRE_SLICES];
    mo_pick picks[MO_WIRE_SLICES];
    int drafted_count,
        /* slices; index of the first slice with drafts that rank 0 has not decided yet:
           drafted_count, if there is none */
        untold;
} follower;

static bool passes_alone(uint32_t kind)
{
    return kind == MO_WIRE_OPEN || kind == MO_WIRE_CLOSE || kind == MO_WIRE_END;
}

mo_status mo_follower_head(mo_link *link, mo_wire_head *head, mo_error *err)
{
    const int rank = mo_link_rank(link);
    mo_status status = mo_link_receive(link, rank - 1, head, sizeof *head, true, err);
    if (status == MO_OK && head->order != MO_WIRE_ORDER) {
        status = mo_fail(err, MO_EFORMAT,
                         "rank %d uses another byte order; all ranks of a run must use the same", rank - 1);
        mo_link_fail(link, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_link_serial(link, head->serial);
    const mo_wire_result known = {.rank = rank}; /* the run ends */
    const bool passes = passes_alone(head->kind) && head->order_count == 0 && rank + 1 < mo_link_ranks(link);
    if (passes) {
        status = mo_link_send(link, rank + 1, head, sizeof *head, err);
    }
    if (status == MO_OK && head->kind == MO_WIRE_END) {
        status = mo_link_send(link, 0, &known, sizeof known, err);
    }
    return status == MO_OK && (passes || head->kind == MO_WIRE_END) ? mo_link_flush(link, err) : status;
}

/* ---- Sessions and snapshots -------------------------------------------------------------------- */

static entry *find(const follower *f, int64_t number)
{
    for (int i = 0; i < f->count; i++) {
        if (f->entries[i].number == number) {
            return &f->entries[i];
        }
    }
    return NULL;
}

static entry *add(follower *f, int64_t number, mo_error *err)
{
    if (!mo_array_reserve(&f->entries, &f->limit, f->count + 1, sizeof *f->entries)) {
        mo_fail(err, MO_ENOMEM, "out of memory for a session");
        return NULL;
    }
    entry *e = &f->entries[f->count++];
    *e = (entry){.number = number};
    return e;
}

static void drop(follower *f, int64_t number)
{
    entry *e = find(f, number);
    if (e) {
        mo_session_close(e->session);
        mo_snapshot_close(e->snapshot);
        *e = f->entries[--f->count];
    }
}

static int next_drafted(const follower *f, int from)
{
    while (from < f->drafted_count && !f->drafted[from].drafts) {
        from++;
    }
    return from;
}

/* The step failed in another rank: discards all drafts. */
static void abandon_drafts(follower *f)
{
    if (f->untold < f->drafted_count) {
        mo_step_abandon(f->engine, f->drafted, f->drafted_count);
        f->untold = f->drafted_count;
    }
}

/* Keeps this many drafts of the next slice. After the last slice the step ends. */
static void accept_drafts(follower *f, const mo_wire_order *o)
{
    const int i = f->untold;
    const entry *e = find(f, o->state);
    if (i == f->drafted_count || !e || !e->session || f->drafted[i].state != &e->session->state ||
        o->length < 0 || o->length > f->drafted[i].drafts) {
        abandon_drafts(f); /* the next step of these sessions reports that this rank has other tokens */
        return;
    }
    f->picks[i].accepted = o->length;
    f->untold = next_drafted(f, i + 1);
    if (f->untold == f->drafted_count) {
        mo_step_commit(f->engine, f->drafted, f->drafted_count);
    }
}

/* Applies an order. An error is stored in the entry and fails the steps that use it. */
static void apply(follower *f, const mo_wire_order *o)
{
    mo_error err = {0};
    entry *e = NULL;
    switch (o->change) {
    case MO_WIRE_STATE_OPENS:
        e = o->kv >= 0 && o->kv < MO_KV_TYPES ? add(f, o->state, &err) : NULL;
        if (e) {
            mo_engine_session_open(f->engine, (mo_kv_type)o->kv, o->length, &e->session, &e->error);
        }
        break;
    case MO_WIRE_SNAPSHOT_OPENS: {
        e = add(f, o->snapshot, &err);
        const entry *of = find(f, o->state);
        if (e && of && of->session && of->error.status == MO_OK &&
            mo_state_trim(&of->session->state, o->length)) {
            mo_snapshot_open(of->session, &e->snapshot, &e->error);
        } else if (e) {
            mo_fail(&e->error, MO_EINVAL, "the session on this rank has fewer than the %lld tokens to keep",
                    (long long)o->length);
        }
        break;
    }
    case MO_WIRE_RESTORES: {
        e = find(f, o->state);
        const entry *from = find(f, o->snapshot);
        if (e && e->session && from && from->snapshot) {
            e->error = (mo_error){0};
            mo_session_restore(e->session, from->snapshot, o->length, &e->error);
        } else if (e && from && from->error.status != MO_OK) {
            e->error = from->error;
        } else if (e) {
            mo_fail(&e->error, MO_EINVAL, "this rank does not have the state to restore the session from");
        }
        break;
    }
    case MO_WIRE_ACCEPTS: accept_drafts(f, o); break;
    case MO_WIRE_STATE_CLOSES: drop(f, o->state); break;
    case MO_WIRE_SNAPSHOT_CLOSES: drop(f, o->snapshot); break;
    default: break;
    }
}

/* ---- Messages ---------------------------------------------------------------------------------- */

/* Makes a failure the step's result. */
static void refuse(follower *f, const mo_error *why, bool forget)
{
    mo_wire_result *r = &f->w->result;
    *r = (mo_wire_result){.status = (int32_t)why->status, .rank = f->rank, .forget = forget};
    snprintf(r->detail, sizeof r->detail, "%.*s", MO_WIRE_TEXT - 1, why->detail);
}

static mo_status take_orders(follower *f, mo_error *err)
{
    const int count = f->w->head.order_count;
    if (count < 0) {
        return mo_fail(err, MO_EFORMAT, "rank %d sent invalid orders", f->rank - 1);
    }
    if (count > f->w->order_limit) {
        mo_wire_order *more = realloc(f->w->orders, sizeof *more * (size_t)count);
        if (!more) {
            return mo_fail(err, MO_ENOMEM, "out of memory for %d orders of rank 0", count);
        }
        f->w->orders = more;
        f->w->order_limit = count;
    }
    const mo_status status = count ? mo_link_receive(f->link, f->rank - 1, f->w->orders,
                                                     sizeof *f->w->orders * (size_t)count, false, err)
                                   : MO_OK;
    bool told = false; /* set by the head after a step */
    for (int i = 0; i < count && status == MO_OK; i++) {
        told |= f->w->orders[i].change == MO_WIRE_ACCEPTS;
    }
    if (!told) {
        abandon_drafts(f);
    }
    for (int i = 0; i < count && status == MO_OK; i++) {
        apply(f, &f->w->orders[i]);
    }
    return status;
}

static mo_status pass_on(follower *f, const void *data, size_t bytes, mo_error *err)
{
    return f->rank + 1 < f->ranks ? mo_link_send(f->link, f->rank + 1, data, bytes, err) : MO_OK;
}

static mo_status pass_head(follower *f, mo_error *err)
{
    const mo_status status = pass_on(f, &f->w->head, sizeof f->w->head, err);
    return status == MO_OK
               ? pass_on(f, f->w->orders, sizeof *f->w->orders * (size_t)f->w->head.order_count, err)
               : status;
}

/* ---- Steps ------------------------------------------------------------------------------------- */

/* Receives the adapters of all slices into f->adapters. */
static mo_status take_adapters(follower *f, mo_error *err)
{
    const mo_wire_head *h = &f->w->head;
    for (int i = 0; i < h->slice_count; i++) {
        f->adapters[i].count = 0;
    }
    if (h->use_count < 0 || h->use_count > h->slice_count * MO_ADAPTERS_USED) {
        return mo_fail(err, MO_EFORMAT, "rank %d sent invalid adapters", f->rank - 1);
    }
    const mo_status status = mo_link_receive(f->link, f->rank - 1, f->w->uses,
                                             sizeof *f->w->uses * (size_t)h->use_count, false, err);
    for (int i = 0; i < h->use_count && status == MO_OK; i++) {
        const mo_wire_use *u = &f->w->uses[i];
        if (u->slice < 0 || u->slice >= h->slice_count || u->adapter < 0 ||
            u->adapter >= f->engine->adapter_count || f->adapters[u->slice].count == MO_ADAPTERS_USED) {
            return mo_fail(err, MO_EFORMAT, "rank %d named adapters that this rank has not loaded",
                           f->rank - 1);
        }
        mo_adapter_list *list = &f->adapters[u->slice];
        list->use[list->count++] = (mo_adapter_use){f->engine->adapters[u->adapter], u->scale};
    }
    return status;
}

/* The number of feature vectors of a picture row in the message, and the layer of the first. */
static int64_t features_sent(const follower *f)
{
    return f->w->head.number;
}
static int64_t first_feature(const follower *f)
{
    return f->engine->spec->pictures.features - features_sent(f);
}

/* Can this rank compute these places? Counts the rows with features. */
static bool check_places(follower *f)
{
    const mo_picture_rule *rule = &f->engine->spec->pictures;
    bool good = f->w->place_count == 0 || (rule->accepted && features_sent(f) >= 0 && first_feature(f) >= 0);
    int64_t at = 0;
    f->w->row_count = 0;
    for (int i = 0; i < f->w->head.slice_count && good; i++) {
        const mo_wire_slice *s = &f->w->slices[i];
        for (int64_t j = 0; s->pictures && j < s->count && good; j++) {
            const mo_row_place *p = &f->w->places[at++];
            good = p->ahead >= 0 && p->ahead < s->count - j &&
                   (p->added == 0 || (p->added == f->w->row_count + 1 && features_sent(f) > 0));
            f->w->row_count += p->added > 0;
        }
    }
    const int first = f->engine->spec->first_layer;
    return good && (f->w->row_count == 0 || first_feature(f) <= first || first >= rule->features);
}

/* Receives the places after the tokens, for slices of sequences with pictures. */
static mo_status take_places(follower *f, mo_error *err)
{
    work *w = f->w;
    w->place_count = w->row_count = 0;
    for (int i = 0; i < w->head.slice_count; i++) {
        w->place_count += w->slices[i].pictures ? w->slices[i].count : 0;
    }
    if (w->place_count && !w->places) {
        return mo_fail(err, MO_EFORMAT, "rank %d sent pictures, which this rank's model does not read",
                       f->rank - 1);
    }
    mo_status status = mo_link_receive(f->link, f->rank - 1, w->places,
                                       sizeof *w->places * (size_t)w->place_count, false, err);
    if (status == MO_OK && !check_places(f)) {
        status = mo_fail(err, MO_EFORMAT, "rank %d sent invalid rows of pictures", f->rank - 1);
    }
    if (status != MO_OK || w->row_count == 0) {
        return status;
    }
    const size_t values = (size_t)(w->row_count * features_sent(f) * f->engine->spec->width);
    if (!mo_array_reserve(&w->features, &w->feature_limit, values, sizeof *w->features)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for rows of pictures");
    }
    return mo_link_receive(f->link, f->rank - 1, w->features, sizeof *w->features * values, false, err);
}

static mo_status take_lists(follower *f, mo_error *err)
{
    const mo_wire_head *h = &f->w->head;
    int64_t tokens = 0, drafted = 0;
    if (h->slice_count < 1 || h->slice_count > MO_WIRE_SLICES || h->tokens < 1 ||
        h->tokens > f->engine->batch) {
        return mo_fail(err, MO_EFORMAT, "rank %d sent an invalid step", f->rank - 1);
    }
    mo_status status = mo_link_receive(f->link, f->rank - 1, f->w->slices,
                                       sizeof *f->w->slices * (size_t)h->slice_count, false, err);
    if (status == MO_OK) {
        status = take_adapters(f, err);
    }
    if (status == MO_OK) {
        status = mo_link_receive(f->link, f->rank - 1, f->w->tokens, sizeof *f->w->tokens * (size_t)h->tokens,
                                 false, err);
    }
    for (int i = 0; i < h->slice_count && status == MO_OK; i++) {
        const mo_wire_slice *s = &f->w->slices[i];
        drafted += s->drafts ? s->count : 0;
        if (s->count < 1 || s->count > h->tokens - tokens || s->wanted < 0 || s->wanted > s->count ||
            s->drafts < 0 || s->drafts >= s->count || drafted > f->engine->drafts.rows) {
            return mo_fail(err, MO_EFORMAT, "rank %d sent invalid slices", f->rank - 1);
        }
        tokens += s->count;
    }
    if (status == MO_OK && drafted && atomic_load(&f->engine->accelerator) &&
        tokens > mo_feed_draft_rows(f->engine)) {
        return mo_fail(err, MO_EFORMAT, "rank %d sent more tokens beside drafts than the device keeps",
                       f->rank - 1);
    }
    return status == MO_OK ? take_places(f, err) : status;
}

/* The state of the slice, at the position of its tokens. */
static mo_session *session_at(const follower *f, const mo_wire_slice *s, mo_error *err)
{
    entry *e = find(f, s->state);
    if (e && e->session) {
        mo_session_leave_lost_device(e->session);
    }
    if (e && e->session && s->position == 0) { /* it starts again, so earlier errors do not matter */
        e->error = (mo_error){0};
    }
    if (!e || !e->session || e->error.status != MO_OK) {
        mo_fail(err, e && e->error.status != MO_OK ? e->error.status : MO_ENOMEM, "%s",
                e && e->error.status != MO_OK ? e->error.detail
                                              : "the session could not be opened on this rank");
        return NULL;
    }
    if (!mo_state_trim(&e->session->state, s->position)) {
        mo_fail(err, MO_EINVAL, "the session on this rank has %lld tokens and cannot be rewound to %lld",
                (long long)e->session->state.length, (long long)s->position);
        return NULL;
    }
    return e->session;
}

/* Does rank 0 wait for rows of the step? */
static bool is_waited_for(const follower *f)
{
    bool any = false;
    for (int i = 0; i < f->w->head.slice_count; i++) {
        any |= f->w->slices[i].wanted > 0;
    }
    return any;
}

/* Stores the drafts of a step until it ends. */
static void keep_drafted(follower *f)
{
    f->drafted_count = f->w->head.slice_count;
    memcpy(f->drafted, f->parts, sizeof *f->parts * (size_t)f->drafted_count);
    f->untold = next_drafted(f, 0);
}

/* Runs the slices through this rank's layers and sets the result. */
static void run_step(follower *f)
{
    mo_error err = {0};
    int64_t t = 0, place = 0;
    f->w->result = (mo_wire_result){.rank = f->rank};
    for (int i = 0; i < f->w->head.slice_count; i++) {
        const mo_wire_slice *s = &f->w->slices[i];
        mo_session *session = session_at(f, s, &err);
        if (!session) {
            refuse(f, &err, true);
            return;
        }
        f->parts[i] = (mo_slice){.state = &session->state,
                                 .tokens = f->w->tokens + t,
                                 .count = s->count,
                                 .adapters = f->adapters[i].count ? &f->adapters[i] : NULL,
                                 .prompt = s->prompt != 0,
                                 .places = s->pictures ? f->w->places + place : NULL,
                                 .features = f->w->features,
                                 .first_feature = (int)first_feature(f),
                                 .drafts = s->drafts,
                                 .deferred = s->drafts > 0,
                                 .pick = s->drafts ? &f->picks[i] : NULL};
        f->picks[i] = (mo_pick){.token = -1};
        t += s->count;
        place += s->pictures ? s->count : 0;
    }
    if (mo_step(f->engine, f->parts, f->w->head.slice_count, &err) != MO_OK) {
        refuse(f, &err, err.status == MO_EDEVICE); /* sessions on a lost device start again */
        for (int i = 0; i < f->w->head.slice_count && !is_waited_for(f); i++) {
            find(f, f->w->slices[i].state)->error = err; /* the result is sent below */
        }
        return;
    }
    keep_drafted(f);
    for (int i = 0; i < f->w->head.slice_count; i++) { /* for snapshots */
        mo_session *session = find(f, f->w->slices[i].state)->session;
        memcpy(session->tokens + f->w->slices[i].position, f->parts[i].tokens,
               sizeof(int32_t) * (size_t)f->w->slices[i].count);
    }
}

/* Copies the rows that rank 0 wants. Returns their number. */
static int64_t gather_rows(const follower *f)
{
    const int64_t width = f->engine->spec->width;
    const float *x = f->engine->space.x;
    int64_t first = 0, rows = 0;
    for (int i = 0; i < f->w->head.slice_count; i++) {
        const mo_wire_slice *s = &f->w->slices[i];
        const int64_t from = first + s->count - s->wanted;
        memcpy(f->w->x + rows * width, x + from * width, sizeof(float) * (size_t)(s->wanted * width));
        rows += s->wanted;
        first += s->count;
    }
    return rows;
}

/* Sends the step to the next rank, or from the last rank to rank 0. */
static mo_status send_step(follower *f, mo_error *err)
{
    float *x = f->w->x;
    const int64_t width = f->engine->spec->width;
    const bool good = f->w->result.status == MO_OK;
    if (f->rank + 1 == f->ranks) {
        f->w->result.rows = good ? gather_rows(f) : 0;
        f->w->result.work_ns = f->w->head.work_ns + mo_clock_ns() - f->worked_from;
        const mo_status status = mo_link_send(f->link, 0, &f->w->result, sizeof f->w->result, err);
        return status == MO_OK
                   ? mo_link_send(f->link, 0, x, sizeof(float) * (size_t)(f->w->result.rows * width), err)
                   : status;
    }
    if (good) {
        memcpy(x, f->engine->space.x, sizeof(float) * (size_t)(f->w->head.tokens * width));
    }
    f->w->head.status = f->w->result.status;
    f->w->head.work_ns += mo_clock_ns() - f->worked_from;
    mo_status status = pass_head(f, err);
    if (status == MO_OK) {
        status = pass_on(f, f->w->slices, sizeof *f->w->slices * (size_t)f->w->head.slice_count, err);
    }
    if (status == MO_OK) {
        status = pass_on(f, f->w->uses, sizeof *f->w->uses * (size_t)f->w->head.use_count, err);
    }
    if (status == MO_OK) {
        status = pass_on(f, f->w->tokens, sizeof *f->w->tokens * (size_t)f->w->head.tokens, err);
    }
    if (status == MO_OK) {
        status = pass_on(f, f->w->places, sizeof *f->w->places * (size_t)f->w->place_count, err);
    }
    if (status == MO_OK) {
        const int64_t values = f->w->row_count * features_sent(f) * width;
        status = pass_on(f, f->w->features, sizeof *f->w->features * (size_t)values, err);
    }
    if (status != MO_OK) {
        return status;
    }
    return good ? pass_on(f, x, sizeof(float) * (size_t)(f->w->head.tokens * width), err)
                : pass_on(f, &f->w->result, sizeof f->w->result, err);
}

static mo_status do_step(follower *f, mo_error *err)
{
    const size_t bytes = sizeof(float) * (size_t)(f->w->head.tokens * f->engine->spec->width);
    mo_status status = take_lists(f, err);
    if (status != MO_OK) {
        return status;
    }
    if (f->w->head.status == MO_OK) {
        status = mo_link_receive(f->link, f->rank - 1, f->engine->space.x, bytes, false, err);
        f->worked_from = mo_clock_ns();
        if (status == MO_OK) {
            run_step(f);
        }
    } else {
        f->worked_from = mo_clock_ns();
        status = mo_link_receive(f->link, f->rank - 1, &f->w->result, sizeof f->w->result, false, err);
    }
    return status == MO_OK ? send_step(f, err) : status;
}

/* ---- Saved states ------------------------------------------------------------------------------ */

static mo_status do_save(follower *f, mo_error *err)
{
    mo_error own = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    const entry *e = find(f, f->w->head.number);
    mo_status status = pass_head(f, err);
    if (status != MO_OK) {
        return status;
    }
    f->w->result = (mo_wire_result){.rank = f->rank};
    if (!e || !e->snapshot) {
        mo_fail(&own, e && e->error.status ? e->error.status : MO_ENOENT, "%s",
                e && e->error.status ? e->error.detail : "the snapshot does not exist");
    } else if (mo_snapshot_state(e->snapshot, &bytes, &size, &own) == MO_OK) {
        f->w->result.rows = (int64_t)size;
    }
    if (own.status != MO_OK) {
        refuse(f, &own, false);
    }
    status = mo_link_send(f->link, 0, &f->w->result, sizeof f->w->result, err);
    if (status == MO_OK) {
        status = mo_link_send(f->link, 0, bytes, size, err);
    }
    if (status == MO_OK) {
        status = mo_link_flush(f->link, err);
    }
    free(bytes);
    return status;
}

/* Receives the bytes of a state that rank 0 loads: `bytes` follow. Also receives bytes that are not used, so
   that the next message is the expected one; *own says why. */
static mo_status take_state(follower *f, const entry *e, size_t bytes, uint8_t **out, mo_error *own,
                            mo_error *err)
{
    const mo_model_spec *spec = f->engine->spec;
    const int64_t length = f->w->head.length;
    *out = NULL;
    if (!e || !e->session) {
        mo_fail(own, e && e->error.status != MO_OK ? e->error.status : MO_ENOMEM, "%s",
                e && e->error.status != MO_OK ? e->error.detail
                                              : "the session could not be opened on this rank");
    } else if (length < 0 ||
               mo_state_saved_part(&e->session->state, spec->first_layer,
                                   spec->first_layer + spec->layer_count, length) != (int64_t)bytes) {
        mo_fail(own, MO_EFORMAT, "received a saved state of %zu bytes, but this rank needs another size",
                bytes);
    } else {
        *out = malloc(bytes ? bytes : 1);
        if (!*out) {
            mo_fail(own, MO_ENOMEM, "out of memory for a saved state of %zu bytes", bytes);
        }
    }
    return *out ? mo_link_receive(f->link, 0, *out, bytes, false, err)
                : mo_link_discard(f->link, 0, bytes, err);
}

static mo_status do_load(follower *f, mo_error *err)
{
    entry *e = find(f, f->w->head.number);
    mo_error own = {0};
    uint8_t *bytes = NULL;
    int64_t size = 0;
    mo_status status = pass_head(f, err);
    if (status == MO_OK) {
        status = mo_link_receive(f->link, 0, &size, sizeof size, false, err);
    }
    if (status == MO_OK && size < 0) {
        status = mo_fail(err, MO_EFORMAT, "rank 0 sent an invalid session to load");
    }
    if (status == MO_OK) {
        status = take_state(f, e, (size_t)size, &bytes, &own, err);
    }
    if (status != MO_OK) {
        free(bytes);
        return status;
    }
    f->w->result = (mo_wire_result){.rank = f->rank};
    if (bytes) {
        const int64_t length = f->w->head.length;
        mo_session_restore_bytes(e->session, bytes, (size_t)size, length, length, &own);
        e->error = own;
    }
    if (own.status != MO_OK) {
        refuse(f, &own, true);
    }
    free(bytes);
    return mo_link_send(f->link, 0, &f->w->result, sizeof f->w->result, err);
}

/* ---- Serving ---- */

/* *closed: rank 0 has closed the model. */
static mo_status serve(follower *f, bool *closed, mo_error *err)
{
    f->w = f->w == &f->works[0] ? &f->works[1] : &f->works[0];
    mo_status status = mo_link_flush_to(f->link, f->w->begun, err);
    if (status == MO_OK) {
        status = mo_follower_head(f->link, &f->w->head, err);
    }
    if (status == MO_OK) {
        status = take_orders(f, err);
    }
    if (status != MO_OK) {
        return status;
    }
    switch (f->w->head.kind) {
    case MO_WIRE_STEP: return do_step(f, err);
    case MO_WIRE_SAVE: return do_save(f, err);
    case MO_WIRE_LOAD: return do_load(f, err);
    case MO_WIRE_CLOSE: *closed = true; return f->w->head.order_count ? pass_head(f, err) : MO_OK;
    default:
        return mo_fail(err, MO_EFORMAT, "rank %d sent an unknown message (%u)", f->rank - 1, f->w->head.kind);
    }
}

static void drop_all(follower *f)
{
    for (int i = 0; f && i < f->count; i++) {
        mo_session_close(f->entries[i].session);
        mo_snapshot_close(f->entries[i].snapshot);
    }
    for (int i = 0; f && i < 2; i++) {
        free(f->works[i].orders);
        free(f->works[i].tokens);
        free(f->works[i].x);
        free(f->works[i].places);
        free(f->works[i].features);
    }
    free(f ? f->entries : NULL);
    free(f);
}

static bool open_works(follower *f, const mo_engine *engine)
{
    const size_t batch = (size_t)engine->batch;
    const bool pictures = engine->spec->pictures.accepted;
    bool whole = true;
    for (int i = 0; i < 2; i++) {
        work *w = &f->works[i];
        w->tokens = malloc(sizeof *w->tokens * batch);
        w->x = malloc(sizeof *w->x * batch * (size_t)engine->spec->width);
        w->places = pictures ? malloc(sizeof *w->places * batch) : NULL;
        whole = whole && w->tokens && w->x && (w->places || !pictures);
    }
    return whole;
}

mo_status mo_follower_run(mo_link *link, mo_engine *engine, mo_error *err)
{
    follower *f = calloc(1, sizeof *f);
    bool closed = false;
    mo_status status = MO_OK;
    if (!f || !open_works(f, engine)) {
        drop_all(f);
        status = mo_fail(err, MO_ENOMEM, "out of memory for messages from other ranks");
        mo_link_fail(link, err);
        return status;
    }
    f->link = link;
    f->engine = engine;
    f->rank = mo_link_rank(link);
    f->ranks = mo_link_ranks(link);
    mo_link_watch(link, &engine->layers_run);
    while (status == MO_OK && !closed) {
        status = serve(f, &closed, err);
        f->w->begun = mo_link_begun(link);
    }
    if (status == MO_OK) {
        status = mo_link_flush(link, err);
    }
    mo_link_watch(link, NULL);
    if (status != MO_OK) {
        mo_link_fail(link, err);
    }
    drop_all(f);
    return status;
}
