/* Speculative decoding with draft models: answers have the bytes that they have without, for every way of sampling, alone and in company, whatever
 * the draft model guesses; what it guesses is what it would say itself, whatever the text was before; files that cannot
 * guess for a model are refused, and plans count them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "answers.h"
#include "api/model.h"
#include "check.h"
#include "engine/draft_model.h"
#include "engine/session.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

static const oracle *named(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("the oracle has no %s", name);
    return NULL;
}

static mo_model_options with_draft(const char *name, mo_speculate speculate)
{
    mo_model_options o = answers_options(speculate);
    o.draft_model = named(name)->path;
    return o;
}

/* Who guesses for whom: one that says nearly the same, one with windows, one for recurrent layers, and the model itself. */
static const struct {
    const char *model, *draft;
} pairs[] = {
    {"qwen3moe", "qwen3moe-iq"}, {"gpt-oss", "gpt-oss-mxfp4"}, {"qwen3next", "qwen3"}, {"qwen3", "qwen3"}};
enum { PAIRS = sizeof pairs / sizeof *pairs, WAYS = 6, ITSELF = PAIRS - 1 };

/* Number `way` of the ways of sampling. */
static mo_generation_options way_of(int way)
{
    static const char *const stop[] = {"a", "the"};
    mo_generation_options o = mo_generation_options_default();
    o.max_tokens = TOKENS;
    o.seed = 3;
    o.logprobs = 0;
    o.raw = true;
    o.ignore_end = way != 2;
    o.temperature = way % 2 ? 1.0f : 0.0f;
    o.grammar = way == 2 ? "root ::= [a-z ]+" : NULL;
    o.stop = stop;
    o.stop_count = way == 3 ? 2 : 0;
    return o;
}

static void answers_are_the_same(void **state)
{
    static outcome plain[MOST], with[MOST];
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        const oracle *m = named(pairs[i].model);
        const mo_model_options off = answers_options(MO_SPECULATE_OFF),
                               on = with_draft(pairs[i].draft, i ? MO_SPECULATE_DRAFT : MO_SPECULATE_AUTO);
        mo_model *without = answers_open(m->path, &off), *guessing = answers_open(m->path, &on);
        assert_true(guessing->engine->head->whole);
        for (int way = SANITIZED ? 1 + i : 0; way < WAYS; way += SANITIZED ? 4 : 1) {
            const mo_generation_options o = way_of(way);
            const int count = way < 4 ? 1 : MOST;
            int64_t drafted = 0, accepted = 0;
            answers_make(without, m, &o, count, -1, plain);
            answers_make(guessing, m, &o, count, -1, with);
            for (int k = 0; k < count; k++) {
                answers_expect_same(&with[k], &plain[k]);
                drafted += with[k].drafted;
                accepted += with[k].accepted;
            }
            print_message("# %s for %s, way %d: %zu tokens, %lld of %lld guesses\n", pairs[i].draft, m->name,
                          way, with[0].count, (long long)accepted, (long long)drafted);
            assert_true(drafted > 0 || with[0].count < 3);
            if (i == ITSELF && (way == 0 || way == 4)) { /* it is never wrong about itself */
                assert_int_equal(accepted, drafted);
            }
        }
        const mo_generation_options o = way_of(0);
        answers_make(without, m, &o, 3, -1, plain);
        for (int cancel = 1; cancel < (SANITIZED ? 2 : 6); cancel += 2) {
            answers_make(guessing, m, &o, 3, cancel, with);
            answers_expect_same(&with[1], &plain[1]);
            answers_expect_same(&with[2], &plain[2]);
        }
        mo_model_close(guessing);
        mo_model_close(without);
    }
}

/* Mapped, and beside a device, where it reads the end of a text alone. */
static void where_the_model_is_changes_nothing(void **state)
{
    static outcome plain[1], with[1];
    const oracle *m = named("qwen3moe");
    const mo_generation_options o = way_of(1);
    const mo_model_options off = answers_options(MO_SPECULATE_OFF);
    (void)state;
    mo_model *model = answers_open(m->path, &off);
    answers_make(model, m, &o, 1, -1, plain);
    mo_model_close(model);
    for (int place = 0; place < 3; place++) {
        mo_model_options on = with_draft("qwen3moe-iq", MO_SPECULATE_DRAFT);
        on.map = place == 0;
        on.device = place == 0 ? "none" : place == 1 ? "sim" : "sim,sim";
        model = answers_open(m->path, &on);
        answers_make(model, m, &o, 1, -1, with);
        answers_expect_same(with, plain);
        assert_true(with->drafted > 0);
        mo_model_close(model);
    }
}

/* ---- What is guessed -------------------------------------------------------------------------- */

enum { GUESSES = 6, LENGTH = 200 };

/* What the model says greedily behind the text, from an empty session. */
static void say(mo_model *model, const int32_t *text, int64_t count, int32_t *out)
{
    mo_error err = {.detail = ""};
    mo_session *session;
    int32_t longer[LENGTH + GUESSES];
    const int64_t vocab = model->engine->spec->vocab;
    memcpy(longer, text, sizeof *text * (size_t)count);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    for (int i = 0; i < GUESSES; i++) {
        const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = longer, .count = count + i};
        check_status(mo_session_feed(&feed, 1, &err), &err);
        longer[count + i] = out[i] = mo_head_likeliest(mo_session_logits(session), vocab);
    }
    mo_session_close(session);
}

/* Texts that go on, become shorter, change in the middle, and are others: guesses are always those for the text that there is. */
static void guesses_are_what_it_would_say(void **state)
{
    static const struct {
        int64_t count, changed; /* tokens; the first that is another than in the text before, -1: none */
    } texts[] = {{20, -1}, {21, -1}, {24, -1}, {60, -1}, {59, -1},    {30, -1},
                 {40, 12}, {40, 0},  {1, -1},  {90, 39}, {LENGTH, -1}};
    static const char *const names[] = {"qwen3", "gpt-oss"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        mo_error err = {.detail = ""};
        int32_t text[LENGTH + GUESSES], want[GUESSES];
        mo_session *session;
        const mo_model_options on = with_draft(names[n], MO_SPECULATE_DRAFT);
        mo_model *model = answers_open(named(names[n])->path, &on);
        check_status(mo_session_open(model, NULL, &session, &err), &err);
        mo_session_follow(session, true);
        for (int t = 0; t < LENGTH; t++) {
            text[t] = named(names[n])->tokens[t % ORACLE_TOKENS];
        }
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            int64_t behind;
            int32_t got[GUESSES];
            if (texts[i].changed >= 0) {
                text[texts[i].changed] = (text[texts[i].changed] + 1) % 256;
            }
            mo_head_wish wish = {.session = session->head,
                                 .tokens = text,
                                 .count = texts[i].count,
                                 .drafts = GUESSES,
                                 .out = got};
            assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
            assert_int_equal(wish.drafts, GUESSES);
            say(model, text, texts[i].count, want);
            assert_memory_equal(got, want, sizeof want);
        }
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Beside a device a long text is read at its end alone; of two such texts one is read, and the other when it is asked for again. */
static void long_texts_are_read_at_their_end(void **state)
{
    mo_error err = {.detail = ""};
    mo_session *session[2];
    int32_t text[LENGTH], out[2][GUESSES], want[GUESSES];
    int64_t behind;
    mo_model_options on = with_draft("qwen3", MO_SPECULATE_DRAFT);
    (void)state;
    on.device = "sim";
    mo_model *model = answers_open(named("qwen3")->path, &on);
    mo_head_wish wishes[2];
    for (int t = 0; t < LENGTH; t++) {
        text[t] = named("qwen3")->tokens[t % ORACLE_TOKENS];
    }
    for (int i = 0; i < 2; i++) {
        check_status(mo_session_open(model, NULL, &session[i], &err), &err);
        mo_session_follow(session[i], true);
        wishes[i] = (mo_head_wish){
            .session = session[i]->head, .tokens = text, .count = LENGTH, .drafts = GUESSES, .out = out[i]};
    }
    assert_true(mo_head_draft(model->engine, wishes, 2, &behind));
    assert_int_equal(wishes[0].drafts, GUESSES);
    assert_int_equal(wishes[1].drafts, 0);
    assert_int_equal(session[0]->head->base, LENGTH - MO_DRAFT_MODEL_READS_BESIDE);
    wishes[1].drafts = GUESSES;
    assert_true(mo_head_draft(model->engine, wishes, 2, &behind));
    assert_int_equal(wishes[1].drafts, GUESSES);
    say(model, text + LENGTH - MO_DRAFT_MODEL_READS_BESIDE, MO_DRAFT_MODEL_READS_BESIDE, want);
    assert_memory_equal(out[0], want, sizeof want);
    assert_memory_equal(out[1], want, sizeof want);
    for (int i = 0; i < 2; i++) {
        mo_session_close(session[i]);
    }
    mo_model_close(model);
}

/* A session that goes on from a snapshot of another one says the same. */
static void snapshots_are_the_same(void **state)
{
    const oracle *m = named("qwen3moe");
    outcome out[2];
    (void)state;
    for (int way = 0; way < 2; way++) {
        mo_error err = {.detail = ""};
        mo_session *first, *second;
        mo_snapshot *snapshot;
        const mo_generation_options o = way_of(1);
        const mo_model_options options =
            way ? with_draft("qwen3moe-iq", MO_SPECULATE_DRAFT) : answers_options(MO_SPECULATE_OFF);
        mo_model *model = answers_open(m->path, &options);
        check_status(mo_session_open(model, NULL, &first, &err), &err);
        check_status(mo_session_open(model, NULL, &second, &err), &err);
        out[way] = (outcome){0};
        for (int part = 0; part < 2; part++) {
            mo_generation *g;
            check_status(mo_generation_open(model, &o, &g, &err), &err);
            check_status(mo_generation_prompt(g, part ? second : first, m->tokens,
                                              ORACLE_TOKENS - (part ? 0 : 8), &err),
                         &err);
            do {
                answers_make_free(model, 1);
            } while (mo_generation_step(&g, 1, &err) > 0);
            out[way].count = out[way].length = 0;
            answers_drain(g, &out[way]);
            mo_generation_close(g);
            if (!part) {
                check_status(mo_snapshot_open(first, &snapshot, &err), &err);
                check_status(mo_session_restore(second, snapshot, ORACLE_TOKENS - 8, &err), &err);
                mo_snapshot_close(snapshot);
            }
        }
        mo_session_close(first);
        mo_session_close(second);
        mo_model_close(model);
    }
    answers_expect_same(&out[1], &out[0]);
}

/* A sequence may get the text of another client: nothing tells what the one before had. */
static void a_replaced_text_is_forgotten(void **state)
{
    const oracle *m = named("qwen3moe");
    mo_error err = {.detail = ""};
    mo_session *first, *second;
    mo_snapshot *snapshot;
    int32_t out[GUESSES];
    int64_t behind;
    const mo_model_options on = with_draft("qwen3moe-iq", MO_SPECULATE_DRAFT);
    (void)state;
    mo_model *model = answers_open(m->path, &on);
    check_status(mo_session_open(model, NULL, &first, &err), &err);
    check_status(mo_session_open(model, NULL, &second, &err), &err);
    mo_feed feed = {.size = sizeof feed, .session = second, .tokens = m->tokens, .count = 8};
    check_status(mo_session_feed(&feed, 1, &err), &err);
    check_status(mo_snapshot_open(second, &snapshot, &err), &err);
    mo_session_follow(first, true);
    mo_head_wish wish = {
        .session = first->head, .tokens = m->tokens, .count = 20, .drafts = GUESSES, .out = out};
    assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
    assert_true(first->head->state.length >= 20);
    check_status(mo_session_restore(first, snapshot, 8, &err), &err);
    feed.session = first;
    feed.count = 9;
    check_status(mo_session_feed(&feed, 1, &err), &err);
    assert_int_equal(first->head->state.length, 0);
    mo_snapshot_close(snapshot);
    mo_session_close(first);
    mo_session_close(second);
    mo_model_close(model);
}

static int failures;

static bool fails(mo_head *head, mo_head_wish *wishes, int count, int64_t *behind_ns)
{
    (void)head, (void)wishes, (void)count, (void)behind_ns;
    failures++;
    return false;
}

/* Each failure doubles the calls that guess nothing; one that is cancelled reads no text. */
static void failed_and_cancelled_guesses_cost_little(void **state)
{
    const oracle *m = named("qwen3");
    mo_error err = {.detail = ""};
    mo_session *session;
    int32_t out[GUESSES];
    int64_t behind;
    const atomic_bool cancel = true;
    const mo_model_options on = with_draft("qwen3", MO_SPECULATE_DRAFT);
    (void)state;
    mo_model *model = answers_open(m->path, &on);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    mo_session_follow(session, true);
    mo_head_wish wish = {.session = session->head,
                         .cancel = &cancel,
                         .tokens = m->tokens,
                         .count = 20,
                         .drafts = GUESSES,
                         .out = out};
    assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
    assert_int_equal(wish.drafts, 0);
    assert_int_equal(session->head->state.length, 0);
    wish.cancel = NULL;
    model->engine->head->draft = fails;
    for (int call = 0; call < 2 + 64 + 128; call++) {
        assert_false(mo_head_draft(model->engine, &wish, 1, &behind));
    }
    assert_int_equal(failures, 2);
    assert_false(mo_head_draft(model->engine, &wish, 1, &behind));
    assert_int_equal(failures, 3);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- What cannot guess ------------------------------------------------------------------------ */

static void expect_refusal(const char *model, const char *draft, mo_speculate speculate, mo_status status,
                           const char *says)
{
    mo_error err = {.detail = ""};
    mo_model *m = NULL;
    mo_model_options o = answers_options(speculate);
    o.draft_model = draft ? named(draft)->path : NULL;
    assert_int_equal(mo_model_open(named(model)->path, &o, &m, &err), status);
    check_says(&err, says);
}

static void what_cannot_guess_is_refused(void **state)
{
    (void)state;
    expect_refusal("qwen3", "llama31", MO_SPECULATE_DRAFT, MO_EINVAL, "its token");
    expect_refusal("qwen3", "llama31", MO_SPECULATE_AUTO, MO_EINVAL, "the same tokens");
    expect_refusal("qwen3", "glm-dsa", MO_SPECULATE_DRAFT, MO_EINVAL, "it has 292 tokens, the model 320");
    expect_refusal("qwen3", "qwen3next", MO_SPECULATE_DRAFT, MO_EUNSUPPORTED, "recurrent");
    expect_refusal("qwen3", NULL, MO_SPECULATE_DRAFT, MO_EINVAL, "draft_model");
    expect_refusal("qwen3", "qwen3", MO_SPECULATE_NGRAM, MO_EINVAL, "draft_model");
    expect_refusal("qwen3", "qwen3", MO_SPECULATE_MTP, MO_EUNSUPPORTED, "no MTP head");
}

static int64_t planned(const char *name, const mo_model_options *o)
{
    mo_model *model = answers_open(named(name)->path, o);
    const int64_t held = model->opened.held;
    mo_model_close(model);
    return held;
}

/* A plan counts it; where weights come from disk, `auto` leaves it out, and `draft` does not; steps of one token have no guesses. */
static void a_plan_counts_it(void **state)
{
    (void)state;
    mo_model_options ngram = answers_options(MO_SPECULATE_NGRAM),
                     automatic = with_draft("qwen3moe-iq", MO_SPECULATE_AUTO),
                     draft = with_draft("qwen3moe-iq", MO_SPECULATE_DRAFT);
    const int64_t without = planned("qwen3moe", &ngram), with = planned("qwen3moe", &automatic);
    assert_true(with > without + (1 << 20)); /* of two that are equally large */
    for (int way = 0; way < 3; way++) {
        mo_model_options o = way == 1 ? draft : automatic;
        o.ram_bytes = way < 2 ? with - 4096 : 0;
        o.batch = way < 2 ? o.batch : 1;
        mo_model *model = answers_open(named("qwen3moe")->path, &o);
        assert_true(way == 1 ? model->engine->head != NULL : !model->engine->head);
        mo_model_close(model);
    }
    mo_plan_report r;
    check_status(mo_plan_file(named("qwen3moe")->path, &draft, NULL, &r, sizeof r, NULL), NULL);
    assert_true(r.draft_model && r.head_bytes > (1 << 20) && r.drafts == 64 && r.draft_bytes > 0);
    check_status(mo_plan_file(named("qwen3moe")->path, &ngram, NULL, &r, sizeof r, NULL), NULL);
    assert_true(!r.draft_model && r.head_bytes == 0 && r.drafts == 64);
    draft.batch = 1;
    check_status(mo_plan_file(named("qwen3moe")->path, &draft, NULL, &r, sizeof r, NULL), NULL);
    assert_true(!r.draft_model && r.head_bytes == 0 && r.drafts == 0 && r.draft_bytes == 0);
    draft.batch = 0;
    draft.ram_bytes = 1 << 20;
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    assert_int_equal(mo_model_open(named("qwen3moe")->path, &draft, &model, &err), MO_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same),
        cmocka_unit_test(where_the_model_is_changes_nothing),
        cmocka_unit_test(guesses_are_what_it_would_say),
        cmocka_unit_test(long_texts_are_read_at_their_end),
        cmocka_unit_test(snapshots_are_the_same),
        cmocka_unit_test(a_replaced_text_is_forgotten),
        cmocka_unit_test(failed_and_cancelled_guesses_cost_little),
        cmocka_unit_test(what_cannot_guess_is_refused),
        cmocka_unit_test(a_plan_counts_it),
    };
    model_count = oracle_read(models);
    const int failed = cmocka_run_group_tests_name("draft_model", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
