/* moraine replay: hits of a recorded trace with other budgets and policies. */
#include <moraine_server.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check.h"
#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

enum { BUDGETS_MAX = 32, POLICIES_MAX = 16 };

#define OPTIMUM "optimum"

typedef struct row {
    const char *policy;
    int64_t budget;
    mo_replay_report result;
} row;

typedef struct request {
    const char *path, *warm, *budgets, *policies, *rates, *svg, *heat;
    int64_t step;
    bool json;
    /* Parsed options: */
    int64_t budget[BUDGETS_MAX];
    int budget_count;
    const char *policy[POLICIES_MAX]; /* the library's constants */
    int policy_count;
} request;

/* ---- Lists of budgets and policies -------------------------------------------------------------- */

static bool say(const mo_error *err)
{
    cli_say_error("replay", err);
    return false;
}

/* Reads "25%" of all experts' bytes, or "6G". */
static bool read_budget(const char *text, int64_t all, int64_t *out)
{
    char *end;
    uint64_t bytes;
    const double percent = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0 && percent > 0.0 && percent <= 100.0) {
        *out = (int64_t)(percent / 100.0 * (double)all);
        return true;
    }
    if (!cli_size_parse(text, &bytes) || bytes == 0) {
        fprintf(stderr, "moraine replay: --budget %s: expected a share such as 25%% or a size such as 6G\n",
                text);
        return false;
    }
    *out = bytes > (uint64_t)all ? all : (int64_t)bytes; /* larger budgets make no difference */
    return true;
}

static const char *policy_at(int index)
{
    const char *summary;
    return mo_policy_name(index, &summary);
}

static const char *known_policy(const char *name)
{
    for (int i = 0; policy_at(i); i++) {
        if (strcmp(name, policy_at(i)) == 0) {
            return policy_at(i);
        }
    }
    return strcmp(name, OPTIMUM) == 0 ? OPTIMUM : NULL;
}

static bool add_policy(request *r, const char *name)
{
    const char *known = known_policy(name);
    if (!known) {
        fprintf(stderr, "moraine replay: unknown policy %s; choose all, " OPTIMUM, name);
        for (int i = 0; policy_at(i); i++) {
            fprintf(stderr, ", %s", policy_at(i));
        }
        fputc('\n', stderr);
        return false;
    }
    for (int i = 0; i < r->policy_count; i++) {
        if (strcmp(r->policy[i], known) == 0) {
            return true;
        }
    }
    r->policy[r->policy_count++] = known;
    return true;
}

static bool read_lists(request *r, int64_t all)
{
    char *copy = strdup(r->budgets), *rest = copy, *word;
    bool ok = copy != NULL;
    while (ok && (word = strsep(&rest, ","))) {
        if (r->budget_count == BUDGETS_MAX) {
            fprintf(stderr, "moraine replay: at most %d budgets are allowed\n", BUDGETS_MAX);
            ok = false;
        } else {
            ok = read_budget(word, all, &r->budget[r->budget_count++]);
        }
    }
    free(copy);
    copy = rest = ok ? strdup(r->policies) : NULL;
    while (copy && ok && (word = strsep(&rest, ","))) {
        for (int i = 0; strcmp(word, "all") == 0 && policy_at(i); i++) {
            add_policy(r, policy_at(i));
        }
        ok = strcmp(word, "all") == 0 || add_policy(r, word);
    }
    free(copy);
    return ok && add_policy(r, OPTIMUM);
}

/* ---- Results ------------------------------------------------------------------------------------ */

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

static double hit_rate(const mo_replay_report *r, int phase)
{
    if (phase >= 0) {
        return share(r->phase[phase].hits, r->phase[phase].needed);
    }
    return share(r->phase[0].hits + r->phase[1].hits, r->phase[0].needed + r->phase[1].needed);
}

/* The phase to report per token: generation, if there is any. */
static const mo_replay_phase *main_phase(const mo_replay_report *r)
{
    return &r->phase[r->phase[MO_TRACE_GENERATION].tokens ? MO_TRACE_GENERATION : MO_TRACE_PROMPT];
}

static double tokens_per_second(const mo_replay_phase *p)
{
    return p->seconds > 0.0 ? (double)p->tokens / p->seconds : 0.0;
}

static void print_rate(const mo_replay_report *r, int phase)
{
    if (r->phase[phase].needed) {
        printf("  %8.1f %%", 100.0 * hit_rate(r, phase));
    } else {
        printf("  %10s", "-");
    }
}

static bool never_hits(const row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        if (hit_rate(&rows[i].result, -1) > 0.0) {
            return false;
        }
    }
    return true;
}

static void print_rows(const request *r, const mo_trace_info *info, const row *rows)
{
    char bytes[32], all[32], core[32];
    const int count = r->budget_count * r->policy_count;
    printf("%d layers of %d experts, %d used; experts %s in total, %s per token; core %s\n", info->layers,
           info->experts, info->used, cli_bytes_text((uint64_t)info->expert_bytes, all),
           cli_bytes_text((uint64_t)info->token_bytes, bytes),
           cli_bytes_text((uint64_t)info->core_bytes, core));
    printf("%" PRId64 " prompt and %" PRId64 " answer tokens in %" PRId64 " passes, %d text%s\n\n",
           info->tokens[MO_TRACE_PROMPT], info->tokens[MO_TRACE_GENERATION], info->passes, info->texts,
           info->texts == 1 ? "" : "s");
    printf("%s%10s  %5s  %-8s  %10s  %10s  %11s  %8s%s\n", cli_terminal_bold(), "budget", "share", "policy",
           "prompt", "answer", "read/token", "tokens/s", cli_terminal_plain());
    for (int i = 0; i < count; i++) {
        const mo_replay_phase *p = main_phase(&rows[i].result);
        printf("%10s  %3.0f %%  %-8s", cli_bytes_text((uint64_t)rows[i].budget, bytes),
               100.0 * share(rows[i].budget, info->expert_bytes), rows[i].policy);
        print_rate(&rows[i].result, MO_TRACE_PROMPT);
        print_rate(&rows[i].result, MO_TRACE_GENERATION);
        printf("  %11s  %8.1f\n",
               cli_bytes_text((uint64_t)(p->tokens ? p->bytes_read / p->tokens : 0), bytes),
               tokens_per_second(p));
    }
    if (never_hits(rows, count)) {
        printf("\nNothing is found in RAM: %s. --step 1 replays the text token by token.\n",
               info->passes == 1 ? "a trace of one pass needs each expert once, when it is not there yet"
                                 : "every pass needs more experts than there is memory for");
    }
    printf("\nHit rates, bytes read and speed of %s; " OPTIMUM " knows the future and is the upper bound.\n",
           info->tokens[MO_TRACE_GENERATION] ? "answers" : "prompts, without compute time");
    if (!rows[0].result.rates_measured) {
        printf("The speed uses conservative defaults: this machine has not been measured.\n");
    }
}

static json_t *phase_json(const mo_replay_phase *p)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:f,s:f}", "passes", (json_int_t)p->passes, "tokens",
                     (json_int_t)p->tokens, "needed", (json_int_t)p->needed, "hits", (json_int_t)p->hits,
                     "hit_rate", share(p->hits, p->needed), "bytes_needed", (json_int_t)p->bytes_needed,
                     "bytes_read", (json_int_t)p->bytes_read, "seconds", p->seconds, "tokens_per_second",
                     tokens_per_second(p));
}

static int print_json(const request *r, const mo_trace_info *info, const row *rows)
{
    json_t *list = json_array();
    json_t *root = json_pack(
        "{s:o,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:o}", "trace", cli_json_string(r->path), "layers",
        info->layers, "experts", info->experts, "used", info->used, "texts", info->texts, "passes",
        (json_int_t)info->passes, "prompt_tokens", (json_int_t)info->tokens[MO_TRACE_PROMPT],
        "generation_tokens", (json_int_t)info->tokens[MO_TRACE_GENERATION], "expert_bytes",
        (json_int_t)info->expert_bytes, "token_expert_bytes", (json_int_t)info->token_bytes, "core_bytes",
        (json_int_t)info->core_bytes, "rates_measured", rows[0].result.rates_measured, "results", list);
    for (int i = 0; i < r->budget_count * r->policy_count; i++) {
        const mo_replay_report *a = &rows[i].result;
        json_array_append_new(list,
                              json_pack("{s:s,s:I,s:f,s:i,s:i,s:I,s:o,s:o}", "policy", rows[i].policy,
                                        "budget_bytes", (json_int_t)rows[i].budget, "budget_share",
                                        share(rows[i].budget, info->expert_bytes), "slots", (int)a->slots,
                                        "experts", (int)a->experts, "slot_bytes", (json_int_t)a->slot_bytes,
                                        "prompt", phase_json(&a->phase[MO_TRACE_PROMPT]), "generation",
                                        phase_json(&a->phase[MO_TRACE_GENERATION])));
    }
    return cli_json_print(root);
}

/* ---- Charts ------------------------------------------------------------------------------------- */

static bool draw_hits(const request *r, const mo_trace_info *info, const row *rows)
{
    mo_replay_point points[BUDGETS_MAX * POLICIES_MAX];
    mo_error err;
    const int count = r->budget_count * r->policy_count;
    const int phase = info->tokens[MO_TRACE_GENERATION] ? MO_TRACE_GENERATION : MO_TRACE_PROMPT;
    for (int i = 0; i < count; i++) {
        points[i] = (mo_replay_point){rows[i].policy, share(rows[i].budget, info->expert_bytes),
                                      hit_rate(&rows[i].result, phase)};
    }
    return mo_replay_chart(points, count,
                           phase == MO_TRACE_GENERATION ? "Experts found in RAM, answers"
                                                        : "Experts found in RAM, prompts",
                           r->svg, &err) == MO_OK ||
           say(&err);
}

static bool draw(const request *r, const mo_trace *trace, const mo_trace_info *info, const row *rows)
{
    mo_error err;
    if (r->heat && mo_trace_chart(trace, "Picks per expert", r->heat, &err) != MO_OK) {
        return say(&err);
    }
    return !r->svg || draw_hits(r, info, rows);
}

/* ---- Command ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool replay_all(const request *r, const mo_trace *trace, const mo_trace *warm, row *rows)
{
    mo_error err;
    cli_progress progress;
    int at = 0;
    cli_progress_begin(&progress, "replaying", (uint64_t)r->budget_count * (uint64_t)r->policy_count);
    progress.tokens = true;
    for (int b = 0; b < r->budget_count; b++) {
        for (int p = 0; p < r->policy_count; p++, at++) {
            const mo_replay_options ask = {.size = sizeof(mo_replay_options),
                                           .policy = r->policy[p],
                                           .budget_bytes = r->budget[b],
                                           .step = (int)r->step,
                                           .warm = warm,
                                           .rates = r->rates};
            rows[at] = (row){.policy = r->policy[p], .budget = r->budget[b]};
            const mo_status status =
                cli_interrupted() ? MO_ECANCELLED
                                  : mo_replay(trace, &ask, &rows[at].result, sizeof rows[at].result, &err);
            if (status != MO_OK) {
                cli_progress_end(&progress);
                return status == MO_ECANCELLED ? false : say(&err);
            }
            cli_progress_update(&progress, (uint64_t)at + 1);
        }
    }
    cli_progress_end(&progress);
    return true;
}

static int run(request *r)
{
    mo_error err;
    mo_trace *trace = NULL, *warm = NULL;
    mo_trace_info info = {0};
    row *rows = NULL;
    int code = CLI_FAILED;
    if (!cli_check_readable("replay", "--rates", r->rates) ||
        !cli_check_writable("replay", "--svg", r->svg) || !cli_check_writable("replay", "--heat", r->heat)) {
        return CLI_FAILED;
    }
    if (mo_trace_open(r->path, &trace, &err) != MO_OK ||
        (r->warm && mo_trace_open(r->warm, &warm, &err) != MO_OK)) {
        say(&err);
    } else {
        mo_trace_describe(trace, &info, sizeof info);
        if (!read_lists(r, info.expert_bytes)) {
            code = CLI_USAGE;
        } else {
            qsort(r->budget, (size_t)r->budget_count, sizeof *r->budget, by_size);
            rows = calloc((size_t)r->budget_count * (size_t)r->policy_count, sizeof *rows);
        }
    }
    if (rows && replay_all(r, trace, warm, rows) && draw(r, trace, &info, rows)) {
        code = CLI_OK;
        if (r->json) {
            code = print_json(r, &info, rows);
        } else {
            print_rows(r, &info, rows);
        }
    }
    free(rows);
    mo_trace_close(trace);
    mo_trace_close(warm);
    return code;
}

int cli_replay(int argc, char **argv)
{
    request r = {.budgets = "10%,25%,50%", .policies = "all"};
    const cli_option options[] = {
        {"budget", 'b', CLI_TEXT, "LIST",
         "memory for experts: comma-separated shares of all expert bytes, or sizes (default: 10%,25%,50%)",
         &r.budgets, 0, 0},
        {"policy", 0, CLI_TEXT, "LIST",
         "cache policies: all or comma-separated names; the optimum is always shown (default: all)",
         &r.policies, 0, 0},
        {"step", 0, CLI_INTEGER, "N",
         "limit passes to N tokens; 1: one token at a time (default: as recorded)", &r.step, 1, 1 << 24},
        {"warm", 0, CLI_TEXT, "TRACE", "start with the experts that this trace of the same model used most",
         &r.warm, 0, 0},
        {"rates", 0, CLI_TEXT, "FILE", "rates of the machine, for the speed (default: this machine)",
         &r.rates, 0, 0},
        {"svg", 0, CLI_TEXT, "FILE", "write a chart of hit rates by budget", &r.svg, 0, 0},
        {"heat", 0, CLI_TEXT, "FILE", "write a chart of the picks per expert", &r.heat, 0, 0},
        {"json", 'j', CLI_FLAG, NULL, "print JSON", &r.json, 0, 0},
    };
    const cli_usage usage = {
        .command = "replay",
        .arguments = "TRACE",
        .description = "Replays a trace of moraine trace with different memory budgets "
                       "and cache policies: hit rate, bytes read and resulting speed.",
        .examples = "  moraine replay story.trace\n"
                    "  moraine replay story.trace --budget 5%,10%,20%,40% --svg hits.svg --heat picks.svg\n"
                    "  moraine replay novel.trace --step 1 --policy auto,lru --budget 6G\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 1,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    r.path = argv[first];
    return run(&r);
}
