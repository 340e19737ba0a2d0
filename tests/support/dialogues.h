/* Dialogues of any style with any way of thinking, as no one model has them. */
#ifndef MO_TESTS_DIALOGUES_H
#define MO_TESTS_DIALOGUES_H

#include <string.h>

#include "dialogue/style.h"

/* thought: "think", "gemma4", "seed", "hy", "cohere", "mistral", "granite", "" (none). */
static inline mo_dialogue dialogue_of(mo_style_id id, const char *thought)
{
    static const char *const templates[][2] = {
        {"gemma4", "<channel|>"},
        {"seed", "</seed:think>"},
        {"mistral", "[/THINK]"},
        {"granite", "</think><response>"},
        {"think", "</think>"},
        {"hy", "</think:opensource>"},
        {"cohere", "<|END_THINKING|><|START_TEXT|>"},
    };
    const char *text = "";
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        text = strcmp(templates[i][0], thought) == 0 ? templates[i][1] : text;
    }
    mo_dialogue d = mo_dialogue_detect(text, true, NULL);
    d.id = id;
    d.style = mo_style_get(id);
    return d;
}

#endif
