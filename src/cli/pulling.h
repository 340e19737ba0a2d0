/* Pulling: downloads a model interactively: description and needs, a progress bar, and how to resume after a
   failure. Used by moraine pull, and by all commands given the name of a missing model. */
#ifndef MO_CLI_PULLING_H
#define MO_CLI_PULLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

typedef struct cli_pulling {
    const char *directory; /* NULL: the default directory */
    const char *mirror;    /* NULL: HF_ENDPOINT from the environment, or the default hub */
    /* an encoder of the repository, "none", or NULL or "auto": the default one */
    const char *mmproj;
    int64_t connections, timeout_s, tries;
    uint64_t piece;
    bool list;  /* only list the models */
    bool dry;   /* only print what would be done */
    bool force; /* also download models that cannot run here */
    bool asks;  /* ask before downloading more than the header */
    /* for the printed plan; NULL: defaults */
    const mo_model_options *model;
    const mo_plan_extra *extra;
} cli_pulling;

#define CLI_PULLING_DEFAULT                                                                                  \
    {                                                                                                        \
        .connections = 4, .timeout_s = 30, .tries = 8, .piece = 16 << 20                                     \
    }

/* Downloads the model, or prints the error. Returns the exit code; path: of the model's first file, "" if
   nothing was downloaded. */
int cli_pulling_run(const char *command, const char *name, const cli_pulling *pulling, char *path,
                    size_t size);

/* Downloads only a model's header. path: its path, or the model's first file if the model was pulled; shown:
   its name. *fetched: remove it with cli_pulling_header_remove(). Returns the exit code, after printing any
   error. */
int cli_pulling_header(const char *command, const char *name, char *path, size_t size, char *shown,
                       size_t shown_size, bool *fetched);
void cli_pulling_header_remove(const char *path);

#endif
