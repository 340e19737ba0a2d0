/* Loading: the options shared by all commands that run a model, and opening it with a progress bar. */
#ifndef MO_CLI_LOADING_H
#define MO_CLI_LOADING_H

#include <moraine_server.h>

#include "cli/options.h"

typedef struct cli_loading {
    /* options that need no check are stored here directly; cli_loading_set() adds the others: */
    mo_model_options model;
    const char *kv, *predict, *io, *speculate, *postfetch, *postfetch_enable, *prompt_precision,
        *divide; /* words of options; NULL: not given */
    cli_sizes vram;
    int64_t vram_each[MO_DEVICES_MAX]; /* for several devices; the model's options point to it */
    cli_texts lora, lora_scaled;
    const char *mmproj;  /* a file, "auto" or "none"; NULL: not given (images.h) */
    bool no_mmproj;      /* the same as "none" */
    double rank_timeout; /* seconds; 0: not given */
    bool streaming;      /* the option of three tiers, which has no effect */
    /* Set by the command: */
    bool own_context;     /* `context` is the command's choice, not the user's */
    bool measures;        /* uses exactly this context */
    bool vocabulary;      /* needs a vocabulary */
    bool discovers;       /* finds experts before a text */
    mo_thinking thinking; /* as requested */
    const char *bias;     /* pairs of numbers and tokens, which must be in the vocabulary; NULL: none */
} cli_loading;

cli_loading cli_loading_default(void);

/* Adds these options to a command's table; l must outlive it. */
void cli_loading_options(cli_options *to, cli_loading *l);
void cli_learning_options(cli_options *to, cli_loading *l);    /* options of profiles and the hot cache */
void cli_speculation_options(cli_options *to, cli_loading *l); /* for commands that generate answers */

const char *cli_kv_name(mo_kv_type kv); /* the value of --kv */

/* Checks the options and completes l->model, once. False after printing the error. */
bool cli_loading_set(const char *command, cli_loading *l);

/* Opens the model with a progress bar, after cli_loading_set() and cli_check_model(). NULL after printing the
   error, with *code set. */
mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code);

/* The same without cli_check_model(). */
mo_model *cli_loading_load(const char *command, const char *path, const cli_loading *l, int *code);

#endif
