/* Memory that runs out while the library is used: every allocation of the calling thread fails in turn, those of the JSON parser
 * too. Calls then fail with MO_ENOMEM and say so; a model that opens nevertheless has its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "failing_memory.h"
#include "folder.h"
#include "lora_file.h"
#include "moraine_server.h"
#include "sanitized.h"

/* A folder may have "-1" in its name. */
static void check_words(const char *what, mo_status status, const mo_error *err, long n)
{
    if (status != MO_ENOMEM || !strstr(err->detail, "memory") || strstr(err->detail, " -1") ||
        strstr(err->detail, "9223372036854775807")) {
        fail_msg("%s, allocation %ld: status %d: %s", what, n, (int)status, err->detail);
    }
}

static mo_model_options options_of(void)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 1;
    o.context = 128;
    o.batch = 16;
    o.device = "none";
    o.learning.profile = "off";
    o.ram_bytes = (int64_t)1 << 30;
    return o;
}

static mo_model *open_model(void)
{
    const mo_model_options o = options_of();
    mo_model *model = NULL;
    mo_error err = {0};
    if (mo_model_open(MO_TEST_MODEL, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

static void opens(const mo_model_options *o)
{
    mo_model *whole = open_model();
    const char *template = mo_model_chat_template(whole, NULL);
    assert_non_null(template);
    mo_status status = MO_ENOMEM;
    long n = 0;
    for (long refused = 1; refused > 0; n += SANITIZED ? 5 : 1) {
        mo_model *model = NULL;
        mo_error err = {0};
        mo_model_info info = {0};
        refusals = 0;
        fail_after = n;
        fail_once = true;
        status = mo_model_open(MO_TEST_MODEL, o, &model, &err);
        fail_after = -1;
        fail_once = false;
        refused = refusals;
        if (status != MO_OK) {
            check_words("mo_model_open", status, &err, n);
            assert_null(model);
            continue;
        }
        mo_grammar *grammar = NULL;
        mo_model_describe(model, &info, sizeof info);
        if (!info.has_vocabulary || !mo_model_chat_template(model, NULL) ||
            strcmp(mo_model_chat_template(model, NULL), template) != 0 ||
            mo_model_shows_tools(model) != mo_model_shows_tools(whole) ||
            mo_model_shows_calls(model) != mo_model_shows_calls(whole) ||
            mo_grammar_open(model, "root ::= \"a\"", 12, NULL, &grammar, &err) != MO_OK) {
            fail_msg("allocation %ld: the model opened without a part of its text: %s", n, err.detail);
        }
        mo_grammar_close(grammar);
        mo_model_close(model);
    }
    assert_int_equal(status, MO_OK);
    assert_true(n > 50);
    mo_model_close(whole);
}

static void a_model_opens_with_its_text_or_not_at_all(void **state)
{
    (void)state;
    mo_model_options o = options_of();
    opens(&o);
    o.ram_bytes = (int64_t)60 << 20; /* experts on disk */
    opens(&o);
    o = options_of();
    o.device = "sim";
    opens(&o);
    o.vram_bytes = (int64_t)48 << 20;
    opens(&o);
}

/* ---- Calls with JSON ---- */

static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}";
static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]";
static const char schema[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}";

static mo_status prompt(mo_model *model, mo_error *err)
{
    mo_prompt *p = NULL;
    const mo_status status = mo_prompt_open(model, conversation, strlen(conversation), NULL, &p, err);
    mo_prompt_close(p);
    return status;
}

static mo_status chat_json(mo_model *model, mo_error *err)
{
    char *text = NULL;
    const mo_status status = mo_model_chat_json(model, conversation, strlen(conversation), NULL, &text, err);
    mo_free(text);
    return status;
}

static mo_status tools_text(mo_model *model, mo_error *err)
{
    char *text = NULL;
    const mo_status status = mo_tools_text(model, tools, strlen(tools), false, &text, err);
    mo_free(text);
    return status;
}

static mo_status reply(mo_model *model, mo_error *err)
{
    mo_reply *r = NULL;
    mo_reply_options o = mo_reply_options_default();
    o.tools = tools;
    o.tools_length = strlen(tools);
    const mo_status status = mo_reply_open(model, &o, &r, err);
    mo_reply_close(r);
    return status;
}

static mo_status schema_gbnf(mo_model *model, mo_error *err)
{
    char *gbnf = NULL;
    (void)model;
    const mo_status status = mo_schema_gbnf(schema, strlen(schema), "root", NULL, &gbnf, NULL, err);
    mo_free(gbnf);
    return status;
}

static mo_status tools_grammar(mo_model *model, mo_error *err)
{
    mo_grammar *g = NULL;
    mo_tools_options o = mo_tools_options_default();
    o.tools = tools;
    o.tools_length = strlen(tools);
    const mo_status status = mo_tools_grammar(model, &o, &g, err);
    mo_grammar_close(g);
    return status;
}

static mo_status session(mo_model *model, mo_error *err)
{
    mo_session *s = NULL;
    const mo_status status = mo_session_open(model, NULL, &s, err);
    mo_session_close(s);
    return status;
}

static mo_status plan(mo_model *model, mo_error *err)
{
    static mo_plan_report report;
    mo_model_options o = mo_model_options_default();
    o.device = "none";
    (void)model;
    return mo_plan_file(MO_TEST_MODEL, &o, NULL, &report, sizeof report, err);
}

static void calls_say_that_memory_is_out(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mo_status (*call)(mo_model *model, mo_error *err);
    } calls[] = {{"mo_prompt_open", prompt},      {"mo_model_chat_json", chat_json},
                 {"mo_tools_text", tools_text},   {"mo_reply_open", reply},
                 {"mo_schema_gbnf", schema_gbnf}, {"mo_tools_grammar", tools_grammar},
                 {"mo_session_open", session},    {"mo_plan_file", plan}};
    mo_model *model = open_model();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        long n = 0;
        for (long refused = 1; refused > 0; n++) {
            mo_error err = {0};
            refusals = 0;
            fail_after = n / 2;
            fail_once = n % 2;
            const mo_status status = calls[i].call(model, &err);
            fail_after = -1;
            fail_once = false;
            refused = refusals;
            if (status != MO_OK) {
                check_words(calls[i].name, status, &err, n / 2);
            }
        }
        assert_true(n > 6);
    }
    mo_model_close(model);
}

/* ---- A session's life ---- */

enum { LIFE_TOKENS = 4 };

typedef struct life {
    mo_adapter *adapter;
    mo_session *session, *second;
    mo_generation *generation, *loaded;
    mo_snapshot *snapshot, *copy;
    uint8_t *bytes, *saved;
    char *json;
    char text[256];
    size_t length;
} life;

static mo_status drain(mo_generation *g, life *l, mo_error *err)
{
    mo_generation_event e;
    while (mo_generation_next(g, &e, sizeof e)) {
        if (e.text.length && l->length + e.text.length < sizeof l->text) {
            memcpy(l->text + l->length, e.text.data, e.text.length);
            l->length += e.text.length;
        }
        if (e.kind == MO_EVENT_END && e.error) {
            *err = *e.error;
            return err->status;
        }
    }
    return MO_OK;
}

static mo_status finish(mo_generation *g, life *l, mo_error *err)
{
    int running = 1;
    mo_status status = MO_OK;
    while (running > 0 && status == MO_OK) {
        running = mo_generation_step(&g, 1, err);
        status = running < 0 ? err->status : drain(g, l, err);
    }
    return status;
}

/* An answer with an adapter that is saved after its first token and finished by another session. */
static mo_status answer(mo_model *model, life *l, mo_error *err)
{
    static const int32_t tokens[] = {11, 12, 13};
    size_t size = 0;
    mo_generation_options o = mo_generation_options_default();
    o.max_tokens = LIFE_TOKENS;
    o.seed = 1;
    o.raw = true;
    o.grammar = "root ::= [a-z A-Z.,]+";
    mo_adapter_use use = {NULL, 0.5f};
    mo_status status = mo_adapter_open(model, in_folder("adapter.gguf"), &l->adapter, err);
    use.adapter = l->adapter;
    status = status == MO_OK ? mo_session_open(model, NULL, &l->session, err) : status;
    status = status == MO_OK ? mo_session_adapt(l->session, &use, 1, err) : status;
    status = status == MO_OK ? mo_generation_open(model, &o, &l->generation, err) : status;
    status = status == MO_OK ? mo_generation_prompt(l->generation, l->session, tokens, 3, err) : status;
    if (status == MO_OK && mo_generation_step(&l->generation, 1, err) < 0) {
        status = err->status;
    }
    status = status == MO_OK ? drain(l->generation, l, err) : status;
    status = status == MO_OK ? mo_snapshot_open(l->session, &l->snapshot, err) : status;
    status = status == MO_OK ? mo_snapshot_write(l->snapshot, &l->bytes, &size, err) : status;
    status = status == MO_OK ? mo_snapshot_read(model, l->bytes, size, &l->copy, err) : status;
    status = status == MO_OK ? mo_generation_save(l->generation, &l->saved, &size, err) : status;
    status = status == MO_OK ? mo_session_open(model, NULL, &l->second, err) : status;
    status = status == MO_OK ? mo_session_adapt(l->second, &use, 1, err) : status;
    status = status == MO_OK ? mo_session_restore(l->second, l->copy, -1, err) : status;
    status = status == MO_OK ? mo_generation_load(model, l->second, l->saved, size, &l->loaded, err) : status;
    status = status == MO_OK ? finish(l->loaded, l, err) : status;
    status = status == MO_OK ? mo_model_stats_json(model, &l->json, err) : status;
    return status == MO_OK ? mo_model_request_done(model, err) : status;
}

static void end_life(life *l)
{
    mo_generation_close(l->generation);
    mo_generation_close(l->loaded);
    mo_snapshot_close(l->snapshot);
    mo_snapshot_close(l->copy);
    mo_session_close(l->session);
    mo_session_close(l->second);
    mo_adapter_close(l->adapter);
    mo_free(l->bytes);
    mo_free(l->saved);
    mo_free(l->json);
}

/* Every allocation of the life, or every `stride`-th, fails once: MO_ENOMEM, or the same text. Sanitizers take fewer; nothing leaks. */
static void lives(const char *device, int64_t ram_bytes, long stride)
{
    static life l;
    mo_model_options o = options_of();
    mo_model *model = NULL;
    mo_error err = {0};
    char want[sizeof l.text] = "";
    long n = 0, failed = 0;
    o.device = device;
    o.ram_bytes = ram_bytes;
    o.sessions = 2;
    o.kept_bytes = (int64_t)8 << 20;
    o.adapter_bytes = (int64_t)4 << 20;
    if (mo_model_open(MO_TEST_MODEL, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    for (long refused = 1; refused > 0; n += n == 0 ? 1 : SANITIZED ? 11 : stride) {
        err = (mo_error){0};
        l = (life){0};
        refusals = 0;
        fail_after = n ? n - 1 : -1; /* the first time all succeed */
        fail_once = true;
        const mo_status status = answer(model, &l, &err);
        fail_after = -1;
        fail_once = false;
        refused = n ? refusals : 1;
        end_life(&l);
        if (status != MO_OK) {
            check_words("a session's life", status, &err, n - 1);
            failed++;
        } else if (n == 0) {
            memcpy(want, l.text, sizeof want);
            assert_true(l.length > 0);
        } else {
            assert_memory_equal(l.text, want, sizeof want);
        }
    }
    assert_true(failed > 20);
    mo_model_close(model);
}

static void lives_on_the_cpu(void **state)
{
    (void)state;
    lives("none", (int64_t)1 << 30, 1);
}

static void lives_with_experts_on_disk(void **state)
{
    (void)state;
    lives("none", (int64_t)60 << 20, 5);
}

static void lives_on_a_device(void **state)
{
    (void)state;
    lives("sim", (int64_t)1 << 30, 5);
}

static int prepare(void **state)
{
    const lora_recipe recipe = {.parts = lora_attention, .rank = 4, .seed = 5};
    return folder_make(state) == 0 && lora_file_make(MO_TEST_MODEL, in_folder("adapter.gguf"), &recipe) ? 0
                                                                                                        : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_opens_with_its_text_or_not_at_all),
        cmocka_unit_test(calls_say_that_memory_is_out),
        cmocka_unit_test(lives_on_the_cpu),
        cmocka_unit_test(lives_with_experts_on_disk),
        cmocka_unit_test(lives_on_a_device),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("no_memory", tests, prepare, folder_remove);
}
