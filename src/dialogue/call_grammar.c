/* Call grammar: a rule for each function, a rule for all calls of an answer, and the root. */
#include "dialogue/call_grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "dialogue/gemma_rules.h"
#include "dialogue/json.h"
#include "dialogue/rules.h"
#include "grammar/writer.h"

typedef struct writing {
    mo_rules r;
    const mo_dialogue *d;
    const mo_tools *tools;
    const mo_tools_options *options;
    mo_style_id style; /* of calls: the model's, or the generic one where its template shows no tools */
} writing;

static void mark(writing *w, mo_role role)
{
    mo_rules_mark(&w->r, mo_style_mark(mo_style_get(w->style), role));
}

/* ---- Parameters between tags ---- */

static bool is_dsml(mo_style_id style)
{
    return style == MO_STYLE_DSML || style == MO_STYLE_DSML4;
}

/* What stands around the key and the value. */
static void begin_parameter(writing *w, const char *key, bool text)
{
    const char *close = mo_style_mark(mo_style_get(w->style), MO_ROLE_KEY_CLOSE);
    mark(w, MO_ROLE_KEY_OPEN);
    if (key) {
        mo_rules_literal(&w->r, key);
    } else {
        mo_rules_add(&w->r, " tag-key");
    }
    if (is_dsml(w->style)) {
        close = mo_style_mark(mo_style_get(w->style), text ? MO_ROLE_KEY_CLOSE_TEXT : MO_ROLE_KEY_CLOSE_JSON);
    }
    mo_rules_mark(&w->r, close);
    if (w->style == MO_STYLE_CODER) {
        mo_rules_literal(&w->r, "\n");
    } else if (mo_style_mark(mo_style_get(w->style), MO_ROLE_VALUE_OPEN)) {
        mo_rules_add(&w->r, " \"\\n\"?");
        mark(w, MO_ROLE_VALUE_OPEN);
    }
}

static void end_parameter(writing *w)
{
    if (w->style == MO_STYLE_CODER) {
        mo_rules_literal(&w->r, "\n");
    }
    mark(w, MO_ROLE_VALUE_CLOSE);
    mo_rules_add(&w->r, w->style == MO_STYLE_GLM ? " \"\\n\"?\n" : " \"\\n\"\n");
}

/* Strings stand raw between the tags: choices are enforced, other limits are not. */
static void text_value(writing *w, const char *name, const json_t *schema, const char *where)
{
    static const char *const limits[] = {"pattern", "format", "minLength", "maxLength"};
    const json_t *values = json_object_get(schema, "enum");
    const char *only = json_string_value(json_object_get(schema, "const"));
    size_t i;
    json_t *value;
    mo_rules_add(&w->r, "%s ::=", name);
    if (only) {
        mo_rules_literal(&w->r, only);
    } else if (json_array_size(values) > 0) {
        json_array_foreach(values, i, value)
        {
            mo_rules_add(&w->r, i > 0 ? " |" : "");
            mo_rules_literal(&w->r, json_is_string(value) ? json_string_value(value) : "");
        }
    } else {
        mo_rules_add(&w->r, " tag-text");
        for (i = 0; i < 4; i++) {
            if (json_object_get(schema, limits[i])) {
                mo_rules_miss(&w->r, where, limits[i]);
            }
        }
    }
    mo_rules_add(&w->r, "\n");
}

/* Rule NAME: the parameters in the order of the schema, optional ones may be left out. */
static void parameters(writing *w, const char *name, const json_t *schema, const char *where)
{
    json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    int k = 0;
    json_object_foreach(properties, key, value)
    {
        char child[64], place[512];
        const unsigned types = mo_tools_schema_types(value, schema);
        const bool text = !types || types & MO_TYPE_STRING;
        snprintf(child, sizeof child, "%s-%d", name, k++);
        snprintf(place, sizeof place, "%.300s/properties/%.100s", where, key);
        if (text && types != MO_TYPE_STRING) {
            mo_rules_add(&w->r, "%s-value ::= tag-text\n",
                         child); /* what it is, is decided when it is read */
            if (types) {
                mo_rules_miss(&w->r, place, "the types of a union");
            }
        } else if (text) {
            char rule[80];
            snprintf(rule, sizeof rule, "%s-value", child);
            text_value(w, rule, value, place);
        } else {
            char rule[80];
            snprintf(rule, sizeof rule, "%s-value", child);
            mo_rules_schema(&w->r, rule, value, schema, place);
        }
        mo_rules_add(&w->r, "%s ::=", child);
        begin_parameter(w, key, text);
        mo_rules_add(&w->r, " %s-value", child);
        end_parameter(w);
    }
    mo_rules_add(&w->r, "%s ::=", name);
    k = 0;
    json_object_foreach(properties, key, value)
    {
        mo_rules_add(&w->r, " %s-%d%s", name, k++, mo_tools_required(schema, key) ? "" : "?");
    }
    if (k == 0) {
        mo_rules_add(&w->r, json_object_get(schema, "properties") ? " \"\"" : " tag-any*");
    }
    mo_rules_add(&w->r, "\n");
}

/* ---- Parameters as Python has them ---- */

/* Rule NAME: KEY=VALUE, where values are those of JSON, but for Python's words. */
static void keyword(writing *w, const char *name, const char *key, const json_t *value, const json_t *schema,
                    const char *where)
{
    char rule[80], place[512];
    const bool flag = mo_tools_schema_types(value, schema) == MO_TYPE_BOOLEAN;
    snprintf(rule, sizeof rule, "%s-value", name);
    snprintf(place, sizeof place, "%.300s/properties/%.100s", where, key);
    if (flag && !json_object_get(value, "enum") && !json_object_get(value, "const")) {
        mo_rules_add(&w->r, "%s ::= \"True\" | \"False\"\n", rule);
    } else {
        mo_rules_schema(&w->r, rule, value, schema, place);
    }
    mo_rules_add(&w->r, "%s ::=", name);
    mo_rules_literal(&w->r, key);
    mo_rules_add(&w->r, " \"=\" %s\n", rule);
}

/* Rule NAME: the keywords in the order of the schema, optional ones may be left out. Of number k and those after it, NAME-first-k
 * is for when none was written, NAME-more-k for when one was. */
static void keywords(writing *w, const char *name, const json_t *schema, const char *where)
{
    json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    int k = 0;
    mo_rules_add(&w->r, "%s ::= %s-first-0\n", name, name);
    json_object_foreach(properties, key, value)
    {
        char child[64];
        const bool needed = mo_tools_required(schema, key);
        snprintf(child, sizeof child, "%s-%d", name, k);
        keyword(w, child, key, value, schema, where);
        mo_rules_add(&w->r, "%s-first-%d ::= %s %s-more-%d", name, k, child, name, k + 1);
        if (!needed) {
            mo_rules_add(&w->r, " | %s-first-%d", name, k + 1);
        }
        mo_rules_add(&w->r, "\n%s-more-%d ::= (\", \" %s)%s %s-more-%d\n", name, k, child, needed ? "" : "?",
                     name, k + 1);
        k++;
    }
    mo_rules_add(&w->r, "%s-first-%d ::= \"\"\n%s-more-%d ::= \"\"\n", name, k, name, k);
}

/* What parameters of all functions use. */
static void begin_parameters(writing *w)
{
    const char *close[] = {mo_style_mark(mo_style_get(w->style), MO_ROLE_VALUE_CLOSE)};
    mo_rules_until(&w->r, "tag-text", close, 1);
    mo_rules_add(&w->r, "tag-key ::= [A-Za-z_] [A-Za-z0-9_.-]{0,63}\ntag-any ::=");
    begin_parameter(w, NULL, true);
    mo_rules_add(&w->r, " tag-text");
    end_parameter(w);
}

/* ---- Calls ---- */

static bool has_tags(mo_style_id style)
{
    return style == MO_STYLE_CODER || style == MO_STYLE_SEED || style == MO_STYLE_GLM || is_dsml(style) ||
           style == MO_STYLE_MINIMAX || style == MO_STYLE_HY;
}

static void object_call(writing *w, const char *before, const char *name, const char *between,
                        const char *arguments, const char *after)
{
    mo_bytes quoted = {0};
    mo_json_quote(&quoted, (mo_text){name, strlen(name)});
    mo_rules_literal(&w->r, before);
    mo_rules_literal(&w->r, quoted.data ? quoted.data : "\"\"");
    mo_rules_literal(&w->r, between);
    mo_rules_add(&w->r, " %s", arguments);
    mo_rules_literal(&w->r, after);
    w->r.text.failed |= quoted.failed;
    mo_bytes_free(&quoted);
}

/* The recipient in the channel, or in the role's header. */
static void harmony_call(mo_rules *r, size_t i, const char *name, const char *args)
{
    mo_rules_literal(r, name);
    mo_rules_add(r, " kind");
    mo_rules_mark(r, "<|message|>");
    mo_rules_add(r, " %s\nhead-%zu ::=", args, i);
    mo_rules_literal(r, name);
    mo_rules_mark(r, "<|channel|>");
    mo_rules_add(r, " \"commentary\" kind");
    mo_rules_mark(r, "<|message|>");
    mo_rules_add(r, " %s", args);
}

/* Styles whose parameters are tags too. */
static void tag_call(writing *w, const char *name, const char *args)
{
    mo_rules *r = &w->r;
    if (w->style == MO_STYLE_GLM) {
        mark(w, MO_ROLE_SECTION_OPEN);
        mo_rules_literal(r, name);
        mo_rules_add(r, " \"\\n\"? %s", args);
        mark(w, MO_ROLE_SECTION_CLOSE);
        return;
    }
    const bool whole = w->style == MO_STYLE_CODER || w->style == MO_STYLE_SEED; /* a section of its own */
    mark(w, whole ? MO_ROLE_SECTION_OPEN : MO_ROLE_CALL_OPEN);
    if (whole) {
        mo_rules_literal(r, "\n<function=");
    }
    mo_rules_literal(r, name);
    if (w->style == MO_STYLE_HY) {
        mark(w, MO_ROLE_NAME_CLOSE);
        mo_rules_literal(r, "\n");
    } else {
        mo_rules_literal(r, whole ? ">\n" : "\">\n");
    }
    mo_rules_add(r, " %s", args);
    mark(w, MO_ROLE_CALL_CLOSE);
    mo_rules_literal(r, "\n");
    if (whole) {
        mark(w, MO_ROLE_SECTION_CLOSE);
    }
}

static void deepseek_call(writing *w, const char *name, const char *args)
{
    mo_rules *r = &w->r;
    const bool fenced = w->style == MO_STYLE_DEEPSEEK3;
    mark(w, MO_ROLE_CALL_OPEN);
    mo_rules_literal(r, fenced ? "function" : name);
    mark(w, MO_ROLE_NAME_CLOSE);
    if (fenced) {
        mo_rules_literal(r, name);
        mo_rules_literal(r, "\n```json\n");
    }
    mo_rules_add(r, " %s", args);
    mo_rules_literal(r, fenced ? "\n```" : "");
    mark(w, MO_ROLE_CALL_CLOSE);
}

/* Rule call-I; its arguments are rule args-I. */
static void call_rule(writing *w, size_t i)
{
    const char *name = mo_tools_name(w->tools, i);
    char args[32];
    mo_rules *r = &w->r;
    snprintf(args, sizeof args, "args-%zu", i);
    mo_rules_add(r, "call-%zu ::=", i);
    switch (w->style) {
    case MO_STYLE_HERMES:
        mark(w, MO_ROLE_SECTION_OPEN);
        object_call(w, "\n{\"name\": ", name, ", \"arguments\": ", args, "}\n");
        mark(w, MO_ROLE_SECTION_CLOSE);
        break;
    case MO_STYLE_CODER:
    case MO_STYLE_SEED:
    case MO_STYLE_GLM:
    case MO_STYLE_DSML:
    case MO_STYLE_DSML4:
    case MO_STYLE_HY:
    case MO_STYLE_MINIMAX: tag_call(w, name, args); break;
    case MO_STYLE_DEEPSEEK3:
    case MO_STYLE_DEEPSEEK31: deepseek_call(w, name, args); break;
    case MO_STYLE_LLAMA3: object_call(w, "{\"name\": ", name, ", \"parameters\": ", args, "}"); break;
    case MO_STYLE_GEMMA4:
        mark(w, MO_ROLE_CALL_OPEN);
        mo_rules_literal(r, "call:");
        mo_rules_literal(r, name);
        mo_rules_add(r, " %s", args);
        mark(w, MO_ROLE_CALL_CLOSE);
        break;
    case MO_STYLE_KIMI:
        mark(w, MO_ROLE_CALL_OPEN);
        mo_rules_literal(r, "functions.");
        mo_rules_literal(r, name);
        mo_rules_add(r, " \":\" [0-9]{1,4}");
        mark(w, MO_ROLE_NAME_CLOSE);
        mo_rules_add(r, " %s", args);
        mark(w, MO_ROLE_CALL_CLOSE);
        break;
    case MO_STYLE_MISTRAL:
        object_call(w, "{\"name\": ", name, ", \"arguments\": ", args, "");
        mo_rules_add(r, " (\", \\\"id\\\": \\\"\" [A-Za-z0-9]{9} \"\\\"\")? \"}\"");
        break;
    case MO_STYLE_COHERE:
        mo_rules_literal(r, "{\"tool_call_id\": \"");
        mo_rules_add(r, " [0-9]{1,4}");
        object_call(w, "\", \"tool_name\": ", name, ", \"parameters\": ", args, "}");
        break;
    case MO_STYLE_MISTRAL3:
        mark(w, MO_ROLE_SECTION_OPEN);
        mo_rules_literal(r, name);
        mark(w, MO_ROLE_NAME_CLOSE);
        mo_rules_add(r, " %s", args);
        break;
    case MO_STYLE_LFM2:
        mo_rules_literal(r, name);
        mo_rules_add(r, " \"(\" %s \")\"", args);
        break;
    case MO_STYLE_JAMBA:
    case MO_STYLE_PHI4:
    case MO_STYLE_GRANITE: object_call(w, "{\"name\": ", name, ", \"arguments\": ", args, "}"); break;
    case MO_STYLE_HARMONY: harmony_call(r, i, name, args); break;
    default: object_call(w, "{\"tool_call\": {\"name\": ", name, ", \"arguments\": ", args, "}}");
    }
    mo_rules_add(r, "\n");
}

static void function_rules(writing *w, size_t i)
{
    const json_t *schema = mo_tools_schema(w->tools, i);
    const char *where = mo_tools_name(w->tools, i);
    char args[32];
    snprintf(args, sizeof args, "args-%zu", i);
    call_rule(w, i);
    if (has_tags(w->style)) {
        parameters(w, args, schema, where);
    } else if (w->style == MO_STYLE_LFM2) {
        keywords(w, args, schema, where);
    } else if (w->style == MO_STYLE_GEMMA4) {
        mo_gemma_rules_value(&w->r, args, schema, schema, where);
    } else {
        mo_rules_schema(&w->r, args, schema, schema, where);
    }
}

static bool wanted(const writing *w, size_t i)
{
    return !w->options->name || !strcmp(w->options->name, mo_tools_name(w->tools, i));
}

/* Rule PREFIX: any of the functions. */
static void any_function(writing *w, const char *rule, const char *prefix)
{
    bool first = true;
    mo_rules_add(&w->r, "%s ::=", rule);
    for (size_t i = 0; i < mo_tools_count(w->tools); i++) {
        if (wanted(w, i)) {
            mo_rules_add(&w->r, "%s %s-%zu", first ? "" : " |", prefix, i);
            first = false;
        }
    }
    mo_rules_add(&w->r, "\n");
}

/* Rule `calls`: one call, or several where the style has a way for it. */
static void calls_rule(writing *w)
{
    static const struct {
        mo_style_id style;
        const char *before, *between, *after; /* literals; NULL: only one call */
        bool section;                         /* within the section's marks */
    } table[] = {
        {MO_STYLE_HERMES, "", "\"\\n\"?", "", false},
        {MO_STYLE_CODER, "", "\"\\n\"?", "", false},
        {MO_STYLE_SEED, "", "\"\\n\"?", "", false},
        {MO_STYLE_GLM, "", "\"\\n\"?", "", false},
        {MO_STYLE_DEEPSEEK3, "", "\"\\n\"?", "", true},
        {MO_STYLE_DEEPSEEK31, "", "", "", true},
        {MO_STYLE_DSML, "\"\\n\"", "", "", true},
        {MO_STYLE_DSML4, "\"\\n\"", "", "", true},
        {MO_STYLE_MINIMAX, "\"\\n\"", "", "", true},
        {MO_STYLE_HY, "\"\\n\"", "", "", true},
        {MO_STYLE_GEMMA4, "", "", "", false},
        {MO_STYLE_KIMI, "", "", "", true},
        {MO_STYLE_MISTRAL, "\"[\"", "\", \"", "\"]\"", true},
        {MO_STYLE_MISTRAL3, "", "", "", false},
        {MO_STYLE_COHERE, "\"[\"", "\", \"", "\"]\"", true},
        {MO_STYLE_JAMBA, "\"[\"", "\", \"", "\"]\"", true},
        {MO_STYLE_LFM2, "\"[\"", "\", \"", "\"]\"", true},
        {MO_STYLE_GRANITE, "\"[\"", "\", \"", "\"]\"", true},
        {MO_STYLE_PHI4, "\"[\"", "\", \"", "\"]\"", true},
    };
    const mo_style *style = mo_style_get(w->style);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].style != w->style) {
            continue;
        }
        mo_rules_add(&w->r, "calls ::=");
        if (table[i].section) {
            mark(w, MO_ROLE_SECTION_OPEN);
        }
        mo_rules_add(&w->r, " %s call", table[i].before);
        if (!w->options->single) {
            mo_rules_add(&w->r, " (%s call)*", table[i].between);
        }
        mo_rules_add(&w->r, " %s", table[i].after);
        if (table[i].section && mo_style_mark(style, MO_ROLE_SECTION_CLOSE) && w->style != MO_STYLE_GRANITE) {
            mark(w, MO_ROLE_SECTION_CLOSE);
        }
        mo_rules_add(&w->r, "\n");
        return;
    }
    mo_rules_add(&w->r, "calls ::= call\n");
}

/* ---- Text and thoughts ---- */

static bool is_name(char c)
{
    return mo_json_among((char)(c | 32), "abcdefghijklmnopqrstuvwxyz") || mo_json_among(c, "0123456789-_");
}

/* The rules of another grammar; their names get a prefix, so that they are none of ours: root is text-root. */
static void text_rules(mo_rules *r, const char *gbnf, size_t length)
{
    static const char opens[] = "\"[#<{", closes[] = "\"]\n>}"; /* what holds no names */
    char inside = 0;
    for (size_t i = 0; i < length;) {
        const char c = gbnf[i], *open = mo_json_among(c, opens) ? strchr(opens, c) : NULL;
        size_t n = 1;
        if (inside) {
            n += c == '\\' && inside != '\n' && i + 1 < length;
            inside = c == inside ? 0 : inside;
        } else if (open) {
            inside = closes[open - opens];
        } else if (is_name(c)) {
            while (i + n < length && is_name(gbnf[i + n])) {
                n++;
            }
            mo_bytes_add_text(&r->text, "text-");
        }
        mo_bytes_add(&r->text, gbnf + i, n);
        i += n;
    }
    mo_writer_end_rules(&r->text);
}

/* Rule `lead`: the thought before the answer, with the white space behind it. */
static void lead_rule(mo_rules *r, const mo_dialogue *d, bool in_thought)
{
    const mo_thought *t = d->thought;
    if (!t) {
        mo_rules_add(r, "lead ::= \"\"\n");
        return;
    }
    mo_rules_until(r, "thought", &t->close, 1);
    mo_rules_add(r, "lead ::= ");
    if (in_thought) {
        mo_rules_add(r, "thought");
    } else {
        mo_rules_add(r, "(\"\\n\"?");
        mo_rules_mark(r, t->open);
        mo_rules_add(r, "%s thought", t->named ? " \"thought\\n\"" : "");
    }
    mo_rules_mark(r, t->close);
    mo_rules_add(r, " [ \\n]{0,4}%s\n", in_thought ? "" : ")?");
}

static void harmony_rules(mo_rules *r)
{
    static const char *const marks[] = {"<|start|>", "<|channel|>", "<|message|>",
                                        "<|end|>",   "<|call|>",    "<|return|>"};
    mo_rules_until(r, "message", marks, sizeof marks / sizeof *marks);
    mo_rules_add(r, "next ::=");
    mo_rules_mark(r, "<|end|>");
    mo_rules_mark(r, "<|start|>");
    mo_rules_add(r, " \"assistant\"\nanalysis ::=");
    mo_rules_mark(r, "<|channel|>");
    mo_rules_add(r, " \"analysis\"");
    mo_rules_mark(r, "<|message|>");
    mo_rules_add(r, " message\npreamble ::=");
    mo_rules_mark(r, "<|channel|>");
    mo_rules_add(r, " \"commentary\"");
    mo_rules_mark(r, "<|message|>");
    mo_rules_add(r, " message\nfinal ::=");
    mo_rules_mark(r, "<|channel|>");
    mo_rules_add(r, " \"final\"");
    mo_rules_mark(r, "<|message|>");
}

/* ---- Roots ---- */

static void harmony_root(writing *w)
{
    mo_rules *r = &w->r;
    const mo_tools_options *o = w->options;
    any_function(w, "call", "call");
    any_function(w, "head", "head");
    mo_rules_add(r, "kind ::= (\" \"?");
    mo_rules_mark(r, "<|constrain|>");
    mo_rules_add(r, " \"json\" | \" json\")?\ncalls ::=");
    mo_rules_mark(r, "<|channel|>");
    mo_rules_add(r, " (\"commentary\" | \"analysis\") \" to=functions.\" call | \" to=functions.\" head\n");
    harmony_rules(r);
    mo_rules_add(r, " %s\n", o->text_gbnf ? "text-root" : "message");
    mo_rules_add(r, "root ::= %s (analysis next)* ", o->in_thought ? "message next" : "");
    if (o->required || o->name) {
        mo_rules_add(r, "calls\n");
    } else {
        mo_rules_add(r, "(preamble next (analysis next)*)* (final | calls)\n");
    }
}

/* Rules `plain-K`: text that does not begin with what is left of `avoided`. */
static void plain_rules(mo_rules *r, const char *avoided)
{
    const size_t n = strlen(avoided);
    mo_rules_add(r, "plain-any ::= .*\n");
    for (size_t k = 0; k < n; k++) {
        const char *escape = mo_json_among(avoided[k], "\"\\]^-") ? "\\" : "";
        mo_rules_add(r, "plain-%zu ::= \"\" | [^%s%c] plain-any", k, escape, avoided[k]);
        if (k + 1 < n) {
            char one[2] = {avoided[k], 0};
            mo_rules_add(r, " |");
            mo_rules_literal(r, one);
            mo_rules_add(r, " plain-%zu", k + 1);
        }
        mo_rules_add(r, "\n");
    }
}

/* Text before calls: up to an opening mark; without marks, text that does not begin as a call. */
static void auto_root(writing *w)
{
    const mo_style *style = mo_style_get(w->style);
    mo_rules *r = &w->r;
    if (w->options->text_gbnf) {
        mo_rules_add(r, "root ::= lead (text-root | calls)\n");
    } else if (w->style == MO_STYLE_LLAMA3) {
        plain_rules(r, "{\"name\": \"");
        mo_rules_add(r, "root ::= lead (plain-0 | calls)\n");
    } else if (w->style == MO_STYLE_GENERIC && w->d->shows_tools) {
        mo_rules_add(r, "root ::= lead .*\n"); /* the template asks for calls in a way that is not known */
    } else if (w->style == MO_STYLE_GENERIC) {
        mo_rules_add(r, "root ::= lead (generic-answer | calls)\n");
        json_t *schema = json_pack("{s:s}", "type", "string");
        mo_rules_schema(r, "generic-text", schema, NULL, "");
        json_decref(schema);
        mo_rules_add(r, "generic-answer ::= \"{\\\"response\\\": \" generic-text \"}\"\n");
    } else {
        const char *open[16];
        size_t n = 0;
        for (const mo_mark *m = style->marks; m->text && n < 16; m++) {
            if ((m->role == MO_ROLE_SECTION_OPEN && !is_name(m->text[0])) || /* a word may stand in a text */
                (m->role == MO_ROLE_CALL_OPEN && w->style == MO_STYLE_GEMMA4)) {
                open[n++] = m->text;
            }
        }
        mo_rules_until(r, "text", open, n);
        mo_rules_add(r, "root ::= lead text calls?\n");
    }
}

static void write_all(writing *w)
{
    const mo_tools_options *o = w->options;
    if (has_tags(w->style)) {
        begin_parameters(w);
    } else if (w->style == MO_STYLE_GEMMA4) {
        mo_gemma_rules_begin(&w->r);
    }
    for (size_t i = 0; i < mo_tools_count(w->tools) && w->r.status == MO_OK; i++) {
        if (wanted(w, i)) {
            function_rules(w, i);
        }
    }
    if (o->text_gbnf) {
        text_rules(&w->r, o->text_gbnf, strlen(o->text_gbnf));
    }
    if (w->style == MO_STYLE_HARMONY) {
        harmony_root(w);
        return;
    }
    any_function(w, "call", "call");
    calls_rule(w);
    lead_rule(&w->r, w->d, o->in_thought);
    if (o->required || o->name) {
        mo_rules_add(&w->r, "root ::= lead calls\n");
    } else {
        auto_root(w);
    }
}

/* Hands the text over, or frees all. */
static mo_status hand_over(mo_rules *r, char **gbnf, char **unenforced)
{
    mo_rules_marks(r);
    mo_bytes_add(&r->text, "", 0);
    mo_bytes_add(&r->unenforced, "", 0);
    if (r->status == MO_OK && (r->text.failed || r->unenforced.failed)) {
        r->status = mo_fail(r->err, MO_ENOMEM, "out of memory for the grammar of tools");
    }
    if (r->status == MO_OK) {
        *gbnf = r->text.data;
        r->text = (mo_bytes){0};
        if (unenforced) {
            *unenforced = r->unenforced.data;
            r->unenforced = (mo_bytes){0};
        }
    }
    mo_rules_free(r);
    return r->status;
}

mo_status mo_call_grammar_write(const mo_dialogue *d, const mo_tokenizer *t, const mo_tools *tools,
                                const mo_tools_options *options, char **gbnf, char **unenforced,
                                mo_error *err)
{
    writing w = {.r = {.tokenizer = t, .strict = options->strict, .err = err},
                 .d = d,
                 .tools = tools,
                 .options = options,
                 .style = mo_dialogue_calls(d)};
    *gbnf = *unenforced = NULL;
    if (mo_tools_count(tools) == 0) {
        return mo_fail(err, MO_EINVAL, "there are no tools that an answer could call");
    }
    if (options->name && mo_tools_find(tools, options->name, strlen(options->name)) < 0) {
        return mo_fail(err, MO_EINVAL, "`tool_choice` names '%.100s', but there is no such tool",
                       options->name);
    }
    write_all(&w);
    return hand_over(&w.r, gbnf, unenforced);
}

mo_status mo_answer_grammar_write(const mo_dialogue *d, const mo_tokenizer *t, const char *text_gbnf,
                                  size_t length, bool in_thought, char **gbnf, mo_error *err)
{
    mo_rules r = {.tokenizer = t, .err = err};
    *gbnf = NULL;
    text_rules(&r, text_gbnf, length);
    if (d->id == MO_STYLE_HARMONY) {
        harmony_rules(&r);
        mo_rules_add(&r, " text-root\nroot ::= %s (analysis next)* final\n",
                     in_thought ? "message next" : "");
    } else {
        lead_rule(&r, d, in_thought);
        mo_rules_add(&r, "root ::= lead text-root\n");
    }
    return hand_over(&r, gbnf, NULL);
}
