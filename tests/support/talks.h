/* Talks: sequences on their way in several sessions, fed with drafts that are made of what a plain run has said: right, wrong or both. Tokens,
 * logits and states have to be the plain run's. */
#ifndef MO_TESTS_TALKS_H
#define MO_TESTS_TALKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "moraine_server.h"
#include "oracle.h"

enum { PROMPT = 12, ANSWER = 28, SESSIONS = 3 };

/* How both runs sample, and what drafts are like. */
typedef struct talk_plan {
    float temperature;
    bool plain;     /* nothing but the temperature: a device may find the likeliest token itself */
    unsigned wrong; /* drafts: every so many; 0: none, 1: all */
    int sessions;   /* 0: SESSIONS */
    int64_t deep;   /* most drafts of a step; 0: 7 */
    bool part;      /* what counts with drafts has a part of the layers */
    mo_kv_type kv;
    mo_status (*feed)(const mo_feed *feeds, int count, mo_error *err); /* NULL: mo_session_feed */
} talk_plan;

/* A sequence on its way, with drafts made of what a plain run has said. */
typedef struct talk {
    mo_session *session;
    mo_sampler *sampler;
    int32_t tokens[256];
    int64_t count, drafted, accepted;
    int64_t vocab;
    float *logits; /* [ANSWER][vocab] before each sampled token */
    mo_feed_report report;
} talk;

static inline void talk_open(talk *t, mo_model *model, const oracle *o, int which, const talk_plan *plan)
{
    mo_error err;
    mo_sampler_options set = mo_sampler_options_default();
    *t = (talk){.count = PROMPT + which, .vocab = o->vocab};
    const mo_session_options own = {.size = sizeof own, .kv = plan->kv};
    set.temperature = plan->temperature;
    set.repeat_penalty = plan->plain ? 1.0f : 1.1f;
    set.seed = 7 + (uint64_t)which;
    check_status(mo_session_open(model, &own, &t->session, &err), &err);
    check_status(mo_sampler_open(&set, o->vocab, &t->sampler, &err), &err);
    memcpy(t->tokens, o->tokens, sizeof *t->tokens * (size_t)t->count);
    t->logits = calloc((size_t)(ANSWER * o->vocab), sizeof *t->logits);
    assert_non_null(t->logits);
}

static inline void talk_close(talk *t)
{
    mo_sampler_close(t->sampler);
    mo_session_close(t->session);
    free(t->logits);
}

static inline bool accept_draft(void *user, const mo_feed_report *picked)
{
    talk *t = user;
    assert_int_equal(picked->token, t->tokens[t->count]);
    t->count++;
    return true;
}

static inline void note_logits(talk *t, int which)
{
    const int64_t at = t->count - PROMPT - which;
    const float *row = at < ANSWER ? mo_session_logits(t->session) : NULL;
    if (row) { /* else it was lost with a device */
        memcpy(t->logits + at * t->vocab, row, sizeof(float) * (size_t)t->vocab);
    }
}

/* One step of all: those that are done are left out. said: the plain run's tokens, from which drafts are made; NULL: none are. */
static inline bool talk_step(talk *list, int count, const talk *said, const talk_plan *plan)
{
    mo_error err;
    mo_feed feeds[SESSIONS];
    int used = 0, of[SESSIONS];
    const int64_t deep = plan->deep ? plan->deep : 7;
    const unsigned wrong = plan->wrong;
    for (int i = 0; i < count; i++) {
        talk *t = &list[i];
        const int64_t end = PROMPT + i + ANSWER, left = end - t->count;
        if (left < 1) {
            continue;
        }
        const int64_t most = left - 1 < deep ? left - 1 : deep,
                      drafts = said ? (t->count + i) % (most + 1) : 0;
        for (int64_t d = 0; d < drafts; d++) {
            const bool bad = wrong && (t->count + d) % wrong == 0;
            t->tokens[t->count + d] = (said[i].tokens[t->count + d] + bad) % (int32_t)t->vocab;
        }
        feeds[used] = (mo_feed){.size = sizeof(mo_feed),
                                .session = t->session,
                                .tokens = t->tokens,
                                .count = t->count,
                                .sampler = t->sampler,
                                .user = t,
                                .report = &t->report,
                                .report_size = sizeof t->report,
                                .drafts = drafts,
                                .accept = accept_draft};
        of[used++] = i;
    }
    if (!used) {
        return false;
    }
    check_status((plan->feed ? plan->feed : mo_session_feed)(feeds, used, &err), &err);
    for (int i = 0; i < used; i++) {
        talk *t = &list[of[i]];
        assert_int_equal(mo_session_length(t->session), t->count);
        note_logits(t, of[i]);
        t->drafted += t->report.drafted;
        t->accepted += t->report.accepted;
        t->tokens[t->count++] = t->report.token;
    }
    return true;
}

/* The state as bytes, when the last token has been fed. */
static inline void state_bytes(talk *t, uint8_t **bytes, size_t *size)
{
    mo_error err;
    mo_snapshot *snapshot;
    check_status(mo_snapshot_open(t->session, &snapshot, &err), &err);
    check_status(mo_snapshot_write(snapshot, bytes, size, &err), &err);
    mo_snapshot_close(snapshot);
}

static inline void expect_equal(talk *a, talk *b, const char *name, int which)
{
    uint8_t *bytes[2];
    size_t size[2];
    print_message("# %s %d: %lld drafts, %lld accepted\n", name, which, (long long)b->drafted,
                  (long long)b->accepted);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count);
    for (int64_t i = 0; i < ANSWER; i++) { /* those behind drafts were not the session's last ones */
        const float *logits = b->logits + i * b->vocab;
        bool seen = false;
        for (int64_t v = 0; v < b->vocab && !seen; v++) {
            seen = logits[v] != 0.0f;
        }
        if (seen) {
            assert_memory_equal(logits, a->logits + i * a->vocab, sizeof *logits * (size_t)a->vocab);
        }
    }
    state_bytes(a, &bytes[0], &size[0]);
    state_bytes(b, &bytes[1], &size[1]);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    mo_free(bytes[0]);
    mo_free(bytes[1]);
}

static inline double talk_stat(mo_model *model, const char *name)
{
    double value;
    mo_error err;
    check_status(mo_model_stat(model, name, 0, &value, &err), &err);
    return value;
}

/* The statistics of both grow alike: rejected rows are no tokens. */
static inline void expect_equal_counts(mo_model *plain, mo_model *with, const double before[2][2])
{
    static const char *const counts[] = {"engine.tokens", "engine.expert_picks"};
    for (int i = 0; i < 2; i++) {
        assert_true(talk_stat(plain, counts[i]) - before[0][i] == talk_stat(with, counts[i]) - before[1][i]);
    }
}

static inline void same_with_drafts(const oracle *o, mo_model *plain, mo_model *with, const talk_plan *plan)
{
    talk a[SESSIONS], b[SESSIONS];
    int64_t accepted = 0, drafted = 0;
    const int count = plan->sessions ? plan->sessions : SESSIONS;
    const double before[2][2] = {{talk_stat(plain, "engine.tokens"), talk_stat(plain, "engine.expert_picks")},
                                 {talk_stat(with, "engine.tokens"), talk_stat(with, "engine.expert_picks")}};
    for (int i = 0; i < count; i++) {
        talk_open(&a[i], plain, o, i, plan);
        talk_open(&b[i], with, o, i, plan);
    }
    while (talk_step(a, count, NULL, plan)) {
    }
    while (talk_step(b, count, a, plan)) {
    }
    for (int i = 0; i < count; i++) {
        expect_equal(&a[i], &b[i], o->name, i);
        accepted += b[i].accepted;
        drafted += b[i].drafted;
    }
    if (!plan->part) {
        expect_equal_counts(plain, with, before);
    }
    assert_true(drafted > 0);
    assert_true(plan->wrong == 1 ? accepted == 0
                : plan->wrong    ? accepted > 0 && accepted < drafted
                                 : accepted == drafted);
    for (int i = 0; i < count; i++) {
        talk_close(&a[i]);
        talk_close(&b[i]);
    }
}

#endif
