/* moraine list: the pulled models. */
#include <moraine_server.h>

#include <stdio.h>

#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "hub/store.h"

static int print_json(const hub_models *models)
{
    json_t *list = json_array();
    for (int i = 0; i < models->count; i++) {
        const hub_model *m = &models->items[i];
        json_t *files = json_array();
        for (int f = 0; f < m->count; f++) {
            json_array_append_new(files, cli_json_string(m->files[f]));
        }
        json_array_append_new(list, json_pack("{s:o, s:I, s:b, s:I, s:o}", "name", cli_json_string(m->name),
                                              "bytes", (json_int_t)m->bytes, "whole", (int)m->whole,
                                              "modified", (json_int_t)m->modified_s, "files", files));
    }
    return cli_json_print(list);
}

static int print_table(const hub_models *models, const char *directory)
{
    char a[32];
    int widest = 5;
    if (models->count == 0) {
        fprintf(stderr, "no models in %s yet; download one with moraine pull owner/repo:Q4_K_M\n", directory);
    }
    for (int i = 0; i < models->count; i++) {
        const int columns = cli_text_columns(models->items[i].name);
        widest = columns > widest ? columns : widest;
    }
    for (int i = 0; i < models->count; i++) {
        const hub_model *m = &models->items[i];
        printf("%s%*s  %10s  %s\n", m->name, widest - cli_text_columns(m->name), "",
               cli_bytes_text((uint64_t)m->bytes, a),
               m->whole ? m->files[0] : "incomplete; moraine pull resumes it");
    }
    return CLI_OK;
}

int cli_list(int argc, char **argv)
{
    bool json = false;
    const char *given = NULL;
    char directory[4096];
    hub_models models = {0};
    mo_error err;
    const cli_option options[] = {
        {"dir", 0, CLI_TEXT, "DIR", CLI_DIR_HELP, &given, 0, 0},
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "list",
        .description = "Lists pulled models: name, size, first file.",
        .examples = "  moraine list\n  moraine list --json | jq -r '.[].name'\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    if (hub_store_directory(given, directory, sizeof directory, &err) != MO_OK ||
        hub_models_scan(directory, &models, &err) != MO_OK) {
        hub_models_free(&models);
        cli_say_error("list", &err);
        return CLI_FAILED;
    }
    code = json ? print_json(&models) : print_table(&models, directory);
    hub_models_free(&models);
    return code;
}
