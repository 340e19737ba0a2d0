/* Gemma: a machine with a level for each open object and list. What does not fit is passed over, so that what comes out is
 * JSON as far as it goes. */
#include "dialogue/gemma.h"

#include "dialogue/tools.h"
#include "dialogue/value.h"

enum {
    KEY,        /* before or within a key */
    QUOTED_KEY, /* between marks */
    COLON,
    VALUE,
    WORD,   /* a value without quotes */
    STRING, /* between marks */
    PLAIN,  /* in JSON's quotes */
    NEXT,
};

void mo_gemma_begin(mo_gemma *g, mo_bytes *to)
{
    const mo_bytes word = g->word;
    *g = (mo_gemma){.depth = 1, .word = word};
    mo_bytes_clear(&g->word);
    mo_bytes_add(to, "{", 1);
}

void mo_gemma_free(mo_gemma *g)
{
    mo_bytes_free(&g->word);
}

bool mo_gemma_in_string(const mo_gemma *g)
{
    return g->state == PLAIN;
}

static void begin_member(mo_gemma *g, mo_bytes *to)
{
    if (g->comma) {
        mo_bytes_add(to, ",", 1);
    }
    g->comma = false;
}

static void end_value(mo_gemma *g)
{
    g->comma = true;
    g->state = NEXT;
}

/* The key so far, without blanks and quotes around it. */
static void end_key(mo_gemma *g, mo_bytes *to)
{
    mo_text key = mo_bytes_text(&g->word);
    while (key.length > 0 && (mo_json_is_space(key.data[0]) || mo_json_among(key.data[0], "\"'"))) {
        key.data++;
        key.length--;
    }
    while (key.length > 0 &&
           (mo_json_is_space(key.data[key.length - 1]) || mo_json_among(key.data[key.length - 1], "\"'"))) {
        key.length--;
    }
    begin_member(g, to);
    mo_json_quote(to, key);
    mo_bytes_add(to, ":", 1);
    mo_bytes_clear(&g->word);
    g->state = VALUE;
}

static void end_word(mo_gemma *g, mo_bytes *to)
{
    /* Any type but a string: numbers, true, None; else the word as a string. */
    mo_value_add(to, mo_bytes_text(&g->word), MO_TYPE_NUMBER | MO_TYPE_BOOLEAN | MO_TYPE_NULL);
    mo_bytes_clear(&g->word);
    end_value(g);
}

static void open_level(mo_gemma *g, char c, mo_bytes *to)
{
    if (g->depth == MO_GEMMA_DEPTH) {
        mo_bytes_add_text(to, "null"); /* calls are never nested so deep; the rest is skipped */
        g->ignored = 1;
        return;
    }
    mo_bytes_add(to, &c, 1);
    g->list[g->depth++] = c == '[';
    g->comma = false;
    g->state = c == '[' ? VALUE : KEY;
}

/* True: the outermost level is closed. */
static bool close_level(mo_gemma *g, mo_bytes *to)
{
    g->depth--;
    mo_bytes_add(to, g->list[g->depth] ? "]" : "}", 1);
    end_value(g);
    return g->depth == 0;
}

static bool is_list(const mo_gemma *g)
{
    return g->list[g->depth - 1];
}

void mo_gemma_quote(mo_gemma *g, mo_bytes *to)
{
    if (g->ignored) {
        return;
    }
    switch (g->state) {
    case KEY:
        mo_bytes_clear(&g->word);
        g->state = QUOTED_KEY;
        break;
    case QUOTED_KEY: g->state = COLON; break;
    case NEXT: /* a comma is missing */
        if (!is_list(g)) {
            break;
        } /* fallthrough */
    case VALUE:
        begin_member(g, to);
        mo_bytes_add(to, "\"", 1);
        g->state = STRING;
        break;
    case STRING:
        mo_bytes_add(to, "\"", 1);
        end_value(g);
        break;
    default: break;
    }
}

static bool put_value(mo_gemma *g, char c, mo_bytes *to)
{
    if (mo_json_is_space(c)) {
        return false;
    }
    if (c == ']' && is_list(g)) {
        return close_level(g, to);
    }
    if (mo_json_among(c, ",}]")) { /* the value is missing */
        if (is_list(g)) {
            return false;
        }
        mo_bytes_add_text(to, "null");
        end_value(g);
        return mo_gemma_put(g, c, to);
    }
    if (is_list(g)) {
        begin_member(g, to);
    }
    if (c == '{' || c == '[') {
        open_level(g, c, to);
    } else if (c == '"') {
        g->plain = (mo_json_scan){0};
        g->state = PLAIN;
        mo_json_scan_put(&g->plain, c, to);
    } else {
        g->state = WORD;
        mo_bytes_add(&g->word, &c, 1);
    }
    return false;
}

static bool put_next(mo_gemma *g, char c, mo_bytes *to)
{
    if (c == ',') {
        g->state = is_list(g) ? VALUE : KEY;
        mo_bytes_clear(&g->word);
    } else if (c == '}' || c == ']') {
        return close_level(g, to);
    }
    return false;
}

static bool put_key(mo_gemma *g, char c, mo_bytes *to)
{
    if (c == ':') {
        end_key(g, to);
    } else if (c == '}') {
        return close_level(g, to);
    } else if (c != ',') {
        mo_bytes_add(&g->word, &c, 1);
    }
    return false;
}

static void put_ignored(mo_gemma *g, char c)
{
    if (c == '{' || c == '[') {
        g->ignored++;
    } else if ((c == '}' || c == ']') && --g->ignored == 0) {
        end_value(g);
    }
}

bool mo_gemma_put(mo_gemma *g, char c, mo_bytes *to)
{
    if (g->ignored) {
        put_ignored(g, c);
        return false;
    }
    switch (g->state) {
    case KEY: return put_key(g, c, to);
    case QUOTED_KEY: mo_bytes_add(&g->word, &c, 1); return false;
    case COLON:
        if (c == ':') {
            end_key(g, to);
        }
        return false;
    case STRING: mo_json_escape(to, c); return false;
    case PLAIN:
        if (mo_json_scan_put(&g->plain, c, to) == MO_JSON_END) {
            end_value(g);
        }
        return false;
    case WORD:
        if (!mo_json_among(c, ",}]")) {
            mo_bytes_add(&g->word, &c, 1);
            return false;
        }
        end_word(g, to);
        return put_next(g, c, to);
    case VALUE: return put_value(g, c, to);
    default: return put_next(g, c, to);
    }
}
