#include "template/lexer.h"

#include <stdlib.h>

#include "template/print.h"
#include "template/unicode.h"

typedef struct lexer {
    mo_work *w;
    const char *text;
    size_t at, length;
    int line;
    bool line_starts; /* at the beginning of the text or after a newline */
    mo_jtoken *items;
    size_t count, capacity;
} lexer;

static mo_jtoken *add(lexer *l, mo_jtoken_kind kind)
{
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 256;
        l->items = mo_work_larger(l->w, l->items, l->count, l->capacity, sizeof *l->items);
    }
    mo_jtoken *t = &l->items[l->count++];
    *t = (mo_jtoken){.kind = kind, .line = l->line, .value = MO_JV_NONE};
    return t;
}

static __attribute__((noreturn)) void wrong(lexer *l, const char *why)
{
    l->w->line = l->line;
    mo_work_fail(l->w, MO_EFORMAT, "%s", why);
}

static bool looking_at(const lexer *l, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return l->length - at >= n && memcmp(l->text + at, text, n) == 0;
}

/* Moves to `to` and counts lines. */
static void move(lexer *l, size_t to)
{
    for (; l->at < to; l->at++) {
        l->line += l->text[l->at] == '\n';
    }
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- Text between tags ---- */

/* The position of the next {{, {% or {#. */
static size_t find_tag(const lexer *l)
{
    for (size_t at = l->at; at + 1 < l->length; at++) {
        if (l->text[at] == '{' && strchr("{%#", l->text[at + 1]) && l->text[at + 1]) {
            return at;
        }
    }
    return l->length;
}

/* Emits the text before a tag that begins at `end`, with the tag's sign after its two characters. */
static void put_data(lexer *l, size_t end, bool print, size_t sign)
{
    size_t last = end;
    const char c = sign < l->length ? l->text[sign] : 0;
    if (c == '-') {
        const mo_jstring text = mo_jstring_new(l->w, l->text + l->at, end - l->at, false);
        last = l->at + mo_jstring_trim(l->w, text, NULL, MO_TRIM_RIGHT).length;
    } else if (c != '+' && !print) { /* lstrip_blocks */
        while (last > l->at && is_blank(l->text[last - 1]) && l->text[last - 1] != '\n') {
            last--;
        }
        if (last == l->at ? !l->line_starts : l->text[last - 1] != '\n') {
            last = end;
        }
    }
    if (last > l->at) {
        add(l, MO_JT_DATA)->value = mo_jv_string(mo_jstring_new(l->w, l->text + l->at, last - l->at, false));
    }
    if (end > l->at) {
        l->line_starts = false; /* a tag follows */
    }
    move(l, end);
}

/* After a tag: a minus removes all white space; after a block without a plus one newline is removed. */
static void after_tag(lexer *l, bool minus, bool plus, bool print)
{
    size_t at = l->at;
    if (minus) {
        while (at < l->length) {
            const uint8_t *p = (const uint8_t *)l->text + at;
            const size_t bytes = mo_utf8_length(p, l->length - at);
            if (!mo_code_is_space(mo_utf8_decode(p, bytes))) {
                break;
            }
            at += bytes;
        }
    } else if (!print && !plus && at < l->length && l->text[at] == '\n') {
        at++;
    }
    l->line_starts = at > l->at && l->text[at - 1] == '\n';
    move(l, at);
}

static void skip_comment(lexer *l)
{
    const char *end = memmem(l->text + l->at + 2, l->length - l->at - 2, "#}", 2);
    if (!end) {
        wrong(l, "unterminated comment {#");
    }
    const size_t at = (size_t)(end - l->text);
    const char sign = at > l->at + 2 ? l->text[at - 1] : 0;
    move(l, at + 2);
    after_tag(l, sign == '-', sign == '+', false);
}

/* ---- Inside tags ---- */

static uint32_t hex_digits(lexer *l, size_t *at, size_t end, int count)
{
    uint32_t code = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        const char c = *at < end ? l->text[*at] : 0, low = (char)(c | 32);
        if (!(c >= '0' && c <= '9') && !(low >= 'a' && low <= 'f')) {
            wrong(l, "a string has an escape with too few hexadecimal digits");
        }
        code = code * 16 + (uint32_t)(c <= '9' ? c - '0' : low - 'a' + 10);
    }
    return code;
}

/* Reads a Python escape; *at is after the backslash. */
static void put_escape(lexer *l, mo_jbuffer *out, size_t *at, size_t end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = l->text[(*at)++];
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        mo_jbuffer_add(l->w, out, &to[p - from], 1, false);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        uint32_t code = hex_digits(l, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        if (code >= 0xD800 && code <= 0xDBFF && end - *at >= 6 && l->text[*at] == '\\' &&
            l->text[*at + 1] == 'u') { /* a surrogate pair */
            size_t next = *at + 2;
            const uint32_t low = hex_digits(l, &next, end, 4);
            if (low >= 0xDC00 && low <= 0xDFFF) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                *at = next;
            }
        }
        mo_jbuffer_add_code(l->w, out, code, false);
    } else if (c >= '0' && c <= '7') {
        uint32_t code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && l->text[*at] >= '0' && l->text[*at] <= '7'; i++, (*at)++) {
            code = code * 8 + (uint32_t)(l->text[*at] - '0');
        }
        mo_jbuffer_add_code(l->w, out, code, false);
    } else if (c != '\n') { /* an unknown escape is kept, an escaped newline is removed */
        mo_jbuffer_add(l->w, out, "\\", 1, false);
        (*at)--;
        const size_t bytes = mo_utf8_length((const uint8_t *)l->text + *at, l->length - *at);
        mo_jbuffer_add(l->w, out, l->text + *at, bytes, false);
        *at += bytes;
    }
}

static void put_string(lexer *l)
{
    const char quote = l->text[l->at];
    size_t end = l->at + 1;
    while (end < l->length && l->text[end] != quote) {
        end += l->text[end] == '\\' ? 2 : 1;
    }
    if (end >= l->length) {
        wrong(l, "unterminated string");
    }
    mo_jtoken *t = add(l, MO_JT_STRING);
    mo_jbuffer *out = mo_jbuffer_new(l->w, end - l->at);
    for (size_t at = l->at + 1; at < end;) {
        if (l->text[at] == '\\') {
            at++;
            put_escape(l, out, &at, end);
        } else {
            const char *next = memchr(l->text + at, '\\', end - at);
            const size_t n = next ? (size_t)(next - l->text) - at : end - at;
            mo_jbuffer_add(l->w, out, l->text + at, n, false);
            at += n;
        }
    }
    out->fixed = true;
    t->value = mo_jv_string(mo_jbuffer_view(out));
    move(l, end + 1);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(const lexer *l, size_t at)
{
    while (at < l->length && (is_digit(l->text[at]) ||
                              (l->text[at] == '_' && at + 1 < l->length && is_digit(l->text[at + 1])))) {
        at++;
    }
    return at;
}

/* 0x, 0o and 0b. */
static bool put_based(lexer *l)
{
    const char kind = l->at + 1 < l->length && l->text[l->at] == '0' ? (char)(l->text[l->at + 1] | 32) : 0;
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    char *end;
    if (!base) {
        return false;
    }
    char digits[20] = "";
    size_t at = l->at + 2, n = 0;
    for (; at < l->length && n < sizeof digits - 1; at++) {
        const char c = (char)(l->text[at] | 32);
        const int value = is_digit(l->text[at])  ? l->text[at] - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                 : 99;
        if (value >= base) {
            break;
        }
        digits[n++] = l->text[at];
    }
    const long long value = strtoll(digits, &end, base);
    if (n == 0) {
        wrong(l, "a number has no digits");
    }
    add(l, MO_JT_NUMBER)->value = mo_jv_int(value);
    move(l, at);
    return true;
}

static void put_number(lexer *l)
{
    if (put_based(l)) {
        return;
    }
    size_t end = skip_digits(l, l->at);
    bool real = false;
    const bool after_dot = l->at > 0 && l->text[l->at - 1] == '.'; /* in a.0.1 */
    if (!after_dot && end + 1 < l->length && l->text[end] == '.' && is_digit(l->text[end + 1])) {
        real = true;
        end = skip_digits(l, end + 1);
    }
    if (!after_dot && end + 1 < l->length && (l->text[end] | 32) == 'e') {
        const size_t sign = end + 1 + (l->text[end + 1] == '+' || l->text[end + 1] == '-');
        if (sign < l->length && is_digit(l->text[sign])) {
            real = true;
            end = skip_digits(l, sign);
        }
    }
    char *digits = mo_work_alloc(l->w, end - l->at + 1);
    size_t n = 0;
    for (size_t at = l->at; at < end; at++) {
        if (l->text[at] != '_') {
            digits[n++] = l->text[at];
        }
    }
    mo_jtoken *t = add(l, MO_JT_NUMBER);
    int64_t value = 0;
    bool over = false;
    for (size_t i = 0; i < n && !real && !over; i++) {
        over = __builtin_mul_overflow(value, 10, &value) ||
               __builtin_add_overflow(value, digits[i] - '0', &value);
    }
    t->value = real   ? mo_jv_real(mo_float_read(digits))
               : over ? (mo_jv){.kind = MO_J_BIG, .as.string = mo_jstring_literal(l->w, digits)}
                      : mo_jv_int(value);
    move(l, end);
}

static bool put_name(lexer *l)
{
    size_t end = l->at;
    while (end < l->length) {
        const size_t bytes = mo_utf8_length((const uint8_t *)l->text + end, l->length - end);
        if (!mo_code_is_word(mo_utf8_decode((const uint8_t *)l->text + end, bytes))) {
            break;
        }
        end += bytes;
    }
    const size_t n = end - l->at;
    if (n == 0) {
        return false;
    }
    mo_jtoken *t = add(l, MO_JT_NAME);
    t->value = mo_jv_string(mo_jstring_new(l->w, l->text + l->at, n, false));
    memcpy(t->text, l->text + l->at, n < sizeof t->text ? n : sizeof t->text - 1);
    move(l, end);
    return true;
}

static void put_operator(lexer *l)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (looking_at(l, l->at, operators[i])) {
            memcpy(add(l, MO_JT_OPERATOR)->text, operators[i], strlen(operators[i]) + 1);
            move(l, l->at + strlen(operators[i]));
            return;
        }
    }
    wrong(l, "unexpected character in an expression");
}

/* Reads up to the end of the tag. Open braces hide an end: }} may close two dicts. */
static void read_tag(lexer *l, bool print)
{
    const char *end = print ? "}}" : "%}";
    int open = 0;
    const int line = l->line;
    add(l, print ? MO_JT_PRINT_BEGIN : MO_JT_BLOCK_BEGIN);
    move(l, l->at + 2);
    if (l->at < l->length && (l->text[l->at] == '-' || l->text[l->at] == '+')) {
        move(l, l->at + 1);
    }
    for (;;) {
        while (l->at < l->length && is_blank(l->text[l->at])) {
            move(l, l->at + 1);
        }
        if (l->at >= l->length) {
            l->line = line;
            wrong(l, print ? "{{ is not closed by }}" : "{% is not closed by %}");
        }
        const char c = l->text[l->at];
        const bool minus = c == '-' && looking_at(l, l->at + 1, end);
        const bool plus = c == '+' && !print && looking_at(l, l->at + 1, end);
        if (open == 0 && (minus || plus || looking_at(l, l->at, end))) {
            add(l, print ? MO_JT_PRINT_END : MO_JT_BLOCK_END);
            move(l, l->at + 2 + minus + plus);
            after_tag(l, minus, plus, print);
            return;
        }
        open += (c == '{' || c == '[' || c == '(') - (open > 0 && (c == '}' || c == ']' || c == ')'));
        if (c == '"' || c == '\'') {
            put_string(l);
        } else if (is_digit(c)) {
            put_number(l);
        } else if (!put_name(l)) {
            put_operator(l);
        }
    }
}

/* ---- raw ---- */

/* The end of a one-word tag at `at`, such as {%- endraw -%}. 0: there is none. */
static size_t word_tag(const lexer *l, size_t at, const char *word, char *sign)
{
    at += 2;
    at += at < l->length && (l->text[at] == '-' || l->text[at] == '+');
    while (at < l->length && is_blank(l->text[at])) {
        at++;
    }
    if (!looking_at(l, at, word)) {
        return 0;
    }
    at += strlen(word);
    while (at < l->length && is_blank(l->text[at])) {
        at++;
    }
    *sign = at < l->length && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
    at += *sign != 0;
    return looking_at(l, at, "%}") ? at + 2 : 0;
}

static bool read_raw(lexer *l)
{
    char sign;
    const size_t body = word_tag(l, l->at, "raw", &sign);
    if (!body) {
        return false;
    }
    move(l, body);
    after_tag(l, sign == '-', true, false); /* a newline after {% raw %} is kept */
    for (size_t at = l->at; at + 1 < l->length; at++) {
        const size_t end = looking_at(l, at, "{%") ? word_tag(l, at, "endraw", &sign) : 0;
        if (end) {
            put_data(l, at, false, at + 2);
            move(l, end);
            after_tag(l, sign == '-', sign == '+', false);
            return true;
        }
    }
    wrong(l, "{% raw %} is not closed by {% endraw %}");
}

/* ---- Preparing the text ---- */

/* Converts all line ends to \n and removes the last newline. */
static void clean(lexer *l, const char *text, size_t length)
{
    char *clean = mo_work_alloc(l->w, length + 1);
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r') {
            i += i + 1 < length && text[i + 1] == '\n';
            clean[n++] = '\n';
        } else {
            clean[n++] = text[i];
        }
    }
    n -= n > 0 && clean[n - 1] == '\n';
    l->text = clean;
    l->length = n;
}

mo_jtokens mo_lexer_run(mo_work *w, const char *text, size_t length)
{
    lexer l = {.w = w, .line = 1, .line_starts = true};
    clean(&l, text, length);
    for (size_t i = 0, bytes; i < l.length; i += bytes) {
        bytes = mo_utf8_length((const uint8_t *)l.text + i, l.length - i);
        if (bytes == 0) {
            move(&l, i);
            wrong(&l, "the template is not valid UTF-8");
        }
    }
    while (l.at < l.length) {
        const size_t tag = find_tag(&l);
        if (tag == l.length) {
            add(&l, MO_JT_DATA)->value =
                mo_jv_string(mo_jstring_new(w, l.text + l.at, l.length - l.at, false));
            break;
        }
        const char kind = l.text[tag + 1];
        put_data(&l, tag, kind == '{', tag + 2);
        if (kind == '#') {
            skip_comment(&l);
        } else if (kind == '{' || !read_raw(&l)) {
            read_tag(&l, kind == '{');
        }
    }
    add(&l, MO_JT_END);
    return (mo_jtokens){l.items, l.count};
}
