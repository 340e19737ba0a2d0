/* Speculative decoding with MTP heads: answers have the bytes that they have without, for every way of sampling, alone and in company, whatever the
 * head guesses; a head in a file of its own is the same; a plan leaves out what does not fit, and a file without a head is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "answers.h"
#include "api/model.h"
#include "check.h"
#include "device/sim/sim.h"
#include "engine/head.h"
#include "engine/session.h"
#include "model_draft.h"
#include "moraine_server.h"
#include "oracle.h"
#include "sanitized.h"
#include "speculate/ngram.h"
#include "sweep.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

/* Opens a model whose head guesses in short answers, too. */
static mo_model *open_unlimited(const char *path, const mo_model_options *o)
{
    mo_model *model = answers_open(path, o);
    model->times.first_behind = 0.0;
    return model;
}

static void answers_are_the_same(void **state)
{
    static const char *const stop[] = {"a", "the"};
    static outcome plain[MOST], with[MOST];
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const mo_model_options off = answers_options(MO_SPECULATE_OFF),
                               on = answers_options(i ? MO_SPECULATE_AUTO : MO_SPECULATE_MTP);
        mo_model *without = answers_open(models[i].path, &off), *head = open_unlimited(models[i].path, &on);
        assert_null(without->engine->head);
        assert_non_null(head->engine->head);
        for (int way = SANITIZED ? 1 + i : 0; way < 6; way += SANITIZED ? 4 : 1) {
            mo_generation_options o = mo_generation_options_default();
            const int count = way < 4 ? 1 : MOST;
            int64_t drafted = 0;
            o.max_tokens = TOKENS;
            o.seed = 3;
            o.logprobs = 0;
            o.raw = true;
            o.ignore_end = way != 2;
            o.temperature = way % 2 ? 1.0f : 0.0f;
            o.grammar = way == 2 ? "root ::= [a-z ]+" : NULL;
            o.stop = stop;
            o.stop_count = way == 3 ? 2 : 0;
            answers_make(without, &models[i], &o, count, -1, plain);
            answers_make(head, &models[i], &o, count, -1, with);
            for (int k = 0; k < count; k++) {
                answers_expect_same(&with[k], &plain[k]);
                drafted += with[k].drafted;
            }
            print_message("# %s, way %d: %zu tokens, %lld guesses\n", models[i].name, way, with[0].count,
                          (long long)drafted);
            assert_true(drafted > 0 || with[0].count < 3);
        }
        mo_generation_options o = mo_generation_options_default();
        o.max_tokens = TOKENS;
        o.temperature = 0;
        o.logprobs = 0;
        o.ignore_end = o.raw = true;
        answers_make(without, &models[i], &o, 3, -1, plain);
        for (int cancel = 1; cancel < (SANITIZED ? 2 : 6); cancel += 2) {
            answers_make(head, &models[i], &o, 3, cancel, with);
            answers_expect_same(&with[1], &plain[1]);
            answers_expect_same(&with[2], &plain[2]);
        }
        mo_model_close(head);
        mo_model_close(without);
    }
}

static void expect_refusal(const char *path, const mo_model_options *o, mo_status status, const char *says)
{
    mo_error err;
    mo_model *model = NULL;
    assert_int_equal(mo_model_open(path, o, &model, &err), status);
    check_says(&err, says);
}

/* From a file of its own, mapped or not. */
static void a_head_may_have_its_own_file(void **state)
{
    static outcome plain[1], with[1];
    mo_generation_options o = mo_generation_options_default();
    mo_model_options options = answers_options(MO_SPECULATE_OFF);
    (void)state;
    o.max_tokens = TOKENS;
    o.temperature = 0;
    o.logprobs = 0;
    o.ignore_end = o.raw = true;
    for (int i = 0; i < model_count; i++) {
        options = answers_options(MO_SPECULATE_OFF);
        mo_model *model = answers_open(models[i].path, &options);
        answers_make(model, &models[i], &o, 1, -1, plain);
        mo_model_close(model);
        for (int map = SANITIZED ? i : 0; map < 2; map += SANITIZED ? 2 : 1) {
            options = answers_options(MO_SPECULATE_MTP);
            options.draft_model = models[i].path;
            options.map = map;
            model = answers_open(models[i].path, &options);
            answers_make(model, &models[i], &o, 1, -1, with);
            answers_expect_same(with, plain);
            assert_true(with->drafted > 0);
            mo_model_close(model);
        }
    }
}

static void copy_file(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* For NAME.gguf without one a head is found in NAME-mtp.gguf; what cannot be read there is left out. */
static void a_head_may_lie_beside_its_model(void **state)
{
    const char *path = "without-head.gguf", *beside = "without-head-mtp.gguf";
    const mo_model_options mtp = answers_options(MO_SPECULATE_MTP),
                           automatic = answers_options(MO_SPECULATE_AUTO),
                           texts = answers_options(MO_SPECULATE_NGRAM);
    static outcome own[1], with[1];
    mo_generation_options o = mo_generation_options_default();
    draft *d = draft_open(models[0].name);
    (void)state;
    for (int i = d->count - 1; i >= 0; i--) {
        if (strstr(d->tensors[i].name, "nextn.")) {
            draft_drop(d, d->tensors[i].name);
        }
    }
    draft_write(d, path);
    draft_close(d);
    o.max_tokens = TOKENS;
    o.temperature = 0;
    o.ignore_end = o.raw = true;
    expect_refusal(path, &mtp, MO_EUNSUPPORTED, "no MTP head");
    copy_file(models[0].path, beside);
    for (int i = 0; i < 3; i++) {
        mo_model *model = open_unlimited(i ? path : models[0].path, i == 2 ? &automatic : &mtp);
        assert_non_null(model->engine->head);
        answers_make(model, &models[0], &o, 1, -1, i ? with : own);
        mo_model_close(model);
        if (i) {
            answers_expect_same(with, own);
            assert_true(with->drafted > 0);
        }
    }
    mo_model *model = answers_open(path, &texts);
    assert_null(model->engine->head);
    mo_model_close(model);
    FILE *f = fopen(beside, "w");
    assert_true(f && fputs("no model", f) >= 0 && fclose(f) == 0);
    mo_error err;
    assert_int_not_equal(mo_model_open(path, &mtp, &model, &err), MO_OK);
    check_says(&err, beside);
    model = answers_open(path, &automatic);
    assert_null(model->engine->head);
    mo_model_close(model);
    unlink(path);
    unlink(beside);
}

/* ---- Devices ---------------------------------------------------------------------------------- */

/* Where a model is. */
typedef enum place { ALL_THERE, TWO_DEVICES, EXPERTS_IN_RAM, LAYERS_ELSEWHERE, PLACES } place;

/* False: the model has nothing that could be there. */
static bool place_at(const oracle *m, place p, mo_model_options *o)
{
    mo_error err = {.detail = ""};
    mo_plan_report r;
    o->device = p == TWO_DEVICES ? "sim,sim" : "sim";
    o->cpu_moe = p == EXPERTS_IN_RAM;
    check_status(mo_plan_file(m->path, o, NULL, &r, sizeof r, &err), &err);
    if (p == LAYERS_ELSEWHERE) {
        o->vram_bytes = r.device.least_bytes + (r.device.whole_bytes - r.device.least_bytes) / 8;
    }
    return p != EXPERTS_IN_RAM || r.class_count > 0;
}

static bool accept_none(void *user, const mo_feed_report *picked)
{
    (void)user;
    (void)picked;
    return false;
}

/* What the head guesses after `step` tokens at a time, and then one more with a wrong guess behind it. */
static void guesses_of(mo_model *model, const oracle *o, int64_t step, int32_t out[2][8])
{
    mo_error err = {.detail = ""};
    mo_session *session;
    mo_sampler *sampler;
    int32_t text[ORACLE_TOKENS + 1];
    int64_t behind;
    const mo_sampler_options greedy = mo_sampler_options_default();
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(mo_sampler_open(&greedy, o->vocab, &sampler, &err), &err);
    mo_session_follow(session, true);
    assert_non_null(session->head);
    memcpy(text, o->tokens, sizeof(int32_t) * ORACLE_TOKENS);
    for (int i = 0; i < 2; i++) {
        mo_feed_report report;
        const mo_feed feed = {.size = sizeof feed,
                              .session = session,
                              .tokens = text,
                              .count = ORACLE_TOKENS - 3 + i,
                              .step = i ? 0 : step,
                              .sampler = i ? sampler : NULL,
                              .drafts = i ? 2 : 0,
                              .accept = accept_none,
                              .report = &report,
                              .report_size = sizeof report};
        if (i) {
            text[feed.count] = text[feed.count + 1] = 1;
        }
        check_status(mo_session_feed(&feed, 1, &err), &err);
        text[feed.count] = o->tokens[feed.count];
        mo_head_wish wish = {
            .session = session->head, .tokens = text, .count = feed.count + 1, .drafts = 8, .out = out[i]};
        assert_int_equal(session->state.length, feed.count);
        assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
    }
    mo_sampler_close(sampler);
    mo_session_close(session);
}

/* Wherever the model is, its head guesses the same, and answers have the bytes that they have without. */
static void devices_change_nothing(void **state)
{
    static outcome plain[MOST], with[MOST];
    sweep s = {.name = "speculation_mtp", .axes = {{"model", model_count}, {"place", PLACES}, {"way", 4}}};
    (void)state;
    while (sweep_next(&s)) {
        const oracle *m = &models[s.at[0]];
        const int way = s.at[2];
        mo_model_options off = answers_options(MO_SPECULATE_OFF), on = answers_options(MO_SPECULATE_MTP),
                         there = on;
        there.speculate = way % 2 && s.at[1] != LAYERS_ELSEWHERE ? MO_SPECULATE_AUTO : MO_SPECULATE_MTP;
        int32_t here[2][8], guessed[2][8];
        int64_t drafted = 0;
        if ((m->cpu_only && s.at[1] == LAYERS_ELSEWHERE) || !place_at(m, (place)s.at[1], &there)) {
            continue;
        }
        mo_generation_options o = mo_generation_options_default();
        o.max_tokens = TOKENS;
        o.seed = 3;
        o.logprobs = 0;
        o.ignore_end = o.raw = true;
        o.temperature = way % 2 ? 1.0f : 0.0f;
        const int count = way < 2 ? 1 : 3;
        mo_model *model = answers_open(m->path, &off);
        answers_make(model, m, &o, count, -1, plain);
        mo_model_close(model);
        model = answers_open(m->path, &on);
        guesses_of(model, m, way < 2 ? 0 : 7, here);
        mo_model_close(model);
        model = open_unlimited(m->path, &there);
        assert_non_null(model->engine->head);
        guesses_of(model, m, way < 2 ? 0 : 7, guessed);
        assert_memory_equal(guessed, here, sizeof here);
        answers_make(model, m, &o, count, -1, with);
        for (int k = 0; k < count; k++) {
            answers_expect_same(&with[k], &plain[k]);
            drafted += with[k].drafted;
        }
        assert_true(drafted > 0);
        mo_model_close(model);
    }
}

/* Tokens without guesses: those that cannot be left for later are forgotten, and nothing is computed for them. */
static void one_by_one(mo_model *model, mo_session *session, const int32_t *text, int64_t from, int64_t end)
{
    mo_error err = {.detail = ""};
    const mo_head_session *head = session->head;
    const uint64_t before = model->engine->head->engine->counters.tokens;
    int32_t longer[256], out[2];
    int64_t count = from, behind;
    memcpy(longer, text, sizeof *text * (size_t)end);
    for (int64_t t = end; t < 255; t++) {
        longer[t] = text[t % end];
    }
    for (; count < 220; count++) {
        const mo_feed feed = {
            .size = sizeof feed, .session = session, .tokens = longer, .count = count, .unfinished = true};
        check_status(mo_session_feed(&feed, 1, &err), &err);
        assert_int_equal(head->base + head->state.length + head->later, count + 1);
        assert_true(head->later <= MO_HEAD_LATER);
    }
    assert_true(head->base > from && head->later >= MO_HEAD_KEPT);
    assert_int_equal(model->engine->head->engine->counters.tokens, before);
    mo_head_wish wish = {.session = session->head, .tokens = longer, .count = count, .drafts = 2, .out = out};
    assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
}

/* Of a prompt that a device computes the head takes in the end alone, as it does on the CPU where it begins there. */
static void a_prompt_on_a_device_is_followed_at_its_end(void **state)
{
    enum { LONG = 128, FROM = 65, MORE = 22 }; /* in steps of 64 tokens, of which the last 63 are taken */
    (void)state;
    for (int i = 0; i < model_count; i++) {
        int32_t text[LONG + MORE + 1], guessed[2][8];
        if (models[i].cpu_only) {
            continue;
        }
        for (int t = 0; t <= LONG + MORE; t++) {
            text[t] = t < ORACLE_TOKENS ? models[i].tokens[t] : (t * 7 + 3) % (int)models[i].vocab;
        }
        for (int there = 0; there < 2; there++) {
            mo_error err = {.detail = ""};
            mo_session *session;
            int64_t behind;
            mo_model_options o = answers_options(MO_SPECULATE_MTP);
            o.device = there ? "sim" : "none";
            mo_model *model = answers_open(models[i].path, &o);
            check_status(mo_session_open(model, NULL, &session, &err), &err);
            for (int part = there; part < 2; part++) {
                const mo_feed feed = {.size = sizeof feed,
                                      .session = session,
                                      .tokens = text,
                                      .count = part ? LONG : FROM,
                                      .unfinished = true};
                mo_session_follow(session, part);
                check_status(mo_session_feed(&feed, 1, &err), &err);
            }
            assert_int_equal(session->head->base, FROM);
            mo_head_wish wish = {.session = session->head,
                                 .tokens = text,
                                 .count = LONG + 1,
                                 .drafts = 8,
                                 .out = guessed[there]};
            assert_true(mo_head_draft(model->engine, &wish, 1, &behind));
            if (there) {
                one_by_one(model, session, text, LONG + 1, LONG + MORE);
            }
            mo_session_close(session);
            mo_model_close(model);
        }
        assert_memory_equal(guessed[0], guessed[1], sizeof *guessed);
    }
}

/* A device that is lost costs speed alone: the CPU goes on, and the head with it. */
static void a_lost_device_takes_no_head_away(void **state)
{
    static outcome plain[1], with[1];
    const mo_model_options off = answers_options(MO_SPECULATE_OFF);
    mo_model_options on = answers_options(MO_SPECULATE_MTP);
    mo_generation_options o = mo_generation_options_default();
    (void)state;
    o.max_tokens = TOKENS;
    o.logprobs = 0;
    o.temperature = 0;
    o.ignore_end = o.raw = true;
    mo_model *model = answers_open(models[0].path, &off);
    answers_make(model, &models[0], &o, 1, -1, plain);
    mo_model_close(model);
    for (int i = 0; i < (SANITIZED ? 2 : 6); i++) {
        on.device = i % 2 ? "sim,sim" : "sim";
        model = answers_open(models[0].path, &on);
        mo_sim_arm(model->device, MO_SIM_LOST, 30 + 190 * i);
        answers_make(model, &models[0], &o, 1, -1, with);
        mo_sim_arm(model->device, MO_SIM_NONE, 0);
        answers_expect_same(with, plain);
        assert_true(with->drafted > 0);
        mo_model_close(model);
    }
}

static void what_has_no_head_is_refused(void **state)
{
    static oracle plain[ORACLE_MODELS_MAX];
    const int count = oracle_read(plain);
    mo_model_options o = answers_options(MO_SPECULATE_MTP);
    (void)state;
    for (int i = 0; i < count && i < 2; i++) {
        expect_refusal(plain[i].path, &o, MO_EUNSUPPORTED, "no MTP head");
        o.draft_model = models[0].path; /* of a model with another vocabulary */
        expect_refusal(plain[i].path, &o, MO_EINVAL, "made for it");
        o.draft_model = NULL;
    }
    o = answers_options(MO_SPECULATE_NGRAM);
    o.draft_model = models[0].path;
    expect_refusal(models[0].path, &o, MO_EINVAL, "draft_model");
    oracle_free(plain, count);
}

/* A head without one of its tensors: `auto` opens the model without it, `mtp` says what is missing. */
static void an_incomplete_head_is_left_out(void **state)
{
    const char *path = "incomplete-head.gguf";
    const mo_model_options automatic = answers_options(MO_SPECULATE_AUTO),
                           mtp = answers_options(MO_SPECULATE_MTP);
    draft *d = draft_open(models[0].name);
    (void)state;
    for (int i = d->count - 1; i >= 0; i--) {
        if (strstr(d->tensors[i].name, "nextn.hnorm.weight")) {
            draft_drop(d, d->tensors[i].name);
        }
    }
    draft_write(d, path);
    draft_close(d);
    expect_refusal(path, &mtp, MO_ENOENT, "nextn.hnorm.weight");
    mo_model *model = answers_open(path, &automatic);
    assert_null(model->engine->head);
    mo_model_close(model);
    unlink(path);
}

static int64_t planned(const char *path, const mo_model_options *o)
{
    mo_model *model = answers_open(path, o);
    const int64_t held = model->opened.held;
    mo_model_close(model);
    return held;
}

/* A plan counts the head; where weights come from disk, `auto` leaves it out. */
static void a_plan_counts_heads(void **state)
{
    (void)state;
    mo_model_options ngram = answers_options(MO_SPECULATE_NGRAM), mtp = answers_options(MO_SPECULATE_MTP),
                     automatic = answers_options(MO_SPECULATE_AUTO);
    const int64_t without = planned(models[0].path, &ngram), with = planned(models[0].path, &mtp);
    const int64_t all = planned(models[0].path, &automatic);
    assert_true(with > without);
    assert_true(all > without &&
                all < with + MOST * mo_ngram_bytes(256)); /* a head that is late has shorter steps */
    automatic.ram_bytes = all - 4096;
    mo_model *model = answers_open(models[0].path, &automatic);
    assert_null(model->engine->head);
    mo_model_close(model);
}

/* A session's head learns from requests that ask for guesses, and from no others. */
static void who_wants_no_guesses_pays_nothing(void **state)
{
    static outcome out;
    mo_error err;
    mo_session *session;
    const mo_model_options on = answers_options(MO_SPECULATE_MTP);
    (void)state;
    mo_model *model = answers_open(models[0].path, &on);
    const mo_engine_counters *did = &model->engine->head->engine->counters;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    for (int way = 0; way < 3; way++) {
        mo_generation_options o = mo_generation_options_default();
        mo_generation *g;
        const uint64_t before = did->tokens;
        o.max_tokens = 8;
        o.raw = o.ignore_end = true;
        o.draft_max = way == 1 ? 0 : -1;
        check_status(mo_generation_open(model, &o, &g, &err), &err);
        check_status(mo_generation_prompt(g, session, models[0].tokens + way, ORACLE_TOKENS - way, &err),
                     &err);
        do {
            answers_make_free(model, 1);
        } while (mo_generation_step(&g, 1, &err) > 0);
        out = (outcome){0};
        answers_drain(g, &out);
        mo_generation_close(g);
        assert_true(way == 1 ? did->tokens == before && !session->follows : did->tokens > before);
    }
    mo_session_close(session);
    mo_model_close(model);
}

/* Where the head is too slow to pay, a match in the text is taken; and where neither pays, each is tried in its turn. */
static void a_match_is_tried_beside_a_head(void **state)
{
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        mo_step_times times;
        mo_depth depth;
        int heads = 0, matches = 0;
        mo_step_times_init(&times);
        mo_depth_init(&depth);
        for (int d = 0; d <= MO_DEPTH_DRAFTS; d++) {
            times.ns[0][d] = 1e6 * (1.0 + (pays ? 0.05 : 2.0) * d);
        }
        mo_step_times_limit(&times, 7);
        mo_step_times_add_head(&times, 1, 1, 2e6, 2, 5e6);
        /* The first measurement may have been disturbed: a guess counts as one step, a position as twice the estimate. */
        assert_true(times.head_ns[0] == 1e6);
        assert_true(times.behind_ns.ns[0] == 2 * times.first_behind * 1e6);
        for (int step = 0; step < 1000; step++) {
            mo_depth_wish wish = {.depth = &depth,
                                  .class = MO_DEPTH_HEAD,
                                  .most = 16,
                                  .head = true,
                                  .match_class = 2,
                                  .match_most = 20};
            mo_depth_choose(&times, 1, &wish, 1, 80);
            assert_true(!pays || (!wish.head && wish.drafts > 1));
            mo_step_times_add(&times, 1, 0, 0, 1e6);
            heads += wish.drafts && wish.head;
            matches += wish.drafts && !wish.head;
            assert_int_equal(wish.class, wish.head ? MO_DEPTH_HEAD : 2);
            mo_depth_learn(&depth, &times, wish.class, wish.drafts, 0);
            times.right[2] = 0.8 * times.tried[2]; /* of all sessions */
            depth.right[2] = 0.8 * depth.tried[2];
        }
        assert_true(pays || (heads > 0 && matches > 0));
        mo_step_times_drop(&times);
    }
}

/* Of several sequences none of whose sources pays, each is tried in its turn. */
static void every_sequence_is_tried(void **state)
{
    enum { COUNT = 3 };
    int tried[COUNT] = {0};
    mo_step_times times;
    mo_depth depth[COUNT];
    (void)state;
    mo_step_times_init(&times);
    for (int i = 0; i < COUNT; i++) {
        mo_depth_init(&depth[i]);
    }
    for (int step = 0; step < 4000; step++) {
        mo_depth_wish wishes[COUNT];
        int64_t drafts = 0;
        for (int i = 0; i < COUNT; i++) {
            wishes[i] = (mo_depth_wish){.depth = &depth[i], .class = i, .most = 4};
        }
        mo_depth_choose(&times, COUNT, wishes, COUNT, 80);
        for (int i = 0; i < COUNT; i++) {
            tried[i] += wishes[i].drafts > 0;
            drafts += wishes[i].drafts;
            mo_depth_learn(&depth[i], &times, i, wishes[i].drafts, 0);
        }
        mo_step_times_add(&times, COUNT, drafts, 0, 1e6 * (1.0 + 2.0 * (double)drafts));
    }
    assert_true(tried[0] > 0 && tried[1] > 0 && tried[2] > 0);
    mo_step_times_drop(&times);
}

/* What is guessed from a guess has an estimate of its own. */
static void places_are_learned_apart(void **state)
{
    mo_step_times times;
    mo_depth depth;
    (void)state;
    mo_step_times_init(&times);
    mo_depth_init(&depth);
    for (int d = 0; d <= MO_DEPTH_DRAFTS; d++) {
        times.ns[0][d] = 1e6 * (1.0 + 0.1 * d);
    }
    mo_step_times_add_head(&times, 1, 4, 4e4, 0, 0);
    for (int step = 0; step < 200; step++) {
        mo_depth_wish wish = {.depth = &depth, .class = MO_DEPTH_HEAD, .most = 16, .head = true};
        mo_depth_choose(&times, 1, &wish, 1, 80);
        assert_true(step < 100 || wish.drafts == 2);
        mo_depth_learn(&depth, &times, MO_DEPTH_HEAD, wish.drafts, wish.drafts < 2 ? wish.drafts : 2);
    }
    assert_true(mo_depth_acceptance(&depth, &times, MO_DEPTH_HEAD, 1) > 0.9);
    assert_true(mo_depth_acceptance(&depth, &times, MO_DEPTH_HEAD, 2) < 0.4);
    assert_int_equal(mo_depth_class_at(MO_DEPTH_HEAD, 40), MO_DEPTH_CLASSES - 1);
    assert_int_equal(mo_depth_class_at(2, 40), 2);
    mo_step_times_drop(&times);
}

/* The time of the head counts: what pays for free does not where the head is slow. */
static void a_slow_head_is_not_asked(void **state)
{
    const double cheap = 1e4, slow = 2e6;
    (void)state;
    for (int way = 0; way < 3; way++) {
        mo_step_times times;
        mo_depth depth;
        mo_step_times_init(&times);
        mo_depth_init(&depth);
        for (int d = 0; d <= MO_DEPTH_DRAFTS; d++) {
            times.ns[0][d] = 1e6 * (1.0 + 0.05 * d);
        }
        times.right[MO_DEPTH_HEAD] = 0.8 * times.tried[MO_DEPTH_HEAD];
        mo_step_times_add_head(&times, 1, 4, 4 * (way == 1 ? slow : cheap), 0, 0);
        mo_depth_wish wish = {.depth = &depth, .class = MO_DEPTH_HEAD, .most = 16, .head = way < 2};
        mo_depth_choose(&times, 1, &wish, 1, 80);
        assert_true(way == 1 ? wish.drafts == 0 : wish.drafts > 1 && wish.drafts < 16);
        mo_step_times_drop(&times);
    }
}

/* Speed of answers relative to that without guesses, with a late head, which must process 20 to 63 earlier positions before it guesses. It costs as much as that of the
 * built-in model. right: how often a guess is right. disturbed: its first trial takes this many times as long. */
static double with_a_late_head(double right, int answers, int64_t length, double disturbed)
{
    const double guess = 0.4, row = 0.066, more = 0.35;
    double spent = 0, plain = 0, factor = disturbed;
    uint32_t random = 1;
    mo_step_times times;
    mo_step_times_init(&times);
    mo_step_times_limit(&times, 7);
    for (int a = 0; a < answers; a++) {
        mo_depth depth;
        int64_t behind = 20;
        mo_depth_init(&depth);
        for (int64_t said = 0; said < length;) {
            mo_depth_wish wish = {
                .depth = &depth, .class = MO_DEPTH_HEAD, .most = 16, .head = true, .behind = behind};
            int64_t good = 0;
            mo_depth_choose(&times, 1, &wish, 1, 80);
            const double head = guess * (double)wish.drafts, before = row * (double)behind;
            while (good < wish.drafts &&
                   (random = random * 1664525u + 1013904223u) >> 8 < right * (1 << 24)) {
                good++;
            }
            if (wish.drafts) {
                mo_step_times_add_head(&times, 1, wish.drafts, 1e6 * factor * head, behind,
                                       1e6 * factor * before);
                factor = 1;
            }
            mo_step_times_add(&times, 1, wish.drafts, good, 1e6 * (1.0 + more * (double)wish.drafts));
            mo_depth_learn(&depth, &times, wish.class, wish.drafts, good);
            spent += 1.0 + more * (double)wish.drafts + (wish.drafts ? head + before : 0.0);
            behind = wish.drafts ? 0 : behind < 63 ? behind + 1 : 32;
            plain += 1.0 + (double)good;
            said += 1 + good;
        }
    }
    mo_step_times_drop(&times);
    return plain / spent;
}

/* What a head must process first is part of the cost of its trials, so that short answers, one or many, lose little. One disturbed measurement
 * does not end the trials. */
static void a_late_head_costs_little(void **state)
{
    (void)state;
    for (double right = 0.0; right <= 1.0; right += 0.1) {
        for (int64_t length = 50; length <= 800; length *= 2) {
            const double one = with_a_late_head(right, 1, length, 1),
                         many = with_a_late_head(right, 20, length, 1);
            assert_true(one > 0.975 && many > 0.975);
        }
    }
    assert_true(with_a_late_head(0.97, 1, 4000, 1) > 1.03);
    assert_true(with_a_late_head(0.97, 1, 4000, 30) > 1.03);
}

/* A head that looks good by estimates alone must be tried first, when the limit allows it. */
static void an_untried_head_waits(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        mo_step_times times;
        mo_depth depth;
        mo_step_times_init(&times);
        mo_depth_init(&depth);
        if (limited) {
            mo_step_times_limit(&times, 7);
        }
        for (int d = 0; d <= MO_DEPTH_DRAFTS; d++) {
            times.ns[0][d] = 1e6 * (1.0 + 0.05 * d);
        }
        mo_depth_wish wish = {
            .depth = &depth, .class = MO_DEPTH_HEAD, .most = 16, .head = true, .behind = 40};
        mo_depth_choose(&times, 1, &wish, 1, 80);
        assert_true(limited ? wish.drafts == 0 : wish.drafts > 0);
        depth.again = limited; /* a match was right at once; the head still has much to process */
        wish.drafts = 0;
        mo_depth_choose(&times, 1, &wish, 1, 80);
        assert_true(limited ? wish.drafts == 0 : wish.drafts > 0);
        mo_step_times_drop(&times);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same),
        cmocka_unit_test(a_head_may_have_its_own_file),
        cmocka_unit_test(a_head_may_lie_beside_its_model),
        cmocka_unit_test(what_has_no_head_is_refused),
        cmocka_unit_test(a_plan_counts_heads),
        cmocka_unit_test(a_slow_head_is_not_asked),
        cmocka_unit_test(a_late_head_costs_little),
        cmocka_unit_test(an_untried_head_waits),
        cmocka_unit_test(places_are_learned_apart),
        cmocka_unit_test(an_incomplete_head_is_left_out),
        cmocka_unit_test(a_match_is_tried_beside_a_head),
        cmocka_unit_test(every_sequence_is_tried),
        cmocka_unit_test(who_wants_no_guesses_pays_nothing),
        cmocka_unit_test(devices_change_nothing),
        cmocka_unit_test(a_lost_device_takes_no_head_away),
        cmocka_unit_test(a_prompt_on_a_device_is_followed_at_its_end),
    };
    model_count = oracle_read_list("mtp.txt", models);
    model_count += oracle_read_list("cpu-mtp.txt", models + model_count);
    const int failed = cmocka_run_group_tests_name("speculation_mtp", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
