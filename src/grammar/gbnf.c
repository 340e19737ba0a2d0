#include "grammar/gbnf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"
#include "text/lookup.h"

typedef struct parser {
    const uint8_t *text;
    size_t length, at;
    const mo_gbnf_tokens *tokens;
    mo_syntax_grammar *g;
    mo_lookup names; /* of rules */
    int depth;
    mo_error *err;
} parser;

/* Items of a sequence or a choice while it is read. */
typedef struct list {
    mo_syntax **items;
    size_t count, space;
} list;

/* ---- Errors ---- */

static void locate(const parser *p, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else {
            *column += (p->text[i] & 0xC0) != 0x80;
        }
    }
}

static void say_wrong(const parser *p, size_t at, const char *fmt, ...) MO_PRINTF(3, 4);
static void say_wrong(const parser *p, size_t at, const char *fmt, ...)
{
    char what[400];
    int line, column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    locate(p, at, &line, &column);
    mo_fail(p->err, MO_EINVAL, "line %d, column %d: %s", line, column, what);
}

/* The status is here and not in the function, so that analysers see that it is never MO_OK. */
#define wrong_at(p, at, ...) (say_wrong(p, at, __VA_ARGS__), MO_EINVAL)
#define wrong(p, ...)        wrong_at(p, (p)->at, __VA_ARGS__)

static mo_status no_memory(const parser *p)
{
    mo_fail(p->err, MO_ENOMEM, "no memory for a grammar");
    return MO_ENOMEM;
}

/* ---- Nodes ---- */

static mo_status new_node(parser *p, mo_syntax_kind kind, mo_syntax **out)
{
    if (++p->g->nodes > MO_SYNTAX_NODES) {
        return wrong(p, "the grammar has more than %d parts, which is too large", MO_SYNTAX_NODES);
    }
    *out = mo_arena_alloc(p->g->arena, sizeof **out);
    if (!*out) {
        return no_memory(p);
    }
    (*out)->kind = kind;
    return MO_OK;
}

static bool list_add(list *l, mo_syntax *x)
{
    if (l->count == l->space) {
        const size_t space = l->space ? 2 * l->space : 8;
        mo_syntax **more = realloc(l->items, space * sizeof(void *));
        if (!more) {
            return false;
        }
        l->items = more;
        l->space = space;
    }
    l->items[l->count++] = x;
    return true;
}

/* The list as a node, or its only item; frees it. */
static mo_status list_node(parser *p, list *l, mo_syntax_kind kind, mo_syntax **out)
{
    mo_status status = MO_OK;
    if (l->count == 1) {
        *out = l->items[0];
    } else {
        status = new_node(p, kind, out);
        if (status == MO_OK && l->count > 0) {
            (*out)->as.list.items = mo_arena_array(p->g->arena, l->count, sizeof(void *));
            if (!(*out)->as.list.items) {
                status = no_memory(p);
            } else {
                memcpy((*out)->as.list.items, l->items, l->count * sizeof(void *));
                (*out)->as.list.count = l->count;
            }
        }
    }
    free(l->items);
    *l = (list){0};
    return status;
}

/* ---- Blanks and names ---- */

static int peek(const parser *p)
{
    return p->at < p->length ? p->text[p->at] : -1;
}

static void skip_blanks(parser *p, bool newlines)
{
    for (;;) {
        const int c = peek(p);
        if (c == '#') {
            while (p->at < p->length && p->text[p->at] != '\n' && p->text[p->at] != '\r') {
                p->at++;
            }
        } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static mo_text read_name(parser *p)
{
    const size_t begin = p->at;
    while (is_name(peek(p))) {
        p->at++;
    }
    return (mo_text){(const char *)p->text + begin, p->at - begin};
}

static int shown(mo_text name)
{
    return (int)(name.length < 100 ? name.length : 100);
}

/* The number of the rule, made when it is new. */
static mo_status rule_number(parser *p, mo_text name, size_t at, uint32_t *out)
{
    mo_syntax_grammar *g = p->g;
    *out = mo_lookup_get(&p->names, (const uint8_t *)name.data, name.length);
    if (*out != MO_LOOKUP_NONE) {
        return MO_OK;
    }
    if (g->rule_count == MO_SYNTAX_RULES) {
        return wrong_at(p, at, "the grammar has more than %d rules", MO_SYNTAX_RULES);
    }
    if (g->rule_count == g->rule_space) {
        const uint32_t space = g->rule_space ? 2 * g->rule_space : 16;
        mo_syntax_rule *more = realloc(g->rules, space * sizeof *more);
        if (!more) {
            return no_memory(p);
        }
        g->rules = more;
        g->rule_space = space;
    }
    mo_syntax_rule *r = &g->rules[g->rule_count];
    *r = (mo_syntax_rule){.name = name, .line = -1, .column = (int)at}; /* located when it matters */
    if (!mo_lookup_put(&p->names, (const uint8_t *)name.data, name.length, g->rule_count)) {
        return no_memory(p);
    }
    *out = g->rule_count++;
    return MO_OK;
}

/* ---- Characters ---- */

static mo_status read_hex(parser *p, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        const int c = peek(p);
        const int value = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (value < 0) {
            return wrong(p, "%d hexadecimal digits are expected here", digits);
        }
        *out = *out << 4 | (uint32_t)value;
        p->at++;
    }
    return MO_OK;
}

/* One character of a literal or a class, perhaps escaped. */
static mo_status read_character(parser *p, uint32_t *out)
{
    const size_t begin = p->at;
    int c = peek(p);
    mo_status status = MO_OK;
    if (c != '\\') {
        const size_t n = mo_utf8_length(p->text + p->at, p->length - p->at);
        if (n == 0) {
            return wrong(p, "the grammar is not UTF-8 here");
        }
        *out = mo_utf8_decode(p->text + p->at, n);
        p->at += n;
        return MO_OK;
    }
    p->at++;
    c = peek(p);
    p->at += c >= 0;
    switch (c) {
    case 'n': *out = '\n'; break;
    case 't': *out = '\t'; break;
    case 'r': *out = '\r'; break;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': *out = (uint32_t)c; break;
    case 'x': status = read_hex(p, 2, out); break;
    case 'u': status = read_hex(p, 4, out); break;
    case 'U': status = read_hex(p, 8, out); break;
    default:
        return wrong_at(
            p, begin,
            "there is no such escape; \\n \\t \\r \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH are");
    }
    if (status == MO_OK && (*out > MO_CODE_POINT_MAX || (*out >= 0xD800 && *out <= 0xDFFF))) {
        return wrong_at(p, begin, "U+%04X is no character", *out);
    }
    return status;
}

static size_t encode(uint32_t c, char *to)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    to[0] = (char)((0xF00 >> n & 0xFF) | c);
    return n;
}

static mo_status read_literal(parser *p, mo_syntax **out)
{
    const size_t begin = p->at++;
    size_t end = p->at, used = 0;
    while (end < p->length && p->text[end] != '"' && p->text[end] != '\n') {
        end += p->text[end] == '\\' ? 2 : 1;
    }
    if (end >= p->length || p->text[end] != '"') {
        return wrong_at(p, begin, "the literal that begins here has no end");
    }
    mo_status status = new_node(p, MO_SYNTAX_LITERAL, out);
    /* No escape is shorter than what it means. */
    char *bytes = status == MO_OK ? mo_arena_alloc(p->g->arena, end - p->at + 1) : NULL;
    if (status == MO_OK && !bytes) {
        status = no_memory(p);
    }
    while (status == MO_OK && p->at < end) {
        uint32_t c;
        status = read_character(p, &c);
        if (status == MO_OK) {
            used += encode(c, bytes + used);
        }
    }
    if (status == MO_OK) {
        p->at = end + 1;
        (*out)->as.literal = (mo_text){bytes, used};
    }
    return status;
}

static mo_status set_node(parser *p, size_t at, mo_charset *set, mo_syntax **out)
{
    const uint32_t number = mo_syntax_set(p->g, set);
    if (number == UINT32_MAX) {
        return p->g->set_count == MO_SYNTAX_SETS
                   ? wrong_at(p, at, "the grammar has more than %d different classes", MO_SYNTAX_SETS)
                   : no_memory(p);
    }
    const mo_status status = new_node(p, MO_SYNTAX_SET, out);
    if (status == MO_OK) {
        (*out)->as.set = number;
    }
    return status;
}

static mo_status read_class(parser *p, mo_syntax **out)
{
    const size_t begin = p->at++;
    mo_charset set = {0};
    mo_status status = MO_OK;
    const bool inverted = peek(p) == '^';
    p->at += inverted;
    while (status == MO_OK && peek(p) != ']') {
        uint32_t low = 0, high;
        const size_t at = p->at;
        if (p->at >= p->length) {
            status = wrong_at(p, begin, "the class that begins here has no end");
            break;
        }
        status = read_character(p, &low);
        high = low;
        if (status == MO_OK && peek(p) == '-' && p->at + 1 < p->length && p->text[p->at + 1] != ']') {
            p->at++;
            status = read_character(p, &high);
        }
        if (status == MO_OK && high < low) {
            status = wrong_at(p, at, "this range ends before it begins");
        }
        if (status == MO_OK && !mo_charset_add(&set, low, high)) {
            status = no_memory(p);
        }
    }
    if (status == MO_OK) {
        p->at++;
        status = mo_charset_settle(&set, inverted) ? set_node(p, begin, &set, out) : no_memory(p);
    }
    mo_charset_free(&set);
    return status;
}

static mo_status read_any(parser *p, mo_syntax **out)
{
    mo_charset set = {0};
    const size_t begin = p->at++;
    if (!mo_charset_settle(&set, true)) {
        mo_charset_free(&set);
        return no_memory(p);
    }
    return set_node(p, begin, &set, out);
}

/* ---- Tokens ---- */

static mo_status read_id(parser *p, int32_t *out)
{
    const size_t begin = p->at;
    int64_t id = 0;
    while (peek(p) >= '0' && peek(p) <= '9' && id <= INT32_MAX) {
        id = id * 10 + (peek(p) - '0');
        p->at++;
    }
    if (p->at == begin) {
        return wrong(p, "the number of a token is expected here");
    }
    if (id >= (p->tokens ? p->tokens->count : 0)) {
        return wrong_at(p, begin, "there is no token %lld; the vocabulary has %d", (long long)id,
                        p->tokens ? p->tokens->count : 0);
    }
    *out = (int32_t)id;
    return MO_OK;
}

static mo_status token_id(parser *p, mo_token_match *m, int32_t id)
{
    int32_t *ids = mo_arena_array(p->g->arena, m->count + 1, sizeof *ids);
    size_t at = 0;
    if (!ids) {
        return no_memory(p);
    }
    while (at < m->count && m->ids[at] < id) {
        ids[at] = m->ids[at];
        at++;
    }
    if (at < m->count && m->ids[at] == id) {
        return MO_OK;
    }
    ids[at] = id;
    if (at < m->count) {
        memcpy(ids + at + 1, m->ids + at, (m->count - at) * sizeof *ids);
    }
    m->ids = ids;
    m->count++;
    return MO_OK;
}

/* What is between <[ and ]>: a number, or * and the numbers of those that are excepted. */
static mo_status read_numbers(parser *p, mo_token_match *m)
{
    int32_t id;
    mo_status status = MO_OK;
    if (peek(p) == '*' && m->choice == MO_TOKEN_THIS) {
        m->choice = MO_TOKEN_SPECIALS;
        p->at++;
        while (status == MO_OK && peek(p) == '-') {
            if (m->count == 64) {
                return wrong(p, "at most 64 tokens can be excepted");
            }
            p->at++;
            status = read_id(p, &id);
            status = status == MO_OK ? token_id(p, m, id) : status;
        }
    } else {
        status = read_id(p, &id);
        status = status == MO_OK ? token_id(p, m, id) : status;
    }
    if (status == MO_OK && (p->length - p->at < 2 || p->text[p->at] != ']' || p->text[p->at + 1] != '>')) {
        return wrong(p, "]> is expected here");
    }
    p->at += 2;
    return status;
}

static mo_status read_token_text(parser *p, size_t begin, mo_token_match *m)
{
    char text[256];
    const size_t first = begin; /* with its brackets */
    while (p->at < p->length && p->text[p->at] != '>' && p->text[p->at] != '\n') {
        p->at++;
    }
    if (peek(p) != '>') {
        return wrong_at(p, begin, "the token that begins here has no end");
    }
    p->at++;
    if (p->at - first >= sizeof text) {
        return wrong_at(p, begin, "no token has so long a text");
    }
    memcpy(text, p->text + first, p->at - first);
    text[p->at - first] = '\0';
    const int32_t id =
        p->tokens && strlen(text) == p->at - first ? p->tokens->find(p->tokens->user, text) : -1;
    if (id < 0) {
        return wrong_at(p, begin, "the vocabulary has no token %.100s", text);
    }
    return token_id(p, m, id);
}

static mo_status read_token(parser *p, mo_syntax **out)
{
    mo_token_match *m = mo_arena_alloc(p->g->arena, sizeof *m);
    if (!m) {
        return no_memory(p);
    }
    if (peek(p) == '!') {
        m->choice = MO_TOKEN_BUT;
        p->at++;
        if (peek(p) != '<') {
            return wrong(p, "a token in < and > is expected after !");
        }
    }
    const size_t begin = p->at++;
    mo_status status;
    if (peek(p) == '[') {
        p->at++;
        status = read_numbers(p, m);
    } else {
        status = read_token_text(p, begin, m);
    }
    if (status == MO_OK) {
        status = new_node(p, MO_SYNTAX_TOKEN, out);
    }
    if (status == MO_OK) {
        (*out)->as.token = m;
    }
    return status;
}

/* ---- Rules ---- */

static mo_status read_count(parser *p, int32_t *out)
{
    const size_t begin = p->at;
    int64_t n = 0;
    while (peek(p) >= '0' && peek(p) <= '9') {
        n = n < INT32_MAX ? n * 10 + (peek(p) - '0') : n; /* what is more cannot be reached */
        p->at++;
    }
    if (p->at == begin) {
        return wrong(p, "a number of repetitions is expected here");
    }
    *out = n < INT32_MAX ? (int32_t)n : INT32_MAX - 1;
    return MO_OK;
}

/* {m}, {m,} or {m,n}. */
static mo_status read_bounds(parser *p, int32_t *min, int32_t *max)
{
    const size_t begin = p->at++;
    skip_blanks(p, false);
    mo_status status = read_count(p, min);
    *max = *min;
    if (status == MO_OK) {
        skip_blanks(p, false);
        if (peek(p) == ',') {
            p->at++;
            skip_blanks(p, false);
            *max = MO_REPEAT_NO_MAX;
            if (peek(p) != '}') {
                status = read_count(p, max);
                skip_blanks(p, false);
            }
        }
    }
    if (status == MO_OK && peek(p) != '}') {
        return wrong(p, "} is expected here");
    }
    p->at++;
    if (status == MO_OK && *max != MO_REPEAT_NO_MAX && *max < *min) {
        return wrong_at(p, begin, "at most %d repetitions are fewer than at least %d", *max, *min);
    }
    return status;
}

/* The operators after an item, each applied to what is before it. */
static mo_status read_repeats(parser *p, mo_syntax **item)
{
    mo_status status = MO_OK;
    for (int count = 0; status == MO_OK; count++) {
        int32_t min = 0, max = MO_REPEAT_NO_MAX;
        mo_syntax *repeat;
        switch (peek(p)) {
        case '*': p->at++; break;
        case '+':
            p->at++;
            min = 1;
            break;
        case '?':
            p->at++;
            max = 1;
            break;
        case '{': status = read_bounds(p, &min, &max); break;
        default: return MO_OK;
        }
        if (status == MO_OK && count == 8) {
            return wrong(p, "more than 8 repetitions of repetitions");
        }
        status = status == MO_OK ? new_node(p, MO_SYNTAX_REPEAT, &repeat) : status;
        if (status == MO_OK) {
            repeat->as.repeat.item = *item;
            repeat->as.repeat.min = min;
            repeat->as.repeat.max = max;
            *item = repeat;
        }
    }
    return status;
}

static mo_status read_choice(parser *p, bool nested, mo_syntax **out);

static mo_status read_reference(parser *p, mo_syntax **out)
{
    const size_t begin = p->at;
    const mo_text name = read_name(p);
    uint32_t rule;
    mo_status status = rule_number(p, name, begin, &rule);
    if (status == MO_OK) {
        status = new_node(p, MO_SYNTAX_RULE, out);
    }
    if (status == MO_OK) {
        (*out)->as.rule = rule;
    }
    return status;
}

static mo_status read_group(parser *p, mo_syntax **out)
{
    const size_t begin = p->at++;
    if (++p->depth > MO_SYNTAX_DEPTH) {
        return wrong_at(p, begin, "more than %d parentheses are open", MO_SYNTAX_DEPTH);
    }
    skip_blanks(p, true);
    const mo_status status = read_choice(p, true, out);
    if (status == MO_OK && peek(p) != ')') {
        return peek(p) < 0 ? wrong_at(p, begin, "the parenthesis that opens here is not closed")
                           : wrong(p, "no part of a rule can begin with this character");
    }
    p->at++;
    p->depth--;
    return status;
}

/* *some: an item began here. */
static mo_status read_item(parser *p, mo_syntax **out, bool *some)
{
    const int c = peek(p);
    mo_status status;
    *some = true;
    if (c == '"') {
        status = read_literal(p, out);
    } else if (c == '[') {
        status = read_class(p, out);
    } else if (c == '.') {
        status = read_any(p, out);
    } else if (c == '(') {
        status = read_group(p, out);
    } else if (c == '<' || c == '!') {
        status = read_token(p, out);
    } else if (is_name(c)) {
        status = read_reference(p, out);
    } else {
        *some = false;
        return MO_OK;
    }
    return status == MO_OK ? read_repeats(p, out) : status;
}

static mo_status read_sequence(parser *p, bool nested, mo_syntax **out)
{
    list items = {0};
    mo_status status = MO_OK;
    for (bool some = true; status == MO_OK;) {
        mo_syntax *item = NULL;
        status = read_item(p, &item, &some);
        if (status != MO_OK || !some) {
            break;
        }
        status = list_add(&items, item) ? MO_OK : no_memory(p);
        skip_blanks(p, nested);
    }
    if (status != MO_OK) {
        free(items.items);
        return status;
    }
    return list_node(p, &items, MO_SYNTAX_SEQUENCE, out);
}

/* After a newline a rule goes on only where an alternative follows. */
static bool another_alternative(parser *p)
{
    const size_t begin = p->at;
    skip_blanks(p, true);
    if (peek(p) == '|') {
        p->at++;
        skip_blanks(p, true);
        return true;
    }
    p->at = begin;
    return false;
}

static mo_status read_choice(parser *p, bool nested, mo_syntax **out)
{
    list items = {0};
    mo_status status;
    do {
        mo_syntax *item = NULL;
        status = read_sequence(p, nested, &item);
        if (status == MO_OK && !list_add(&items, item)) {
            status = no_memory(p);
        }
    } while (status == MO_OK && another_alternative(p));
    if (status != MO_OK) {
        free(items.items);
        return status;
    }
    return list_node(p, &items, MO_SYNTAX_CHOICE, out);
}

static mo_status read_rule(parser *p)
{
    const size_t begin = p->at;
    const mo_text name = read_name(p);
    uint32_t number;
    mo_syntax *body = NULL;
    if (name.length == 0) {
        return wrong(p, "the name of a rule is expected here");
    }
    mo_status status = rule_number(p, name, begin, &number);
    if (status != MO_OK) {
        return status;
    }
    if (p->g->rules[number].body) {
        return wrong_at(p, begin, "there is a rule %.*s already", shown(name), name.data);
    }
    skip_blanks(p, false);
    if (p->length - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0) {
        return wrong(p, "::= is expected after the name %.*s", shown(name), name.data);
    }
    p->at += 3;
    skip_blanks(p, true);
    status = read_choice(p, false, &body);
    if (status == MO_OK && p->at < p->length && peek(p) != '\n' && peek(p) != '\r') {
        return wrong(p, "no part of a rule can begin with this character");
    }
    if (status == MO_OK) {
        p->g->rules[number].body = body;
        p->g->rules[number].column = (int)begin;
        skip_blanks(p, true);
    }
    return status;
}

static mo_status find_root(parser *p, const char *root)
{
    p->g->root = mo_lookup_get(&p->names, (const uint8_t *)root, strlen(root));
    if (p->g->root == MO_LOOKUP_NONE) {
        return wrong(p, "there is no rule %s, with which a grammar begins", root);
    }
    return MO_OK;
}

/* Lines and columns of rules, in one pass: they are in the order in which they were named, not defined. */
static mo_status locate_rules(parser *p)
{
    mo_syntax_grammar *g = p->g;
    int *columns = malloc((p->length + 1) * sizeof *columns);
    int *lines = malloc((p->length + 1) * sizeof *lines);
    if (!columns || !lines) {
        free(columns);
        free(lines);
        return no_memory(p);
    }
    int line = 1, column = 1;
    for (size_t i = 0; i <= p->length; i++) {
        lines[i] = line;
        columns[i] = column;
        if (i < p->length && p->text[i] == '\n') {
            line++;
            column = 1;
        } else if (i < p->length) {
            column += (p->text[i] & 0xC0) != 0x80;
        }
    }
    for (uint32_t i = 0; i < g->rule_count; i++) {
        const int at = g->rules[i].column;
        g->rules[i].line = lines[at];
        g->rules[i].column = columns[at];
    }
    free(columns);
    free(lines);
    return MO_OK;
}

mo_status mo_gbnf_parse(const char *text, size_t length, const char *root, const mo_gbnf_tokens *tokens,
                        mo_syntax_grammar *out, mo_error *err)
{
    parser p = {.text = (const uint8_t *)text, .length = length, .tokens = tokens, .g = out, .err = err};
    mo_status status = MO_OK;
    *out = (mo_syntax_grammar){0};
    if (length > MO_GBNF_BYTES) {
        return mo_fail(err, MO_EINVAL, "the grammar has %zu bytes; at most %d are possible", length,
                       MO_GBNF_BYTES);
    }
    out->arena = mo_arena_create(0);
    if (!out->arena || !mo_lookup_init(&p.names, 64)) {
        status = no_memory(&p);
    }
    skip_blanks(&p, true);
    while (status == MO_OK && p.at < length) {
        status = read_rule(&p);
    }
    if (status == MO_OK) {
        status = find_root(&p, root);
    }
    if (status == MO_OK) {
        status = locate_rules(&p);
    }
    for (uint32_t i = 0; i < out->rule_count && status == MO_OK; i++) {
        const mo_syntax_rule *r = &out->rules[i];
        if (!r->body) {
            status = mo_fail(err, MO_EINVAL, "line %d, column %d: there is no rule %.*s", r->line, r->column,
                             shown(r->name), r->name.data);
        }
    }
    if (status == MO_OK) {
        status = mo_syntax_check(out, err);
    }
    mo_lookup_free(&p.names);
    if (status != MO_OK) {
        mo_syntax_free(out);
    } else { /* the text is the caller's */
        for (uint32_t i = 0; i < out->rule_count; i++) {
            out->rules[i].name = (mo_text){"", 0};
        }
    }
    return status;
}
