#include "grammar/schema_string.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/regex.h"

#define DATE                                                                                                 \
    "[1-9] [0-9]{3} \"-\" ((\"0\" [13578] | \"10\" | \"12\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01]) " \
    "| "                                                                                                     \
    "(\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\") | \"02-\" (\"0\" [1-9] | \"1\" [0-9] " \
    "| "                                                                                                     \
    "\"2\" [0-8]))"
#define CLOCK   "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]"
#define TIME    CLOCK " \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? ([Zz] | [-+] " CLOCK ")"
#define LABEL   "[a-zA-Z0-9] ([a-zA-Z0-9-]{0,61} [a-zA-Z0-9])?"
#define HOST    LABEL " (\".\" " LABEL "){0,8}"
#define ATOM    "[a-zA-Z0-9_+-]{1,32}"
#define BYTE    "(\"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9]{2} | [1-9] [0-9] | [0-9])"
#define URI_ONE "([a-zA-Z0-9._~!$&'()*+,;=:@-] | \"%\" [0-9a-fA-F]{2})"

/* All texts of these rules are valid; leap days, leap seconds and rare forms are excluded. */
static const struct {
    const char *name, *text;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE " [Tt] " TIME},
    {"uuid",
     "[0-9a-fA-F]{8} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{12}"},
    {"email", ATOM " (\".\" " ATOM "){0,3} \"@\" " LABEL " (\".\" " LABEL "){1,4}"},
    {"uri", "(\"http\" \"s\"? | \"ftp\") \"://\" " HOST " (\":\" [1-9] [0-9]{0,3})? (\"/\" " URI_ONE
            "{0,64}){0,16} (\"?\" (" URI_ONE " | \"/\"){0,256})? (\"#\" " URI_ONE "{0,64})?"},
    {"hostname", HOST},
    {"ipv4", BYTE " (\".\" " BYTE "){3}"},
    {"duration",
     "\"P\" ([0-9]{1,4} \"D\" (\"T\" [0-9]{1,4} [HMS])? | \"T\" [0-9]{1,4} \"H\" ([0-9]{1,4} \"M\" "
     "([0-9]{1,4} \"S\")?)? | \"T\" [0-9]{1,4} \"M\" ([0-9]{1,4} \"S\")? | \"T\" [0-9]{1,4} \"S\" | "
     "[0-9]{1,4} [YMW])"},
};

static const char *format_text(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return formats[i].text;
        }
    }
    return NULL;
}

static mo_status text_of(mo_schema_rules *s, const json_t *schema, const char *key, const char **out)
{
    const json_t *value = json_object_get(schema, key);
    *out = json_string_value(value);
    return value && !*out ? mo_schema_wrong(s, key, "expected a string") : MO_OK;
}

/* *done: a pattern was written. */
static mo_status write_pattern(mo_schema_rules *s, const char *pattern, mo_bytes *out, bool *done)
{
    char any[MO_RULE_NAME];
    const char *why = NULL;
    bool malformed = false;
    mo_bytes text = {0};
    mo_schema_common(s, MO_RULE_CHAR, any);
    *done = mo_regex_write(pattern, any, &text, &why, &malformed);
    mo_status status = text.failed || (!*done && !why) ? mo_schema_no_memory(s) : MO_OK;
    if (status == MO_OK && *done) {
        mo_bytes_print(out, "\"\\\"\" (%s) \"\\\"\"", text.data ? text.data : "\"\"");
    } else if (status == MO_OK) {
        status = malformed ? mo_schema_wrong(s, "pattern", "%s", why) : mo_schema_note(s, "pattern", why);
    }
    free(text.data);
    return status;
}

/* Notes keys that are not enforced together with a pattern or format. */
static mo_status note_others(mo_schema_rules *s, const json_t *schema, const char *chosen)
{
    static const char *const keys[] = {"minLength", "maxLength", "format"};
    mo_status status = MO_OK;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        const json_t *value = json_object_get(schema, keys[i]);
        const bool vacuous = i == 0 && json_is_integer(value) && json_integer_value(value) == 0;
        if (value && !vacuous && strcmp(keys[i], chosen) != 0) {
            status = mo_schema_note(s, keys[i],
                                    strcmp(chosen, "format") ? "is not enforced together with a pattern"
                                                             : "is not enforced together with a format");
        }
    }
    return status;
}

mo_status mo_schema_string(mo_schema_rules *s, const json_t *schema, mo_bytes *out)
{
    const char *pattern, *format;
    int64_t min, max;
    char name[MO_RULE_NAME];
    bool done = false;
    mo_status status = text_of(s, schema, "pattern", &pattern);
    status = status == MO_OK ? text_of(s, schema, "format", &format) : status;
    status = status == MO_OK ? mo_schema_count(s, schema, "minLength", &min) : status;
    status = status == MO_OK ? mo_schema_count(s, schema, "maxLength", &max) : status;
    if (status == MO_OK && max >= 0 && min > max) {
        status = mo_schema_wrong(s, "minLength", "is greater than maxLength");
    }
    if (status == MO_OK && pattern) {
        status = write_pattern(s, pattern, out, &done);
        if (status != MO_OK || done) {
            return status == MO_OK ? note_others(s, schema, "pattern") : status;
        }
    }
    if (status == MO_OK && format) {
        const char *text = format_text(format);
        if (text) {
            mo_bytes_print(out, "\"\\\"\" %s \"\\\"\"", text);
            return note_others(s, schema, "format");
        }
        status = mo_schema_note(s, "format", "is unknown and not enforced");
    }
    if (status != MO_OK) {
        return status;
    }
    if (min <= 0 && max < 0) {
        mo_schema_common(s, MO_RULE_STRING, name);
        mo_bytes_print(out, "%s", name);
        return MO_OK;
    }
    mo_schema_common(s, MO_RULE_CHAR, name);
    mo_bytes_print(out, "\"\\\"\" %s{%d,", name, (int)(min < 0 ? 0 : min));
    if (max >= 0) {
        mo_bytes_print(out, "%d", (int)max);
    }
    mo_bytes_print(out, "} \"\\\"\"");
    return MO_OK;
}
