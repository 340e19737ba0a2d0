/* moraine ps and stop: the models loaded in a running server, and unloading them, by Ollama's API. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"

#ifdef MO_PULL
#include "cli/commands/wire.h"

typedef struct asking {
    const char *command, *host, *key;
    int64_t port;
    bool json;
    cli_url url;
    CURLM *all;
} asking;

/* Sends a request and reads the answer. NULL after printing the error. */
static json_t *ask(asking *a, const char *path, const char *body)
{
    cli_wire w;
    json_t *root = NULL;
    if (!cli_wire_open(&w, a->all, a->command, &a->url, path, a->key, body)) {
        return NULL;
    }
    const char *text = cli_wire_whole(&w);
    if (w.over && w.result == CURLE_COULDNT_CONNECT) {
        fprintf(stderr,
                "moraine %s: no server runs at %s; moraine serve starts one, --port names another port\n",
                a->command, a->url.server);
    } else if (!text) {
        if (!w.over || cli_wire_reached(&w, a->command, &a->url)) {
            fprintf(stderr, "moraine %s: no answer from %s\n", a->command, a->url.server);
        }
    } else {
        root = json_loads(text, 0, NULL);
    }
    if (text && (w.status != 200 || !root)) {
        const json_t *error = json_object_get(root, "error");
        const char *why = json_string_value(error);
        why = why ? why : json_string_value(json_object_get(error, "message"));
        fprintf(stderr, "moraine %s: %s: %s\n", a->command, a->url.server,
                why               ? why
                : w.status == 401 ? "an API key is needed; give it with --api-key"
                                  : "this is not a moraine or Ollama server");
        json_decref(root);
        root = NULL;
    }
    cli_wire_close(&w);
    return root;
}

static bool begin(asking *a)
{
    char address[300];
    const bool six = strchr(a->host, ':') && a->host[0] != '[';
    snprintf(address, sizeof address, six ? "http://[%s]:%lld" : "http://%s:%lld", a->host,
             (long long)a->port);
    if (!cli_url_read(address, &a->url)) {
        fprintf(stderr, "moraine %s: --host %s: expected a host name or address\n", a->command, a->host);
        return false;
    }
    a->all = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    return a->all != NULL;
}

static void end(asking *a)
{
    if (a->all) {
        curl_multi_cleanup(a->all);
        curl_global_cleanup();
    }
}

static uint64_t bytes_of(const json_t *model, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(model, name));
}

static int print_models(const asking *a, const json_t *models)
{
    int widest = 4;
    size_t i;
    const json_t *m;
    if (json_array_size(models) == 0) {
        fprintf(stderr, "no model is loaded at %s\n", a->url.server);
        return CLI_OK;
    }
    json_array_foreach(models, i, m)
    {
        const int columns = cli_text_columns(json_string_value(json_object_get(m, "name")));
        widest = columns > widest ? columns : widest;
    }
    printf("%s%-*s  %10s  %10s  %8s%s\n", cli_terminal_bold(), widest, "name", "size", "in VRAM", "context",
           cli_terminal_plain());
    json_array_foreach(models, i, m)
    {
        char size[32], vram[32];
        const char *name = json_string_value(json_object_get(m, "name"));
        printf("%s%*s  %10s  %10s  %8lld\n", name, widest - cli_text_columns(name), "",
               cli_bytes_text(bytes_of(m, "size"), size), cli_bytes_text(bytes_of(m, "size_vram"), vram),
               (long long)json_integer_value(json_object_get(m, "context_length")));
    }
    return CLI_OK;
}

static int list(asking *a)
{
    json_t *root = ask(a, "/api/ps", NULL);
    int code = CLI_FAILED;
    if (root && a->json) {
        return cli_json_print(root);
    }
    if (root) {
        code = print_models(a, json_object_get(root, "models"));
    }
    json_decref(root);
    return code;
}

/* A model with idle time 0 is unloaded as soon as it is unused. */
static int unload(asking *a, const char *name)
{
    json_t *request =
        json_pack("{s:o, s:i, s:b}", "model", cli_json_string(name), "keep_alive", 0, "stream", 0);
    char *body = request ? mo_json_dump(request, JSON_COMPACT) : NULL;
    json_decref(request);
    json_t *root = body ? ask(a, "/api/generate", body) : NULL;
    free(body);
    if (root) {
        fprintf(stderr, "stopped %s; it is unloaded as soon as no request uses it\n", name);
    }
    const int code = root ? CLI_OK : CLI_FAILED;
    json_decref(root);
    return code;
}

/* Is it the model's name, or the part after its last slash or before its colon? */
static bool is_named(const char *name, const char *given)
{
    const char *slash = strrchr(name, '/');
    const size_t length = strlen(given);
    return strcmp(name, given) == 0 || (slash && strcmp(slash + 1, given) == 0) ||
           (strncmp(name, given, length) == 0 && name[length] == ':');
}

/* Stops only a loaded model: a request for another one would load it. */
static int stop(asking *a, const char *given)
{
    json_t *root = ask(a, "/api/ps", NULL);
    const json_t *models = json_object_get(root, "models");
    int code = root ? CLI_OK : CLI_FAILED, count = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(models, i, m)
    {
        const char *name = json_string_value(json_object_get(m, "name"));
        if (code == CLI_OK && name && (!given || is_named(name, given))) {
            code = unload(a, name);
            count++;
        }
    }
    if (root && count == 0) {
        fprintf(stderr,
                given ? "moraine stop: %s is not loaded at %s; see moraine ps\n"
                      : "%sno model is loaded at %s\n",
                given ? given : "", a->url.server);
        code = given ? CLI_FAILED : CLI_OK;
    }
    json_decref(root);
    return code;
}

static int run(asking *a, const char *given)
{
    const int code = !begin(a) ? CLI_USAGE : strcmp(a->command, "ps") == 0 ? list(a) : stop(a, given);
    end(a);
    return code;
}

#else

typedef struct asking {
    const char *command, *host, *key;
    int64_t port;
    bool json;
} asking;

static int run(const asking *a, const char *given)
{
    (void)given;
    fprintf(stderr, "moraine %s: this program was built without libcurl, which it needs\n", a->command);
    return CLI_FAILED;
}

#endif

static int parse(const cli_usage *given, asking *a, int argc, char **argv)
{
    const cli_option table[] = {
        {"host", 0, CLI_TEXT, "HOST", "where the server runs (default: 127.0.0.1)", &a->host, 0, 0},
        {"port", 0, CLI_INTEGER, "N", "its port (default: 8080)", &a->port, 1, 65535},
        {"api-key", 0, CLI_TEXT, "KEY", "its API key (env: LLAMA_API_KEY)", &a->key, 0, 0},
        {"json", 0, CLI_FLAG, NULL, "print JSON", &a->json, 0, 0},
    };
    const bool lists = strcmp(a->command, "ps") == 0;
    int first;
    cli_usage usage = *given;
    usage.command = a->command;
    usage.options = table;
    usage.option_count = lists ? 4 : 3;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    return code >= 0 ? code : run(a, argv[first]);
}

int cli_ps(int argc, char **argv)
{
    asking a = {.command = "ps", .host = "127.0.0.1", .port = 8080, .key = getenv("LLAMA_API_KEY")};
    const cli_usage usage = {
        .description = "Lists the models that a running server (moraine serve) has loaded: name, size, "
                       "memory of GPUs, context.",
        .examples = "  moraine ps\n  moraine ps --port 8000\n",
    };
    return parse(&usage, &a, argc, argv);
}

int cli_stop(int argc, char **argv)
{
    asking a = {.command = "stop", .host = "127.0.0.1", .port = 8080, .key = getenv("LLAMA_API_KEY")};
    const cli_usage usage = {
        .arguments = "[MODEL]",
        .description = "Unloads a model of a running server (moraine serve), or all of them. Answers that "
                       "are under way are "
                       "finished first, and the next request loads the model again. The server goes on; "
                       "Ctrl-C or SIGTERM end it.",
        .examples = "  moraine stop\n  moraine stop gpt-oss-20b --port 8000\n",
        .max_arguments = 1,
    };
    return parse(&usage, &a, argc, argv);
}
