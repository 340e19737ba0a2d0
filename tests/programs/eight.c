/* eight MODEL: eight texts generated together, one cancelled; the other seven are what they are alone. */
#include <moraine.h>

#include <stdio.h>
#include <string.h>

enum { TEXTS = 8, TOKENS = 40, ROOM = 4096 };

static const char *const begins[TEXTS] = {"Once upon a time", "The river",    "A kind old woman",
                                          "Every morning",    "In the north", "Snow",
                                          "The little fox",   "She said"};

typedef struct one {
    mo_session *session;
    mo_generation *generation;
    size_t length;
    mo_end end;
    char text[ROOM];
} one;

static bool begin(mo_model *model, int i, one *o, mo_error *err)
{
    int32_t *ids = NULL;
    size_t count = 0;
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 1;
    options.seed = 7 + i;
    options.raw = true;
    options.ignore_end = true;
    options.max_tokens = TOKENS + i; /* they end at different times */
    const bool ok =
        mo_tokenize(model, begins[i], strlen(begins[i]), MO_TOKEN_SPECIAL, &ids, &count, err) == MO_OK &&
        mo_session_open(model, NULL, &o->session, err) == MO_OK &&
        mo_generation_open(model, &options, &o->generation, err) == MO_OK &&
        mo_generation_prompt(o->generation, o->session, ids, (int64_t)count, err) == MO_OK;
    mo_free(ids);
    return ok;
}

static void take(one *o)
{
    mo_generation_event event;
    while (mo_generation_next(o->generation, &event, sizeof event)) {
        if (o->length + event.text.length < ROOM) {
            memcpy(o->text + o->length, event.text.data, event.text.length);
            o->length += event.text.length;
        }
        if (event.kind == MO_EVENT_END) {
            o->end = event.end;
        }
    }
}

static void end(one *o)
{
    mo_generation_close(o->generation);
    mo_session_close(o->session);
}

int main(int argc, char **argv)
{
    static one alone[TEXTS], with[TEXTS];
    mo_generation *list[TEXTS];
    mo_error err = {0};
    mo_model *model = NULL;
    int wrong = 0;
    mo_model_options options = mo_model_options_default();
    options.sessions = TEXTS;
    options.context = 256;
    bool ok = mo_version_check(MORAINE_VERSION, &err) == MO_OK &&
              mo_model_open(argc > 1 ? argv[1] : "", &options, &model, &err) == MO_OK;
    for (int i = 0; i < TEXTS && ok; i++) {
        ok = begin(model, i, &alone[i], &err);
        while (ok && mo_generation_step(&alone[i].generation, 1, &err) > 0) {
        }
        if (ok) {
            take(&alone[i]);
        }
        end(&alone[i]);
    }
    for (int i = 0; i < TEXTS && ok; i++) {
        ok = begin(model, i, &with[i], &err);
        list[i] = with[i].generation;
    }
    for (int step = 0, running = 1; ok && running > 0; step++) {
        if (step == TOKENS / 2) {
            mo_generation_cancel(list[3]);
        }
        running = mo_generation_step(list, TEXTS, &err);
        ok = running >= 0;
        for (int i = 0; i < TEXTS; i++) {
            take(&with[i]);
        }
    }
    for (int i = 0; i < TEXTS && ok; i++) {
        const bool cancelled = i == 3;
        const bool same = with[i].length == alone[i].length
                              ? memcmp(with[i].text, alone[i].text, alone[i].length) == 0
                              : cancelled && with[i].length < alone[i].length &&
                                    memcmp(with[i].text, alone[i].text, with[i].length) == 0;
        const bool right = same && alone[i].end == MO_END_LENGTH &&
                           with[i].end == (cancelled ? MO_END_CANCELLED : MO_END_LENGTH);
        printf("%s: %s%s%s\n", right ? "same" : "WRONG", begins[i], with[i].text,
               cancelled ? " [cancelled]" : "");
        wrong += !right;
    }
    for (int i = 0; i < TEXTS; i++) {
        end(&with[i]);
    }
    mo_model_close(model);
    if (!ok) {
        fprintf(stderr, "eight: %s\n", err.detail);
    }
    return !ok || wrong;
}
