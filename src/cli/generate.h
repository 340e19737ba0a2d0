/* Generate: the loop that run and chat share: feed, pick, print, until the answer ends. */
#ifndef MO_CLI_GENERATE_H
#define MO_CLI_GENERATE_H

#include <moraine.h>

#include "options.h"

/* Sampling options as people type them. */
typedef struct cli_sampling {
    double temperature, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, last, seed;
    const char *bias; /* "ID:VALUE,ID:VALUE" */
} cli_sampling;

#define CLI_SAMPLING_DEFAULT                                                                                 \
    {                                                                                                        \
        .temperature = 0.8, .top_p = 0.95, .min_p = 0.05, .repeat = 1.0, .top_k = 40, .last = 64, .seed = -1 \
    }

#define CLI_SAMPLING_OPTIONS(s)                                                                              \
    {"temp",           0, CLI_REAL, "X", "temperature; 0 takes the likeliest token always (0.8)",            \
     &(s).temperature, 0, 0},                                                                                \
        {"top-k",    0, CLI_INTEGER, "N", "choose among the N likeliest tokens; 0: all (40)",                \
         &(s).top_k, 0, 1000000},                                                                            \
        {"top-p",                                                                                            \
         0,                                                                                                  \
         CLI_REAL,                                                                                           \
         "X",                                                                                                \
         "choose among the likeliest tokens that have X of the probability (0.95)",                          \
         &(s).top_p,                                                                                         \
         0,                                                                                                  \
         0},                                                                                                 \
        {"min-p",    0, CLI_REAL, "X", "drop tokens below X times the likeliest one's probability (0.05)",   \
         &(s).min_p, 0, 0},                                                                                  \
        {"repeat-penalty", 0, CLI_REAL, "X", "divide the logits of recent tokens by X; 1: off (1)",          \
         &(s).repeat,      0, 0},                                                                            \
        {"presence-penalty", 0, CLI_REAL, "X", "subtract X from the logits of recent tokens (0)",            \
         &(s).presence,      0, 0},                                                                          \
        {"frequency-penalty", 0, CLI_REAL, "X", "subtract X for every recent occurrence (0)",                \
         &(s).frequency,      0, 0},                                                                         \
        {"repeat-last-n", 0,  CLI_INTEGER, "N", "how many tokens count as recent; -1: all (64)",             \
         &(s).last,       -1, INT64_MAX},                                                                    \
        {"logit-bias", 0, CLI_TEXT, "ID:X,...", "add X to the logit of token ID", &(s).bias, 0, 0},          \
    {                                                                                                        \
        "seed", 0, CLI_INTEGER, "N",                                                                         \
            "of the sampling: the same seed gives the same text on every machine (random, and printed)",     \
            &(s).seed, 0, INT64_MAX                                                                          \
    }

/* A conversation's tokens with what is needed to go on. */
typedef struct cli_generation {
    const char *command;
    mo_model *model;
    mo_session *session;
    mo_sampler *sampler;
    int32_t *tokens;
    int64_t count, room;
    int64_t discover; /* tokens of a new text that look for its experts first; 0: none */
    /* Of the last answer. */
    int64_t prompt_tokens, answer_tokens;
    double prompt_seconds, answer_seconds;
    bool interrupted;
    char *answer; /* its text, when wanted; free() it */
    size_t answer_length;
} cli_generation;

/* Opens a session and a sampler on the model. Tokens the vocabulary suppresses are never picked, unless the
 * user has given a bias for them. The seed is chosen when it is negative, and printed when the choice is random.
 * False after saying what is wrong. */
bool cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                         const cli_sampling *s);
void cli_generation_close(cli_generation *g);

/* Replaces the tokens by ids (which are copied). False when memory is out. */
bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count);

/* How an answer is printed. */
typedef enum cli_manner {
    CLI_PLAIN, /* every token as it is */
    CLI_CHAT,  /* of a chat format: the answer on stdout and kept in g->answer, reasoning on stderr */
    CLI_THINK, /* the same, and the prompt asked for reasoning */
} cli_manner;

/* Generates up to `limit` tokens (negative: until the context is full) after g->tokens, printing text to stdout
 * as it comes. Without a vocabulary ids are printed. Ends at an end token unless `go_on`. Returns an exit code;
 * Ctrl-C ends the answer, not in failure. */
int cli_generate(cli_generation *g, int64_t limit, bool go_on, cli_manner manner);

#endif
