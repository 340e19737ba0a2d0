/* Generate: shared by run and chat: generates an answer and prints it. */
#ifndef MO_CLI_GENERATE_H
#define MO_CLI_GENERATE_H

#include <math.h>

#include <moraine_server.h>

#include "base/bytes.h"
#include "cli/constraint.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/print/wrapping.h"

/* Sampling options as given by the user. Options not given (NAN or CLI_SAMPLING_UNSAID) follow the model's
   file, or the defaults in the help. */
typedef struct cli_sampling {
    double temperature, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, last, seed;
    double sigma, typical, xtc, xtc_threshold, dynatemp, dynatemp_exponent, tau, eta, dry, dry_base;
    int64_t mirostat, dry_length, dry_last;
    cli_texts breakers;   /* for DRY */
    const char *samplers; /* their order; NULL: default */
    const char *bias;     /* "ID:VALUE,ID:VALUE" */
    bool quiet;           /* do not print a chosen seed */
} cli_sampling;

enum { CLI_SAMPLING_UNSAID = -1000 };

#define CLI_SAMPLING_DEFAULT                                                                                 \
    {                                                                                                        \
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repeat = NAN, .top_k = CLI_SAMPLING_UNSAID,         \
        .last = CLI_SAMPLING_UNSAID, .seed = -1, .typical = 1, .xtc_threshold = 0.1, .dynatemp_exponent = 1, \
        .tau = 5, .eta = 0.1, .dry_base = 1.75, .dry_length = 2, .dry_last = -1                              \
    }

/* Adds these options to a command's table; s must outlive it. */
void cli_sampling_options(cli_options *to, cli_sampling *s);

#define CLI_DISCOVER_HELP                                                                                    \
    "with experts on disk: route the first N tokens of a new text without computing them, to prefetch the "  \
    "experts it will probably need; 10 is typical (default: 0)"
#define CLI_STOP_HELP "stop before TEXT; may be repeated; a newline is $'\\n' in bash and zsh"

/* Checks the texts of --stop. False after printing the error. */
bool cli_stop_check(const char *command, const cli_texts *strings);

/* Whether a model reasons. */
typedef struct cli_thinking {
    bool on, off; /* --think, --no-think; neither: the template's default */
} cli_thinking;

#define CLI_THINKING_OPTIONS(t)                                                                              \
    {"think", 0, CLI_FLAG, NULL, "turn thinking on (default: as the chat template decides)", &(t).on, 0, 0}, \
    {                                                                                                        \
        "no-think", 0, CLI_FLAG, NULL, "turn thinking off", &(t).off, 0, 0                                   \
    }

/* False after printing that both were given. */
bool cli_thinking_check(const char *command, const cli_thinking *t);
mo_thinking cli_thinking_of(const cli_thinking *t);

/* Why an answer ended. */
typedef enum cli_finish {
    CLI_FINISH_END,         /* the model ended it */
    CLI_FINISH_STOP,        /* a stop string */
    CLI_FINISH_LENGTH,      /* the limit of tokens */
    CLI_FINISH_CONTEXT,     /* the context is full */
    CLI_FINISH_INTERRUPTED, /* Ctrl-C or SIGTERM */
    CLI_FINISH_FAILED,
} cli_finish;

/* "end", "stop", "length", "context", "interrupted" or "failed". */
const char *cli_finish_text(cli_finish finish);

/* Settings of answers. */
typedef struct cli_answering {
    const cli_texts *stops;           /* strings that end an answer and are not part of it; NULL: none */
    const cli_constraint *constraint; /* required form; NULL: none */
    int64_t limit;                    /* maximum tokens; negative: until the context is full */
    int64_t discover;                 /* number of tokens of a new text used to find its experts; 0: none */
    bool go_on;                       /* continue after end tokens */
    /* print tokens unchanged; otherwise the answer on stdout, reasoning on stderr */
    bool plain;
    bool silent; /* print nothing of the answer */
    bool wraps;  /* break lines between words on a terminal */
} cli_answering;

/* The tokens of a conversation, and the objects that continue it. */
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
    bool bar; /* show a progress bar while the prompt is computed: */
    cli_progress progress;
    /* Results of the last answer. */
    int64_t prompt_tokens, answer_tokens;
    double prompt_seconds, answer_seconds;
    cli_finish finish;
    const char *stop; /* the stop string; NULL: none */
    bool thinking;    /* the last text was reasoning */
    cli_wrapping shown, thought;
    mo_bytes answer, reasoning; /* as text */
} cli_generation;

/* Opens a session and a generation; *how is copied, not what it points to. A negative seed is replaced by a
   random one, which is printed if sampling is random. CLI_OK, or another code after printing the error. */
int cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                        const cli_sampling *s, const cli_answering *how);
void cli_generation_close(cli_generation *g);

/* Changes settings and limit from the next answer on. False, unchanged, after printing the error. */
bool cli_generation_change(cli_generation *g, const cli_sampling *s, int64_t limit);

/* Replaces the tokens by a copy of ids. False when out of memory. */
bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count);

bool cli_generation_add(cli_generation *g, const int32_t *ids, size_t count); /* appends ids */

/* Sets the pictures of the tokens, in order; they stay referenced. False after printing the error. */
bool cli_generation_images(cli_generation *g, mo_image *const *images, int count);

/* Tokens per second of the last answer. The first token belongs to the prompt's time; 0: no others. */
double cli_answer_rate(const cli_generation *g);
/* Writes "12 tokens, 30.1 tokens/s" to `text` of 64 bytes and returns it. */
const char *cli_answer_speed(const cli_generation *g, char text[64]);

/* Generates an answer to g->tokens, prints its text on stdout and stores it in g. Without a vocabulary prints
   ids. Returns CLI_OK, or CLI_FAILED after printing the error; g->finish says why the answer ended. A signal
   is not a failure. */
int cli_generate(cli_generation *g);

#endif
