/* complete MODEL TEXT [STOP...]: continues a text until a stop string; Ctrl-C ends it. */
#define _POSIX_C_SOURCE 200809L
#include <moraine.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static mo_generation *generation; /* set before the handler is */

static void interrupt(int number)
{
    (void)number;
    mo_generation_cancel(generation);
}

int main(int argc, char **argv)
{
    static const char *const why[] = {"nothing",          "the model", "a stop string", "max_tokens",
                                      "the full context", "Ctrl-C",    "a failure"};
    mo_error err = {0}, failed = {0};
    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_generation_event event = {0};
    int32_t *prompt = NULL;
    size_t count = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL TEXT [STOP...]\n");
        return 2;
    }
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 0;
    options.raw = true;
    options.stop = (const char *const *)(argv + 3);
    options.stop_count = (size_t)(argc - 3);
    if (mo_version_check(MORAINE_VERSION, &err) == MO_OK &&
        mo_model_open(argv[1], NULL, &model, &err) == MO_OK &&
        mo_tokenize(model, argv[2], strlen(argv[2]), MO_TOKEN_SPECIAL, &prompt, &count, &err) == MO_OK &&
        mo_session_open(model, NULL, &session, &err) == MO_OK &&
        mo_generation_open(model, &options, &generation, &err) == MO_OK &&
        mo_generation_prompt(generation, session, prompt, (int64_t)count, &err) == MO_OK) {
        sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt}, NULL);
        fputs(argv[2], stdout);
        for (int running = 1; running > 0;) {
            running = mo_generation_step(&generation, 1, &failed);
            err = running < 0 ? failed : err; /* a cancelled step fills it too, and is none */
            while (mo_generation_next(generation, &event, sizeof event)) {
                fwrite(event.text.data, 1, event.text.length, stdout);
            }
            fflush(stdout);
        }
        signal(SIGINT, SIG_DFL);
        if (event.kind == MO_EVENT_END) {
            fprintf(stderr, "\n[%lld tokens, ended by %s%s%s]\n", (long long)event.generated, why[event.end],
                    event.stop < 0 ? "" : ": ", event.stop < 0 ? "" : options.stop[event.stop]);
            if (event.end == MO_END_FAILED) {
                err = *event.error;
            }
        }
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
