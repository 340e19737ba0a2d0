#include "cli/commands/serve_words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Environment variables whose names do not follow from the option. */
static const struct {
    const char *variable, *option;
} variables[] = {
    {"LLAMA_ARG_N_PARALLEL", "parallel"},
    {"LLAMA_ARG_BATCH", "batch"},
    {"LLAMA_ARG_ENDPOINT_METRICS", "metrics"},
    {"LLAMA_ARG_ENDPOINT_SLOTS", "slots"},
    {"LLAMA_ARG_NO_ENDPOINT_SLOTS", "no-slots"},
    {"LLAMA_API_KEY", "api-key"},
    {"LLAMA_ARG_THINK", "reasoning-format"},
    {"LLAMA_ARG_THINK_BUDGET", "reasoning-budget"},
    {"LLAMA_CHAT_TEMPLATE_KWARGS", "chat-template-kwargs"},
};

static const cli_option *find_option(const cli_option *options, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* Converts "LLAMA_ARG_CTX_SIZE=..." to "--ctx-size=...". NULL: no such variable, or it disables a flag. */
static char *word_of(const char *variable, const cli_option *options, int count)
{
    static const char prefix[] = "LLAMA_ARG_";
    const char *equals = strchr(variable, '=');
    char name[64] = "", *word = NULL;
    if (!equals || equals == variable) {
        return NULL;
    }
    const size_t length = (size_t)(equals - variable);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (strlen(variables[i].variable) == length &&
            strncmp(variable, variables[i].variable, length) == 0) {
            snprintf(name, sizeof name, "%s", variables[i].option);
        }
    }
    if (!*name && strncmp(variable, prefix, sizeof prefix - 1) == 0 && length < sizeof name) {
        for (size_t i = sizeof prefix - 1, n = 0; i < length; i++) {
            const char c = variable[i];
            name[n++] = (char)(c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
            name[n] = '\0';
        }
    }
    const cli_option *option = *name ? find_option(options, count, name) : NULL;
    if (!option) {
        if (*name) {
            fprintf(stderr, "moraine serve: note: %.*s has no effect here\n", (int)length, variable);
        }
        return NULL;
    }
    const char *value = equals + 1;
    if (option->kind == CLI_FLAG) {
        const bool on = strcasecmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                        strcasecmp(value, "on") == 0 || strcasecmp(value, "yes") == 0;
        char opposite[80]; /* "0" disables what is enabled by default */
        snprintf(opposite, sizeof opposite, "no-%s", name);
        if (!on && (!*value || !find_option(options, count, opposite))) {
            return NULL;
        }
        return asprintf(&word, "--%s", on ? name : opposite) > 0 ? word : NULL;
    }
    return *value && asprintf(&word, "--%s=%s", name, value) > 0 ? word : NULL;
}

/* Environment variables come first, so that options override them. */
int cli_serve_words(int argc, char **argv, const cli_option *options, int count, char **words)
{
    extern char **environ;
    int n = 0;
    words[n++] = argv[0];
    for (char **variable = environ; *variable && n < CLI_SERVE_WORDS / 2; variable++) {
        char *word = word_of(*variable, options, count);
        if (word) {
            words[n++] = word;
        }
    }
    for (int i = 1; i < argc && n < CLI_SERVE_WORDS - 1; i++) {
        words[n++] = argv[i];
    }
    words[n] = NULL;
    return n;
}
