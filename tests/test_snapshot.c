/* Snapshots and sessions that share blocks: the same bits as sessions that share nothing, in RAM and on the simulated device,
 * for families that attend to everything, to windows, or have recurrent layers; what is shared takes no memory; what there
 * is not is refused and costs nothing. */
#include <pthread.h>
#include <stdatomic.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "fork.h"
#include "gpu_case.h"
#include "random.h"
#include "sanitized.h"

enum {
    TEXTS = 3,
    COMMON = 260, /* tokens that the texts share: two blocks and a bit */
    LONGEST = 420,
    CONTEXT = 448,
    SHELF = 5,
    SESSIONS = 3,
};

/* All positions; windows; recurrent; windows with other heads. */
static const char *const families[] = {"qwen3moe", "gpt-oss-mxfp4", "qwen3next",
                                       "gemma4",   "kimi-linear",   "deepseek4"};
enum { FAMILIES = sizeof families / sizeof *families };

/* NULL: no device computes the family. */
static const oracle *find_for(const char *name, const char *device)
{
    const oracle *o = find_model(name);
    return device && o->cpu_only ? NULL : o;
}

/* ---- A model with texts ------------------------------------------------------------------------ */

typedef struct world {
    const oracle *o;
    mo_model *model;
    mo_kv_type kv;
    int32_t text[TEXTS][LONGEST];
    float *want[TEXTS]; /* [LONGEST][vocab], of `expect` */
    struct {
        mo_snapshot *snapshot;
        int text;
    } shelf[SHELF];
    pthread_rwlock_t lock; /* of the shelf */
    atomic_int differs, failed, computed, asked;
} world;

static mo_model *open_with(const oracle *o, const mo_model_options *ask)
{
    mo_model_options options = *ask;
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    options.threads = 2;
    options.learning.profile = "off"; /* nothing of the user's is read or written */
    options.device = ask->device ? ask->device : "none";
    if (mo_model_open(o->path, &options, &model, &err) != MO_OK) {
        fail_msg("%s: %s", o->name, err.detail);
    }
    return model;
}

static mo_model_options settings(const char *device, mo_kv_type kv)
{
    mo_model_options options = mo_model_options_default();
    options.device = device;
    options.kv = kv;
    options.context = CONTEXT;
    options.batch = 64;
    options.sessions = SESSIONS;
    return options;
}

/* Logits of sessions that are alone, in RAM: most of the time of these tests if each computed them anew. */
typedef struct expected {
    const oracle *o;
    mo_kv_type kv;
    float *rows[TEXTS]; /* [LONGEST][vocab] */
} expected;

static expected known[FAMILIES * MO_KV_TYPES];
static int known_count;

static const expected *expect(const oracle *o, mo_kv_type kv, int32_t text[TEXTS][LONGEST])
{
    for (int i = 0; i < known_count; i++) {
        if (known[i].o == o && known[i].kv == kv) {
            return &known[i];
        }
    }
    assert_true(known_count < FAMILIES * MO_KV_TYPES);
    expected *e = &known[known_count++];
    const mo_model_options plain = settings(NULL, kv);
    mo_model *alone = open_with(o, &plain);
    *e = (expected){.o = o, .kv = kv};
    for (int t = 0; t < TEXTS; t++) {
        sink s = {.rows = calloc((size_t)(LONGEST * o->vocab), sizeof(float)), .vocab = o->vocab};
        mo_session *session = open_session(alone, kv);
        feed(session, text[t], LONGEST, 0, &s);
        mo_session_close(session);
        e->rows[t] = s.rows;
    }
    mo_model_close(alone);
    return e;
}

static void forget_expected(void)
{
    for (int i = 0; i < known_count; i++) {
        for (int t = 0; t < TEXTS; t++) {
            free(known[i].rows[t]);
        }
    }
}

static void open_world(world *w, const oracle *o, const mo_model_options *ask)
{
    uint64_t seed = 77;
    *w = (world){.o = o, .kv = ask->kv};
    for (int t = 0; t < TEXTS; t++) {
        for (int i = 0; i < LONGEST; i++) {
            w->text[t][i] = i < COMMON && t > 0 ? w->text[0][i] : (int32_t)random_below(&seed, o->vocab);
        }
    }
    const expected *e = expect(o, ask->kv, w->text);
    memcpy(w->want, e->rows, sizeof w->want);
    w->model = open_with(o, ask);
    pthread_rwlock_init(&w->lock, NULL);
}

static void close_world(world *w)
{
    for (int i = 0; i < SHELF; i++) {
        mo_snapshot_close(w->shelf[i].snapshot);
    }
    pthread_rwlock_destroy(&w->lock);
    mo_model_close(w->model);
}

static bool feed_text(const world *w, mo_session *session, int text, int64_t length, int64_t step)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {
        .size = sizeof f, .session = session, .tokens = w->text[text], .count = length, .step = step};
    const mo_status status = mo_session_feed(&f, 1, &err);
    if (status != MO_OK) {
        print_message("%s\n", err.detail);
    }
    return status == MO_OK && memcmp(mo_session_logits(session), w->want[text] + (length - 1) * w->o->vocab,
                                     sizeof(float) * (size_t)w->o->vocab) == 0;
}

static mo_snapshot *open_snapshot(const mo_session *session)
{
    mo_error err = {.detail = ""};
    mo_snapshot *snapshot = NULL;
    if (mo_snapshot_open(session, &snapshot, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return snapshot;
}

static mo_kept_report kept(mo_model *model)
{
    mo_kept_report r;
    mo_model_kept(model, &r, sizeof r);
    assert_int_equal(r.total_bytes, r.free_bytes + r.session_bytes + r.snapshot_bytes);
    return r;
}

/* ---- Any order of things ----------------------------------------------------------------------- */

typedef struct walker {
    world *w;
    uint64_t seed;
    int steps;
} walker;

/* Feeds, forks, keeps, goes back, goes elsewhere. Every text ends with the logits of a session that did nothing of the kind. */
static void *walk(void *user)
{
    walker *me = user;
    world *w = me->w;
    mo_session *s[SESSIONS] = {NULL};
    int text[SESSIONS] = {0};
    for (int i = 0; i < SESSIONS; i++) {
        s[i] = open_session(w->model, w->kv);
    }
    for (int n = 0; n < me->steps; n++) {
        const int who = (int)random_below(&me->seed, SESSIONS),
                  other = (int)random_below(&me->seed, SESSIONS);
        const int shelf = (int)random_below(&me->seed, SHELF);
        const int kind = (int)random_below(&me->seed, 10);
        mo_error err = {.detail = ""};
        mo_status status = MO_OK;
        if (kind < 4) { /* on, back, or another text */
            const int64_t length = mo_session_length(s[who]), more = 1 + random_below(&me->seed, 70);
            const int64_t to = kind == 0 ? 1 + random_below(&me->seed, LONGEST) : length + more;
            text[who] = random_below(&me->seed, 4) ? text[who] : (int)random_below(&me->seed, TEXTS);
            const bool same = feed_text(w, s[who], text[who], to < LONGEST ? to : LONGEST,
                                        random_below(&me->seed, 3) ? 0 : 1 + random_below(&me->seed, 9));
            atomic_fetch_add(&w->differs, !same);
        } else if (kind < 6) {
            pthread_rwlock_wrlock(&w->lock);
            mo_snapshot_close(w->shelf[shelf].snapshot);
            w->shelf[shelf].snapshot = NULL;
            status = mo_snapshot_open(s[who], &w->shelf[shelf].snapshot, &err);
            w->shelf[shelf].text = text[who];
            const mo_snapshot *on = w->shelf[random_below(&me->seed, SHELF)].snapshot;
            if (status == MO_OK && on) {
                status = mo_snapshot_lean(w->shelf[shelf].snapshot, on, &err);
            }
            pthread_rwlock_unlock(&w->lock);
        } else if (kind < 8) {
            pthread_rwlock_rdlock(&w->lock);
            const mo_snapshot *kept_one = w->shelf[shelf].snapshot;
            if (kept_one && mo_snapshot_length(kept_one) > 0) {
                const int64_t all = mo_snapshot_length(kept_one), least = mo_snapshot_least(kept_one);
                const int64_t length =
                    random_below(&me->seed, 2) ? all : least + random_below(&me->seed, all - least + 1);
                status = mo_session_restore(s[who], kept_one, length, &err);
                atomic_fetch_add(&w->differs, mo_session_length(s[who]) != length);
                text[who] = w->shelf[shelf].text;
            }
            pthread_rwlock_unlock(&w->lock);
        } else if (kind == 8 && who != other) {
            status = fork_session(s[who], s[other], &err);
            text[who] = text[other];
        } else {
            mo_session_close(s[who]);
            s[who] = open_session(w->model, w->kv);
        }
        if (status != MO_OK) {
            print_message("%s\n", err.detail);
            atomic_fetch_add(&w->failed, 1);
        }
    }
    for (int i = 0; i < SESSIONS; i++) {
        mo_session_close(s[i]);
    }
    return NULL;
}

static void walk_alone(const char *device)
{
    static const mo_kv_type kinds[] = {MO_KV_I16, MO_KV_F32, MO_KV_Q8_0};
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], device);
        for (int k = SANITIZED ? i % 3 : 0; o && k < 3; k += SANITIZED ? 3 : 1) {
            world w;
            const mo_model_options options = settings(device, kinds[k]);
            open_world(&w, o, &options);
            walker me = {.w = &w,
                         .seed = (uint64_t)(10 * i + k + 1),
                         .steps = SANITIZED ? 20
                                  : device  ? 50
                                            : 120};
            walk(&me);
            if (atomic_load(&w.differs) || atomic_load(&w.failed)) {
                fail_msg("%s, kv %d: %d times other bits, %d failures", o->name, k, atomic_load(&w.differs),
                         atomic_load(&w.failed));
            }
            assert_int_equal(kept(w.model).session_bytes, 0);
            close_world(&w);
        }
    }
}

static void any_order_gives_the_same_bits(void **state)
{
    (void)state;
    walk_alone(NULL);
}

static void any_order_gives_the_same_bits_on_a_device(void **state)
{
    (void)state;
    walk_alone(device_name);
}

/* Sessions are opened, forked, kept, restored and closed by four threads, each of which feeds its own. */
static void several_threads(const char *device)
{
    enum { THREADS = 4 };
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], device);
        if (!o) {
            continue;
        }
        world w;
        walker me[THREADS];
        pthread_t threads[THREADS];
        mo_model_options options = settings(device, MO_KV_I16);
        options.sessions = SESSIONS * THREADS;
        open_world(&w, o, &options);
        for (int t = 0; t < THREADS; t++) {
            me[t] = (walker){.w = &w,
                             .seed = (uint64_t)(100 * i + t + 1),
                             .steps = SANITIZED ? 12
                                      : device  ? 25
                                                : 60};
            assert_int_equal(pthread_create(&threads[t], NULL, walk, &me[t]), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
        }
        assert_int_equal(atomic_load(&w.differs), 0);
        assert_int_equal(atomic_load(&w.failed), 0);
        close_world(&w);
    }
}

static void threads_share_blocks(void **state)
{
    (void)state;
    several_threads(NULL);
}

static void threads_share_blocks_on_a_device(void **state)
{
    (void)state;
    several_threads(device_name);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

/* Sixteen sessions with 8,000 tokens in common take what one takes; each then has one block of its own in every layer. */
static void sixteen_take_little_more_than_one(const char *device)
{
    enum { MANY = 16, LONG = SANITIZED ? 1000 : 8000 };
    const char *const names[] = {"qwen3moe", "gpt-oss-mxfp4"};
    for (int i = 0; i < (device ? 1 : 2); i++) {
        const oracle *o = find_model(names[i]);
        mo_session *s[MANY];
        int32_t *text = malloc(sizeof *text * (LONG + 1));
        uint64_t seed = 3;
        mo_error err = {.detail = ""};
        mo_model_options options = settings(device, MO_KV_I16);
        options.context = LONG + 100;
        options.batch = 512;
        options.sessions = MANY;
        options.positions = options.context; /* not sixteen times as much */
        for (int t = 0; t <= LONG; t++) {
            text[t] = (int32_t)random_below(&seed, o->vocab);
        }
        mo_model *model = open_with(o, &options);
        for (int j = 0; j < MANY; j++) {
            s[j] = open_session(model, MO_KV_I16);
        }
        mo_feed f = {.size = sizeof f, .session = s[0], .tokens = text, .count = LONG};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        const int64_t one = kept(model).session_bytes;
        for (int j = 1; j < MANY; j++) {
            assert_int_equal(fork_session(s[j], s[0], &err), MO_OK);
            assert_int_equal(mo_session_length(s[j]), LONG);
        }
        const int64_t all = kept(model).session_bytes;
        assert_true(one > 0 && (double)all <= 1.2 * (double)one);
        assert_int_equal(all, one);
        const uint64_t need = mo_session_need(s[1], 1);
        f.session = s[1];
        f.count = LONG + 1;
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        assert_int_equal(mo_session_computed(s[1]), 1);
        assert_int_equal(kept(model).session_bytes - all, need);
        assert_int_equal(mo_session_need(s[1], 1), 0);
        /* All of them write on. Without windows one has 63 blocks in a layer then, of which it shares 62: 78 of 63. */
        for (int j = 0; j < MANY; j++) {
            f.session = s[j];
            assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        }
        const int64_t apart = kept(model).session_bytes;
        assert_true(apart == one + (MANY - 1) * (int64_t)need);
        assert_true(SANITIZED || (double)apart <= (i ? 1.44 : 1.24) * (double)one);
        for (int j = 0; j < MANY; j++) {
            mo_session_close(s[j]);
        }
        assert_int_equal(kept(model).session_bytes, 0);
        mo_model_close(model);
        free(text);
    }
}

static void sixteen_sessions_share_8000_tokens(void **state)
{
    (void)state;
    sixteen_take_little_more_than_one(NULL);
}

static void sixteen_sessions_share_8000_tokens_on_a_device(void **state)
{
    (void)state;
    sixteen_take_little_more_than_one(device_name);
}

/* What sixteen sessions that have gone on apart take while they rest, and one; then each goes on with the bits of a session that
 * never rested. */
enum { RESTING = 16 };

typedef struct rest {
    mo_snapshot *snapshot;
    int32_t *text;
    int64_t length;
    float *want; /* after one token more */
} rest;

static uint64_t bytes_at_rest(mo_model *model)
{
    const mo_kept_report r = kept(model);
    return (uint64_t)(r.session_bytes + r.snapshot_bytes + r.row_bytes);
}

static const float *go_on(mo_session *s, const rest *r)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = s, .tokens = r->text, .count = r->length + 1};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return mo_session_logits(s);
}

/* As bytes it is what it was before it was lean. */
static void make_delta_on(mo_snapshot *s, const mo_snapshot *on)
{
    uint8_t *before, *after;
    size_t size_before, size_after;
    mo_error err = {.detail = ""};
    assert_int_equal(mo_snapshot_write(s, &before, &size_before, &err), MO_OK);
    if (mo_snapshot_lean(s, on, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_int_equal(mo_snapshot_write(s, &after, &size_after, &err), MO_OK);
    assert_int_equal(size_before, size_after);
    assert_memory_equal(before, after, size_before);
    mo_free(before);
    mo_free(after);
}

static void sixteen_rest(const oracle *o, const char *device, int64_t common, int64_t own)
{
    rest r[RESTING] = {0};
    uint64_t seed = 9;
    mo_error err = {.detail = ""};
    const size_t row = sizeof(float) * (size_t)o->vocab;
    mo_model_options options = settings(device, MO_KV_I16);
    options.context = common + own + 256;
    options.batch = 512;
    options.sessions = 2;
    options.kept_bytes = options.kept_device_bytes = 64 << 20;
    mo_model *model = open_with(o, &options);
    mo_session *first = open_session(model, MO_KV_I16), *s = open_session(model, MO_KV_I16);
    for (int j = 0; j < RESTING; j++) {
        r[j].length = common + own - j % 3;
        r[j].text = malloc(sizeof(int32_t) * (size_t)(common + own + 1));
        r[j].want = malloc(row);
        for (int64_t t = 0; t <= common + own; t++) {
            r[j].text[t] = j && t < common ? r[0].text[t] : (int32_t)random_below(&seed, o->vocab);
        }
        r[j].text[common] = j; /* where they part */
    }
    mo_feed f = {.size = sizeof f, .session = first, .tokens = r[0].text, .count = common};
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    uint64_t one = 0, whole = 0;
    for (int j = 0; j < RESTING; j++) {
        assert_int_equal(fork_session(s, first, &err), MO_OK);
        f = (mo_feed){.size = sizeof f, .session = s, .tokens = r[j].text, .count = r[j].length};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        r[j].snapshot = open_snapshot(s);
        memcpy(r[j].want, go_on(s, &r[j]), row);
        if (j == RESTING - 1) { /* nothing but the snapshots from now on */
            mo_session_close(first);
            mo_session_close(s);
            whole = bytes_at_rest(model);
        }
    }
    const uint64_t least = (uint64_t)mo_snapshot_least(r[1].snapshot);
    for (int j = 1; j < RESTING; j++) {
        if (j < 3) {
            make_delta_on(r[j].snapshot, r[0].snapshot);
        } else { /* on one that is lean itself, too */
            assert_int_equal(mo_snapshot_lean(r[j].snapshot, r[j / 3].snapshot, &err), MO_OK);
        }
        assert_int_equal(mo_snapshot_length(r[j].snapshot), r[j].length);
    }
    mo_snapshot_bytes(r[0].snapshot, &one);
    one -= (uint64_t)r[0].length * sizeof(int32_t) + row;
    const uint64_t all = bytes_at_rest(model);
    print_message("%s, %lld tokens in common and %lld more: %.3f, as blocks %.3f\n", o->name,
                  (long long)common, (long long)own, (double)all / (double)one, (double)whole / (double)one);
    assert_true(all < whole);
    if (common == 8000) {
        assert_true((double)all <= 1.2 * (double)one);
    }
    assert_true(least == 1 ? mo_snapshot_least(r[1].snapshot) == 1
                           : mo_snapshot_least(r[1].snapshot) <= r[1].length);
    s = open_session(model, MO_KV_I16);
    assert_int_equal(mo_snapshot_spill(r[2].snapshot, &err), MO_OK);
    for (int j = RESTING - 1; j >= 0; j--) {
        assert_int_equal(mo_session_restore(s, r[j].snapshot, -1, &err), MO_OK);
        assert_int_equal(mo_session_length(s), r[j].length);
        assert_memory_equal(go_on(s, &r[j]), r[j].want, row);
        assert_int_equal(mo_session_computed(s), 1);
        if (least == 1) { /* what is common alone, and a part of its own */
            assert_int_equal(mo_session_restore(s, r[j].snapshot, common - 1, &err), MO_OK);
            assert_memory_equal(go_on(s, &r[j]), r[j].want, row);
            assert_int_equal(mo_session_restore(s, r[j].snapshot, common + 1, &err), MO_OK);
            assert_memory_equal(go_on(s, &r[j]), r[j].want, row);
        }
    }
    for (int j = 0; j < RESTING; j++) {
        mo_snapshot_close(r[j].snapshot);
        free(r[j].text);
        free(r[j].want);
    }
    mo_session_close(s);
    assert_int_equal(bytes_at_rest(model), 0);
    mo_model_close(model);
}

static void sessions_rest(const char *device)
{
    static const char *const names[] = {"qwen3moe", "gpt-oss-mxfp4"};
    const int64_t common = SANITIZED ? 1000 : 8000;
    for (int i = 0; i < (device ? 1 : 2); i++) {
        sixteen_rest(find_model(names[i]), device, common, 20);
        sixteen_rest(find_model(names[i]), device, 1010,
                     90); /* two blocks; few tokens in common will do for bits */
    }
}

static void sixteen_sessions_at_rest_take_little(void **state)
{
    (void)state;
    sessions_rest(NULL);
}

static void sixteen_sessions_at_rest_take_little_on_a_device(void **state)
{
    (void)state;
    sessions_rest(device_name);
}

/* A snapshot holds nothing alone while its session does not write; then the blocks that were written. */
static void bytes_of_a_snapshot_are_told(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    world w;
    const mo_model_options options = settings(NULL, MO_KV_I16);
    uint64_t all, alone;
    open_world(&w, o, &options);
    mo_session *s = open_session(w.model, MO_KV_I16);
    assert_true(feed_text(&w, s, 0, 200, 0));
    const int64_t held = kept(w.model).session_bytes;
    mo_snapshot *snapshot = open_snapshot(s);
    const uint64_t own = 200 * sizeof(int32_t) + (uint64_t)o->vocab * sizeof(float);
    assert_int_equal(mo_snapshot_length(snapshot), 200);
    assert_memory_equal(mo_snapshot_tokens(snapshot), w.text[0], 200 * sizeof(int32_t));
    assert_int_equal(mo_snapshot_bytes(snapshot, &all), own);
    assert_int_equal(all, own + (uint64_t)held);
    assert_int_equal(kept(w.model).snapshot_bytes, 0);
    assert_int_equal(kept(w.model).session_bytes, held);
    assert_true(feed_text(&w, s, 0, 201, 0)); /* the second of two blocks */
    alone = mo_snapshot_bytes(snapshot, &all);
    assert_int_equal(alone, own + (uint64_t)held / 2);
    assert_int_equal(kept(w.model).snapshot_bytes, held / 2);
    mo_session_close(s);
    assert_int_equal(mo_snapshot_bytes(snapshot, NULL), own + (uint64_t)held);
    mo_snapshot_close(snapshot);
    assert_int_equal(kept(w.model).snapshot_bytes, 0);
    close_world(&w);
}

/* ---- When there is no memory ------------------------------------------------------------------- */

/* Snapshots hold what a session needs: the feed says so and names the setting, the session keeps what it has, the one beside
 * it goes on; with a snapshot fewer it goes on too, with the same bits and without computing anything twice. */
static void out_of_blocks(const char *device)
{
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], device);
        world w;
        mo_model_options options = settings(device, MO_KV_I16);
        mo_error err = {.detail = ""};
        mo_snapshot *hoard[64] = {NULL};
        int hoarded = 0;
        if (!o) {
            continue;
        }
        options.sessions = 2;
        options.kept_bytes = options.kept_device_bytes = 1 << 20;
        open_world(&w, o, &options);
        mo_session *s = open_session(w.model, MO_KV_I16), *beside = open_session(w.model, MO_KV_I16);
        assert_true(feed_text(&w, s, 0, 130, 0));
        assert_true(feed_text(&w, beside, 1, 140, 0));
        mo_session *third = open_session(w.model, MO_KV_I16); /* beyond the plan; it hoards */
        uint64_t seed = 5;
        mo_status status = MO_OK;
        while (status == MO_OK) {
            int32_t other[300];
            for (int t = 0; t < 300; t++) {
                other[t] = (int32_t)random_below(&seed, o->vocab);
            }
            mo_feed f = {.size = sizeof f, .session = third, .tokens = other, .count = 300};
            status = mo_session_feed(&f, 1, &err);
            if (status == MO_OK) {
                assert_true(hoarded < 63);
                hoard[hoarded++] = open_snapshot(third);
            }
        }
        assert_int_equal(status, MO_ENOMEM);
        assert_true(strstr(err.detail, "`kept_bytes`"));
        const int64_t length = 130;
        assert_int_equal(mo_session_need(s, 1), 0);
        hoard[hoarded++] = open_snapshot(s); /* now it needs a copy of a block in every layer */
        assert_true(mo_session_need(s, 1) > 0);
        assert_false(feed_text(&w, s, 0, length + 1, 0));
        assert_int_equal(mo_session_length(s), length);
        const mo_kept_report r = kept(w.model);
        assert_true(r.snapshot_bytes > 0);
        mo_feed_report reports[2];
        const mo_feed both[] = {{.size = sizeof(mo_feed),
                                 .session = s,
                                 .tokens = w.text[0],
                                 .count = length + 1,
                                 .report = &reports[0],
                                 .report_size = sizeof(mo_feed_report)},
                                {.size = sizeof(mo_feed),
                                 .session = beside,
                                 .tokens = w.text[1],
                                 .count = 141,
                                 .report = &reports[1],
                                 .report_size = sizeof(mo_feed_report)}};
        assert_int_equal(mo_session_feed(both, 2, &err), MO_ENOMEM);
        assert_int_equal(reports[0].error.status, MO_ENOMEM);
        assert_int_equal(reports[1].error.status, MO_OK);
        assert_memory_equal(mo_session_logits(beside), w.want[1] + 140 * o->vocab,
                            sizeof(float) * (size_t)o->vocab);
        while (hoarded > 0) {
            mo_snapshot_close(hoard[--hoarded]);
        }
        mo_session_close(third);
        assert_true(feed_text(&w, s, 0, length + 1, 0));
        assert_int_equal(mo_session_computed(s), 1);
        assert_true(feed_text(&w, s, 0, LONGEST, 0));
        mo_session_close(s);
        mo_session_close(beside);
        close_world(&w);
    }
}

static void without_a_free_block_a_session_waits(void **state)
{
    (void)state;
    out_of_blocks(NULL);
}

static void without_a_free_block_a_session_waits_on_a_device(void **state)
{
    (void)state;
    out_of_blocks(device_name);
}

/* Where nothing was planned for snapshots, a session that needs what they hold gets more memory, and gives it back. */
static void unplanned_snapshots_take_more_memory(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    world w;
    const mo_model_options options = settings(NULL, MO_KV_I16);
    mo_snapshot *snapshots[12];
    open_world(&w, o, &options);
    mo_session *s = open_session(w.model, MO_KV_I16);
    const int64_t total = kept(w.model).total_bytes;
    for (int i = 0; i < 12; i++) {
        assert_true(feed_text(&w, s, i % TEXTS, 1, 0)); /* forgets the rest */
        assert_true(feed_text(&w, s, i % TEXTS, LONGEST, 0));
        snapshots[i] = open_snapshot(s);
    }
    assert_true(kept(w.model).total_bytes > total);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(mo_session_restore(s, snapshots[i], -1, NULL), MO_OK);
        assert_true(feed_text(&w, s, i % TEXTS, LONGEST, 0));
        assert_int_equal(mo_session_computed(s), 0);
    }
    for (int i = 0; i < 12; i++) {
        mo_snapshot_close(snapshots[i]);
    }
    mo_session_close(s);
    assert_int_equal(kept(w.model).total_bytes, total);
    close_world(&w);
}

/* ---- Parts, other places ------------------------------------------------------------------------ */

/* How far back a snapshot reaches, by family. */
static void the_first_positions_alone(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], NULL);
        world w;
        mo_error err = {.detail = ""};
        const mo_model_options options = settings(NULL, MO_KV_I16);
        if (!o) {
            continue;
        }
        open_world(&w, o, &options);
        mo_session *s = open_session(w.model, MO_KV_I16), *to = open_session(w.model, MO_KV_I16);
        assert_true(feed_text(&w, s, 0, 400, 0));
        mo_snapshot *snapshot = open_snapshot(s);
        const int64_t least = mo_snapshot_least(snapshot);
        const mo_model_spec *spec = w.model->engine->spec;
        bool recurrent = false, windows = false;
        for (int l = 0; l < spec->layer_count; l++) {
            recurrent |= spec->layers[l].mixer != MO_MIXER_ATTENTION;
            windows |= spec->layers[l].mixer == MO_MIXER_ATTENTION && spec->layers[l].attention.window > 0;
        }
        assert_true(recurrent ? least == 400 : windows ? least > 1 && least < 400 : least == 1);
        assert_true(feed_text(&w, to, 2, 90, 0));
        if (least > 1) {
            assert_int_equal(mo_session_restore(to, snapshot, least - 1, &err), MO_EUNSUPPORTED);
            assert_int_equal(mo_session_length(to), 90);
        }
        assert_int_equal(mo_session_restore(to, snapshot, 0, &err), MO_EINVAL);
        assert_int_equal(mo_session_restore(to, snapshot, 401, &err), MO_EINVAL);
        for (int64_t n = least; n <= 400; n += n < 390 ? (400 - least) / 7 + 1 : 1) {
            assert_int_equal(mo_session_restore(to, snapshot, n, &err), MO_OK);
            assert_int_equal(mo_session_length(to), n);
            assert_true((mo_session_logits(to) != NULL) == (n == 400));
            assert_true(feed_text(&w, to, 0, 400, 0));
            assert_int_equal(mo_session_computed(to), 400 - n);
        }
        mo_snapshot_close(snapshot);
        mo_session_close(s);
        mo_session_close(to);
        close_world(&w);
    }
}

/* A snapshot may be restored into a session with another context, whose tables are of other lengths. */
static void sessions_of_other_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], NULL);
        world w;
        mo_error err = {.detail = ""};
        const mo_model_options options = settings(NULL, MO_KV_I16);
        static const int64_t contexts[] = {CONTEXT, 300, 220, 330};
        if (!o) {
            continue;
        }
        open_world(&w, o, &options);
        for (int from = 0; from < 4; from++) {
            for (int to = SANITIZED ? (from + i) % 4 : 0; to < 4; to += SANITIZED ? 4 : 1) {
                mo_session *a = NULL, *b = NULL;
                mo_session_options with = mo_session_options_default();
                with.context = contexts[from];
                assert_int_equal(mo_session_open(w.model, &with, &a, &err), MO_OK);
                with.context = contexts[to];
                assert_int_equal(mo_session_open(w.model, &with, &b, &err), MO_OK);
                assert_true(feed_text(&w, a, 0, 200, 0));
                assert_int_equal(fork_session(b, a, &err), MO_OK);
                assert_true(feed_text(&w, b, 0, 220, 0));
                assert_int_equal(mo_session_computed(b), 20);
                assert_true(feed_text(&w, b, 0, 190, 0));
                if (contexts[from] > 250) {
                    assert_true(feed_text(&w, a, 0, 280, 0));
                    const mo_status status = fork_session(b, a, &err);
                    assert_int_equal(status, contexts[to] >= 280 ? MO_OK : MO_EINVAL);
                    assert_true(feed_text(&w, b, 0, contexts[to] < 290 ? 210 : 290, 0));
                }
                mo_session_close(a);
                mo_session_close(b);
            }
        }
        close_world(&w);
    }
}

/* Spilled to RAM and brought back: the device's blocks are free meanwhile, and the bits the same. */
static void snapshots_are_spilled(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], device_name);
        world w;
        mo_error err = {.detail = ""};
        mo_model_options options = settings(device_name, MO_KV_I16);
        if (!o) {
            continue;
        }
        options.kept_bytes = options.kept_device_bytes = (int64_t)8 << 20;
        open_world(&w, o, &options);
        mo_session *s = open_session(w.model, MO_KV_I16);
        assert_true(feed_text(&w, s, 0, 300, 0));
        mo_snapshot *snapshot = open_snapshot(s);
        assert_true(mo_snapshot_on_device(snapshot));
        assert_true(feed_text(&w, s, 1, 350, 0));
        mo_session_close(s);
        assert_true(kept(w.model).snapshot_bytes > 0);
        assert_int_equal(mo_snapshot_spill(snapshot, &err), MO_OK);
        assert_false(mo_snapshot_on_device(snapshot));
        assert_int_equal(kept(w.model).snapshot_bytes, 0);
        assert_true(kept(w.model).spilled_bytes > 0);
        s = open_session(w.model, MO_KV_I16);
        assert_int_equal(mo_session_restore(s, snapshot, -1, &err), MO_OK);
        mo_snapshot *again = open_snapshot(s);
        mo_snapshot_close(snapshot);
        assert_int_equal(kept(w.model).spilled_bytes, 0);
        assert_true(feed_text(&w, s, 0, LONGEST, 0));
        assert_int_equal(mo_session_computed(s), LONGEST - 300);
        assert_int_equal(mo_session_restore(s, again, -1, &err), MO_OK);
        assert_true(feed_text(&w, s, 0, 301, 0));
        assert_int_equal(mo_session_computed(s), 1);
        mo_snapshot_close(again);
        mo_session_close(s);
        close_world(&w);
    }
}

/* A lost device takes its snapshots with it, but for those that were spilled; whoever cannot be restored begins anew, in
 * RAM. */
static void a_lost_device_takes_its_snapshots(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], device_name);
        world w;
        mo_error err = {.detail = ""};
        if (!o || strcmp(device_name, "sim") != 0) {
            continue;
        }
        mo_model_options options = settings(device_name, MO_KV_I16);
        options.kept_bytes = (int64_t)8 << 20;
        open_world(&w, o, &options);
        mo_session *s = open_session(w.model, MO_KV_I16);
        assert_true(feed_text(&w, s, 0, 200, 0));
        mo_snapshot *there = open_snapshot(s), *here = open_snapshot(s);
        assert_int_equal(mo_snapshot_spill(here, &err), MO_OK);
        mo_sim_arm(w.model->device, MO_SIM_LOST, 0);
        assert_true(feed_text(&w, s, 0, 210, 0));
        assert_int_equal(mo_session_computed(s), 210); /* from the beginning, by the CPU */
        assert_int_equal(mo_session_restore(s, there, -1, &err), MO_EDEVICE);
        assert_int_equal(mo_session_length(s), 0);
        assert_int_equal(mo_session_restore(s, here, -1, &err), MO_OK);
        assert_true(feed_text(&w, s, 0, 220, 0));
        assert_int_equal(mo_session_computed(s), 20);
        mo_snapshot *again = open_snapshot(s);
        assert_false(mo_snapshot_on_device(again));
        mo_snapshot_close(again);
        mo_snapshot_close(there);
        mo_snapshot_close(here);
        mo_session_close(s);
        close_world(&w);
    }
}

/* Through bytes, and into another opening of the model, with and without a device. */
static void bytes_and_other_openings(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], NULL);
        const char *const places[] = {NULL, device_name};
        const mo_kv_type kv = i % 2 ? MO_KV_Q8_0 : MO_KV_I16;
        for (int p = 0; p < (o->cpu_only ? 1 : 4); p++) {
            world w;
            mo_error err = {.detail = ""};
            uint8_t *bytes = NULL;
            size_t size = 0;
            mo_snapshot *read = NULL;
            const mo_model_options from = settings(places[p / 2], kv);
            const mo_model_options to = settings(places[p % 2], kv);
            open_world(&w, o, &from);
            mo_session *s = open_session(w.model, kv);
            assert_true(feed_text(&w, s, 0, 300, 0));
            mo_snapshot *snapshot = open_snapshot(s);
            assert_true(feed_text(&w, s, 2, 350, 0));
            assert_int_equal(mo_snapshot_write(snapshot, &bytes, &size, &err), MO_OK);
            assert_int_equal(mo_snapshot_read(w.model, bytes, size, &read, &err), MO_OK);
            mo_model *other = open_with(o, &to);
            mo_session *next = open_session(other, kv);
            const mo_snapshot *ways[] = {snapshot, read};
            for (int j = 0; j < 2; j++) {
                assert_int_equal(mo_session_restore(next, ways[j], -1, &err), MO_OK);
                assert_true(feed_text(&w, next, 0, 320, 0));
                assert_int_equal(mo_session_computed(next), 20);
            }
            const mo_status part = mo_session_restore(next, read, 290, &err);
            assert_int_equal(part, i == 0 ? MO_OK : MO_EUNSUPPORTED);
            assert_true(feed_text(&w, next, 0, 330, 0));
            mo_session_close(next);
            mo_model_close(other);
            mo_snapshot_close(read);
            mo_snapshot_close(snapshot);
            mo_session_close(s);
            close_world(&w);
            mo_free(bytes);
        }
    }
}

/* Blocks come as others left them, here with numbers that are none: nothing that was not written is read. */
static mo_status take_poisoned(void *owner, int kind, int64_t bytes, uint64_t *address, mo_error *err)
{
    const mo_status status = mo_block_source_ram.take(owner, kind, bytes, address, err);
    if (status == MO_OK) {
        memset((void *)(uintptr_t)*address, 0xFF, (size_t)bytes);
    }
    return status;
}

static void used_blocks_leave_nothing_behind(void **state)
{
    (void)state;
    const mo_block_source poisoned = {.take = take_poisoned, .give = mo_block_source_ram.give};
    for (int i = 0; i < FAMILIES; i++) {
        const oracle *o = find_for(families[i], NULL);
        for (int k = 0; o && k < MO_KV_TYPES; k++) {
            world w;
            const mo_model_options options = settings(NULL, (mo_kv_type)k);
            open_world(&w, o, &options);
            mo_engine *e = w.model->engine;
            assert_int_equal(mo_state_pool(e->spec, &e->states, true, &poisoned, &e->pools[k], NULL), MO_OK);
            walker me = {.w = &w, .seed = (uint64_t)(900 + i), .steps = SANITIZED ? 15 : 40};
            walk(&me);
            assert_int_equal(atomic_load(&w.differs) + atomic_load(&w.failed), 0);
            close_world(&w);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    read_models();
    model_count += oracle_read_list("cpu.txt", models + model_count);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(any_order_gives_the_same_bits_on_a_device),
        cmocka_unit_test(threads_share_blocks),
        cmocka_unit_test(threads_share_blocks_on_a_device),
        cmocka_unit_test(sixteen_sessions_share_8000_tokens),
        cmocka_unit_test(sixteen_sessions_share_8000_tokens_on_a_device),
        cmocka_unit_test(sixteen_sessions_at_rest_take_little),
        cmocka_unit_test(sixteen_sessions_at_rest_take_little_on_a_device),
        cmocka_unit_test(bytes_of_a_snapshot_are_told),
        cmocka_unit_test(without_a_free_block_a_session_waits),
        cmocka_unit_test(without_a_free_block_a_session_waits_on_a_device),
        cmocka_unit_test(unplanned_snapshots_take_more_memory),
        cmocka_unit_test(the_first_positions_alone),
        cmocka_unit_test(sessions_of_other_sizes),
        cmocka_unit_test(snapshots_are_spilled),
        cmocka_unit_test(a_lost_device_takes_its_snapshots),
        cmocka_unit_test(bytes_and_other_openings),
        cmocka_unit_test(used_blocks_leave_nothing_behind),
    };
    const int failed = cmocka_run_group_tests_name("snapshot", tests, NULL, NULL);
    forget_expected();
    oracle_free(models, model_count);
    return failed;
}
