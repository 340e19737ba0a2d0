/* What clients send: parameters, tools, formats, prompts and conversations of every dialect, in one form; what is wrong is
 * refused and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sanitized.h"
#include "server/common/body.h"
#include "server/common/field.h"
#include "server/common/identity.h"
#include "server/requests/choice.h"
#include "server/requests/constraint.h"
#include "server/requests/conversation.h"
#include "server/requests/known_fields.h"
#include "server/requests/parameters.h"
#include "server/requests/rendering.h"
#include "server/requests/thinking.h"

static mo_model *model;

static int open_model(void **state)
{
    (void)state;
    mo_model_options o = mo_model_options_default();
    o.learning.profile = "off";
    o.device = "none";
    o.threads = 1;
    return mo_model_open(MO_TEST_MODEL, &o, &model, NULL) == MO_OK ? 0 : -1;
}

static int close_model(void **state)
{
    (void)state;
    mo_model_close(model);
    return 0;
}

/* Requests in these tests are written with ' for ". */
static bool read_json(mo_text body, json_t **root, srv_fault *fault)
{
    int64_t held;
    const bool good = srv_body_read(body, root, &held, fault);
    srv_body_release(held);
    return good;
}

static json_t *read_request(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *root = NULL;
    srv_fault fault = {0};
    if (!read_json((mo_text){copy, strlen(copy)}, &root, &fault)) {
        fail_msg("%s: %s", copy, fault.message);
    }
    free(copy);
    return root;
}

static void check_json(const json_t *value, const char *expected)
{
    char *copy = strdup(expected);
    for (char *c = copy; *c; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *want = json_loads(copy, JSON_DECODE_ANY, NULL);
    assert_non_null(want);
    if (!json_equal(value, want)) {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        print_error("%s\n%s\n", text, copy);
        free(text);
        fail();
    }
    json_decref(want);
    free(copy);
}

/* ---- Bodies ---- */

static bool read_body(const char *text, srv_fault *fault)
{
    json_t *root = NULL;
    const bool good = read_json((mo_text){text, strlen(text)}, &root, fault);
    json_decref(root);
    return good;
}

static void bodies_that_are_no_object_are_refused(void **state)
{
    (void)state;
    srv_fault fault = {0};
    static const char *const wrong[] = {"",         "{",        "[]",          "1",
                                        "{\"a\":}", "nonsense", "{\"a\":1} x", "{\"a\":\"\xff\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(read_body(wrong[i], &fault));
        assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    }
    char deep[2 * SRV_JSON_DEPTH + 16];
    size_t length = (size_t)sprintf(deep, "{\"a\":");
    memset(deep + length, '[', SRV_JSON_DEPTH);
    memset(deep + length + SRV_JSON_DEPTH, ']', SRV_JSON_DEPTH);
    length += (size_t)2 * SRV_JSON_DEPTH;
    snprintf(deep + length, sizeof deep - length, "}");
    assert_false(read_body(deep, &fault));
    assert_non_null(strstr(fault.message, "deep"));
}

/* A body of some megabytes must not become gigabytes of values. */
static void bodies_of_too_many_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int most; /* of them */
    } cases[] = {{"1,", SRV_JSON_COST},
                 {"\"\",", SRV_JSON_COST / 4},
                 {"[],", SRV_JSON_COST / 4},
                 {"{\"a\":1},", SRV_JSON_COST / 11}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t length = strlen(cases[i].value);
        for (int more = 0; more < 2; more++) {
            const size_t count = (size_t)cases[i].most + (more ? 16 : -16);
            char *text = malloc(count * length + 32), *at = text + sprintf(text, "{\"a\":[");
            srv_fault fault = {0};
            for (size_t n = 0; n < count; n++, at += length) {
                memcpy(at, cases[i].value, length);
            }
            sprintf(at - 1, "]}"); /* in the place of the last comma */
            const mo_text body = {text, strlen(text)};
            json_t *root = NULL;
            if (more) {
                assert_false(read_json(body, &root, &fault));
                assert_non_null(strstr(fault.message, "too many values"));
                assert_null(srv_body_json(body));
            } else if (!SANITIZED) {
                assert_true(read_json(body, &root, &fault));
                json_decref(root);
            }
            free(text);
        }
    }
}

/* Nor must many of them together. The values are dropped at once here, and only counted as held. */
static void bodies_of_many_values_are_bounded_together(void **state)
{
    (void)state;
    if (SANITIZED) {
        skip();
    }
    enum {
        COUNT = SRV_JSON_COST / 21
    }; /* of objects, which cost 7 each: a third of what one body may have */
    char *text = malloc(3 * COUNT + 32), *at = text + sprintf(text, "{\"a\":[");
    int64_t held[16];
    int taken = 0;
    json_t *root = NULL;
    srv_fault fault = {0};
    for (int n = 0; n < COUNT; n++, at += 3) {
        memcpy(at, "{},", 3);
    }
    sprintf(at - 1, "]}");
    const mo_text body = {text, strlen(text)};
    while (taken < 16 && srv_body_read(body, &root, &held[taken], &fault)) {
        json_decref(root);
        taken++;
    }
    assert_int_equal(taken, 11); /* twelve cost a little more than four bodies may */
    assert_int_equal(fault.kind, SRV_FAULT_QUEUE);
    assert_null(root);
    assert_int_equal(held[taken], 0);
    assert_true(read_body("{\"a\":[1,2,3]}", &fault)); /* a small one is taken all the same */
    srv_body_release(held[--taken]);
    assert_true(read_json(body, &root, &fault));
    json_decref(root);
    text[body.length - 1] = ' '; /* what is no JSON holds nothing */
    assert_false(srv_body_read(body, &root, &held[15], &fault));
    assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    text[body.length - 1] = '}';
    assert_true(read_json(body, &root, &fault));
    json_decref(root);
    while (taken > 0) {
        srv_body_release(held[--taken]);
    }
    free(text);
}

static void half_surrogates_are_fixed(void **state)
{
    (void)state;
    static const char body[] =
        "{\"a\":\"x\\ud83d\",\"b\":\"\\ude00y\",\"c\":\"\\ud83d\\ude00\",\"d\":\"\\\\ud83d\"}";
    json_t *root = NULL;
    srv_fault fault = {0};
    assert_true(read_json((mo_text){body, strlen(body)}, &root, &fault));
    assert_string_equal(json_string_value(json_object_get(root, "a")), "x\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(root, "b")), "\xef\xbf\xbdy");
    assert_string_equal(json_string_value(json_object_get(root, "c")), "\xf0\x9f\x98\x80");
    assert_string_equal(json_string_value(json_object_get(root, "d")), "\\ud83d");
    json_decref(root);
}

static void numbers_of_any_size_are_numbers(void **state)
{
    (void)state;
    static const char body[] = "{\"a\":18446744073709551615,\"b\":[-9223372036854775809,9223372036854775807],"
                               "\"c\":1e999,\"d\":-1e999,\"e\":\"99999999999999999999\",\"f\":1.5}";
    json_t *root = NULL;
    srv_fault fault = {0};
    assert_true(read_json((mo_text){body, strlen(body)}, &root, &fault));
    assert_true(json_number_value(json_object_get(root, "a")) == 0x1p64);
    const json_t *b = json_object_get(root, "b");
    assert_true(json_number_value(json_array_get(b, 0)) == -0x1p63);
    assert_true(json_integer_value(json_array_get(b, 1)) == INT64_MAX);
    assert_true(json_number_value(json_object_get(root, "c")) == 1.7976931348623157e308);
    assert_true(json_number_value(json_object_get(root, "d")) == -1.7976931348623157e308);
    assert_string_equal(json_string_value(json_object_get(root, "e")), "99999999999999999999");
    json_decref(root);
    assert_false(read_body("{\"a\":99999999999999999999", &fault));
    assert_false(read_body("{\"a\":99999999999999999999x}", &fault));
}

static void a_byte_order_mark_is_no_part_of_a_body(void **state)
{
    (void)state;
    srv_fault fault = {0};
    assert_true(read_body("\xef\xbb\xbf{\"a\":1}", &fault));
    assert_false(read_body("\xef\xbb\xbf", &fault));
    assert_false(read_body("{}\xef\xbb\xbf", &fault));
}

/* ---- Parameters ---- */

static bool read_parameters(const char *text, srv_dialect dialect, srv_parameters *p, srv_fault *fault,
                            json_t **root)
{
    *root = read_request(text);
    *p = srv_parameters_default();
    const srv_field f = srv_field_root(*root, fault);
    return srv_known_fields_check(&f, dialect, false) && srv_parameters_read(&f, dialect, model, p) &&
           srv_thinking_read(&f, p);
}

static void parameters_have_names_in_every_dialect(void **state)
{
    (void)state;
    srv_fault fault = {0};
    srv_parameters p;
    json_t *root;
    assert_true(read_parameters(
        "{'max_tokens':5,'max_completion_tokens':7.0,'temperature':0,'top_k':-1,'seed':42,"
        "'stop':'END','n':2,'logprobs':true,'top_logprobs':3,'unknown':{},'user':null,"
        "'stream':true,'stream_options':{'include_usage':true},'top_p':null,'sse_ping_interval':3}",
        SRV_DIALECT_CHAT, &p, &fault, &root));
    assert_int_equal(p.generation.max_tokens, 7);
    assert_true(p.generation.temperature == 0);
    assert_int_equal(p.generation.top_k, 0);
    assert_true(p.seeded && p.generation.seed == 42);
    assert_int_equal(p.generation.stop_count, 1);
    assert_string_equal(p.stop[0], "END");
    assert_int_equal(p.n, 2);
    assert_true(p.logprobs && p.top == 3);
    assert_true(p.stream && p.include_usage);
    assert_true(p.generation.top_p == 0.95F);
    assert_int_equal(p.heartbeat_ms, 3000);
    srv_parameters_free(&p);
    json_decref(root);
    assert_true(read_parameters(
        "{'n_predict':-2,'stop':['a','','b'],'n_probs':4,'cache_prompt':false,'seed':-1,'mirostat':0}",
        SRV_DIALECT_COMPLETION, &p, &fault, &root));
    assert_int_equal(p.generation.max_tokens, -1);
    assert_int_equal(p.generation.stop_count, 2);
    assert_true(p.logprobs && p.top == 4 && !p.cache_prompt && !p.seeded);
    srv_parameters_free(&p);
    json_decref(root);
    assert_true(read_parameters("{'mirostat':2,'mirostat_tau':3,'typical_p':0.5,'dry_multiplier':0.8,"
                                "'dry_sequence_breakers':['a','b'],'xtc_probability':0.25,'top_n_sigma':-1,"
                                "'dynatemp_range':0.5,'samplers':['top_k','temperature']}",
                                SRV_DIALECT_COMPLETION, &p, &fault, &root));
    assert_int_equal(p.generation.mirostat, 2);
    assert_true(p.generation.mirostat_tau == 3 && p.generation.typical_p == 0.5F);
    assert_true(p.generation.dry_multiplier == 0.8F && p.generation.xtc_probability == 0.25F);
    assert_true(p.generation.top_n_sigma == 0 && p.generation.dynatemp_range == 0.5F);
    assert_int_equal(p.generation.dry_breaker_count, 2);
    assert_string_equal(p.samplers, "top_k;temperature");
    srv_parameters_free(&p);
    json_decref(root);
    assert_true(read_parameters("{'logprobs':2}", SRV_DIALECT_TEXT, &p, &fault, &root));
    assert_true(p.logprobs && p.top == 2);
    srv_parameters_free(&p);
    json_decref(root);
    assert_true(read_parameters(
        "{'reasoning_effort':'none','reasoning_format':'none','chat_template_kwargs':{'a':1}}",
        SRV_DIALECT_CHAT, &p, &fault, &root));
    assert_true(p.thinking == SRV_OFF && p.keep_thought && p.template_kwargs);
    srv_parameters_free(&p);
    json_decref(root);
}

static void wrong_parameters_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *request, *param;
    } cases[] = {
        {"{'temperature':'hot'}", "temperature"},
        {"{'temperature':-1}", "temperature"},
        {"{'top_p':1.5}", "top_p"},
        {"{'max_tokens':1.5}", "max_tokens"},
        {"{'max_tokens':'5'}", "max_tokens"},
        {"{'stop':[1]}", "stop[0]"},
        {"{'stop':{}}", "stop"},
        {"{'n':0}", "n"},
        {"{'n':1000}", "n"},
        {"{'stream':1}", "stream"},
        {"{'stream_options':{'include_usage':'yes'}}", "stream_options.include_usage"},
        {"{'top_logprobs':3}", "top_logprobs"},
        {"{'logprobs':true,'top_logprobs':21}", "top_logprobs"},
        {"{'seed':'x'}", "seed"},
        {"{'logit_bias':5}", "logit_bias"},
        {"{'logit_bias':{'99999999':1}}", "logit_bias.99999999"},
        {"{'logit_bias':{'5':'x'}}", "logit_bias.5"},
        {"{'logit_bias':[[5]]}", "logit_bias[0]"},
        {"{'mirostat':1}", "mirostat"},
        {"{'mirostat':3}", "mirostat"},
        {"{'dry_multiplier':'x'}", "dry_multiplier"},
        {"{'typical_p':1.5}", "typical_p"},
        {"{'tfs_z':0.5}", "tfs_z"},
        {"{'dry_sequence_breakers':'x'}", "dry_sequence_breakers"},
        {"{'samplers':[1]}", "samplers[0]"},
        {"{'lora':[{'id':0}]}", "lora"},
        {"{'reasoning_effort':'enormous'}", "reasoning_effort"},
        {"{'max_tokens':99999999999999999999}", "max_tokens"},
        {"{'max_tokens':-99999999999999999999}", "max_tokens"},
        {"{'max_tokens':1e300}", "max_tokens"},
        {"{'temperature':1e999}", "temperature"},
        {"{'think':5}", "think"},
        {"{'think':'enormous'}", "think"},
        {"{'thinking':{'type':'some'}}", "thinking.type"},
        {"{'thinking':{}}", "thinking.type"},
        {"{'reasoning':{'effort':5}}", "reasoning.effort"},
        {"{'reasoning':{'exclude':true}}", "reasoning.exclude"},
        {"{'echo':true}", "echo"},
        {"{'best_of':3}", "best_of"},
        {"{'suffix':'x'}", "suffix"},
        {"{'modalities':['text','audio']}", "modalities"},
        {"{'audio':{'voice':'x'}}", "audio"},
        {"{'web_search_options':{'a':1}}", "web_search_options"},
        {"{'reasoning_format':'xml'}", "reasoning_format"},
        {"{'chat_template_kwargs':[]}", "chat_template_kwargs"},
        {"{'frequency_penalty':3}", "frequency_penalty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        srv_fault fault = {0};
        srv_parameters p;
        json_t *root;
        if (read_parameters(cases[i].request, SRV_DIALECT_CHAT, &p, &fault, &root)) {
            fail_msg("%s was taken", cases[i].request);
        }
        assert_string_equal(fault.param, cases[i].param);
        assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
        srv_parameters_free(&p);
        json_decref(root);
    }
}

static void thinking_has_names_in_every_dialect(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        srv_switch thinking;
        const char *effort, *field;
        int64_t limit;
    } cases[] = {
        {"{'think':true}", SRV_ON, NULL, "think", -1},
        {"{'think':false}", SRV_OFF, NULL, NULL, -1},
        {"{'think':'high'}", SRV_ON, "high", "think", -1},
        {"{'thinking':{'type':'enabled','budget_tokens':2000}}", SRV_ON, NULL, "thinking", 2000},
        {"{'thinking':{'type':'disabled'}}", SRV_OFF, NULL, NULL, -1},
        {"{'thinking':{'type':'adaptive'}}", SRV_UNSET, NULL, NULL, -1},
        {"{'thinking':true}", SRV_ON, NULL, "thinking", -1},
        {"{'reasoning':{'effort':'low','summary':'auto'}}", SRV_UNSET, "low", "reasoning", -1},
        {"{'reasoning':{'effort':'none'}}", SRV_OFF, NULL, NULL, -1},
        {"{'reasoning':{'enabled':true,'max_tokens':7}}", SRV_ON, NULL, "reasoning", 7},
        {"{'reasoning_effort':'medium'}", SRV_UNSET, "medium", "reasoning_effort", -1},
        {"{'enable_thinking':false,'thinking_budget':9}", SRV_OFF, NULL, "thinking_budget", 9},
        {"{'think':null,'thinking':null,'reasoning':null}", SRV_UNSET, NULL, NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int dialect = SRV_DIALECT_CHAT; dialect <= SRV_DIALECT_COMPLETION; dialect++) {
            srv_parameters p;
            srv_fault fault = {0};
            json_t *root;
            if (!read_parameters(cases[i].request, (srv_dialect)dialect, &p, &fault, &root)) {
                fail_msg("%s: %s", cases[i].request, fault.message);
            }
            assert_int_equal(p.thinking, cases[i].thinking);
            assert_true(p.generation.thought_tokens == cases[i].limit);
            assert_string_equal(p.effort ? p.effort : "", cases[i].effort ? cases[i].effort : "");
            assert_string_equal(p.think_field ? p.think_field : "", cases[i].field ? cases[i].field : "");
            srv_parameters_free(&p);
            json_decref(root);
        }
    }
}

static void what_cannot_be_served_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *request, *field;
        int dialects; /* where it is refused: bits */
    } cases[] = {
        {"{'logprobs':true}", "logprobs", 1 << SRV_DIALECT_ANTHROPIC},
        {"{'n':2}", "n", 1 << SRV_DIALECT_ANTHROPIC | 1 << SRV_DIALECT_RESPONSES | 1 << SRV_DIALECT_OLLAMA},
        {"{'tools':[{}]}", "tools", 1 << SRV_DIALECT_TEXT | 1 << SRV_DIALECT_COMPLETION},
        {"{'prompt':{'id':'x'}}", "prompt", 1 << SRV_DIALECT_RESPONSES},
        {"{'mcp_servers':[{'url':'x'}]}", "mcp_servers", 1 << SRV_DIALECT_ANTHROPIC},
        {"{'best_of':2}", "best_of", -1},
        {"{'n':1,'best_of':1,'echo':false,'suffix':'','modalities':['text'],'audio':null,'tools':[],"
         "'logprobs':false,'top_logprobs':0,'mcp_servers':[],'chat_template_kwargs':{}}",
         NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int dialect = SRV_DIALECT_CHAT; dialect <= SRV_DIALECT_COMPLETION; dialect++) {
            srv_parameters p;
            srv_fault fault = {0};
            json_t *root;
            const bool good = read_parameters(cases[i].request, (srv_dialect)dialect, &p, &fault, &root);
            if (good == (cases[i].dialects >> dialect & 1)) {
                fail_msg("%s in dialect %d: %s", cases[i].request, dialect, fault.message);
            }
            if (!good) {
                assert_string_equal(fault.param, cases[i].field);
            }
            srv_parameters_free(&p);
            json_decref(root);
        }
    }
}

static void seeds_are_any_integer(void **state)
{
    (void)state;
    int64_t first = 0;
    static const char *const seeds[] = {"{'seed':18446744073709551615}", "{'seed':18446744073709551615}",
                                        "{'seed':-99999999999999999999}"};
    for (size_t i = 0; i < 3; i++) {
        srv_parameters p;
        srv_fault fault = {0};
        json_t *root;
        assert_true(read_parameters(seeds[i], SRV_DIALECT_CHAT, &p, &fault, &root));
        assert_true(p.seeded && (i == 0 || (p.generation.seed == first) == (i == 1)));
        first = p.generation.seed;
        srv_parameters_free(&p);
        json_decref(root);
    }
}

static void biases_come_in_all_forms(void **state)
{
    (void)state;
    srv_fault fault = {0};
    srv_parameters p;
    json_t *root;
    assert_true(
        read_parameters("{'logit_bias':{'5':1.5,'6':-100,'7':null}}", SRV_DIALECT_CHAT, &p, &fault, &root));
    assert_int_equal(p.generation.bias_count, 2);
    assert_int_equal(p.generation.bias[0].token, 5);
    assert_true(p.generation.bias[0].bias == 1.5F);
    assert_true(isinf(p.generation.bias[1].bias));
    srv_parameters_free(&p);
    json_decref(root);
    assert_true(read_parameters("{'logit_bias':[[5,false],['the',2],[7,-3]]}", SRV_DIALECT_COMPLETION, &p,
                                &fault, &root));
    assert_true(p.generation.bias_count >= 3);
    assert_true(isinf(p.generation.bias[0].bias) && p.generation.bias[0].bias < 0);
    assert_true(p.generation.bias[p.generation.bias_count - 1].bias == -3);
    srv_parameters_free(&p);
    json_decref(root);
}

/* ---- Tools and formats ---- */

static bool read_tools(const char *text, srv_dialect dialect, srv_tools *tools, srv_fault *fault,
                       json_t **root)
{
    *root = read_request(text);
    *tools = (srv_tools){0};
    const srv_field f = srv_field_root(*root, fault);
    return srv_tools_read(&f, dialect, tools);
}

static void tools_have_one_form(void **state)
{
    (void)state;
    static const char expected[] =
        "[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'}}}]";
    static const struct {
        const char *request;
        srv_dialect dialect;
        srv_calling calling;
    } cases[] = {
        {"{'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'"
         "}}}]}",
         SRV_DIALECT_CHAT, SRV_CALLING_AUTO},
        {"{'tools':[{'type':'function','name':'f','description':'d','parameters':{'type':'object'}},{'type':'"
         "web_search'}],"
         "'tool_choice':{'type':'function','name':'f'}}",
         SRV_DIALECT_RESPONSES, SRV_CALLING_NAMED},
        {"{'tools':[{'name':'f','description':'d','input_schema':{'type':'object'}}],'tool_choice':{'type':'"
         "any',"
         "'disable_parallel_tool_use':true}}",
         SRV_DIALECT_ANTHROPIC, SRV_CALLING_REQUIRED},
        {"{'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'"
         "}}}],"
         "'tool_choice':{'type':'function','function':{'name':'f'}}}",
         SRV_DIALECT_CHAT, SRV_CALLING_NAMED},
        {"{'tools':[{'function':{'name':'f','description':'d','parameters':{'type':'object'}}}],'tool_choice'"
         ":'none'}",
         SRV_DIALECT_OLLAMA, SRV_CALLING_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        srv_fault fault = {0};
        srv_tools tools;
        json_t *root;
        if (!read_tools(cases[i].request, cases[i].dialect, &tools, &fault, &root)) {
            fail_msg("%s: %s", cases[i].request, fault.message);
        }
        check_json(tools.list, expected);
        assert_int_equal(tools.calling, cases[i].calling);
        assert_true(tools.single == (i == 2));
        srv_tools_free(&tools);
        json_decref(root);
    }
}

static void wrong_tools_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        srv_dialect dialect;
        const char *param;
    } cases[] = {
        {"{'tools':{}}", SRV_DIALECT_CHAT, "tools"},
        {"{'tools':[{'type':'function'}]}", SRV_DIALECT_CHAT, "tools[0].function"},
        {"{'tools':[{'type':'function','function':{}}]}", SRV_DIALECT_CHAT, "tools[0].function.name"},
        {"{'tools':[{'type':'function','function':{'name':'a b'}}]}", SRV_DIALECT_CHAT,
         "tools[0].function.name"},
        {"{'tools':[{'type':'function','function':{'name':'f','parameters':3}}]}", SRV_DIALECT_CHAT,
         "tools[0].function.parameters"},
        {"{'tools':[{'type':'function','function':{'name':'f'}},{'type':'function','function':{'name':'f'}}]"
         "}",
         SRV_DIALECT_CHAT, "tools[1]"},
        {"{'tools':[{'type':'function','function':{'name':'f'}}],'tool_choice':{'type':'function','function':"
         "{'name':'g'}}}",
         SRV_DIALECT_CHAT, "tool_choice.function.name"},
        {"{'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'tool','name':'g'}}",
         SRV_DIALECT_ANTHROPIC, "tool_choice.name"},
        {"{'tools':[{'name':'f'}]}", SRV_DIALECT_ANTHROPIC, "tools[0].input_schema"},
        {"{'tools':[{'type':'web_search_20250305','name':'f'}]}", SRV_DIALECT_ANTHROPIC, "tools[0].type"},
        {"{'tool_choice':'required'}", SRV_DIALECT_CHAT, "tool_choice"},
        {"{'tools':[],'tool_choice':'required'}", SRV_DIALECT_CHAT, "tool_choice"},
        {"{'tool_choice':'perhaps'}", SRV_DIALECT_CHAT, "tool_choice"},
        {"{'parallel_tool_calls':'no'}", SRV_DIALECT_CHAT, "parallel_tool_calls"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        srv_fault fault = {0};
        srv_tools tools;
        json_t *root;
        if (read_tools(cases[i].request, cases[i].dialect, &tools, &fault, &root)) {
            fail_msg("%s was taken", cases[i].request);
        }
        assert_string_equal(fault.param, cases[i].param);
        srv_tools_free(&tools);
        json_decref(root);
    }
}

static void formats_are_found_in_every_dialect(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        srv_dialect dialect;
        const char *schema; /* NULL: it is refused; "": none is asked */
    } cases[] = {
        {"{}", SRV_DIALECT_CHAT, ""},
        {"{'response_format':{'type':'text'}}", SRV_DIALECT_CHAT, ""},
        {"{'response_format':{'type':'json_object'}}", SRV_DIALECT_CHAT, "{'type':'object'}"},
        {"{'response_format':{'type':'json_object','schema':{'a':1}}}", SRV_DIALECT_CHAT, "{'a':1}"},
        {"{'response_format':{'type':'json_schema','json_schema':{'schema':{'a':1},'strict':true}}}",
         SRV_DIALECT_CHAT, "{'a':1}"},
        {"{'json_schema':{'a':1}}", SRV_DIALECT_COMPLETION, "{'a':1}"},
        {"{'guided_json':{'a':1}}", SRV_DIALECT_CHAT, "{'a':1}"},
        {"{'text':{'format':{'type':'json_schema','name':'x','schema':{'a':1}}}}", SRV_DIALECT_RESPONSES,
         "{'a':1}"},
        {"{'output_config':{'format':{'type':'json_schema','schema':{'a':1}}}}", SRV_DIALECT_ANTHROPIC,
         "{'a':1}"},
        {"{'format':'json'}", SRV_DIALECT_OLLAMA, "{'type':'object'}"},
        {"{'format':{'a':1}}", SRV_DIALECT_OLLAMA, "{'a':1}"},
        {"{'format':''}", SRV_DIALECT_OLLAMA, ""},
        {"{'format':'xml'}", SRV_DIALECT_OLLAMA, NULL},
        {"{'response_format':{'type':'json_object'}}", SRV_DIALECT_ANTHROPIC, "{'type':'object'}"},
        {"{'json_schema':{'a':1}}", SRV_DIALECT_RESPONSES, "{'a':1}"},
        {"{'response_format':{'type':'json_schema','json_schema':{'schema':{'a':1}}}}", SRV_DIALECT_OLLAMA,
         "{'a':1}"},
        {"{'format':{'a':1}}", SRV_DIALECT_CHAT, "{'a':1}"},
        {"{'structured_outputs':{'json':{'a':1}}}", SRV_DIALECT_TEXT, "{'a':1}"},
        {"{'structured_outputs':{'regex':'a+'}}", SRV_DIALECT_CHAT, NULL},
        {"{'guided_regex':'a+'}", SRV_DIALECT_CHAT, NULL},
        {"{'guided_choice':[]}", SRV_DIALECT_CHAT, NULL},
        {"{'response_format':{'type':'json_object'},'format':'json'}", SRV_DIALECT_OLLAMA, NULL},
        {"{'response_format':{'type':'yaml'}}", SRV_DIALECT_CHAT, NULL},
        {"{'response_format':{'type':'json_schema'}}", SRV_DIALECT_CHAT, NULL},
        {"{'response_format':{'type':'json_schema','json_schema':{}}}", SRV_DIALECT_CHAT, NULL},
        {"{'response_format':{'type':'json_object'},'grammar':'x'}", SRV_DIALECT_CHAT, NULL},
        {"{'json_schema':{},'grammar':'root ::= [a]'}", SRV_DIALECT_COMPLETION, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        srv_fault fault = {0};
        srv_format format = {0};
        json_t *root = read_request(cases[i].request);
        const srv_field f = srv_field_root(root, &fault);
        const bool good = srv_format_read(&f, cases[i].dialect, &format);
        if (good != (cases[i].schema != NULL)) {
            fail_msg("%s: %s", cases[i].request, fault.message);
        }
        if (good && *cases[i].schema) {
            check_json(format.schema, cases[i].schema);
            assert_true(format.strict == (i == 4));
        } else if (good) {
            assert_false(srv_format_asked(&format));
        }
        srv_format_free(&format);
        json_decref(root);
    }
}

static void grammars_are_found_in_every_dialect(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'grammar':'root ::= [a]'}", "root ::= [a]"},
        {"{'structured_outputs':{'grammar':'root ::= [a]'}}", "root ::= [a]"},
        {"{'guided_grammar':'root ::= [a]'}", "root ::= [a]"},
        {"{'guided_choice':['yes','a\\\\b\\nc']}", "root ::= \"yes\" | \"a\\\\b\\nc\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int dialect = SRV_DIALECT_CHAT; dialect <= SRV_DIALECT_COMPLETION; dialect++) {
            srv_fault fault = {0};
            srv_format format = {0};
            json_t *root = read_request(cases[i][0]);
            const srv_field f = srv_field_root(root, &fault);
            assert_true(srv_format_read(&f, (srv_dialect)dialect, &format));
            assert_int_equal(format.grammar.length, strlen(cases[i][1]));
            assert_memory_equal(format.grammar.data, cases[i][1], format.grammar.length);
            srv_format_free(&format);
            json_decref(root);
        }
    }
}

/* ---- Conversations ---- */

typedef bool (*reader)(const srv_field *root, srv_conversation *out);

static void check_conversation(reader read, const char *request, const char *expected, bool prefill)
{
    srv_fault fault = {0};
    srv_conversation c = {0};
    json_t *root = read_request(request);
    const srv_field f = srv_field_root(root, &fault);
    if (!read(&f, &c)) {
        fail_msg("%s: %s", request, fault.message);
    }
    check_json(c.messages, expected);
    assert_true(c.prefill == prefill);
    srv_conversation_free(&c);
    json_decref(root);
}

static void check_refused(reader read, const char *request, const char *param)
{
    srv_fault fault = {0};
    srv_conversation c = {0};
    json_t *root = read_request(request);
    const srv_field f = srv_field_root(root, &fault);
    if (read(&f, &c)) {
        fail_msg("%s was taken", request);
    }
    assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    assert_string_equal(fault.param, param);
    srv_conversation_free(&c);
    json_decref(root);
}

static void chats_are_taken_as_they_are(void **state)
{
    (void)state;
    check_conversation(srv_conversation_chat,
                       "{'messages':[{'role':'developer','content':'d'},{'role':'user','content':[{'type':'"
                       "text','text':'a'},"
                       "{'type':'text','text':'b'}],'name':'u'},{'role':'assistant','content':null,'refusal':"
                       "null,'annotations':[],"
                       "'reasoning':'hm','tool_calls':[{'id':'c1','type':'function','function':{'name':'f','"
                       "arguments':'{broken'}}]},"
                       "{'role':'tool','tool_call_id':'c1','content':'r'}]}",
                       "[{'role':'system','content':'d'},{'role':'user','content':[{'type':'text','text':'"
                       "a'},{'type':'text','text':'b'}],"
                       "'name':'u'},{'role':'assistant','content':null,'reasoning_content':'hm','tool_calls':"
                       "[{'id':'c1','type':'function',"
                       "'function':{'name':'f','arguments':'{broken'}}]},{'role':'tool','tool_call_id':'c1','"
                       "content':'r','name':'f'}]",
                       false);
    check_conversation(
        srv_conversation_chat,
        "{'messages':[{'role':'user','content':'a'},{'role':'assistant','function_call':{'name':'f','"
        "arguments':'{}'}},"
        "{'role':'function','name':'f','content':null}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':null,'tool_calls':[{'type':'function',"
        "'function':{'name':'f','arguments':'{}'}}]},{'role':'tool','content':'','name':'f'}]",
        false);
    check_conversation(srv_conversation_chat,
                       "{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}",
                       "[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]", true);
}

static void odd_histories_are_taken(void **state)
{
    (void)state;
    check_conversation(
        srv_conversation_chat,
        "{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':null},{'role':'"
        "assistant','tool_calls':[{'function':{'name':'f','arguments':5}},{'function':{'name':'g','"
        "arguments':{'k':1}}}]},{'role':'tool','content':{'k':[1]}}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':''},{'role':'assistant','"
        "content':null,'tool_calls':[{'type':'function','function':{'name':'f','arguments':5}},{'"
        "type':'function','function':{'name':'g','arguments':{'k':1}}}]},{'role':'tool','content':"
        "'{\\\"k\\\": [1]}'}]",
        false);
    check_conversation(
        srv_conversation_anthropic,
        "{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[{'type':'text','text':'b'}"
        ","
        "{'type':'server_tool_use','id':'i','name':'web_search','input':{'query':'q'}},{'type':'"
        "web_search_tool_result','tool_use_id':'i','content':[{'type':'web_search_result','url':'u'}]},"
        "{'type':'text','text':'c'},{'type':'tool_use','id':'k','name':'f','input':'{broken'}]},"
        "{'role':'user','content':[{'type':'tool_result','tool_use_id':'k','content':'r'}]},"
        "{'role':'assistant','content':null},{'role':'user','content':'d'}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':'b','tool_calls':[{'id':'i','type':'"
        "function','function':{'name':'web_search','arguments':{'query':'q'}}}]},{'role':'tool','tool_call_"
        "id':'"
        "i','name':'web_search','content':'[{\\\"type\\\": \\\"web_search_result\\\", \\\"url\\\": "
        "\\\"u\\\"}]'},{'role':'assistant','content':'c','tool_calls':[{'id':'k','type':'function','function'"
        ":{'"
        "name':'f','arguments':'{broken'}}]},{'role':'tool','tool_call_id':'k','name':'f','content':'r'},"
        "{'role':'assistant','content':''},{'role':'user','content':'d'}]",
        false);
    check_conversation(
        srv_conversation_responses,
        "{'input':[{'role':'user','content':'a'},{'type':'item_reference','id':'msg_1'},{'type':'"
        "local_shell_call','id':'x','call_id':'c','status':'completed','action':{'type':'exec','command':['"
        "ls']}"
        "},{'type':'local_shell_call_output','id':'c','output':'files'},{'type':'web_search_call','id':'w','"
        "status':'completed','query':'q'},{'type':'mcp_call','id':'m','name':'f','arguments':'{}','output':'"
        "r'},"
        "{'type':'function_call','call_id':'d','name':'g','arguments':7},{'type':'function_call_output','"
        "call_id':'d','output':{'k':1}},{'role':'assistant','content':null}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':'','tool_calls':[{'id':'c','type':'"
        "function','function':{'name':'local_shell','arguments':{'type':'exec','command':['ls']}}}]},{'role':"
        "'"
        "tool','tool_call_id':'c','name':'local_shell','content':'files'},{'role':'assistant','content':'','"
        "tool_calls':[{'id':'w','type':'function','function':{'name':'web_search','arguments':{'query':'q'}}}"
        ","
        "{'id':'m','type':'function','function':{'name':'f','arguments':'{}'}}]},{'role':'tool','tool_call_"
        "id':'"
        "m','name':'f','content':'r'},{'role':'assistant','content':'','tool_calls':[{'id':'d','type':'"
        "function','"
        "function':{'name':'g','arguments':7}}]},{'role':'tool','tool_call_id':'d','name':'g','content':'{"
        "\\\"k"
        "\\\": 1}'},{'role':'assistant','content':''}]",
        true);
    check_conversation(
        srv_conversation_ollama,
        "{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':null,'tool_calls':["
        "{'function':{'name':'f','arguments':[1]}}]},{'role':'tool','content':'r','tool_name':'f'}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':'','tool_calls':[{'type':'"
        "function','function':{'name':'f','arguments':[1]}}]},{'role':'tool','content':'r','name':'"
        "f'}]",
        false);
}

static void what_is_left_out_of_a_history_is_told(void **state)
{
    (void)state;
    srv_fault fault = {0};
    srv_conversation c = {0};
    json_t *root =
        read_request("{'input':[{'role':'user','content':'a'},{'type':'item_reference','id':'msg_1'}]}");
    const srv_field f = srv_field_root(root, &fault);
    assert_true(srv_conversation_responses(&f, &c));
    assert_true(c.left_out.length > 10 && memcmp(c.left_out.data, "input[1]: ", 10) == 0);
    srv_conversation_free(&c);
    json_decref(root);
}

static void wrong_chats_are_named(void **state)
{
    (void)state;
    const reader read = srv_conversation_chat;
    check_refused(read, "{}", "messages");
    check_refused(read, "{'messages':'hi'}", "messages");
    check_refused(read, "{'messages':[]}", "messages");
    check_refused(read, "{'messages':['hi']}", "messages[0]");
    check_refused(read, "{'messages':[{'content':'x'}]}", "messages[0].role");
    check_refused(read, "{'messages':[{'role':'king','content':'x'}]}", "messages[0].role");
    check_refused(read, "{'messages':[{'role':'user'}]}", "messages[0].content");
    check_refused(read, "{'messages':[{'role':'user','content':5}]}", "messages[0].content");
    check_refused(read, "{'messages':[{'role':'user','content':[{'type':'image_url','image_url':{}}]}]}",
                  "messages[0].content[0]");
    check_refused(read, "{'messages':[{'role':'user','content':[{'text':'x'}]}]}",
                  "messages[0].content[0].type");
    check_refused(read, "{'messages':[{'role':'assistant','tool_calls':[{'id':'x'}]}]}",
                  "messages[0].tool_calls[0].function");
    check_refused(read,
                  "{'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'a'},"
                  "{'role':'assistant','content':'b'}]}",
                  "messages");
    check_refused(read,
                  "{'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'a'}],"
                  "'add_generation_prompt':true}",
                  "add_generation_prompt");
    check_refused(read, "{'messages':[{'role':'user','content':'x'}],'continue_final_message':true}",
                  "continue_final_message");
    check_refused(read, "{'messages':[{'role':'user','content':'x'}],'functions':[{'name':'f'}]}",
                  "functions");
}

static void anthropic_blocks_become_messages(void **state)
{
    (void)state;
    check_conversation(srv_conversation_anthropic,
                       "{'system':[{'type':'text','text':'x-anthropic-billing-header: v=1; "
                       "cch=a1b2c;'},{'type':'text','text':'s','cache_control':"
                       "{'type':'ephemeral'}}],'messages':[{'role':'user','content':'a'},{'role':'user','"
                       "content':[{'type':'text','text':'b'}]},"
                       "{'role':'assistant','content':[{'type':'thinking','thinking':'t','signature':'x'},{'"
                       "type':'redacted_thinking','data':'y'},"
                       "{'type':'text','text':'c'},{'type':'tool_use','id':'i','name':'f','input':{'k':1}}]},"
                       "{'role':'user','content':["
                       "{'type':'text','text':'after'},{'type':'tool_result','tool_use_id':'i','content':[{'"
                       "type':'text','text':'r'}]}]}]}",
                       "[{'role':'system','content':'x-anthropic-billing-header: v=1; "
                       "cch=00000;\\ns'},{'role':'user','content':'a\\nb'},"
                       "{'role':'assistant','content':'c','reasoning_content':'t','tool_calls':[{'id':'i','"
                       "type':'function','function':{'name':"
                       "'f','arguments':{'k':1}}}]},{'role':'tool','tool_call_id':'i','content':'r','name':'"
                       "f'},{'role':'user','content':'after'}]",
                       false);
    check_conversation(
        srv_conversation_anthropic,
        "{'system':'','messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]", true);
    const reader read = srv_conversation_anthropic;
    check_refused(read, "{'messages':[{'role':'user','content':[{'type':'image','source':{}}]}]}",
                  "messages[0].content[0]");
    check_refused(read, "{'messages':[{'role':'tool','content':'x'}]}", "messages[0].role");
    check_refused(read, "{'messages':[{'role':'user'}]}", "messages[0].content");
    check_refused(read, "{'messages':[{'role':'user','content':[{'type':'tool_result','content':'x'}]}]}",
                  "messages[0].content[0].tool_use_id");
    check_refused(read, "{'system':5,'messages':[{'role':'user','content':'x'}]}", "system");
}

static void items_of_responses_become_messages(void **state)
{
    (void)state;
    check_conversation(srv_conversation_responses, "{'input':'hi','instructions':'be good'}",
                       "[{'role':'system','content':'be good'},{'role':'user','content':'hi'}]", false);
    check_conversation(
        srv_conversation_responses,
        "{'input':[{'role':'user','content':[{'type':'input_text','text':'a'}]},{'type':'reasoning','id':'rs'"
        ",'summary':[],"
        "'content':[{'type':'reasoning_text','text':'t'}]},{'type':'message','role':'assistant','content':[{'"
        "type':'output_text',"
        "'text':'b','annotations':[]}]},{'type':'function_call','call_id':'c','name':'f','arguments':'{}'},"
        "{'type':'function_call_output','call_id':'c','output':'r'}]}",
        "[{'role':'user','content':'a'},{'role':'assistant','content':'b','reasoning_content':'t','tool_"
        "calls':[{'id':'c','type':"
        "'function','function':{'name':'f','arguments':'{}'}}]},{'role':'tool','tool_call_id':'c','content':'"
        "r','name':'f'}]",
        false);
    const reader read = srv_conversation_responses;
    check_refused(read, "{}", "input");
    check_refused(read, "{'input':[]}", "input");
    check_refused(read, "{'input':[{'type':'item_reference','id':'x'}]}", "input");
    check_refused(read, "{'input':[{'type':'riddle','id':'x'}]}", "input[0].type");
    check_refused(read, "{'input':[{'role':'user','content':[{'type':'input_image'}]}]}",
                  "input[0].content[0]");
    check_refused(read, "{'input':[{'type':'function_call','call_id':'x'}]}", "input[0].name");
}

static void ollama_messages_have_objects_for_arguments(void **state)
{
    (void)state;
    check_conversation(srv_conversation_ollama,
                       "{'messages':[{'role':'user','content':'a','images':[]},{'role':'assistant','content':"
                       "'','thinking':'t',"
                       "'tool_calls':[{'function':{'name':'f','arguments':{'k':1}}}]},{'role':'tool','"
                       "content':'r','tool_name':'f'}]}",
                       "[{'role':'user','content':'a'},{'role':'assistant','content':'','reasoning_content':'"
                       "t','tool_calls':["
                       "{'type':'function','function':{'name':'f','arguments':{'k':1}}}]},{'role':'tool','"
                       "content':'r','name':'f'}]",
                       false);
    check_refused(srv_conversation_ollama, "{'messages':[{'role':'user','content':'a','images':['x']}]}",
                  "messages[0].images");
}

/* ---- Prompts ---- */

static void prompts_come_in_all_forms(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        size_t count; /* 0: it is refused */
        bool several;
    } cases[] = {
        {"{'p':'hello'}", 1, false},
        {"{'p':['hello']}", 1, true},
        {"{'p':['hello','world']}", 2, true},
        {"{'p':[1,2,3]}", 1, false},
        {"{'p':[[1,2],[3]]}", 2, true},
        {"{'p':[1,'hello',2]}", 1, false},
        {"{'p':{'prompt_string':'hello'}}", 1, false},
        {"{'p':['hello',[1,2],{'prompt_string':'x'}]}", 3, true},
        {"{'p':[]}", 0, true},
        {"{'p':[[]]}", 0, true},
        {"{'p':[-1]}", 0, false},
        {"{'p':[99999999]}", 0, false},
        {"{'p':5}", 0, false},
        {"{'p':[1,null]}", 0, false},
        {"{'p':{}}", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        srv_fault fault = {0};
        srv_tokens tokens[4] = {{0}};
        size_t count = 0;
        bool several = false;
        json_t *root = read_request(cases[i].request);
        const srv_field f = srv_field_root(root, &fault), p = srv_member(&f, "p");
        const bool good = srv_prompts_read(&p, model, NULL, tokens, 4, &count, &several);
        if (good != (cases[i].count > 0) ||
            (good && (count != cases[i].count || several != cases[i].several))) {
            fail_msg("%s: %zu prompts; %s", cases[i].request, count, fault.message);
        }
        if (i == 3) {
            assert_int_equal(tokens[0].count, 3);
            assert_int_equal(tokens[0].ids[2], 3);
        }
        if (i == 5) {
            assert_int_equal(tokens[0].ids[0], 1);
            assert_int_equal(tokens[0].ids[tokens[0].count - 1], 2);
            assert_true(tokens[0].count > 2);
        }
        for (int k = 0; k < 4; k++) {
            free(tokens[k].ids);
        }
        json_decref(root);
    }
}

static void tokens_have_bytes(void **state)
{
    (void)state;
    static const char text[] = "Hello, w\xc3\xb6rld \xf0\x9f\x98\x80!";
    int32_t *ids = NULL;
    size_t count = 0, length = 0;
    mo_error err;
    char all[128];
    check_status(mo_tokenize(model, text, strlen(text), 0, &ids, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        const mo_text bytes = mo_token_bytes(model, ids[i]);
        memcpy(all + length, bytes.data, bytes.length);
        length += bytes.length;
    }
    assert_int_equal(length, strlen(text));
    assert_memory_equal(all, text, length);
    assert_int_equal(mo_token_bytes(model, -1).length, 0);
    assert_int_equal(mo_token_bytes(model, INT32_MAX).length, 0);
    mo_free(ids);
}

/* ---- Choices ---- */

static bool take(srv_choice *c, srv_event_kind kind, const char *text)
{
    const srv_event event = {.kind = kind, .text = {text, strlen(text)}, .call_id = "id", .stop = -1};
    return srv_choice_take(c, &event);
}

static void items_keep_the_models_order(void **state)
{
    (void)state;
    srv_choice c = {0};
    assert_true(take(&c, SRV_THOUGHT, "th"));
    assert_false(take(&c, SRV_THOUGHT, "ink"));
    assert_true(take(&c, SRV_TEXT, "a"));
    assert_true(take(&c, SRV_CALL, "f"));
    assert_false(take(&c, SRV_ARGUMENTS, "{\"k\":"));
    assert_false(take(&c, SRV_ARGUMENTS, "1}"));
    assert_false(take(&c, SRV_CALL_END, ""));
    assert_true(take(&c, SRV_TEXT, "b"));
    assert_false(take(&c, SRV_END, ""));
    assert_int_equal(c.count, 4);
    assert_int_equal(srv_choice_calls(&c), 1);
    assert_string_equal(c.items[2].name, "f");
    assert_memory_equal(c.items[2].text.data, "{\"k\":1}", 7);
    srv_writer w = {0};
    srv_choice_join(&c, SRV_ITEM_TEXT, &w);
    assert_int_equal(w.length, 2);
    assert_memory_equal(w.data, "ab", 2);
    srv_writer_free(&w);
    srv_choice_free(&c);
}

static void names_differ(void **state)
{
    (void)state;
    char a[64], b[64], small[8];
    srv_identity("msg_", a, sizeof a);
    srv_identity("msg_", b, sizeof b);
    assert_int_equal(strlen(a), 28);
    assert_string_not_equal(a, b);
    srv_identity("msg_", small, sizeof small);
    assert_int_equal(strlen(small), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_that_are_no_object_are_refused),
        cmocka_unit_test(bodies_of_too_many_values_are_refused),
        cmocka_unit_test(bodies_of_many_values_are_bounded_together),
        cmocka_unit_test(half_surrogates_are_fixed),
        cmocka_unit_test(numbers_of_any_size_are_numbers),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_body),
        cmocka_unit_test(parameters_have_names_in_every_dialect),
        cmocka_unit_test(wrong_parameters_are_named),
        cmocka_unit_test(thinking_has_names_in_every_dialect),
        cmocka_unit_test(what_cannot_be_served_is_refused),
        cmocka_unit_test(seeds_are_any_integer),
        cmocka_unit_test(biases_come_in_all_forms),
        cmocka_unit_test(tools_have_one_form),
        cmocka_unit_test(wrong_tools_are_named),
        cmocka_unit_test(formats_are_found_in_every_dialect),
        cmocka_unit_test(grammars_are_found_in_every_dialect),
        cmocka_unit_test(chats_are_taken_as_they_are),
        cmocka_unit_test(odd_histories_are_taken),
        cmocka_unit_test(what_is_left_out_of_a_history_is_told),
        cmocka_unit_test(wrong_chats_are_named),
        cmocka_unit_test(anthropic_blocks_become_messages),
        cmocka_unit_test(items_of_responses_become_messages),
        cmocka_unit_test(ollama_messages_have_objects_for_arguments),
        cmocka_unit_test(prompts_come_in_all_forms),
        cmocka_unit_test(tokens_have_bytes),
        cmocka_unit_test(items_keep_the_models_order),
        cmocka_unit_test(names_differ),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
