/* moraine pull: downloads models from hubs. */
#include <stdio.h>

#include "cli/commands/commands.h"
#include "cli/described.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/pulling.h"
#include "cli/short_names.h"

#ifdef MO_PULL

static int pull_all(char **names, int count, const cli_pulling *p)
{
    int code = CLI_OK;
    for (int i = 0; i < count && code == CLI_OK; i++) {
        char path[4096];
        const char *usual = cli_short_name(names[i]) ? cli_short_name_usual(names[i]) : NULL;
        if (usual) {
            fprintf(stderr, "%s: %s\n", names[i], usual);
        }
        code = cli_pulling_run("pull", usual ? usual : names[i], p, path, sizeof path);
        if (path[0]) {
            printf("%s\n", path);
        }
    }
    return code;
}

int cli_pull(int argc, char **argv)
{
    cli_pulling p = CLI_PULLING_DEFAULT;
    cli_loading l = cli_loading_default();
    mo_plan_extra extra = {.size = sizeof extra, .gpu = "auto"};
    const cli_option own[] = {
        {"dir", 0, CLI_TEXT, "DIR", CLI_DIR_HELP, &p.directory, 0, 0},
        {"mirror", 0, CLI_TEXT, "URL",
         "another hub with the same API (default: "
         "HF_ENDPOINT, or https://huggingface.co)",
         &p.mirror, 0, 0},
        {"list", 0, CLI_FLAG, NULL, "only list the models in the repository", &p.list, 0, 0},
        {"dry", 0, CLI_FLAG, NULL, "only show what it is, the disk space it needs and its expected speed",
         &p.dry, 0, 0},
        {"force", 0, CLI_FLAG, NULL, "download it even if it cannot be run or fills the disk", &p.force, 0,
         0},
        {"connections", 0, CLI_INTEGER, "N", "parallel range requests (default: 4)", &p.connections, 1, 16},
        {"range", 0, CLI_SIZE, "SIZE", "size of one request (default: 16M)", &p.piece, 65536, 0},
        {"timeout", 0, CLI_INTEGER, "S", "reconnect after S seconds without data (default: 30)", &p.timeout_s,
         1, 3600},
        {"tries", 0, CLI_INTEGER, "N", "give up after N failures in a row (default: 8)", &p.tries, 1, 1000},
        {"mmproj", 0, CLI_TEXT, "FILE|auto|none",
         "the repository's encoder of pictures that comes with a model; auto: the usual one, for models that "
         "read pictures "
         "(default: auto)",
         &p.mmproj, 0, 0},
        {"machine", 0, CLI_TEXT, "FILE", "plan for another machine, as in moraine plan", &extra.machine, 0,
         0},
        CLI_DESCRIBED_OPTIONS(extra),
    };
    cli_options all = {0}, options = {0};
    CLI_OPTIONS_ADD(&all, own);
    cli_loading_options(&all, &l);
    cli_options_pick(
        &options, &all,
        "dir mirror list dry force connections range timeout tries mmproj ram vram ctx batch kv device "
        "machine gpu cpu disk");
    const cli_usage usage = {
        .command = "pull",
        .arguments = "MODEL...",
        .description =
            "Downloads models: owner/repo, owner/repo:Q4_K_M, hf.co/owner/repo, "
            "the URL of a .gguf file, or a well-known name such as gpt-oss-20b. First shows the "
            "disk space needed "
            "and the expected speed on this machine, or on another one (--ram, --vram, --gpu and other "
            "options of moraine plan); prints the path of the model. Run the same command again to resume an "
            "interrupted "
            "download; a file gets its final name when it is complete and its "
            "checksum matches. A model that reads pictures comes with its encoder. For private and gated "
            "repositories set HF_TOKEN.",
        .examples = "  moraine pull gpt-oss-20b\n"
                    "  moraine pull unsloth/Qwen3-30B-A3B-GGUF --list\n"
                    "  moraine pull unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\n"
                    "  moraine pull gpt-oss-120b --dry --gpu rtx-4070 --ram 64G\n"
                    "  moraine chat unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\n",
        .foreign = true,
        .options = options.item,
        .option_count = options.count,
        .min_arguments = 1,
        .max_arguments = 64,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    if (!cli_loading_set("pull", &l)) {
        return CLI_USAGE;
    }
    p.model = &l.model;
    p.extra = &extra;
    return pull_all(argv + first, argc - first, &p);
}

#else

int cli_pull(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "pull",
        .arguments = "MODEL...",
        .description = "This program was built without libcurl and cannot "
                       "download models: download the .gguf file by other means, "
                       "or build it on a machine with libcurl4-gnutls-dev.",
        .max_arguments = 64,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    fprintf(stderr,
            "moraine pull: this program was built without libcurl; download the .gguf file by other means\n");
    return CLI_FAILED;
}

#endif
