/* Continues a text: complete MODEL TEXT [TOKENS [STOP]]. cc complete.c $(pkg-config --cflags --libs moraine) */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    mo_error err = {0};
    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_generation *generation = NULL;
    mo_generation_event event = {0};
    int32_t *prompt = NULL;
    size_t count;
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL TEXT [TOKENS [STOP]]\n");
        return 2;
    }
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 0; /* always the likeliest token */
    options.raw = true;      /* a text, not an answer in a chat */
    options.max_tokens = argc > 3 ? atoll(argv[3]) : 32;
    options.stop = (const char *const *)(argv + 4);
    options.stop_count = argc > 4;
    if (mo_model_open(argv[1], NULL, &model, &err) == MO_OK &&
        mo_tokenize(model, argv[2], strlen(argv[2]), MO_TOKEN_SPECIAL, &prompt, &count, &err) == MO_OK &&
        mo_session_open(model, NULL, &session, &err) == MO_OK &&
        mo_generation_open(model, &options, &generation, &err) == MO_OK &&
        mo_generation_prompt(generation, session, prompt, (int64_t)count, &err) == MO_OK) {
        printf("%s", argv[2]);
        int running;
        do {
            running = mo_generation_step(&generation, 1, &err);
            while (mo_generation_next(generation, &event, sizeof event)) {
                printf("%s", event.text.data);
            }
        } while (running > 0);
        err = event.error ? *event.error : err; /* the last event says how it ended */
        printf("\n");
    }
    if (err.status != MO_OK) {
        fprintf(stderr, "complete: %s\n", err.detail);
    }
    mo_generation_close(generation);
    mo_session_close(session);
    mo_free(prompt);
    mo_model_close(model);
    return err.status != MO_OK;
}
