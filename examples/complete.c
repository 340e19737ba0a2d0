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

int main(int argc, char **argv)
{
    mo_error err = {.detail = "the text is too long"};
    mo_model *model;
    mo_session *session;
    mo_sampler *sampler;
    mo_stream *stream;
    mo_model_info info;
    mo_text text;
    int32_t *prompt, tokens[4096];
    size_t count;
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL TEXT [TOKENS]\n");
        return 2;
    }
    const size_t limit = argc > 3 ? strtoul(argv[3], NULL, 10) : 32;
    if (mo_model_open(argv[1], NULL, &model, &err) != MO_OK ||
        mo_tokenize(model, argv[2], strlen(argv[2]), MO_TOKEN_SPECIAL, &prompt, &count, &err) != MO_OK ||
        mo_session_open(model, NULL, &session, &err) != MO_OK ||
        mo_stream_open(model, &stream, &err) != MO_OK) {
        return fail(&err);
    }
    mo_model_describe(model, &info, sizeof info);
    mo_sampler_options greedy = mo_sampler_options_default();
    greedy.temperature = 0; /* always the likeliest */
    if (mo_sampler_open(&greedy, info.vocab, &sampler, &err) != MO_OK || count > 2048) {
        return fail(&err);
    }
    memcpy(tokens, prompt, count * sizeof *tokens);
    printf("%s", argv[2]);
    for (size_t end = count + limit; count < end && count < 4096; count++) {
        const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = tokens, .count = count};
        if (mo_session_feed(&feed, &err) != MO_OK) {
            return fail(&err);
        }
        tokens[count] = mo_sampler_pick(sampler, mo_session_logits(session), NULL, tokens, count);
        mo_stream_put(stream, tokens[count], &text, NULL); /* a token that was picked has a text */
        printf("%s", text.data);
    }
    printf("\n");
    mo_sampler_close(sampler);
    mo_stream_close(stream);
    mo_session_close(session);
    mo_model_close(model);
    mo_free(prompt);
}
