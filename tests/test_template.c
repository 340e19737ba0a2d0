/* Templates: real ones render what Python's jinja2 makes of them, byte for byte; so do small ones for every feature; limits
 * end whatever does not end by itself; every byte knows where it came from; every failing allocation is survived. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing_memory.h"
#include "sanitized.h"
#include "template/json.h"
#include "template/template.h"

#define FOLDER MO_TEST_DATA "/templates/"

static json_t *load(const char *name)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, FOLDER "%s", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!root) {
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    }
    return root;
}

static char *read_text(const char *path, size_t *length)
{
    FILE *f = fopen(path, "rb");
    *length = 0;
    if (!f) {
        return NULL;
    }
    char *text = malloc(1 << 20);
    assert_non_null(text);
    *length = fread(text, 1, (1 << 20) - 1, f);
    text[*length] = 0;
    fclose(f);
    return text;
}

/* ---- Real templates ---- */

static json_t *context_of(const json_t *family, const json_t *conversations, const json_t *one)
{
    json_t *context = json_deep_copy(
        json_object_get(conversations, json_string_value(json_object_get(one, "conversation"))));
    assert_non_null(context);
    json_object_update(context, json_object_get(one, "options"));
    json_object_set(context, "bos_token", json_object_get(family, "bos_token"));
    json_object_set(context, "eos_token", json_object_get(family, "eos_token"));
    return context;
}

static void check_case(const mo_template *t, const json_t *family, const json_t *conversations,
                       const json_t *one)
{
    json_t *context = context_of(family, conversations, one);
    char *json = json_dumps(context, 0), *text = NULL;
    size_t length = 0;
    mo_error err;
    mo_template_options o = mo_template_options_default();
    o.clock = json_string_value(json_object_get(family, "clock"));
    const mo_status status = mo_template_render(t, json, strlen(json), &o, &text, &length, &err);
    const json_t *expected = json_object_get(one, "expected");
    const char *raises = json_string_value(json_object_get(one, "raises"));
    if (expected) {
        check_status(status, &err);
        assert_string_equal(text, json_string_value(expected));
        assert_int_equal(length, json_string_length(expected));
    } else if (raises) {
        assert_int_equal(status, MO_EINVAL);
        assert_string_equal(err.detail, raises);
    } else {
        assert_int_equal(status, MO_EINVAL);
        check_says(&err, "line ");
    }
    free(text);
    free(json);
    json_decref(context);
}

/* The number of cases; 0: the text is not here. */
static size_t check_family(const char *name, const json_t *conversations)
{
    char file[128], path[512];
    snprintf(file, sizeof file, "%s.json", name);
    json_t *family = load(file);
    const char *text_file = json_string_value(json_object_get(family, "template"));
    const char *folder = getenv("MO_TEMPLATES");
    size_t length, count = 0;
    snprintf(path, sizeof path, "%s/%s.jinja", folder ? folder : "", name);
    if (text_file) {
        snprintf(path, sizeof path, FOLDER "%s", text_file);
    }
    char *text = text_file || folder ? read_text(path, &length) : NULL;
    if (text) {
        mo_template *t;
        mo_error err;
        json_t *cases = json_object_get(family, "cases");
        check_status(mo_template_open(text, length, &t, &err), &err);
        count = json_array_size(cases);
        for (size_t i = 0; i < count; i++) {
            check_case(t, family, conversations, json_array_get(cases, i));
        }
        mo_template_close(t);
        free(text);
    }
    json_decref(family);
    return count;
}

static void real_templates_render_as_in_python(void **state)
{
    static const char *const families[] = {
        "deepseek-v3.1", "gemma-4", "glm-4.6", "gpt-oss",     "granite-3.3", "mistral-nemo", "mixtral-8x7b",
        "olmo2",         "qwen2.5", "qwen3",   "qwen3-coder", "smollm2",     "smollm3",
    };
    json_t *conversations = load("conversations.json");
    size_t count = 0;
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        count += check_family(families[i], conversations);
    }
    assert_int_equal(count, 831);
    json_decref(conversations);
}

static void templates_under_other_licences_render_as_in_python(void **state)
{
    (void)state;
    json_t *conversations = load("conversations.json");
    const size_t count = check_family("llama-3.1", conversations) + check_family("gemma-2", conversations);
    json_decref(conversations);
    if (count == 0) {
        print_message("skipped: MO_TEMPLATES names no folder with llama-3.1.jinja and gemma-2.jinja\n");
        skip();
    }
    assert_int_equal(count, 108);
}

/* ---- Features ---- */

static mo_status render_with(const char *source, size_t source_length, const char *context,
                             const mo_template_options *o, char **text, size_t *length, mo_error *err)
{
    mo_template *t = NULL;
    *text = NULL;
    *length = 0;
    mo_status status = mo_template_open(source, source_length, &t, err);
    if (status == MO_OK) {
        status = mo_template_render(t, context, strlen(context), o, text, length, err);
    }
    mo_template_close(t);
    return status;
}

static void every_feature_is_as_in_python(void **state)
{
    (void)state;
    json_t *all = load("features.json"), *one;
    const char *context = json_string_value(json_object_get(all, "context"));
    mo_template_options o = mo_template_options_default();
    size_t i;
    o.clock = json_string_value(json_object_get(all, "clock"));
    json_array_foreach(json_object_get(all, "cases"), i, one)
    {
        const char *source = json_string_value(json_array_get(one, 0));
        const json_t *expected = json_array_get(one, 1);
        char *text;
        size_t length;
        mo_error err = {MO_OK, {0}};
        const mo_status status = render_with(source, strlen(source), context, &o, &text, &length, &err);
        if ((status == MO_OK) != (expected != NULL) ||
            (expected && (length != json_string_length(expected) ||
                          memcmp(text, json_string_value(expected), length) != 0))) {
            fail_msg("%s\nrenders: %s\nPython:  %s", source, text ? text : err.detail,
                     expected ? json_string_value(expected) : "an error");
        }
        free(text);
    }
    json_decref(all);
}

static void renders(const char *source, const char *context, const char *expected)
{
    char *text;
    size_t length;
    mo_error err;
    check_status(render_with(source, strlen(source), context, NULL, &text, &length, &err), &err);
    assert_string_equal(text, expected);
    free(text);
}

static void lists_and_dicts_can_be_changed(void **state)
{
    (void)state;
    renders("{% set l = [1] %}{{ l.append(2) }}{{ l }}{{ l.pop() }}{{ l.pop(0) }}{{ l }}", "{}",
            "None[1, 2]21[]");
    renders("{% set l = [3, 1] %}{% set m = l[:] %}{{ l.insert(0, 9) }}{{ l.sort() }}{{ l.reverse() }}{{ l "
            "}}{{ m }}",
            "{}", "NoneNoneNone[9, 3, 1][3, 1]");
    renders("{% set l = [1, 2] %}{% set m = l[:1] %}{{ m.append(7) }}{{ m }}{{ l }}", "{}",
            "None[1, 7][1, 2]");
    renders("{{ d.pop('a') }}{{ d.update(b=2) }}{{ d.setdefault('c', 3) }}{{ d }}", "{\"d\": {\"a\": 1}}",
            "1None3{'b': 2, 'c': 3}");
}

static void json_is_read_by_from_json(void **state)
{
    (void)state;
    renders("{{ (s | from_json).a[0] }} {{ '[1, 2.50, \"x\"]' | from_json }}",
            "{\"s\": \"{\\\"a\\\": [true]}\"}", "True [1, 2.5, 'x']");
}

static void integers_keep_all_their_digits(void **state)
{
    (void)state;
    renders("{{ x }} {{ x | tojson }} {{ x == y }} {{ x > 1 }} {{ -9223372036854775808 }} {{ z }}",
            "{\"x\": 99999999999999999999, \"y\": 99999999999999999999, \"z\": -9223372036854775808}",
            "99999999999999999999 99999999999999999999 True True -9223372036854775808 -9223372036854775808");
}

static void contexts_hold_any_character(void **state)
{
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    check_status(
        render_with("{{ x }}", 7, "{\"x\": \"a\\u0000\\ud83d\\ude00\\ud800\"}", NULL, &text, &length, &err),
        &err);
    assert_int_equal(length, 9);
    assert_memory_equal(text, "a\0\xF0\x9F\x98\x80\xEF\xBF\xBD", 9);
    free(text);
}

/* ---- The clock ---- */

static void the_clock_is_as_given(void **state)
{
    (void)state;
    static const struct {
        const char *clock, *expected;
    } cases[] = {
        {"2024-02-29T23:59:58", "Thu 29 Feb 2024 23:59:58"},
        {"2024-02-29", "Thu 29 Feb 2024 00:00:00"},
        {"2024-02-29 07:05", "Thu 29 Feb 2024 07:05:00"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char source[] = "{{ strftime_now('%a %d %b %Y %H:%M:%S') }}";
        mo_template_options o = mo_template_options_default();
        char *text;
        size_t length;
        mo_error err;
        o.clock = cases[i].clock;
        check_status(render_with(source, strlen(source), "{}", &o, &text, &length, &err), &err);
        assert_string_equal(text, cases[i].expected);
        free(text);
    }
    mo_template_options o = mo_template_options_default();
    char *text;
    size_t length;
    mo_error err;
    o.clock = "yesterday";
    assert_int_equal(render_with("x", 1, "{}", &o, &text, &length, &err), MO_EINVAL);
    check_says(&err, "yesterday");
}

/* ---- Errors ---- */

static void refuses(const char *source, const char *context, mo_status expected, const char *words)
{
    char *text;
    size_t length;
    mo_error err;
    const mo_status status = render_with(source, strlen(source), context, NULL, &text, &length, &err);
    if (status != expected) {
        fail_msg("%.200s: status %d (%s), not %d", source, status, status ? err.detail : text, expected);
    }
    check_says(&err, words);
    assert_null(text);
}

static void errors_name_their_line(void **state)
{
    (void)state;
    refuses("a\n{% if %}", "{}", MO_EFORMAT, "line 2: expected an expression, found %}");
    refuses("a\n\n{{ 'x }}", "{}", MO_EFORMAT, "line 3: unterminated string");
    refuses("{% for x in y %}\n{{ x }}", "{}", MO_EFORMAT,
            "line 1: the block that starts here is not closed");
    refuses("a\nb\n{% include 'x' %}", "{}", MO_EFORMAT, "line 3: unexpected tag 'include'");
    refuses("a\n{{ x.y.z }}", "{\"x\": {}}", MO_EINVAL, "line 2: 'dict object' has no attribute 'y'");
    refuses("a\n{{ y }}\n{{ x.z }}", "{}", MO_EINVAL, "line 3: 'x' is undefined");
    refuses("{% macro f() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ f() }}", "{}", MO_EINVAL,
            "line 2: unsupported operand");
    refuses("\n{{ x | frobnicate }}", "{}", MO_EINVAL, "line 2: there is no filter named 'frobnicate'");
    refuses("{{ x }}\xFF", "{}", MO_EFORMAT, "not valid UTF-8");
    refuses("{# x", "{}", MO_EFORMAT, "line 1: unterminated comment");
}

static void a_refusal_arrives_word_for_word(void **state)
{
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    static const char source[] = "\n{{ raise_exception('Roles must alternate: ' ~ 50 ~ '%s') }}";
    assert_int_equal(render_with(source, strlen(source), "{}", NULL, &text, &length, &err), MO_EINVAL);
    assert_string_equal(err.detail, "Roles must alternate: 50%s");
}

static void contexts_that_are_no_json_are_refused(void **state)
{
    (void)state;
    refuses("x", "{\"a\": 1", MO_EINVAL, "the context is not JSON: line 1, column 8");
    refuses("x", "[]", MO_EINVAL, "not a JSON object");
    refuses("x", "{\"a\": 01}", MO_EINVAL, "starts with 0");
    refuses("x", "{\"a\": \"\xC3\"}", MO_EINVAL, "invalid UTF-8");
    refuses("x", "{}{}", MO_EINVAL, "unexpected data");
    refuses("x", "", MO_EINVAL, "unexpected end");
}

/* ---- Limits ---- */

static char *repeated(const char *begin, const char *middle, int times, const char *end)
{
    char *text = malloc(strlen(begin) + strlen(middle) * (size_t)times + strlen(end) + 1);
    assert_non_null(text);
    char *p = stpcpy(text, begin);
    for (int i = 0; i < times; i++) {
        p = stpcpy(p, middle);
    }
    stpcpy(p, end);
    return text;
}

static void what_does_not_end_is_ended(void **state)
{
    (void)state;
    refuses("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", MO_ENOSPC, "levels deep");
    refuses("{% set l = [1] %}{% for x in l %}{{ l.append(x) }}{% endfor %}", "{}", MO_ENOSPC, "");
    refuses("{% set n = namespace(s='x') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "{}", MO_ENOSPC, "");
    refuses("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{}", MO_ENOSPC,
            "");
    refuses(
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        "{}", MO_ENOSPC, "levels deep");
    refuses("{% set l = [] %}{{ l.append(l) }}{{ l }}", "{}", MO_ENOSPC, "levels deep");
    refuses("{{ 'x' * 99999999999 }}", "{}", MO_ENOSPC, "too long");
    refuses("{{ '%99999999d' % 1 }}", "{}", MO_EINVAL, "width");
}

static void deep_texts_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"{{ ", "(", ")", "}}"},
        {"{{ ", "[", "]", "}}"},
        {"{{ ", "not ", "", "x }}"},
        {"{{ ", "-", "", "1 }}"},
        {"", "{% if x %}", "", ""},
        {"{{ ", "{'a': ", "}", "}}"},
        {"{{ ", "x if y else ", "", "z }}"},
        {"{% set ", "(", ")", "%}"},
        {"{{ ", "x[", "]", "}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *close = repeated("", cases[i][2], 100000, cases[i][3]);
        char *text = repeated(cases[i][0], cases[i][1], 100000, close);
        mo_template *t;
        mo_error err;
        assert_int_not_equal(mo_template_open(text, strlen(text), &t, &err), MO_OK);
        check_says(&err, "levels deep");
        free(text);
        free(close);
    }
    char *context = repeated("{\"a\": ", "[", 100000, "");
    refuses("x", context, MO_ENOSPC, "levels deep");
    free(context);
}

static void limits_can_be_set(void **state)
{
    mo_template_options o = mo_template_options_default();
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    o.steps = 100;
    static const char loop[] = "{% for i in range(1000) %}{% endfor %}";
    assert_int_equal(render_with(loop, strlen(loop), "{}", &o, &text, &length, &err), MO_ENOSPC);
    check_says(&err, "100 steps");
    o.steps = 0;
    o.bytes = 1 << 20;
    static const char wide[] = "{{ 'x' * 2000000 }}";
    assert_int_equal(render_with(wide, strlen(wide), "{}", &o, &text, &length, &err), MO_ENOSPC);
    check_says(&err, "1 MiB");
}

/* What looks at a long string costs steps by its length, so that no template holds a thread for hours. Each case looks at a
 * text of a megabyte or more, 450,000 times. */
static void long_texts_cost_steps(void **state)
{
    static const char *const cases[] = {
        "s == t",
        "s < t",
        "s != t",
        "s in t",
        "{t: i}[t ~ '']",
        "(s ~ i)|length",
        "s.find('é')",
        "s.rfind('é')",
        "s.rfind(s[5:])",
        "s.count('é')",
        "s.split('é')",
        "s.rsplit('é')",
        "s.partition('é')",
        "s.isalpha()",
        "s.islower()",
        "s|trim('xö')",
        "b.strip()",
        "b|trim|length",
        "s.startswith(t)",
        "s.endswith(s[1:])",
        "s[i * 377777 % 999999]",
        "s[:i * 377777 % 999999]|length",
        "s|wordcount",
        "s|first",
        "s.replace('é', '')",
        "s|lower",
        "s is lower",
        "s.splitlines()",
        "d[s]",
        "'%.3s' % (s ~ i)",
        "s ~ s",
        "digits|int(1, 36)",
        "(s ~ i)|truncate(90)",
        "[s]|unique|list",
        "[s, t]|max",
        "s|tojson",
        "s|list",
    };
    static const char setting[] =
        "{% set s = 'xö' * 1000 * 500 %}{% set t = 'xö' * 1000 * 499 ~ 'xö' * 999 ~ 'xß' %}"
        "{% set b = ' ' * 1000 * 1000 %}{% set digits = '9' * 1000 * 1000 %}{% set d = {t: 1} %}";
    static const char loop[] = "{% for j in range(9) %}{% for i in range(50000) %}{% set x = ";
    mo_template_options o = mo_template_options_default();
    char source[sizeof setting + sizeof loop + 100], *text;
    size_t length;
    mo_error err;
    (void)state;
    o.steps = (SANITIZED ? 300 : 1500) * 1000;
    check_status(render_with(setting, strlen(setting), "{}", &o, &text, &length, &err), &err);
    free(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(source, sizeof source, "%s%s%s %%}{%% endfor %%}{%% endfor %%}", setting, loop, cases[i]);
        const mo_status status = render_with(source, strlen(source), "{}", &o, &text, &length, &err);
        if (status == MO_OK || (!strstr(err.detail, "steps") && !strstr(err.detail, "MiB"))) {
            fail_msg("%s: %s", cases[i], status == MO_OK ? "rendered" : err.detail);
        }
    }
}

/* But what is asked of one string again and again is counted once. */
static void long_texts_are_measured_once(void **state)
{
    mo_template_options o = mo_template_options_default();
    static const char source[] =
        "{% set s = 'xö' * 1000 * 500 %}{% set d = {s: 1} %}{% set n = namespace(c=0) %}"
        "{% for i in range(20000) %}{% set n.c = n.c + (s|length) + d[s] + (s == s) %}{% endfor %}{{ n.c }}"
        "{% for i in range(20000) %}{% if s[i] != 'xö'[i % 2] %}?{% endif %}{% endfor %}"
        " {{ s[999999] }}{{ s[1000000] }}{{ s[-1000000] }}{{ s[499999:500003] }}";
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    o.steps = 3 * 1000 * 1000; /* counting each time would take hundreds of millions */
    check_status(render_with(source, strlen(source), "{}", &o, &text, &length, &err), &err);
    assert_string_equal(text, "20000040000 öxöxöx");
    free(text);
}

/* A conversation that grows text by text costs its length, not its square. */
static void long_texts_are_built_in_place(void **state)
{
    mo_template_options o = mo_template_options_default();
    static const char source[] =
        "{% set n = namespace(s='') %}{% for i in range(20000) %}{% set n.s = n.s ~ x ~ i %}"
        "{% endfor %}{{ n.s | length }}";
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    o.bytes = 64 << 20;
    check_status(
        render_with(source, strlen(source), "{\"x\": \"some words of a message\"}", &o, &text, &length, &err),
        &err);
    assert_string_equal(text, "548890");
    free(text);
}

/* ---- Where bytes come from ---- */

static mo_jdict *made_context(mo_work *w, const struct tm *clock, void *user)
{
    (void)clock;
    const char *json = user;
    mo_jdict *context = mo_json_read(w, json, strlen(json), true, "it").as.dict;
    mo_jdict_set_text(w, context, "bos", mo_jv_text(w, "<s>"));
    return context;
}

/* marks: i where the byte came from the input, a dot where it is the template's. */
static void marks_are(const char *source, const char *context, const char *expected, const char *marks)
{
    mo_template *t;
    mo_rendering r;
    mo_error err;
    check_status(mo_template_open(source, strlen(source), &t, &err), &err);
    check_status(mo_template_run(t, NULL, made_context, (void *)context, 0, &r, &err), &err);
    assert_string_equal(r.text, expected);
    for (size_t i = 0; i < r.length; i++) {
        r.text[i] = r.input[i] ? 'i' : '.';
    }
    assert_string_equal(r.text, marks);
    mo_rendering_free(&r);
    mo_template_close(t);
}

static void bytes_know_where_they_came_from(void **state)
{
    (void)state;
    marks_are("{{ bos }}<u>{{ x }}</u>", "{\"x\": \"ab\"}", "<s><u>ab</u>", "......ii....");
    marks_are("{{ bos + x ~ '!' + x[1:] }}", "{\"x\": \"ab\"}", "<s>ab!b", "...ii.i");
    marks_are("{% set y %}[{{ x | trim }}]{% endset %}{{ y }}{{ y[1:] }}", "{\"x\": \" a \"}", "[a]a]",
              ".i.i.");
    marks_are("{{ x.split(',') | join('-') }}", "{\"x\": \"a,b\"}", "a-b", "i.i");
    marks_are("{{ x | tojson }}", "{\"x\": [\"a\\n\", 1]}", "[\"a\\n\", 1]", "..iii.....");
    marks_are("{{ x | upper }}{{ 'b' | upper }}", "{\"x\": \"a\"}", "AB", "i.");
    marks_are("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x) }}", "{\"x\": \"a\"}", "<a>", ".i.");
    marks_are("{{ x.replace('a', 'b') }}{{ 'a-a'.replace('-', x) }}", "{\"x\": \"ca\"}", "cbacaa", "i..ii.");
    marks_are("{{ '%s|%s' % (x, 'y') }}{{ '{}'.format(x) }}", "{\"x\": \"a\"}", "a|ya", "i..i");
}

/* ---- Memory ---- */

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    size_t length;
    char *source = read_text(FOLDER "text/qwen3.jinja", &length);
    assert_non_null(source);
    bool done = false;
    for (long n = 0; !done; n++) {
        char *text;
        size_t text_length;
        mo_error err;
        fail_after = n;
        const mo_status status =
            render_with(source, length, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", NULL,
                        &text, &text_length, &err);
        fail_after = -1;
        done = status == MO_OK;
        assert_true(done || status == MO_ENOMEM);
        free(text);
    }
    free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_templates_render_as_in_python),
        cmocka_unit_test(templates_under_other_licences_render_as_in_python),
        cmocka_unit_test(every_feature_is_as_in_python),
        cmocka_unit_test(lists_and_dicts_can_be_changed),
        cmocka_unit_test(json_is_read_by_from_json),
        cmocka_unit_test(integers_keep_all_their_digits),
        cmocka_unit_test(contexts_hold_any_character),
        cmocka_unit_test(the_clock_is_as_given),
        cmocka_unit_test(errors_name_their_line),
        cmocka_unit_test(a_refusal_arrives_word_for_word),
        cmocka_unit_test(contexts_that_are_no_json_are_refused),
        cmocka_unit_test(what_does_not_end_is_ended),
        cmocka_unit_test(deep_texts_are_refused),
        cmocka_unit_test(limits_can_be_set),
        cmocka_unit_test(long_texts_cost_steps),
        cmocka_unit_test(long_texts_are_measured_once),
        cmocka_unit_test(long_texts_are_built_in_place),
        cmocka_unit_test(bytes_know_where_they_came_from),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
