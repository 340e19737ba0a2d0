/* moraine serve: options of the server. */
#include <moraine_server.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/commands/serve_check.h"
#include "cli/commands/serve_file.h"
#include "cli/commands/serve_log.h"
#include "cli/commands/serve_words.h"
#include "cli/default_model.h"
#include "cli/generate.h"
#include "cli/idle.h"
#include "cli/images.h"
#include "cli/infile.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/pulled.h"
#include "server/common/log.h"
#include "server/serve.h"

enum { MODELS_MAX = 256, LIST_MAX = 64 };

/* Options for one model. */
typedef struct model_settings {
    srv_model_spec spec; /* set_spec() completes it */
    cli_loading loading;
    int64_t cache_mib, cache_dir_mib, between_ms, stalled_s;
    const char *template_file;
} model_settings;

/* Options for the server. */
typedef struct serve_settings {
    srv_server_options server; /* serve() completes it */
    const char *host, *origins, *hosts;
    int64_t ping_s;
    const char *models_file, *warm, *log_format, *log_level;
    bool metrics, slots, jinja;
} serve_settings;

/* ---- Tables ---- */

/* Adds the sampling options that requests may override. Most share the help of moraine run. */
static void add_sampling(cli_options *to, srv_defaults *d)
{
    const cli_option own[] = {
        {"n-predict", 'n', CLI_INTEGER, "N",
         "maximum tokens per answer; -1: until the context is full (default: -1)", &d->max_tokens, -1,
         INT64_MAX},
        {"temp", 0, CLI_REAL, "X", "temperature (default: 0.8)", &d->temperature, 0, INT64_MAX},
        {"seed", 's', CLI_INTEGER, "N", "seed for requests that set none; -1: random (default: -1)", &d->seed,
         -1, INT64_MAX},
    };
    void *const out[] = {&d->top_k,
                         &d->top_p,
                         &d->min_p,
                         &d->repeat_penalty,
                         &d->repeat_last_n,
                         &d->presence_penalty,
                         &d->frequency_penalty};
    cli_sampling unused;
    cli_options usual = {0};
    cli_sampling_options(&usual, &unused);
    cli_options_add(to, own, 2);
    const int first = to->count;
    cli_options_pick(to, &usual,
                     "top-k top-p min-p repeat-penalty repeat-last-n presence-penalty frequency-penalty");
    for (int i = first; i < to->count; i++) {
        to->item[i].out = out[i - first];
    }
    cli_options_add(to, &own[2], 1);
}

static void add_model_options(cli_options *to, model_settings *m)
{
    srv_engine_options *e = &m->spec.engine;
    srv_defaults *d = &m->spec.defaults;
    const cli_option loading[] = {
        {"model", 'm', CLI_TEXT, "FILE", "model file; same as the plain argument", &m->spec.path, 0, 0},
        {"alias", 'a', CLI_TEXT, "NAME,...",
         "names of the first model: the first is its id, others are understood too", &m->spec.alias, 0, 0},
        {"parallel", 0, CLI_INT, "N",
         "sequences decoded at once; further requests wait (default: 4, or fewer if memory is short); also "
         "-np",
         &m->spec.parallel, 1, 256},
        {"ctx-size", 'c', CLI_INTEGER, "N",
         "context of all sequences together, in tokens (default: parallel times ctx)", &m->spec.context_all,
         1, INT64_MAX >> 20},
        {"queue", 0, CLI_INT, "N", "requests that may wait; more are rejected with 429 (default: 256)",
         &e->queue, 1, 1000000},
        {"between-ms", 0, CLI_INTEGER, "N",
         "process prompts in pieces that delay the tokens of other answers by at most N ms (default: 50)",
         &m->between_ms, 1, 60000},
        {"stalled-s", 0, CLI_INTEGER, "N",
         "if other requests wait, end an answer whose client has not read for N seconds (default: 10)",
         &m->stalled_s, 1, 86400},
        {"cache-ram", 0, CLI_INTEGER, "MIB",
         "memory for cached prompt prefixes; 0: off (default: 1024); also -cram", &m->cache_mib, 0,
         INT64_MAX >> 20},
        {"cache-dir", 0, CLI_TEXT, "DIR",
         "also store prefixes and Responses API answers in DIR, and reuse them after a restart",
         &e->cache_dir, 0, 0},
        {"cache-dir-mib", 0, CLI_INTEGER, "MIB", "limit of these files (default: 8192)", &m->cache_dir_mib, 1,
         INT64_MAX >> 20},
        {"lora-init-without-apply", 0, CLI_FLAG, NULL,
         "load the adapters of --lora disabled, until a request or POST /lora-adapters enables them",
         &m->spec.adapters_idle, 0, 0},
        {"discover", 0, CLI_INTEGER, "N",
         "with experts on disk: route the first N tokens of a text that "
         "has no cached prefix, without computing them, to prefetch "
         "the experts it will probably need; 10 is typical (default: 0)",
         &e->discover, 0, 4096},
        {"pin", 0, CLI_FLAG, NULL, "load the model at startup and never unload it", &m->spec.pinned, 0, 0},
        {"sleep-idle-seconds", 0, CLI_REAL, "S",
         "unload a model after S idle seconds; the next request reloads it (default: -1, never)",
         &m->spec.keep_s, -1, INT64_MAX},
    };
    const cli_option answers[] = {
        {"reasoning", 0, CLI_TEXT, "on|off|auto",
         "thinking, if requests do not set it (default: auto, as the template decides)", &d->reasoning, 0, 0},
        {"reasoning-format", 0, CLI_TEXT, "auto|deepseek|none",
         "where to put reasoning: in a separate field, or with none in the text (default: auto)",
         &d->reasoning_format, 0, 0},
        {"verbose", 0, CLI_FLAG, NULL, "show the rendered prompt in answers of chats (__verbose)",
         &d->verbose, 0, 0},
        {"reasoning-budget", 0, CLI_INTEGER, "N", "maximum reasoning tokens; -1: no limit (default: -1)",
         &d->reasoning_budget, -1, INT64_MAX},
        {"chat-template-kwargs", 0, CLI_TEXT, "JSON",
         "JSON object of template variables, as {\"enable_thinking\":false}", &d->template_kwargs, 0, 0},
        {"chat-template", 0, CLI_TEXT, "TEXT",
         "a Jinja template instead of the model's own, or the name of a format, as chatml", &d->template_text,
         0, 0},
        {"chat-template-file", 0, CLI_TEXT, "FILE", "the same, from a file", &m->template_file, 0, 0},
    };
    const cli_option same = {"batch-size", 0, CLI_INTEGER, "N", "same as --batch", &m->loading.model.batch, 1,
                             65536};
    CLI_OPTIONS_ADD(to, loading);
    add_sampling(to, d);
    CLI_OPTIONS_ADD(to, answers);
    const int first = to->count;
    cli_loading_options(to, &m->loading);
    for (int i = first; i < to->count; i++) {
        if (strcmp(to->item[i].name, "ctx") == 0) { /* here -c has another meaning, as in llama-server */
            to->item[i].letter = 0;
            to->item[i].help = "context of one sequence in tokens (default: the training "
                               "context, or what memory allows at the same speed)";
        }
    }
    cli_image_options(to, &m->loading);
    cli_learning_options(to, &m->loading);
    cli_speculation_options(to, &m->loading);
    cli_options_add(to, &same, 1);
}

static void add_server_options(cli_options *to, serve_settings *s)
{
    srv_server_options *o = &s->server;
    const cli_option table[] = {
        {"host", 0, CLI_TEXT, "ADDRESS",
         "listen address: an IP address, a host name, * for all, or the path of a unix socket ending in "
         ".sock "
         "(default: 127.0.0.1)",
         &s->host, 0, 0},
        {"port", 0, CLI_INT, "N", "port; 0: any free port (default: 8080)", &o->port, 0, 65535},
        {"unix", 0, CLI_TEXT, "PATH", "also listen on this unix socket", &o->unix_path, 0, 0},
        {"api-key", 0, CLI_TEXT, "KEY,...", "API keys that clients must send (env: LLAMA_API_KEY)",
         &o->api_keys, 0, 0},
        {"share-prefixes", 0, CLI_FLAG, NULL,
         "keys share cached prefixes, as one team; each learns whether another sent the same text",
         &o->share_prefixes, 0, 0},
        {"api-key-file", 0, CLI_TEXT, "FILE",
         "file of API keys, one per line, optionally followed by name=NAME, priority=N and admin; reread on "
         "SIGHUP",
         &o->api_key_path, 0, 0},
        {"ssl-cert-file", 0, CLI_TEXT, "FILE", "TLS certificate (PEM)", &o->tls_certificate_path, 0, 0},
        {"ssl-key-file", 0, CLI_TEXT, "FILE", "TLS private key", &o->tls_key_path, 0, 0},
        {"cors-origins", 0, CLI_TEXT, "ORIGIN,...",
         "web origins that may call, such as https://chat.example; localhost: pages of this "
         "machine; *: all (default: pages of this machine, if listening only on it)",
         &s->origins, 0, 0},
        {"allow-hosts", 0, CLI_TEXT, "NAME,...",
         "additional host names of the server, if listening only on this machine", &s->hosts, 0, 0},
        {"api-prefix", 0, CLI_TEXT, "PATH", "prefix of all paths, such as /llm", &o->prefix, 0, 0},
        {"models-dir", 0, CLI_TEXT, "DIR", "serve every .gguf file in DIR, loaded on demand",
         &o->models.directory, 0, 0},
        {"models-file", 0, CLI_TEXT, "FILE",
         "models with their own settings: a [name] for each, then lines of option = value", &s->models_file,
         0, 0},
        {"models-max", 0, CLI_INT, "N",
         "maximum number of loaded models; another one is "
         "unloaded first (default: the pinned ones plus one)",
         &o->models.most, 1, 256},
        {"warm", 0, CLI_TEXT, "FILE",
         "chat request in JSON, as sent by an agent: its prompt "
         "is computed and cached before the server reports ready, and as many tokens "
         "generated as its max_tokens says, if it has one",
         &s->warm, 0, 0},
        {"strict-model", 0, CLI_FLAG, NULL,
         "reject requests that name another model, even if there is only one", &o->models.strict, 0, 0},
        {"max-body", 0, CLI_SIZE, "SIZE", "maximum request size (default: 64M)", &o->body_bytes, 1024, 0},
        {"max-connections", 0, CLI_INT, "N",
         "maximum connections, three quarters of them per address (default: 1024)", &o->connections, 16,
         65536},
        {"sse-ping-interval", 0, CLI_INTEGER, "S",
         "send a heartbeat after S seconds of silence in a stream; -1: off (default: 10)", &s->ping_s, -1,
         3600},
        {"timeout", 0, CLI_INT, "S", "disconnect a client that reads nothing for S seconds (default: 120)",
         &o->silent_s, 1, 86400},
        {"grace", 0, CLI_REAL, "S",
         "seconds that running answers may continue after a stop signal (default: 30)", &o->grace_s, 0,
         86400},
        {"log-format", 0, CLI_TEXT, "text|json", "log format on stderr (default: text)", &s->log_format, 0,
         0},
        {"log-level", 0, CLI_TEXT, "LEVEL", "error, warning, info or debug (default: info)", &s->log_level, 0,
         0},
        {"log-requests", 0, CLI_FLAG, NULL, "log each request: client, path, duration; never its content",
         &o->log_requests, 0, 0},
        {"metrics", 0, CLI_FLAG, NULL, "accepted for compatibility; on by default", &s->metrics, 0, 0},
        {"no-metrics", 0, CLI_FLAG, NULL, "disable /metrics", &o->no_metrics, 0, 0},
        {"slots", 0, CLI_FLAG, NULL, "accepted for compatibility; on by default", &s->slots, 0, 0},
        {"no-slots", 0, CLI_FLAG, NULL, "disable /slots", &o->no_slots, 0, 0},
        {"slot-save-path", 0, CLI_TEXT, "DIR",
         "directory where clients may save and restore slots (default: not allowed)", &o->slot_directory, 0,
         0},
        {"jinja", 0, CLI_FLAG, NULL, "accepted for compatibility; on by default", &s->jinja, 0, 0},
        {"image-urls", 0, CLI_FLAG, NULL,
         "fetch pictures that requests name by http: and https: addresses, from public addresses alone, up "
         "to 20 MB and 10 "
         "seconds each (default: they are refused)",
         &o->image_urls, 0, 0},
        {"no-ui", 0, CLI_FLAG, NULL, "do not serve the web page at /; also --no-webui", &o->no_page, 0, 0},
    };
    CLI_OPTIONS_ADD(to, table);
}

/* ---- What the options mean ---- */

/* Splits at commas. The words are never freed. NULL: not given. */
static const char *const *split(const char *text, const char **list)
{
    int n = 0;
    for (const char *at = text; at && *at && n < LIST_MAX - 1;) {
        const size_t length = strcspn(at, ", ");
        if (length > 0) {
            list[n] = strndup(at, length);
            n += list[n] != NULL;
        }
        at += length + (at[length] != '\0');
    }
    list[n] = NULL;
    return text ? list : NULL;
}

static bool is_one_of(const char *option, const char *word, const char *const *words)
{
    for (int i = 0; word && words[i]; i++) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    if (word) {
        fprintf(stderr, "moraine serve: --%s: unknown value %s; see moraine serve --help\n", option, word);
    }
    return !word;
}

/* Checks the defaults for answers, and reads the template. False after printing the error. */
static bool set_defaults(const model_settings *m, srv_defaults *out)
{
    static const char *const switches[] = {"on", "off", "auto", NULL};
    static const char *const formats[] = {"auto", "deepseek", "none", NULL};
    json_t *kwargs = out->template_kwargs ? json_loads(out->template_kwargs, 0, NULL) : NULL;
    const bool is_object = json_is_object(kwargs);
    json_decref(kwargs);
    if (out->template_kwargs && !is_object) {
        fprintf(stderr, "moraine serve: --chat-template-kwargs needs a JSON object\n");
        return false;
    }
    if (m->template_file) {
        size_t length;
        out->template_text =
            cli_read_file("serve", m->template_file, &length); /* lives as long as the process */
        if (!out->template_text) {
            return false;
        }
    }
    return cli_check_template(m->template_file ? "chat-template-file" : "chat-template",
                              out->template_text) &&
           cli_check_names("alias", m->spec.alias) && is_one_of("reasoning", out->reasoning, switches) &&
           is_one_of("reasoning-format", out->reasoning_format, formats);
}

static bool set_spec(const model_settings *m, const char *id, srv_model_spec *out)
{
    cli_loading loading = m->loading;
    *out = m->spec;
    out->id = id;
    out->context = loading.model.context;
    out->engine.between_s = (double)m->between_ms / 1000;
    out->engine.stalled_s = (double)m->stalled_s;
    out->engine.cache_bytes = m->cache_mib < 0 ? 0 : m->cache_mib == 0 ? -1 : m->cache_mib << 20;
    out->engine.cache_dir_bytes = m->cache_dir_mib << 20;
    const bool good = set_defaults(m, &out->defaults) && cli_loading_set("serve", &loading) &&
                      cli_images_find_encoder("serve", m->spec.path, CLI_ENCODER_IF_THERE, &loading);
    out->loading = loading.model;
    out->loading.chat_template = out->defaults.template_text;
    return good;
}

/* The encoder of a model in --models-dir. */
static const char *encoder_of(const void *user, const char *path)
{
    cli_loading loading = *(const cli_loading *)user;
    return cli_images_find_encoder("serve", path, CLI_ENCODER_IF_THERE, &loading) ? loading.model.mmproj
                                                                                  : NULL;
}

/* Adds the models of the configuration file. False after printing the error. */
static bool add_sections(const serve_settings *s, const model_settings *common, srv_model_spec *specs,
                         int *count)
{
    static cli_sections sections;           /* specs point into these two */
    static model_settings kept[MODELS_MAX]; /* see above */
    if (!cli_sections_read("serve", s->models_file, &sections)) {
        return false;
    }
    for (int i = 0; i < sections.count && *count < MODELS_MAX; i++) {
        model_settings *m = &kept[*count];
        cli_options options = {0};
        int first;
        *m = *common;
        m->spec.path = m->spec.alias = NULL;
        m->spec.alias_is_id = false; /* the section names it */
        add_model_options(&options, m);
        const cli_usage usage = {.command = "serve", .options = options.item, .option_count = options.count};
        if (cli_options_parse(&usage, sections.item[i].count, sections.item[i].words, &first) != -1) {
            fprintf(stderr, "moraine serve: in section [%s] of %s\n", sections.item[i].name, s->models_file);
            return false;
        }
        if (!m->spec.path) {
            fprintf(stderr, "moraine serve: %s: [%s] needs a line model = FILE\n", s->models_file,
                    sections.item[i].name);
            return false;
        }
        int code = CLI_OK;
        m->spec.path = cli_pulled_path("serve", m->spec.path, &code);
        if (!m->spec.path || !set_spec(m, sections.item[i].name, &specs[(*count)++])) {
            return false;
        }
    }
    return true;
}

/* Adds the pulled models if no model was named. False after printing the error. */
static bool add_pulled(const model_settings *common, srv_model_spec *specs, int *count)
{
    static cli_pulled list[MODELS_MAX];
    static model_settings kept[MODELS_MAX]; /* specs point into these */
    const int found = cli_pulled_all(list, MODELS_MAX);
    for (int i = 0; i < found; i++) {
        kept[i] = *common;
        kept[i].spec.path = list[i].path;
        kept[i].spec.alias = i == 0 ? common->spec.alias : NULL;
        fprintf(stderr, "model: %s (pulled)\n", list[i].name);
        if (!set_spec(&kept[i], list[i].name, &specs[(*count)++])) {
            return false;
        }
    }
    return true;
}

/* Many connections need more file descriptors than shells usually allow. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max == RLIM_INFINITY || files.rlim_max > 65536 ? 65536 : files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int pinned_count(const srv_model_spec *specs, int count)
{
    int pinned = 0;
    for (int i = 0; i < count; i++) {
        pinned += specs[i].pinned;
    }
    return pinned;
}

/* Adds the named models. Specs point into *m. */
static int add_named(model_settings *m, const model_settings *common, char **models, int model_count,
                     srv_model_spec *specs, int *count)
{
    int code = CLI_OK;
    for (int i = 0; i < model_count && *count < MODELS_MAX && code == CLI_OK; i++) {
        m->spec.path = cli_pulled_path("serve", models[i], &code);
        if (!m->spec.path) {
            return code;
        }
        const char *id =
            strcmp(m->spec.path, models[i]) == 0 ? NULL : models[i]; /* the name it was pulled by */
        m->spec.alias = i == 0 ? common->spec.alias : NULL;
        code = cli_check_model("serve", m->spec.path, &m->loading);
        if (code == CLI_OK && !set_spec(m, id, &specs[(*count)++])) {
            code = CLI_USAGE;
        }
    }
    return code;
}

/* Adds the models of the configuration file. If there are none at all, adds models found without a name. */
static int add_others(const serve_settings *s, model_settings *m, const model_settings *common,
                      srv_model_spec *specs, int *count)
{
    int code = CLI_OK;
    if (s->models_file && !add_sections(s, common, specs, count)) {
        return CLI_USAGE;
    }
    if (s->server.models.most > 0 && pinned_count(specs, *count) > s->server.models.most) {
        fprintf(stderr, "moraine serve: --models-max is %d, but %d models are pinned\n",
                s->server.models.most, pinned_count(specs, *count));
        return CLI_USAGE;
    }
    const char *named = getenv("MORAINE_MODEL");
    if (*count == 0 && !s->server.models.directory && !(named && *named) &&
        !add_pulled(common, specs, count)) {
        return CLI_USAGE;
    }
    if (*count == 0 && !s->server.models.directory) {
        m->spec.path = cli_model_path("serve", NULL, false, &code);
        m->spec.path = m->spec.path ? strdup(m->spec.path) : NULL;
        m->spec.alias = common->spec.alias;
        if (!m->spec.path || !set_spec(m, NULL, &specs[(*count)++])) {
            return code != CLI_OK ? code : CLI_USAGE;
        }
    }
    return CLI_OK;
}

static int run_server(const srv_server_options *o)
{
    srv_serving *serving = NULL;
    mo_error err = {0};
    mo_status status = srv_serving_open(o, &serving, &err);
    if (status == MO_OK) {
        status = srv_serving_run(serving, &err);
    }
    srv_serving_close(serving);
    if (status == MO_ECANCELLED) { /* a thread is still running and uses data that exit() would destroy */
        cli_say_error("serve", &err);
        _exit(CLI_FAILED);
    }
    if (status != MO_OK) {
        cli_say_error("serve", &err);
        return status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    return CLI_OK;
}

static int serve(const serve_settings *s, const model_settings *common, char **models, int model_count)
{
    static srv_model_spec specs[MODELS_MAX];
    static const char *origins[LIST_MAX], *hosts[LIST_MAX];
    const bool is_socket = strlen(s->host) > 5 && strcmp(s->host + strlen(s->host) - 5, ".sock") == 0;
    srv_server_options o = s->server;
    o.host = is_socket ? NULL : s->host;
    o.unix_path = is_socket ? s->host : o.unix_path;
    o.origins = split(s->origins, origins);
    o.hosts = split(s->hosts, hosts);
    o.heartbeat_ms = s->ping_s < 0 ? -1 : (int)s->ping_s * 1000;
    o.response_directory = common->spec.engine.cache_dir;
    if (!cli_check_origins(o.origins) || !cli_check_hosts(o.hosts) ||
        !cli_check_directory("models-dir", o.models.directory) ||
        !cli_check_directory("slot-save-path", o.slot_directory)) {
        return CLI_USAGE;
    }
    model_settings m = *common;
    int code = add_named(&m, common, models, model_count, specs, &o.models.count);
    code = code == CLI_OK ? add_others(s, &m, common, specs, &o.models.count) : code;
    if (code != CLI_OK) {
        return code;
    }
    o.models.specs = specs;
    if (s->warm) {
        size_t length;
        o.warm = cli_read_file("serve", s->warm, &length);
        if (!o.warm || !cli_check_request("warm", s->warm, o.warm)) {
            return CLI_FAILED;
        }
    }
    m.spec.path = m.spec.alias = NULL;
    o.models.encoder = encoder_of;
    o.models.encoder_user = &common->loading;
    return set_spec(&m, NULL, &o.models.others) ? run_server(&o) : CLI_USAGE;
}

static int check(const serve_settings *s)
{
    const srv_server_options *o = &s->server;
    if (!o->tls_certificate_path != !o->tls_key_path) {
        fprintf(stderr, "moraine serve: --ssl-cert-file and --ssl-key-file must be given together\n");
        return CLI_USAGE;
    }
    if (o->prefix && *o->prefix && (o->prefix[0] != '/' || o->prefix[strlen(o->prefix) - 1] == '/')) {
        fprintf(stderr,
                "moraine serve: --api-prefix must start with a slash and not end with one, as /llm\n");
        return CLI_USAGE;
    }
    return cli_serve_log(s->log_format, s->log_level) ? CLI_OK : CLI_USAGE;
}

int cli_serve(int argc, char **argv)
{
    static model_settings m;
    static serve_settings s;
    static char *words[CLI_SERVE_WORDS];
    cli_options options = {0};
    m = (model_settings){.spec = {.alias_is_id = true, .keep_s = -1, .defaults = srv_defaults_none()},
                         .loading = cli_loading_default(),
                         .cache_mib = -1};
    s = (serve_settings){.server = {.port = 8080, .connections = 1024, .body_bytes = 64 << 20, .grace_s = 30},
                         .host = "127.0.0.1",
                         .ping_s = 10,
                         .log_format = "text"};
    add_server_options(&options, &s);
    add_model_options(&options, &m);
    const cli_usage usage = {
        .command = "serve",
        .arguments = "[MODEL...]",
        .description = "Serves models over HTTP, compatible with clients for "
                       "the OpenAI, Anthropic, llama-server and Ollama APIs. "
                       "Concurrent requests share the engine's steps, and common "
                       "prompt prefixes are computed once. Options can also "
                       "be set in the environment, as LLAMA_ARG_CTX_SIZE for "
                       "--ctx-size. SIGTERM and Ctrl-C let running answers "
                       "finish and exit with 0; SIGHUP rereads the API keys. "
                       "Without MODEL, serves the model named by MORAINE_MODEL, "
                       "or else all pulled models, or else the built-in pebble.",
        .examples = "  moraine serve\n"
                    "  curl http://127.0.0.1:8080/v1/models\n"
                    "  moraine serve model.gguf --port 8000 --api-key secret --parallel 8 --ctx 16384\n"
                    "  moraine serve --models-dir ~/models --sleep-idle-seconds 600 --port 11434\n"
                    "  moraine serve model.gguf --host /run/user/1000/moraine.sock\n",
        .foreign = true,
        .options = options.item,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = MODELS_MAX,
    };
    int first;
    const int words_count = cli_serve_words(argc, argv, options.item, options.count, words);
    int code = cli_options_parse(&usage, words_count, words, &first);
    if (code >= 0) {
        return code;
    }
    code = check(&s);
    if (code != CLI_OK) {
        return code;
    }
    cli_idle_variables("serve", &m.loading, true);
    cli_serve_log_library();
    srv_fault_name_settings(cli_name_options);
    raise_file_limit();
    char *models[MODELS_MAX];
    int model_count = 0;
    if (m.spec.path) {
        models[model_count++] = (char *)m.spec.path;
    }
    for (int i = first; words[i] && model_count < MODELS_MAX; i++) {
        models[model_count++] = words[i];
    }
    if (cli_cluster() && model_count > 1) {
        fprintf(stderr, "moraine serve: several ranks serve exactly one model; name one\n");
        return CLI_USAGE;
    }
    if (cli_cluster_follows("serve", model_count ? models[0] : NULL, &m.loading, &code)) {
        return code;
    }
    return serve(&s, &m, models, model_count);
}
