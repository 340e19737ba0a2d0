/* Fuzzing the server's dialects: a body to one of its endpoints, through everything up to a job, and what the job would say back
 * to the client. The engine and HTTP are played: no model computes, and the answer is made of the input's last part. What
 * clients send is never our fault (500), is answered once, and with JSON.
 *
 * The first byte chooses the endpoint, the second the model and how the answer ends; then the body; after a line of four
 * dashes, the answer. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/clock.h"
#include "generation/events.h"
#include "gguf/read.h"
#include "sampling/pick.h"
#include "server/dialects/dialects.h"
#include "server/dialects/response_store.h"
#include "server/requests/running.h"
#include "server/requests/token_replay.h"
#include "server/requests/trace.h"
#include "vocabulary.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* ---- Models: a vocabulary and a template ---- */

enum { CONTEXT = 4096 };

struct srv_model {
    mo_model mo;
    mo_gguf *gguf;
    srv_defaults defaults;
};

static const struct {
    const char *vocabulary, *chat_template;
} kinds[] = {{"qwen2", "server/hermes"},
             {"deepseek-v3", "templates/text/deepseek-v3.1"},
             {"gpt-4o", "templates/text/gpt-oss"},
             {"glm4", "templates/text/glm-4.6"},
             {"llama-bpe", NULL}};
enum { KINDS = sizeof kinds / sizeof *kinds };
static srv_model models[KINDS];
static srv_generator generator;
static srv_response_generator response_generator = {.generator = &generator};

/* An answer that requests can go on from. */
static void keep_response(void)
{
    static const char
        items[] = "[{\"id\":\"msg_1\",\"role\":\"user\",\"content\":\"hi\"}]",
        answer[] =
            "{\"output\":[{\"id\":\"fc_1\",\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
            "\"arguments\":\"{}\"}]}";
    const srv_kept_response kept = {.response = json_loads(answer, 0, NULL),
                                    .input = json_loads(items, 0, NULL)};
    require(kept.response && kept.input);
    srv_response_store_add(response_generator.kept, "resp_1", "", &kept);
}

static char *read_text(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, MO_TEST_DATA "/%s.jinja", name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    require(f && text && fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

const mo_gguf *mo_checkpoint_gguf(const mo_checkpoint *c)
{
    for (int i = 0; i < KINDS; i++) {
        if (models[i].mo.checkpoint == c) {
            return models[i].gguf;
        }
    }
    abort();
}

int mo_model_layer_experts(const mo_model *model, int layer)
{
    (void)model;
    (void)layer;
    return 0;
}

void mo_model_describe(const mo_model *model, mo_model_info *out, size_t size)
{
    const mo_model_info info = {
        .vocab = mo_tokenizer_size(model->tokenizer), .context = CONTEXT, .fingerprint = 1};
    memcpy(out, &info, size < sizeof info ? size : sizeof info);
}

/* Pictures are read from requests, and then none can be decoded. */
bool mo_model_reads_pictures(const mo_model *model)
{
    (void)model;
    return true;
}

mo_status mo_image_open(mo_model *model, const void *bytes, size_t size, mo_image **out, mo_error *err)
{
    (void)model;
    (void)bytes;
    *out = NULL;
    return mo_fail(err, MO_EFORMAT, "%zu bytes are no picture", size);
}

void mo_image_describe(const mo_image *image, mo_image_info *out, size_t size)
{
    (void)image;
    memset(out, 0, size);
}

void mo_image_close(mo_image *image)
{
    (void)image;
}

mo_status mo_images_place(mo_image *const *images, int image_count, const int32_t *ids, size_t count,
                          int32_t **out, size_t *out_count, mo_error *err)
{
    (void)images, (void)image_count, (void)ids, (void)count, (void)out, (void)out_count;
    return mo_fail(err, MO_EINVAL, "there are no pictures");
}

mo_status mo_images_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err)
{
    return mo_tokenize(model, text, length, flags, ids, count, err);
}

mo_status mo_model_tokenize_pictures(const mo_model *model, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **ids, size_t *count,
                                     mo_error *err)
{
    (void)model, (void)text, (void)length, (void)flags, (void)input, (void)most, (void)ids, (void)count;
    return mo_fail(err, MO_EINVAL, "there is no encoder");
}

const char *mo_version(void)
{
    return "0";
}

void mo_free(void *p)
{
    free(p);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < KINDS; i++) {
        srv_model *m = &models[i];
        mo_error err;
        m->mo.checkpoint = (mo_checkpoint *)m; /* a name for it */
        require(vocabulary_open(kinds[i].vocabulary, &m->gguf, &err) == MO_OK);
        require(mo_tokenizer_create(m->gguf, &m->mo.tokenizer, &err) == MO_OK);
        require(mo_lexicon_open(m->mo.tokenizer, mo_tokenizer_size(m->mo.tokenizer), &m->mo.lexicon, &err) ==
                MO_OK);
        char *text = kinds[i].chat_template ? read_text(kinds[i].chat_template) : NULL;
        m->mo.chat = mo_chat_detect(m->gguf, m->mo.tokenizer);
        m->mo.chat = m->mo.chat ? m->mo.chat : mo_chat_format_find("chatml");
        require(mo_model_open_templates(&m->mo, text, &err) == MO_OK);
        m->defaults = srv_defaults_none();
        free(text);
    }
    generator.call_index = srv_call_index_open();
    generator.traces = srv_traces_open();
    response_generator.kept = srv_response_store_open(NULL);
    require(generator.call_index && generator.traces && response_generator.kept);
    keep_response();
    return 0;
}

/* ---- A request ---- */

struct srv_request {
    mo_text body;
    const char *answer; /* what the model says */
    size_t answer_length;
    srv_model *model;
    int way;    /* how the answer ends */
    int status; /* 0: none yet */
    srv_shape shape;
    srv_stream_kind kind;
    srv_writer stream;
    bool streaming, closed, ended;
};

mo_text srv_request_body(const srv_request *q)
{
    return q->body;
}

const char *srv_request_owner(const srv_request *q)
{
    (void)q;
    return "";
}

srv_caller srv_request_caller(const srv_request *q)
{
    (void)q;
    return (srv_caller){.admin = true};
}

int srv_request_priority(const srv_request *q)
{
    (void)q;
    return 0;
}

uint64_t srv_request_client_number(const srv_request *q)
{
    (void)q;
    return 1;
}

int64_t srv_request_begun_ns(const srv_request *q)
{
    (void)q;
    return mo_clock_ns();
}

void srv_request_on_gone(srv_request *q, void (*fn)(void *user), void *user)
{
    (void)q;
    (void)fn;
    (void)user;
}

void srv_stream_on_drained(srv_request *q, void (*fn)(void *user), void *user)
{
    (void)q;
    (void)fn;
    (void)user;
}

void srv_request_note(srv_request *q, const srv_answer_note *note)
{
    (void)q;
    (void)note;
}

static void check_json(const char *text, size_t length)
{
    json_error_t err;
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    require(value != NULL);
    json_decref(value);
}

static void replied(srv_request *q, int status)
{
    require(!q->status && !q->streaming && !q->ended);
    require(status != 500); /* nothing that is sent is our fault */
    q->status = status;
}

void srv_reply_writer(srv_request *q, int status, const srv_writer *body)
{
    require(!body->failed);
    replied(q, status);
    check_json(body->data, body->length);
}

void srv_reply_fault(srv_request *q, const srv_fault *fault)
{
    srv_writer w = {0};
    require(fault->kind != SRV_FAULT_NONE && fault->message[0]);
    srv_fault_write(fault, q->shape, &w);
    replied(q, srv_fault_http(fault->kind, q->shape));
    check_json(w.data, w.length);
    srv_writer_free(&w);
}

void srv_stream_open(srv_request *q, srv_stream_kind kind, int heartbeat_ms)
{
    (void)heartbeat_ms;
    replied(q, 200);
    q->streaming = true;
    q->kind = kind;
}

bool srv_stream_write(srv_request *q, const char *bytes, size_t length)
{
    require(q->streaming && !q->closed);
    srv_put(&q->stream, bytes, length);
    return true;
}

/* Every line of the stream is an event's name, or JSON. */
void srv_stream_close(srv_request *q)
{
    require(q->streaming && !q->closed);
    q->closed = true;
    for (size_t at = 0; at < q->stream.length;) {
        const char *line = q->stream.data + at;
        const char *end = memchr(line, '\n', q->stream.length - at);
        require(end != NULL);
        const size_t length = (size_t)(end - line);
        if (q->kind == SRV_STREAM_NDJSON) {
            check_json(line, length);
        } else if (length > 6 && memcmp(line, "data: ", 6) == 0 &&
                   !(length == 12 && memcmp(line, "data: [DONE]", 12) == 0)) {
            check_json(line + 6, length - 6);
        } else {
            require(length == 0 || memcmp(line, "event: ", 7) == 0 || memcmp(line, "data: [DONE]", 12) == 0);
        }
        at += length + 1;
    }
}

bool srv_request_hold_text(srv_request *q, size_t bytes, srv_fault *fault)
{
    (void)q;
    (void)bytes;
    (void)fault;
    return true;
}

void srv_request_end(srv_request *q)
{
    require(!q->ended && q->status && q->streaming == q->closed);
    q->ended = true;
}

/* ---- The server ---- */

static srv_request *current;

bool srv_model_ref(srv_models *all, const char *name, srv_request *q, srv_model **out, srv_fault *fault)
{
    (void)all;
    if (name && strcmp(name, "nobody") == 0) {
        return srv_fault_set(fault, SRV_FAULT_MODEL, "model", "there is none");
    }
    *out = q->model;
    return true;
}

void srv_model_unref(srv_model *model)
{
    (void)model;
}

void srv_model_doubt(srv_model *model)
{
    (void)model;
}

void srv_model_keep(srv_model *model, double seconds)
{
    (void)model;
    (void)seconds;
}

int srv_model_adapters(const srv_model *model, mo_adapter_use out[SRV_ADAPTERS])
{
    (void)model;
    memset(out, 0, sizeof *out * SRV_ADAPTERS);
    return 2; /* which nothing computes with: their scales are read and checked */
}

mo_model *srv_model_mo(const srv_model *model)
{
    return (mo_model *)&model->mo;
}

srv_engine *srv_model_engine(const srv_model *model)
{
    return (srv_engine *)model;
}

const char *srv_model_path(const srv_model *model)
{
    (void)model;
    return "model.gguf";
}

const char *srv_model_id(const srv_model *model)
{
    (void)model;
    return "model";
}

int64_t srv_model_context(const srv_model *model)
{
    (void)model;
    return CONTEXT;
}

const srv_defaults *srv_model_defaults(const srv_model *model)
{
    return &model->defaults;
}

bool srv_running_add(srv_running *r, const char *id, const char *owner, void (*stop)(void *user, bool ending),
                     void *user)
{
    (void)r;
    (void)id;
    (void)owner;
    (void)stop;
    (void)user;
    return false;
}

void srv_running_remove(srv_running *r, const void *user)
{
    (void)r;
    (void)user;
}

/* ---- The engine ---- */

srv_job_options srv_job_options_default(void)
{
    return (srv_job_options){.generation = mo_generation_options_default(), .n = 1};
}

void mo_sampler_options_init(mo_sampler_options *options, size_t size)
{
    memset(options, 0, size);
    options->size = size;
}

mo_status mo_sampler_options_check(const mo_sampler_options *options, int64_t vocab, mo_error *err)
{
    (void)options;
    (void)vocab;
    (void)err;
    return MO_OK;
}

const mo_model_info *srv_engine_info(const srv_engine *engine)
{
    static const mo_model_info info = {.fingerprint = 1};
    (void)engine;
    return &info;
}

int srv_engine_queue(const srv_engine *engine)
{
    (void)engine;
    return 256;
}

void srv_job_cancel(srv_engine *engine, uint64_t job)
{
    (void)engine;
    (void)job;
}

void srv_job_pause(srv_engine *engine, uint64_t job)
{
    (void)engine;
    (void)job;
}

void srv_job_resume(srv_engine *engine, uint64_t job)
{
    (void)engine;
    (void)job;
}

/* The last answer, which comes back where its calls do. */
static struct {
    char id[64];
    int32_t *tokens;
    size_t count, prompt;
} last;

bool srv_engine_find_call(srv_engine *engine, const char *call_id, int32_t **tokens, size_t *count,
                          size_t *prompt)
{
    (void)engine;
    if (!last.tokens || strcmp(call_id, last.id) != 0) {
        return false;
    }
    *tokens = malloc(last.count * sizeof **tokens);
    require(*tokens != NULL);
    memcpy(*tokens, last.tokens, last.count * sizeof **tokens);
    *count = last.count;
    *prompt = last.prompt;
    return true;
}

typedef struct telling {
    const srv_job_options *o;
    mo_events *events;
    int choice;
    srv_usage usage;
    srv_timings timings;
} telling;

static void tell(telling *t, srv_event event)
{
    event.job = 1;
    event.choice = t->choice;
    event.usage = &t->usage;
    event.timings = &t->timings;
    t->o->sink(t->o->user, &event);
}

static void tell_events(telling *t)
{
    static const srv_event_kind kinds[] = {
        [MO_EVENT_TEXT] = SRV_TEXT,           [MO_EVENT_THOUGHT] = SRV_THOUGHT,   [MO_EVENT_CALL] = SRV_CALL,
        [MO_EVENT_ARGUMENTS] = SRV_ARGUMENTS, [MO_EVENT_CALL_END] = SRV_CALL_END, [MO_EVENT_END] = SRV_END};
    mo_generation_event from;
    while (mo_events_take(t->events, &from)) {
        t->usage.completion_tokens += from.kind == MO_EVENT_END ? from.generated : 0;
        tell(t, (srv_event){.kind = kinds[from.kind],
                            .text = from.text,
                            .call = from.call,
                            .call_id = from.kind == MO_EVENT_CALL ? from.id.data : NULL,
                            .tokens = from.tokens,
                            .token_count = from.token_count,
                            .finish = from.kind != MO_EVENT_END  ? SRV_FINISH_NONE
                                      : from.end == MO_END_MODEL ? SRV_FINISH_END
                                      : from.end == MO_END_STOP  ? SRV_FINISH_STRING
                                                                 : SRV_FINISH_LENGTH,
                            .stop = from.stop,
                            .completion_tokens = from.generated});
    }
}

static void remember(const telling *t, const int32_t *ids)
{
    const char *id = mo_events_call(t->events, 0);
    if (id) {
        const size_t made = (size_t)mo_events_tokens(t->events);
        free(last.tokens);
        last.tokens = malloc((t->o->count + made) * sizeof *last.tokens);
        require(last.tokens != NULL);
        memcpy(last.tokens, t->o->tokens, t->o->count * sizeof *last.tokens);
        memcpy(last.tokens + t->o->count, ids, made * sizeof *last.tokens);
        last.count = t->o->count + made;
        last.prompt = t->o->count;
        snprintf(last.id, sizeof last.id, "%s", id);
    }
}

/* The answer's text as tokens, each with the probabilities that were asked for. */
static void say(telling *t, const int32_t *ids, size_t count)
{
    const mo_generation_options *o = &t->o->generation;
    const mo_generation_settings set = {.has_vocabulary = true,
                                        .thought_tokens = o->thought_tokens,
                                        .stop = (char **)o->stop,
                                        .stop_count = o->stop_count,
                                        .reply = t->o->reply ? *t->o->reply : mo_reply_options_default(),
                                        .raw = o->raw};
    const mo_model *model = &current->model->mo;
    mo_end end = (current->way & 1) ? MO_END_MODEL : MO_END_LENGTH;
    if (o->max_tokens >= 0 && (int64_t)count > o->max_tokens) {
        count = (size_t)o->max_tokens;
        end = MO_END_LENGTH;
    }
    mo_sampled token = {.logprob = -0.5F, .top_count = o->logprobs > 0 ? o->logprobs : 0};
    for (int i = 0; i < MO_TOP_MAX; i++) {
        token.top[i] = (mo_logprob){.token = 65 + i, .logprob = -1};
    }
    mo_error err;
    require(mo_events_open(model, &set, set.reply.in_thought, &t->events, &err) == MO_OK);
    for (size_t i = 0; i < count && mo_events_ended(t->events) == MO_END_NONE; i++) {
        token.id = ids[i];
        token.ends = mo_token_ends(model, ids[i]);
        require(mo_events_put(t->events, &token, &err) == MO_OK);
        tell_events(t);
    }
    require(mo_events_end(t->events, end, NULL, &err) == MO_OK);
    tell_events(t);
    remember(t, ids);
    mo_events_close(t->events);
}

srv_verdict srv_job_submit(srv_engine *engine, const srv_job_options *o, uint64_t *job, mo_error *err)
{
    (void)engine;
    const mo_generation_options *set = &o->generation;
    require(o->count > 0 && o->count <= CONTEXT && o->n >= 1 && set->max_tokens >= -1 &&
            set->logprobs >= -1 && set->logprobs <= MO_TOP_MAX && set->temperature >= 0);
    if (o->n > 4) {
        err->status = MO_EINVAL;
        snprintf(err->detail, sizeof err->detail, "too many");
        return SRV_INVALID;
    }
    int32_t *ids = NULL;
    size_t count = 0;
    require(mo_tokenize(&current->model->mo, current->answer, current->answer_length, MO_TOKEN_NAMES, &ids,
                        &count, err) == MO_OK);
    telling t = {.o = o, .usage = {.prompt_tokens = (int64_t)o->count}};
    *job = 1;
    tell(&t, (srv_event){.kind = SRV_STARTED, .text = {"", 0}, .stop = -1});
    if (o->progress) {
        tell(&t, (srv_event){.kind = SRV_PROGRESS, .text = {"", 0}, .stop = -1});
    }
    for (t.choice = 0; t.choice < o->n && !(current->way & 2); t.choice++) {
        say(&t, ids, count);
    }
    t.choice = 0;
    if (current->way & 2) {
        const mo_error lost = {MO_ECANCELLED, "cancelled"};
        tell(&t, (srv_event){.kind = SRV_FAILED, .text = {"", 0}, .stop = -1, .error = &lost});
    } else {
        tell(&t, (srv_event){.kind = SRV_DONE, .text = {"", 0}, .stop = -1});
    }
    mo_free(ids);
    return SRV_ACCEPTED;
}

/* ---- Inputs ---- */

/* One of those that need a model, counted through all tables. */
static const srv_route *endpoint(unsigned index, void **owner)
{
    static const srv_route_table tables[] = {{srv_openai_routes, &generator},
                                             {srv_response_routes, &response_generator},
                                             {srv_anthropic_routes, &generator},
                                             {srv_ollama_routes, &generator},
                                             {srv_llama_routes, &generator}};
    for (;;) {
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
            for (const srv_route *r = tables[i].routes; r->method; r++) {
                if (!(r->flags & SRV_QUICK) && index-- == 0) {
                    *owner = tables[i].owner;
                    return r;
                }
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char line[] = "\n----\n";
    if (size < 2) {
        return 0;
    }
    void *owner;
    const srv_route *route = endpoint(data[0], &owner);
    char *text = malloc(size);
    require(text != NULL);
    memcpy(text, data + 2, size - 2);
    text[size - 2] = 0;
    const char *cut = strstr(text, line);
    const char *said = cut ? cut + sizeof line - 1 : "";
    srv_request q = {.body = {text, cut ? (size_t)(cut - text) : size - 2},
                     .answer = said,
                     .answer_length = cut ? size - 2 - (size_t)(said - text) : 0,
                     .model = &models[data[1] % KINDS],
                     .way = data[1] / KINDS % 4,
                     .shape = srv_shape_of(route->path)};
    if (cut) {
        text[cut - text] = 0; /* a body is terminated */
    }
    current = &q;
    route->handler(owner, &q);
    require(q.ended);
    srv_writer_free(&q.stream);
    free(text);
    return 0;
}
