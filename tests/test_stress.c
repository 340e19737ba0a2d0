/* Eight threads use one or two models at once, each at random: sessions and generations are opened and closed, stepped, cancelled by a
 * neighbour, copied, restored, adapted, and all is reported meanwhile. Greedy texts that were not cut short are what they are alone.
 * MORAINE_STRESS_SECONDS: how long each place is used; by default a second, under the thread sanitizer two. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "check.h"
#include "folder.h"
#include "lora_file.h"
#include "moraine_server.h"
#include "random.h"
#include "sanitized.h"

enum { THREADS = 8, TEXTS = 4, TOKENS = 12, MODELS = 2 };

static const char *const texts[TEXTS] = {"Once upon a time", "The river", "3 + 4 =", "In a green forest"};

typedef struct place {
    mo_model *models[MODELS];
    mo_adapter *adapters[MODELS];
    int count;
    int32_t *tokens[TEXTS];
    size_t token_count[TEXTS];
    char want[MODELS][TEXTS][256]; /* greedy, without an adapter */
    atomic_bool over;
    _Atomic(mo_generation *) running[THREADS]; /* that neighbours may cancel */
    atomic_int cancelling[THREADS];            /* and who is doing so keeps open */
    atomic_long answers, compared;
} place;

typedef struct worker {
    place *p;
    int number;
    uint64_t seed;
} worker;

static void say(const char *what, const mo_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->detail);
    abort(); /* of a thread that cmocka does not know */
}

/* A neighbour's answer ends, if it has one now. */
static void cancel_neighbour(place *p, int number)
{
    atomic_fetch_add(&p->cancelling[number], 1);
    mo_generation *g = atomic_load(&p->running[number]);
    if (g) {
        mo_generation_cancel(g);
    }
    atomic_fetch_sub(&p->cancelling[number], 1);
}

static void answer(worker *w, int which, mo_session *session, int text, bool plain)
{
    place *p = w->p;
    mo_error err;
    mo_generation *g;
    mo_generation_event e;
    char said[512] = "";
    size_t length = 0;
    mo_end end = MO_END_NONE;
    const char *stop = "never comes";
    mo_generation_options o = mo_generation_options_default();
    o.raw = true;
    o.max_tokens = TOKENS;
    o.temperature = plain ? 0.0f : 1.0f;
    o.seed = (int64_t)(random_next(&w->seed) >> 1);
    o.stop = &stop;
    o.stop_count = w->number % 2;
    o.logprobs = w->number % 3 ? -1 : 2;
    o.grammar = !plain && w->number % 4 == 0 ? "root ::= [A-Za-z ,.]+" : NULL;
    if (mo_generation_open(p->models[which], &o, &g, &err) != MO_OK ||
        mo_generation_prompt(g, session, p->tokens[text], (int64_t)p->token_count[text], &err) != MO_OK) {
        say("generation", &err);
    }
    atomic_store(&p->running[w->number], g);
    for (int running = 1; running > 0;) {
        running = mo_generation_step(&g, 1, &err);
        while (mo_generation_next(g, &e, sizeof e)) {
            if (e.text.length && length + e.text.length < sizeof said) {
                memcpy(said + length, e.text.data, e.text.length);
                length += e.text.length;
            }
            end = e.kind == MO_EVENT_END ? e.end : end;
            if (e.kind == MO_EVENT_END && e.error && e.error->status != MO_ENOMEM) {
                say("step", e.error);
            }
        }
        if (random_below(&w->seed, 24) == 0) {
            cancel_neighbour(p, (int)random_below(&w->seed, THREADS));
        }
    }
    atomic_store(&p->running[w->number], NULL);
    while (atomic_load(&p->cancelling[w->number])) {
    }
    said[length] = 0;
    if (plain && (end == MO_END_LENGTH || end == MO_END_MODEL)) {
        if (strcmp(said, p->want[which][text]) != 0) {
            fprintf(stderr, "\"%s\" instead of \"%s\"\n", said, p->want[which][text]);
            abort();
        }
        atomic_fetch_add(&p->compared, 1);
    }
    atomic_fetch_add(&p->answers, 1);
    mo_generation_close(g);
}

static void report(worker *w, int which)
{
    mo_error err;
    char *json = NULL;
    if (mo_model_stats_json(w->p->models[which], &json, &err) != MO_OK) {
        say("statistics", &err);
    }
    mo_free(json);
    if (mo_model_profile(w->p->models[which], &json, &err) == MO_OK) {
        mo_free(json);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    place *p = w->p;
    mo_error err;
    mo_snapshot *kept[MODELS] = {NULL};
    while (!atomic_load(&p->over)) {
        const int which = (int)random_below(&w->seed, p->count), text = (int)random_below(&w->seed, TEXTS);
        const bool adapted = p->adapters[which] && random_below(&w->seed, 4) == 0;
        mo_session *session;
        if (mo_session_open(p->models[which], NULL, &session, &err) != MO_OK) {
            say("session", &err);
        }
        if (adapted) {
            const mo_adapter_use use = {p->adapters[which], 0.5f};
            if (mo_session_adapt(session, &use, 1, &err) != MO_OK) {
                say("adapter", &err);
            }
        } else if (kept[which] && random_below(&w->seed, 2) &&
                   mo_session_restore(session, kept[which], -1, &err) != MO_OK && err.status != MO_ENOMEM) {
            say("restore", &err);
        }
        answer(w, which, session, text, !adapted && random_below(&w->seed, 3) > 0);
        if (!adapted && random_below(&w->seed, 3) == 0) {
            mo_snapshot_close(kept[which]);
            kept[which] = NULL;
            if (mo_snapshot_open(session, &kept[which], &err) != MO_OK && err.status != MO_ENOMEM) {
                say("snapshot", &err);
            }
        }
        if (random_below(&w->seed, 4) == 0) {
            report(w, which);
        }
        if (random_below(&w->seed, 6) == 0) {
            mo_model_request_done(p->models[which], NULL);
        }
        mo_session_close(session);
    }
    for (int i = 0; i < p->count; i++) {
        mo_snapshot_close(kept[i]);
    }
    return NULL;
}

static double seconds(void)
{
    const char *text = getenv("MORAINE_STRESS_SECONDS");
    return text ? atof(text) : SANITIZED_THREADS ? 2.0 : 1.0;
}

/* What each text is continued with when nobody else is there. */
static void find_texts(place *p)
{
    mo_error err;
    for (int i = 0; i < TEXTS; i++) {
        check_status(mo_tokenize(p->models[0], texts[i], strlen(texts[i]), MO_TOKEN_SPECIAL, &p->tokens[i],
                                 &p->token_count[i], &err),
                     &err);
    }
    for (int m = 0; m < p->count; m++) {
        for (int i = 0; i < TEXTS; i++) {
            mo_session *session;
            mo_generation *g;
            mo_generation_event e;
            size_t length = 0;
            mo_generation_options o = mo_generation_options_default();
            o.raw = true;
            o.max_tokens = TOKENS;
            o.temperature = 0.0f;
            check_status(mo_session_open(p->models[m], NULL, &session, &err), &err);
            check_status(mo_generation_open(p->models[m], &o, &g, &err), &err);
            check_status(mo_generation_prompt(g, session, p->tokens[i], (int64_t)p->token_count[i], &err),
                         &err);
            while (mo_generation_step(&g, 1, &err) > 0) {
            }
            while (mo_generation_next(g, &e, sizeof e)) {
                memcpy(p->want[m][i] + length, e.text.data, e.text.length);
                length += e.text.length;
            }
            mo_generation_close(g);
            mo_session_close(session);
        }
    }
}

static void use_place(const mo_model_options *options, int models)
{
    static place p;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    const char *adapter = in_folder("adapter.gguf");
    mo_error err;
    memset(&p, 0, sizeof p);
    p.count = models;
    for (int i = 0; i < models; i++) {
        check_status(mo_model_open(MO_TEST_MODEL, options, &p.models[i], &err), &err);
        check_status(mo_adapter_open(p.models[i], adapter, &p.adapters[i], &err), &err);
    }
    find_texts(&p);
    if (options->ram_bytes) {
        assert_string_equal(mo_model_text(p.models[0], "tier.mode"), "slots"); /* some are on disk */
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.p = &p, .number = i, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    const double end = mo_clock_s() + seconds();
    while (mo_clock_s() < end) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    atomic_store(&p.over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(p.answers > 0);
    print_message("# %ld answers, %ld compared\n", (long)p.answers, (long)p.compared);
    for (int i = 0; i < TEXTS; i++) {
        mo_free(p.tokens[i]);
    }
    for (int i = 0; i < models; i++) {
        mo_adapter_close(p.adapters[i]);
        mo_model_close(p.models[i]);
    }
}

static mo_model_options options_of(const char *device)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 128;
    o.sessions = THREADS;
    o.kept_bytes = (int64_t)16 << 20;
    o.adapter_bytes = (int64_t)8 << 20;
    o.device = device;
    return o;
}

static void on_the_cpu(void **state)
{
    (void)state;
    mo_model_options o = options_of("none");
    o.speculate = MO_SPECULATE_AUTO;
    use_place(&o, 1);
}

static void from_disk(void **state)
{
    (void)state;
    mo_model_options o = options_of("none");
    o.ram_bytes = (int64_t)60 << 20;
    use_place(&o, 1);
}

static void on_a_device(void **state)
{
    (void)state;
    const mo_model_options o = options_of("sim");
    use_place(&o, 1);
}

static void on_a_small_device(void **state)
{
    (void)state;
    mo_model_options o = options_of("sim");
    o.vram_bytes = (int64_t)48 << 20;
    use_place(&o, 1);
}

static void two_models(void **state)
{
    (void)state;
    const mo_model_options o = options_of("none");
    use_place(&o, 2);
}

static int prepare(void **state)
{
    const lora_recipe recipe = {.parts = lora_attention, .rank = 4, .seed = 5};
    (void)state;
    return folder_make(state) == 0 && lora_file_make(MO_TEST_MODEL, in_folder("adapter.gguf"), &recipe) ? 0
                                                                                                        : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),        cmocka_unit_test(from_disk),  cmocka_unit_test(on_a_device),
        cmocka_unit_test(on_a_small_device), cmocka_unit_test(two_models),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("stress", tests, prepare, folder_remove);
}
