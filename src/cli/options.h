/* Options: a table describes a subcommand's options for parsing and --help. */
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
    CLI_ABOVE,   /* the same, but greater than min */
    CLI_SIZE,    /* uint64_t *out in bytes, at least min: 6G, 512M, 1.5GiB; powers of 1024 */
    CLI_SIZES,   /* cli_sizes *out: sizes separated by commas */
    CLI_PAIRS,   /* const char **out: ID:X pairs, which cli_pairs_next() reads */
    CLI_TEXTS,   /* cli_texts *out; can be given several times */
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
    const char *value; /* name of the value in --help, such as "SIZE"; NULL for flags */
    const char *help;
    void *out;        /* unchanged if the option is not given */
    int64_t min, max; /* for numbers; both 0: no limits; max INT64_MAX: no maximum */
} cli_option;

/* Several tables combined. Commands share options by adding the same tables. */
typedef struct cli_options {
    cli_option item[CLI_OPTIONS_MAX];
    int count;
} cli_options;

void cli_options_add(cli_options *to, const cli_option *table, size_t count);
#define CLI_OPTIONS_ADD(to, table) cli_options_add(to, table, sizeof(table) / sizeof *(table))

/* Adds options of another table by name, "ram ctx batch", in this order; the first of equal names. */
void cli_options_pick(cli_options *to, const cli_options *from, const char *names);

typedef struct cli_usage {
    const char *command;     /* such as "inspect" */
    const char *arguments;   /* such as "MODEL" */
    const char *description; /* one or more sentences */
    const char *examples;    /* lines, each ending in a newline; may be NULL */
    const cli_option *options;
    int option_count;
    int min_arguments, max_arguments;
    bool foreign; /* accepts llama.cpp's options (cli/foreign.h) */
    /* hint for surplus arguments, such as "a prompt goes behind -p"; may be NULL */
    const char *surplus;
} cli_usage;

/* Parses argv (argv[0] is the subcommand's name). Returns -1 to continue; argv + *first are the remaining
   arguments. Otherwise returns the exit code: CLI_OK after printing --help, CLI_USAGE after printing an error
   on stderr. */
int cli_options_parse(const cli_usage *usage, int argc, char **argv, int *first);

/* For /set in a conversation: stores a value of an option. text must live as long as the destination. False
   after printing what is expected. */
bool cli_option_store(const cli_option *option, const char *text);

/* Reads the next pair of "12:1.5,99:-inf" and advances *text; X is a number or an infinity. False at the end,
   or for an invalid pair (then **text is not 0). */
bool cli_pairs_next(const char **text, int32_t *id, float *value);

/* Converts "6G" to bytes. False if it is not a size. */
bool cli_size_parse(const char *text, uint64_t *bytes);

#endif
