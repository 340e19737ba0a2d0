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
     "hot cache of the experts this profile prefers, on the GPU or in RAM; replaces --policy",               \
     &(h).file,                                                                                              \
     0,                                                                                                      \
     0},                                                                                                     \
        {"moe-hot-cache-max-mib",                                                                            \
         0,                                                                                                  \
         CLI_INTEGER,                                                                                        \
         "N",                                                                                                \
         "size of the hot cache, on the GPU or in RAM; -1: all free memory; 0: off (default: 0)",            \
         &(h).max_mib,                                                                                       \
         -1,                                                                                                 \
         INT64_MAX >> 20},                                                                                   \
        {"moe-hot-cache-auto-reserve-mib",                                                                   \
         0,                                                                                                  \
         CLI_INTEGER,                                                                                        \
         "N",                                                                                                \
         "memory that size -1 leaves free (default: 1024)",                                                  \
         &(h).auto_reserve_mib,                                                                              \
         0,                                                                                                  \
         INT64_MAX >> 20},                                                                                   \
        {"moe-hot-cache-update-rate",                                                                        \
         0,                                                                                                  \
         CLI_REAL,                                                                                           \
         "X",                                                                                                \
         "share of the hot cache that an update may exchange, 0 to 1 (default: 0, static)",                  \
         &(h).update_rate,                                                                                   \
         0,                                                                                                  \
         1},                                                                                                 \
        {"moe-hot-cache-weighting",                                                                          \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "NAME",                                                                                             \
         "hot cache weighting: flat, balanced, pressure, smooth or time (default: flat)",                    \
         &(h).weighting,                                                                                     \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "moe-hot-cache-layer-curve", 0, CLI_REAL, "X",                                                       \
            "variation between layers for pressure, smooth and time, 0 to 1 (default: 0.5)",                 \
            &(h).layer_curve, 0, 1                                                                           \
    }

/* Entries for a command's option table; l is a cli_learning that outlives it. */
#define CLI_LEARNING_OPTIONS(l)                                                                              \
    {"profile",                                                                                              \
     0,                                                                                                      \
     CLI_TEXT,                                                                                               \
     "off|FILE",                                                                                             \
     "file for expert usage statistics, which warm the cache in later runs; off: "                           \
     "neither read nor written (default: a file per model in the user's cache directory)",                   \
     &(l).options.profile,                                                                                   \
     0,                                                                                                      \
     0},                                                                                                     \
        {"warm-file",                                                                                        \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "FILE",                                                                                             \
         "save the experts in RAM to FILE and load them at the next start",                                  \
         &(l).options.warm_file,                                                                             \
         0,                                                                                                  \
         0},                                                                                                 \
        CLI_HOT_CACHE_OPTIONS((l).options.hot_cache),                                                        \
        {"moe-layer-perf-out",                                                                               \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "FILE",                                                                                             \
         "write the expert usage of this run as JSON, after each answer and at exit",                        \
         &(l).options.perf_out,                                                                              \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "cpu-moe", 0, CLI_FLAG, NULL,                                                                        \
            "keep experts out of GPU memory, except "                                                        \
            "for the hot cache; no effect without a GPU",                                                    \
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
