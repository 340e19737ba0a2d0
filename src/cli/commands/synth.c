/* moraine synth: writes a model with the shape of a published one and random weights. */
#include <moraine_tools.h>

#include <stdio.h>
#include <string.h>

#include "cli/check.h"
#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

/* Models under other names that run by an architecture of the list, and their shape if it has them. */
static const struct {
    const char *names, *architecture, *shape;
} others[] = {
    {"Kimi K2.5, K2.6, K2.7 (text)", "deepseek2", "kimi-k2"},
    {"GLM-4.5V, GLM-4.6V (text)", "glm4moe", "glm-4.5-air"},
    {"MiniMax-M2.1, M2.5, M2.7", "minimax-m2", "minimax-m2"},
    {"Solar-Open-100B", "glm4moe", NULL},
    {"Qwen3.8-27B", "qwen35", NULL},
};

static void print_others(void)
{
    printf("\n%s%-30s  %-12s  %s%s\n", cli_terminal_bold(), "Also run", "architecture", "shape",
           cli_terminal_plain());
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        printf("%-30s  %-12s  %s\n", others[i].names, others[i].architecture,
               others[i].shape ? others[i].shape : "-");
    }
}

static int print_list(const mo_synth_options *options)
{
    printf("%s%-20s  %-11s  %6s  %10s  %10s%s\n", cli_terminal_bold(), "Name", "architecture", "layers",
           "parameters", "file", cli_terminal_plain());
    for (int i = 0; mo_synth_name(i); i++) {
        char a[32], b[32];
        mo_synth_info info;
        mo_error err;
        mo_synth_options fitting = *options;
        fitting.layers = 0;
        if (mo_synth_measure(mo_synth_name(i), &fitting, &info, sizeof info, &err) != MO_OK) {
            cli_say_error("synth", &err);
            return CLI_FAILED;
        }
        printf("%-20s  %-12s  %6d  %10s  %10s\n", mo_synth_name(i), info.architecture, info.layers,
               cli_count_text((uint64_t)info.parameters, a), cli_bytes_text((uint64_t)info.file_bytes, b));
    }
    print_others();
    return CLI_OK;
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    (void)total;
    cli_progress_update(user, (uint64_t)done);
    return !cli_interrupted();
}

static int make(const char *name, const char *path, const mo_synth_options *options)
{
    mo_error err;
    mo_synth_info info;
    cli_progress progress;
    char a[32], b[32];
    if (mo_synth_measure(name, options, &info, sizeof info, &err) != MO_OK) {
        cli_say_error("synth", &err);
        return err.status == MO_ENOENT || err.status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    cli_progress_begin(&progress, name, (uint64_t)info.file_bytes);
    cli_signals_discard_part(path);
    const mo_status status = mo_synth(name, path, options, on_progress, &progress, &err);
    cli_signals_discard(NULL);
    cli_progress_end(&progress);
    if (status != MO_OK) {
        cli_say_error("synth", &err);
        return CLI_FAILED;
    }
    fprintf(stderr, "%s: %s, %d %s, %s parameters, %s\n", path, info.title, info.layers,
            info.layers == 1 ? "layer" : "layers", cli_count_text((uint64_t)info.parameters, a),
            cli_bytes_text((uint64_t)info.file_bytes, b));
    return CLI_OK;
}

int cli_synth(int argc, char **argv)
{
    mo_synth_options chosen = mo_synth_options_default();
    bool list = false;
    const char *path = NULL;
    double skew = 0.0;
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FILE", "output file (default: NAME.gguf in the current directory)", &path,
         0, 0},
        {"layers", 0, CLI_INT, "N", "only the first N layers, with the same bytes as in the whole model",
         &chosen.layers, 1, 1000},
        {"type", 0, CLI_TEXT, "FORMAT",
         "use this format, such as q8_0, for every matrix (embedding, output, "
         "attention, experts) instead of the published mix; small tensors stay F32, "
         "and rows that do not fit the block size use the usual fallback format",
         &chosen.type, 0, 0},
        {"experts", 0, CLI_TEXT, "FORMAT", "the same, for routed experts only", &chosen.experts, 0, 0},
        {"seed", 0, CLI_INTEGER, "N", "random seed (default: 1)", &chosen.seed, 0, INT64_MAX},
        {"skew", 0, CLI_REAL, "X",
         "router skew: expert rows are scaled by exp(X z), z from -1 to 1 in random order. "
         "For random inputs, the hottest quarter of 128 experts takes 28 % of the picks "
         "at 0, 60 % at 0.7, 78 % at 1.4; of 32 experts 27 %, 47 %, 60 % (default: 0)",
         &skew, 0, 0},
        {"threads", 0, CLI_INT, "N",
         "number of threads; the file does not depend on it (default: one per usable core)", &chosen.threads,
         1, 1024},
        {"vocabulary", 0, CLI_FLAG, NULL,
         "add a generated vocabulary (bytes, letter pairs and words), "
         "so that the model can be served; its output has no meaning",
         &chosen.vocabulary, 0, 0},
        {"holes", 0, CLI_FLAG, NULL,
         "leave out the routed experts: zeros that take no space on the disk, to try models that are larger "
         "than it; "
         "measured disk speeds are then meaningless",
         &chosen.holes, 0, 0},
        {"force", 'f', CLI_FLAG, NULL, "overwrite an existing file", &chosen.overwrite, 0, 0},
        {"list", 'l', CLI_FLAG, NULL, "list the known names with their sizes and exit", &list, 0, 0},
    };
    const cli_usage usage = {
        .command = "synth",
        .arguments = "NAME",
        .description = "Creates a GGUF file with the exact shape of a published model and "
                       "random, well-scaled weights, to measure how fast the real one will "
                       "run before downloading it. The same options give the same bytes on "
                       "every machine. The file has no vocabulary unless --vocabulary is given.",
        .examples = "  moraine synth --list\n"
                    "  moraine synth gpt-oss-20b\n"
                    "  moraine synth glm-4.5-air --experts iq2_xxs\n"
                    "  moraine synth qwen3-30b-a3b --layers 4 --skew 0.5 -o small.gguf\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    chosen.skew = (float)skew;
    if (list) {
        return print_list(&chosen);
    }
    if (first >= argc) {
        fprintf(stderr, "moraine synth: missing name; moraine synth --list prints the known ones\n");
        return CLI_USAGE;
    }
    char default_path[256];
    if (!path) {
        snprintf(default_path, sizeof default_path, "%s.gguf", argv[first]);
        path = default_path;
    }
    return cli_check_writable("synth", "the output", path) ? make(argv[first], path, &chosen) : CLI_FAILED;
}
