/* Loading: the options every command that runs a model shares, and opening the model with a progress bar. */
#ifndef MO_CLI_LOADING_H
#define MO_CLI_LOADING_H

#include <moraine.h>

#include "cli/adapters.h"
#include "cli/learning.h"
#include "cli/options.h"

typedef struct cli_loading {
    int64_t threads, context, batch;
    int64_t sessions; /* that the command holds at once; 0: 1 */
    const char *isa, *kv;
    bool map;
    bool all_logits;      /* the command will ask for the logits of every position */
    bool own_context;     /* `context` is the command's choice, not the user's */
    bool measures;        /* all of it, and no more */
    bool vocabulary;      /* it needs one */
    mo_thinking thinking; /* what was asked for */
    const char *bias;     /* pairs of tokens, which must be in its vocabulary, and numbers; NULL: none */
    bool discovers;       /* it reads experts ahead of a text */
    uint64_t ram;
    const char *policy, *predict, *io; /* predict NULL: on */
    int64_t readers;
    bool skip_missing;
    bool streaming; /* the switch of three tiers, which is only reported */
    const char *device, *postfetch, *prompt_precision;
    const char *divide;  /* NULL: auto */
    double rank_timeout; /* seconds; 0: not given */
    cli_sizes vram;
    cli_adapters adapters;
    cli_learning learning;
} cli_loading;

#define CLI_LOADING_DEFAULT                                                                                  \
    {                                                                                                        \
        .kv = "i16", .io = "auto", .device = "auto", .prompt_precision = "exact",                            \
        .learning = CLI_LEARNING_DEFAULT                                                                     \
    }

/* Those about a device, which moraine plan has as well. */
#define CLI_DEVICE_OPTIONS(l)                                                                                \
    {"device",                                                                                               \
     0,                                                                                                      \
     CLI_TEXT,                                                                                               \
     "NAME",                                                                                                 \
     "device to use besides the CPU: none, cuda, auto (all usable GPUs that help) or "                       \
     "sim (simulated by threads, for tests); cuda:1 is the second GPU, and a "                               \
     "comma-separated list splits the layers; results do not depend on it (default: auto)",                  \
     &(l).device,                                                                                            \
     0,                                                                                                      \
     0},                                                                                                     \
        {"vram",                                                                                             \
         0,                                                                                                  \
         CLI_SIZES,                                                                                          \
         "SIZE",                                                                                             \
         "GPU memory limit, such as 6G; for several GPUs one each, as "                                      \
         "in 8G,20G, or one for all (default: free memory less 256 MiB)",                                    \
         &(l).vram,                                                                                          \
         0,                                                                                                  \
         0},                                                                                                 \
        {"postfetch",                                                                                        \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "MODE",                                                                                             \
         "what to copy to the GPU while the CPU computes experts from RAM: down, expert, "                   \
         "off or auto (by measured rates); overrides LLAMA_POSTFETCH_ENABLE (default: auto)",                \
         &(l).postfetch,                                                                                     \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "prompt-precision", 0, CLI_TEXT, "exact|bf16",                                                       \
            "GPU precision for large parts of a prompt: exact, or bf16, which is LOSSY and faster, "         \
            "in steps of more than LLAMA_FP4_PREFILL_M tokens, 256 if unset (default: exact)",               \
            &(l).prompt_precision, 0, 0                                                                      \
    }

/* Entries for a command's option table; l is a cli_loading that outlives it. CLI_LEARNING_OPTIONS(l.learning) has
 * more. */
#define CLI_LOADING_OPTIONS(l)                                                                                 \
    {"threads",                                                                                                \
     't',                                                                                                      \
     CLI_INTEGER,                                                                                              \
     "N",                                                                                                      \
     "number of threads; results do not depend on it (default: one per usable core)",                          \
     &(l).threads,                                                                                             \
     1,                                                                                                        \
     1024},                                                                                                    \
        {"isa",                                                                                                \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "NAME",                                                                                               \
         "instruction set: auto or one listed by moraine machine; results are bit-identical (default: "        \
         "auto)",                                                                                              \
         &(l).isa,                                                                                             \
         0,                                                                                                    \
         0},                                                                                                   \
        {"ctx",                                                                                                \
         'c',                                                                                                  \
         CLI_INTEGER,                                                                                          \
         "N",                                                                                                  \
         "context size in tokens (default: the model's training context, at most 8192)",                       \
         &(l).context,                                                                                         \
         1,                                                                                                    \
         16777216},                                                                                            \
        {"batch",    'b', CLI_INTEGER, "N", "maximum prompt tokens per step (default: chosen by the plan)",    \
         &(l).batch, 1,   65536},                                                                              \
        {"kv",                                                                                                 \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "FORMAT",                                                                                             \
         "KV cache format: i16 (nearly exact), f32 (exact, "                                                   \
         "slow) or q8_0 (half the memory, lossy) (default: i16)",                                              \
         &(l).kv,                                                                                              \
         0,                                                                                                    \
         0},                                                                                                   \
        {"mmap",                                                                                               \
         0,                                                                                                    \
         CLI_FLAG,                                                                                             \
         NULL,                                                                                                 \
         "map the file instead of reading it: starts at once, reads while computing",                          \
         &(l).map,                                                                                             \
         0,                                                                                                    \
         0},                                                                                                   \
        {"ram",                                                                                                \
         0,                                                                                                    \
         CLI_SIZE,                                                                                             \
         "SIZE",                                                                                               \
         "RAM limit of this program, such as 12G; the rest is read from disk on "                              \
         "demand, with identical results (default: available memory less a reserve)",                          \
         &(l).ram,                                                                                             \
         1,                                                                                                    \
         0},                                                                                                   \
        {"policy",                                                                                             \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "NAME",                                                                                               \
         "which experts stay in RAM: auto, lru, lfu or priority (default: auto)",                              \
         &(l).policy,                                                                                          \
         0,                                                                                                    \
         0},                                                                                                   \
        {"predict",                                                                                            \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "on|off",                                                                                             \
         "prefetch what the next layer will probably need while the disk is idle (default: on)",               \
         &(l).predict,                                                                                         \
         0,                                                                                                    \
         0},                                                                                                   \
        {"readers", 0, CLI_INTEGER, "N", "concurrent disk reads (default: as measured)", &(l).readers, 1, 64}, \
        {"io",                                                                                                 \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "direct|cached|auto",                                                                                 \
         "bypass the page cache, use it, or decide by measurement (default: auto)",                            \
         &(l).io,                                                                                              \
         0,                                                                                                    \
         0},                                                                                                   \
        {"skip-missing",                                                                                       \
         0,                                                                                                    \
         CLI_FLAG,                                                                                             \
         NULL,                                                                                                 \
         "LOSSY: skip experts that are not in RAM instead of waiting for them",                                \
         &(l).skip_missing,                                                                                    \
         0,                                                                                                    \
         0},                                                                                                   \
        {"streaming", 0, CLI_FLAG, NULL, "accepted for compatibility; has no effect", &(l).streaming, 0, 0},   \
        {"divide",                                                                                             \
         0,                                                                                                    \
         CLI_TEXT,                                                                                             \
         "layers|experts|auto",                                                                                \
         "under mpirun: split the model by layers or by experts (default: auto)",                              \
         &(l).divide,                                                                                          \
         0,                                                                                                    \
         0},                                                                                                   \
        {"rank-timeout",                                                                                       \
         0,                                                                                                    \
         CLI_ABOVE,                                                                                            \
         "SECONDS",                                                                                            \
         "under mpirun: end the run when a rank is silent for this long, 0.1 to 3600 (default: 10)",           \
         &(l).rank_timeout,                                                                                    \
         0,                                                                                                    \
         3600},                                                                                                \
        CLI_ADAPTER_OPTIONS((l).adapters), CLI_DEVICE_OPTIONS(l)

/* Checks --kv. False after saying what is wrong. */
bool cli_loading_kv(const char *command, const cli_loading *l, mo_kv_type *out);
const char *cli_kv_name(mo_kv_type kv); /* as --kv has it */

bool cli_loading_precision(const char *command, const cli_loading *l, mo_precision *out); /* likewise */

/* Checks --device, --vram and --postfetch and translates them; *vram_bytes and vram_each[MO_DEVICES_MAX] are 0
 * where none was given. False after saying what is wrong. */
bool cli_loading_device(const char *command, const cli_loading *l, const char **device, int64_t *vram_bytes,
                        int64_t *vram_each, mo_postfetch_mode *postfetch);

/* Checks the options and puts them where they belong. False after saying what is wrong. */
bool cli_loading_set(const char *command, const cli_loading *l, mo_model_options *out);

/* Opens the model with a progress bar, after cli_check_model(). NULL after saying what went wrong, with *code set. */
mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code);

/* The same in two parts, for what is worth knowing before something else is waited for: all that can be checked without
 * loading, as an exit code, and the loading. */
int cli_loading_check(const char *command, const char *path, const cli_loading *l);
mo_model *cli_loading_load(const char *command, const char *path, const cli_loading *l, int *code);

#endif
