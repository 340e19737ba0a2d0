/* Eight texts continued together, one cancelled: together MODEL. cc together.c $(pkg-config --cflags --libs moraine) */
#include <moraine.h>

#include <stdio.h>
#include <string.h>

enum { TEXTS = 8, TOKENS = 24 };

static const char *const begins[TEXTS] = {"The river", "A mountain",     "Every morning", "In the north",
                                          "Once",      "The last train", "Snow",          "She said"};

static bool begin(mo_model *model, const char *text, mo_session **session, mo_generation **generation,
                  mo_error *err)
{
    int32_t *prompt = NULL;
    size_t count = 0;
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 0;
    options.raw = true;
    options.max_tokens = TOKENS;
    const bool ok = mo_tokenize(model, text, strlen(text), MO_TOKEN_SPECIAL, &prompt, &count, err) == MO_OK &&
                    mo_session_open(model, NULL, session, err) == MO_OK &&
                    mo_generation_open(model, &options, generation, err) == MO_OK &&
                    mo_generation_prompt(*generation, *session, prompt, (int64_t)count, err) == MO_OK;
    mo_free(prompt);
    return ok;
}

int main(int argc, char **argv)
{
    mo_error err = {0};
    mo_model *model = NULL;
    mo_session *sessions[TEXTS] = {NULL};
    mo_generation *list[TEXTS] = {NULL};
    mo_generation_event event;
    mo_model_options options = mo_model_options_default();
    options.sessions = TEXTS;
    options.context = 256;
    bool ok = mo_model_open(argc > 1 ? argv[1] : "", &options, &model, &err) == MO_OK;
    for (int i = 0; i < TEXTS && ok; i++) {
        ok = begin(model, begins[i], &sessions[i], &list[i], &err);
    }
    for (int step = 0; ok && mo_generation_step(list, TEXTS, &err) > 0; step++) {
        if (step == TOKENS / 2) {
            mo_generation_cancel(list[TEXTS - 1]); /* the others are not affected */
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        printf("%s%s", i && ok ? "\n" : "", ok ? begins[i] : "");
        while (ok && mo_generation_next(list[i], &event, sizeof event)) {
            printf("%s%s", event.text.data, event.end == MO_END_CANCELLED ? " [cancelled]" : "");
        }
        mo_generation_close(list[i]);
        mo_session_close(sessions[i]);
    }
    printf("%s\n", ok ? "" : err.detail);
    mo_model_close(model);
    return !ok;
}
