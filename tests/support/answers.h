/* Answers of a model that guesses tokens, or does not: alone or several in the same steps, to be compared byte for byte. */
#ifndef MO_TESTS_ANSWERS_H
#define MO_TESTS_ANSWERS_H

#include "moraine_server.h"
#include "oracle.h"
#include "sanitized.h"

enum { LIMIT = 40, TOKENS = SANITIZED ? 16 : LIMIT, TEXT = 4096, MOST = 8 };

typedef struct outcome {
    char text[TEXT];
    size_t length, count;
    int32_t tokens[LIMIT + 8];
    float logprobs[LIMIT + 8];
    mo_end end;
    int64_t drafted, accepted;
} outcome;

/* MOST sessions of 256 positions, on the CPU. */
mo_model_options answers_options(mo_speculate speculate);
mo_model *answers_open(const char *path, const mo_model_options *o);

/* As if guesses cost nothing: a source that was not trained would never be asked again. */
void answers_make_free(mo_model *model, int sequences);
/* What the generation has ready. */
void answers_drain(mo_generation *g, outcome *o);
/* `count` answers to beginnings of the prompt, in the same steps; the first is cancelled before step `cancel`. */
void answers_make(mo_model *model, const oracle *o, const mo_generation_options *options, int count,
                  int cancel, outcome *out);
void answers_expect_same(const outcome *got, const outcome *want);

#endif
