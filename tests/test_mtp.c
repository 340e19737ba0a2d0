/* MTP heads: their logits and guesses are those of the reference, however the text came to the model: in steps of any length, after it was
 * rewound, and with other sessions in the same steps. A wrong head changes no answer, so nothing else would find it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "engine/head.h"
#include "engine/session.h"
#include "model/load.h"
#include "oracle.h"

enum { CONTEXT = 160, DRAFTS = 3, SESSIONS = 3 };

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

/* A model with its head, on the CPU. */
typedef struct rig {
    mo_pool *pool;
    mo_checkpoint *model, *head_model;
    mo_engine *engine;
    mo_head *head;
    mo_session *session[SESSIONS];
    mo_error err;
} rig;

static void rig_open(rig *r, const char *path, const char *isa, int threads, bool map)
{
    const mo_kernels *kernels = NULL;
    *r = (rig){0};
    check_status(mo_pool_create(threads, &r->pool, &r->err), &r->err);
    check_status(mo_kernels_select(isa, &kernels, &r->err), &r->err);
    mo_load_options load = {.interleave = map ? 0 : kernels->interleave, .map = map, .head_used = true};
    check_status(mo_checkpoint_load(path, &load, &r->model, &r->err), &r->err);
    assert_true(mo_checkpoint_spec(r->model)->has_head);
    load.head = true;
    check_status(mo_checkpoint_load(path, &load, &r->head_model, &r->err), &r->err);
    check_status(mo_checkpoint_borrow(r->head_model, r->model, &r->err), &r->err);
    const mo_engine_options options = {.kernels = kernels,
                                       .pool = r->pool,
                                       .batch = CONTEXT,
                                       .context = CONTEXT,
                                       .states = {.kv = MO_KV_F32}};
    check_status(mo_engine_create(r->model, &options, &r->engine, &r->err), &r->err);
    const mo_state_size states = {.kv = MO_KV_F32, .context = CONTEXT, .sessions = SESSIONS};
    check_status(mo_head_open(r->engine, r->head_model, &states, false, &r->head, &r->err), &r->err);
    r->engine->head = r->head;
    for (int i = 0; i < SESSIONS; i++) {
        check_status(mo_engine_session_open(r->engine, MO_KV_F32, CONTEXT, &r->session[i], &r->err), &r->err);
        mo_session_follow(r->session[i], true);
        assert_non_null(r->session[i]->head);
    }
}

static void rig_close(rig *r)
{
    for (int i = 0; i < SESSIONS; i++) {
        mo_session_close(r->session[i]);
    }
    mo_head_close(r->head);
    mo_engine_destroy(r->engine);
    mo_checkpoint_free(r->head_model);
    mo_checkpoint_free(r->model);
    mo_pool_destroy(r->pool);
}

/* Feeds the first `count` tokens, `step` at a time. */
static void feed(rig *r, int which, const int32_t *tokens, int64_t count, int64_t step)
{
    mo_error err = {0};
    const mo_feed f = {.size = sizeof f,
                       .session = r->session[which],
                       .tokens = tokens,
                       .count = count,
                       .step = step,
                       .unfinished = true};
    check_status(count ? mo_session_feed(&f, 1, &err) : MO_OK, &err);
}

/* Guesses for a text whose last token the model has not computed. */
static void draft(rig *r, int which, const int32_t *tokens, int64_t count, int64_t drafts, int32_t *out)
{
    mo_head_wish wish = {
        .session = r->session[which]->head, .tokens = tokens, .count = count, .drafts = drafts, .out = out};
    int64_t behind;
    assert_true(mo_head_draft(r->engine, &wish, 1, &behind));
}

/* Every position's logits, each after one guess. */
static float *logits_of(rig *r, const oracle *o)
{
    const size_t vocab = (size_t)o->vocab;
    float *rows = malloc(sizeof(float) * vocab * (size_t)o->prompt);
    int32_t any[DRAFTS];
    assert_non_null(rows);
    for (int p = 0; p < o->prompt; p++) {
        feed(r, 0, o->tokens, p, 0);
        draft(r, 0, o->tokens, p + 1, 1, any);
        memcpy(rows + (size_t)p * vocab, r->session[0]->head->logits, sizeof(float) * vocab);
    }
    return rows;
}

static void logits_are_those_of_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const size_t values = (size_t)(o->prompt * o->vocab);
        float *first = NULL;
        for (int way = 0; way < 4; way++) {
            rig r;
            rig_open(&r, o->path, way == 2 ? "scalar" : NULL, way == 1 ? 3 : 1, way == 3);
            float *rows = logits_of(&r, o);
            const double error = oracle_nmse(rows, o->mtp_logits, values);
            print_message("# %s: NMSE %.2g\n", o->name, error);
            assert_true(error <= 1e-6);
            if (first) { /* whatever the threads and the instruction set, and where the weights are */
                assert_memory_equal(rows, first, sizeof(float) * values);
                free(rows);
            } else {
                first = rows;
            }
            rig_close(&r);
        }
        free(first);
    }
}

/* The prompt and the first tokens of the answer. */
static void text_of(const oracle *o, int32_t *text)
{
    memcpy(text, o->tokens, sizeof *text * (size_t)o->prompt);
    memcpy(text + o->prompt, o->greedy, sizeof *text * ORACLE_GREEDY);
}

static void check_draft(rig *r, int which, const oracle *o, const int32_t *text)
{
    int32_t got[DRAFTS];
    draft(r, which, text, o->prompt + 1, o->mtp_drafts, got);
    assert_memory_equal(got, o->mtp_draft, sizeof *got * (size_t)o->mtp_drafts);
}

static void guesses_are_those_of_the_reference(void **state)
{
    static const int64_t steps[] = {0, 1, 7};
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        int32_t text[ORACLE_PROMPT_MAX + ORACLE_GREEDY], other[DRAFTS];
        rig r;
        text_of(o, text);
        assert_true(o->mtp_drafts <= DRAFTS);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            rig_open(&r, o->path, NULL, 2, false);
            feed(&r, 0, text, o->prompt, steps[k]);
            check_draft(&r, 0, o, text);
            check_draft(&r, 0, o, text); /* again, as if the step behind it had failed */
            text[o->prompt] = (o->greedy[0] + 1) % (int)o->vocab;
            draft(&r, 0, text, o->prompt + 1, DRAFTS, other); /* or another token was drawn */
            text_of(o, text);
            check_draft(&r, 0, o, text);
            rig_close(&r);
        }
    }
}

/* Enough tokens that the head computes some while it follows. */
static void long_texts_are_followed(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        int32_t text[CONTEXT], got[4][DRAFTS];
        rig r;
        for (int t = 0; t < CONTEXT; t++) {
            text[t] = t < o->prompt ? o->tokens[t] : (t * 7 + 3) % (int)o->vocab;
        }
        rig_open(&r, o->path, NULL, 2, false);
        const mo_engine_counters *did = &r.head->engine->counters;
        feed(&r, 0, text, 150, 0);
        assert_int_equal(did->steps, 1); /* as long as the model's, where experts are read for it */
        assert_int_equal(did->tokens, r.head->engine->spec->layers[0].routed ? 150 : MO_HEAD_BATCH);
        draft(&r, 0, text, 151, DRAFTS, got[0]);
        for (int64_t n = 1; n <= 150; n++) {
            feed(&r, 1, text, n, 1);
            if (n % 11 == 0) {
                draft(&r, 1, text, n + 1, DRAFTS, got[1]);
            }
        }
        draft(&r, 1, text, 151, DRAFTS, got[1]);
        assert_memory_equal(got[0], got[1], sizeof *got);
        rig_close(&r);
    }
}

/* What a head has left for later is computed apart from a guess, unless the last step alone has left it. */
static void what_was_left_is_no_guess(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const int64_t length =
            o->prompt < MO_HEAD_LATER ? o->prompt : MO_HEAD_LATER; /* more is computed meanwhile */
        int32_t text[ORACLE_PROMPT_MAX + ORACLE_GREEDY], got[2][1];
        rig r;
        text_of(o, text);
        rig_open(&r, o->path, NULL, 2, false);
        const mo_engine_counters *did = &r.head->engine->counters;
        for (int64_t n = 1; n <= length; n++) {
            feed(&r, 0, text, n, 0);
        }
        draft(&r, 0, text, length + 1, 1, got[0]);
        assert_int_equal(did->steps, 2);
        assert_int_equal(did->tokens, length + 1);
        assert_true(length < o->prompt || got[0][0] == o->mtp_draft[0]);
        feed(&r, 0, text, length + 2, 0); /* a step of two tokens, as with a guess */
        draft(&r, 0, text, length + 3, 1, got[0]);
        assert_int_equal(did->steps, 3);
        feed(&r, 1, text, length + 2, 0);
        draft(&r, 1, text, length + 3, 1, got[1]);
        assert_int_equal(got[0][0], got[1][0]);
        rig_close(&r);
    }
}

/* Sessions that share a step of the head get what each gets alone. */
static void sessions_guess_together(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        int32_t text[ORACLE_PROMPT_MAX + ORACLE_GREEDY], alone[SESSIONS][DRAFTS], together[SESSIONS][DRAFTS];
        mo_head_wish wishes[SESSIONS];
        rig r;
        text_of(o, text);
        rig_open(&r, o->path, NULL, 2, false);
        for (int k = 0; k < SESSIONS; k++) {
            const int64_t count = o->prompt + 1 - 9 * k;
            feed(&r, k, text, count - 1, 0);
            draft(&r, k, text, count, DRAFTS - k, alone[k]);
            wishes[k] = (mo_head_wish){.session = r.session[k]->head,
                                       .tokens = text,
                                       .count = count,
                                       .drafts = DRAFTS - k,
                                       .out = together[k]};
        }
        int64_t behind;
        assert_true(mo_head_draft(r.engine, wishes, SESSIONS, &behind));
        for (int k = 0; k < SESSIONS; k++) {
            assert_memory_equal(together[k], alone[k], sizeof(int32_t) * (size_t)(DRAFTS - k));
        }
        rig_close(&r);
    }
}

/* A session that goes back to an earlier text, or begins in the middle of one, is guessed for all the same. */
static void a_session_goes_back(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        int32_t text[ORACLE_PROMPT_MAX + ORACLE_GREEDY], got[DRAFTS];
        rig r;
        text_of(o, text);
        rig_open(&r, o->path, NULL, 2, false);
        feed(&r, 0, text, o->prompt, 0);
        check_draft(&r, 0, o, text);
        feed(&r, 0, text, o->prompt + 8, 0);
        draft(&r, 0, text, o->prompt + 9, 2, got);
        text[5]++;
        feed(&r, 0, text, o->prompt, 0); /* the text has changed at the sixth token */
        draft(&r, 0, text, o->prompt + 1, DRAFTS, got);
        text[5]--;
        mo_state_reset(&r.session[0]->state); /* all of it anew */
        feed(&r, 0, text, o->prompt, 0);
        check_draft(&r, 0, o, text);
        const uint64_t seen = r.head->engine->counters.tokens;
        mo_session_follow(r.session[1], false);
        feed(&r, 1, text, 5, 0);
        mo_session_follow(r.session[1], true);
        feed(&r, 1, text, 9, 0);
        mo_session_follow(r.session[1], false);
        feed(&r, 1, text, 20, 0); /* which the head does not see */
        assert_int_equal(r.head->engine->counters.tokens, seen);
        mo_session_follow(r.session[1], true);
        assert_non_null(r.session[1]->head);
        feed(&r, 1, text, o->prompt, 0);
        draft(&r, 1, text, o->prompt + 1, DRAFTS, got);
        assert_true(r.session[1]->head->base == 20);
        rig_close(&r);
    }
}

/* A file without a head, or with a part of one, says so. */
static void what_is_no_head_is_refused(void **state)
{
    static oracle plain[ORACLE_MODELS_MAX];
    const int count = oracle_read(plain);
    (void)state;
    for (int i = 0; i < count; i++) {
        mo_checkpoint *m = NULL;
        mo_error err = {0};
        const mo_status status =
            mo_checkpoint_load(plain[i].path, &(mo_load_options){.head = true}, &m, &err);
        if (status == MO_OK) { /* glm4moe's, by the published formula */
            assert_true(mo_linear_present(&mo_checkpoint_spec(m)->head.join));
            mo_checkpoint_free(m);
        } else {
            assert_int_equal(status, MO_EUNSUPPORTED);
            check_says(&err, "MTP head");
        }
    }
    oracle_free(plain, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_reference),
        cmocka_unit_test(guesses_are_those_of_the_reference),
        cmocka_unit_test(long_texts_are_followed),
        cmocka_unit_test(what_was_left_is_no_guess),
        cmocka_unit_test(sessions_guess_together),
        cmocka_unit_test(a_session_goes_back),
        cmocka_unit_test(what_is_no_head_is_refused),
    };
    model_count = oracle_read_list("mtp.txt", models);
    model_count += oracle_read_list("mtp-formula.txt", models + model_count);
    model_count += oracle_read_list("cpu-mtp.txt", models + model_count);
    const int failed = cmocka_run_group_tests_name("mtp", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
