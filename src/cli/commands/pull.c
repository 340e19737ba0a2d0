/* moraine pull: models from hubs. */
#include <stdio.h>

#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/pulling.h"
#include "cli/short_names.h"

#ifdef MO_PULL

int cli_pull(int argc, char **argv)
{
    cli_pulling p = CLI_PULLING_DEFAULT;
    const cli_option options[] = {
        {"dir", 0, CLI_TEXT, "DIR", CLI_DIR_HELP, &p.directory, 0, 0},
        {"mirror", 0, CLI_TEXT, "URL",
         "another hub with the same API (default: "
         "HF_ENDPOINT, or https://huggingface.co)",
         &p.mirror, 0, 0},
        {"list", 0, CLI_FLAG, NULL, "only list the models in the repository", &p.list, 0, 0},
        {"dry", 0, CLI_FLAG, NULL,
         "only show what it is, the disk space it needs and its expected speed on this machine", &p.dry, 0,
         0},
        {"force", 0, CLI_FLAG, NULL, "download it even if it cannot be run", &p.force, 0, 0},
        {"connections", 0, CLI_INTEGER, "N", "parallel range requests (default: 4)", &p.connections, 1, 16},
        {"range", 0, CLI_SIZE, "SIZE", "size of one request (default: 16M)", &p.piece, 65536, 0},
        {"timeout", 0, CLI_INTEGER, "S", "reconnect after S seconds without data (default: 30)", &p.timeout_s,
         1, 3600},
        {"tries", 0, CLI_INTEGER, "N", "give up after N failures in a row (default: 8)", &p.tries, 1, 1000},
    };
    const cli_usage usage = {
        .command = "pull",
        .arguments = "MODEL...",
        .description = "Downloads models: owner/repo, owner/repo:Q4_K_M, hf.co/owner/repo, "
                       "the URL of a .gguf file, or a well-known name such as gpt-oss-20b. First shows the "
                       "disk space needed "
                       "and the expected speed on this machine; prints the path of the "
                       "model. Run the same command again to resume an interrupted "
                       "download; a file gets its final name when it is complete and its "
                       "checksum matches. For private and gated repositories set HF_TOKEN.",
        .examples = "  moraine pull gpt-oss-20b\n"
                    "  moraine pull unsloth/Qwen3-30B-A3B-GGUF --list\n"
                    "  moraine pull unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\n"
                    "  moraine chat unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 1,
        .max_arguments = 64,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    code = CLI_OK;
    for (int i = first; i < argc && code == CLI_OK; i++) {
        char path[4096];
        const char *usual = cli_short_name(argv[i]) ? cli_short_name_usual(argv[i]) : NULL;
        if (usual) {
            fprintf(stderr, "%s: %s\n", argv[i], usual);
        }
        code = cli_pulling_run("pull", usual ? usual : argv[i], &p, path, sizeof path);
        if (path[0]) {
            printf("%s\n", path);
        }
    }
    return code;
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
