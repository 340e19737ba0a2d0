/* The tiers: a model that is not all in RAM gives the bits of one that is, whatever the budget, the policy, the
 * way of reading and the order of arrival; and a read that fails costs a token, nothing else. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "check.h"
#include "engine/session.h"
#include "experts/slots.h"
#include "experts/state.h"
#include "oracle.h"
#include "sanitized.h"
#include "store/tiers.h"
#include "sweep.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

/* Under sanitizers, which take their time: the same variants on fewer models and reads. */
enum {
    MODEL_STEP = SANITIZED_THREADS ? 6
                 : SANITIZED       ? 3
                                   : 1,
    READ_STEP = SANITIZED_THREADS ? 47
                : SANITIZED       ? 5
                                  : 1,
};

/* ---- A model in tiers ------------------------------------------------------------------------- */

typedef struct setting {
    int percent; /* of each class's experts that have a slot; 0: the fewest; -1: all in RAM */
    const char *policy;
    bool predict, skip;
    int readers;
    mo_io io;
    bool plain;
    int streamed; /* every n-th layer's core is streamed; 0: none */
    int buffers;
    int threads;
    int64_t step;
    mo_status (*fault)(void *user, const mo_read *read, int64_t offset, int64_t *bytes);
    void *fault_user;
} setting;

typedef struct rig {
    mo_pool *pool;
    mo_checkpoint *model;
    mo_tiers *tiers;
    mo_engine *engine;
    mo_session *session;
    mo_error err;
} rig;

static void load(rig *r, const char *path, const setting *s)
{
    bool leave[256] = {false};
    mo_load_options options = {
        .leave_experts = s->percent >= 0, .leave_table = s->percent >= 0, .pool = r->pool, .interleave = 8};
    for (int i = 0; s->streamed && i < 256; i++) {
        leave[i] = i % s->streamed == 0;
    }
    options.leave_layer = s->streamed ? leave : NULL;
    check_status(mo_checkpoint_load(path, &options, &r->model, &r->err), &r->err);
}

static void open_tiers(rig *r, const setting *s)
{
    mo_expert_table *experts = NULL;
    mo_tiers_options o = {
        .layer_slots = s->buffers ? s->buffers : 2, .predict = s->predict, .skip_missing = s->skip};
    o.store.policy = s->policy ? mo_policy_find(s->policy) : NULL;
    o.store.disk = (mo_disk_options){.io = s->io,
                                     .readers = s->readers,
                                     .plain = s->plain,
                                     .fault = s->fault,
                                     .fault_user = s->fault_user};
    check_status(mo_expert_table_create(r->model, &experts, &r->err), &r->err);
    for (int i = 0; i < experts->class_count; i++) {
        const mo_expert_class *c = &experts->classes[i];
        const int32_t wanted = c->count * s->percent / 100;
        o.store.class_slots[i] = wanted > c->used ? wanted : c->used;
    }
    mo_expert_table_destroy(experts);
    check_status(mo_tiers_open(r->model, &o, &r->tiers, &r->err), &r->err);
}

static void rig_open(rig *r, const char *path, const setting *s)
{
    const mo_kernels *kernels = NULL;
    *r = (rig){0};
    check_status(mo_pool_create(s->threads ? s->threads : 2, &r->pool, &r->err), &r->err);
    check_status(mo_kernels_select(NULL, &kernels, &r->err), &r->err);
    load(r, path, s);
    if (s->percent >= 0 || s->streamed) {
        open_tiers(r, s);
    }
    const mo_engine_options options = {
        .kernels = kernels, .pool = r->pool, .batch = 32, .context = 256, .tiers = r->tiers};
    check_status(mo_engine_create(r->model, &options, &r->engine, &r->err), &r->err);
    check_status(mo_engine_session_open(r->engine, MO_KV_I16, 256, &r->session, &r->err), &r->err);
}

static void rig_close(rig *r)
{
    mo_session_close(r->session);
    mo_engine_destroy(r->engine);
    mo_tiers_close(r->tiers);
    mo_checkpoint_free(r->model);
    mo_pool_destroy(r->pool);
}

typedef struct sink {
    float *rows;
    int64_t vocab;
} sink;

static void keep_row(void *user, int64_t position, const float *row)
{
    const sink *s = user;
    memcpy(s->rows + position * s->vocab, row, sizeof(float) * (size_t)s->vocab);
}

static mo_status feed_with(rig *r, const oracle *o, int64_t step, float *rows, mo_error *err)
{
    sink s = {rows, o->vocab};
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = r->session,
                       .tokens = o->tokens,
                       .count = ORACLE_TOKENS,
                       .step = step,
                       .logits = keep_row,
                       .user = &s};
    return mo_session_feed(&f, 1, err);
}

static mo_status feed(rig *r, const oracle *o, int64_t step, float *rows)
{
    return feed_with(r, o, step, rows, &r->err);
}

static float *rows_for(const oracle *o)
{
    return calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float));
}

static float *logits_of(const oracle *o, const setting *s)
{
    rig r;
    float *rows = rows_for(o);
    rig_open(&r, o->path, s);
    check_status(feed(&r, o, s->step, rows), &r.err);
    rig_close(&r);
    return rows;
}

/* ---- Same bits -------------------------------------------------------------------------------- */

static void compare(const oracle *o, const float *want, const setting *s)
{
    float *got = logits_of(o, s);
    if (memcmp(got, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab)) != 0) {
        fail_msg(
            "%s: other bits with %d %% in RAM, policy %s, prediction %d, %d readers, io %d, streamed %d, "
            "buffers %d, step %d",
            o->name, s->percent, s->policy ? s->policy : "default", s->predict, s->readers, s->io,
            s->streamed, s->buffers, (int)s->step);
    }
    free(got);
}

static int policies(void)
{
    int count = 0;
    while (mo_policy_at(count)) {
        count++;
    }
    return count;
}

/* A setting against the model that is all in RAM. */
static void compare_with_ram(const oracle *o, const setting *s)
{
    float *want = logits_of(o, &(setting){.percent = -1});
    compare(o, want, s);
    free(want);
}

static void budgets_and_policies(void **state)
{
    static const int percents[] = {75, 50, 25, 0};
    (void)state;
    sweep s = {.name = "store.budgets",
               .axes = {{"model", model_count},
                        {"policy", policies()},
                        {"percent", 4},
                        {"predict", 2},
                        {"readers", 4},
                        {"io", 2}},
               .meet = {{1, 2}, {0, 3}, {1, 3}, {2, 3}, {4, 5}},
               .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        const bool predict = s.at[3];
        compare_with_ram(&models[s.at[0]], &(setting){.percent = percents[s.at[2]],
                                                      .policy = mo_policy_at(s.at[1])->name,
                                                      .predict = predict,
                                                      .readers = 1 + s.at[4],
                                                      .io = s.at[5] ? MO_IO_CACHED : MO_IO_DIRECT,
                                                      .plain = predict,
                                                      .step = predict});
    }
}

static void readers_and_ways(void **state)
{
    (void)state;
    sweep s = {
        .name = "store.readers",
        .axes =
            {{"model", model_count}, {"readers", 4}, {"io", 2}, {"plain", 2}, {"step", 4}, {"threads", 3}},
        .meet = {{1, 2}, {1, 3}, {2, 3}, {1, 4}, {1, 5}},
        .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        compare_with_ram(&models[s.at[0]], &(setting){.percent = 25,
                                                      .readers = 1 + s.at[1],
                                                      .io = s.at[2] ? MO_IO_CACHED : MO_IO_DIRECT,
                                                      .plain = s.at[3],
                                                      .step = 1 + s.at[4],
                                                      .threads = 1 + s.at[5]});
    }
}

static void streamed_layers(void **state)
{
    (void)state;
    sweep s = {.name = "store.streamed",
               .axes = {{"model", model_count}, {"streamed", 2}, {"buffers", 2}, {"experts", 2}, {"step", 2}},
               .meet = {{0, 1}, {1, 2}, {1, 3}, {3, 4}},
               .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        compare_with_ram(&models[s.at[0]], &(setting){.percent = s.at[3] ? 50 : -1,
                                                      .streamed = 1 + s.at[1],
                                                      .buffers = 2 + s.at[2],
                                                      .step = s.at[4] ? 1 : 5});
    }
}

/* ---- Reads that are late, or fail ------------------------------------------------------------- */

typedef struct trouble {
    atomic_int reads;
    int fail_at;    /* number of the read that fails; -1: none */
    bool shorter;   /* it is cut short instead */
    bool backwards; /* earlier reads of a group of 8 take longer */
} trouble;

static mo_status disturb(void *user, const mo_read *read, int64_t offset, int64_t *bytes)
{
    trouble *t = user;
    const int number = atomic_fetch_add(&t->reads, 1);
    (void)offset;
    if (t->backwards) {
        usleep((useconds_t)(100 * (7 - number % 8)));
    }
    if (number != t->fail_at) {
        return MO_OK;
    }
    if (t->shorter) {
        *bytes /= 2;
        return MO_OK;
    }
    (void)read;
    return MO_EIO;
}

static const oracle *find(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("the oracle has no model %s", name);
    return NULL;
}

static void arrivals_reversed(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *want = logits_of(o, &(setting){.percent = -1});
    for (int step = 0; step < 2; step++) {
        trouble t = {.fail_at = -1, .backwards = true};
        compare(o, want,
                &(setting){.percent = 25,
                           .readers = 4,
                           .predict = true,
                           .step = step,
                           .fault = disturb,
                           .fault_user = &t});
    }
    free(want);
}

typedef struct gate {
    atomic_bool closed;
    atomic_int held;
} gate;

static mo_status hold(void *user, const mo_read *read, int64_t offset, int64_t *bytes)
{
    gate *g = user;
    (void)read;
    (void)offset;
    (void)bytes;
    atomic_fetch_add(&g->held, 1);
    while (atomic_load(&g->closed)) {
        usleep(100);
    }
    return MO_OK;
}

/* A store with one reader, which stands still before every read as long as the gate is closed. */
static void open_gated(rig *r, gate *g, bool predict)
{
    rig_open(r, find("qwen3moe-nvfp4")->path,
             &(setting){.percent = 90, .readers = 1, .predict = predict, .fault = hold, .fault_user = g});
}

/* Until a read is under way. */
static void await_held(gate *g)
{
    while (atomic_load(&g->held) == 0) {
        usleep(100);
    }
}

typedef struct discovery {
    mo_session *session;
    const int32_t *tokens;
    int64_t experts;
    mo_status status;
} discovery;

static void *discover(void *arg)
{
    discovery *d = arg;
    d->status = mo_session_discover(d->session, d->tokens, 8, &d->experts, NULL);
    return NULL;
}

/* While a discovery waits for the disk, the engine is free for steps of others; what was read is there afterwards. */
static void a_discovery_reads_without_the_engine(void **state)
{
    (void)state;
    rig r;
    gate g = {.closed = true};
    pthread_t thread;
    mo_store_counters before;
    open_gated(&r, &g, false);
    discovery d = {.session = r.session, .tokens = find("qwen3moe-nvfp4")->tokens, .status = MO_EINVAL};
    before = mo_store_count(r.tiers->store);
    assert_int_equal(pthread_create(&thread, NULL, discover, &d), 0);
    await_held(&g);
    int busy = EBUSY;
    for (int i = 0; i < 10000 && busy; i++) { /* ten seconds */
        usleep(1000);
        busy = pthread_mutex_trylock(&r.engine->lock);
    }
    if (!busy) {
        pthread_mutex_unlock(&r.engine->lock);
    }
    atomic_store(&g.closed, false);
    pthread_join(thread, NULL);
    assert_int_equal(busy, 0);
    assert_int_equal(d.status, MO_OK);
    assert_true(d.experts > 0);
    assert_int_equal(d.experts, mo_store_count(r.tiers->store).guessed - before.guessed);
    rig_close(&r);
}

/* What discovery counted is where the policy begins: before any step, experts that it saw are expected more than others. */
static void a_discovery_seeds_the_policy(void **state)
{
    (void)state;
    rig r;
    gate g = {.closed = false};
    open_gated(&r, &g, false);
    discovery d = {.session = r.session, .tokens = find("qwen3moe-nvfp4")->tokens, .status = MO_EINVAL};
    discover(&d);
    assert_int_equal(d.status, MO_OK);
    const mo_expert_table *b = mo_store_experts(r.tiers->store);
    double least = 2, most = -1;
    for (int32_t i = 0; i < b->expert_count; i++) {
        const mo_expert_home *home = &b->home[i];
        const double chance =
            mo_slots_chance(r.tiers->store->classes[home->size_class].slots, home->in_class);
        least = chance < least ? chance : least;
        most = chance > most ? chance : most;
    }
    assert_true(least >= 0 && most > least);
    rig_close(&r);
}

/* Discoveries beside steps that need, guess and withdraw: both end, and no result changes. */
static void discoveries_and_steps_mix(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *want = logits_of(o, &(setting){.percent = -1}), *rows = rows_for(o);
    rig r;
    rig_open(&r, o->path, &(setting){.percent = 30, .readers = 2, .predict = true});
    discovery d = {.tokens = o->tokens};
    check_status(mo_engine_session_open(r.engine, MO_KV_I16, 256, &d.session, &r.err), &r.err);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, discover, &d), 0);
        const mo_status status = feed(&r, o, 1, rows);
        pthread_join(thread, NULL);
        check_status(status, &r.err);
        assert_int_equal(d.status, MO_OK);
        assert_memory_equal(rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        mo_session_close(r.session);
        check_status(mo_engine_session_open(r.engine, MO_KV_I16, 256, &r.session, &r.err), &r.err);
    }
    mo_session_close(d.session);
    rig_close(&r);
    free(want);
    free(rows);
}

/* Guesses that the layer, which needs nothing, proves wrong before they are read. */
static void guess_in_vain(mo_store *store, int layer, int distance, int count)
{
    for (int i = 0; i < count; i++) {
        mo_need none;
        mo_store_guess(store, layer, (const int32_t[]){2}, 1, distance, INT64_MAX);
        mo_store_want(store, layer, &none, 0);
        mo_store_leave(store);
    }
}

/* Of three guesses one is under way, one comes true and one is wrong when the layer says what it needs. */
static void wrong_guesses_are_not_read(void **state)
{
    (void)state;
    gate g = {.closed = true};
    rig r;
    open_gated(&r, &g, false);
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    mo_need need = {.expert = 1, .picks = 1};
    mo_store_guess(store, layer, (const int32_t[]){0, 1, 2}, 3, 1, INT64_MAX);
    assert_true(mo_store_has(store, layer, 0) && mo_store_has(store, layer, 1) &&
                mo_store_has(store, layer, 2));
    await_held(&g);
    mo_store_pass(store, MO_STORE_GENERATION);
    mo_store_want(store, layer, &need, 1);
    assert_true(mo_store_has(store, layer, 0) && mo_store_has(store, layer, 1));
    assert_false(mo_store_has(store, layer, 2));
    atomic_store(&g.closed, false);
    while (!need.in || !need.down) {
        check_status(mo_store_look(store, true, &r.err), &r.err);
    }
    mo_store_leave(store);
    mo_store_settle(store);
    const mo_store_counters c = mo_store_count(store);
    assert_int_equal(c.withdrawn, 1);
    assert_int_equal(c.guessed, 2);
    assert_int_equal(c.late, 1);
    assert_int_equal(c.disk.reads, 6);
    rig_close(&r);
}

/* The disk is so busy that no wrong guess is ever read: prediction ends all the same. */
static void guesses_that_were_withdrawn_count_as_wrong(void **state)
{
    (void)state;
    enum { GUESSES = 300 };
    gate g = {.closed = true};
    rig r;
    const oracle *o = find("qwen3moe-nvfp4");
    open_gated(&r, &g, true);
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    mo_store_guess(store, layer, (const int32_t[]){0}, 1, 1, INT64_MAX);
    await_held(&g);
    guess_in_vain(store, layer, 1, GUESSES);
    atomic_store(&g.closed, false);
    assert_int_equal(mo_store_count(store).withdrawn, GUESSES);
    assert_true(r.tiers->prefetch.on);
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = o->tokens, .count = 1};
    check_status(mo_session_feed(&f, 1, &r.err), &r.err);
    assert_false(r.tiers->prefetch.on);
    rig_close(&r);
}

/* A guess by a stream that is nearer knows more: what it does not name is not read unless that has begun, and what it does is a guess of
 * both. */
static void nearer_guesses_correct_those_from_afar(void **state)
{
    (void)state;
    gate g = {.closed = true};
    rig r;
    open_gated(&r, &g, false);
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    mo_need needs[2] = {{.expert = 0, .picks = 1}, {.expert = 2, .picks = 1}};
    mo_store_guess(store, layer, (const int32_t[]){0, 1, 2}, 3, 2, INT64_MAX);
    await_held(&g);
    mo_store_guess(store, layer, (const int32_t[]){2, 3}, 2, 1, INT64_MAX);
    assert_true(mo_store_has(store, layer, 0) && mo_store_has(store, layer, 2) &&
                mo_store_has(store, layer, 3));
    assert_false(mo_store_has(store, layer, 1));
    mo_store_pass(store, MO_STORE_GENERATION);
    mo_store_want(store, layer, needs, 2);
    atomic_store(&g.closed, false);
    while (!needs[0].down || !needs[1].down) {
        check_status(mo_store_look(store, true, &r.err), &r.err);
    }
    mo_store_leave(store);
    const mo_store_counters c = mo_store_count(store);
    assert_int_equal(c.distance[2].made, 3);
    assert_int_equal(c.distance[2].proven, 2);
    assert_int_equal(c.distance[2].late, 2);
    assert_int_equal(c.distance[1].made, 2);
    assert_int_equal(c.distance[1].proven, 1);
    assert_int_equal(c.distance[1].late, 1);
    assert_int_equal(c.withdrawn, 2); /* 1 by the nearer guess, 3 by the layer */
    assert_int_equal(c.guessed, 2);
    rig_close(&r);
}

/* The expert is in RAM no more, and nobody else is known to have it. */
static void lose(mo_store *store, int layer, int expert)
{
    mo_need need = {.expert = expert, .picks = 1};
    mo_store_yield(store, layer, expert);
    mo_store_want(store, layer, &need, 1);
    mo_store_skip(store, &need);
    mo_store_leave(store);
}

/* Guesses that are right come too late: prediction looks one layer further, and no more when those that do are wrong. */
static void prediction_looks_as_far_as_it_pays(void **state)
{
    (void)state;
    enum { GUESSES = 300 };
    gate g = {.closed = true};
    rig r;
    const oracle *o = find("qwen3moe-nvfp4");
    open_gated(&r, &g, true);
    mo_store *store = r.tiers->store;
    const mo_prefetch_state *f = &r.tiers->prefetch;
    const int layer = r.tiers->experts->home[0].layer;
    mo_feed feed = {.size = sizeof feed, .session = r.session, .tokens = o->tokens, .count = 1};
    assert_int_equal(f->distance, 1);
    for (int i = 0; i < GUESSES; i++) {
        mo_need need = {.expert = 2, .picks = 1};
        atomic_store(&g.closed, true);
        mo_store_guess(store, layer, (const int32_t[]){2}, 1, 1, INT64_MAX);
        mo_store_pass(store, MO_STORE_GENERATION);
        mo_store_want(store, layer, &need, 1);
        atomic_store(&g.closed, false);
        mo_store_leave(store);
        lose(store, layer, 2);
    }
    assert_int_equal(mo_store_count(store).distance[1].late, GUESSES);
    check_status(mo_session_feed(&feed, 1, &r.err), &r.err);
    assert_true(f->on);
    assert_int_equal(f->distance, 2);
    assert_true(mo_store_count(store).distance[2].made > 0);
    mo_store_settle(store);
    atomic_store(&g.closed, true);
    atomic_store(&g.held, 0);
    lose(store, layer, 0);
    mo_store_guess(store, layer, (const int32_t[]){0}, 1, 2, INT64_MAX);
    await_held(&g);
    lose(store, layer, 2);
    guess_in_vain(store, layer, 2, GUESSES);
    atomic_store(&g.closed, false);
    feed.count = 2;
    check_status(mo_session_feed(&feed, 1, &r.err), &r.err);
    assert_true(f->on);
    assert_int_equal(f->distance, 1);
    assert_int_equal(f->most, 1);
    rig_close(&r);
}

/* What several tokens will need is guessed for all of them, and bits do not change. */
static void guesses_are_for_several_tokens(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    const size_t floats = (size_t)ORACLE_TOKENS * (size_t)o->vocab;
    float *rows[2] = {calloc(floats, sizeof(float)), calloc(floats, sizeof(float))};
    for (int predict = 0; predict < 2; predict++) {
        rig r;
        rig_open(&r, o->path, &(setting){.percent = 60, .predict = predict, .policy = "lru"});
        check_status(feed_with(&r, o, 2, rows[predict], &r.err), &r.err);
        const mo_store_counters c = mo_store_count(r.tiers->store);
        assert_true(predict ? c.distance[1].made > 0 && c.distance[1].proven > 0 : c.distance[1].made == 0);
        rig_close(&r);
    }
    assert_memory_equal(rows[0], rows[1], floats * sizeof(float));
    free(rows[0]);
    free(rows[1]);
}

/* Far guesses find no slots, and name nothing: that those for the next layer are wrong is seen all the same. */
static void each_distance_is_checked(void **state)
{
    (void)state;
    enum { GUESSES = 300 };
    gate g = {.closed = true};
    rig r;
    const oracle *o = find("qwen3moe-nvfp4");
    open_gated(&r, &g, true);
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    r.tiers->prefetch.distance = 2;
    mo_store_guess(store, layer, (const int32_t[]){0}, 1, 1, INT64_MAX);
    await_held(&g);
    guess_in_vain(store, layer, 1, GUESSES);
    atomic_store(&g.closed, false);
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = o->tokens, .count = 1};
    check_status(mo_session_feed(&f, 1, &r.err), &r.err);
    assert_false(r.tiers->prefetch.on);
    rig_close(&r);
}

/* The layer needs its first `count` experts, and has them. */
static void need_first(rig *r, int layer, int32_t count)
{
    mo_need needs[MO_EXPERTS_MAX];
    for (int32_t i = 0; i < count; i++) {
        needs[i] = (mo_need){.expert = i, .picks = 1};
    }
    mo_store_pass(r->tiers->store, MO_STORE_GENERATION);
    mo_store_want(r->tiers->store, layer, needs, count);
    for (int32_t i = 0; i < count; i++) {
        while (!needs[i].down) {
            check_status(mo_store_look(r->tiers->store, true, &r->err), &r->err);
        }
    }
    mo_store_leave(r->tiers->store);
}

/* What the next layer will need stays, however many slots are wanted for the layer behind it. */
static void far_guesses_spare_what_near_ones_name(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, find("qwen3moe-nvfp4")->path, &(setting){.percent = 25, .policy = "lru"});
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    const int32_t slots = mo_store_class_slots(store, 0), experts = r.tiers->experts->experts;
    const int32_t count = slots < experts ? slots : experts;
    int32_t ids[MO_EXPERTS_MAX];
    assert_int_equal(r.tiers->experts->class_count, 1);
    for (int32_t i = 0; i < count; i++) {
        ids[i] = i;
    }
    for (int named = 0; named < 2; named++) {
        int32_t there = 0;
        need_first(&r, layer, count);
        if (named) {
            mo_store_guess(store, layer, ids, count, 1, INT64_MAX);
        }
        for (int32_t i = 0; i < slots; i++) { /* one after the other: guesses are fewer than slots */
            mo_store_guess(store, layer + 1, &(int32_t){i % experts}, 1, 2, INT64_MAX);
            mo_store_settle(store);
        }
        for (int32_t i = 0; i < count; i++) {
            there += mo_store_has(store, layer, i);
        }
        assert_true(named ? there == count : there < count);
    }
    rig_close(&r);
}

/* Of a prompt that needs nearly all experts of a layer the next layer's are read while that is computed, and each is read once. */
static void prompts_read_the_next_layer_ahead(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    mo_store_phase_counters c[3];
    for (int predict = 0; predict < 3; predict++) { /* 2: routers' guesses have proved wrong */
        rig r;
        rig_open(&r, o->path, &(setting){.percent = 60, .predict = predict, .policy = "lru"});
        const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = o->tokens, .count = 32};
        r.tiers->prefetch.on = predict == 1;
        check_status(mo_session_feed(&f, 1, &r.err), &r.err);
        mo_store_settle(r.tiers->store);
        const mo_store_counters all = mo_store_count(r.tiers->store);
        c[predict] = all.phase[MO_STORE_PROMPT];
        assert_int_equal(all.guessed, 0);
        assert_int_equal(all.phase[MO_STORE_PROMPT].bytes, all.disk.bytes);
        rig_close(&r);
    }
    assert_int_equal(c[0].landing, 0);
    assert_true(c[1].landing > 0 && c[2].landing > 0);
    assert_int_equal(c[0].hits + c[1].hits + c[2].hits, 0); /* what the pass reads for itself was not there */
    assert_int_equal(c[0].bytes, c[1].bytes);
    assert_int_equal(c[0].bytes, c[2].bytes);
}

/* Whole layers that are read ahead change no bit, under any ceiling and policy. */
static void layers_ahead_change_no_bit(void **state)
{
    static const int percents[] = {90, 60, 40, 20, 0};
    (void)state;
    for (int m = 0; m < model_count; m += MODEL_STEP) {
        const oracle *o = &models[m];
        float *want = logits_of(o, &(setting){.percent = -1});
        for (int i = 0; i < 5; i++) {
            compare(o, want,
                    &(setting){.percent = percents[i],
                               .policy = mo_policy_at((m + i) % 4) ? mo_policy_at((m + i) % 4)->name : NULL,
                               .predict = true,
                               .readers = 1 + i % 3});
        }
        free(want);
    }
}

/* Feeds again after the failure: the session must go on as if nothing had happened. With `untold` the failing feed has
 * nowhere to say what is wrong. */
static void fail_once(const oracle *o, const float *want, const setting *s, trouble *t, bool untold)
{
    rig r;
    float *rows = rows_for(o);
    rig_open(&r, o->path, s);
    mo_status status = feed_with(&r, o, s->step, rows, untold ? NULL : &r.err);
    if (atomic_load(&t->reads) > t->fail_at) {
        if (status == MO_OK && !s->predict && !t->shorter) { /* what is cut short is read on */
            fail_msg("%s: read %d failed and nobody noticed", o->name, t->fail_at);
        }
        if (status != MO_OK) {
            assert_true(untold ? !r.err.detail[0] : strlen(r.err.detail) > 20);
            status = feed(&r, o, s->step, rows);
        }
    }
    check_status(status, &r.err);
    assert_memory_equal(rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
    free(rows);
    rig_close(&r);
}

static void every_read_fails_once(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *want = logits_of(o, &(setting){.percent = -1});
    for (int streamed = 0; streamed < 2; streamed++) {
        for (int number = 0, total = 1; number < total; number += READ_STEP + number / 24) {
            for (int untold = 0; untold < 2; untold++) {
                trouble t = {.fail_at = number, .shorter = number % 2};
                fail_once(o, want,
                          &(setting){.percent = 25,
                                     .streamed = streamed,
                                     .readers = 2,
                                     .step = 16,
                                     .predict = number % 3 == 0,
                                     .fault = disturb,
                                     .fault_user = &t},
                          &t, untold);
                const int reads = atomic_load(&t.reads);
                total = reads > total ? reads : total;
            }
        }
    }
    free(want);
}

/* The same of reads that are ahead with all of a layer, which find slots where more of it than that are in RAM. */
static void every_read_of_a_layer_ahead_fails_once(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *want = logits_of(o, &(setting){.percent = -1});
    for (int number = 0, total = 1; number < total; number += READ_STEP + number / 24) {
        trouble t = {.fail_at = number};
        fail_once(o, want,
                  &(setting){.percent = 60,
                             .policy = "lru",
                             .readers = 2,
                             .step = 32,
                             .predict = true,
                             .fault = disturb,
                             .fault_user = &t},
                  &t, false);
        const int reads = atomic_load(&t.reads);
        total = reads > total ? reads : total;
    }
    free(want);
}

/* ---- What is left out ------------------------------------------------------------------------- */

static void skipping_is_counted(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *rows = rows_for(o);
    rig r;
    rig_open(&r, o->path, &(setting){.percent = 25, .skip = true});
    check_status(feed(&r, o, 1, rows), &r.err);
    assert_true(r.tiers->skipped > 0);
    for (int64_t i = 0; i < ORACLE_TOKENS * o->vocab; i++) {
        assert_true(rows[i] == rows[i]);
    }
    free(rows);
    rig_close(&r);
}

static mo_status hold_and_fail(void *user, const mo_read *read, int64_t offset, int64_t *bytes)
{
    hold(user, read, offset, bytes);
    return MO_EIO;
}

/* An expert on its way is done without; then its reads fail. Whoever needs it next has it read again. */
static void what_is_done_without_may_fail(void **state)
{
    (void)state;
    gate g = {.closed = true};
    rig r;
    rig_open(&r, find("qwen3moe-nvfp4")->path,
             &(setting){.percent = 90, .readers = 1, .fault = hold_and_fail, .fault_user = &g});
    mo_store *store = r.tiers->store;
    const int layer = r.tiers->experts->home[0].layer;
    mo_need need = {.expert = 1, .picks = 1};
    mo_store_guess(store, layer, (const int32_t[]){1}, 1, 1, INT64_MAX);
    mo_store_pass(store, MO_STORE_GENERATION);
    mo_store_want(store, layer, &need, 1);
    assert_true(need.missing);
    mo_store_skip(store, &need);
    mo_store_leave(store);
    atomic_store(&g.closed, false);
    mo_store_settle(store);
    assert_false(mo_store_has(store, layer, 1));
    rig_close(&r);
}

/* ---- Counting and warming --------------------------------------------------------------------- */

static void warm_experts_are_hits(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    float *want = logits_of(o, &(setting){.percent = -1}), *rows = rows_for(o);
    rig r;
    rig_open(&r, o->path, &(setting){.percent = 100});
    const mo_expert_table *b = r.tiers->experts;
    mo_store_request *requests = calloc((size_t)b->expert_count, sizeof *requests);
    for (int32_t i = 0; i < b->expert_count; i++) {
        requests[i] = (mo_store_request){.layer = b->home[i].layer, .expert = b->home[i].expert, .hits = 1};
    }
    check_status(mo_store_warm(r.tiers->store, requests, b->expert_count, 1, NULL, NULL, &r.err), &r.err);
    check_status(feed(&r, o, 0, rows), &r.err);
    const mo_store_counters c = mo_store_count(r.tiers->store);
    assert_int_equal(c.phase[MO_STORE_PROMPT].hits, c.phase[MO_STORE_PROMPT].asked);
    assert_int_equal(c.evictions, 0);
    assert_memory_equal(rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
    free(requests);
    free(rows);
    free(want);
    rig_close(&r);
}

static void exchanges_take_place(void **state)
{
    (void)state;
    const oracle *o = find("qwen3moe-nvfp4");
    rig r;
    rig_open(&r, o->path, &(setting){.percent = 50});
    const mo_expert_home first = r.tiers->experts->home[0];
    const mo_store_request request = {.layer = first.layer, .expert = first.expert};
    check_status(mo_store_warm(r.tiers->store, &request, 1, 1, NULL, NULL, &r.err), &r.err);
    assert_true(mo_store_resident(r.tiers->store, first.layer, first.expert));
    check_status(mo_store_exchange(r.tiers->store, first.layer, first.expert, first.expert + 1, &r.err),
                 &r.err);
    assert_false(mo_store_resident(r.tiers->store, first.layer, first.expert));
    assert_true(mo_store_resident(r.tiers->store, first.layer, first.expert + 1));
    assert_int_equal(mo_store_exchange(r.tiers->store, first.layer, first.expert, first.expert + 2, &r.err),
                     MO_EINVAL);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_and_policies),
        cmocka_unit_test(readers_and_ways),
        cmocka_unit_test(streamed_layers),
        cmocka_unit_test(arrivals_reversed),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(skipping_is_counted),
        cmocka_unit_test(a_discovery_reads_without_the_engine),
        cmocka_unit_test(a_discovery_seeds_the_policy),
        cmocka_unit_test(discoveries_and_steps_mix),
        cmocka_unit_test(wrong_guesses_are_not_read),
        cmocka_unit_test(guesses_that_were_withdrawn_count_as_wrong),
        cmocka_unit_test(nearer_guesses_correct_those_from_afar),
        cmocka_unit_test(prediction_looks_as_far_as_it_pays),
        cmocka_unit_test(guesses_are_for_several_tokens),
        cmocka_unit_test(each_distance_is_checked),
        cmocka_unit_test(far_guesses_spare_what_near_ones_name),
        cmocka_unit_test(prompts_read_the_next_layer_ahead),
        cmocka_unit_test(layers_ahead_change_no_bit),
        cmocka_unit_test(every_read_of_a_layer_ahead_fails_once),
        cmocka_unit_test(what_is_done_without_may_fail),
        cmocka_unit_test(warm_experts_are_hits),
        cmocka_unit_test(exchanges_take_place),
    };
    model_count = oracle_read(models);
    model_count += oracle_read_list("cpu.txt", models + model_count);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
