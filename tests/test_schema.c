/* Constraints from JSON schemas: what they allow and what not, key by key; what is named as not enforced; malformed and hostile
 * schemas; memory that ends. tests/test_schema.py validates what models answer under many schemas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "failing_memory.h"
#include "grammar/schema.h"
#include "random.h"
#include "sanitized.h"
#include "toygrammar.h"

static int setup(void **state)
{
    (void)state;
    return toy_words_open();
}

static int teardown(void **state)
{
    (void)state;
    toy_words_close();
    return 0;
}

/* A schema with ' for ", to be read more easily. */
static char *quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    return copy;
}

static mo_status open_schema(const char *schema, bool strict, mo_grammar **out, mo_error *err)
{
    const mo_grammar_options none = {.size = sizeof none};
    char *json = quoted(schema), *gbnf, *notes;
    *out = NULL;
    mo_status status = mo_schema_write(json, strlen(json), "root", strict, &gbnf, &notes, err);
    if (status == MO_OK) {
        status = mo_grammar_make(toy_words.lexicon, gbnf, strlen(gbnf), &none, NULL, notes, out, err);
        free(gbnf);
    }
    free(json);
    return status;
}

typedef struct example {
    const char *schema, *yes[10], *no[10];
} example;

static const example examples[] = {
    {"{}", {"1", "'a'", "{}", "[1,{'a':null}]", "true", "-1.5e+3"}, {"", "a", "01", "{a:1}", "[1,]", "nul"}},
    {"true", {"1"}, {"x"}},
    {"{'type':'object'}", {"{}", "{'a':1}", "{'a':[{}], 'b':\n  2}"}, {"1", "[]", "null"}},
    {"{'type':'string'}",
     {"''", "'a\\n\\u00e4\\ud83d\\ude00'", "'\xC3\xA4'"},
     {"'", "'a", "'\n'", "'\\x'", "'\\ud83d'", "1", "'\\u0000'"}},
    {"{'type':'string','minLength':2,'maxLength':3}",
     {"'ab'", "'\xC3\xA4\xC3\xA4\xC3\xA4'", "'\\n\\n'"},
     {"'a'", "'abcd'", "''"}},
    {"{'type':'boolean'}", {"true", "false"}, {"null", "0"}},
    {"{'type':'null'}", {"null"}, {"'null'"}},
    {"{'type':['string','null']}", {"null", "'a'"}, {"1"}},
    {"{'type':'string','nullable':true}", {"null", "'a'"}, {"1"}},
    {"{'type':'integer'}", {"0", "-1", "123"}, {"1.0", "01", "-0", "+1", "1e3"}},
    {"{'type':'number'}", {"0", "-1", "1.5", "1e3", "0.1E-2"}, {".5", "1.", "01", "NaN"}},
    {"{'type':'integer','minimum':3,'maximum':121}",
     {"3", "9", "10", "99", "100", "119", "121"},
     {"2", "122", "200", "1000", "-5", "03"}},
    {"{'type':'integer','minimum':-15,'maximum':7}",
     {"-15", "-1", "0", "7", "-9", "-10"},
     {"-16", "8", "10", "-20"}},
    {"{'type':'integer','exclusiveMinimum':0,'exclusiveMaximum':3}", {"1", "2"}, {"0", "3"}},
    {"{'type':'integer','minimum':0,'exclusiveMinimum':true}", {"1", "77"}, {"0", "-1"}},
    {"{'type':'integer','minimum':1.5,'maximum':3.2}", {"2", "3"}, {"1", "4"}},
    {"{'type':'integer','minimum':100}", {"100", "999", "1000", "123456"}, {"99", "0", "-100"}},
    {"{'type':'integer','maximum':-5}", {"-5", "-10"}, {"-4", "0", "5"}},
    {"{'type':'integer','multipleOf':7,'minimum':0,'maximum':50}", {"0", "7", "49"}, {"1", "50", "56"}},
    {"{'type':'integer','multipleOf':7}", {"0", "7", "-14", "343", "1001"}, {"1", "8", "1000", "07"}},
    {"{'type':'integer','multipleOf':100,'minimum':0}", {"0", "100", "12300"}, {"10", "150", "-100"}},
    {"{'type':'number','minimum':0,'maximum':1}",
     {"0", "1", "0.5", "0.001", "1.0", "0.999"},
     {"-0.1", "1.1", "1.01", "2"}},
    {"{'type':'number','exclusiveMinimum':0,'maximum':2.5}",
     {"0.1", "1", "2", "2.5", "2.50", "2.4999", "0.00001"},
     {"0", "0.0", "2.51", "2.6", "3", "-1"}},
    {"{'type':'number','minimum':-1.25,'maximum':-0.5}",
     {"-1.25", "-1", "-0.5", "-0.75", "-1.2"},
     {"-1.26", "-0.4", "0", "-0", "1"}},
    {"{'type':'number','minimum':-10.5,'exclusiveMaximum':10}",
     {"-10.5", "-10.49", "-3", "0", "9.999", "-0.5"},
     {"-10.6", "10", "10.0", "-11"}},
    {"{'type':'number','minimum':0,'multipleOf':0.01}", {"0", "1.25", "100.1"}, {"1.255", "-1"}},
    {"{'type':'integer','minimum':9007199254740993}",
     {"9007199254740993", "9200000000000000000"},
     {"1", "-5"}},
    {"{'enum':['a',1,null,{'b':[1,2]}]}", {"'a'", "1", "null", "{'b':[1,2]}"}, {"'b'", "2", "{'b':[1, 2]}"}},
    {"{'type':'string','enum':['a',1]}", {"'a'"}, {"1"}},
    {"{'const':'x\xC3\xA4'}", {"'x\xC3\xA4'"}, {"'x'"}},
    {"{'type':'array'}", {"[]", "[1,'a']", "[ 1, 2 ]"}, {"{}", "[1 2]"}},
    {"{'type':'array','items':{'type':'integer'},'minItems':1,'maxItems':3}",
     {"[1]", "[1,2,3]", "[1, 2]"},
     {"[]", "[1,2,3,4]", "['a']"}},
    {"{'type':'array','items':{'type':'integer'},'maxItems':0}", {"[]"}, {"[1]"}},
    {"{'prefixItems':[{'type':'integer'},{'type':'string'}]}",
     {"[1,'a']"},
     {"[1]", "['a',1]", "[1,'a',2]", "[]"}},
    {"{'prefixItems':[{'type':'integer'}],'items':{'type':'string'},'minItems':2}",
     {"[1,'a']", "[1,'a','b']"},
     {"[1]", "[1,2]"}},
    {"{'type':'array','items':[{'type':'integer'}],'additionalItems':false}", {"[1]"}, {"[1,2]", "[]"}},
    {"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'}},'required':['a','b']}",
     {"{'a':1,'b':'x'}", "{ 'a': 1, 'b': 'x' }", "{\n  'a': 1,\n  'b': 'x'\n}"},
     {"{}", "{'a':1}", "{'b':'x','a':1}", "{'a':1,'b':'x','c':1}", "{'a':1,'b':2}", "{'a' :1,'b':'x'}"}},
    {"{'type':'object','properties':{'a':{},'b':{},'c':{}},'required':['b']}",
     {"{'b':1}", "{'a':1,'b':1}", "{'b':1,'c':1}", "{'a':1,'b':1,'c':1}"},
     {"{}", "{'a':1}", "{'c':1}", "{'b':1,'a':1}"}},
    {"{'type':'object','properties':{'a':{},'b':{},'c':{}}}",
     {"{}", "{'a':1}", "{'b':1}", "{'c':1}", "{'a':1,'c':1}", "{'a':1,'b':1,'c':1}", "{'b':1,'c':1}"},
     {"{'c':1,'a':1}", "{'a':1,}", "{,'a':1}", "{'d':1}"}},
    {"{'type':'object','properties':{'ab':{}},'additionalProperties':{'type':'integer'}}",
     {"{}", "{'ab':'x'}", "{'a':1}", "{'abc':1,'b':2}", "{'ab':'x','abd':1}", "{'':1}"},
     {"{'a':'x'}", "{'ab':1,'ab':2}", "{'a':1,'ab':2}"}},
    {"{'type':'object','properties':{'a':{}},'required':['a'],'additionalProperties':true}",
     {"{'a':1}", "{'a':1,'b':[]}"},
     {"{'b':1}", "{'a':1,'a':2}"}},
    {"{'type':'object','additionalProperties':{'type':'integer'},'minProperties':1,'maxProperties':2}",
     {"{'a':1}", "{'a':1,'b':2}"},
     {"{}", "{'a':1,'b':2,'c':3}", "{'a':'b'}"}},
    {"{'type':'object','additionalProperties':false}", {"{}"}, {"{'a':1}"}},
    {"{'type':'object','patternProperties':{'^x[0-9]$':{'type':'integer'}}}",
     {"{}", "{'x1':1}"},
     {"{'x':1}", "{'x1':'a'}"}},
    {"{'type':'object','propertyNames':{'enum':['a','b']},'additionalProperties':{'type':'integer'}}",
     {"{}", "{'a':1,'b':2}"},
     {"{'c':1}"}},
    {"{'type':'object','required':['x'],'properties':{'a':{}}}",
     {"{'x':1}", "{'a':1,'x':2}"},
     {"{}", "{'a':1}"}},
    {"{'anyOf':[{'type':'integer'},{'type':'string'}]}", {"1", "'a'"}, {"null"}},
    {"{'type':'object','properties':{'a':{},'b':{}},'oneOf':[{'required':['a']},{'required':['b']}]}",
     {"{'a':1}", "{'b':1}"},
     {"{}"}},
    {"{'allOf':[{'type':'object','properties':{'a':{'type':'integer'}},'required':['a']},{'properties':{'b':{"
     "}},'required':"
     "['b']}]}",
     {"{'a':1,'b':2}"},
     {"{'a':1}", "{'b':1}"}},
    {"{'allOf':[{'type':['integer','string']},{'type':['number','null']}]}", {"1"}, {"1.5", "null", "'a'"}},
    {"{'allOf':[{'minimum':1,'type':'integer'},{'maximum':3},{'minimum':2}]}", {"2", "3"}, {"1", "4"}},
    {"{'$defs':{'n':{'type':'integer'}},'type':'array','items':{'$ref':'#/$defs/n'}}",
     {"[]", "[1,2]"},
     {"['a']"}},
    {"{'type':'object','properties':{'v':{'type':'integer'},'next':{'$ref':'#'}},'required':['v']}",
     {"{'v':1}", "{'v':1,'next':{'v':2,'next':{'v':3}}}"},
     {"{'v':1,'next':{}}"}},
    {"{'definitions':{'a~/b':{'type':'null'}},'$ref':'#/definitions/a~0~1b'}", {"null"}, {"1"}},
    {"{'$defs':{'s':{'type':'string'}},'$ref':'#/$defs/s','maxLength':1}", {"'a'", "''"}, {"'ab'"}},
    {"{'type':'string','pattern':'^[a-c]{2}$'}", {"'ab'"}, {"'a'", "'abc'", "'ad'"}},
    {"{'type':'string','pattern':'ab'}", {"'ab'", "'xaby'"}, {"'a'"}},
    {"{'type':'string','pattern':'^a|b$'}", {"'a'", "'ax'", "'xb'"}, {"'xa'", "'bx'"}},
    {"{'type':'string','pattern':'^(foo|ba+r)?\\\\d\\\\.\\\\w\\\\s$'}",
     {"'foo1.x '", "'baar2._\\t'", "'3.z\\n'"},
     {"'fo1.x '", "'1xx '"}},
    {"{'type':'string','pattern':'^[^a-z]+$'}",
     {"'A1'", "'\\n'", "'\\\\'", "'\\u0022'", "'\xC3\xA4'"},
     {"'a'", "''"}},
    {"{'type':'string','pattern':'^.$'}", {"'a'", "'\\\\'"}, {"'\\n'", "'ab'"}},
    {"{'type':'string','format':'date'}",
     {"'2024-02-28'", "'1999-12-31'"},
     {"'2024-13-01'", "'2024-02-30'", "'24-01-01'"}},
    {"{'type':'string','format':'date-time'}",
     {"'2024-02-28T23:59:59Z'", "'2024-02-28T00:00:00.5+01:00'"},
     {"'2024-02-28'", "'2024-02-28T24:00:00Z'"}},
    {"{'type':'string','format':'uuid'}", {"'123e4567-e89b-12d3-a456-426614174000'"}, {"'123e4567'"}},
    {"{'type':'string','format':'email'}", {"'a.b@c.de'"}, {"'a@b'", "'@c.de'"}},
    {"{'type':'string','format':'uri'}", {"'https://a.b/c?d=e#f'"}, {"'a b'", "'http//'"}},
    {"{'properties':{'a':{'type':'integer'}}}", {"{'a':1}"}, {"{'a':'x'}", "1"}},
    {"{'type':'object','properties':{'q\\'\\u00e4\\n':{}},'required':['q\\'\\u00e4\\n']}",
     {"{'q\\'\xC3\xA4\\n':1}"},
     {"{'q':1}"}},
};

static void schemas_allow_what_is_valid(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        mo_grammar *g;
        mo_error err;
        /* \' stays a quote within a text: \" */
        if (open_schema(examples[i].schema, false, &g, &err) != MO_OK) {
            fail_msg("%s: %s", examples[i].schema, err.detail);
        }
        for (int k = 0; k < 20; k++) {
            const char *text = k < 10 ? examples[i].yes[k] : examples[i].no[k - 10];
            if (!text) {
                continue;
            }
            char *json = quoted(text);
            if (strcmp(text, "'\\u0022'") == 0) { /* another way to write ", which patterns do not take */
                free(json);
                continue;
            }
            for (int tokens = 0; tokens < 2; tokens++) {
                if (toy_matches(g, json, strlen(json), tokens) != (k < 10)) {
                    fail_msg("%s %s %s", json, k < 10 ? "is refused by" : "is allowed by",
                             examples[i].schema);
                }
            }
            free(json);
        }
        mo_grammar_close(g);
    }
}

static void nothing_follows_the_value(void **state)
{
    (void)state;
    mo_grammar *g;
    mo_constraint *c;
    mo_error err;
    check_status(open_schema("{'type':'object','properties':{'a':{}},'required':['a']}", true, &g, &err),
                 &err);
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_true(toy_feed(c, "{\"a\": {} }", 10, true));
    assert_true(mo_constraint_ended(c));
    const uint32_t *mask = mo_constraint_mask(c, &err);
    for (int32_t id = 0; id < toy_words.size; id++) {
        assert_int_equal(mo_bit(mask, id), mo_token_is_end(toy_words.tokenizer, id));
    }
    mo_constraint_close(c);
    mo_grammar_close(g);
}

static void white_space_is_bounded(void **state)
{
    (void)state;
    mo_grammar *g;
    mo_error err;
    check_status(open_schema("{'type':'object'}", true, &g, &err), &err);
    assert_true(toy_matches(g, "{\n                    }", 23, true));
    assert_false(toy_matches(g, "{\n                     }", 24, true));
    assert_false(toy_matches(g, "{\n\n}", 4, true));
    assert_false(toy_matches(g, "{  }", 4, true));
    mo_grammar_close(g);
}

/* ---- What is not enforced ---- */

static void what_is_not_enforced_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *path;
    } cases[] = {
        {"{'type':'object','properties':{'x':{'not':{'type':'string'}}}}", "/properties/x/not: "},
        {"{'if':{},'then':{}}", "/if: "},
        {"{'type':'array','contains':{}}", "/contains: "},
        {"{'type':'array','uniqueItems':true}", "/uniqueItems: "},
        {"{'properties':{'a':{}},'patternProperties':{'x':{}}}", "/patternProperties: "},
        {"{'type':'string','pattern':'(?=a)b'}", "/pattern: "},
        {"{'type':'string','pattern':'(a)\\\\1'}", "/pattern: "},
        {"{'type':'string','format':'regex'}", "/format: "},
        {"{'type':'string','pattern':'a','minLength':3}", "/minLength: "},
        {"{'type':'integer','multipleOf':7,'minimum':5}", "/multipleOf: "},
        {"{'type':'number','minimum':18446744073709551615}", "/minimum: "},
        {"{'oneOf':[{'type':'integer'},{'type':'number'}]}", "/oneOf: "},
        {"{'type':'object','dependentRequired':{'a':['b']}}", "/dependentRequired: "},
        {"{'properties':{'a':{},'b':{}},'minProperties':1}", "/minProperties: "},
        {"{'enum':['a'],'minLength':3}", "/minLength: "},
        {"{'$defs':{'x':{'type':'array','uniqueItems':true}},'items':{'$ref':'#/$defs/x'}}",
         "/$defs/x/uniqueItems: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_grammar *g;
        mo_error err;
        check_status(open_schema(cases[i].schema, false, &g, &err), &err);
        if (strncmp(mo_grammar_unenforced(g), cases[i].path, strlen(cases[i].path)) != 0) {
            fail_msg("%s: '%s'", cases[i].schema, mo_grammar_unenforced(g));
        }
        mo_grammar_close(g);
        assert_int_equal(open_schema(cases[i].schema, true, &g, &err), MO_EUNSUPPORTED);
        check_says(&err, cases[i].path);
    }
}

static void what_excludes_itself_is_enforced(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{'oneOf':[{'type':'integer'},{'type':'string'}]}",
        "{'oneOf':[{'const':1},{'enum':[2,3]}]}",
        "{'oneOf':[{'properties':{'t':{'const':'a'}},'required':['t']},{'properties':{'t':{'const':'b'}},'"
        "required':['t']}]}",
        "{'oneOf':[{'required':['a'],'properties':{'a':{}}},{'properties':{'b':{}},'additionalProperties':"
        "false}]}",
        "{'type':'array','items':{},'uniqueItems':false}",
        "{'type':'string','uniqueItems':true,'description':'x','title':'y','default':1,'examples':[],'$"
        "schema':'z','x-y':1}",
        "{'type':'array','items':{},'minItems':0,'maxItems':2147483647}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        mo_grammar *g;
        mo_error err;
        check_status(open_schema(schemas[i], true, &g, &err), &err);
        assert_string_equal(mo_grammar_unenforced(g), "");
        mo_grammar_close(g);
    }
}

/* ---- What is refused ---- */

static void errors_name_the_path(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *says;
    } wrong[] = {
        {"", "not JSON: line 1"},
        {"{'type':", "not JSON: line 1"},
        {"1", "/: expected a schema"},
        {"false", "/: no value satisfies this"},
        {"{'type':'strin'}", "/type: unknown type 'strin'"},
        {"{'type':7}", "/type: expected the name of a type"},
        {"{'type':[]}", "/type: "},
        {"{'properties':{'x':{'type':'nonsense'}}}", "/properties/x/type: unknown type 'nonsense'"},
        {"{'properties':{'a/b~c':{'type':1}}}", "/properties/a~1b~0c/type: "},
        {"{'properties':[]}", "/properties: expected an object"},
        {"{'properties':{'x':3}}", "/properties/x: expected a schema"},
        {"{'required':'x'}", "/required: expected a list of names"},
        {"{'required':[1]}", "/required: expected a list of names"},
        {"{'required':['x'],'additionalProperties':false}", "/required: 'x' is required but not allowed"},
        {"{'additionalProperties':1}", "/additionalProperties: "},
        {"{'items':1}", "/items: expected a schema"},
        {"{'prefixItems':{}}", "/prefixItems: expected a list of schemas"},
        {"{'prefixItems':[{},{'type':'x'}]}", "/prefixItems/1/type: "},
        {"{'minItems':-1}", "/minItems: expected a non-negative integer"},
        {"{'minItems':1.5}", "/minItems: expected a non-negative integer"},
        {"{'minItems':3,'maxItems':2}", "/minItems: is greater than maxItems"},
        {"{'minLength':3,'maxLength':2}", "/minLength: is greater than maxLength"},
        {"{'type':'string','pattern':'('}", "/pattern: a parenthesis is not closed"},
        {"{'type':'string','pattern':'[a'}", "/pattern: unterminated character class"},
        {"{'type':'string','pattern':'*'}", "/pattern: there is nothing to repeat"},
        {"{'type':'string','pattern':1}", "/pattern: expected a string"},
        {"{'minimum':'1'}", "/minimum: expected a number"},
        {"{'minimum':3,'maximum':2}", "/: no number is between"},
        {"{'type':'integer','minimum':1.2,'maximum':1.8}", "/: no integer is between"},
        {"{'type':'integer','multipleOf':0}", "/multipleOf: expected a number above 0"},
        {"{'enum':[]}", "/enum: expected a non-empty list of values"},
        {"{'type':'string','enum':[1]}", "/enum: no value has the required type"},
        {"{'anyOf':[]}", "/anyOf: expected a non-empty list of schemas"},
        {"{'anyOf':[{'type':'q'}]}", "/anyOf/0/type: "},
        {"{'allOf':7}", "/allOf: expected a non-empty list of schemas"},
        {"{'allOf':[{'type':'string'},{'type':'integer'}]}", "/: no value satisfies this"},
        {"{'$ref':'#/nowhere'}", "/$ref: '#/nowhere' does not exist"},
        {"{'$ref':'http://x.y/z'}", "/$ref: 'http://x.y/z' is outside the schema"},
        {"{'$ref':'#'}", "refers to itself"},
        {"{'anyOf':[{'$ref':'#'},{'type':'null'}]}", "refers to itself"},
        {"{'allOf':[{'$ref':'#'}]}", "/"},
        {"{'nullable':1,'type':'string'}", "/nullable: "},
        {"{'properties':{'a':{'$ref':'#/$defs/b'}},'$defs':{'b':{'properties':{'c':{'type':'z'}}}}}",
         "/$defs/b/properties/c/type: "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mo_grammar *g;
        mo_error err;
        const mo_status status = open_schema(wrong[i].schema, false, &g, &err);
        if (status != MO_EINVAL) {
            fail_msg("%s: status %d", wrong[i].schema, status);
        }
        check_says(&err, wrong[i].says);
    }
}

/* Of a core: what else runs does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Opens, and walks some way through it; whatever comes of it, it comes soon. */
static void walk_somehow(const char *what, const char *json)
{
    const mo_grammar_options none = {.size = sizeof none};
    char *gbnf, *notes;
    mo_error err;
    const double begin = seconds();
    if (mo_schema_write(json, strlen(json), "root", false, &gbnf, &notes, &err) == MO_OK) {
        mo_grammar *g;
        mo_constraint *c;
        uint64_t seed = 5;
        check_status(mo_grammar_make(toy_words.lexicon, gbnf, strlen(gbnf), &none, NULL, notes, &g, &err),
                     &err);
        free(gbnf);
        check_status(mo_constraint_open(g, &c, &err), &err);
        for (int i = 0; i < 60; i++) {
            const uint32_t *mask = mo_constraint_mask(c, &err);
            int32_t token = (int32_t)random_below(&seed, 256);
            for (int k = 0; mask && k < 600 && !mo_bit(mask, token); k++) {
                token = (token + 1) % (int32_t)mo_tokenizer_size(toy_words.tokenizer);
            }
            if (!mask || mo_constraint_accept(c, token, &err) != MO_OK) {
                break;
            }
        }
        mo_constraint_close(c);
        mo_grammar_close(g);
    }
    if (seconds() - begin > (SANITIZED ? 60 : 8)) {
        fail_msg("%s took %.1f s", what, seconds() - begin);
    }
}

static void hostile_schemas_take_bounded_time(void **state)
{
    (void)state;
    char *text = malloc(2 << 20), *p;
    p = text + sprintf(text, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 3000; i++) {
        p += sprintf(p, "%s\"p%d\":{\"type\":\"string\"}", i ? "," : "", i);
    }
    sprintf(p, "}}");
    walk_somehow("3000 optional properties", text);
    p = text;
    for (int i = 0; i < 60; i++) {
        p += sprintf(p, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":");
    }
    p += sprintf(p, "{}");
    for (int i = 0; i < 60; i++) {
        p += sprintf(p, "}}");
    }
    walk_somehow("nested optional properties", text);
    p = text;
    for (int i = 0; i < 100000; i++) {
        *p++ = '[';
    }
    *p = 0;
    walk_somehow("brackets", text);
    p = text + sprintf(text, "{\"$defs\":{");
    for (int i = 0; i < 40; i++) { /* each doubles */
        p += sprintf(p,
                     "\"d%d\":{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/"
                     "d%d\"}]},{\"anyOf\":"
                     "[{\"$ref\":\"#/$defs/d%d\"},{\"minLength\":%d}]}]},",
                     i, i + 1, i + 1, i + 1, i);
    }
    sprintf(p, "\"d40\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/d0\"}");
    walk_somehow("doubling", text);
    walk_somehow("a long string", "{\"type\":\"string\",\"minLength\":1000000000,\"maxLength\":2000000000}");
    walk_somehow("a long list",
                 "{\"type\":\"array\",\"minItems\":100000000,\"items\":{\"type\":\"array\",\"minItems\":9}}");
    walk_somehow("a pattern",
                 "{\"type\":\"string\",\"pattern\":\"^(((a*)*b*)*c*)*((a|aa|aaa){0,1000}){0,1000}$\"}");
    walk_somehow("a pattern in a text", "{\"type\":\"string\",\"pattern\":\"(a.*){20}b(x|y){0,200}\"}");
    walk_somehow("recursion by merging",
                 "{\"$defs\":{\"a\":{\"properties\":{\"c\":{\"$ref\":\"#/$defs/"
                 "a\"}}},\"b\":{\"properties\":{\"c\":{\"$ref\":"
                 "\"#/$defs/b\"}}}},\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}]}");
    free(text);
}

/* Masks of all their states can be made, and order and commas are as they are for few. */
static void optional_properties_come_in_any_number(void **state)
{
    static const struct {
        const char *required;
        const char *yes[4], *no[4];
    } cases[] = {
        {"",

         {"{}", "{'p0': 1}", "{'p3': 1, 'p2999': 2}", "{'p0': 1, 'p1': 2, 'p1500': 3}"},
         {"{'p3': 1, 'p2': 2}", "{'p3000': 1}", "{'p1': 1, }", "{, 'p1': 1}"}},
        {"'p1000'",

         {"{'p1000': 1}", "{'p3': 1, 'p1000': 2}", "{'p1000': 1, 'p2999': 2}",
          "{'p1': 1, 'p1000': 1, 'p1001': 2}"},
         {"{}", "{'p3': 1}", "{'p1000': 1, 'p3': 1}", "{'p3': 1, 'p2999': 2}"}},
        {"'p0', 'p1', 'p2999'",

         {"{'p0': 1, 'p1': 2, 'p2999': 3}", "{'p0': 1, 'p1': 2, 'p7': 3, 'p8': 1, 'p2999': 3}",
          "{'p0': 1, 'p1': 2, 'p2998': 3, 'p2999': 3}", "{'p0': 1, 'p1': 2, 'p2999': 3 }"},
         {"{'p0': 1, 'p1': 2}", "{'p0': 1, 'p7': 3, 'p1': 2, 'p2999': 3}",
          "{'p0': 1, 'p1': 2, 'p2999': 3, 'p7': 3}", "{'p00': 1, 'p0': 1, 'p1': 2, 'p2999': 3}"}},
    };
    char *text = malloc(1 << 20);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_grammar *g;
        mo_error err;
        char *p = text + sprintf(text, "{'type':'object','properties':{");
        for (int k = 0; k < 3000; k++) {
            p += sprintf(p, "%s'p%d':{'type':'integer'}", k ? "," : "", k);
        }
        sprintf(p, "},'required':[%s],'additionalProperties':false}", cases[i].required);
        char *schema = quoted(text);
        check_status(open_schema(schema, true, &g, &err), &err);
        for (size_t k = 0; k < 8; k++) {
            char *answer = quoted(k < 4 ? cases[i].yes[k] : cases[i].no[k - 4]);
            if (toy_matches(g, answer, strlen(answer), k % 2) != (k < 4)) {
                fail_msg("%zu: %s", i, answer);
            }
            free(answer);
        }
        mo_grammar_close(g);
        free(schema);
    }
    free(text);
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    static const char schema[] = "{'type':'object','properties':{'a':{'type':'string','pattern':'^a+b'},'b':{"
                                 "'type':'integer','minimum':5,'maximum':17},"
                                 "'c':{'oneOf':[{'const':1},{'type':'array','items':{'$ref':'#/$defs/"
                                 "d'},'maxItems':4}]},'d':{'allOf':[{'minLength':1},"
                                 "{'maxLength':3,'type':'string'}]}},'$defs':{'d':{'enum':['x','y']}},'"
                                 "additionalProperties':{'type':'null'},"
                                 "'required':['a']}";
    long n = 0;
    for (bool ok = false; !ok; n++) {
        mo_grammar *g = NULL;
        mo_error err = {0};
        char *json = quoted(schema), *gbnf = NULL, *notes = NULL;
        fail_after = n;
        ok = mo_schema_write(json, strlen(json), "root", true, &gbnf, &notes, &err) == MO_OK;
        fail_after = -1;
        if (!ok && err.status != MO_ENOMEM) {
            fail_msg("after %ld: %s", n, err.detail);
        }
        free(json);
        free(gbnf);
        free(notes);
        mo_grammar_close(g);
        assert_in_range(n, 0, 20000);
    }
    assert_in_range(n, 50, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_allow_what_is_valid),
        cmocka_unit_test(nothing_follows_the_value),
        cmocka_unit_test(white_space_is_bounded),
        cmocka_unit_test(what_is_not_enforced_is_named),
        cmocka_unit_test(what_excludes_itself_is_enforced),
        cmocka_unit_test(errors_name_the_path),
        cmocka_unit_test(hostile_schemas_take_bounded_time),
        cmocka_unit_test(optional_properties_come_in_any_number),
        cmocka_unit_test(memory_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
