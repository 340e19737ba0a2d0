/* Loading: the options every command that runs a model shares, and opening the model with a progress bar. */
#ifndef MO_CLI_LOADING_H
#define MO_CLI_LOADING_H

#include <moraine_server.h>

#include "cli/options.h"

typedef struct cli_loading {
    mo_model_options model; /* options store here what needs no check; cli_loading_set() adds the others: */
    const char *kv, *predict, *io, *speculate, *postfetch, *postfetch_enable, *prompt_precision,
        *divide; /* words; NULL: not given */
    cli_sizes vram;
    int64_t vram_each[MO_DEVICES_MAX]; /* of several devices; the model's options refer to it */
    cli_texts lora, lora_scaled;
    const char *mmproj;  /* a file, "auto" or "none"; NULL: not given (images.h) */
    bool no_mmproj;      /* the same as "none" */
    double rank_timeout; /* seconds; 0: not given */
    bool streaming;      /* the switch of three tiers, which is only reported */
    /* What the command says of itself. */
    bool own_context;     /* `context` is the command's choice, not the user's */
    bool measures;        /* all of it, and no more */
    bool vocabulary;      /* it needs one */
    bool discovers;       /* it reads experts ahead of a text */
    mo_thinking thinking; /* what was asked for */
    const char *bias;     /* pairs of tokens, which must be in its vocabulary, and numbers; NULL: none */
} cli_loading;

cli_loading cli_loading_default(void);

/* Adds the options of loading to a command's table; l outlives it. */
void cli_loading_options(cli_options *to, cli_loading *l);
void cli_learning_options(cli_options *to, cli_loading *l);    /* those of profiles and the hot cache */
void cli_speculation_options(cli_options *to, cli_loading *l); /* of commands that write answers */

const char *cli_kv_name(mo_kv_type kv); /* as --kv has it */

/* Checks the options and completes l->model, once. False after saying what is wrong. */
bool cli_loading_set(const char *command, cli_loading *l);

/* Opens the model with a progress bar, after cli_check_model(). NULL after saying what went wrong, with *code set. The options
 * are set. */
mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code);

/* The same without the check. */
mo_model *cli_loading_load(const char *command, const char *path, const cli_loading *l, int *code);

#endif
