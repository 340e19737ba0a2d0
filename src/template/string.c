#include "template/string.h"

#include "base/hash.h"
#include "template/unicode.h"

/* ---- Buffers ---- */

mo_jbuffer *mo_jbuffer_new(mo_work *w, size_t capacity)
{
    mo_jbuffer *b = mo_work_alloc(w, sizeof *b);
    capacity = capacity < 32 ? 32 : capacity;
    if (capacity > INT32_MAX) {
        mo_work_fail(w, MO_ENOSPC, "a string of the template exceeds 2 GiB");
    }
    b->data = mo_work_alloc(w, capacity);
    b->capacity = (uint32_t)capacity;
    return b;
}

static void grow(mo_work *w, mo_jbuffer *b, size_t more)
{
    if (more <= b->capacity - b->used) {
        return;
    }
    const size_t capacity = 2 * ((size_t)b->used + more);
    if (capacity > INT32_MAX) {
        mo_work_fail(w, MO_ENOSPC, "a string of the template exceeds 1 GiB");
    }
    char *data = mo_work_alloc(w, capacity);
    memcpy(data, b->data, b->used);
    if (b->marks) {
        uint8_t *marks = mo_work_alloc(w, capacity);
        memcpy(marks, b->marks, b->used);
        b->marks = marks;
    }
    b->data = data;
    b->capacity = (uint32_t)capacity;
}

/* Gives each byte its own mark from now on. */
static void mark_each(mo_work *w, mo_jbuffer *b)
{
    if (!b->marks) {
        uint8_t *marks = mo_work_alloc(w, b->capacity);
        memset(marks, b->input, b->used);
        b->marks = marks;
    }
}

void mo_jbuffer_add(mo_work *w, mo_jbuffer *b, const char *data, size_t length, bool input)
{
    if (length == 0) {
        return;
    }
    mo_work_spend(w, 1 + length / 64);
    grow(w, b, length);
    if (b->used == 0 && !b->marks) {
        b->input = input;
    } else if (b->marks || b->input != input) {
        mark_each(w, b);
        memset(b->marks + b->used, input, length);
    }
    memcpy(b->data + b->used, data, length);
    b->used += (uint32_t)length;
}

void mo_jbuffer_add_string(mo_work *w, mo_jbuffer *b, mo_jstring s)
{
    if (s.length == 0) {
        return;
    }
    if (!s.buffer->marks) {
        grow(w, b, s.length); /* may move the bytes of s, if s is a part of b */
        mo_jbuffer_add(w, b, mo_jstring_data(s), s.length, s.buffer->input);
        return;
    }
    mo_work_spend(w, 1 + s.length / 64);
    grow(w, b, s.length);
    mark_each(w, b);
    memcpy(b->data + b->used, mo_jstring_data(s), s.length);
    memcpy(b->marks + b->used, s.buffer->marks + s.from, s.length);
    b->used += s.length;
}

void mo_jbuffer_add_code(mo_work *w, mo_jbuffer *b, uint32_t code, bool input)
{
    char bytes[4];
    mo_jbuffer_add(w, b, bytes, mo_utf8_encode(code, bytes), input);
}

/* ---- Strings ---- */

mo_jstring mo_jstring_new(mo_work *w, const char *data, size_t length, bool input)
{
    mo_jbuffer *b = mo_work_alloc(w, sizeof *b);
    if (length > INT32_MAX) {
        mo_work_fail(w, MO_ENOSPC, "a string for the template exceeds 2 GiB");
    }
    b->data = mo_work_alloc(w, length);
    memcpy(b->data, data, length);
    b->used = b->capacity = (uint32_t)length;
    b->input = input;
    b->fixed = true;
    return (mo_jstring){b, 0, (uint32_t)length};
}

mo_jstring mo_jstring_concat(mo_work *w, mo_jstring a, mo_jstring b)
{
    if (b.length == 0) {
        return a;
    }
    if (a.length == 0) {
        return b;
    }
    if (!a.buffer->fixed && a.from + a.length == a.buffer->used) {
        mo_jbuffer_add_string(w, a.buffer, b);
        return (mo_jstring){a.buffer, a.from, a.length + b.length};
    }
    mo_jbuffer *both = mo_jbuffer_new(w, (size_t)a.length + b.length);
    mo_jbuffer_add_string(w, both, a);
    mo_jbuffer_add_string(w, both, b);
    return mo_jbuffer_view(both);
}

const char *mo_jstring_text(mo_work *w, mo_jstring s)
{
    char *text = mo_work_alloc(w, (size_t)s.length + 1);
    mo_work_spend(w, s.length / 64);
    memcpy(text, mo_jstring_data(s), s.length);
    return text;
}

/* ---- Cached properties of long strings ---- */

enum { LONG = 256, KNOWN = 64 }; /* minimum length of a cached string; entries, found by address */

typedef struct known {
    const mo_jbuffer *buffer;
    uint32_t from, length;
    uint32_t characters; /* UINT32_MAX: not counted yet */
    uint32_t index, at;  /* the last character found, and its byte */
    bool hashed;
    uint64_t hash;
} known;

struct mo_jknown {
    known all[KNOWN];
};

/* The cache entry of a string. NULL: too short. The bytes of a view never change, so entries stay valid. */
static known *known_of(mo_work *w, mo_jstring s)
{
    if (s.length < LONG) {
        return NULL;
    }
    if (!w->known) {
        w->known = mo_work_alloc(w, sizeof *w->known);
    }
    const uint64_t key[2] = {(uintptr_t)s.buffer, (uint64_t)s.from << 32 | s.length};
    known *k = &w->known->all[mo_hash_words(MO_HASH_SEED, key, sizeof key) % KNOWN];
    if (k->buffer != s.buffer || k->from != s.from || k->length != s.length) {
        *k = (known){.buffer = s.buffer, .from = s.from, .length = s.length, .characters = UINT32_MAX};
    }
    return k;
}

bool mo_jstring_is_input(mo_work *w, mo_jstring s)
{
    if (s.length == 0 || !s.buffer->marks) {
        return s.length > 0 && s.buffer->input;
    }
    mo_work_spend(w, s.length / 64);
    return memchr(s.buffer->marks + s.from, 1, s.length) != NULL;
}

bool mo_jstring_equal(mo_work *w, mo_jstring a, mo_jstring b)
{
    if (a.length != b.length || (a.buffer == b.buffer && a.from == b.from)) {
        return a.length == b.length;
    }
    mo_work_spend(w, a.length / 64);
    return memcmp(mo_jstring_data(a), mo_jstring_data(b), a.length) == 0;
}

int mo_jstring_compare(mo_work *w, mo_jstring a, mo_jstring b)
{
    const size_t length = a.length < b.length ? a.length : b.length;
    mo_work_spend(w, length / 64);
    const int order = memcmp(mo_jstring_data(a), mo_jstring_data(b), length);
    return order < 0 ? -1 : order > 0 ? 1 : a.length < b.length ? -1 : a.length > b.length;
}

uint64_t mo_jstring_hash(mo_work *w, mo_jstring s)
{
    known *k = known_of(w, s);
    if (k && k->hashed) {
        return k->hash;
    }
    mo_work_spend(w, s.length / 16);
    const uint64_t hash = mo_hash(MO_HASH_SEED, mo_jstring_data(s), s.length);
    if (k) {
        k->hashed = true;
        k->hash = hash ^ hash >> 32;
    }
    return hash ^ hash >> 32;
}

static bool begins_character(char byte)
{
    return ((uint8_t)byte & 0xC0) != 0x80;
}

size_t mo_jstring_characters(mo_work *w, mo_jstring s)
{
    known *k = known_of(w, s);
    if (k && k->characters != UINT32_MAX) {
        return k->characters;
    }
    mo_work_spend(w, s.length / 64);
    const char *data = mo_jstring_data(s);
    size_t count = 0;
    for (size_t i = 0; i < s.length; i++) {
        count += begins_character(data[i]);
    }
    if (k) {
        k->characters = (uint32_t)count;
    }
    return count;
}

/* Goes from the character `index` at byte `at` to the character `wanted`, which exists. */
static size_t walk(mo_jstring s, size_t index, size_t at, size_t wanted)
{
    const char *data = mo_jstring_data(s);
    for (; index < wanted; index++) {
        for (at++; at < s.length && !begins_character(data[at]); at++) {
        }
    }
    for (; index > wanted; index--) {
        for (at--; !begins_character(data[at]); at--) {
        }
    }
    return at;
}

static size_t distance(size_t a, size_t b)
{
    return a < b ? b - a : a - b;
}

size_t mo_jstring_offset(mo_work *w, mo_jstring s, size_t index)
{
    const size_t count = mo_jstring_characters(w, s);
    if (index >= count) {
        return s.length;
    }
    if (count == s.length) { /* one byte each */
        return index;
    }
    size_t from = 0, at = 0;
    if (count - index < index) {
        from = count;
        at = s.length;
    }
    known *k = known_of(w, s);
    if (k && distance(k->index, index) < distance(from, index)) {
        from = k->index;
        at = k->at;
    }
    mo_work_spend(w, distance(from, index) / 16);
    at = walk(s, from, at, index);
    if (k) {
        k->index = (uint32_t)index;
        k->at = (uint32_t)at;
    }
    return at;
}

uint32_t mo_jstring_code(mo_jstring s, size_t at, size_t *bytes)
{
    const uint8_t *p = (const uint8_t *)mo_jstring_data(s) + at;
    *bytes = mo_utf8_length(p, s.length - at);
    return mo_utf8_decode(p, *bytes);
}

int64_t mo_jstring_find(mo_work *w, mo_jstring s, mo_jstring what, size_t from)
{
    if (from > s.length) {
        return -1;
    }
    const char *data = mo_jstring_data(s);
    const char *p =
        what.length ? memmem(data + from, s.length - from, mo_jstring_data(what), what.length) : data + from;
    mo_work_spend(w, ((p ? (size_t)(p - data) + what.length : s.length) - from) / 16);
    return p ? p - data : -1;
}

int64_t mo_jstring_find_last(mo_work *w, mo_jstring s, mo_jstring what, size_t to)
{
    const char *data = mo_jstring_data(s);
    if (what.length == 0 || what.length > to) {
        return what.length == 0 ? (int64_t)to : -1;
    }
    for (size_t end = to - what.length + 1;;) { /* candidate positions, from the last to the first */
        const char *p = memrchr(data, mo_jstring_data(what)[0], end);
        mo_work_spend(w, 1 + (end - (p ? (size_t)(p - data) : 0) + what.length) / 64);
        if (!p || memcmp(p, mo_jstring_data(what), what.length) == 0) {
            return p ? p - data : -1;
        }
        end = (size_t)(p - data);
    }
}

static bool is_in(mo_work *w, uint32_t code, const mo_jstring *chars)
{
    if (!chars) {
        return mo_code_is_space(code);
    }
    for (size_t at = 0, bytes; at < chars->length; at += bytes) {
        if (mo_jstring_code(*chars, at, &bytes) == code) {
            mo_work_spend(w, at / 16);
            return true;
        }
    }
    mo_work_spend(w, chars->length / 16);
    return false;
}

mo_jstring mo_jstring_trim(mo_work *w, mo_jstring s, const mo_jstring *chars, int sides)
{
    const char *data = mo_jstring_data(s);
    size_t from = 0, to = s.length, bytes;
    while ((sides & MO_TRIM_LEFT) && from < to && is_in(w, mo_jstring_code(s, from, &bytes), chars)) {
        from += bytes;
    }
    while ((sides & MO_TRIM_RIGHT) && from < to) {
        size_t last = to - 1;
        while (!begins_character(data[last])) {
            last--;
        }
        if (!is_in(w, mo_jstring_code(s, last, &bytes), chars)) {
            break;
        }
        to = last;
    }
    mo_work_spend(w, (s.length - (to - from)) / 16);
    return mo_jstring_part(s, from, to - from);
}
