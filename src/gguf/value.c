/* Value: metadata as numbers, strings and text. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "gguf/model.h"
#include "gguf/read.h"

/* ---- One value ---- */

const char *mo_value_type_text(mo_value_type type)
{
    switch (type) {
    case MO_VALUE_U8: return "u8";
    case MO_VALUE_I8: return "i8";
    case MO_VALUE_U16: return "u16";
    case MO_VALUE_I16: return "i16";
    case MO_VALUE_U32: return "u32";
    case MO_VALUE_I32: return "i32";
    case MO_VALUE_F32: return "f32";
    case MO_VALUE_BOOL: return "bool";
    case MO_VALUE_STRING: return "string";
    case MO_VALUE_U64: return "u64";
    case MO_VALUE_I64: return "i64";
    case MO_VALUE_F64: return "f64";
    }
    return "unknown";
}

static bool value_real(const mo_value *v, double *out)
{
    int64_t n;
    if (v->type == MO_VALUE_F32 || v->type == MO_VALUE_F64) {
        *out = v->as.r;
        return true;
    }
    if (!mo_value_integer(v, &n)) {
        return false;
    }
    *out = (double)n;
    return true;
}

static bool value_flag(const mo_value *v, bool *out)
{
    int64_t n;
    if (v->type == MO_VALUE_BOOL) {
        *out = v->as.b;
        return true;
    }
    if (!mo_value_integer(v, &n) || n < 0 || n > 1) {
        return false;
    }
    *out = n == 1;
    return true;
}

/* ---- Entries ---- */

int64_t mo_gguf_entry_count(const mo_gguf *g)
{
    return g->parts[0].header.entry_count;
}

const mo_gguf_entry *mo_gguf_entry_at(const mo_gguf *g, int64_t index)
{
    const mo_gguf_header *h = &g->parts[0].header;
    return index >= 0 && index < h->entry_count ? &h->entries[index] : NULL;
}

const mo_gguf_entry *mo_gguf_find(const mo_gguf *g, const char *key)
{
    return mo_gguf_header_find(&g->parts[0].header, key);
}

void mo_gguf_entry_info(const mo_gguf_entry *e, mo_metadata_info *out)
{
    *out = (mo_metadata_info){.key = e->key, .type = e->type, .is_array = e->is_array, .count = e->count};
}

bool mo_gguf_entry_value(const mo_gguf *g, const mo_gguf_entry *e, uint64_t index, mo_value *out)
{
    if (index >= e->count) {
        return false;
    }
    mo_gguf_header_value(&g->parts[0].header, e, index, out);
    return true;
}

/* ---- Typed getters ---- */

static mo_status absent(const mo_gguf *g, const char *key, mo_error *err)
{
    return mo_fail(err, MO_ENOENT,
                   "%s: key %s is missing; the converter omitted it; download or convert the model again",
                   g->parts[0].path, key);
}

static mo_status unfit(const mo_gguf *g, const mo_gguf_entry *e, const char *wanted, mo_error *err)
{
    return mo_fail(err, MO_EFORMAT,
                   "%s: key %.200s is %s%s, but %s is expected; the "
                   "file is malformed, download or convert it again",
                   g->parts[0].path, e->key, e->is_array ? "an array of " : "of type ",
                   mo_value_type_text(e->type), wanted);
}

/* The value of a key, which must not be an array. If the key is missing *entry is NULL and the status
   MO_OK. */
static mo_status scalar(const mo_gguf *g, const char *key, const char *wanted, const mo_gguf_entry **entry,
                        mo_value *value, mo_error *err)
{
    *entry = mo_gguf_find(g, key);
    if (*entry && (*entry)->is_array) {
        return unfit(g, *entry, wanted, err);
    }
    if (*entry) {
        mo_gguf_entry_value(g, *entry, 0, value);
    }
    return MO_OK;
}

mo_status mo_gguf_i64_or(const mo_gguf *g, const char *key, int64_t otherwise, int64_t *out, mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    int64_t n = otherwise;
    mo_status s = scalar(g, key, "an integer", &e, &v, err);
    if (s == MO_OK && e && !mo_value_integer(&v, &n)) {
        s = unfit(g, e, "an integer of at most 63 bits", err);
    }
    if (s == MO_OK) {
        *out = n;
    }
    return s;
}

mo_status mo_gguf_u32_or(const mo_gguf *g, const char *key, uint32_t otherwise, uint32_t *out, mo_error *err)
{
    int64_t n;
    mo_status s = mo_gguf_i64_or(g, key, otherwise, &n, err);
    if (s == MO_OK && (n < 0 || n > UINT32_MAX)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s is %lld, outside 0 to 4294967295; the file is damaged, download it again",
                       g->parts[0].path, key, (long long)n);
    }
    if (s == MO_OK) {
        *out = (uint32_t)n;
    }
    return s;
}

mo_status mo_gguf_f32(const mo_gguf *g, const char *key, float *out, mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    double r = 0.0;
    mo_status s = scalar(g, key, "a number", &e, &v, err);
    if (s == MO_OK && !e) {
        return absent(g, key, err);
    }
    if (s == MO_OK && (!value_real(&v, &r) || (isfinite(r) && fabs(r) > (double)FLT_MAX))) {
        s = unfit(g, e, "a number", err);
    }
    if (s == MO_OK) {
        *out = (float)r;
    }
    return s;
}

mo_status mo_gguf_bool_or(const mo_gguf *g, const char *key, bool otherwise, bool *out, mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    bool b = otherwise;
    mo_status s = scalar(g, key, "a boolean", &e, &v, err);
    if (s == MO_OK && e && !value_flag(&v, &b)) {
        s = unfit(g, e, "a boolean", err);
    }
    if (s == MO_OK) {
        *out = b;
    }
    return s;
}

mo_status mo_gguf_string_or(const mo_gguf *g, const char *key, const char *otherwise, const char **out,
                            mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    mo_status s = scalar(g, key, "a string", &e, &v, err);
    if (s == MO_OK && e && (v.type != MO_VALUE_STRING || memchr(v.as.s.data, 0, v.as.s.length))) {
        s = unfit(g, e, "a string without NUL bytes", err);
    }
    if (s == MO_OK) {
        *out = e ? e->text : otherwise;
    }
    return s;
}

mo_status mo_gguf_string(const mo_gguf *g, const char *key, const char **out, mo_error *err)
{
    return mo_gguf_find(g, key) ? mo_gguf_string_or(g, key, NULL, out, err) : absent(g, key, err);
}

/* The value for one layer. The key may be an array. */
static mo_status value_of(const mo_gguf *g, const char *key, uint64_t index, const mo_gguf_entry **entry,
                          mo_value *value, mo_error *err)
{
    *entry = mo_gguf_find(g, key);
    if (!*entry) {
        return absent(g, key, err);
    }
    if (!mo_gguf_entry_value(g, *entry, (*entry)->is_array ? index : 0, value)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s has %llu values, but number %llu is needed; "
                       "the file is malformed, download or convert it again",
                       g->parts[0].path, key, (unsigned long long)(*entry)->count,
                       (unsigned long long)index + 1);
    }
    return MO_OK;
}

mo_status mo_gguf_i64_of(const mo_gguf *g, const char *key, uint64_t index, int64_t *out, mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    bool flag;
    mo_status s = value_of(g, key, index, &e, &v, err);
    if (s != MO_OK || mo_value_integer(&v, out)) {
        return s;
    }
    if (!value_flag(&v, &flag)) { /* in some files, patterns of layers are arrays of flags */
        return unfit(g, e, "an integer of at most 63 bits", err);
    }
    *out = flag;
    return MO_OK;
}

mo_status mo_gguf_f32_of(const mo_gguf *g, const char *key, uint64_t index, float *out, mo_error *err)
{
    const mo_gguf_entry *e;
    mo_value v = {0};
    double r = 0.0;
    mo_status s = value_of(g, key, index, &e, &v, err);
    if (s == MO_OK && (!value_real(&v, &r) || (isfinite(r) && fabs(r) > (double)FLT_MAX))) {
        s = unfit(g, e, "a number", err);
    }
    if (s == MO_OK) {
        *out = (float)r;
    }
    return s;
}

mo_status mo_gguf_array(const mo_gguf *g, const char *key, mo_value_type type, const mo_gguf_entry **out,
                        mo_error *err)
{
    const mo_gguf_entry *e = mo_gguf_find(g, key);
    if (!e) {
        return absent(g, key, err);
    }
    const bool integer = e->type != MO_VALUE_F32 && e->type != MO_VALUE_F64 && e->type != MO_VALUE_BOOL &&
                         e->type != MO_VALUE_STRING;
    if (!e->is_array || (type == MO_VALUE_I64 ? !integer : e->type != type)) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "an array of %s",
                 type == MO_VALUE_I64 ? "integers" : mo_value_type_text(type));
        return unfit(g, e, wanted, err);
    }
    *out = e;
    return MO_OK;
}

mo_status mo_gguf_arch_key(const mo_gguf *g, const char *suffix, char *key, size_t size, mo_error *err)
{
    const char *arch = "";
    mo_status s = mo_gguf_string(g, "general.architecture", &arch, err);
    if (s != MO_OK) {
        return s;
    }
    int used = snprintf(key, size, "%s.%s", arch, suffix);
    if (used < 0 || (size_t)used >= size) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: the name of the architecture is too long; download the file again",
                       g->parts[0].path);
    }
    return MO_OK;
}

/* ---- Text ---- */

typedef struct text {
    char *out;
    size_t size, used; /* `used` also counts text that did not fit */
} text;

static void put(text *t, const char *bytes, size_t n)
{
    if (t->used < t->size) {
        size_t fits = t->size - t->used < n ? t->size - t->used : n;
        memcpy(t->out + t->used, bytes, fits);
    }
    t->used += n;
}

static void putf(text *t, const char *fmt, ...) MO_PRINTF(2, 3);
static void putf(text *t, const char *fmt, ...)
{
    char piece[64];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(piece, sizeof piece, fmt, args);
    va_end(args);
    put(t, piece, n < 0 ? 0 : (size_t)n < sizeof piece ? (size_t)n : sizeof piece - 1);
}

/* Escapes control characters, so that a file cannot send commands to a terminal. C1 controls (U+0080 to
   U+009F) are two bytes in UTF-8; some terminals obey them too. */
static void put_string(text *t, const mo_text *s, bool quoted)
{
    for (size_t i = 0; i < s->length; i++) {
        const uint8_t c = (uint8_t)s->data[i];
        const uint8_t next = i + 1 < s->length ? (uint8_t)s->data[i + 1] : 0;
        if (c == '\n') {
            put(t, "\\n", 2);
        } else if (c == '\t') {
            put(t, "\\t", 2);
        } else if (c == '\r') {
            put(t, "\\r", 2);
        } else if (c == '\\') {
            put(t, "\\\\", 2);
        } else if (quoted && c == '"') {
            put(t, "\\\"", 2);
        } else if (c < 0x20 || c == 0x7f) {
            putf(t, "\\x%02x", c);
        } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {
            putf(t, "\\u%04x", next);
            i++;
        } else {
            put(t, s->data + i, 1);
        }
    }
}

/* The shortest decimal that gives the same number. */
static void put_real(text *t, double value, bool single)
{
    char digits[40];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        double back = 0;
        if (sscanf(digits, "%lf", &back) != 1 || (single ? (float)back == (float)value : back == value)) {
            break;
        }
    }
    put(t, digits, strlen(digits));
}

static void put_value(text *t, const mo_value *v, bool quoted)
{
    switch (v->type) {
    case MO_VALUE_I8:
    case MO_VALUE_I16:
    case MO_VALUE_I32:
    case MO_VALUE_I64: putf(t, "%lld", (long long)v->as.i); break;
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64: putf(t, "%llu", (unsigned long long)v->as.u); break;
    case MO_VALUE_F32: put_real(t, v->as.r, true); break;
    case MO_VALUE_F64: put_real(t, v->as.r, false); break;
    case MO_VALUE_BOOL: putf(t, "%s", v->as.b ? "true" : "false"); break;
    case MO_VALUE_STRING:
        put(t, "\"", quoted);
        put_string(t, &v->as.s, quoted);
        put(t, "\"", quoted);
        break;
    }
}

size_t mo_gguf_entry_text(const mo_gguf *g, const mo_gguf_entry *e, uint64_t max_elements, char *out,
                          size_t size)
{
    text t = {.out = out, .size = size ? size - 1 : 0};
    mo_value v = {0};
    if (!e->is_array) {
        mo_gguf_entry_value(g, e, 0, &v);
        put_value(&t, &v, false);
    } else {
        put(&t, "[", 1);
        for (uint64_t i = 0; i < e->count && i < max_elements; i++) {
            mo_gguf_entry_value(g, e, i, &v);
            put(&t, ", ", i ? 2 : 0);
            put_value(&t, &v, true);
        }
        if (e->count > max_elements) {
            put(&t, max_elements ? ", ...]" : "...]", max_elements ? 6 : 4);
        } else {
            put(&t, "]", 1);
        }
    }
    if (size) {
        out[t.used < t.size ? t.used : t.size] = 0;
    }
    return t.used;
}
