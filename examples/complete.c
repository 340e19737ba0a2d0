/* Continues a text: complete MODEL TEXT [TOKENS]. cc complete.c $(pkg-config --cflags --libs moraine) */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const mo_error *err)
{
    fprintf(stderr, "complete: %s\n", err->detail);
    return 1;
}

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    mo_error err = {.detail = "the text is too long"};
    mo_model *model;
    mo_session *session;
    mo_model_info info;
    int32_t *prompt, tokens[4096];
    size_t count;
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL TEXT [TOKENS]\n");
        return 2;
    }
    const size_t limit = argc > 3 ? strtoul(argv[3], NULL, 10) : 32;
    if (mo_model_open(argv[1], NULL, &model, &err) != MO_OK ||
        mo_tokenize(model, argv[2], strlen(argv[2]), MO_TOKEN_SPECIAL, &prompt, &count, &err) != MO_OK ||
        mo_session_open(model, NULL, &session, &err) != MO_OK || count > 2048) {
        return fail(&err);
    }
    mo_model_describe(model, &info, sizeof info);
    memcpy(tokens, prompt, count * sizeof *tokens);
    printf("%s", argv[2]);
    for (size_t end = count + limit; count < end && count < 4096; count++) {
        const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = tokens, .count = count};
        if (mo_session_feed(&feed, 1, &err) != MO_OK) {
            return fail(&err);
        }
        tokens[count] = likeliest(mo_session_logits(session), info.vocab);
        const mo_text text = mo_token_bytes(model, tokens[count]);
        fwrite(text.data, 1, text.length, stdout);
    }
    printf("\n");
    mo_session_close(session);
    mo_model_close(model);
    mo_free(prompt);
}
