/* Threads with small stacks, as programs that serve many people start them: everything the library does in its caller's
 * thread fits 64 KiB, as moraine.h says, with every instruction set and on the simulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "folder.h"
#include "moraine_server.h"
#include "sanitized.h"

/* A sanitizer's frames are larger; it then looks at memory alone. */
enum { STACK = SANITIZED ? 1 << 20 : 64 * 1024, GUARD = 128 * 1024, PAINT = 0xA5 };
/* What is left of it for a program's own frames, and for a signal's. */
enum { SPARE = SANITIZED ? 0 : 12 * 1024 };

enum { CONTEXT = 512, PROMPT = 300, ANSWER = 3, SESSIONS = 12 };

typedef struct work {
    void (*run)(struct work *w);
    mo_model_options options;
    const char *path;
    mo_error err;
    bool good;
    bool most; /* it uses all there is, but for what it keeps free */
} work;

static void *run_work(void *arg)
{
    work *w = arg;
    w->run(w);
    return NULL;
}

/* Runs it on a stack of that size with nothing below it, and says how much of it was used. Where the least that pthreads take
 * is more (128 KiB on some machines), what lies below counts as stack for them alone; work that asks how much there is gets
 * as much as that. */
static void on_small_stack(work *w, const char *what)
{
    pthread_t thread;
    pthread_attr_t attributes;
    const int least = (int)sysconf(_SC_THREAD_STACK_MIN), stack = w->most && least > STACK ? least : STACK;
    uint8_t *memory =
        mmap(NULL, GUARD + stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory, GUARD, PROT_NONE), 0);
    memset(memory + GUARD, PAINT, (size_t)stack);
    pthread_attr_init(&attributes);
    assert_int_equal(w->most ? pthread_attr_setstack(&attributes, memory + GUARD, (size_t)stack)
                             : pthread_attr_setstack(&attributes, memory, GUARD + STACK),
                     0);
    assert_int_equal(pthread_create(&thread, &attributes, run_work, w), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    int free_bytes = 0;
    while (free_bytes < stack && memory[GUARD + free_bytes] == PAINT) {
        free_bytes++;
    }
    munmap(memory, (size_t)GUARD + (size_t)stack);
    if (!w->good) {
        fail_msg("%s: %s", what, w->err.detail);
    }
    print_message("%s: %d KiB\n", what, (stack - free_bytes + 1023) / 1024);
    assert_true(free_bytes >= (w->most ? 1024 : SPARE));
}

static bool ok(mo_status status)
{
    return status == MO_OK;
}

static int64_t vocab_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.vocab;
}

/* ---- Feeding ---------------------------------------------------------------------------------- */

typedef struct talk {
    mo_model *model;
    mo_session *session;
    mo_sampler *sampler;
    int32_t tokens[PROMPT + ANSWER];
    mo_feed_report report;
} talk;

static bool open_talk(mo_model *model, int number, talk *t, mo_error *err)
{
    static const mo_logit_bias bias = {.token = 3, .bias = 1.0f};
    mo_sampler_options o = mo_sampler_options_default();
    o.seed = (uint64_t)number;
    o.repeat_penalty = 1.1f;
    o.frequency_penalty = 0.1f;
    o.penalty_last = -1;
    o.top_p = 0.9f;
    o.top_k = 0;
    o.min_p = 0.01f;
    o.bias = &bias;
    o.bias_count = 1;
    t->model = model;
    for (int i = 0; i < PROMPT; i++) {
        t->tokens[i] = (int32_t)((number * 37 + i * 11 + 5) % vocab_of(model));
    }
    return ok(mo_session_open(model, NULL, &t->session, err)) &&
           ok(mo_sampler_open(&o, vocab_of(model), &t->sampler, err));
}

static void close_talk(talk *t)
{
    mo_sampler_close(t->sampler);
    mo_session_close(t->session);
}

static mo_feed feed_of(talk *t, int64_t count)
{
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = t->session,
                     .tokens = t->tokens,
                     .count = count,
                     .sampler = t->sampler,
                     .logprobs = true,
                     .top = MO_TOP_MAX,
                     .report = &t->report,
                     .report_size = sizeof t->report};
}

static bool answer(talk *t, mo_error *err)
{
    bool good = true;
    for (int64_t count = PROMPT; good && count < PROMPT + ANSWER; count++) {
        const mo_feed f = feed_of(t, count);
        good = ok(mo_session_feed(&f, 1, err));
        t->tokens[count] = t->report.token;
    }
    return good;
}

/* Back to the prompt by a copy, and by one that went through bytes. */
static bool go_back(talk *t, mo_error *err)
{
    mo_snapshot *copy = NULL, *read = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    const bool good = ok(mo_snapshot_open(t->session, &copy, err)) &&
                      ok(mo_snapshot_write(copy, &bytes, &size, err)) &&
                      ok(mo_snapshot_read(t->model, bytes, size, &read, err)) &&
                      ok(mo_session_restore(t->session, copy, -1, err)) &&
                      ok(mo_session_restore(t->session, read, -1, err)) && answer(t, err);
    mo_free(bytes);
    mo_snapshot_close(copy);
    mo_snapshot_close(read);
    return good;
}

static bool feed_many(mo_model *model, mo_error *err)
{
    talk *all = calloc(SESSIONS, sizeof *all);
    mo_feed *feeds = calloc(SESSIONS, sizeof *feeds);
    bool good = all && feeds;
    for (int i = 0; good && i < SESSIONS; i++) {
        good = open_talk(model, i, &all[i], err);
    }
    for (int64_t count = PROMPT / 10; good && count < PROMPT / 10 + ANSWER; count++) {
        for (int i = 0; i < SESSIONS; i++) {
            feeds[i] = feed_of(&all[i], count);
        }
        good = ok(mo_session_feed(feeds, SESSIONS, err));
        for (int i = 0; i < SESSIONS; i++) {
            all[i].tokens[count] = all[i].report.token;
        }
    }
    for (int i = 0; all && i < SESSIONS; i++) {
        close_talk(&all[i]);
    }
    free(all);
    free(feeds);
    return good;
}

static void feed(work *w)
{
    mo_model *model = NULL;
    talk *t = calloc(1, sizeof *t);
    w->good = t && ok(mo_model_open(w->path, &w->options, &model, &w->err)) &&
              open_talk(model, 1, t, &w->err) && answer(t, &w->err) && go_back(t, &w->err) &&
              feed_many(model, &w->err) && ok(mo_model_request_done(model, &w->err));
    if (t) {
        close_talk(t);
    }
    free(t);
    mo_model_close(model);
}

static mo_model_options options_for(const char *isa, const char *device)
{
    mo_model_options o = mo_model_options_default();
    o.isa = isa;
    o.device = device;
    o.context = CONTEXT;
    o.batch = 256;
    o.threads = 1; /* the caller does all the work itself */
    o.learning.profile = "off";
    o.sessions = SESSIONS + 1;
    return o;
}

static const char *const models[] = {"qwen3moe", "gpt-oss-mxfp4", "gemma4", "qwen3next-mixq"};

static void feed_models(const char *isa, const char *device, mo_kv_type kv)
{
    const size_t count = sizeof models / sizeof *models;
    static size_t turn; /* under sanitizers, which take their time, one model after the other */
    for (size_t i = SANITIZED ? turn++ % count : 0; i < count; i += SANITIZED ? count : 1) {
        char path[512], what[200];
        snprintf(path, sizeof path, MO_TEST_DATA "/oracle/%s.gguf", models[i]);
        snprintf(what, sizeof what, "%s, %s, %s, format %d of keys and values", models[i], isa ? isa : "auto",
                 device, (int)kv);
        work w = {.run = feed, .options = options_for(isa, device), .path = path};
        w.options.kv = kv;
        on_small_stack(&w, what);
    }
}

static void feeding_with_every_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; mo_isa_name(i); i++) {
        feed_models(mo_isa_name(i), "none", MO_KV_I16);
    }
    feed_models(NULL, "none", MO_KV_F32);
    feed_models(NULL, "none", MO_KV_Q8_0);
}

static void feeding_on_a_device(void **state)
{
    (void)state;
    feed_models(NULL, "sim", MO_KV_I16);
}

/* Experts that come from disk, and on a device that has no memory for them. */
static void feeding_from_tiers(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        work w = {.run = feed, .options = options_for(NULL, device ? "sim" : "none"), .path = MO_TEST_MODEL};
        w.options.context = CONTEXT;
        w.options.sessions = 1;
        w.options.ram_bytes = device ? 0 : INT64_C(200) << 20;
        w.options.cpu_moe = device;
        on_small_stack(&w, device ? "experts that the CPU computes" : "experts from disk");
    }
}

/* ---- Text ------------------------------------------------------------------------------------- */

static bool show(mo_model *model, const int32_t *ids, size_t count, mo_error *err)
{
    mo_stream *stream = NULL;
    mo_text text;
    bool good = ok(mo_stream_open(model, &stream, err));
    for (size_t i = 0; good && i < count; i++) {
        good = ok(mo_stream_put(stream, ids[i], &text, err));
    }
    mo_stream_close(stream);
    return good;
}

static void write_text(work *w)
{
    static const char conversation[] =
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Was ist ein Gletscher? \\u2603\"}]}]";
    mo_model *model = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    w->good = ok(mo_model_open(w->path, &w->options, &model, &w->err)) &&
              ok(mo_model_chat_json(model, conversation, sizeof conversation - 1, NULL, &text, &w->err)) &&
              ok(mo_tokenize(model, text, strlen(text), MO_TOKEN_CHAT, &ids, &count, &w->err)) &&
              show(model, ids, count, &w->err);
    mo_free(text);
    mo_free(ids);
    mo_model_close(model);
}

static void text_and_chat(void **state)
{
    (void)state;
    work w = {.run = write_text, .options = options_for(NULL, "none"), .path = MO_TEST_MODEL};
    on_small_stack(&w, "a conversation and its tokens");
}

/* Templates come with models of strangers: one that calls itself, and one whose lists are in each other. */
static void render_nested(work *w)
{
    static const char calls[] = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    char lists[1100];
    mo_template *t = NULL;
    char *text = NULL;
    size_t length;
    const int begin = snprintf(lists, sizeof lists, "{{ ");
    memset(lists + begin, '[', 497);
    memset(lists + 500, ']', 500);
    snprintf(lists + 1000, 100, " }}");
    w->good = ok(mo_template_open(calls, sizeof calls - 1, &t, &w->err)) &&
              mo_template_render(t, "{}", 2, NULL, &text, &length, &w->err) == MO_ENOSPC;
    mo_template_close(t);
    t = NULL;
    mo_template_open(lists, strlen(lists), &t, &w->err); /* well or not: it comes back */
    mo_template_close(t);
}

static void nested_templates(void **state)
{
    (void)state;
    work w = {.run = render_nested, .most = true};
    on_small_stack(&w, "templates that go as deep as they may");
}

/* Somebody else's JSON can be nested as deep as it likes. */
static void nest(work *w)
{
    enum { DEEP = 100000 };
    mo_model *model = NULL;
    mo_profile_report report;
    char *deep = malloc(2 * DEEP), *text = NULL;
    w->good = deep && ok(mo_model_open(w->path, &w->options, &model, &w->err));
    if (w->good) {
        memset(deep, '[', DEEP);
        memset(deep + DEEP, ']', DEEP);
        w->good =
            mo_model_chat_json(model, deep, 2 * DEEP, NULL, &text, &w->err) != MO_OK &&
            mo_model_profile_apply(model, deep, 2 * DEEP, &report, sizeof report, &w->err) == MO_EFORMAT;
    }
    mo_free(text);
    free(deep);
    mo_model_close(model);
}

static void nested_json(void **state)
{
    (void)state;
    work w = {.run = nest, .options = options_for(NULL, "none"), .path = MO_TEST_MODEL, .most = true};
    on_small_stack(&w, "deeply nested JSON");
}

/* ---- Tools ------------------------------------------------------------------------------------ */

static void use_tools(work *w)
{
    mo_synth_options synth = mo_synth_options_default();
    mo_quantize_options quantize = mo_quantize_options_default();
    mo_model_options plan = mo_model_options_default();
    mo_plan_report report;
    mo_file *file = NULL;
    mo_file_info info;
    synth.layers = 1;
    /* No multiple of its blocks: another format, and a warning. Under sanitizers its search takes half a minute. */
    quantize.rest = SANITIZED ? "Q8_0" : "Q4_K";
    quantize.embedding = "Q8_0"; /* the largest by far */
    w->good = ok(mo_synth("smollm2-135m", in_folder("made.gguf"), &synth, NULL, NULL, &w->err)) &&
              ok(mo_quantize_reported(in_folder("made.gguf"), in_folder("less.gguf"), &quantize, NULL, NULL,
                                      NULL, 0, &w->err)) &&
              ok(mo_file_open(in_folder("less.gguf"), &file, &w->err)) &&
              ok(mo_file_summarize(file, &info, sizeof info, &w->err)) &&
              ok(mo_plan_file(in_folder("less.gguf"), &plan, NULL, &report, sizeof report, &w->err));
    mo_file_close(file);
}

static void tools(void **state)
{
    (void)state;
    work w = {.run = use_tools};
    on_small_stack(&w, "making, quantizing and planning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feeding_with_every_instruction_set),
        cmocka_unit_test(feeding_on_a_device),
        cmocka_unit_test(feeding_from_tiers),
        cmocka_unit_test(text_and_chat),
        cmocka_unit_test(nested_json),
        cmocka_unit_test(nested_templates),
        cmocka_unit_test(tools),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
