/* moraine rm: removes pulled models. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/short_names.h"
#include "hub/store.h"

static bool is_meant(const hub_model *m, const char *name, const hub_reference *r)
{
    return cli_short_name(name) ? cli_short_name_means(name, m) == 2 : hub_model_meant(m, r);
}

static int remove_one(const char *name, const char *directory, const hub_models *models, bool all)
{
    hub_reference r;
    mo_error err;
    char a[32];
    int meant = 0;
    if (!cli_short_name(name) && hub_reference_parse(name, getenv("HF_ENDPOINT"), &r, &err) != MO_OK) {
        cli_say_error("rm", &err);
        return CLI_USAGE;
    }
    for (int i = 0; i < models->count; i++) {
        meant += is_meant(&models->items[i], name, &r); /* including unfinished ones */
    }
    if (meant == 0 || (meant > 1 && !all)) {
        fprintf(stderr,
                meant ? "moraine rm: %s matches several models; choose one, or use --all\n"
                      : "moraine rm: %s has not been pulled; see moraine list\n",
                name);
        return CLI_FAILED;
    }
    for (int i = 0; i < models->count; i++) {
        const hub_model *m = &models->items[i];
        if (is_meant(m, name, &r)) {
            if (hub_model_remove(directory, m, &err) != MO_OK) {
                cli_say_error("rm", &err);
                return CLI_FAILED;
            }
            fprintf(stderr, "removed %s, %s\n", m->name, cli_bytes_text((uint64_t)m->bytes, a));
        }
    }
    return CLI_OK;
}

int cli_rm(int argc, char **argv)
{
    bool all = false;
    const char *given = NULL;
    char directory[4096];
    mo_error err;
    const cli_option options[] = {
        {"dir", 0, CLI_TEXT, "DIR", CLI_DIR_HELP, &given, 0, 0},
        {"all", 0, CLI_FLAG, NULL, "all models of a repository", &all, 0, 0},
    };
    const cli_usage usage = {
        .command = "rm",
        .arguments = "MODEL...",
        .description = "Removes pulled models, and the remains of incomplete downloads.",
        .examples = "  moraine rm unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\n",
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
        hub_models models = {0};
        if (hub_store_directory(given, directory, sizeof directory, &err) != MO_OK ||
            hub_models_scan(directory, &models, &err) != MO_OK) {
            cli_say_error("rm", &err);
            code = CLI_FAILED;
        } else {
            code = remove_one(argv[i], directory, &models, all);
        }
        hub_models_free(&models);
    }
    return code;
}
