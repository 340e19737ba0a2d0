/* Prometheus: the server's counters in the text format that it reads. llama-server's names as they are known, and ours with
 * more. */
#include <stdio.h>

#include "base/clock.h"
#include "server/common/writer.h"
#include "server/status/status.h"

static void head(srv_writer *w, const char *name, const char *type, const char *help)
{
    srv_put_literal(w, "# HELP ");
    srv_puts(w, name);
    srv_put_literal(w, " ");
    srv_puts(w, help);
    srv_put_literal(w, "\n# TYPE ");
    srv_puts(w, name);
    srv_put_literal(w, " ");
    srv_puts(w, type);
    srv_put_literal(w, "\n");
}

static void value(srv_writer *w, const char *name, const char *labels, double number)
{
    char text[48];
    srv_puts(w, name);
    srv_puts(w, labels);
    snprintf(text, sizeof text, " %.15g\n", number);
    srv_puts(w, text);
}

static void one(srv_writer *w, const char *name, const char *type, const char *help, double number)
{
    head(w, name, type, help);
    value(w, name, "", number);
}

static void histogram(srv_writer *w, const char *name, const char *help, const srv_histogram *h)
{
    char label[96];
    uint64_t sum = 0;
    head(w, name, "histogram", help);
    for (int i = 0; i < SRV_BUCKETS; i++) {
        sum += h->buckets[i];
        snprintf(label, sizeof label, "_bucket{le=\"%g\"}", srv_bucket_bounds[i]);
        value(w, name, label, (double)sum);
    }
    value(w, name, "_bucket{le=\"+Inf\"}", (double)h->count);
    value(w, name, "_sum", h->sum);
    value(w, name, "_count", (double)h->count);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* `last`: the previous values. */
static void put_compatible(srv_writer *w, const srv_engine_report *t, const srv_engine_report *last)
{
    static const struct {
        const char *name, *help;
    } counters[] = {
        {"llamacpp:prompt_tokens_total", "Prompt tokens computed."},
        {"llamacpp:prompt_tokens_cached_total", "Prompt tokens found in cached prefixes."},
        {"llamacpp:prompt_seconds_total", "Time spent processing prompts."},
        {"llamacpp:tokens_predicted_total", "Tokens generated."},
        {"llamacpp:tokens_predicted_seconds_total", "Time spent generating answers."},
        {"llamacpp:n_decode_total", "Engine steps."},
        {"llamacpp:n_tokens_max", "Length of the longest sequence in tokens."},
    };
    const double values[] = {(double)t->prompt_tokens,    (double)t->cached_tokens, t->prompt_s,
                             (double)t->predicted_tokens, t->predicted_s,           (double)t->steps,
                             (double)t->longest};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        one(w, counters[i].name, "counter", counters[i].help, values[i]);
    }
    one(w, "llamacpp:prompt_tokens_seconds", "gauge",
        "Prompt tokens per second of prompt processing, since the last scrape.",
        ratio((double)(t->prompt_tokens - last->prompt_tokens), t->prompt_s - last->prompt_s));
    one(w, "llamacpp:predicted_tokens_seconds", "gauge",
        "Generated tokens per second of generation, since the last scrape.",
        ratio((double)(t->predicted_tokens - last->predicted_tokens), t->predicted_s - last->predicted_s));
    one(w, "llamacpp:requests_processing", "gauge", "Requests being processed.", t->running);
    one(w, "llamacpp:requests_deferred", "gauge", "Requests waiting.", t->queued);
    one(w, "llamacpp:n_busy_slots_per_decode", "gauge", "Sequences per step, on average.",
        ratio((double)t->step_sequences, (double)t->steps));
}

static void put_http(srv_writer *w, const srv_http_report *h)
{
    char label[32];
    head(w, "moraine_http_requests_total", "counter", "Requests answered, by status class.");
    for (int i = 2; i < 6; i++) {
        snprintf(label, sizeof label, "{status=\"%dxx\"}", i);
        value(w, "moraine_http_requests_total", label, (double)h->status[i]);
    }
    one(w, "moraine_http_abandoned_total", "counter", "Requests whose clients disconnected.",
        (double)h->abandoned);
    one(w, "moraine_http_connections", "gauge", "Open connections.", h->connections);
    one(w, "moraine_http_received_bytes_total", "counter", "Bytes of request bodies.", (double)h->bytes_in);
    one(w, "moraine_http_sent_bytes_total", "counter", "Bytes of responses.", (double)h->bytes_out);
}

static void put_jobs(srv_writer *w, const srv_engine_report *t)
{
    static const char name[] = "moraine_jobs_total";
    head(w, name, "counter", "Engine jobs, by outcome.");
    value(w, name, "{end=\"done\"}", (double)t->done);
    value(w, name, "{end=\"failed\"}", (double)t->failed);
    value(w, name, "{end=\"cancelled\"}", (double)t->cancelled);
    value(w, name, "{end=\"refused\"}", (double)t->refused);
    histogram(w, "moraine_time_to_first_token_seconds", "Time from a request to its first token.", &t->first);
    histogram(w, "moraine_time_between_tokens_seconds", "Time between two tokens of a sequence.",
              &t->between);
    one(w, "moraine_sequences", "gauge", "Sequences that can be decoded at once.", t->parallel);
    one(w, "moraine_sequences_busy", "gauge", "Sequences in use.", t->busy);
    one(w, "moraine_kept_sessions", "gauge", "Prefixes cached in memory.", (double)t->kept);
    one(w, "moraine_kept_session_bytes", "gauge", "Bytes of cached prefixes.", (double)t->kept_bytes);
    one(w, "moraine_disk_sessions", "gauge", "Prefixes cached on disk.", (double)t->disk_kept);
    one(w, "moraine_disk_session_bytes", "gauge", "Bytes of cached prefixes.", (double)t->disk_bytes);
    one(w, "moraine_disk_failures_total", "counter", "Prefixes that could not be written to disk.",
        (double)t->disk_failures);
}

static void put_label_text(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text && used + 3 < size; text++) {
        if (*text == '"' || *text == '\\') {
            out[used++] = '\\';
        }
        out[used++] = *text == '\n' ? ' ' : *text;
    }
    out[used] = '\0';
}

/* A statistic of all models together. */
static double sum_of(srv_models *models, const char *stat)
{
    double sum = 0;
    for (int i = 0, n = srv_models_count(models); i < n; i++) {
        srv_model *model = srv_models_peek(models, i);
        double each = 0;
        if (model) {
            sum += mo_model_stats(srv_model_mo(model), &stat, 1, &each, NULL) == MO_OK ? each : 0;
            srv_models_unpeek(model);
        }
    }
    return sum;
}

/* By llama-server's names. */
static void put_drafts(srv_writer *w, srv_models *models)
{
    one(w, "llamacpp:spec_decode_num_draft_tokens_total", "counter",
        "Tokens guessed by speculative decoding.", sum_of(models, "speculation.drafted"));
    one(w, "llamacpp:spec_decode_num_accepted_tokens_total", "counter",
        "Guessed tokens that became part of an answer.", sum_of(models, "speculation.accepted"));
    one(w, "llamacpp:spec_decode_num_drafts_total", "counter", "Tokens that had guesses behind them.",
        sum_of(models, "speculation.checked"));
}

/* Of models that guess, by the table of statistics. */
static void put_speculation(srv_writer *w, srv_models *models)
{
    static const struct {
        const char *name, *kind, *help, *stat;
    } metrics[] = {
        {"moraine_draft_tokens_total", "counter", "Tokens guessed by speculative decoding.",
         "speculation.drafted"},
        {"moraine_draft_tokens_accepted_total", "counter", "Guessed tokens that became part of an answer.",
         "speculation.accepted"},
        {"moraine_draft_tokens_per_step", "gauge", "Tokens of a sequence by a step with guesses, on average.",
         "speculation.tokens_per_step"},
        {"moraine_draft_gain", "gauge", "Estimated generation speed over that without guesses.",
         "speculation.gain"},
    };
    for (size_t k = 0; k < sizeof metrics / sizeof *metrics; k++) {
        head(w, metrics[k].name, metrics[k].kind, metrics[k].help);
        for (int i = 0, n = srv_models_count(models); i < n; i++) {
            srv_model *model = srv_models_peek(models, i);
            const char *const stats[] = {"speculation.draft_max", metrics[k].stat};
            double values[2] = {0};
            char id[256], label[320];
            if (model && mo_model_stats(srv_model_mo(model), stats, 2, values, NULL) == MO_OK &&
                values[0] > 0) {
                put_label_text(srv_model_id(model), id, sizeof id);
                snprintf(label, sizeof label, "{model=\"%.255s\"}", id);
                value(w, metrics[k].name, label, values[1]);
            }
            if (model) {
                srv_models_unpeek(model);
            }
        }
    }
}

/* Of one model: where experts were found, and what went over which wire. */
typedef struct tiers {
    char id[256]; /* as a label's value */
    uint64_t device_hits, ram_hits, disk_misses;
    uint64_t disk_bytes, link_bytes, cpu_bytes;
    bool device; /* there is one */
    uint64_t updates, exchanged;
    double hot_ratio, hot_bytes;
} tiers;

static void read_tiers(srv_model *model, tiers *out)
{
    mo_tier_report t;
    mo_device_report d;
    mo_counter_report c;
    mo_model_tiers(srv_model_mo(model), &t, sizeof t);
    mo_model_device(srv_model_mo(model), &d, sizeof d);
    put_label_text(srv_model_id(model), out->id, sizeof out->id);
    const uint64_t asked = t.prompt.asked + t.generation.asked, hits = t.prompt.hits + t.generation.hits;
    mo_model_counters(srv_model_mo(model), &c, sizeof c);
    out->device_hits = d.hits;
    /* A model that is all in RAM asks for none; with a device, what is not there is computed or sent from RAM. */
    out->ram_hits = asked > 0 ? hits : d.name ? d.asked - d.hits : c.experts_run;
    out->disk_misses = asked - hits;
    out->disk_bytes = t.disk_bytes;
    out->link_bytes = d.fetched_bytes + d.streamed_bytes;
    out->cpu_bytes = d.cpu_bytes;
    out->device = d.name != NULL;
    out->updates = d.updates;
    out->exchanged = d.exchanged;
    out->hot_ratio = d.asked > 0 ? (double)d.hits / (double)d.asked : 0;
    out->hot_bytes = (double)d.slot_bytes;
}

/* One value of each model that has a device. */
static void put_device(srv_writer *w, const tiers *list, int count, int what)
{
    static const struct {
        const char *name, *kind, *help;
    } metrics[] = {
        {"moraine_hot_cache_updates_total", "counter", "Updates of the hot cache, by its rate."},
        {"moraine_hot_cache_exchanges_total", "counter",
         "Experts exchanged in device memory, by updates and requests."},
        {"moraine_hot_cache_ratio", "gauge", "Share of the chosen experts that were in device memory."},
        {"moraine_hot_cache_bytes", "gauge", "Device memory for experts."},
    };
    head(w, metrics[what].name, metrics[what].kind, metrics[what].help);
    for (int i = 0; i < count; i++) {
        const tiers *t = &list[i];
        const double values[] = {(double)t->updates, (double)t->exchanged, t->hot_ratio, t->hot_bytes};
        char label[320];
        snprintf(label, sizeof label, "{model=\"%.255s\"}", t->id);
        if (t->device) {
            value(w, metrics[what].name, label, values[what]);
        }
    }
}

static void put_tiers(srv_writer *w, srv_models *models)
{
    enum { MOST = 64 };
    static const char hits[] = "moraine_expert_uses_total", bytes[] = "moraine_wire_bytes_total";
    tiers list[MOST];
    int count = 0;
    for (int i = 0, n = srv_models_count(models); i < n && count < MOST; i++) {
        srv_model *model = srv_models_peek(models, i);
        if (model) {
            read_tiers(model, &list[count++]);
            srv_models_unpeek(model);
        }
    }
    head(w, hits, "counter", "Experts used, by location.");
    for (int i = 0; i < count; i++) {
        const uint64_t values[] = {list[i].device_hits, list[i].ram_hits, list[i].disk_misses};
        static const char *const where[] = {"device", "ram", "disk"};
        for (int k = 0; k < 3; k++) {
            char label[320];
            snprintf(label, sizeof label, "{model=\"%.255s\",tier=\"%s\"}", list[i].id, where[k]);
            value(w, hits, label, (double)values[k]);
        }
    }
    for (int i = 0; i < 4; i++) {
        put_device(w, list, count, i);
    }
    head(w, bytes, "counter", "Bytes of weights transferred.");
    for (int i = 0; i < count; i++) {
        const uint64_t values[] = {list[i].disk_bytes, list[i].link_bytes, list[i].cpu_bytes};
        static const char *const wire[] = {"disk", "link", "cpu"};
        for (int k = 0; k < 3; k++) {
            char label[320];
            snprintf(label, sizeof label, "{model=\"%.255s\",wire=\"%s\"}", list[i].id, wire[k]);
            value(w, bytes, label, (double)values[k]);
        }
    }
}

static void put_all(srv_writer *out, srv_status *status)
{
    srv_engine_report totals;
    srv_http_report http;
    srv_models *models = status->models;
    srv_http_describe(status->http, &http);
    pthread_mutex_lock(&status->scraping);
    srv_models_totals(models, &totals);
    const srv_engine_report last = status->scraped;
    status->scraped = totals;
    pthread_mutex_unlock(&status->scraping);
    put_compatible(out, &totals, &last);
    put_jobs(out, &totals);
    put_http(out, &http);
    put_tiers(out, models);
    put_drafts(out, models);
    put_speculation(out, models);
    one(out, "moraine_uptime_seconds", "gauge", "Time since the server started.",
        mo_clock_s() - status->begun_s);
}

static void metrics(void *owner, srv_request *q)
{
    srv_status *status = owner;
    if (status->no_metrics) {
        srv_reply_refusal(q, SRV_FAULT_NOT_SUPPORTED, NULL,
                          "this endpoint was disabled when the server was started");
        return;
    }
    srv_writer w = {0};
    char begun[32];
    snprintf(begun, sizeof begun, "%lld", (long long)status->begun);
    srv_reply_header(q, "Process-Start-Time-Unix", begun);
    put_all(&w, status);
    srv_reply(q, w.failed ? 500 : 200, "text/plain; version=0.0.4", w.failed ? "" : w.data,
              w.failed ? 0 : w.length);
    srv_writer_free(&w);
    srv_request_end(q);
}

const srv_route srv_metrics_routes[] = {
    {"GET", "/metrics", metrics, SRV_STATUS},
    {NULL, NULL, NULL, 0},
};
