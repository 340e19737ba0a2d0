/* moraine eval: perplexity of a text, logits to a file, and how far they are from saved ones. */
#include <moraine.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "loading.h"
#include "terminal.h"

typedef struct evaluation {
    const int32_t *tokens;
    int64_t count, vocab;
    FILE *save, *base; /* rows written; rows compared with; either may be NULL */
    const char *save_path, *base_path;
    float *base_row;
    bool failed;

    double loss; /* sum of -ln p(next token) */
    int64_t predicted;
    double divergence, divergence_max; /* KL from the saved distribution to this one */
    int64_t compared, same_top;
    cli_progress progress;
} evaluation;

/* ln of the sum of exp(row - max), and the max: the normaliser of a row of logits, in double precision. */
static double normaliser(const float *row, int64_t n, int64_t *top)
{
    double sum = 0.0;
    *top = 0;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[*top]) {
            *top = i;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)row[i] - (double)row[*top]);
    }
    return log(sum) + /* cppcheck-suppress invalidFunctionArg ; at least exp(0) */ (double)row[*top];
}

static void compare(evaluation *e, const float *row, double norm, int64_t top)
{
    int64_t base_top;
    double divergence = 0.0;
    if (fread(e->base_row, sizeof(float), (size_t)e->vocab, e->base) != (size_t)e->vocab) {
        fprintf(stderr, "moraine eval: %s ends after %" PRId64 " rows of %" PRId64 " logits\n", e->base_path,
                e->compared, e->vocab);
        e->failed = true;
        return;
    }
    const double base_norm = normaliser(e->base_row, e->vocab, &base_top);
    for (int64_t i = 0; i < e->vocab; i++) {
        const double p = (double)e->base_row[i] - base_norm;
        divergence += exp(p) * (p - ((double)row[i] - norm));
    }
    e->divergence += divergence;
    e->divergence_max = fmax(e->divergence_max, divergence);
    e->same_top += base_top == top;
    e->compared++;
}

static void on_row(void *user, int64_t position, const float *row)
{
    evaluation *e = user;
    int64_t top;
    if (e->failed) {
        return;
    }
    if (e->save && fwrite(row, sizeof(float), (size_t)e->vocab, e->save) != (size_t)e->vocab) {
        fprintf(stderr, "moraine eval: cannot write %s: %s\n", e->save_path, strerror(errno));
        e->failed = true;
        return;
    }
    const double norm = normaliser(row, e->vocab, &top);
    if (position + 1 < e->count) {
        e->loss += norm - (double)row[e->tokens[position + 1]];
        e->predicted++;
    }
    if (e->base) {
        compare(e, row, norm, top);
    }
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    evaluation *e = user;
    (void)total;
    cli_progress_update(&e->progress, (uint64_t)done);
    return !e->failed && !cli_interrupted();
}

/* Ids separated by white space. NULL after saying what is wrong. */
static int32_t *read_ids(const char *path, int64_t *count)
{
    size_t length;
    char *text = cli_read_file("eval", path, &length);
    int32_t *ids = text ? malloc(sizeof *ids * (length / 2 + 1)) : NULL;
    char *at = text;
    *count = 0;
    if (!ids) {
        free(text);
        return NULL;
    }
    for (;;) {
        char *end;
        at += strspn(at, " \t\r\n");
        if (*at == '\0') {
            break;
        }
        errno = 0;
        const long value = strtol(at, &end, 10);
        if (end == at || errno || value < 0 || value > INT32_MAX || !strchr(" \t\r\n", *end)) {
            fprintf(stderr, "moraine eval: %s: '%.20s' is no token id\n", path, at);
            free(ids);
            free(text);
            return NULL;
        }
        ids[(*count)++] = (int32_t)value;
        at = end;
    }
    free(text);
    if (*count == 0) {
        fprintf(stderr, "moraine eval: %s has no token ids\n", path);
        free(ids);
        ids = NULL;
    }
    return ids;
}

static int32_t *tokens_of_text(const mo_model *model, const char *path, int64_t *count)
{
    size_t length, n;
    int32_t *ids = NULL;
    mo_error err;
    char *text = cli_read_file("eval", path, &length);
    if (text && mo_tokenise(model, text, length, MO_TOKEN_SPECIAL, &ids, &n, &err) != MO_OK) {
        fprintf(stderr, "moraine eval: %s\n", err.detail);
        ids = NULL;
    } else if (text) {
        *count = (int64_t)n;
    }
    free(text);
    return ids;
}

static bool open_files(evaluation *e)
{
    if (e->save_path && !(e->save = fopen(e->save_path, "wb"))) {
        fprintf(stderr, "moraine eval: cannot write %s: %s\n", e->save_path, strerror(errno));
        return false;
    }
    if (e->base_path && !(e->base = fopen(e->base_path, "rb"))) {
        fprintf(stderr, "moraine eval: cannot read %s: %s\n", e->base_path, strerror(errno));
        return false;
    }
    e->base_row = malloc(sizeof(float) * (size_t)e->vocab);
    return e->base_row != NULL;
}

/* The text in windows of the context: each is a sequence of its own. */
static bool evaluate(evaluation *e, mo_session *session, int64_t window, int64_t step)
{
    mo_error err;
    const int32_t *tokens = e->tokens;
    const int64_t total = e->count;
    cli_progress_begin(&e->progress, "evaluating", (uint64_t)total);
    e->progress.tokens = true;
    for (int64_t at = 0; at < total && !e->failed; at += window) {
        e->tokens = tokens + at;
        e->count = total - at < window ? total - at : window;
        const mo_feed feed = {.session = session,
                              .tokens = e->tokens,
                              .count = e->count,
                              .step = step,
                              .progress = on_progress,
                              .logits = on_row,
                              .user = e};
        if (mo_session_feed(&feed, &err) != MO_OK) {
            cli_progress_end(&e->progress);
            fprintf(stderr, "moraine eval: %s\n", err.detail);
            return false;
        }
    }
    cli_progress_end(&e->progress);
    if (e->save && fclose(e->save) != 0) {
        fprintf(stderr, "moraine eval: cannot write %s: %s\n", e->save_path, strerror(errno));
        e->failed = true;
    }
    e->save = NULL;
    return !e->failed;
}

static int print_results(const evaluation *e, int64_t tokens, bool json)
{
    const double perplexity = e->predicted ? exp(e->loss / (double)e->predicted) : 0.0;
    if (json) {
        json_t *root = json_pack("{s:I,s:I,s:f}", "tokens", (json_int_t)tokens, "predicted",
                                 (json_int_t)e->predicted, "perplexity", perplexity);
        if (root && e->base) {
            json_object_set_new(root, "kl_divergence", json_real(e->divergence / (double)e->compared));
            json_object_set_new(root, "kl_divergence_max", json_real(e->divergence_max));
            json_object_set_new(root, "same_top_1", json_real((double)e->same_top / (double)e->compared));
        }
        return cli_json_print(root);
    }
    printf("tokens          %" PRId64 "\n", tokens);
    if (e->predicted) {
        printf("perplexity      %.4f\n", perplexity);
    }
    if (e->base) {
        printf("KL divergence   %.3e (largest %.3e)\n", e->divergence / (double)e->compared,
               e->divergence_max);
        printf("same top token  %.2f %%\n", 100.0 * (double)e->same_top / (double)e->compared);
    }
    return CLI_OK;
}

static int run(const char *path, const char *text_path, const char *ids_path, const cli_loading *l,
               evaluation *e, bool json)
{
    mo_kv_type kv;
    int code = CLI_FAILED;
    int32_t *ids = NULL;
    mo_session *session = NULL;
    mo_error err;
    mo_model_info info;
    cli_loading settings = *l;
    if (!cli_loading_kv("eval", l, &kv)) {
        return CLI_USAGE;
    }
    if (ids_path && !(ids = read_ids(ids_path, &e->count))) {
        return CLI_FAILED;
    }
    if (ids && !settings.context) {
        settings.context = e->count; /* a list of ids is one sequence */
    }
    mo_model *model = cli_loading_open("eval", path, &settings, &code);
    if (!model) {
        free(ids);
        return code;
    }
    mo_model_describe(model, &info);
    if (!ids) {
        ids = tokens_of_text(model, text_path, &e->count);
    }
    const int64_t total = e->count;
    e->tokens = ids;
    e->vocab = info.vocab;
    if (ids && total == 0) {
        fprintf(stderr, "moraine eval: %s is empty\n", text_path);
    } else if (ids && open_files(e)) {
        if (mo_session_create(model, kv, 0, &session, &err) != MO_OK) {
            fprintf(stderr, "moraine eval: %s\n", err.detail);
        } else if (evaluate(e, session, info.context, l->batch)) {
            code = print_results(e, total, json);
        }
    }
    mo_session_destroy(session);
    mo_model_close(model);
    free(ids);
    free(e->base_row);
    if (e->save) {
        fclose(e->save);
    }
    if (e->base) {
        fclose(e->base);
    }
    return code;
}

int cli_eval(int argc, char **argv)
{
    cli_loading l = CLI_LOADING_DEFAULT;
    evaluation e = {0};
    const char *ids = NULL;
    bool json = false;
    const cli_option options[] = {
        {"tokens", 0, CLI_TEXT, "FILE", "token ids separated by white space, instead of a text", &ids, 0, 0},
        {"save-logits", 0, CLI_TEXT, "FILE",
         "write the logits of every position: little-endian float32, one row after the other", &e.save_path,
         0, 0},
        {"compare", 0, CLI_TEXT, "FILE",
         "saved logits of the same tokens: print the KL divergence from them and the share of equal top "
         "tokens",
         &e.base_path, 0, 0},
        {"json", 'j', CLI_FLAG, NULL, "print JSON", &json, 0, 0},
        CLI_LOADING_OPTIONS(l),
    };
    const cli_usage usage = {
        .command = "eval",
        .arguments = "MODEL [TEXT]",
        .description =
            "Prints the perplexity of a text, cut into pieces of the context (--ctx), or of a list of "
            "token ids. A model without a vocabulary can be given ids.",
        .examples = "  moraine eval model.gguf book.txt\n"
                    "  moraine eval model.gguf --tokens ids.txt --save-logits exact.f32 --kv f32\n"
                    "  moraine eval model-q4.gguf --tokens ids.txt --compare exact.f32\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 1,
        .max_arguments = 2,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    const char *text = first + 1 < argc ? argv[first + 1] : NULL;
    if ((text != NULL) == (ids != NULL)) {
        fprintf(stderr, "moraine eval: give either a text file or --tokens FILE\n");
        return CLI_USAGE;
    }
    return run(argv[first], text, ids, &l, &e, json);
}
