/* The program: finds the subcommand and runs it. Uses only moraine.h. */
#include <moraine_server.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/learning.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "cli/welcome.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "answer a prompt", cli_run},
    {"chat", "chat with a model", cli_chat},
#ifdef MO_SERVER
    {"serve", "serve over HTTP, compatible with the OpenAI, Anthropic, llama-server and Ollama APIs",
     cli_serve},
#endif
    {"pull", "download a model from Hugging Face or another hub", cli_pull},
    {"list", "list pulled models; also ls", cli_list},
    {"rm", "remove pulled models", cli_rm},
    {"show", "show what a model is, in a few lines", cli_show},
    {"ps", "list the models that a running server has loaded", cli_ps},
    {"stop", "unload models of a running server", cli_stop},
    {"plan", "show where a model would be placed and how fast it would run, without loading it", cli_plan},
    {"probe", "measure the speed of memory, disk and GPU, for plans", cli_probe},
    {"trace", "record which experts the tokens of a text choose", cli_trace},
    {"replay", "replay a trace with different budgets and policies", cli_replay},
    {"bench", "measure prompt and generation speed", cli_bench},
    {"eval", "perplexity of texts, expert usage, saving and comparing logits", cli_eval},
    {"tokenize", "print the token ids of a text", cli_tokenize},
    {"template", "render chat templates: JSON lines in, JSON lines out", cli_template},
    {"inspect", "show the contents of a model file and the bytes read per token", cli_inspect},
    {"machine", "show cores, instruction sets and memory of this machine", cli_machine},
    {"doctor", "find what slows models down on this machine, and how to fix it", cli_doctor},
    {"quantize", "convert the weights of a model to other formats", cli_quantize},
    {"synth", "create a model file with a published model's shape and random weights", cli_synth},
};

#define COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *stream)
{
    fprintf(stream, "usage: moraine COMMAND [options] ...\n\n"
                    "Runs mixture-of-experts language models that are larger than GPU memory, and larger\n"
                    "than RAM.\n\nCommands\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        fprintf(stream, "  %-12s%s\n", commands[i].name, commands[i].help);
    }
    fprintf(
        stream,
        "\nOptions\n"
        "  -h, --help  print this help, or the options of a command, and exit\n"
        "  --version   print the version and the build features, and exit; also version\n\n"
        "Exit codes: 0 success, 1 failure, 2 wrong usage, 128+N ended by signal N (130: Ctrl-C,\n"
        "143: SIGTERM). Results go to stdout, everything else to stderr.\n"
        "Environment: MORAINE_MODEL is the model for commands that are given none (default: the built-in\n"
        "pebble); MORAINE_MODELS is the directory of pulled models; LLAMA_MOE_LAYER_PERF sets how\n"
        "expert usage is counted (full, update, off); LLAMA_POSTFETCH_* control the copies of experts\n"
        "to the GPU and LLAMA_MOE_HOT_CACHE_* the hot cache, see moraine(1);\n"
        "MORAINE_LOG is the log level on stderr (error, warning, note, debug; default:\n"
        "warning); NO_COLOR turns bold text off.\n");
}

static const char *const level_names[] = {"error", "warning", "note", "debug"};

static mo_log_level wanted_level(void)
{
    const char *wanted = getenv("MORAINE_LOG");
    for (int i = 0; wanted && i < (int)(sizeof level_names / sizeof *level_names); i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            return (mo_log_level)i;
        }
    }
    if (wanted && *wanted) {
        fprintf(stderr, "moraine: MORAINE_LOG is %s; it must be error, warning, note or debug\n", wanted);
    }
    return MO_LOG_WARN;
}

static void on_log(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    char said[2048];
    (void)user;
    snprintf(said, sizeof said, "%s", text);
    cli_name_options(said, sizeof said);
    if (cli_cluster_rank() > 0) {
        fprintf(stderr, "moraine: rank %d: %s: %s: %s\n", cli_cluster_rank(), level_names[level], subsystem,
                said);
        return;
    }
    fprintf(stderr, "moraine: %s: %s: %s\n", level_names[level], subsystem, said);
}

static const char *usual_command(const char *typed)
{
    static const char *const names[][2] = {
        {"cli", "run"},
        {"llama-cli", "run"},
        {"generate", "run"},
        {"complete", "run"},
        {"server", "serve"},
        {"llama-server", "serve"},
        {"start", "serve"},
        {"perplexity", "eval"},
        {"download", "pull"},
        {"get", "pull"},
        {"models", "list"},
        {"remove", "rm"},
        {"delete", "rm"},
        {"info", "show"},
        {"quantise", "quantize"},
        {"llama-bench", "bench"},
        {"benchmark", "bench"},
        {"llama-perplexity", "eval"},
        {"llama-quantize", "quantize"},
        {"llama-tokenize", "tokenize"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(typed, names[i][0]) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

/* What to use instead, if there is no such command. */
static const char *instead_of(const char *typed)
{
    static const char files[] =
        "models are .gguf files; moraine serve --models-file FILE gives them names and settings";
    static const char *const sentences[][2] = {
        {"create", files},
        {"cp", files},
        {"push", "models are downloaded here, not uploaded"},
        {"signin", "no account is needed; moraine pull takes a token from HF_TOKEN in the environment"},
        {"login", "no account is needed; moraine pull takes a token from HF_TOKEN in the environment"},
    };
    const size_t length = strlen(typed);
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
        if (strcmp(typed, sentences[i][0]) == 0) {
            return sentences[i][1];
        }
    }
    return length > 5 && strcmp(typed + length - 5, ".gguf") == 0
               ? "a command comes before the model, such as moraine run MODEL -p TEXT"
               : NULL;
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) {
            return commands[i].run(argc, argv);
        }
    }
    if (strcmp(argv[0], "ls") == 0) {
        return cli_list(argc, argv);
    }
    mo_nearest nearest = {.word = argv[0], .length = strlen(argv[0])};
    for (size_t i = 0; i < COMMANDS; i++) {
        mo_nearest_offer(&nearest, commands[i].name);
    }
    const char *usual = usual_command(argv[0]), *instead = instead_of(argv[0]);
    if (instead) {
        fprintf(stderr, "moraine: unknown command %s: %s. See moraine --help\n", argv[0], instead);
    } else if (usual || nearest.best) {
        fprintf(stderr, "moraine: unknown command %s; did you mean %s? See moraine --help\n", argv[0],
                usual ? usual : nearest.best);
    } else {
        fprintf(stderr, "moraine: unknown command %s; see moraine --help\n", argv[0]);
    }
    return CLI_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        cli_welcome_print();
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "help") == 0) {
        char *words[] = {argv[2], "--help", NULL};
        return run_command(2, words);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        cli_version_print();
        return CLI_OK;
    }
    if (argv[1][0] == '-') {
        fprintf(
            stderr,
            "moraine: unknown option %s; a command comes first, such as moraine run %s. See moraine --help\n",
            argv[1], argv[1]);
        return CLI_USAGE;
    }
    return run_command(argc - 1, argv + 1);
}

/* If a standard stream was closed at start, a newly opened file would get its number, and messages would be
   written to the file. Writing to closed standard output still fails. */
static void occupy_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            const int got = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
            (void)got; /* the lowest free number is fd */
        }
    }
}

int main(int argc, char **argv)
{
    occupy_standard_files();
    cli_signals_catch(argc > 1 && strcmp(argv[1], "chat") == 0);
    mo_log_set(on_log, NULL, wanted_level());
    const bool joined = argc < 2 || cli_cluster_begin(argv[1]);
    int code = joined ? cli_cluster_end(cli_learning_code(run(argc, argv))) : CLI_FAILED;
    code = cli_stdout_finish() ? code : code == CLI_OK ? CLI_FAILED : code;
    return cli_interrupt_code(code);
}
