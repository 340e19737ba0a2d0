/* Learning: the options about profiles and the hot cache that commands share, and what they tell when a
 * request is done. */
#ifndef MO_CLI_LEARNING_H
#define MO_CLI_LEARNING_H

#include <moraine.h>

#include "cli/options.h"

typedef struct cli_learning {
    mo_learning_options options;
    bool cpu_moe;
} cli_learning;

#define CLI_LEARNING_DEFAULT                                                                                 \
    {                                                                                                        \
        .options = {.hot_cache = {.auto_reserve_mib = 1024, .layer_curve = 0.5} }                            \
    }

/* The hot cache; h is a mo_hot_cache_options that outlives them. */
#define CLI_HOT_CACHE_OPTIONS(h)                                                                             \
    {"moe-hot-cache",                                                                                        \
     0,                                                                                                      \
     CLI_TEXT,                                                                                               \
     "FILE",                                                                                                 \
     "a cache of the experts that this profile prefers, instead of --policy: of the device, or in RAM",      \
     &(h).file,                                                                                              \
     0,                                                                                                      \
     0},                                                                                                     \
        {"moe-hot-cache-max-mib",                                                                            \
         0,                                                                                                  \
         CLI_INTEGER,                                                                                        \
         "N",                                                                                                \
         "its size, on the device or in RAM; -1: what is free; 0: off (0)",                                  \
         &(h).max_mib,                                                                                       \
         -1,                                                                                                 \
         INT64_MAX >> 20},                                                                                   \
        {"moe-hot-cache-auto-reserve-mib",                                                                   \
         0,                                                                                                  \
         CLI_INTEGER,                                                                                        \
         "N",                                                                                                \
         "what a size of -1 leaves free (1024)",                                                             \
         &(h).auto_reserve_mib,                                                                              \
         0,                                                                                                  \
         INT64_MAX >> 20},                                                                                   \
        {"moe-hot-cache-update-rate",                                                                        \
         0,                                                                                                  \
         CLI_REAL,                                                                                           \
         "X",                                                                                                \
         "share of it that an update may exchange, 0 to 1 (0: it stays as it is)",                           \
         &(h).update_rate,                                                                                   \
         0,                                                                                                  \
         1},                                                                                                 \
        {"moe-hot-cache-weighting",                                                                          \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "NAME",                                                                                             \
         "how it is chosen: flat, balanced, pressure, smooth or time (flat)",                                \
         &(h).weighting,                                                                                     \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "moe-hot-cache-layer-curve", 0, CLI_REAL, "X",                                                       \
            "how much layers differ in pressure, smooth and time, 0 to 1 (0.5)", &(h).layer_curve, 0, 1      \
    }

/* Entries for a command's option table; l is a cli_learning that outlives it. */
#define CLI_LEARNING_OPTIONS(l)                                                                              \
    {"profile",                                                                                              \
     0,                                                                                                      \
     CLI_TEXT,                                                                                               \
     "off|FILE",                                                                                             \
     "where the use of experts is kept from run to run, to warm the cache; off: neither read nor written "   \
     "(a file of the model's in the user's cache directory)",                                                \
     &(l).options.profile,                                                                                   \
     0,                                                                                                      \
     0},                                                                                                     \
        {"warm-file",                                                                                        \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "FILE",                                                                                             \
         "keep a copy of the experts in RAM here, and begin with it next time",                              \
         &(l).options.warm_file,                                                                             \
         0,                                                                                                  \
         0},                                                                                                 \
        CLI_HOT_CACHE_OPTIONS((l).options.hot_cache),                                                        \
        {"moe-layer-perf-out",                                                                               \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "FILE",                                                                                             \
         "write the use of experts in this run as JSON, after each answer and at the end",                   \
         &(l).options.perf_out,                                                                              \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "cpu-moe", 0, CLI_FLAG, NULL,                                                                        \
            "experts stay out of the device's memory, but for the hot cache; without a device they do "      \
            "anyway",                                                                                        \
            &(l).cpu_moe, 0, 0                                                                               \
    }

/* Puts the options where they belong; the environment may name the mode of counting. */
void cli_learning_set(const cli_learning *l, mo_model_options *out);

/* A request is done: updates. What goes wrong is said, once; results are printed all the same, and the program fails at its
 * end. */
void cli_learning_done(const char *command, mo_model *model);

/* The exit code of the program: a success that left something unlearned or unwritten is none. */
int cli_learning_code(int code);

#endif
