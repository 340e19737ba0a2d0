/* Generate: what run and chat share: an answer is generated and printed until it ends. */
#ifndef MO_CLI_GENERATE_H
#define MO_CLI_GENERATE_H

#include <math.h>

#include <moraine_server.h>

#include "base/bytes.h"
#include "cli/constraint.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/print/wrapping.h"

/* Sampling options as people type them. What was not given is as the model's file recommends, else as the help says: NAN, or
 * CLI_SAMPLING_UNSAID. */
typedef struct cli_sampling {
    double temperature, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, last, seed;
    double sigma, typical, xtc, xtc_threshold, dynatemp, dynatemp_exponent, tau, eta, dry, dry_base;
    int64_t mirostat, dry_length, dry_last;
    cli_texts breakers;   /* of DRY */
    const char *samplers; /* their order; NULL: as usual */
    const char *bias;     /* "ID:VALUE,ID:VALUE" */
    bool quiet;           /* a chosen seed is not printed */
} cli_sampling;

enum { CLI_SAMPLING_UNSAID = -1000 };

#define CLI_SAMPLING_DEFAULT                                                                                 \
    {                                                                                                        \
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repeat = NAN, .top_k = CLI_SAMPLING_UNSAID,         \
        .last = CLI_SAMPLING_UNSAID, .seed = -1, .typical = 1, .xtc_threshold = 0.1, .dynatemp_exponent = 1, \
        .tau = 5, .eta = 0.1, .dry_base = 1.75, .dry_length = 2, .dry_last = -1                              \
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

/* How a command answers. */
typedef struct cli_answering {
    const cli_texts *stops;           /* strings that end an answer and are not part of it; NULL: none */
    const cli_constraint *constraint; /* what it must look like; NULL: anything */
    int64_t limit;                    /* most tokens; negative: until the context is full */
    int64_t discover;                 /* tokens of a new text that look for its experts first; 0: none */
    bool go_on;                       /* end tokens do not end it */
    bool
        plain; /* every token as it is; otherwise of a chat format: the answer on stdout, reasoning on stderr */
    bool silent; /* print nothing of the answer */
    bool wraps;  /* on a terminal, lines are broken between words */
} cli_answering;

/* A conversation's tokens with what is needed to go on. */
typedef struct cli_generation {
    const char *command;
    mo_model *model;
    mo_session *session;
    mo_kv_type kv;
    cli_answering how;
    mo_generation *generation;
    uint64_t seed;
    int32_t *tokens;
    int64_t count;
    size_t capacity;
    bool bar; /* the prompt that is computed has a progress bar: */
    cli_progress progress;
    /* For the last answer. */
    int64_t prompt_tokens, answer_tokens;
    double prompt_seconds, answer_seconds;
    cli_finish finish;
    const char *stop; /* the string that ended it; NULL: none did */
    bool thinking;    /* the last text was reasoning */
    cli_wrapping shown, thought;
    mo_bytes answer, reasoning; /* as text */
} cli_generation;

/* Opens a session and a generation on the model; *how is copied, and what it points to stays. The seed is chosen when it is negative, and
 * printed when the choice is random. CLI_OK, or another code after saying what is wrong. */
int cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                        const cli_sampling *s, const cli_answering *how);
void cli_generation_close(cli_generation *g);

/* Other settings and another limit from the next answer on. False after saying what is wrong; then nothing has changed. */
bool cli_generation_change(cli_generation *g, const cli_sampling *s, int64_t limit);

/* Replaces the tokens by ids (which are copied). False when memory is out. */
bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count);

bool cli_generation_add(cli_generation *g, const int32_t *ids, size_t count); /* after those that are there */

/* The pictures of the tokens, in their order, which it keeps. False after saying what is wrong. */
bool cli_generation_images(cli_generation *g, mo_image *const *images, int count);

/* Tokens of the last answer per second. The first belongs to the prompt's time; 0: there are no others. */
double cli_answer_rate(const cli_generation *g);
/* As in "12 tokens, 30.1 tokens/s", in `text` of 64 bytes, which it returns. */
const char *cli_answer_speed(const cli_generation *g, char text[64]);

/* Generates an answer to g->tokens, printing text to stdout as it comes and keeping it in g. Without a vocabulary ids are printed.
 * Returns CLI_OK, or CLI_FAILED after saying why; g->finish says what ended the answer. A signal is no failure. */
int cli_generate(cli_generation *g);

#endif
