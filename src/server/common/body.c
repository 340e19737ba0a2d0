/* Body: see body.h. */
#include "server/common/body.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/common/writer.h"

/* What its values take, about: an object is some hundred bytes of memory and three of a body. */
static int64_t cost_of(char c)
{
    switch (c) {
    case ',':
    case ':': return 1;
    case '"':
    case '[': return 3;
    case '{': return 6;
    default: return 0;
    }
}

/* What its values cost; NULL, or why it is not read. jansson bounds the depth too, but higher than a stack of a worker should have to bear. */
static const char *refusal(mo_text body, int64_t *cost)
{
    size_t depth = 0;
    bool quoted = false;
    *cost = 0;
    for (size_t i = 0; i < body.length; i++) {
        const char c = body.data[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        *cost += cost_of(c);
        if (depth > SRV_JSON_DEPTH) {
            return "is nested too deeply: the limit is 512 levels of lists and objects";
        }
        if (*cost > SRV_JSON_COST) {
            return "has too many values; send fewer";
        }
    }
    return NULL;
}

/* The code unit of \uXXXX at s, -1 for anything else. */
static int unit(const char *s, size_t length)
{
    if (length < 6 || s[0] != '\\' || s[1] != 'u') {
        return -1;
    }
    int value = 0;
    for (int i = 2; i < 6; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* ---- What jansson does not take ---- */

/* Copies a string from its quote on, with U+FFFD for half surrogates. Returns how many of its bytes that were. */
static size_t fix_string(mo_text in, srv_writer *out)
{
    size_t at = 1, copied = 0;
    while (at < in.length && in.data[at] != '"') {
        const int first = unit(in.data + at, in.length - at);
        const int second =
            first >= 0xd800 && first < 0xdc00 ? unit(in.data + at + 6, in.length - at - 6) : -1;
        if (first < 0xd800 || first > 0xdfff) {
            at += in.data[at] == '\\' && at + 1 < in.length ? 2 : 1;
        } else if (second >= 0xdc00 && second <= 0xdfff) {
            at += 12;
        } else {
            srv_put(out, in.data + copied, at - copied);
            srv_put_literal(out, "\\ufffd");
            at += 6;
            copied = at;
        }
    }
    at += at < in.length;
    srv_put(out, in.data + copied, at - copied);
    return at;
}

/* The same for a number. */
static size_t fix_number(mo_text in, srv_writer *out)
{
    size_t length = 0;
    bool whole = true;
    while (length < in.length && strchr("+-.0123456789eE", in.data[length]) && in.data[length]) {
        whole = whole && !strchr(".eE", in.data[length]);
        length++;
    }
    char *copy = strndup(in.data, length);
    if (!copy) {
        out->failed = true;
        return length;
    }
    errno = 0;
    if (isinf(strtod(copy, NULL))) {
        srv_puts(out, copy[0] == '-' ? "-1.7976931348623157e308" : "1.7976931348623157e308");
    } else {
        srv_put(out, copy, length);
        errno = 0;
        (void)strtoll(copy, NULL, 10);
        srv_puts(out, whole && errno == ERANGE ? ".0" : "");
    }
    free(copy);
    return length;
}

static void fix(mo_text in, srv_writer *out)
{
    while (in.length > 0) {
        const char c = in.data[0];
        size_t length = 1;
        if (c == '"') {
            length = fix_string(in, out);
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            length = fix_number(in, out);
        } else {
            srv_put(out, &c, 1);
        }
        in.data += length;
        in.length -= length;
    }
}

/* ---- Reading ---- */

static json_t *load(mo_text body, json_error_t *err, bool *no_memory)
{
    json_t *value = mo_json_load(body.data, body.length, JSON_ALLOW_NUL, err, no_memory);
    if (value || *no_memory) {
        return value;
    }
    srv_writer fixed = {0};
    fix(body, &fixed);
    const bool same = !fixed.data || fixed.failed ||
                      (fixed.length == body.length && memcmp(fixed.data, body.data, body.length) == 0);
    json_error_t again;
    *no_memory = fixed.failed;
    value = same ? NULL : mo_json_load(fixed.data, fixed.length, JSON_ALLOW_NUL, &again, no_memory);
    srv_writer_free(&fixed);
    return value;
}

static _Atomic int64_t held_by_all;

/* A body of some megabytes is some hundred of values, and many requests may come at once. */
static bool hold(int64_t cost, srv_fault *fault)
{
    if (atomic_fetch_add(&held_by_all, cost) + cost <= SRV_JSON_COST_HELD || cost <= SRV_JSON_COST_SMALL) {
        return true;
    }
    srv_body_release(cost);
    return srv_fault_set(fault, SRV_FAULT_QUEUE, NULL,
                         "too many large requests are in progress; try again later");
}

void srv_body_release(int64_t held)
{
    atomic_fetch_sub(&held_by_all, held);
}

static _Atomic size_t text_held;

bool srv_text_hold(size_t bytes, srv_fault *fault)
{
    if (bytes > SRV_TEXT_HELD) {
        return srv_fault_set(
            fault, SRV_FAULT_TOO_LARGE, NULL,
            "the text is too long to be tokenized at once (the limit is %d bytes); send less", SRV_TEXT_HELD);
    }
    if (atomic_fetch_add(&text_held, bytes) + bytes <= SRV_TEXT_HELD || bytes <= SRV_TEXT_SMALL) {
        return true;
    }
    srv_text_release(bytes);
    return srv_fault_set(fault, SRV_FAULT_QUEUE, NULL,
                         "too many long texts are being tokenized; try again later");
}

void srv_text_release(size_t bytes)
{
    atomic_fetch_sub(&text_held, bytes);
}

bool srv_body_read(mo_text body, json_t **root, int64_t *held, srv_fault *fault)
{
    static const char mark[] = "\xef\xbb\xbf";
    int64_t cost;
    *root = NULL;
    *held = 0;
    if (body.length >= 3 && memcmp(body.data, mark, 3) == 0) {
        body = (mo_text){body.data + 3, body.length - 3};
    }
    const char *why = refusal(body, &cost);
    if (why) {
        return srv_fault_set(fault, SRV_FAULT_REQUEST, NULL, "the JSON %s", why);
    }
    if (!hold(cost, fault)) {
        return false;
    }
    json_error_t err;
    bool no_memory;
    json_t *value = load(body, &err, &no_memory);
    if (!json_is_object(value)) {
        srv_body_release(cost);
    }
    if (no_memory) {
        return srv_fault_set(fault, SRV_FAULT_SERVER, NULL,
                             "out of memory while reading the request; try again later");
    }
    if (!value) {
        return body.length == 0 ? srv_fault_set(fault, SRV_FAULT_REQUEST, NULL,
                                                "the body is empty; expected a JSON object")
                                : srv_fault_set(fault, SRV_FAULT_REQUEST, NULL,
                                                "the body is not JSON: line %d, column %d: %s", err.line,
                                                err.column, err.text);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return srv_fault_set(fault, SRV_FAULT_REQUEST, NULL, "the body must be a JSON object");
    }
    *root = value;
    *held = cost;
    return true;
}

json_t *srv_body_json(mo_text body)
{
    int64_t cost;
    return refusal(body, &cost) ? NULL : json_loadb(body.data, body.length, 0, NULL);
}

json_t *srv_json_text(const char *bytes, size_t length)
{
    json_t *value = json_stringn(bytes ? bytes : "", length);
    if (!value) {
        srv_writer w = {0};
        srv_put_string(&w, bytes, length);
        value = w.failed ? NULL : json_loadb(w.data, w.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        srv_writer_free(&w);
    }
    return value ? value : json_string("");
}

json_t *srv_json_ctext(const char *text)
{
    return srv_json_text(text, text ? strlen(text) : 0);
}
