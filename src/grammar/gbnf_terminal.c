#include "grammar/gbnf_terminal.h"

#include <string.h>

#include "base/utf8.h"

/* ---- Characters ---- */

static mo_status read_hex(mo_gbnf_text *t, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        const int c = mo_gbnf_peek(t);
        const int value = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (value < 0) {
            return mo_gbnf_wrong(t, "expected %d hexadecimal digits", digits);
        }
        *out = *out << 4 | (uint32_t)value;
        t->at++;
    }
    return MO_OK;
}

/* Reads one character of a literal or class; it may be escaped. */
static mo_status read_character(mo_gbnf_text *t, uint32_t *out)
{
    const size_t begin = t->at;
    int c = mo_gbnf_peek(t);
    mo_status status = MO_OK;
    if (c != '\\') {
        const size_t n = mo_utf8_length(t->text + t->at, t->length - t->at);
        if (n == 0) {
            return mo_gbnf_wrong(t, "the grammar is not valid UTF-8");
        }
        *out = mo_utf8_decode(t->text + t->at, n);
        t->at += n;
        return MO_OK;
    }
    t->at++;
    c = mo_gbnf_peek(t);
    t->at += c >= 0;
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
    case 'x': status = read_hex(t, 2, out); break;
    case 'u': status = read_hex(t, 4, out); break;
    case 'U': status = read_hex(t, 8, out); break;
    default:
        return mo_gbnf_wrong_at(t, begin,
                                "unknown escape; the escapes are \\n \\t \\r \\\\ \\\" \\[ \\] \\- \\^ \\xHH "
                                "\\uHHHH \\UHHHHHHHH");
    }
    if (status == MO_OK && (*out > MO_CODE_POINT_MAX || (*out >= 0xD800 && *out <= 0xDFFF))) {
        return mo_gbnf_wrong_at(t, begin, "U+%04X is not a character", *out);
    }
    return status;
}

static mo_status read_literal(mo_gbnf_text *t, mo_syntax **out)
{
    const size_t begin = t->at++;
    size_t end = t->at, used = 0;
    while (end < t->length && t->text[end] != '"' && t->text[end] != '\n') {
        end += t->text[end] == '\\' ? 2 : 1;
    }
    if (end >= t->length || t->text[end] != '"') {
        return mo_gbnf_wrong_at(t, begin, "unterminated literal");
    }
    mo_status status = mo_gbnf_node(t, MO_SYNTAX_LITERAL, out);
    /* no escape is shorter than its character */
    char *bytes = status == MO_OK ? mo_arena_alloc(t->g->arena, end - t->at + 1) : NULL;
    if (status == MO_OK && !bytes) {
        status = mo_gbnf_no_memory(t);
    }
    while (status == MO_OK && t->at < end) {
        uint32_t c;
        status = read_character(t, &c);
        if (status == MO_OK) {
            used += mo_utf8_encode(c, bytes + used);
        }
    }
    if (status == MO_OK) {
        t->at = end + 1;
        (*out)->as.literal = (mo_text){bytes, used};
    }
    return status;
}

static mo_status set_node(mo_gbnf_text *t, size_t at, mo_charset *set, mo_syntax **out)
{
    const uint32_t number = mo_syntax_set(t->g, set);
    if (number == UINT32_MAX) {
        return t->g->set_count == MO_SYNTAX_SETS
                   ? mo_gbnf_wrong_at(t, at, "the grammar has more than %d different character classes",
                                      MO_SYNTAX_SETS)
                   : mo_gbnf_no_memory(t);
    }
    const mo_status status = mo_gbnf_node(t, MO_SYNTAX_SET, out);
    if (status == MO_OK) {
        (*out)->as.set = number;
    }
    return status;
}

static mo_status read_class(mo_gbnf_text *t, mo_syntax **out)
{
    const size_t begin = t->at++;
    mo_charset set = {0};
    mo_status status = MO_OK;
    const bool inverted = mo_gbnf_peek(t) == '^';
    t->at += inverted;
    while (status == MO_OK && mo_gbnf_peek(t) != ']') {
        uint32_t low = 0, high;
        const size_t at = t->at;
        if (t->at >= t->length) {
            status = mo_gbnf_wrong_at(t, begin, "unterminated character class");
            break;
        }
        status = read_character(t, &low);
        high = low;
        if (status == MO_OK && mo_gbnf_peek(t) == '-' && t->at + 1 < t->length && t->text[t->at + 1] != ']') {
            t->at++;
            status = read_character(t, &high);
        }
        if (status == MO_OK && high < low) {
            status = mo_gbnf_wrong_at(t, at, "the range ends before it starts");
        }
        if (status == MO_OK && !mo_charset_add(&set, low, high)) {
            status = mo_gbnf_no_memory(t);
        }
    }
    if (status == MO_OK) {
        t->at++;
        status = mo_charset_settle(&set, inverted) ? set_node(t, begin, &set, out) : mo_gbnf_no_memory(t);
    }
    mo_charset_free(&set);
    return status;
}

static mo_status read_any(mo_gbnf_text *t, mo_syntax **out)
{
    mo_charset set = {0};
    const size_t begin = t->at++;
    if (!mo_charset_settle(&set, true)) {
        mo_charset_free(&set);
        return mo_gbnf_no_memory(t);
    }
    return set_node(t, begin, &set, out);
}

/* ---- Tokens ---- */

static mo_status read_id(mo_gbnf_text *t, int32_t *out)
{
    const size_t begin = t->at;
    int64_t id = 0;
    while (mo_gbnf_peek(t) >= '0' && mo_gbnf_peek(t) <= '9' && id <= INT32_MAX) {
        id = id * 10 + (mo_gbnf_peek(t) - '0');
        t->at++;
    }
    if (t->at == begin) {
        return mo_gbnf_wrong(t, "expected a token number");
    }
    if (id >= (t->tokens ? t->tokens->count : 0)) {
        return mo_gbnf_wrong_at(t, begin, "there is no token %lld; the vocabulary has %d", (long long)id,
                                t->tokens ? t->tokens->count : 0);
    }
    *out = (int32_t)id;
    return MO_OK;
}

static mo_status token_id(mo_gbnf_text *t, mo_token_match *m, int32_t id)
{
    int32_t *ids = mo_arena_array(t->g->arena, m->count + 1, sizeof *ids);
    size_t at = 0;
    if (!ids) {
        return mo_gbnf_no_memory(t);
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

/* Reads the part between <[ and ]>: a number, or * and the numbers of excluded tokens. */
static mo_status read_numbers(mo_gbnf_text *t, mo_token_match *m)
{
    int32_t id;
    mo_status status = MO_OK;
    if (mo_gbnf_peek(t) == '*' && m->choice == MO_TOKEN_THIS) {
        m->choice = MO_TOKEN_SPECIALS;
        t->at++;
        while (status == MO_OK && mo_gbnf_peek(t) == '-') {
            if (m->count == 64) {
                return mo_gbnf_wrong(t, "at most 64 tokens can be excluded");
            }
            t->at++;
            status = read_id(t, &id);
            status = status == MO_OK ? token_id(t, m, id) : status;
        }
    } else {
        status = read_id(t, &id);
        status = status == MO_OK ? token_id(t, m, id) : status;
    }
    if (status == MO_OK && (t->length - t->at < 2 || t->text[t->at] != ']' || t->text[t->at + 1] != '>')) {
        return mo_gbnf_wrong(t, "expected ]>");
    }
    t->at += 2;
    return status;
}

static mo_status read_token_text(mo_gbnf_text *t, size_t begin, mo_token_match *m)
{
    char text[256];
    const size_t first = begin; /* including its brackets */
    while (t->at < t->length && t->text[t->at] != '>' && t->text[t->at] != '\n') {
        t->at++;
    }
    if (mo_gbnf_peek(t) != '>') {
        return mo_gbnf_wrong_at(t, begin, "unterminated token");
    }
    t->at++;
    if (t->at - first >= sizeof text) {
        return mo_gbnf_wrong_at(t, begin, "the text of the token is too long");
    }
    memcpy(text, t->text + first, t->at - first);
    text[t->at - first] = '\0';
    const int32_t id =
        t->tokens && strlen(text) == t->at - first ? t->tokens->find(t->tokens->user, text) : -1;
    if (id < 0) {
        return mo_gbnf_wrong_at(t, begin, "the vocabulary has no token %.100s", text);
    }
    return token_id(t, m, id);
}

static mo_status read_token(mo_gbnf_text *t, mo_syntax **out)
{
    mo_token_match *m = mo_arena_alloc(t->g->arena, sizeof *m);
    if (!m) {
        return mo_gbnf_no_memory(t);
    }
    if (mo_gbnf_peek(t) == '!') {
        m->choice = MO_TOKEN_BUT;
        t->at++;
        if (mo_gbnf_peek(t) != '<') {
            return mo_gbnf_wrong(t, "expected a token in < and > after !");
        }
    }
    const size_t begin = t->at++;
    mo_status status;
    if (mo_gbnf_peek(t) == '[') {
        t->at++;
        status = read_numbers(t, m);
    } else {
        status = read_token_text(t, begin, m);
    }
    if (status == MO_OK) {
        status = mo_gbnf_node(t, MO_SYNTAX_TOKEN, out);
    }
    if (status == MO_OK) {
        (*out)->as.token = m;
    }
    return status;
}

mo_status mo_gbnf_terminal(mo_gbnf_text *t, mo_syntax **out, bool *some)
{
    *some = true;
    switch (mo_gbnf_peek(t)) {
    case '"': return read_literal(t, out);
    case '[': return read_class(t, out);
    case '.': return read_any(t, out);
    case '<':
    case '!': return read_token(t, out);
    default: *some = false; return MO_OK;
    }
}
