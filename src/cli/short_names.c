#include "cli/short_names.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Repositories with files that run here, of the families listed in README.md. */
static const struct {
    const char *name, *usual;
} names[] = {
    {"gpt-oss-20b", "ggml-org/gpt-oss-20b-GGUF"},
    {"gpt-oss-120b", "ggml-org/gpt-oss-120b-GGUF"},
    {"gpt-oss", "ggml-org/gpt-oss-20b-GGUF"},
    {"qwen3-30b-a3b", "unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M"},
    {"qwen3-30b", "unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M"},
    {"qwen3-coder-30b", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M"},
    {"qwen3-coder", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M"},
    {"qwen3-235b-a22b", "unsloth/Qwen3-235B-A22B-GGUF:Q4_K_M"},
    {"qwen3-235b", "unsloth/Qwen3-235B-A22B-GGUF:Q4_K_M"},
    {"qwen3-next-80b-a3b", "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF:Q4_K_M"},
    {"qwen3-next-80b", "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5-7b", "bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M"},
    {"olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924-Instruct-GGUF:Q4_K_M"},
    {"deepseek-v3", "unsloth/DeepSeek-V3-GGUF:Q4_K_M"},
    {"deepseek-r1", "unsloth/DeepSeek-R1-GGUF:Q4_K_M"},
    {"kimi-k2", "unsloth/Kimi-K2-Instruct-GGUF:Q4_K_M"},
    {"glm-4.5-air", "unsloth/GLM-4.5-Air-GGUF:Q4_K_M"},
    {"smollm2-135m", "bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0"},
    {"smollm2-1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M"},
};

bool cli_short_name(const char *text)
{
    size_t length = 0;
    for (; text[length]; length++) {
        const unsigned char c = (unsigned char)text[length];
        if (!isalnum(c) && !strchr(":._-", c)) {
            return false;
        }
    }
    return length > 0 && isalnum((unsigned char)text[0]);
}

/* A character normalized for comparison. */
static int plain(char c)
{
    return c == ':' || c == '_' ? '-' : tolower((unsigned char)c);
}

/* The number of characters of the name that match the whole text. 0: the text is not a prefix. */
static size_t begins(const char *text, const char *name)
{
    size_t i = 0;
    while (text[i] && plain(text[i]) == plain(name[i])) {
        i++;
    }
    return text[i] ? 0 : i;
}

const char *cli_short_name_usual(const char *text)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (begins(text, names[i].name) == strlen(names[i].name)) {
            return names[i].usual;
        }
    }
    return NULL;
}

/* Is this the end of a repository's name, except for common suffixes? */
static bool ends(const char *rest)
{
    return !*rest || begins("-gguf", rest) == strlen(rest);
}

int cli_short_name_means(const char *text, const hub_model *model)
{
    const char *colon = strrchr(text, ':');
    char name[HUB_NAME];
    const size_t used = begins(text, model->repo);
    if (used > 0) {
        return ends(model->repo + used) ? 2 : strchr("-_.", model->repo[used]) ? 1 : 0;
    }
    if (!colon || (size_t)(colon - text) >= sizeof name || begins(colon + 1, model->label) == 0 ||
        strlen(colon + 1) != strlen(model->label)) {
        return 0;
    }
    memcpy(name, text, (size_t)(colon - text)); /* "name:label" */
    name[colon - text] = '\0';
    return cli_short_name_means(name, model);
}
