/* Generate: the loop that run and chat share: feed, pick, print, until the answer ends. */
#ifndef MO_CLI_GENERATE_H
#define MO_CLI_GENERATE_H

#include <math.h>

#include <moraine_server.h>

#include "base/bytes.h"
#include "cli/options.h"

/* Sampling options as people type them. What was not given is as the model's file recommends, else as the help says: NAN, or
 * CLI_SAMPLING_UNSAID. */
typedef struct cli_sampling {
    double temperature, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, last, seed;
    const char *bias; /* "ID:VALUE,ID:VALUE" */
    bool quiet;       /* a chosen seed is not printed */
} cli_sampling;

enum { CLI_SAMPLING_UNSAID = -1000 };

#define CLI_SAMPLING_DEFAULT                                                                                 \
    {                                                                                                        \
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repeat = NAN, .top_k = CLI_SAMPLING_UNSAID,         \
        .last = CLI_SAMPLING_UNSAID, .seed = -1                                                              \
    }

/* Adds them to a command's table; s outlives it. */
void cli_sampling_options(cli_options *to, cli_sampling *s);

#define CLI_DISCOVER_HELP                                                                                    \
    "with experts on disk: route the first N tokens of a new text without computing them, to prefetch the "  \
    "experts it will probably need; 10 is typical (default: 0)"
#define CLI_STOP_HELP "stop before TEXT; may be repeated; a newline is $'\\n' in bash and zsh"

/* False after saying what is wrong with the texts that were given with --stop. */
bool cli_stop_check(const char *command, const cli_texts *strings);

/* Whether a model that can think does. */
typedef struct cli_thinking {
    bool on, off; /* --think, --no-think; neither: as the model's template does */
} cli_thinking;

#define CLI_THINKING_OPTIONS(t)                                                                              \
    {"think", 0, CLI_FLAG, NULL, "turn thinking on (default: as the chat template decides)", &(t).on, 0, 0}, \
    {                                                                                                        \
        "no-think", 0, CLI_FLAG, NULL, "turn thinking off", &(t).off, 0, 0                                   \
    }

/* False after saying that both were given. */
bool cli_thinking_check(const char *command, const cli_thinking *t);
mo_thinking cli_thinking_of(const cli_thinking *t);

/* Why an answer ended. */
typedef enum cli_finish {
    CLI_FINISH_END,         /* the model ended it */
    CLI_FINISH_STOP,        /* a stop string came */
    CLI_FINISH_LENGTH,      /* as many tokens as were wanted */
    CLI_FINISH_CONTEXT,     /* the context is full */
    CLI_FINISH_INTERRUPTED, /* Ctrl-C or SIGTERM */
    CLI_FINISH_FAILED,
} cli_finish;

/* "end", "stop", "length", "context", "interrupted" or "failed". */
const char *cli_finish_text(cli_finish finish);

/* A conversation's tokens with what is needed to go on. */
typedef struct cli_generation {
    const char *command;
    mo_model *model;
    mo_session *session;
    mo_kv_type kv;
    mo_sampler *sampler;
    uint64_t seed;
    int32_t *tokens;
    int64_t count;
    size_t capacity;
    int32_t next;              /* the token that follows, if the last feed picked it; otherwise negative */
    int64_t discover;          /* tokens of a new text that look for its experts first; 0: none */
    const cli_texts *stops;    /* strings that end an answer and are not part of it; NULL: none */
    bool silent;               /* print nothing of the answer */
    mo_constraint *constraint; /* what the answer must look like; NULL: anything. The caller's */
    /* For the last answer. */
    int64_t prompt_tokens, answer_tokens;
    double prompt_seconds, answer_seconds;
    cli_finish finish;
    const char *stop;           /* the string that ended it; NULL: none did */
    mo_bytes answer, reasoning; /* as text */
} cli_generation;

/* Opens a session and a sampler on the model. Tokens the vocabulary suppresses are never picked, unless the
 * user has given a bias for them. The seed is chosen when it is negative, and printed when the choice is random.
 * False after saying what is wrong. */
bool cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                         const cli_sampling *s);
void cli_generation_close(cli_generation *g);

/* Replaces the tokens by ids (which are copied). False when memory is out. */
bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count);

bool cli_generation_add(cli_generation *g, const int32_t *ids, size_t count); /* after those that are there */

/* The token that follows these, which the session holds. Negative after saying that none is allowed. */
int32_t cli_pick(const cli_generation *g, const int32_t *tokens, int64_t count);

/* How an answer is printed. */
typedef enum cli_manner {
    CLI_PLAIN, /* every token as it is */
    CLI_CHAT,  /* of a chat format: the answer on stdout, reasoning on stderr */
} cli_manner;

/* Generates up to `limit` tokens (negative: until the context is full) after g->tokens, printing text to stdout
 * as it comes and keeping it in g. Without a vocabulary ids are printed. Ends at an end token unless `go_on`. Returns
 * CLI_OK, or CLI_FAILED after saying why; g->finish says what ended the answer. A signal is no failure. */
int cli_generate(cli_generation *g, int64_t limit, bool go_on, cli_manner manner);

#endif
