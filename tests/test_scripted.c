/* Answers with calls from end to end: models that say what a script says (support/scripted.h), in the formats of several
 * families, and what becomes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "folder.h"
#include "moraine_server.h"
#include "scripted.h"

#define BAR  "\xEF\xBD\x9C"
#define MARK "\xE2\x96\x81"
#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","    \
    "\"properties\":"                                                                                        \
    "{\"city\":{\"type\":\"string\"}}}}}]"

static mo_model *make_model(const char *path, const char *chat_template, const scripted_script *scripts,
                            int count)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = 1;
    o.context = 512;
    o.learning.profile = "off";
    o.device = "none";
    check_status(scripted_write(path, chat_template, scripts, count, &err), &err);
    check_status(mo_model_open(path, &o, &model, &err), &err);
    return model;
}

/* The pieces of the greedy answer, as text. constraint: NULL for none. */
static void answer_within(mo_model *model, const char *prompt, const char *tools, mo_grammar *grammar,
                          char *out, size_t space)
{
    mo_constraint *constraint = NULL;
    mo_error err;
    mo_session *session;
    mo_reply *reply;
    mo_sampler *sampler;
    mo_model_info info;
    int32_t *ids, tokens[512];
    size_t count, used = 0, n;
    const mo_piece *pieces;
    mo_reply_options o = mo_reply_options_default();
    mo_sampler_options s = mo_sampler_options_default();
    s.temperature = 0;
    mo_model_describe(model, &info, sizeof info);
    check_status(mo_tokenize(model, prompt, strlen(prompt), MO_TOKEN_CHAT, &ids, &count, &err), &err);
    memcpy(tokens, ids, count * sizeof *ids);
    free(ids);
    o.tools = tools;
    o.tools_length = strlen(tools);
    if (grammar) {
        check_status(mo_constraint_open(grammar, &constraint, &err), &err);
    }
    o.in_thought = mo_model_in_thought(model, tokens, count);
    check_status(mo_reply_open(model, &o, &reply, &err), &err);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(mo_sampler_open(&s, info.vocab, &sampler, &err), &err);
    out[0] = 0;
    for (bool over = false; !over;) {
        mo_feed feed = {.size = sizeof feed, .session = session, .tokens = tokens, .count = (int64_t)count};
        check_status(mo_session_feed(&feed, 1, &err), &err);
        const uint32_t *mask = constraint ? mo_constraint_mask(constraint, &err) : NULL;
        const int32_t token = mo_sampler_pick(sampler, mo_session_logits(session), mask, tokens, count);
        assert_true(count < 511);
        tokens[count++] = token;
        over = mo_token_ends(model, token);
        if (constraint && !over) {
            check_status(mo_constraint_accept(constraint, token, &err), &err);
        }
        check_status(over ? mo_reply_flush(reply, &pieces, &n, &err)
                          : mo_reply_put(reply, token, &pieces, &n, &err),
                     &err);
        for (size_t i = 0; i < n; i++) {
            static const char *const kinds[] = {"text:", "thought:", "call:", "arguments:", "end"};
            static int last;
            const bool more = used > 0 && last == (int)pieces[i].kind && last != MO_PIECE_CALL;
            last = (int)pieces[i].kind;
            used += (size_t)snprintf(out + used, space - used, "%s%s%s", more || used == 0 ? "" : "|",
                                     more ? "" : kinds[pieces[i].kind], pieces[i].text.data);
        }
    }
    mo_constraint_close(constraint);
    mo_sampler_close(sampler);
    mo_session_close(session);
    mo_reply_close(reply);
}

static void answer(mo_model *model, const char *prompt, char *out, size_t space)
{
    answer_within(model, prompt, TOOLS, NULL, out, space);
}

static void the_template_in_force_decides_how_answers_are_read(void **state)
{
    static const char given[] = "{{ tools }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
                                "<tool_call></tool_call>";
    const scripted_script script = {NULL, "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                                          "{\"city\": \"Bern\"}}\n</tool_call>"};
    const char *path = in_folder("given.gguf");
    char got[1024];
    mo_model *model = NULL;
    mo_error err;
    (void)state;
    mo_model_options o = mo_model_options_default();
    o.threads = 1;
    o.context = 512;
    o.learning.profile = "off";
    o.device = "none";
    check_status(scripted_write(path, "{{ tools }}<|start|><|channel|><|message|>", &script, 1, &err), &err);
    check_status(mo_model_open(path, &o, &model, &err), &err);
    assert_string_equal(mo_model_tool_format(model), "harmony");
    mo_model_close(model);
    o.chat_template = given;
    check_status(mo_model_open(path, &o, &model, &err), &err);
    assert_string_equal(mo_model_tool_format(model), "hermes");
    assert_true(mo_model_shows_tools(model));
    assert_string_equal(mo_model_chat_template(model, NULL), given);
    answer(model, "hello", got, sizeof got);
    assert_string_equal(got, "text:I look.|call:get_weather|arguments:{\"city\": \"Bern\"}|end");
    mo_model_close(model);
    o.chat_template = "{% if %}";
    assert_int_equal(mo_model_open(path, &o, &model, &err), MO_EFORMAT);
    assert_null(model);
}

static void scripts_are_said(void **state)
{
    static const struct {
        const char *chat_template, *format, *script, *want;
    } table[] = {
        {"{{ tools }}<|im_start|><tool_call></tool_call><think></think>", "hermes",
         "<think>\nhm, hm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
         "{\"city\": "
         "\"Bern\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Rom\"}}\n</tool_call>",
         "thought:hm, hm|text:I look.|call:get_weather|arguments:{\"city\": "
         "\"Bern\"}|end|call:get_weather|arguments:{\"city\": "
         "\"Rom\"}|end"},
        {"{{ tools }}<|start|><|channel|><|message|><|end|><|return|>", "harmony",
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get_weather "
         "<|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
         "thought:hm|call:get_weather|arguments:{\"city\": \"Bern\"}|end"},
        {"{{ tools }}<|im_start|><tool_call><function= <parameter=", "qwen3-coder",
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</"
         "tool_call>",
         "call:get_weather|arguments:{\"city\":\"Bern\"}|end"},
        {"{{ messages }}", "generic",
         "Gr\xC3\xBC\xC3\x9F"
         "e!",
         "text:Gr\xC3\xBC\xC3\x9F"
         "e!"},
    };
    char path[256], got[1024];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const scripted_script script = {NULL, table[i].script};
        snprintf(path, sizeof path, "%s/scripted.gguf", folder);
        mo_model *model = make_model(path, table[i].chat_template, &script, 1);
        assert_string_equal(mo_model_tool_format(model), table[i].format);
        answer(model, "<|im_start|>user\nHow is the weather?<|im_end|>\n<|im_start|>assistant\n", got,
               sizeof got);
        assert_string_equal(got, table[i].want);
        mo_model_close(model);
    }
}

static void words_choose_the_script(void **state)
{
    const scripted_script scripts[] = {
        {NULL, "Nothing."}, {"@one", "First."}, {"@two", "Second."}, {"@three", "Third."}};
    char path[256], got[256];
    (void)state;
    snprintf(path, sizeof path, "%s/scripted.gguf", folder);
    mo_model *model = make_model(path, "{{ messages }}", scripts, 4);
    answer(model, "Hello", got, sizeof got);
    assert_string_equal(got, "text:Nothing.");
    answer(model, "Hello @one, how are you? And so on, with many more words until the end comes.", got,
           sizeof got);
    assert_string_equal(got, "text:First.");
    answer(model, "@one @one @two and then more text", got, sizeof got);
    assert_string_equal(got, "text:Second.");
    answer(model, "@three @two @one @one", got, sizeof got);
    assert_string_equal(got, "text:Third.");
    mo_model_close(model);
}

static void squeeze(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (!strchr(" \n\t", *from)) {
            *to++ = *from;
        }
    }
    *to = 0;
}

/* A model that would not call, or not as it should, and the grammar of its calls. */
static void grammars_of_calls_hold(void **state)
{
    static const char tools[] =
        "[{\"name\": \"set\", \"parameters\": {\"type\": \"object\", \"properties\": {\"mode\": {\"enum\": "
        "[\"on\"]}}, \"required\": [\"mode\"], \"additionalProperties\": false}}]";
    static const struct {
        const char *chat_template, *script, *free, *required;
    } table[] = {
        {"{{ tools }}<|im_start|><tool_call></tool_call><think></think>",
         "<think>\nhm\n</think>\n\nNo.\n<tool_call>\n{\"name\": \"set\", \"arguments\": {\"mode\": "
         "\"off\"}}\n</tool_call>",
         "thought:hm|text:No.|call:set|arguments:{\"mode\":\"on\"}|end",
         "thought:hm|call:set|arguments:{\"mode\":\"on\"}|end"},
        {"{{ tools }}<|start|><|channel|><|message|><|end|><|return|><|constrain|><|call|>",
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>No.",
         "thought:hm|text:No.", NULL}, /* it would think for ever */
        {"{{ messages }}", "No.", NULL, "call:set|arguments:{\"mode\":\"on\"}|end"},
        /* DeepSeek V3.1 writes calls, and does not show tools */
        {"{{ messages }}<" BAR "tool" MARK "calls" MARK "begin" BAR ">",
         "No.<" BAR "tool" MARK "calls" MARK "begin" BAR "><" BAR "tool" MARK "call" MARK "begin" BAR
         ">set<" BAR "tool" MARK "sep" BAR ">{\"mode\": \"off\"}<" BAR "tool" MARK "call" MARK "end" BAR
         "><" BAR "tool" MARK "calls" MARK "end" BAR ">",
         "text:No.|call:set|arguments:{\"mode\":\"on\"}|end", "call:set|arguments:{\"mode\":\"on\"}|end"},
    };
    char path[256], got[1024];
    mo_error err;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const scripted_script script = {NULL, table[i].script};
        snprintf(path, sizeof path, "%s/scripted.gguf", folder);
        mo_model *model = make_model(path, table[i].chat_template, &script, 1);
        for (int required = table[i].free ? 0 : 1; required < (table[i].required ? 2 : 1); required++) {
            mo_tools_options o = mo_tools_options_default();
            mo_grammar *grammar;
            o.tools = tools;
            o.tools_length = strlen(tools);
            o.required = required;
            o.single = true;
            check_status(mo_tools_grammar(model, &o, &grammar, &err), &err);
            assert_string_equal(mo_grammar_unenforced(grammar), "");
            answer_within(model, "<|im_start|>user\nNow.", tools, grammar, got, sizeof got);
            squeeze(got); /* the schema does not say where blanks are */
            if (strcmp(got, required ? table[i].required : table[i].free) != 0) {
                fail_msg("%zu, %s: %s", i, required ? "required" : "free", got);
            }
            mo_grammar_close(grammar);
        }
        mo_model_close(model);
    }
}

static void tools_are_told_in_the_models_own_way(void **state)
{
    static const struct {
        const char *chat_template, *words;
    } table[] = {
        {"{{ messages }}<" BAR "tool" MARK "calls" MARK "begin" BAR ">",
         "name<" BAR "tool" MARK "sep" BAR ">{arguments}<" BAR "tool" MARK "call" MARK "end" BAR ">"},
        {"{{ messages }}<" BAR "tool" MARK "calls" MARK "begin" BAR ">```json",
         "function<" BAR "tool" MARK "sep" BAR ">name\n```json\n"},
        {"{{ messages }}", "{\"tool_call\": {\"name\": "},
        {"<|start|><|channel|><|message|><|end|>",
         "namespace functions {\n\ntype get_weather = (_: {\ncity?: string,\n}) => any;\n\n} // namespace "
         "functions"},
    };
    const scripted_script script = {NULL, "No."};
    mo_error err;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        mo_model *model = make_model(in_folder("told.gguf"), table[i].chat_template, &script, 1);
        char *text;
        assert_false(mo_model_shows_tools(model));
        check_status(mo_tools_text(model, TOOLS, strlen(TOOLS), true, &text, &err), &err);
        assert_non_null(strstr(text, table[i].words));
        assert_non_null(strstr(text, "get_weather"));
        assert_non_null(strstr(text, "must call"));
        mo_free(text);
        assert_int_equal(mo_tools_text(model, "[5]", 3, true, &text, &err), MO_EINVAL);
        mo_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_are_said),
        cmocka_unit_test(the_template_in_force_decides_how_answers_are_read),
        cmocka_unit_test(words_choose_the_script),
        cmocka_unit_test(tools_are_told_in_the_models_own_way),
        cmocka_unit_test(grammars_of_calls_hold),
    };
    return cmocka_run_group_tests_name("scripted", tests, folder_make, folder_remove);
}
