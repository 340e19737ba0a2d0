#include "cli/commands/server_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/wire.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/measured.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

enum { STREAMS_MAX = 512, SILENCE_S = 300 };

/* Times of one kind in all rounds. */
typedef struct times {
    double *item;
    size_t count, capacity;
} times;

typedef struct stream {
    cli_wire wire;
    double began, last; /* when it was sent; when its last events came */
    int64_t tokens;
    int64_t pieces; /* events of the last read that are not counted yet */
    bool done, failed;
} stream;

typedef struct run {
    const cli_server_bench *b;
    cli_url url;
    CURLM *all;
    int64_t vocab;
    uint64_t seed;
    char model[128];
    stream streams[STREAMS_MAX];
    times first, between, rates;
    int64_t tokens;
} run;

static void add(times *t, double value)
{
    if (!mo_array_reserve(&t->item, &t->capacity, t->count + 1, sizeof *t->item)) {
        return;
    }
    t->item[t->count++] = value;
}

static double quantile(times *t, double share)
{
    return cli_quantile(t->item, (int64_t)t->count, share);
}

/* ---- Requests ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A prompt with new tokens, so that no prefix is cached. */
static char *make_body(run *r)
{
    json_t *prompt = json_array();
    for (int64_t i = 0; i < r->b->prompt; i++) {
        json_array_append_new(prompt, json_integer((json_int_t)(next_random(&r->seed) % (uint64_t)r->vocab)));
    }
    json_t *root = json_pack("{s:o, s:I, s:b, s:b, s:b, s:f, s:i}", "prompt", prompt, "n_predict",
                             (json_int_t)r->b->generated, "stream", 1, "ignore_eos", 1, "cache_prompt", 0,
                             "temperature", 0.0, "seed", 1);
    char *text = root ? mo_json_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

/* Also accepts the base URL of OpenAI clients: /completion is next to /v1, not below it. */
static void forget_version(cli_url *url)
{
    const size_t length = strlen(url->prefix);
    if (length >= 3 && strcmp(url->prefix + length - 3, "/v1") == 0) {
        url->prefix[length - 3] = '\0';
    }
}

static bool look(run *r)
{
    cli_wire w;
    if (!cli_wire_open(&w, r->all, "bench", &r->url, "/v1/models", r->b->key, NULL)) {
        return false;
    }
    const char *text = cli_wire_whole(&w);
    json_t *root = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *model = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(model, "id"));
    r->vocab = json_integer_value(json_object_get(json_object_get(model, "meta"), "n_vocab"));
    snprintf(r->model, sizeof r->model, "%s", id ? id : "?");
    const bool reached = cli_wire_reached(&w, "bench", &r->url);
    if (reached && (w.status != 200 || !id)) {
        fprintf(stderr, "moraine bench: %s/v1/models answered %d: %s\n", r->b->url, w.status,
                text ? text : "nothing");
    } else if (reached && r->vocab <= 0) {
        fprintf(stderr, "moraine bench: the server's model is not loaded; send it a request first\n");
    }
    const bool ok = w.status == 200 && id && r->vocab > 0;
    json_decref(root);
    cli_wire_close(&w);
    return ok;
}

/* ---- A round ---- */

/* The events of one read share the time since the previous read. */
static void count_pieces(run *r, stream *s)
{
    const double at = mo_clock_s();
    if (s->pieces > 0 && s->last == 0.0) {
        add(&r->first, at - s->began);
    }
    for (int64_t i = 0; i < s->pieces && s->last > 0.0; i++) {
        add(&r->between, (at - s->last) / (double)s->pieces);
    }
    s->last = s->pieces > 0 ? at : s->last;
    s->pieces = 0;
}

/* Is this an event of an answer? Decided without parsing, because the client runs on the server's CPU and
   takes time from the model. Quotes in an event's text are preceded by a backslash, so these are its
   members. */
static bool is_piece(const char *line)
{
    return strstr(line, "\"stop\":false") && strstr(line, "\"content\":") && !strstr(line, "\"error\":");
}

/* Reads a line of the stream: every event counts its stated number of tokens, or one. */
static void hear(stream *s, const char *line)
{
    if (strncmp(line, "data: ", 6) != 0) {
        return;
    }
    if (is_piece(line)) {
        s->tokens++;
        s->pieces++;
        return;
    }
    json_t *event = json_loads(line + 6, JSON_ALLOW_NUL, NULL); /* random tokens may give any text */
    if (json_is_true(json_object_get(event, "stop"))) {
        const json_t *count = json_object_get(event, "tokens_predicted");
        s->tokens = json_is_integer(count) ? (int64_t)json_integer_value(count) : s->tokens;
        s->done = true;
    } else if (json_object_get(event, "error")) {
        s->failed = true;
        fprintf(stderr, "moraine bench: the server reported: %s\n", line + 6);
    } else if (json_object_get(event, "content")) {
        s->tokens++;
        s->pieces++;
    }
    json_decref(event);
}

static void progress(run *r, stream *s)
{
    for (char *line; s->wire.status == 200 && (line = cli_wire_line(&s->wire)); free(line)) {
        hear(s, line);
    }
    count_pieces(r, s);
    if (s->wire.over && !s->done && !s->failed) {
        if (s->wire.status != 200 && s->wire.status != 0) {
            fprintf(stderr, "moraine bench: the server answered %d: %s\n", s->wire.status,
                    mo_bytes_text(&s->wire.body).data);
        } else if (cli_wire_reached(&s->wire, "bench", &r->url)) {
            fprintf(stderr, "moraine bench: the connection was closed before the answer was complete\n");
        }
        s->failed = true;
    }
}

static bool play(run *r)
{
    const int count = (int)r->b->streams;
    const double began = mo_clock_s();
    bool ok = true;
    for (int i = 0; i < count && ok; i++) {
        stream *s = &r->streams[i];
        char *body = make_body(r);
        *s = (stream){.began = mo_clock_s()};
        ok = body && cli_wire_open(&s->wire, r->all, "bench", &r->url, "/completion", r->b->key, body);
        free(body);
    }
    for (int left = count; ok && left > 0;) {
        const bool went = cli_wires_go(r->all, SILENCE_S);
        left = 0;
        for (int i = 0; i < count && ok; i++) {
            progress(r, &r->streams[i]);
            left += !r->streams[i].done;
            ok = !r->streams[i].failed;
        }
        if (ok && !went && !cli_interrupted()) {
            fprintf(stderr, "moraine bench: the server has been silent for %d seconds\n", SILENCE_S);
        }
        ok = ok && went && !cli_interrupted();
    }
    int64_t tokens = 0;
    for (int i = 0; i < count; i++) {
        tokens += r->streams[i].tokens;
        cli_wire_close(&r->streams[i].wire);
    }
    if (ok) {
        add(&r->rates, (double)tokens / (mo_clock_s() - began));
        r->tokens += tokens;
    }
    return ok;
}

/* ---- The measurement ---- */

static int print(run *r)
{
    const cli_server_bench *b = r->b;
    const double rate = quantile(&r->rates, 0.5), best = quantile(&r->rates, 1);
    const double first50 = quantile(&r->first, 0.5), first99 = quantile(&r->first, 0.99);
    const double between50 = quantile(&r->between, 0.5), between99 = quantile(&r->between, 0.99);
    if (b->json) {
        return cli_json_print(
            json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "server",
                      cli_json_string(b->url), "model", r->model, "streams", (json_int_t)b->streams,
                      "prompt_tokens", (json_int_t)b->prompt, "generated_tokens", (json_int_t)b->generated,
                      "rounds", (json_int_t)b->rounds, "tokens", (json_int_t)r->tokens, "together_tps", rate,
                      "together_best_tps", best, "first_token_p50_s", first50, "first_token_p99_s", first99,
                      "between_tokens_p50_s", between50, "between_tokens_p99_s", between99));
    }
    printf("%s, %s: %lld streams, %lld prompt and %lld generated tokens each, %lld rounds\n", b->url,
           r->model, (long long)b->streams, (long long)b->prompt, (long long)b->generated,
           (long long)b->rounds);
    printf("total            %10.1f tokens/s generated, best %.1f\n", rate, best);
    printf("first token      %10.1f ms median, %.1f ms p99\n", first50 * 1e3, first99 * 1e3);
    printf("between tokens   %10.1f ms median, %.1f ms p99\n", between50 * 1e3, between99 * 1e3);
    return CLI_OK;
}

int cli_server_bench_run(const cli_server_bench *b)
{
    run *r = calloc(1, sizeof *r);
    CURLM *all = r && curl_global_init(CURL_GLOBAL_NOTHING) == 0 ? curl_multi_init() : NULL;
    int code = CLI_FAILED;
    if (!all) {
        fprintf(stderr, "moraine bench: out of memory\n");
        free(r);
        return CLI_FAILED;
    }
    r->b = b;
    r->all = all;
    r->seed = (uint64_t)(mo_clock_s() * 1e9);
    if (!cli_url_read(b->url, &r->url)) {
        fprintf(stderr, "moraine bench: --server needs a URL such as http://127.0.0.1:8080, not %s\n",
                b->url);
        code = CLI_USAGE;
    } else if (forget_version(&r->url), look(r)) {
        bool ok = true;
        for (int64_t i = 0; i < b->rounds && ok; i++) {
            cli_rounds_show(i, b->rounds, "answers");
            ok = play(r);
            cli_rounds_hide();
        }
        code = ok ? print(r) : CLI_FAILED;
    }
    curl_multi_cleanup(all);
    curl_global_cleanup();
    free(r->first.item);
    free(r->between.item);
    free(r->rates.item);
    free(r);
    return code;
}
