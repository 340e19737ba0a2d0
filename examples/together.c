/* Eight conversations decoded together, one cancelled: together MODEL. cc together.c $(pkg-config --cflags --libs moraine) */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TALKS = 8, TOKENS = 24, CONTEXT = 256 };

typedef struct talk {
    mo_session *session;
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

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void begin(mo_model *model, int number, talk *t)
{
    mo_error err;
    int32_t *ids;
    size_t count;
    must(mo_session_open(model, NULL, &t->session, &err), &err);
    const size_t length = strlen(questions[number]);
    must(mo_tokenize(model, questions[number], length, MO_TOKEN_SPECIAL, &ids, &count, &err), &err);
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
        begin(model, i, &talks[i]);
    }
    for (int step = 0; step < TOKENS; step++) {
        int used = 0;
        for (int i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            if (t->report.error.status == MO_OK) { /* of the step before */
                mo_feed f = {.size = sizeof f, .session = t->session, .step = 1};
                f.tokens = t->tokens, f.count = t->count;
                f.report = &t->report, f.report_size = sizeof t->report;
                f.progress = i == 3 && step == 0 ? stop : NULL, f.user = t->session;
                feeds[used++] = f;
            }
        }
        mo_session_feed(feeds, used, NULL); /* each report says what became of it */
        for (int i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            if (t->report.error.status == MO_OK) {
                const int32_t token = likeliest(mo_session_logits(t->session), info.vocab);
                const mo_text text = mo_token_bytes(model, token);
                t->tokens[t->count++] = token;
                snprintf(t->answer + strlen(t->answer), sizeof t->answer - strlen(t->answer), "%.*s",
                         (int)text.length, text.data);
            }
        }
    }
    for (int i = 0; i < TALKS; i++) {
        printf("%s%s%s\n", questions[i], talks[i].answer,
               talks[i].report.error.status == MO_OK ? "" : " [cancelled]");
        mo_session_close(talks[i].session);
    }
    mo_model_close(model);
}
