/* Options: one table describes a subcommand's options; parsing and --help both follow it. */
#ifndef MO_CLI_OPTIONS_H
#define MO_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/print/exit_code.h"
#include "moraine_server.h"

typedef enum cli_kind {
    CLI_FLAG,    /* bool *out = true */
    CLI_TEXT,    /* const char **out; points into argv */
    CLI_INTEGER, /* int64_t *out, within min .. max */
    CLI_INT,     /* the same, in an int */
    CLI_REAL,    /* double *out, within min .. max */
    CLI_ABOVE,   /* the same, but above min */
    CLI_SIZE,    /* uint64_t *out in bytes, at least min: 6G, 512M, 1.5GiB; powers of 1024 */
    CLI_SIZES,   /* cli_sizes *out: such sizes, with commas between */
    CLI_PAIRS,   /* const char **out: ID:X pairs, which cli_pairs_next() reads */
    CLI_TEXTS,   /* cli_texts *out; the option may be given several times */
} cli_kind;

enum { CLI_TEXTS_MAX = 16, CLI_SIZES_MAX = MO_DEVICES_MAX, CLI_OPTIONS_MAX = 126 };

typedef struct cli_sizes {
    uint64_t item[CLI_SIZES_MAX];
    int count; /* 0: not given */
} cli_sizes;

typedef struct cli_texts {
    const char *item[CLI_TEXTS_MAX]; /* point into argv */
    int count;
} cli_texts;

typedef struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* short form, or 0 */
    cli_kind kind;
    const char *value; /* what --help calls the argument, such as "SIZE"; NULL for flags */
    const char *help;
    void *out;        /* keeps its value, the default, when the option is not given */
    int64_t min, max; /* of numbers; both 0: any; a max of INT64_MAX: none */
} cli_option;

/* A table made of several. Commands share options by adding the same tables. */
typedef struct cli_options {
    cli_option item[CLI_OPTIONS_MAX];
    int count;
} cli_options;

void cli_options_add(cli_options *to, const cli_option *table, size_t count);
#define CLI_OPTIONS_ADD(to, table) cli_options_add(to, table, sizeof(table) / sizeof *(table))

/* Adds those options of another table, "ram ctx batch", in this order; of two with one name the first. */
void cli_options_pick(cli_options *to, const cli_options *from, const char *names);

typedef struct cli_usage {
    const char *command;     /* such as "inspect" */
    const char *arguments;   /* such as "MODEL" */
    const char *description; /* one or more sentences */
    const char *examples;    /* lines, each ending in a newline; may be NULL */
    const cli_option *options;
    int option_count;
    int min_arguments, max_arguments;
    bool foreign; /* words of llama.cpp are understood (cli/foreign.h) */
    const char *
        surplus; /* what an argument too many was probably meant as, such as "a prompt goes behind -p"; may be NULL */
} cli_usage;

/* Reads argv (argv[0] is the subcommand's name). Returns -1 to go on, with argv + *first the arguments
 * left over; otherwise the exit code: CLI_OK after printing --help, CLI_USAGE after saying on stderr what
 * is wrong. */
int cli_options_parse(const cli_usage *usage, int argc, char **argv, int *first);

/* For /set in a conversation: stores a value as if it had been given to the option; text lives as long as what it is stored in. False after saying
 * what is expected. */
bool cli_option_store(const cli_option *option, const char *text);

/* Takes the next pair of "12:1.5,99:-inf" and moves *text behind it; X is a number or an infinity. False at the end, and
 * where it is none (then **text is not 0). */
bool cli_pairs_next(const char **text, int32_t *id, float *value);

/* "6G" to bytes. False when it is no size. */
bool cli_size_parse(const char *text, uint64_t *bytes);

#endif
