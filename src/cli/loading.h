/* Loading: the options every command that runs a model shares, and opening the model with a progress bar. */
#ifndef MO_CLI_LOADING_H
#define MO_CLI_LOADING_H

#include <moraine.h>

#include "options.h"

typedef struct cli_loading {
    int64_t threads, context, batch;
    const char *isa, *kv;
    bool map;
} cli_loading;

#define CLI_LOADING_DEFAULT                                                                                  \
    {                                                                                                        \
        .kv = "f16"                                                                                          \
    }

/* Entries for a command's option table; l is a cli_loading that outlives it. */
#define CLI_LOADING_OPTIONS(l)                                                                               \
    {"threads",    't', CLI_INTEGER, "N", "one per usable core if not given; no result depends on it",       \
     &(l).threads, 1,   1024},                                                                               \
        {"isa",                                                                                              \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "NAME",                                                                                             \
         "instruction set: auto or one that moraine machine lists; all give the same bits (auto)",           \
         &(l).isa,                                                                                           \
         0,                                                                                                  \
         0},                                                                                                 \
        {"ctx",                                                                                              \
         'c',                                                                                                \
         CLI_INTEGER,                                                                                        \
         "N",                                                                                                \
         "positions a session can hold (what the model was made for, at most 8192)",                         \
         &(l).context,                                                                                       \
         1,                                                                                                  \
         16777216},                                                                                          \
        {"batch",    'b', CLI_INTEGER, "N", "most tokens of a prompt processed together (512)",              \
         &(l).batch, 1,   65536},                                                                            \
        {"kv",                                                                                               \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "FORMAT",                                                                                           \
         "how keys and values are kept: f16, f32 (exact) or q8_0 (half the memory, lossy) (f16)",            \
         &(l).kv,                                                                                            \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "mmap", 0, CLI_FLAG, NULL,                                                                           \
            "map the file instead of reading it: starts at once, reads while computing", &(l).map, 0, 0      \
    }

/* Checks --kv. False after saying what is wrong. */
bool cli_loading_kv(const char *command, const cli_loading *l, mo_kv_type *out);

/* Opens the model with a progress bar. NULL after saying what went wrong, with *code set. */
mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code);

/* Feeds tokens with a progress bar when there are many, until done or Ctrl-C; says what went wrong and
 * returns false. */
bool cli_loading_feed(const char *command, mo_session *session, const int32_t *tokens, int64_t count,
                      bool bar);

/* The whole of a file, or of stdin for "-"; terminated; free() it. NULL after saying what went wrong. */
char *cli_read_file(const char *command, const char *path, size_t *length);

#endif
