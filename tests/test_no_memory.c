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
#include "moraine_server.h"

static void check_words(const char *what, mo_status status, const mo_error *err, long n)
{
    if (status != MO_ENOMEM || !strstr(err->detail, "memory") || strstr(err->detail, "-1") ||
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

static void a_model_opens_with_its_text_or_not_at_all(void **state)
{
    (void)state;
    const mo_model_options o = options_of();
    mo_model *whole = open_model();
    const char *template = mo_model_chat_template(whole, NULL);
    assert_non_null(template);
    mo_status status = MO_ENOMEM;
    long n = 0;
    for (long refused = 1; refused > 0; n++) {
        mo_model *model = NULL;
        mo_error err = {0};
        mo_model_info info = {0};
        refusals = 0;
        fail_after = n;
        fail_once = true;
        status = mo_model_open(MO_TEST_MODEL, &o, &model, &err);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_opens_with_its_text_or_not_at_all),
        cmocka_unit_test(calls_say_that_memory_is_out),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    return cmocka_run_group_tests_name("no_memory", tests, NULL, NULL);
}
