/* save first FILE MODEL: generates the first part and saves the generation; save second FILE MODEL: another process
 * continues it, and compares the whole text with that of a run without interruption. */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 25, ALL = 80, ROOM = 8192 };

/* Steps until the end, or for so many tokens; appends the text. */
static bool run(mo_generation *generation, int64_t tokens, char *text, mo_end *end, mo_error *err)
{
    mo_generation_event event = {0};
    size_t length = strlen(text);
    for (int running = 1; running > 0 && event.generated < tokens;) {
        running = mo_generation_step(&generation, 1, err);
        if (running < 0) {
            return false;
        }
        while (mo_generation_next(generation, &event, sizeof event)) {
            if (length + event.text.length < ROOM) {
                memcpy(text + length, event.text.data, event.text.length + 1);
                length += event.text.length;
            }
        }
    }
    *end = event.kind == MO_EVENT_END ? event.end : MO_END_NONE;
    if (*end == MO_END_FAILED) {
        *err = *event.error;
    }
    return *end != MO_END_FAILED;
}

static bool begin(mo_model *model, mo_session *session, mo_generation **out, mo_error *err)
{
    static const char begin[] = "Once upon a time";
    int32_t *ids = NULL;
    size_t count = 0;
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 1;
    options.seed = 42;
    options.raw = true;
    options.max_tokens = ALL;
    options.grammar = "root ::= ([a-zA-Z ]+ [,.] )+";
    const bool ok = mo_tokenize(model, begin, strlen(begin), MO_TOKEN_SPECIAL, &ids, &count, err) == MO_OK &&
                    mo_generation_open(model, &options, out, err) == MO_OK &&
                    mo_generation_prompt(*out, session, ids, (int64_t)count, err) == MO_OK;
    mo_free(ids);
    return ok;
}

int main(int argc, char **argv)
{
    static char text[ROOM], whole[ROOM]; /* a file: the text with its terminator, and the generation */
    mo_error err = {0};
    mo_model *model = NULL;
    mo_session *session = NULL, *other = NULL;
    mo_generation *generation = NULL, *uncut = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    mo_end end, end_whole;
    FILE *file = NULL;
    bool same = true;
    const bool first = argc > 3 && !strcmp(argv[1], "first");
    if (argc < 4 || (!first && strcmp(argv[1], "second"))) {
        fprintf(stderr, "usage: save first|second FILE MODEL\n");
        return 2;
    }
    bool ok = mo_version_check(MORAINE_VERSION, &err) == MO_OK &&
              mo_model_open(argv[3], NULL, &model, &err) == MO_OK &&
              mo_session_open(model, NULL, &session, &err) == MO_OK;
    if (ok && first) {
        ok = begin(model, session, &generation, &err) && run(generation, FIRST, text, &end, &err) &&
             mo_generation_save(generation, &bytes, &size, &err) == MO_OK;
        if (ok) {
            file = fopen(argv[2], "wb");
            ok = file && fwrite(text, 1, ROOM, file) == ROOM && fwrite(bytes, 1, size, file) == size;
            ok = file && !fclose(file) && ok;
            snprintf(err.detail, sizeof err.detail, "%s: cannot be written", argv[2]);
            printf("%s\n", text);
        }
        mo_free(bytes);
    } else if (ok) {
        file = fopen(argv[2], "rb");
        ok = file && fread(text, 1, ROOM, file) == ROOM && memchr(text, 0, ROOM) && (bytes = malloc(1 << 26));
        size = ok ? fread(bytes, 1, 1 << 26, file) : 0;
        snprintf(err.detail, sizeof err.detail, "%s: cannot be read", argv[2]);
        ok = ok && mo_generation_load(model, session, bytes, size, &generation, &err) == MO_OK &&
             run(generation, ALL, text, &end, &err) && mo_session_open(model, NULL, &other, &err) == MO_OK &&
             begin(model, other, &uncut, &err) && run(uncut, ALL, whole, &end_whole, &err);
        same = ok && !strcmp(text, whole) && end == end_whole;
        if (ok) {
            printf("%s: %s\n", same ? "same" : "WRONG", text);
        }
        if (file) {
            fclose(file);
        }
        free(bytes);
    }
    if (!ok) {
        fprintf(stderr, "save: %s\n", err.detail);
    }
    mo_generation_close(generation);
    mo_generation_close(uncut);
    mo_session_close(session);
    mo_session_close(other);
    mo_model_close(model);
    return !ok || !same;
}
