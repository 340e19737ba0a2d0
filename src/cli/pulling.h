/* Pulling: fetching a model as people see it: what it is and what it would take, a progress bar, how to go on after a failure. Used by
 * moraine pull, and by every command that is given the name of a model that is not here. */
#ifndef MO_CLI_PULLING_H
#define MO_CLI_PULLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

typedef struct cli_pulling {
    const char *directory; /* NULL: where models are kept */
    const char *mirror;    /* NULL: HF_ENDPOINT of the environment, or the hub */
    const char
        *mmproj; /* the name of one of the repository's encoders, "none", or NULL or "auto": the usual one */
    int64_t connections, timeout_s, tries;
    uint64_t piece;
    bool list;  /* only say what there is */
    bool dry;   /* only say what would be done */
    bool force; /* also what cannot run */
    bool asks;  /* before anything is fetched but the header */
    /* Of the plan that is shown before; NULL: the defaults. */
    const mo_model_options *model;
    const mo_plan_extra *extra;
} cli_pulling;

#define CLI_PULLING_DEFAULT                                                                                  \
    {                                                                                                        \
        .connections = 4, .timeout_s = 30, .tries = 8, .piece = 16 << 20                                     \
    }

/* Fetches what is named, or says what is wrong. The exit code; path: of the model's first file, "" where nothing was fetched. */
int cli_pulling_run(const char *command, const char *name, const cli_pulling *pulling, char *path,
                    size_t size);

/* The header alone of a model of a hub. path: where it is, the model's first file if that has been pulled; shown: its name. *fetched: it is to be
 * removed with cli_pulling_header_remove(). The exit code, after saying what is wrong. */
int cli_pulling_header(const char *command, const char *name, char *path, size_t size, char *shown,
                       size_t shown_size, bool *fetched);
void cli_pulling_header_remove(const char *path);

#endif
