/* Eight conversations decoded together, one cancelled: together MODEL. cc together.c $(pkg-config --cflags --libs moraine) */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TALKS = 8, TOKENS = 24, CONTEXT = 256 };

typedef struct talk {
    mo_session *session;
    mo_sampler *sampler;
    mo_stream *stream;
    mo_feed_report report;
    int32_t tokens[CONTEXT];
    int64_t count;
    char answer[1024];
} talk;

static const char *const questions[TALKS] = {"The river", "A mountain",     "Every morning", "In the north",
                                             "Once",      "The last train", "Snow",          "She said"};

static void must(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fprintf(stderr, "together: %s\n", err->detail);
        exit(1);
    }
}

static void begin(mo_model *model, int64_t vocab, int number, talk *t)
{
    mo_error err;
    mo_sampler_options sampler = mo_sampler_options_default();
    int32_t *ids;
    size_t count;
    sampler.seed = (uint64_t)number;
    must(mo_session_open(model, NULL, &t->session, &err), &err);
    must(mo_sampler_open(&sampler, vocab, &t->sampler, &err), &err);
    must(mo_stream_open(model, &t->stream, &err), &err);
    must(mo_tokenize(model, questions[number], strlen(questions[number]), MO_TOKEN_SPECIAL, &ids, &count,
                     &err),
         &err);
    t->count = (int64_t)count;
    memcpy(t->tokens, ids, count * sizeof *ids);
    mo_free(ids);
}

static bool stop(void *user, int64_t done, int64_t total)
{
    mo_session_cancel(user); /* as another thread would, whose client has left */
    return done <= total;
}

int main(int argc, char **argv)
{
    static talk talks[TALKS];
    mo_feed feeds[TALKS];
    mo_error err;
    mo_model *model;
    mo_model_info info;
    must(mo_model_open(argc > 1 ? argv[1] : "", NULL, &model, &err), &err);
    mo_model_describe(model, &info, sizeof info);
    for (int i = 0; i < TALKS; i++) {
        begin(model, info.vocab, i, &talks[i]);
    }
    for (int step = 0; step < TOKENS; step++) {
        int used = 0;
        for (int i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            if (t->report.error.status == MO_OK) { /* of the step before */
                mo_feed f = {.size = sizeof f, .session = t->session, .step = 1};
                f.tokens = t->tokens, f.count = t->count, f.sampler = t->sampler;
                f.report = &t->report, f.report_size = sizeof t->report;
                f.progress = i == 3 && step == 0 ? stop : NULL;
                f.user = t->session;
                feeds[used++] = f;
            }
        }
        mo_session_feed_all(feeds, used, NULL); /* each report says what became of it */
        for (int i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            mo_text text;
            if (t->report.error.status == MO_OK) {
                t->tokens[t->count++] = t->report.token;
                must(mo_stream_put(t->stream, t->report.token, &text, &err), &err);
                strncat(t->answer, text.data, sizeof t->answer - strlen(t->answer) - 1);
            }
        }
    }
    for (int i = 0; i < TALKS; i++) {
        printf("%s%s%s\n", questions[i], talks[i].answer,
               talks[i].report.error.status == MO_OK ? "" : " [cancelled]");
        mo_stream_close(talks[i].stream);
        mo_sampler_close(talks[i].sampler);
        mo_session_close(talks[i].session);
    }
    mo_model_close(model);
}
