#include "model/nearest.h"

#include <stddef.h>
#include <string.h>

#include "model/family.h"

/* Related architectures whose names do not show it. */
static const struct {
    const char *begins, *nearest;
} relatives[] = {
    {"mistral", "mistral3"},
    {"ministral", "mistral3"},
    {"mixtral", "llama"},
    {"smollm", "llama"},
    {"internlm", "llama"},
    {"baichuan", "llama"},
    {"deci", "llama"},
    {"chatglm", "glm4"},
    {"glm-dsa", "deepseek2"},
    {"kimi", "deepseek2"},
    {"gemma", "gemma3"},
    {"olmo", "olmoe"},
    {"hy-", "hunyuan-moe"},
    {"mamba", "granitehybrid"},
    {"nemotron", "granitehybrid"},
    {"falcon-h", "granitehybrid"},
};

static bool names_experts(const char *architecture)
{
    return strstr(architecture, "moe") != NULL;
}

/* Length of the common prefix; architectures with experts are more similar to each other. */
static size_t likeness(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) {
        n++;
    }
    return n < 3 ? 0 : 2 * n + (names_experts(a) == names_experts(b));
}

const char *mo_family_nearest(const char *architecture)
{
    const char *nearest = NULL;
    size_t best = 0;
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++) {
        if (strncmp(architecture, relatives[i].begins, strlen(relatives[i].begins)) == 0 &&
            mo_family_find(relatives[i].nearest)) {
            return relatives[i].nearest;
        }
    }
    for (int i = 0; mo_family_at(i); i++) {
        const size_t like = likeness(architecture, mo_family_at(i)->architecture);
        if (like > best) {
            best = like;
            nearest = mo_family_at(i)->architecture;
        }
    }
    return nearest;
}
