#include "cli/pulled.h"

#include <moraine_server.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/default_model.h"
#include "cli/kept.h"
#include "cli/options.h"
#include "cli/pulling.h"
#include "cli/short_names.h"
#include "hub/store.h"

static bool scan(hub_models *models)
{
    char directory[4096];
    mo_error err;
    *models = (hub_models){0};
    return hub_store_directory(NULL, directory, sizeof directory, &err) == MO_OK &&
           hub_models_scan(directory, models, &err) == MO_OK;
}

int cli_pulled_all(cli_pulled *list, int most)
{
    hub_models models;
    int count = 0;
    scan(&models);
    for (int i = 0; i < models.count && count < most; i++) {
        if (models.items[i].whole) {
            list[count] = (cli_pulled){cli_keep(models.items[i].name), cli_keep(models.items[i].files[0])};
            count += list[count].name && list[count].path;
        }
    }
    hub_models_free(&models);
    return count;
}

static void name_several(const char *command, const char *given, const hub_models *models,
                         const hub_reference *r)
{
    fprintf(stderr, "moraine %s: %s matches several models; choose one:", command, given);
    for (int i = 0; i < models->count; i++) {
        const hub_model *m = &models->items[i];
        if (m->whole && hub_model_meant(m, r)) {
            fprintf(stderr, " %s", m->name);
        }
    }
    fprintf(stderr, "\n");
}

/* given: as typed; name: what to pull. */
static const char *pull(const char *command, const char *given, const char *name, int *code)
{
    const bool usual = strcmp(given, name) != 0;
#ifdef MO_PULL
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) {
        cli_pulling p = CLI_PULLING_DEFAULT;
        char path[4096];
        p.asks = true;
        if (usual) {
            fprintf(stderr, "%s has not been pulled; its usual repository is %s\n", given, name);
        }
        *code = cli_pulling_run(command, name, &p, path, sizeof path);
        return path[0] ? cli_keep(path) : NULL;
    }
#endif
    fprintf(
        stderr,
        usual ? "moraine %s: %s has not been pulled; moraine pull %s downloads it from its usual repository\n"
              : "moraine %s: there is no file %s, and no model of that name has been pulled; moraine pull %s "
                "downloads it\n",
        command, given, name);
    *code = CLI_FAILED;
    return NULL;
}

/* A short model name is neither a path nor a repository; it may be a prompt. */
static void say_bare(const char *command, const char *given)
{
    const bool prompt = strpbrk(given, " \n") && strcmp(command, "run") == 0;
    fprintf(stderr,
            "moraine %s: there is no file %s; give a .gguf file, or a "
            "Hugging Face name such as owner/repo for moraine pull%s\n",
            command, given, prompt ? "; give the prompt with -p" : "");
}

/* Finds a short name: of a pulled model, or a known one. */
static cli_pulled_found find_bare(const char *command, const char *given)
{
    hub_models models;
    cli_pulled_found found = {NULL, NULL, false};
    int best = 0, count = 0;
    scan(&models);
    for (int i = 0; i < models.count; i++) {
        const int means = models.items[i].whole ? cli_short_name_means(given, &models.items[i]) : 0;
        count = means > best ? 1 : count + (means > 0 && means == best);
        if (means > best) {
            best = means;
            found.path = models.items[i].files[0];
        }
    }
    found.path = found.path && count == 1 ? cli_keep(found.path) : NULL;
    found.refused = count > 1;
    if (count > 1) {
        fprintf(stderr, "moraine %s: %s matches several models; choose one:", command, given);
        for (int i = 0; i < models.count; i++) {
            if (models.items[i].whole && cli_short_name_means(given, &models.items[i]) == best) {
                fprintf(stderr, " %s", models.items[i].name);
            }
        }
        fprintf(stderr, "\n");
    }
    hub_models_free(&models);
    found.remote = count == 0 ? cli_short_name_usual(given) : NULL;
    return found;
}

cli_pulled_found cli_pulled_find(const char *command, const char *given)
{
    cli_pulled_found found = {NULL, NULL, false};
    hub_reference reference;
    hub_models models;
    mo_error err;
    if (!given[0]) {
        fprintf(stderr, "moraine %s: the name of the model is empty\n", command);
        found.refused = true;
        return found;
    }
    if (access(given, F_OK) != 0 && !strchr(given, '/') && !cli_model_name(given)) {
        return find_bare(command, given);
    }
    if (access(given, F_OK) == 0 || !hub_reference_like(given) ||
        hub_reference_parse(given, getenv("HF_ENDPOINT"), &reference, &err) != MO_OK) {
        found.path = given;
        return found;
    }
    scan(&models);
    const hub_model *model = hub_models_find(&models, &reference, &found.refused);
    found.path = model ? cli_keep(model->files[0]) : NULL;
    found.remote = found.path || found.refused ? NULL : given;
    if (found.refused) {
        name_several(command, given, &models, &reference);
    }
    hub_models_free(&models);
    return found;
}

const char *cli_pulled_path(const char *command, const char *given, int *code)
{
    const cli_pulled_found found = cli_pulled_find(command, given);
    if (found.path) {
        return found.path;
    }
    if (found.remote) {
        return pull(command, given, found.remote, code);
    }
    if (!found.refused) {
        say_bare(command, given);
    }
    *code = found.refused ? CLI_USAGE : CLI_FAILED;
    return NULL;
}
