/* moraine bench: prompt and answer speed of a model on this machine, compared with what its memory allows. */
#include <moraine_server.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/commands/drafts.h"
#include "cli/commands/parallel.h"
#include "cli/commands/server_bench.h"
#include "cli/commands/synthetic.h"
#include "cli/default_model.h"
#include "cli/infile.h"
#include "cli/learning.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/print/device.h"
#include "cli/print/json.h"
#include "cli/print/lanes.h"
#include "cli/print/measured.h"
#include "cli/print/split.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/print/traffic.h"
#include "cli/signals.h"

#define YARDSTICK_BYTES ((int64_t)1 << 30) /* maximum bytes of weights for measuring the memory rate */

typedef struct speeds {
    int64_t prefill, decode; /* tokens */
    int64_t depth;           /* number of positions before them */
    int64_t rounds;
    double prefill_tps, decode_tps; /* medians */
    double prefill_best, decode_best;
    double read_gbps;
    mo_model_info info;
    uint64_t session_bytes;
    uint64_t picks, runs;
    mo_tier_report tiers; /* of all rounds */
    mo_device_report device;
    cli_device_lanes generating;
    cli_lanes lanes;       /* since the model was opened */
    double decode_seconds; /* of all rounds */
    mo_split_report split; /* of the prompts */
    mo_traffic_report traffic;
    bool text;
} speeds;

static double median(double *values, int64_t n, double *best)
{
    *best = cli_quantile(values, n, 1);
    return cli_quantile(values, n, 0.5);
}

/* Fills in random ids, or those of a text, repeated if it is short. */
static bool fill_tokens(const mo_model *model, const char *path, int64_t vocab, int32_t *tokens,
                        int64_t count)
{
    size_t length, n = 0;
    int32_t *ids = NULL;
    mo_error err;
    if (!path) {
        uint32_t seed = 1;
        for (int64_t i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            tokens[i] = (int32_t)((uint64_t)seed * (uint64_t)vocab >> 32);
        }
        return true;
    }
    char *text = cli_read_file("bench", path, &length);
    if (text && mo_tokenize(model, text, length, 0, &ids, &n, &err) != MO_OK) {
        cli_say_error("bench", &err);
        ids = NULL;
    } else if (text && n == 0) {
        fprintf(stderr, "moraine bench: %s is empty\n", path);
    }
    if (ids && n && (int64_t)n < count) {
        fprintf(stderr,
                "moraine bench: note: %s has %zu tokens and is repeated to %" PRId64
                "; its RAM hit rate is higher than that of a long text\n",
                path, n, count);
    }
    for (int64_t i = 0; ids && n && i < count; i++) {
        tokens[i] = ids[i % (int64_t)n];
    }
    free(text);
    free(ids);
    return n > 0;
}

/* After `depth` positions, which are not timed, feeds `count` tokens at once or one by one. Returns tokens/s;
   0 after a failure. Adds the work of the device's lanes to `lanes`. */
static double measure(mo_session *session, const int32_t *tokens, int64_t depth, int64_t count,
                      bool one_by_one, mo_model *split, cli_device_lanes *lanes)
{
    mo_error err;
    const int32_t other = tokens[0] ? 0 : 1; /* clears the session */
    mo_status status = cli_feed(&(mo_feed){.size = sizeof(mo_feed),
                                           .session = session,
                                           .tokens = depth ? tokens : &other,
                                           .count = depth ? depth : 1},
                                &err);
    if (split) {
        mo_model_split(split, true, NULL, 0);
    }
    if (lanes) {
        cli_device_lanes_begin(lanes);
    }
    const double start = mo_clock_s();
    for (int64_t n = one_by_one ? 1 : count; n <= count && status == MO_OK && !cli_interrupted(); n++) {
        status = cli_feed(
            &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = depth + n},
            &err);
    }
    const double seconds = mo_clock_s() - start;
    if (lanes) {
        cli_device_lanes_end(lanes);
    }
    if (status != MO_OK) {
        cli_rounds_hide();
    }
    if (status != MO_OK && !cli_interrupted()) {
        cli_say_error("bench", &err);
    }
    return status == MO_OK && !cli_interrupted() ? (double)count / seconds : 0.0;
}

static double measure_split(mo_model *model, mo_session *session, const int32_t *tokens, speeds *s)
{
    mo_split_report split = {0};
    const double rate = measure(session, tokens, s->depth, s->prefill, false, model, NULL);
    mo_model_split(model, false, &split, sizeof split);
    cli_split_add(&s->split, &split);
    return rate;
}

static bool run_rounds(mo_model *model, mo_session *session, const int32_t *tokens, speeds *s)
{
    double prefill[64] = {0}, decode[64];
    mo_counter_report before, after;
    mo_error err;
    mo_tier_report begin;
    mo_device_report device;
    mo_traffic_report traffic;
    mo_model_traffic(model, &traffic, sizeof traffic);
    mo_model_tiers(model, &begin, sizeof begin);
    mo_model_device(model, &device, sizeof device);
    /* If all weights are in RAM, they are used for measuring: a separate buffer would exceed the plan. */
    if (strcmp(begin.mode, "resident") == 0 && !device.name &&
        mo_model_read_rate(model, (uint64_t)YARDSTICK_BYTES, &s->read_gbps, &err) != MO_OK) {
        cli_say_error("bench", &err);
        return false;
    }
    s->generating = (cli_device_lanes){.model = model};
    mo_model_counters(model, &before, sizeof before);
    for (int64_t r = 0; r < s->rounds; r++) {
        cli_rounds_show(r, s->rounds, "prompt");
        if (s->prefill) { /* the CPU's clocks cost nothing */
            prefill[r] = device.name ? measure(session, tokens, s->depth, s->prefill, false, NULL, NULL)
                                     : measure_split(model, session, tokens, s);
        }
        cli_rounds_show(r, s->rounds, "answer");
        decode[r] =
            s->decode ? measure(session, tokens, s->depth, s->decode, true, NULL, &s->generating) : 0.0;
        s->decode_seconds += decode[r] > 0.0 ? (double)s->decode / decode[r] : 0.0;
        cli_rounds_hide();
        cli_learning_done("bench", model);
        if ((s->prefill && prefill[r] == 0.0) || (s->decode && decode[r] == 0.0)) {
            return false;
        }
    }
    mo_model_counters(model, &after, sizeof after);
    mo_model_device(model, &s->device, sizeof s->device);
    cli_device_subtract(&s->device, &device);
    if (!cli_lanes_read("bench", model, &s->lanes)) {
        return false;
    }
    mo_model_traffic(model, &s->traffic, sizeof s->traffic);
    cli_traffic_subtract(&s->traffic, &traffic);
    mo_model_tiers(model, &s->tiers, sizeof s->tiers);
    cli_tiers_subtract(&s->tiers, &begin);
    s->picks = after.expert_picks - before.expert_picks;
    s->runs = after.experts_run - before.experts_run;
    s->prefill_tps = median(prefill, s->rounds, &s->prefill_best);
    s->decode_tps = median(decode, s->rounds, &s->decode_best);
    return !s->prefill || !device.name || measure_split(model, session, tokens, s) > 0.0;
}

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%*u %llu", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t weight_bytes(const mo_model_info *i)
{
    return i->core_bytes + i->expert_bytes + i->table_bytes + i->vector_bytes;
}

static int print_json(const speeds *s)
{
    const mo_model_info *i = &s->info;
    return cli_json_print(json_pack(
        "{s:s,s:s,s:i,s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o}",
        "model", i->path, "isa", i->isa, "threads", i->threads, "tokens", s->text ? "text" : "random",
        "prompt_precision", i->prompt_precision == MO_PRECISION_BF16 ? "bf16" : "exact", "depth",
        (json_int_t)s->depth, "prefill", (json_int_t)s->prefill, "decode", (json_int_t)s->decode,
        "prefill_tps", s->prefill_tps, "decode_tps", s->decode_tps, "prefill_best_tps", s->prefill_best,
        "decode_best_tps", s->decode_best, "read_gbps", s->read_gbps, "resident_bytes",
        (json_int_t)resident_bytes(), "bytes_per_token", (json_int_t)i->bytes_per_token, "weight_bytes",
        (json_int_t)weight_bytes(i), "session_bytes", (json_int_t)s->session_bytes, "work_bytes",
        (json_int_t)i->work_bytes, "tiers", cli_tiers_json(&s->tiers), "device", cli_device_json(&s->device),
        "lanes", cli_lanes_json(&s->lanes), "prefill_split", cli_split_json(&s->split), "traffic",
        cli_traffic_json(&s->traffic)));
}

static void print_table(const speeds *s)
{
    const mo_model_info *i = &s->info;
    char a[32], b[32], c[32], d[32];
    const double limit = s->read_gbps * 1e9 / (double)i->bytes_per_token;
    const bool whole = s->read_gbps > 0.0;
    printf("%s, %d layers, %s, %d threads, %s tokens%s, median (best) of %" PRId64 "\n", i->path, i->layers,
           i->isa, i->threads, s->text ? "text" : "random",
           i->prompt_precision == MO_PRECISION_BF16 ? ", prompts in bf16" : "", s->rounds);
    if (s->depth) {
        printf("depth   %6" PRId64 "   tokens of context before each run\n", s->depth);
    }
    if (s->prefill) {
        printf("prefill %6" PRId64 "   %9.1f (%.1f) tokens/s\n", s->prefill, s->prefill_tps, s->prefill_best);
        cli_split_print(&s->split);
    }
    if (s->decode) {
        printf("decode  %6" PRId64 "   %9.1f (%.1f) tokens/s", s->decode, s->decode_tps, s->decode_best);
        if (whole) {
            const double share = 100.0 * s->decode_tps / limit;
            if (share > 100.0) {
                printf(", above the");
            } else {
                printf(", %.0f %% of the", share);
            }
            printf(" %.1f tokens/s that memory bandwidth allows%s", limit,
                   share > 100.0 ? ": part of the data is in CPU caches" : "");
        }
        printf("\n");
    }
    if (whole) {
        printf("memory           %9.1f GB/s with %d threads; %s read per token\n", s->read_gbps, i->threads,
               cli_bytes_text(i->bytes_per_token, a));
    }
    printf("resident         %s: weights %s, session %s, working memory %s\n",
           cli_bytes_text(resident_bytes(), a), cli_bytes_text(weight_bytes(i), b),
           cli_bytes_text(s->session_bytes, c), cli_bytes_text(i->work_bytes, d));
    if (s->picks) {
        printf("experts          %" PRIu64 " picks served by %" PRIu64 " expert runs\n", s->picks, s->runs);
    }
    cli_tiers_print(&s->tiers, (uint64_t)(s->rounds * s->decode), 1, s->decode_seconds);
    cli_device_print(&s->device, &s->tiers, &s->generating, (uint64_t)(s->rounds * s->decode),
                     s->decode_seconds);
    cli_lanes_print(&s->lanes);
    cli_traffic_print(&s->traffic);
}

/* Draws a chart of the speeds, with the memory limit of generation, and the parts of the prompt time. */
static bool draw(const speeds *s, const char *svg)
{
    const double limit = s->read_gbps > 0.0 ? s->read_gbps * 1e9 / (double)s->info.bytes_per_token : 0.0;
    const mo_bar_piece prefill = {"median", s->prefill_tps}, decode = {"median", s->decode_tps};
    mo_bar_piece parts[CLI_SPLIT_PARTS];
    mo_bar bars[3];
    char labels[3][64], notes[3][96], title[320];
    int count = 0;
    mo_error err;
    if (s->prefill) {
        snprintf(labels[count], sizeof labels[count], "prompt of %" PRId64 " tokens", s->prefill);
        snprintf(notes[count], sizeof notes[count], "%.1f tokens/s, best %.1f", s->prefill_tps,
                 s->prefill_best);
        bars[count] = (mo_bar){labels[count], notes[count], &prefill, 1, s->prefill_best, s->prefill_best};
        count++;
    }
    if (s->split.seconds > 0.0) {
        cli_split_pieces(&s->split, parts);
        bars[count++] = (mo_bar){"prompt time by part", NULL, parts, CLI_SPLIT_PARTS, 100.0, 100.0};
    }
    if (s->decode) {
        snprintf(labels[count], sizeof labels[count], "answer of %" PRId64 " tokens", s->decode);
        snprintf(notes[count], sizeof notes[count],
                 limit > 0.0 ? "%.1f tokens/s, memory limit %.1f" : "%.1f tokens/s, best %.1f", s->decode_tps,
                 limit > 0.0 ? limit : s->decode_best);
        bars[count] = (mo_bar){labels[count],
                               notes[count],
                               &decode,
                               1,
                               limit > 0.0 ? limit : s->decode_best,
                               limit > 0.0 ? limit : s->decode_best};
        count++;
    }
    const char *slash = strrchr(s->info.path, '/');
    snprintf(title, sizeof title, "%.200s, %s, %d threads", slash ? slash + 1 : s->info.path, s->info.isa,
             s->info.threads);
    if (mo_bar_chart(bars, count, title, svg, &err) != MO_OK) {
        cli_say_error("bench", &err);
        return false;
    }
    return true;
}

/* Opens the model for sessions of this many tokens. NULL with *code set. */
static mo_model *open_model(const char *path, const char *text, int64_t tokens, cli_loading *l, int *code)
{
    if (!l->model.context) {
        l->model.context = tokens;
        l->own_context = l->measures = true;
    }
    l->vocabulary = text != NULL;
    *code = CLI_FAILED;
    if (!cli_check_readable("bench", "--text", text)) {
        return NULL;
    }
    if (!text && strcmp(l->model.learning.profile, "auto") == 0) {
        l->model.learning.profile = "off"; /* random tokens must not be learned */
    }
    return cli_loading_open("bench", path, l, code);
}

static int bench(const char *path, const char *text, cli_loading *l, speeds *s, const char *svg, bool json)
{
    mo_error err;
    mo_session *session = NULL;
    int code;
    const int64_t longest = s->depth + (s->prefill > s->decode ? s->prefill : s->decode);
    mo_model *model = open_model(path, text, longest, l, &code);
    if (!model) {
        return code;
    }
    const mo_session_options session_options = {.size = sizeof session_options, .kv = l->model.kv};
    mo_model_describe(model, &s->info, sizeof s->info);
    s->session_bytes = mo_session_bytes(model, &session_options);
    s->text = text != NULL;
    int32_t *tokens = calloc((size_t)longest + 1, sizeof *tokens);
    if (mo_session_open(model, &session_options, &session, &err) != MO_OK) {
        cli_say_error("bench", &err);
    } else if (tokens && fill_tokens(model, text, s->info.vocab, tokens, longest) &&
               run_rounds(model, session, tokens, s)) {
        code = CLI_OK;
        if (json) {
            code = print_json(s);
        } else {
            print_table(s);
        }
        code = svg && !draw(s, svg) ? CLI_FAILED : code;
    }
    free(tokens);
    cli_lanes_drop(&s->lanes);
    mo_session_close(session);
    mo_model_close(model);
    return code;
}

static int bench_parallel(const char *path, const char *text, cli_loading *l, cli_parallel *p, bool json)
{
    int code;
    const int64_t length = p->prompt + p->generated;
    l->model.sessions = (int)p->sequences;
    mo_model *model = open_model(path, text, length, l, &code);
    if (!model) {
        return code;
    }
    p->kv = l->model.kv;
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    p->text = text != NULL;
    int32_t *tokens = calloc((size_t)(p->sequences * length), sizeof *tokens);
    if (tokens && fill_tokens(model, text, info.vocab, tokens, p->sequences * length) &&
        cli_parallel_run(model, tokens, p)) {
        code = CLI_OK;
        if (json) {
            code = cli_parallel_print_json(model, p);
        } else {
            cli_parallel_print(model, p);
        }
    }
    free(tokens);
    mo_model_close(model);
    return code;
}

static int bench_drafts(const char *path, const char *text, cli_loading *l, cli_drafts *d, bool json)
{
    int code;
    l->model.sessions = (int)d->sequences;
    l->model.speculate = l->model.speculate == MO_SPECULATE_OFF ? MO_SPECULATE_AUTO : l->model.speculate;
    l->model.draft_max = d->depth ? (int)d->depth : l->model.draft_max;
    mo_model *model = open_model(path, text, d->prompt + d->generated + 2, l, &code);
    if (!model) {
        return code;
    }
    d->kv = l->model.kv;
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    d->text = text != NULL;
    int32_t *tokens = calloc((size_t)(d->sequences * d->prompt), sizeof *tokens);
    if (tokens && fill_tokens(model, text, info.vocab, tokens, d->sequences * d->prompt) &&
        cli_drafts_run(model, tokens, d)) {
        code = CLI_OK;
        if (json) {
            code = cli_drafts_print_json(model, d);
        } else {
            cli_drafts_print(model, d);
        }
    }
    free(tokens);
    mo_model_close(model);
    return code;
}

/* Checks the lengths: there must be something to measure, and it must fit. False after printing the error. */
static bool check_lengths(const speeds *s, int64_t parallel, int64_t context)
{
    const int64_t measured = parallel                 ? s->prefill + s->decode
                             : s->prefill > s->decode ? s->prefill
                                                      : s->decode,
                  longest = s->depth + measured;
    if (measured == 0) {
        fprintf(stderr, "moraine bench: --prefill 0 and --decode 0 leave "
                        "nothing to measure; set one of them above 0\n");
        return false;
    }
    if (parallel && s->prefill == 0) {
        fprintf(stderr, "moraine bench: --parallel needs a prompt; give --prefill 1 or more\n");
        return false;
    }
    if (context && longest > context) {
        fprintf(stderr,
                "moraine bench: %" PRId64 " tokens do not fit into --ctx %" PRId64 "; omit --ctx or "
                "measure fewer\n",
                longest, context);
        return false;
    }
    return true;
}

/* Rejects options that only apply to one sequence. */
static bool check_alone(const char *what, bool given, bool several)
{
    if (given && several) {
        fprintf(stderr, "moraine bench: %s one sequence only; omit --parallel and --server\n", what);
    }
    return !(given && several);
}

static int bench_server(cli_server_bench *server, const speeds *s, bool other)
{
    if (other || s->prefill == 0 || s->decode == 0) {
        fprintf(stderr, "moraine bench: --server measures the model loaded there with random prompts: "
                        "give no model and no --text, and set --prefill and --decode above 0\n");
        return CLI_USAGE;
    }
    server->prompt = s->prefill;
    server->generated = s->decode;
    server->rounds = s->rounds;
#ifdef MO_PULL
    return cli_server_bench_run(server);
#else
    fprintf(stderr, "moraine bench: this program was built without libcurl; --server needs it\n");
    return CLI_FAILED;
#endif
}

typedef struct request {
    const char *model, *text, *synthetic, *svg;
    int64_t layers, parallel;
    int64_t draft, accepted, drafting; /* -1: not given */
    bool json;
} request;

static bool asks_for_drafts(const request *q, const cli_loading *l)
{
    return q->draft >= 0 || l->model.speculate != MO_SPECULATE_OFF;
}

static bool check_drafts(const request *q, const speeds *s, const cli_loading *l)
{
    if (q->accepted >= 0 && q->draft < 0) {
        fprintf(stderr, "moraine bench: --accepted needs --draft K, the number of guesses in a step\n");
        return false;
    }
    if (q->drafting >= 0 && (!asks_for_drafts(q, l) || !q->parallel || q->drafting > q->parallel)) {
        fprintf(stderr, "moraine bench: --drafting needs --draft or --speculate, and --parallel with as many "
                        "sequences or more\n");
        return false;
    }
    if (q->draft >= 0 && l->model.draft_model) {
        fprintf(stderr,
                "moraine bench: --draft replays the model's own text, so --draft-model would not be used; "
                "omit one of them\n");
        return false;
    }
    if (asks_for_drafts(q, l) && (q->svg || s->depth || !s->prefill || !s->decode)) {
        fprintf(stderr,
                "moraine bench: with --draft or --speculate, omit --svg and --depth, and set --prefill "
                "and --decode above 0\n");
        return false;
    }
    if (asks_for_drafts(q, l) && q->parallel > CLI_DRAFTS_SEQUENCES) {
        fprintf(stderr, "moraine bench: with --draft or --speculate, --parallel must be at most %d\n",
                CLI_DRAFTS_SEQUENCES);
        return false;
    }
    return true;
}

static int check(const request *q, const speeds *s, const char *url)
{
    if (q->model && q->synthetic) {
        fprintf(stderr, "moraine bench: give a model file or --synthetic MODEL, not both\n");
        return CLI_USAGE;
    }
    if (q->layers && !q->synthetic) {
        fprintf(stderr, "moraine bench: --layers requires --synthetic MODEL\n");
        return CLI_USAGE;
    }
    if (!check_alone("--svg supports", q->svg != NULL, q->parallel || url) ||
        !check_alone("--depth supports", s->depth > 0, q->parallel || url)) {
        return CLI_USAGE;
    }
    if (cli_cluster() && (q->synthetic || url)) {
        fprintf(stderr, "moraine bench: with several ranks, give a model file that exists on every rank\n");
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int bench_model(const request *q, speeds *s, cli_loading *l)
{
    char made[512];
    if (!cli_loading_set("bench", l) || !check_drafts(q, s, l)) {
        return CLI_USAGE;
    }
    int code =
        q->synthetic ? cli_synthetic_make(q->synthetic, q->layers, &l->model, made, sizeof made) : CLI_OK;
    if (code != CLI_OK) {
        return code;
    }
    const char *path = cli_model_path("bench", q->synthetic ? made : q->model, q->json, &code);
    if (path && asks_for_drafts(q, l)) {
        const int64_t sequences = q->parallel ? q->parallel : 1;
        cli_drafts d = {.sequences = sequences,
                        .drafting = q->drafting >= 0 ? q->drafting : sequences,
                        .prompt = s->prefill,
                        .generated = s->decode,
                        .rounds = s->rounds,
                        .depth = q->draft >= 0 ? q->draft : 0,
                        .accepted = q->accepted >= 0 ? q->accepted : 100,
                        .chosen = l->model.speculate != MO_SPECULATE_OFF};
        return bench_drafts(path, q->text, l, &d, q->json);
    }
    if (path && q->parallel) {
        cli_parallel p = {
            .sequences = q->parallel, .prompt = s->prefill, .generated = s->decode, .rounds = s->rounds};
        return bench_parallel(path, q->text, l, &p, q->json);
    }
    return path ? bench(path, q->text, l, s, q->svg, q->json) : code;
}

static int bench_with(const request *q, speeds *s, cli_server_bench *server, cli_loading *l)
{
    int code = check(q, s, server->url);
    if (code != CLI_OK || cli_cluster_follows("bench", q->model, l, &code)) {
        return code;
    }
    if (!cli_check_writable("bench", "--svg", q->svg)) {
        return CLI_FAILED;
    }
    if (!check_lengths(s, q->parallel, l->model.context)) {
        return CLI_USAGE;
    }
    if (server->url) {
        server->streams = q->parallel ? q->parallel : 1;
        server->json = q->json;
        return bench_server(server, s, q->model || q->synthetic || q->text);
    }
    return bench_model(q, s, l);
}

int cli_bench(int argc, char **argv)
{
    cli_loading l = cli_loading_default();
    speeds s = {.prefill = 512, .decode = 64, .rounds = 5};
    request q = {.draft = -1, .accepted = -1, .drafting = -1};
    cli_server_bench server = {.key = getenv("LLAMA_API_KEY")};
    const cli_option own[] = {
        {"prefill", 0, CLI_INTEGER, "N", "prompt length in tokens; 0: skip (default: 512)", &s.prefill, 0,
         1000000},
        {"decode", 0, CLI_INTEGER, "N", "tokens to generate one by one; 0: skip (default: 64)", &s.decode, 0,
         1000000},
        {"depth", 0, CLI_INTEGER, "N", "tokens of context before each of them, not timed (default: 0)",
         &s.depth, 0, 1000000},
        {"rounds", 0, CLI_INTEGER, "N", "number of rounds; the median is reported (default: 5)", &s.rounds, 1,
         64},
        {"parallel", 0, CLI_INTEGER, "N", "decode N sequences in parallel, each with its own prompt",
         &q.parallel, 1, CLI_PARALLEL_MAX},
        {"draft", 0, CLI_INTEGER, "K",
         "speed with K guesses in every step, by the model's own text, over that without; with --speculate "
         "auto: at most K, as many as pay",
         &q.draft, 1, 64},
        {"accepted", 0, CLI_INTEGER, "P",
         "with --draft: percent of the guesses that are right, if those before are (default: 100)",
         &q.accepted, 0, 100},
        {"drafting", 0, CLI_INTEGER, "N",
         "with --parallel and --draft: only the first N sequences have guesses (default: all)", &q.drafting,
         0, CLI_DRAFTS_SEQUENCES},
        {"server", 0, CLI_TEXT, "URL",
         "measure a running server, such as http://127.0.0.1:8080, "
         "with --parallel streams, each with a new prompt",
         &server.url, 0, 0},
        {"api-key", 0, CLI_TEXT, "KEY", "API key of that server (env: LLAMA_API_KEY)", &server.key, 0, 0},
        {"text", 0, CLI_TEXT, "FILE", "use the tokens of a text file instead of random ones", &q.text, 0, 0},
        {"synthetic", 0, CLI_TEXT, "MODEL",
         "first create a model of this shape with random weights in the current directory; it is kept. "
         "MODEL: a published shape (see "
         "moraine synth --list), a file, a pulled model, or owner/repo[:quant], of which only the header is "
         "read",
         &q.synthetic, 0, 0},
        {"layers", 0, CLI_INTEGER, "N", "with --synthetic: only the first N layers", &q.layers, 1, 1000},
        {"json", 'j', CLI_FLAG, NULL, "print JSON", &q.json, 0, 0},
        {"svg", 0, CLI_TEXT, "FILE", "write a chart of the speeds of one sequence", &q.svg, 0, 0},
    };
    cli_options options = {0};
    CLI_OPTIONS_ADD(&options, own);
    cli_loading_options(&options, &l);
    cli_speculation_options(&options, &l);
    cli_learning_options(&options, &l);
    const cli_usage usage = {
        .command = "bench",
        .arguments = "[MODEL]",
        .description = "Measures the prompt and generation speed of a model on this "
                       "machine, and the share of the memory bandwidth it reaches." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine bench model.gguf\n"
                    "  moraine bench model.gguf --prefill 2048 --decode 128 --json\n"
                    "  moraine bench model.gguf --depth 8192 --prefill 2048\n"
                    "  moraine bench model.gguf --parallel 8 --prefill 256 --decode 64\n"
                    "  moraine bench model.gguf --draft 8 --accepted 80\n"
                    "  moraine bench --server http://127.0.0.1:8080 --parallel 8 --prefill 256\n"
                    "  moraine bench --synthetic gpt-oss-20b --layers 4\n"
                    "  moraine bench --synthetic ggml-org/gpt-oss-20b-GGUF --layers 4\n",
        .options = options.item,
        .foreign = true,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    q.model = code >= 0 ? NULL : argv[first];
    return code >= 0 ? code : bench_with(&q, &s, &server, &l);
}
