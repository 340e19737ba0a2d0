/* moraine eval: perplexity of texts, expert usage, writing logits, and comparing them with saved ones. */
#include <moraine_server.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/default_model.h"
#include "cli/infile.h"
#include "cli/learning.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/outfile.h"
#include "cli/print/json.h"
#include "cli/print/routing.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/signals.h"

/* one text may be an argument without --text */
enum { WINDOW_DEFAULT = 512, PASSAGES_MAX = CLI_TEXTS_MAX + 1 };

/* A text or a list of ids, and its results. */
typedef struct passage {
    const char *path;
    int32_t *tokens;
    int64_t count;
    double loss; /* sum of -ln p(next token) */
    int64_t predicted;
    cli_routing *routing; /* NULL: not requested */
} passage;

typedef struct evaluation {
    passage passages[PASSAGES_MAX];
    int passage_count;
    int64_t window, vocab;
    cli_outfile save; /* logits to write, if requested */
    FILE *base;       /* logits to compare with, or NULL */
    const char *save_path, *base_path;
    float *base_row;
    bool routing, json, failed;

    /* The current window. */
    passage *at;
    const int32_t *tokens;
    int64_t count;

    double divergence, divergence_max; /* KL divergence from the saved distribution to this one */
    int64_t compared, same_top;
    int64_t done; /* tokens in earlier windows */
    cli_progress progress;
} evaluation;

/* The logarithm of the sum of exp(row - max), plus max: the normalizer of a row of logits. */
static double normalizer(const float *row, int64_t n, int64_t *top)
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
    const double base_norm = normalizer(e->base_row, e->vocab, &base_top);
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
    if (e->save.stream && !cli_outfile_write(&e->save, row, sizeof(float) * (size_t)e->vocab)) {
        e->failed = true;
        return;
    }
    const double norm = normalizer(row, e->vocab, &top);
    if (position + 1 < e->count) {
        e->at->loss += norm - (double)row[e->tokens[position + 1]];
        e->at->predicted++;
    }
    if (e->base) {
        compare(e, row, norm, top);
    }
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    evaluation *e = user;
    (void)total;
    cli_progress_update(&e->progress, (uint64_t)(e->done + done));
    return !e->failed && !cli_interrupted();
}

static void on_routes(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                      int used)
{
    const evaluation *e = user;
    cli_routing_observe(e->at->routing, layer, position, ids, weights, used);
}

/* Reads ids separated by white space. NULL after printing the error. */
static int32_t *read_ids(const char *path, int64_t *count)
{
    size_t length;
    char *text = cli_read_file("eval", path, &length);
    int32_t *ids = text ? malloc(sizeof *ids * (length / 2 + 1)) : NULL;
    char *at = text;
    *count = 0;
    if (ids && memchr(text, 0, length)) {
        fprintf(stderr, "moraine eval: %s is not a text: it contains a NUL byte\n", path);
        free(ids);
        ids = NULL;
    }
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
            fprintf(stderr, "moraine eval: %s: '%.20s' is not a token id\n", path, at);
            free(ids);
            free(text);
            return NULL;
        }
        ids[(*count)++] = (int32_t)value;
        at = end;
    }
    free(text);
    if (*count == 0) {
        fprintf(stderr, "moraine eval: %s contains no token ids\n", path);
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
    if (text && mo_tokenize(model, text, length, MO_TOKEN_SPECIAL, &ids, &n, &err) != MO_OK) {
        cli_say_error("eval", &err);
        ids = NULL;
    } else if (text) {
        *count = (int64_t)n;
    }
    free(text);
    return ids;
}

/* Compares the numbers of rows and tokens. For a pipe or device this is only known at the end. */
static bool check_rows(const evaluation *e)
{
    struct stat st;
    int64_t rows = 0;
    for (int i = 0; i < e->passage_count; i++) {
        rows += e->passages[i].count;
    }
    const int64_t bytes = rows * e->vocab * (int64_t)sizeof(float);
    if (fstat(fileno(e->base), &st) == 0 && S_ISREG(st.st_mode) && st.st_size != bytes) {
        fprintf(stderr,
                "moraine eval: --compare %s has %" PRId64 " bytes, but %" PRId64 " rows of %" PRId64
                " logits need %" PRId64 "; it was saved for other tokens or another vocabulary\n",
                e->base_path, (int64_t)st.st_size, rows, e->vocab, bytes);
        return false;
    }
    return true;
}

static bool open_files(evaluation *e)
{
    if (e->base_path && !(e->base = fopen(e->base_path, "rb"))) {
        fprintf(stderr, "moraine eval: cannot read %s: %s\n", e->base_path, strerror(errno));
        return false;
    }
    e->base_row = malloc(sizeof(float) * (size_t)e->vocab);
    return e->base_row && (!e->base || check_rows(e)) &&
           (!e->save_path || cli_outfile_open(&e->save, "eval", e->save_path));
}

/* Is the file of saved logits at its end? */
static bool base_ended(const evaluation *e)
{
    if (e->base && fgetc(e->base) != EOF) {
        fprintf(stderr, "moraine eval: %s has more than %" PRId64 " rows of %" PRId64 " logits\n",
                e->base_path, e->compared, e->vocab);
        return false;
    }
    return true;
}

/* ---- Running ------------------------------------------------------------------------------------ */

/* Uses a new session for every window: an older one would keep a common beginning and not report it. */
static bool evaluate_window(evaluation *e, mo_model *model, mo_kv_type kv, int64_t step)
{
    mo_error err;
    mo_session *session = NULL;
    mo_status status = mo_session_open(
        model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv, .context = e->window},
        &session, &err);
    if (status == MO_OK) {
        const mo_feed feed = {.size = sizeof(mo_feed),
                              .session = session,
                              .tokens = e->tokens,
                              .count = e->count,
                              .step = step,
                              .progress = on_progress,
                              .logits = on_row,
                              .routes = e->at->routing ? on_routes : NULL,
                              .user = e};
        status = cli_feed(&feed, &err);
    }
    mo_session_close(session);
    if (status != MO_OK && !e->failed && !cli_interrupted()) { /* otherwise the error was printed already */
        cli_progress_end(&e->progress);
        cli_say_error("eval", &err);
    }
    return status == MO_OK && !e->failed;
}

static bool evaluate(evaluation *e, mo_model *model, mo_kv_type kv, int64_t step)
{
    int64_t total = 0;
    bool ok = true;
    for (int i = 0; i < e->passage_count; i++) {
        total += e->passages[i].count;
    }
    cli_progress_begin(&e->progress, "evaluating", (uint64_t)total);
    e->progress.tokens = true;
    for (int i = 0; i < e->passage_count && ok; i++) {
        e->at = &e->passages[i];
        for (int64_t from = 0; from < e->at->count && ok; from += e->window) {
            const int64_t left = e->at->count - from;
            e->tokens = e->at->tokens + from;
            e->count = left < e->window ? left : e->window;
            ok = evaluate_window(e, model, kv, step);
            e->done += e->count;
        }
        cli_learning_done("eval", model);
    }
    cli_progress_end(&e->progress);
    ok = ok && base_ended(e);
    return cli_outfile_close(&e->save, ok) && ok;
}

/* ---- Results ------------------------------------------------------------------------------------ */

static double perplexity_of(const passage *p)
{
    return exp(p->loss / (double)p->predicted);
}

static json_t *perplexity_json(const passage *p)
{
    return p->predicted ? json_real(perplexity_of(p)) : json_null();
}

static passage sum_of(const evaluation *e)
{
    passage sum = {.path = "all"};
    for (int i = 0; i < e->passage_count; i++) {
        sum.count += e->passages[i].count;
        sum.predicted += e->passages[i].predicted;
        sum.loss += e->passages[i].loss;
    }
    return sum;
}

static json_t *passage_json(const passage *p)
{
    json_t *o =
        json_pack("{s:o,s:I,s:I,s:o}", "path", cli_json_string(p->path), "tokens", (json_int_t)p->count,
                  "predicted", (json_int_t)p->predicted, "perplexity", perplexity_json(p));
    if (o && p->routing) {
        json_object_set_new(o, "routing", cli_routing_json(p->routing));
    }
    return o;
}

static json_t *overlap_json(const passage *a, const passage *b)
{
    json_t *layers = json_array();
    double share;
    for (int i = 0; (share = cli_routing_overlap(a->routing, b->routing, i)) >= 0.0; i++) {
        json_array_append_new(layers, json_real(share));
    }
    return json_pack("{s:o,s:o,s:f,s:o}", "a", cli_json_string(a->path), "b", cli_json_string(b->path),
                     "mean", cli_routing_overlap_mean(a->routing, b->routing), "layers", layers);
}

static int print_json(const evaluation *e)
{
    const passage all = sum_of(e);
    json_t *texts = json_array(), *overlap = json_array();
    json_t *root = json_pack("{s:I,s:I,s:o,s:I,s:o}", "tokens", (json_int_t)all.count, "predicted",
                             (json_int_t)all.predicted, "perplexity", perplexity_json(&all), "window",
                             (json_int_t)e->window, "texts", texts);
    for (int i = 0; i < e->passage_count; i++) {
        json_array_append_new(texts, passage_json(&e->passages[i]));
        for (int k = i + 1; k < e->passage_count && e->routing; k++) {
            json_array_append_new(overlap, overlap_json(&e->passages[i], &e->passages[k]));
        }
    }
    if (root && e->routing) {
        json_object_set(root, "overlap", overlap);
    }
    json_decref(overlap);
    if (root && e->base) {
        json_object_set_new(root, "kl_divergence", json_real(e->divergence / (double)e->compared));
        json_object_set_new(root, "kl_divergence_max", json_real(e->divergence_max));
        json_object_set_new(root, "same_top_1", json_real((double)e->same_top / (double)e->compared));
    }
    return cli_json_print(root);
}

static void print_passage(const passage *p)
{
    char score[32] = "none";
    if (p->predicted) {
        snprintf(score, sizeof score, "%.4f", perplexity_of(p));
    }
    printf("%10" PRId64 "  %10" PRId64 "  %10s  %s\n", p->count, p->predicted, score, p->path);
}

static void print_routing(const evaluation *e)
{
    for (int i = 0; i < e->passage_count; i++) {
        printf("\nrouting of %s\n", e->passages[i].path);
        cli_routing_print(e->passages[i].routing);
    }
    if (e->passage_count < 2) {
        return;
    }
    printf("\nshare of the picks that two texts have in common, averaged over layers\n");
    for (int i = 0; i < e->passage_count; i++) {
        for (int k = 0; k < e->passage_count; k++) {
            printf("%6.1f %%",
                   100.0 * cli_routing_overlap_mean(e->passages[i].routing, e->passages[k].routing));
        }
        printf("  %s\n", e->passages[i].path);
    }
}

static void print_tables(const evaluation *e)
{
    const passage all = sum_of(e);
    if (e->passage_count > 1) {
        printf("%10s  %10s  %10s  %s\n", "tokens", "scored", "perplexity", "text");
        for (int i = 0; i < e->passage_count; i++) {
            print_passage(&e->passages[i]);
        }
        print_passage(&all);
        printf("windows         of %" PRId64 " tokens, the first of each not scored\n", e->window);
    } else {
        printf("tokens          %" PRId64 ", in windows of %" PRId64 "\n", all.count, e->window);
        if (all.predicted) {
            printf("perplexity      %.4f over the %" PRId64 " scored tokens\n", perplexity_of(&all),
                   all.predicted);
        } else {
            printf("perplexity      none: every token is the first of its window and not scored\n");
        }
    }
    if (e->base) {
        printf("KL divergence   %.3e (largest %.3e)\n", e->divergence / (double)e->compared,
               e->divergence_max);
        printf("same top token  %.2f %%\n", 100.0 * (double)e->same_top / (double)e->compared);
    }
    if (e->routing) {
        print_routing(e);
    }
}

/* ---- Command ------------------------------------------------------------------------------------ */

/* Tokenizes the texts (a list of ids has been read before) and prepares the statistics. */
static bool prepare(evaluation *e, const mo_model *model)
{
    for (int i = 0; i < e->passage_count; i++) { /* NOLINT(clang-analyzer-unix.Malloc): closed later */
        passage *p = &e->passages[i];
        if (!p->tokens && !(p->tokens = tokens_of_text(model, p->path, &p->count))) {
            return false;
        }
        if (p->count == 0) {
            fprintf(stderr, "moraine eval: %s is empty\n", p->path);
            return false;
        }
        if (e->routing && !(p->routing = cli_routing_open("eval", model))) {
            return false;
        }
    }
    return open_files(e);
}

static void evaluation_close(evaluation *e)
{
    for (int i = 0; i < PASSAGES_MAX; i++) { /* unused entries are zero */
        free(e->passages[i].tokens);
        cli_routing_close(e->passages[i].routing);
    }
    free(e->base_row);
    cli_outfile_close(&e->save, false);
    if (e->base) {
        fclose(e->base);
    }
}

static bool files_fit(const evaluation *e, const char *ids_path)
{
    for (int i = 0; !ids_path && i < e->passage_count; i++) {
        if (!cli_check_readable("eval", "text", e->passages[i].path)) {
            return false;
        }
    }
    return cli_check_readable("eval", "--compare", e->base_path) &&
           cli_check_writable("eval", "--save-logits", e->save_path);
}

static int run(const char *path, const char *ids_path, const cli_loading *l, evaluation *e)
{
    int code = CLI_FAILED;
    mo_model_info info;
    cli_loading settings = *l;
    settings.model.all_logits = true;
    if (!cli_loading_set("eval", &settings)) {
        return CLI_USAGE;
    }
    if (ids_path) {
        passage *p = &e->passages[e->passage_count++];
        p->path = ids_path;
        p->tokens = read_ids(ids_path, &p->count);
        if (!p->tokens) {
            return CLI_FAILED;
        }
        if (!e->window) { /* a list of ids is one sequence by default */
            e->window = l->model.context ? l->model.context : p->count;
        }
    }
    if (!settings.model.context) {
        settings.model.context = e->window;
        settings.own_context = true;
    }
    settings.vocabulary = !ids_path;
    if (!files_fit(e, ids_path)) {
        return CLI_FAILED;
    }
    mo_model *model = cli_loading_open("eval", path, &settings, &code);
    if (!model) {
        return code;
    }
    mo_model_describe(model, &info, sizeof info);
    e->vocab = info.vocab;
    if (!e->window) {
        e->window = l->model.context || info.context < WINDOW_DEFAULT ? info.context : WINDOW_DEFAULT;
    }
    if (prepare(e, model) && evaluate(e, model, settings.model.kv, settings.model.batch)) {
        code = CLI_OK;
        if (e->json) {
            code = print_json(e);
        } else {
            print_tables(e);
        }
    }
    cli_tiers_left_out("eval", model);
    mo_model_close(model);
    return code;
}

static bool check_request(const char *ids, const evaluation *e, const cli_loading *l)
{
    if ((e->passage_count > 0) == (ids != NULL)) {
        fprintf(stderr, "moraine eval: give either text files (--text FILE) or --tokens FILE\n");
        return false;
    }
    if (e->window && l->model.context && e->window > l->model.context) {
        fprintf(stderr, "moraine eval: a window of %" PRId64 " tokens does not fit into --ctx %" PRId64 "\n",
                e->window, l->model.context);
        return false;
    }
    return true;
}

int cli_eval(int argc, char **argv)
{
    cli_loading l = cli_loading_default();
    cli_texts texts = {.count = 0};
    const char *ids = NULL;
    evaluation e = {.window = 0};
    const cli_option own[] = {
        {"text", 0, CLI_TEXTS, "FILE", "text to evaluate; may be repeated", &texts, 0, 0},
        {"tokens", 0, CLI_TEXT, "FILE", "whitespace-separated token ids instead of a text", &ids, 0, 0},
        {"window", 'w', CLI_INTEGER, "N",
         "split each text into windows of N tokens, "
         "each with an empty context (default: "
         "--ctx, or 512; token ids are one window)",
         &e.window, 1, 16777216},
        {"routing", 0, CLI_FLAG, NULL,
         "print expert usage per layer: picks, entropy, the "
         "share of picks that the most used quarter of the "
         "experts takes and the share that the next token "
         "picks again; for several texts also their similarity",
         &e.routing, 0, 0},
        {"save-logits", 0, CLI_TEXT, "FILE",
         "write the logits of every position as rows of little-endian float32", &e.save_path, 0, 0},
        {"compare", 0, CLI_TEXT, "FILE",
         "compare with saved logits of the same tokens: KL divergence and share of equal top "
         "tokens",
         &e.base_path, 0, 0},
        {"json", 'j', CLI_FLAG, NULL, "print JSON", &e.json, 0, 0},
    };
    cli_options options = {0};
    CLI_OPTIONS_ADD(&options, own);
    cli_loading_options(&options, &l);
    cli_learning_options(&options, &l);
    const cli_usage usage = {
        .command = "eval",
        .arguments = "[MODEL] [TEXT]",
        .description = "Prints the perplexity of texts or token ids in "
                       "windows; the first token of each window is not scored. "
                       "Models without a vocabulary accept token ids only." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine eval model.gguf book.txt\n"
                    "  moraine eval --text story.txt --text program.c --routing\n"
                    "  moraine eval model.gguf --tokens ids.txt --save-logits exact.f32 --kv f32\n"
                    "  moraine eval model-q4.gguf --tokens ids.txt --compare exact.f32\n",
        .options = options.item,
        .foreign = true,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = 2,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    for (argc = first; argv[argc]; argc++) { /* translating llama.cpp's options may have removed words */
    }
    /* A single argument is the text if there is no other and it does not look like a model. */
    const bool alone = argc - first == 1 && texts.count == 0 && !ids && !cli_model_name(argv[first]);
    if (cli_cluster_follows("eval", alone ? NULL : argv[first], &l, &code)) {
        return code;
    }
    if (argc - first == 2 || alone) {
        e.passages[e.passage_count++].path = argv[argc - 1];
    }
    for (int i = 0; i < texts.count; i++) {
        e.passages[e.passage_count++].path = texts.item[i];
    }
    if (!check_request(ids, &e, &l)) {
        return CLI_USAGE;
    }
    const char *path = cli_model_path("eval", alone ? NULL : argv[first], e.json, &code);
    code = path ? run(path, ids, &l, &e) : code;
    evaluation_close(&e);
    return code;
}
