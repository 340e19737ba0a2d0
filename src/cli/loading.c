#include "cli/loading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/adapters.h"
#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/idle.h"
#include "cli/messages.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

/* ---- Options ---- */

cli_loading cli_loading_default(void)
{
    cli_loading l = {.model = mo_model_options_default()};
    l.model.device = "auto";
    l.model.learning.profile = "auto";
    l.model.environment = true;
    return l;
}

void cli_loading_options(cli_options *to, cli_loading *l)
{
    mo_model_options *m = &l->model;
    const cli_option table[] = {
        {"threads", 't', CLI_INT, "N",
         "number of threads; results do not depend on it (default: one per usable core)", &m->threads, 1,
         1024},
        {"isa", 0, CLI_TEXT, "NAME",
         "instruction set: auto or one listed by moraine machine; results are bit-identical (default: auto)",
         &m->isa, 0, 0},
        {"ctx", 'c', CLI_INTEGER, "N",
         "context size in tokens (default: the model's training context, at most 8192)", &m->context, 1,
         16777216},
        {"batch", 'b', CLI_INTEGER, "N", "maximum prompt tokens per step (default: chosen by the plan)",
         &m->batch, 1, 65536},
        {"kv", 0, CLI_TEXT, "FORMAT",
         "KV cache format: i16 (nearly exact), f32 (exact, "
         "slow) or q8_0 (half the memory, lossy) (default: i16)",
         &l->kv, 0, 0},
        {"mmap", 0, CLI_FLAG, NULL,
         "map the file instead of reading it: starts at once, reads while computing", &m->map, 0, 0},
        {"ram", 0, CLI_SIZE, "SIZE",
         "RAM limit of this program, such as 12G; the rest is read from disk on "
         "demand, with identical results (default: available memory less a reserve)",
         &m->ram_bytes, 1, 0},
        {"policy", 0, CLI_TEXT, "NAME",
         "which experts stay in RAM: auto, lru, lfu or priority (default: auto)", &m->policy, 0, 0},
        {"predict", 0, CLI_TEXT, "on|off",
         "prefetch what the next layer will probably need while the disk is idle (default: on)", &l->predict,
         0, 0},
        {"readers", 0, CLI_INT, "N", "concurrent disk reads (default: as measured)", &m->readers, 1, 64},
        {"io", 0, CLI_TEXT, "direct|cached|auto",
         "bypass the page cache, use it, or decide by measurement (default: auto)", &l->io, 0, 0},
        {"skip-missing", 0, CLI_FLAG, NULL,
         "LOSSY: skip experts that are not in RAM or VRAM instead of waiting for them", &m->skip_missing, 0,
         0},
        {"streaming", 0, CLI_FLAG, NULL, "accepted for compatibility; has no effect", &l->streaming, 0, 0},
        {"divide", 0, CLI_TEXT, "layers|experts|auto",
         "under mpirun: split the model by layers or by experts (default: auto)", &l->divide, 0, 0},
        {"rank-timeout", 0, CLI_ABOVE, "SECONDS",
         "under mpirun: end the run when a rank is silent for this long, 0.1 to 3600 (default: 10)",
         &l->rank_timeout, 0, 3600},
        {"lora", 0, CLI_TEXTS, "FILE[:SCALE]",
         "LoRA adapter (GGUF) and its scale (default: 1); may be repeated or comma-separated", &l->lora, 0,
         0},
        {"lora-scaled", 0, CLI_TEXTS, "FILE:SCALE", "same as --lora; llama.cpp's name", &l->lora_scaled, 0,
         0},
        {"device", 0, CLI_TEXT, "NAME",
         "device to use besides the CPU: none, cuda, auto (all usable GPUs that help) or "
         "sim (simulated by threads, for tests); cuda:1 is the second GPU, and a "
         "comma-separated list splits the layers; results do not depend on it (default: auto)",
         &m->device, 0, 0},
        {"vram", 0, CLI_SIZES, "SIZE",
         "GPU memory limit, such as 6G; for several GPUs one each, as "
         "in 8G,20G, or one for all (default: free memory less 256 MiB)",
         &l->vram, 0, 0},
        {"postfetch", 0, CLI_TEXT, "MODE",
         "what to copy to the GPU while the CPU computes experts from RAM: down, expert, "
         "off or auto (by measured rates); overrides LLAMA_POSTFETCH_ENABLE (default: auto)",
         &l->postfetch, 0, 0},
        {"postfetch-enable", 0, CLI_TEXT, "0|1", "0: same as --postfetch off, 1: --postfetch auto",
         &l->postfetch_enable, 0, 0},
        {"prompt-precision", 0, CLI_TEXT, "exact|bf16",
         "GPU precision for large parts of a prompt: exact, or bf16, which is LOSSY and faster, "
         "in steps of more than LLAMA_FP4_PREFILL_M tokens, 256 if unset (default: exact)",
         &l->prompt_precision, 0, 0},
    };
    CLI_OPTIONS_ADD(to, table);
}

void cli_speculation_options(cli_options *to, cli_loading *l)
{
    const cli_option table[] = {
        {"speculate", 0, CLI_TEXT, "auto|off|ngram|mtp|draft",
         "guess several tokens and compute them in one step, where that is faster as measured while "
         "running; ngram: from what followed the same tokens earlier in the text; mtp: by an MTP head, "
         "draft: "
         "by a draft model, which the CPU computes; the text is the same (default: off)",
         &l->speculate, 0, 0},
        {"draft-max", 0, CLI_INT, "N", "with --speculate: most tokens guessed at once (default: 64)",
         &l->model.draft_max, 1, 64},
        {"draft-model", 0, CLI_TEXT, "FILE",
         "with --speculate: a smaller model with the same tokens, which guesses (draft model), or the "
         "model's "
         "MTP head in a file of its own (default: the head in the model's file)",
         &l->model.draft_model, 0, 0},
    };
    CLI_OPTIONS_ADD(to, table);
}

void cli_learning_options(cli_options *to, cli_loading *l)
{
    mo_learning_options *o = &l->model.learning;
    mo_hot_cache_options *h = &o->hot_cache;
    const cli_option table[] = {
        {"profile", 0, CLI_TEXT, "off|FILE",
         "file for expert usage statistics, which warm the cache in later runs; off: "
         "neither read nor written (default: a file per model in the user's cache directory)",
         &o->profile, 0, 0},
        {"warm-file", 0, CLI_TEXT, "FILE",
         "save the experts in RAM to FILE, with the list of those in VRAM, and load both at the next start",
         &o->warm_file, 0, 0},
        {"moe-hot-cache", 0, CLI_TEXT, "FILE",
         "hot cache of the experts this profile prefers, on the GPU or in RAM; replaces --policy", &h->file,
         0, 0},
        {"moe-hot-cache-max-mib", 0, CLI_INTEGER, "N",
         "size of the hot cache, on the GPU or in RAM; -1: all free memory; 0: off (default: 0)", &h->max_mib,
         -1, INT64_MAX >> 20},
        {"moe-hot-cache-auto-reserve-mib", 0, CLI_INTEGER, "N",
         "memory that size -1 leaves free (default: 1024)", &h->auto_reserve_mib, 0, INT64_MAX >> 20},
        {"moe-hot-cache-update-rate", 0, CLI_REAL, "X",
         "share of the hot cache that an update may exchange, 0 to 1 (default: 0, static)", &h->update_rate,
         0, 1},
        {"moe-hot-cache-weighting", 0, CLI_TEXT, "NAME",
         "hot cache weighting: flat, balanced, pressure, smooth or time (default: flat)", &h->weighting, 0,
         0},
        {"moe-hot-cache-layer-curve", 0, CLI_REAL, "X",
         "variation between layers for pressure, smooth and time, 0 to 1 (default: 0.5)", &h->layer_curve, 0,
         1},
        {"moe-layer-perf-out", 0, CLI_TEXT, "FILE",
         "write the expert usage of this run as JSON, after each answer and at exit", &o->perf_out, 0, 0},
        {"cpu-moe", 0, CLI_FLAG, NULL,
         "keep experts out of GPU memory, except for the hot cache; no effect without a GPU",
         &l->model.cpu_moe, 0, 0},
    };
    CLI_OPTIONS_ADD(to, table);
}

/* ---- Words ---- */

typedef struct word {
    const char *text; /* NULL ends a list */
    int meaning;
} word;

/* Finds the meaning of a word. False after printing the error. */
static bool find_word(const char *command, const char *option, const char *given, const word *words, int *out)
{
    for (int i = 0; words[i].text; i++) {
        if (strcmp(given, words[i].text) == 0) {
            *out = words[i].meaning;
            return true;
        }
    }
    fprintf(stderr, "moraine %s: --%s must be", command, option);
    for (int i = 0; words[i].text; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : words[i + 1].text ? "," : " or", words[i].text);
    }
    fprintf(stderr, ", not %s\n", given);
    return false;
}

static const word kv_words[] = {{"i16", MO_KV_I16}, {"f32", MO_KV_F32}, {"q8_0", MO_KV_Q8_0}, {NULL, 0}};

const char *cli_kv_name(mo_kv_type kv)
{
    return kv_words[kv].text;
}

/* Prints the note once. */
static void note_f16(const char *command)
{
    static bool said;
    if (!said) {
        fprintf(stderr,
                "moraine %s: --kv f16 means "
                "i16 here: the same memory, "
                "a tenth of the error\n",
                command);
    }
    said = true;
}

static bool set_words(const char *command, cli_loading *l)
{
    enum { DIVIDE, IO, PREDICT, KV, PRECISION, POSTFETCH, SPECULATE, COUNT };
    static const word divide[] = {
        {"layers", MO_DIVIDE_LAYERS}, {"experts", MO_DIVIDE_EXPERTS}, {"auto", MO_DIVIDE_AUTO}, {NULL, 0}};
    static const word io[] = {
        {"direct", MO_IO_DIRECT}, {"cached", MO_IO_CACHED}, {"auto", MO_IO_AUTO}, {NULL, 0}};
    static const word predict[] = {{"on", false}, {"off", true}, {NULL, 0}};
    static const word speculate[] = {{"off", MO_SPECULATE_OFF},     {"auto", MO_SPECULATE_AUTO},
                                     {"ngram", MO_SPECULATE_NGRAM}, {"mtp", MO_SPECULATE_MTP},
                                     {"draft", MO_SPECULATE_DRAFT}, {NULL, 0}};
    static const word precision[] = {{"exact", MO_PRECISION_EXACT}, {"bf16", MO_PRECISION_BF16}, {NULL, 0}};
    static const word postfetch[] = {{"down", MO_POSTFETCH_DOWN},
                                     {"expert", MO_POSTFETCH_EXPERT},
                                     {"auto", MO_POSTFETCH_AUTO},
                                     {"off", MO_POSTFETCH_OFF},
                                     {NULL, 0}};
    if (l->postfetch_enable) {
        static const word enable[] = {{"0", MO_POSTFETCH_OFF}, {"1", MO_POSTFETCH_AUTO}, {NULL, 0}};
        int on;
        if (!find_word(command, "postfetch-enable", l->postfetch_enable, enable, &on)) {
            return false;
        }
        if (l->postfetch) {
            fprintf(stderr,
                    "moraine %s: --postfetch-enable is the same as --postfetch off or auto; use one\n",
                    command);
            return false;
        }
        l->postfetch = on == MO_POSTFETCH_OFF ? "off" : "auto";
    }
    const bool f16 = l->kv && strcmp(l->kv, "f16") == 0;
    const struct {
        const char *option, *given;
        const word *words;
    } options[COUNT] = {
        [DIVIDE] = {"divide", l->divide, divide},
        [IO] = {"io", l->io, io},
        [PREDICT] = {"predict", l->predict, predict},
        [KV] = {"kv", f16 ? "i16" : l->kv, kv_words},
        [PRECISION] = {"prompt-precision", l->prompt_precision, precision},
        [POSTFETCH] = {"postfetch", l->postfetch, postfetch},
        [SPECULATE] = {"speculate", l->speculate, speculate},
    };
    int meant[COUNT] = {0}; /* defaults */
    for (int i = 0; i < COUNT; i++) {
        if (options[i].given &&
            !find_word(command, options[i].option, options[i].given, options[i].words, &meant[i])) {
            return false;
        }
    }
    if (f16) {
        note_f16(command);
    }
    l->model.divide = (mo_divide)meant[DIVIDE];
    l->model.io = (mo_io)meant[IO];
    l->model.no_prediction = meant[PREDICT];
    l->model.kv = (mo_kv_type)meant[KV];
    l->model.prompt_precision = (mo_precision)meant[PRECISION];
    l->model.postfetch = (mo_postfetch_mode)meant[POSTFETCH];
    l->model.speculate = (mo_speculate)meant[SPECULATE];
    return true;
}

/* ---- Devices ---- */

/* Checks a name, alone or in a list: none or auto; sim or cuda, optionally with a number. */
static bool check_name(const char *command, const char *text, size_t length, bool alone)
{
    static const word devices[] = {{"none", 0}, {"sim", 1}, {"cuda", 1}, {"auto", 0}, {NULL, 0}};
    char name[32];
    int listed;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    char *colon = strchr(name, ':');
    if (colon && (*name == 's' || *name == 'c') && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
        colon[1] && length < 10) {
        *colon = 0;
    }
    if (!find_word(command, "device", name, devices, &listed)) {
        return false;
    }
    if (!listed && !alone) {
        fprintf(stderr, "moraine %s: --device %s cannot be part of a list\n", command, name);
    }
    return listed || alone;
}

static bool check_device(const char *command, const char *text)
{
    const bool alone = !strchr(text, ',');
    for (const char *at = text, *comma; at; at = comma ? comma + 1 : NULL) {
        comma = strchr(at, ',');
        if (!check_name(command, at, strcspn(at, ","), alone)) {
            return false;
        }
    }
    return true;
}

static bool set_device(const char *command, cli_loading *l)
{
    mo_model_options *m = &l->model;
    if (!check_device(command, m->device)) {
        return false;
    }
    for (int i = 0; i < l->vram.count; i++) {
        if (l->vram.item[i] == 0 || strcmp(m->device, "none") == 0) {
            fprintf(stderr, "moraine %s: --vram is the GPU memory limit; %s\n", command,
                    l->vram.item[i] == 0 ? "use --device none to run without a GPU"
                                         : "--device none uses no GPU");
            return false;
        }
        *(l->vram.count == 1 ? &m->vram_bytes : &l->vram_each[i]) = (int64_t)l->vram.item[i];
    }
    m->vram_each = l->vram_each;
    m->vram_each_count = l->vram.count == 1 ? 0 : l->vram.count;
    return true;
}

/* ---- Together ---- */

bool cli_loading_set(const char *command, cli_loading *l)
{
    mo_model_options *m = &l->model;
    const char *counting = getenv("LLAMA_MOE_LAYER_PERF"); /* the hot cache's name for this option */
    m->learning.perf_mode = counting && counting[0] ? counting : NULL;
    m->cluster = cli_cluster_rank() == 0 ? cli_cluster() : NULL;
    if (!set_words(command, l) || !cli_cluster_timeout(command, l->rank_timeout)) {
        return false;
    }
    if (m->map && (m->ram_bytes || m->skip_missing)) {
        fprintf(stderr,
                "moraine %s: --mmap cannot be combined with --ram "
                "or --skip-missing: the system manages the memory\n",
                command);
        return false;
    }
    return set_device(command, l) && cli_adapters_set(command, &l->lora, &l->lora_scaled, m);
}

static bool on_load(void *user, int64_t done, int64_t total)
{
    cli_progress *p = user;
    p->total = (uint64_t)total;
    cli_progress_update(p, (uint64_t)done);
    return !cli_interrupted();
}

mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code)
{
    *code = cli_check_model(command, path, l);
    return *code == CLI_OK ? cli_loading_load(command, path, l, code) : NULL;
}

mo_model *cli_loading_load(const char *command, const char *path, const cli_loading *l, int *code)
{
    mo_error err;
    mo_model *model = NULL;
    cli_progress progress;
    mo_model_options options = l->model;
    options.progress = on_load;
    options.user = &progress;
    cli_progress_begin(&progress, "loading", 0);
    const mo_status status = mo_model_open(path, &options, &model, &err);
    cli_progress_end(&progress);
    if (status != MO_OK) {
        cli_say_error(command, &err);
        *code = status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
        return NULL;
    }
    *code = CLI_FAILED; /* until the command succeeds */
    cli_idle_tell(command, l, model);
    return model;
}
