#include "cli/loading.h"

#include <stdio.h>
#include <string.h>

#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/idle.h"
#include "cli/messages.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

/* Once, however often a command asks. */
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

static const char *const kv_names[] = {[MO_KV_I16] = "i16", [MO_KV_F32] = "f32", [MO_KV_Q8_0] = "q8_0"};

const char *cli_kv_name(mo_kv_type kv)
{
    return kv_names[kv];
}

bool cli_loading_kv(const char *command, const cli_loading *l, mo_kv_type *out)
{
    if (strcmp(l->kv, "f16") == 0) {
        note_f16(command);
        *out = MO_KV_I16;
        return true;
    }
    for (size_t i = 0; i < sizeof kv_names / sizeof *kv_names; i++) {
        if (strcmp(l->kv, kv_names[i]) == 0) {
            *out = (mo_kv_type)i;
            return true;
        }
    }
    fprintf(stderr, "moraine %s: --kv must be i16, f32 or q8_0, not %s\n", command, l->kv);
    return false;
}

/* The number of a word in a list that ends with NULL, or -1 after saying what is wrong. */
static int find_word(const char *command, const char *option, const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    fprintf(stderr, "moraine %s: --%s must be", command, option);
    for (int i = 0; words[i]; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : words[i + 1] ? "," : " or", words[i]);
    }
    fprintf(stderr, ", not %s\n", word);
    return -1;
}

bool cli_loading_precision(const char *command, const cli_loading *l, mo_precision *out)
{
    static const char *const words[] = {[MO_PRECISION_EXACT] = "exact", [MO_PRECISION_BF16] = "bf16", NULL};
    const int word = find_word(command, "prompt-precision", l->prompt_precision, words);
    *out = word < 0 ? MO_PRECISION_EXACT : (mo_precision)word;
    return word >= 0;
}

/* One name, of a list or alone: none or auto, or sim or cuda, which may have a number behind them. */
static bool check_name(const char *command, const char *text, size_t length, bool alone)
{
    static const char *const devices[] = {"none", "sim", "cuda", "auto", NULL};
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    char *colon = strchr(name, ':');
    if (colon && (*name == 's' || *name == 'c') && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
        colon[1] && length < 10) {
        *colon = 0;
    }
    const int word = find_word(command, "device", name, devices);
    if ((word == 0 || word == 3) && !alone) {
        fprintf(stderr, "moraine %s: --device %s cannot be part of a list\n", command, name);
    }
    return word == 1 || word == 2 || (word >= 0 && alone);
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

bool cli_loading_device(const char *command, const cli_loading *l, const char **device, int64_t *vram_bytes,
                        int64_t *vram_each, mo_postfetch_mode *postfetch)
{
    static const char *const modes[] = {"down", "expert", "auto", "off", NULL};
    static const mo_postfetch_mode meant[] = {MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT, MO_POSTFETCH_AUTO,
                                              MO_POSTFETCH_OFF};
    const int mode = l->postfetch ? find_word(command, "postfetch", l->postfetch, modes) : 0;
    if (mode < 0 || !check_device(command, l->device)) {
        return false;
    }
    for (int i = 0; i < l->vram.count; i++) {
        if (l->vram.item[i] == 0 || strcmp(l->device, "none") == 0) {
            fprintf(stderr, "moraine %s: --vram is the GPU memory limit; %s\n", command,
                    l->vram.item[i] == 0 ? "use --device none to run without a GPU"
                                         : "--device none uses no GPU");
            return false;
        }
    }
    *device = l->device;
    *vram_bytes = l->vram.count == 1 ? (int64_t)l->vram.item[0] : 0;
    for (int i = 0; i < MO_DEVICES_MAX; i++) {
        vram_each[i] = l->vram.count > 1 && i < l->vram.count ? (int64_t)l->vram.item[i] : 0;
    }
    *postfetch = l->postfetch ? meant[mode] : MO_POSTFETCH_DEFAULT;
    return true;
}

static bool on_load(void *user, int64_t done, int64_t total)
{
    cli_progress *p = user;
    p->total = (uint64_t)total;
    cli_progress_update(p, (uint64_t)done);
    return !cli_interrupted();
}

/* Checks the options of the tiers and puts them where they belong. */
static bool set_tiers(const char *command, const cli_loading *l, mo_model_options *out)
{
    static const char *const methods[] = {
        [MO_IO_AUTO] = "auto", [MO_IO_DIRECT] = "direct", [MO_IO_CACHED] = "cached"};
    bool known = false;
    for (int i = 0; i < 3; i++) {
        if (strcmp(l->io, methods[i]) == 0) {
            out->io = (mo_io)i;
            known = true;
        }
    }
    if (!known) {
        fprintf(stderr, "moraine %s: --io must be direct, cached or auto, not %s\n", command, l->io);
        return false;
    }
    out->no_prediction = l->predict && strcmp(l->predict, "off") == 0;
    if (l->predict && !out->no_prediction && strcmp(l->predict, "on") != 0) {
        fprintf(stderr, "moraine %s: --predict must be on or off, not %s\n", command, l->predict);
        return false;
    }
    if (l->map && (l->ram || l->skip_missing)) {
        fprintf(stderr,
                "moraine %s: --mmap cannot be combined with --ram "
                "or --skip-missing: the system manages the memory\n",
                command);
        return false;
    }
    out->ram_bytes = (int64_t)l->ram;
    out->policy = l->policy;
    out->readers = (int)l->readers;
    out->skip_missing = l->skip_missing;
    out->all_logits = l->all_logits;
    return true;
}

bool cli_loading_set(const char *command, const cli_loading *l, mo_model_options *out)
{
    out->threads = (int)l->threads;
    out->isa = l->isa;
    out->context = l->context;
    out->batch = l->batch;
    out->sessions = (int)l->sessions;
    out->map = l->map;
    out->cluster = cli_cluster_rank() == 0 ? cli_cluster() : NULL;
    if (!cli_cluster_divide(command, l->divide, &out->divide) ||
        !cli_cluster_timeout(command, l->rank_timeout) || !set_tiers(command, l, out) ||
        !cli_loading_kv(command, l, &out->kv) || !cli_loading_precision(command, l, &out->prompt_precision) ||
        !cli_loading_device(command, l, &out->device, &out->vram_bytes, out->vram_each, &out->postfetch)) {
        return false;
    }
    cli_learning_set(&l->learning, out);
    return cli_adapters_set(command, &l->adapters, out);
}

int cli_loading_check(const char *command, const char *path, const cli_loading *l)
{
    mo_model_options options = mo_model_options_default();
    return cli_loading_set(command, l, &options) ? cli_check_model(command, path, l) : CLI_USAGE;
}

mo_model *cli_loading_open(const char *command, const char *path, const cli_loading *l, int *code)
{
    *code = cli_loading_check(command, path, l);
    return *code == CLI_OK ? cli_loading_load(command, path, l, code) : NULL;
}

mo_model *cli_loading_load(const char *command, const char *path, const cli_loading *l, int *code)
{
    mo_error err;
    mo_model *model = NULL;
    cli_progress progress;
    mo_model_options options = mo_model_options_default();
    if (!cli_loading_set(command, l, &options)) {
        *code = CLI_USAGE;
        return NULL;
    }
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
    *code = CLI_FAILED; /* until the command has done its work */
    cli_idle_tell(command, l, model);
    return model;
}
