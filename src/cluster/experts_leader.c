/* Rank 0 of a model whose experts are divided. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "cluster/experts.h"
#include "cluster/traffic.h"
#include "engine/adapter.h"
#include "engine/forward.h"

/* Larger bodies are sent by a thread while the others compute. MPI sends smaller messages without help. */
enum { AT_ONCE = 4 << 10 };

/* A request to a rank until its reply. */
typedef struct question {
    mo_experts_head head;
    uint8_t *body;
    int first, end;        /* its range of experts */
    int64_t from_row;      /* index of its first row among all rows */
    bool listens;          /* from its last reply */
    mo_experts_head ahead; /* the last prediction sent to it, */
    mo_experts_pick prefetched[MO_EXPERTS_MAX];
} question;

struct mo_experts_leader {
    mo_worker worker;
    bool added; /* registered with the engine */
    mo_link *link;
    mo_engine *engine;
    int ranks;
    question *questions; /* [ranks]; rank 0's is unused */
    bool *codes;         /* [layers] */
    int32_t *place;      /* [batch] index of a token's activations in a body; -1: not in it */
    bool adapted;        /* some tokens have adapters that change experts of this layer */
    mo_wire_result result;
    mo_traffic traffic;
    /* For the current step: */
    mo_traffic_step step;
    int layer;       /* of the last request; -1: none in this step */
    int last_layer;  /* the last layer with routed experts */
    int64_t sent_ns; /* when sending its requests began */
};

/* ---- Statistics ---- */

static void end_step(mo_experts_leader *l)
{
    if (l->step.tokens > 0 && l->step.sent_bytes > 0) {
        mo_traffic_count(&l->traffic, &l->step);
    }
    l->step = (mo_traffic_step){0};
    l->layer = -1;
}

/* Only steps in which every sequence has one token and another rank is asked are counted: steps of prompts
   hide the time of messages. */
static void begin_layer(mo_experts_leader *l, const mo_forward *f)
{
    if (f->index <= l->layer) { /* the previous step ended in layers without requests */
        end_step(l);
    }
    l->layer = f->index;
    l->step.tokens = f->tokens == f->slice_count ? (uint64_t)f->tokens : 0;
    l->sent_ns = mo_clock_ns();
}

/* Rank 0 finished its own experts at `from` and had all replies at `to`. Returns how much of that time a rank
   computed whose reply came at `came`. The rest of the time since the request was messages: half before
   computing, half after. */
static int64_t computed_meanwhile(const mo_experts_leader *l, int64_t work_ns, int64_t came, int64_t from)
{
    const int64_t messages = came - l->sent_ns - work_ns;
    const int64_t began = l->sent_ns + (messages > 0 ? messages / 2 : 0);
    const int64_t ended = began + work_ns < came ? began + work_ns : came;
    const int64_t since = began > from ? began : from;
    return ended > since ? ended - since : 0;
}

static void end_layer(mo_experts_leader *l, const mo_forward *f, int64_t from, int64_t work_ns)
{
    l->step.wait_ns += (uint64_t)(mo_clock_ns() - from);
    l->step.work_ns += (uint64_t)work_ns;
    if (f->index == l->last_layer) {
        end_step(l);
    }
}

void mo_experts_traffic(mo_experts_leader *l, mo_traffic_report *out)
{
    mo_traffic_read(&l->traffic, out);
}

/* ---- Requests ---- */

/* Writes a token's activations. Returns the position after them. */
static uint8_t *put_token(uint8_t *at, const mo_acts *in, int64_t token, bool codes)
{
    if (!codes) {
        memcpy(at, in->x + token * in->cols, sizeof(float) * (size_t)in->cols);
        return at + sizeof(float) * (size_t)in->cols;
    }
    const int64_t blocks = in->cols / 32;
    memcpy(at, in->q + token * in->cols, (size_t)in->cols);
    memcpy(at + in->cols, in->d + token * blocks, sizeof(float) * (size_t)blocks);
    return at + mo_experts_token_bytes(in->cols, true);
}

/* Lists a rank's chosen experts, whose rows are adjacent. */
static void put_picks(question *q, const mo_picks *picks, const uint32_t *drafted)
{
    for (int e = q->first; e < q->end && e < picks->experts; e++) {
        const mo_experts_pick pick = {
            .expert = e, .rows = picks->count[e], .drafts = drafted ? (int32_t)drafted[e] : 0};
        if (pick.rows > 0) {
            q->from_row = q->head.rows == 0 ? picks->first[e] : q->from_row;
            q->head.rows += pick.rows;
            memcpy(q->body + sizeof pick * (size_t)q->head.experts++, &pick, sizeof pick);
        }
    }
}

/* Do tokens of the step have adapters that change experts? */
static bool adapts_experts(const mo_forward *f)
{
    const mo_adapting *a = &f->w->adapting;
    bool any = false;
    for (int i = 0; i < a->count; i++) {
        any |= a->lora[i]->experts;
    }
    return any;
}

static void put_uses(const mo_forward *f, int64_t token, uint8_t *to)
{
    const mo_adapting *a = &f->w->adapting;
    const mo_adapting_use *uses = mo_adapting_uses(a, token);
    for (int i = 0; i < MO_ADAPTERS_USED; i++) {
        const bool there = uses[i].which >= 0;
        const mo_experts_use use = {
            .adapter = there ? mo_engine_adapter_number(f->engine, a->lora[uses[i].which]) : -1,
            .scale = there ? uses[i].scale : 0.0f};
        memcpy(to + sizeof use * (size_t)i, &use, sizeof use);
    }
}

/* Writes each token once, however many of the rank's experts it chose. */
static void put_tokens(mo_experts_leader *l, question *q, const mo_forward *f, const mo_picks *picks)
{
    const int32_t *tokens = picks->token_of + q->from_row;
    uint8_t *rows = q->body + sizeof(mo_experts_pick) * (size_t)q->head.experts;
    uint8_t *at = rows + sizeof(int32_t) * (size_t)q->head.rows;
    for (int64_t i = 0; i < q->head.rows; i++) {
        int32_t *place = &l->place[tokens[i]];
        if (*place < 0) {
            *place = (int32_t)q->head.tokens++;
            at = put_token(at, &f->in_experts, tokens[i], q->head.codes != 0);
        }
        memcpy(rows + sizeof *place * (size_t)i, place, sizeof *place);
    }
    for (int64_t i = 0; i < q->head.rows && q->head.adapted; i++) {
        const size_t each = sizeof(mo_experts_use) * MO_ADAPTERS_USED;
        put_uses(f, tokens[i], at + each * (size_t)l->place[tokens[i]]);
    }
    for (int64_t i = 0; i < q->head.rows; i++) {
        l->place[tokens[i]] = -1;
    }
}

static mo_status ask(mo_experts_leader *l, int rank, const mo_expert_work *work, size_t *bytes, mo_error *err)
{
    question *q = &l->questions[rank];
    const mo_forward *f = work->forward;
    q->head = (mo_experts_head){.order = MO_WIRE_ORDER,
                                .kind = MO_EXPERTS_ASK,
                                .layer = work->layer,
                                .codes = l->codes[work->layer] && !l->adapted, /* adapters read floats */
                                .adapted = l->adapted,
                                .prompt = f->slices[0].prompt};
    put_picks(q, work->picks, mo_forward_drafted(f));
    if (q->head.rows == 0) {
        return MO_OK;
    }
    put_tokens(l, q, f, work->picks);
    const size_t body = mo_experts_body_bytes(&q->head, f->in_experts.cols);
    *bytes += body;
    l->step.sent_bytes += sizeof q->head + body;
    const mo_status status = mo_link_send(l->link, rank, &q->head, sizeof q->head, err);
    return status == MO_OK ? mo_link_send(l->link, rank, q->body, body, err) : status;
}

/* A failure is reported when the reply is awaited. */
static void send_rest(void *ctx)
{
    mo_experts_leader *l = ctx;
    mo_error ignored;
    mo_link_flush(l->link, &ignored);
}

/* Claims the experts that this rank does not have. */
static void claim(void *owner, mo_expert_work *work, uint8_t me)
{
    const mo_experts_leader *l = owner;
    for (int e = 0; e < work->picks->experts; e++) {
        if (work->picks->count[e] > 0 && !mo_spec_has_expert(l->engine->spec, e)) {
            work->who[e] = me;
        }
    }
}

static mo_status begin(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest, mo_error *err)
{
    mo_experts_leader *l = owner;
    size_t bytes = 0;
    (void)me;
    l->adapted = adapts_experts(work->forward);
    begin_layer(l, work->forward);
    mo_status status = mo_link_flush(l->link, err); /* wait until the previous request has been sent */
    for (int r = 1; r < l->ranks && status == MO_OK; r++) {
        status = ask(l, r, work, &bytes, err);
    }
    if (status == MO_OK && bytes > AT_ONCE) {
        *rest = (mo_side_task){send_rest, l};
    }
    return status;
}

/* ---- Prefetching ---- */

static bool reads_ahead(void *owner)
{
    const mo_experts_leader *l = owner;
    bool any = false;
    for (int r = 1; r < l->ranks; r++) {
        any |= l->questions[r].listens;
    }
    return any;
}

/* `begin` waits until earlier messages have been sent. The next request reports a failure. */
static void guess(void *owner, int layer, const int32_t *experts, int count)
{
    mo_experts_leader *l = owner;
    mo_error ignored;
    for (int r = 1; r < l->ranks; r++) {
        question *q = &l->questions[r];
        q->ahead = (mo_experts_head){.order = MO_WIRE_ORDER, .kind = MO_EXPERTS_AHEAD, .layer = layer};
        for (int i = 0; i < count && q->listens; i++) {
            if (experts[i] >= q->first && experts[i] < q->end) {
                q->prefetched[q->ahead.experts++] = (mo_experts_pick){.expert = experts[i]};
            }
        }
        if (q->ahead.experts > 0 && mo_link_send(l->link, r, &q->ahead, sizeof q->ahead, &ignored) == MO_OK) {
            const size_t bytes = sizeof *q->prefetched * (size_t)q->ahead.experts;
            l->step.sent_bytes += sizeof q->ahead + bytes;
            mo_link_send(l->link, r, q->prefetched, bytes, &ignored);
        }
    }
}

/* ---- Replies ---- */

/* Receives the rows of a rank's experts, which are adjacent. A lost link is returned at once; an error of the
   rank goes to `own`. *work_ns: its compute time. */
static mo_status take_answer(mo_experts_leader *l, int rank, const mo_expert_work *work, int64_t *work_ns,
                             mo_error *own, mo_error *err)
{
    question *q = &l->questions[rank];
    const int64_t width = work->forward->layer->moe.io;
    mo_experts_answer answer;
    mo_status status = mo_link_receive(l->link, rank, &answer, sizeof answer, false, err);
    q->listens = status == MO_OK && answer.listens != 0;
    *work_ns = status == MO_OK ? answer.work_ns : 0;
    if (status == MO_OK && answer.status != MO_OK) {
        status = mo_link_receive(l->link, rank, &l->result, sizeof l->result, false, err);
        if (status == MO_OK && own->status == MO_OK) {
            mo_fail(own, (mo_status)answer.status, "rank %d: %.*s", rank, MO_WIRE_TEXT - 1, l->result.detail);
        }
        return status;
    }
    if (status == MO_OK && answer.rows != q->head.rows) {
        status = mo_fail(err, MO_EFORMAT, "rank %d answered with %lld rows instead of %lld", rank,
                         (long long)answer.rows, (long long)q->head.rows);
        mo_link_fail(l->link, err);
    }
    const size_t bytes = sizeof(float) * (size_t)(q->head.rows * width);
    l->step.received_bytes += sizeof answer + bytes;
    return status == MO_OK
               ? mo_link_receive(l->link, rank, work->out + q->from_row * width, bytes, false, err)
               : status;
}

static mo_status end(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err)
{
    mo_experts_leader *l = owner;
    (void)me;
    mo_error own = {0};
    mo_status status = MO_OK;
    const int64_t from = mo_clock_ns();
    int64_t work_ns, most = 0;
    for (int r = 1; r < l->ranks && status == MO_OK; r++) {
        if (l->questions[r].head.rows > 0) {
            status = take_answer(l, r, work, &work_ns, &own, err);
            const int64_t meanwhile = computed_meanwhile(l, work_ns, mo_clock_ns(), from);
            most = meanwhile > most ? meanwhile : most;
        }
    }
    end_layer(l, work->forward, from, most);
    if (status == MO_OK && own.status != MO_OK) {
        *err = own;
        status = own.status;
    }
    return status;
}

/* ---- Opening and closing ---- */

static bool allocate(mo_experts_leader *l, const int *first)
{
    const mo_model_spec *spec = l->engine->spec;
    const int64_t batch = l->engine->batch;
    const mo_extent e = mo_extent_of(spec);
    l->questions = calloc((size_t)l->ranks, sizeof *l->questions);
    l->codes = calloc((size_t)spec->layer_count, sizeof *l->codes);
    l->place = malloc(sizeof *l->place * (size_t)batch);
    if (!l->questions || !l->codes || !l->place) {
        return false;
    }
    for (int64_t i = 0; i < batch; i++) {
        l->place[i] = -1;
    }
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *layer = &spec->layers[i];
        l->last_layer = layer->routed ? i : l->last_layer;
        l->codes[i] = layer->routed && mo_experts_read_codes(&layer->moe, layer->moe.io);
    }
    for (int r = 1; r < l->ranks; r++) {
        question *q = &l->questions[r];
        q->first = first[r];
        q->end = first[r + 1];
        q->body = malloc((size_t)(batch * mo_experts_message_bytes(e.expert_io, e.used, 1)));
        if (!q->body) {
            return false;
        }
    }
    return true;
}

mo_status mo_experts_lead(mo_link *link, mo_engine *engine, const int *first, mo_experts_leader **out,
                          mo_error *err)
{
    mo_experts_leader *l = calloc(1, sizeof *l);
    *out = NULL;
    if (l) {
        l->link = link;
        l->engine = engine;
        l->ranks = mo_link_ranks(link);
        l->layer = -1;
        mo_traffic_open(&l->traffic, MO_DIVIDE_EXPERTS, l->ranks);
    }
    if (!l || !allocate(l, first)) {
        mo_experts_leave(l);
        return mo_fail(err, MO_ENOMEM, "out of memory for messages to other ranks");
    }
    l->worker = (mo_worker){.owner = l,
                            .remote = true,
                            .claim = claim,
                            .begin = begin,
                            .end = end,
                            .reads_ahead = reads_ahead,
                            .guess = guess};
    l->added = mo_workers_add(&engine->workers, &l->worker);
    if (!l->added) {
        mo_experts_leave(l);
        return mo_fail(err, MO_EINVAL, "the engine has no place for another worker");
    }
    *out = l;
    return MO_OK;
}

void mo_experts_close(mo_link *link)
{
    const mo_experts_head head = {.order = MO_WIRE_ORDER, .kind = MO_EXPERTS_CLOSE};
    mo_error err;
    mo_status status = mo_link_status(link, &err);
    for (int r = 1; r < mo_link_ranks(link) && status == MO_OK; r++) {
        status = mo_link_send(link, r, &head, sizeof head, &err);
    }
    mo_link_flush(link, &err);
}

void mo_experts_leave(mo_experts_leader *l)
{
    if (l) {
        if (l->added) {
            mo_experts_close(l->link);
            mo_workers_remove(&l->engine->workers, &l->worker);
        }
        for (int r = 1; l->questions && r < l->ranks; r++) {
            free(l->questions[r].body);
        }
        mo_traffic_close(&l->traffic);
        free(l->questions);
        free(l->codes);
        free(l->place);
        free(l);
    }
}
