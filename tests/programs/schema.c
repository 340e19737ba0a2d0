/* schema MODEL [QUESTION]: an answer as a JSON schema wants it, with the likelihood of every token. */
#include <moraine.h>

#include <stdio.h>
#include <string.h>

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"sum\": {\"type\": \"integer\", \"minimum\": 0, "
    "\"maximum\": 999}, \"word\": {\"enum\": [\"small\", \"large\"]}}, "
    "\"required\": [\"sum\", \"word\"], \"additionalProperties\": false}";

static void show(const mo_model *model, int32_t id, float logprob)
{
    const mo_text t = mo_token_bytes(model, id);
    printf(" %8.4f '%.*s'", (double)logprob, (int)t.length, t.data ? t.data : "");
}

int main(int argc, char **argv)
{
    mo_error err = {0};
    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_generation *generation = NULL;
    mo_prompt *prompt = NULL;
    mo_generation_event event = {0};
    char chat[512], text[1024] = "", word[8] = "";
    size_t count = 0, length = 0, tokens = 0, wrong = 0;
    int sum = -1, end = 0;
    /* A question with quotation marks would have to be escaped. */
    snprintf(chat, sizeof chat, "[{\"role\": \"user\", \"content\": \"%s\"}]",
             argc > 2 ? argv[2] : "What is 3 plus 4?");
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 0;
    options.schema = schema;
    options.strict = true;
    options.logprobs = 3;
    options.max_tokens = 100;
    bool ok = mo_version_check(MORAINE_VERSION, &err) == MO_OK &&
              mo_model_open(argc > 1 ? argv[1] : "", NULL, &model, &err) == MO_OK &&
              mo_session_open(model, NULL, &session, &err) == MO_OK &&
              mo_prompt_open(model, chat, strlen(chat), NULL, &prompt, &err) == MO_OK &&
              mo_generation_open(model, &options, &generation, &err) == MO_OK;
    if (ok) {
        const int32_t *ids = mo_prompt_tokens(prompt, &count);
        ok = mo_generation_prompt(generation, session, ids, (int64_t)count, &err) == MO_OK;
    }
    for (int running = 1; ok && running > 0;) {
        running = mo_generation_step(&generation, 1, &err);
        ok = running >= 0;
        while (mo_generation_next(generation, &event, sizeof event)) {
            if (event.kind == MO_EVENT_TEXT && length + event.text.length < sizeof text) {
                memcpy(text + length, event.text.data, event.text.length + 1);
                length += event.text.length;
            }
            for (size_t i = 0; i < event.token_count; i++, tokens++) {
                const mo_generation_token *t = &event.tokens[i];
                show(model, t->id, t->logprob);
                printf("   of");
                for (int k = 0; k < t->top_count; k++) {
                    show(model, t->top[k].token, t->top[k].logprob);
                    wrong += t->top[k].logprob > 0 || (k && t->top[k].logprob > t->top[k - 1].logprob);
                }
                printf("\n");
                wrong += t->top_count != 3 || !(t->logprob <= 0) || t->logprob > t->top[0].logprob;
            }
        }
    }
    if (ok && event.end == MO_END_FAILED) {
        err = *event.error;
        ok = false;
    }
    if (ok) {
        const bool valid =
            sscanf(text, " { \"sum\" : %d , \"word\" : \"%7[a-z]\" %n", &sum, word, &end) == 2 && end &&
            text[end] == '}' && sum >= 0 && sum <= 999 && (!strcmp(word, "small") || !strcmp(word, "large"));
        wrong += !valid + (event.end != MO_END_MODEL) + ((int64_t)tokens != event.generated);
        printf("%s: %s, %zu tokens, sum %d, end %d, not enforced: '%s'\n", wrong ? "WRONG" : "right", text,
               tokens, sum, event.end, mo_generation_unenforced(generation));
    } else {
        fprintf(stderr, "schema: %s\n", err.detail);
    }
    mo_generation_close(generation);
    mo_prompt_close(prompt);
    mo_session_close(session);
    mo_model_close(model);
    return !ok || wrong;
}
