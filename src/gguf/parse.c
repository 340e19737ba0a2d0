/* Parse: reads the header of one file. The file is untrusted: every count is compared with the rest of the
   file before it is used, and memory grows with the bytes actually read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/size_text.h"
#include "base/status.h"
#include "gguf/cursor.h"
#include "gguf/header.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF fields are copied as they are");

#define FILE_LIMIT  ((int64_t)1 << 50) /* bytes: sums over many files fit 63 bits */
#define COUNT_LIMIT 1000000            /* keys, tensors; old files with one tensor per expert have 100k */
#define KEY_LIMIT   65535              /* maximum bytes of a key in the GGUF specification */
#define ALIGN_LIMIT (1u << 20)
#define ARRAY       9 /* GGUF's number for arrays, which mo_value_type does not include */

/* Minimum bytes of a key with its value, and of a tensor's description. */
#define ENTRY_BYTES  (8 + 4 + 1)
#define TENSOR_BYTES (8 + 4 + 4 + 8)

/* ---- Recognizing the file ---- */

static mo_status not_gguf(mo_cursor *c, const uint8_t magic[4])
{
    static const struct {
        const char *magic, *what;
    } known[] = {
        {"GGML", "a GGML file of an older format; convert the original model to GGUF"},
        {"lmgg", "a GGML file of an older format; convert the original model to GGUF"},
        {"fmgg", "a GGML file of an older format; convert the original model to GGUF"},
        {"tjgg", "a GGML file of an older format; convert the original model to GGUF"},
        {"FUGG", "a GGUF file for big-endian machines; download or convert the little-endian one"},
        {"vers", "probably a Git LFS pointer, not the model; download the model itself (git lfs pull)"},
        {"<!DO", "a web page, not a model; check the URL"},
        {"<!do", "a web page, not a model; check the URL"},
        {"<htm", "a web page, not a model; check the URL"},
        {"PK\3\4", "a zip archive; unpack it or convert the model to GGUF"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (memcmp(magic, known[i].magic, 4) == 0) {
            return mo_fail(c->err, MO_EFORMAT, "%s is %s", c->source->name, known[i].what);
        }
    }
    uint8_t next[5]; /* a length of 8 bytes, then JSON: safetensors */
    if (mo_cursor_read(c, next, sizeof next) == MO_OK && memcmp(next, "\0\0\0\0{", sizeof next) == 0) {
        return mo_fail(c->err, MO_EFORMAT,
                       "%s is a safetensors file; pull the model in GGUF format, or convert it with "
                       "llama.cpp's convert_hf_to_gguf.py",
                       c->source->name);
    }
    return mo_fail(
        c->err, MO_EFORMAT,
        "%s is not a GGUF file: it starts with the bytes %02x %02x %02x %02x; give a model in GGUF format",
        c->source->name, magic[0], magic[1], magic[2], magic[3]);
}

static mo_status read_version(mo_cursor *c, mo_gguf_header *h)
{
    uint8_t magic[4];
    if (c->source->bytes == 0) {
        return mo_fail(c->err, MO_EFORMAT, "%s is empty; download it again", c->source->name);
    }
    if (c->source->bytes < 0 || c->source->bytes > FILE_LIMIT) {
        return mo_fail(c->err, MO_EUNSUPPORTED, "%s is larger than 1 PiB", c->source->name);
    }
    snprintf(c->where, sizeof c->where, "the start of the file");
    mo_status s = mo_cursor_read(c, magic, sizeof magic);
    if (s == MO_OK && memcmp(magic, "GGUF", 4) != 0) {
        return not_gguf(c, magic);
    }
    if (s == MO_OK) {
        s = mo_cursor_read(c, &h->version, sizeof h->version);
    }
    if (s != MO_OK) {
        return s;
    }
    if (h->version == 2 || h->version == 3) {
        return MO_OK;
    }
    if (h->version == 1) {
        return mo_fail(c->err, MO_EUNSUPPORTED,
                       "%s is GGUF version 1, which is obsolete; convert the original model again",
                       c->source->name);
    }
    if (h->version != 0 && (h->version & 0xffff) == 0) {
        return mo_fail(c->err, MO_EUNSUPPORTED,
                       "%s is a GGUF file for big-endian machines; download or convert the little-endian one",
                       c->source->name);
    }
    if (h->version > 3 && h->version < 256) {
        return mo_fail(c->err, MO_EUNSUPPORTED,
                       "%s is GGUF version %u, but this program supports 2 and 3; look for a newer Moraine",
                       c->source->name, h->version);
    }
    return mo_cursor_damaged(c, "has an invalid version");
}

/* ---- Keys and values ---- */

static bool known_type(uint32_t type)
{
    return type <= MO_VALUE_F64 && type != ARRAY;
}

static mo_status unknown_type(mo_cursor *c, uint32_t type)
{
    return mo_fail(c->err, MO_EFORMAT,
                   "%s: %s has the unknown value type %u; the file is damaged, or newer than this program",
                   c->source->name, c->where, type);
}

/* Checks all strings once, which also bounds the memory for their offsets. */
static mo_status read_string_array(mo_cursor *c, mo_gguf_header *h, mo_gguf_entry *e)
{
    size_t at, length;
    for (uint64_t i = 0; i < e->count; i++) {
        mo_status s = mo_cursor_skip_string(c, &at, &length);
        if (s != MO_OK) {
            return s;
        }
    }
    e->string_at = mo_arena_array(h->arena, (size_t)e->count, sizeof *e->string_at);
    if (!e->string_at) {
        return mo_cursor_no_memory(c);
    }
    at = e->at;
    for (uint64_t i = 0; i < e->count; i++) {
        uint64_t n;
        e->string_at[i] = (uint32_t)at;
        memcpy(&n, c->bytes + at, sizeof n);
        at += sizeof n + (size_t)n;
    }
    return MO_OK;
}

static mo_status check_flags(mo_cursor *c, const mo_gguf_entry *e)
{
    for (uint64_t i = 0; i < e->count; i++) {
        if (c->bytes[e->at + i] > 1) {
            return mo_cursor_damaged(c, "has a boolean that is neither 0 nor 1");
        }
    }
    return MO_OK;
}

static mo_status read_array(mo_cursor *c, mo_gguf_header *h, mo_gguf_entry *e)
{
    uint32_t type;
    mo_status s = mo_cursor_read(c, &type, sizeof type);
    if (s == MO_OK) {
        s = mo_cursor_read(c, &e->count, sizeof e->count);
    }
    if (s != MO_OK) {
        return s;
    }
    if (type == ARRAY) {
        return mo_fail(
            c->err, MO_EUNSUPPORTED,
            "%s: %s is an array of arrays, which is not supported; the file is damaged or not a model",
            c->source->name, c->where);
    }
    if (!known_type(type)) {
        return unknown_type(c, type);
    }
    e->is_array = true;
    e->type = (mo_value_type)type;
    e->at = c->at;
    size_t each = type == MO_VALUE_STRING ? sizeof(uint64_t) : mo_value_type_bytes(e->type);
    if (e->count > MO_HEADER_LIMIT / each) {
        return mo_cursor_damaged(c, "claims an array larger than a header may be");
    }
    s = mo_cursor_need(c, e->count * each); /* for strings: their minimum size */
    if (s != MO_OK) {
        return s;
    }
    if (e->type == MO_VALUE_STRING) {
        return read_string_array(c, h, e);
    }
    c->at += (size_t)(e->count * each);
    return e->type == MO_VALUE_BOOL ? check_flags(c, e) : MO_OK;
}

static mo_status read_value(mo_cursor *c, mo_gguf_header *h, mo_gguf_entry *e)
{
    uint32_t type;
    mo_status s = mo_cursor_read(c, &type, sizeof type);
    if (s != MO_OK) {
        return s;
    }
    if (type == ARRAY) {
        return read_array(c, h, e);
    }
    if (!known_type(type)) {
        return unknown_type(c, type);
    }
    e->type = (mo_value_type)type;
    e->count = 1;
    e->at = c->at;
    if (e->type == MO_VALUE_STRING) {
        size_t at, length;
        s = mo_cursor_skip_string(c, &at, &length);
        if (s == MO_OK) {
            e->text = mo_arena_text(h->arena, (const char *)c->bytes + at, length);
            s = e->text ? MO_OK : mo_cursor_no_memory(c);
        }
        return s;
    }
    s = mo_cursor_skip(c, mo_value_type_bytes(e->type));
    return s == MO_OK && e->type == MO_VALUE_BOOL ? check_flags(c, e) : s;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const mo_gguf_entry *const *)a)->key, (*(const mo_gguf_entry *const *)b)->key);
}

static mo_status sort_entries(mo_cursor *c, mo_gguf_header *h)
{
    h->by_key = calloc((size_t)h->entry_count + 1, sizeof(void *));
    if (!h->by_key) {
        return mo_cursor_no_memory(c);
    }
    for (int64_t i = 0; i < h->entry_count; i++) {
        h->by_key[i] = &h->entries[i];
    }
    qsort(h->by_key, (size_t)h->entry_count, sizeof(void *), by_key);
    for (int64_t i = 1; i < h->entry_count; i++) {
        if (strcmp(h->by_key[i - 1]->key, h->by_key[i]->key) == 0) {
            return mo_fail(c->err, MO_EFORMAT,
                           "%s: key %.200s occurs twice; the file is damaged or malformed, download or "
                           "convert it again",
                           c->source->name, h->by_key[i]->key);
        }
    }
    return MO_OK;
}

static mo_status read_entries(mo_cursor *c, mo_gguf_header *h, int64_t count)
{
    size_t capacity = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!mo_array_reserve(&h->entries, &capacity, (size_t)i + 1, sizeof *h->entries)) {
            return mo_cursor_no_memory(c);
        }
        mo_gguf_entry *e = &h->entries[i];
        memset(e, 0, sizeof *e);
        snprintf(c->where, sizeof c->where, "key %lld of %lld", (long long)i + 1, (long long)count);
        mo_status s = mo_cursor_read_name(c, h->arena, KEY_LIMIT, &e->key);
        if (s == MO_OK) {
            snprintf(c->where, sizeof c->where, "key %.120s", e->key);
            s = read_value(c, h, e);
        }
        if (s != MO_OK) {
            return s;
        }
        h->entry_count = i + 1;
    }
    return sort_entries(c, h);
}

/* ---- Tensors ---- */

static mo_status unknown_format(mo_cursor *c, const mo_gguf_tensor *t, uint32_t type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } others[] = {
        {4, "Q4_2, which is obsolete"},
        {5, "Q4_3, which is obsolete"},
        {9, "Q8_1"},
        {15, "Q8_K"},
        {24, "I8"},
        {25, "I16"},
        {28, "F64"},
        {36, "I2_S of BitNet's forks"},
        {137, "IQ2_K of ik_llama.cpp"},
        {138, "IQ3_K of ik_llama.cpp"},
        {139, "IQ4_K of ik_llama.cpp"},
        {140, "IQ5_K of ik_llama.cpp"},
        {141, "IQ6_K of ik_llama.cpp"},
        {142, "PQ2_0 of PrismML's fork"},
        {143, "PTQ1_0 of PrismML's fork"},
        {144, "IQ4_KS of ik_llama.cpp"},
        {145, "IQ2_KS of ik_llama.cpp"},
        {146, "IQ4_KSS of ik_llama.cpp"},
        {156, "IQ3_KS of ik_llama.cpp"},
        {157, "IQ2_KL of ik_llama.cpp"},
        {158, "IQ1_KT of ik_llama.cpp"},
    };
    char name[40] = "";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].type == type) {
            snprintf(name, sizeof name, " (%s)", others[i].name);
        }
    }
    if (!*name && type > 132 && type < 256) {
        snprintf(name, sizeof name, " (from a fork of llama.cpp)");
    }
    return mo_fail(c->err, MO_EUNSUPPORTED,
                   "%s: tensor %s has type %u%s, which Moraine does not support; download "
                   "another quantization of the model or requantize it, for example to Q4_K",
                   c->source->name, t->name, type, name);
}

/* Computes the number of values and bytes. Refuses sizes that do not fit 63 bits. */
static mo_status measure(mo_cursor *c, mo_gguf_tensor *t)
{
    t->values = 1;
    for (int d = 0; d < 4; d++) {
        if (t->size[d] < 1) {
            return mo_cursor_damaged(c, "has a dimension below 1");
        }
        if (__builtin_mul_overflow(t->values, t->size[d], &t->values)) {
            return mo_cursor_damaged(c, "has invalid dimensions");
        }
    }
    if (t->size[0] % t->format->block_values != 0) {
        return mo_fail(c->err, MO_EFORMAT,
                       "%s: tensor %s has rows of %lld values, not a multiple of the %d of a %s "
                       "block; the file is damaged or malformed, download or requantize it again",
                       c->source->name, t->name, (long long)t->size[0], t->format->block_values,
                       t->format->name);
    }
    if (__builtin_mul_overflow(t->values / t->format->block_values, (int64_t)t->format->block_bytes,
                               &t->bytes)) {
        return mo_cursor_damaged(c, "has invalid dimensions");
    }
    return MO_OK;
}

static mo_status read_tensor(mo_cursor *c, mo_gguf_header *h, mo_gguf_tensor *t)
{
    uint32_t dims, type;
    uint64_t offset;
    mo_status s = mo_cursor_read_name(c, h->arena, MO_GGUF_NAME - 1, &t->name);
    if (s != MO_OK) {
        return s;
    }
    snprintf(c->where, sizeof c->where, "tensor %s", t->name);
    s = mo_cursor_read(c, &dims, sizeof dims);
    if (s != MO_OK) {
        return s;
    }
    if (dims > 4) {
        return mo_cursor_damaged(c, "has more than 4 dimensions");
    }
    t->dims = (int)dims;
    for (int d = 0; d < 4; d++) {
        t->size[d] = 1;
    }
    s = mo_cursor_read(c, t->size, dims * sizeof *t->size);
    if (s == MO_OK) {
        s = mo_cursor_read(c, &type, sizeof type);
    }
    if (s == MO_OK) {
        s = mo_cursor_read(c, &offset, sizeof offset);
    }
    if (s != MO_OK) {
        return s;
    }
    t->format = mo_format_of(type);
    if (!t->format) {
        return unknown_format(c, t, type);
    }
    if (offset > INT64_MAX) {
        return mo_cursor_damaged(c, "is at an invalid offset");
    }
    t->offset = (int64_t)offset; /* relative to the tensor data until place_tensors() */
    return measure(c, t);
}

static mo_status read_tensors(mo_cursor *c, mo_gguf_header *h, int64_t count)
{
    size_t capacity = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!mo_array_reserve(&h->tensors, &capacity, (size_t)i + 1, sizeof *h->tensors)) {
            return mo_cursor_no_memory(c);
        }
        memset(&h->tensors[i], 0, sizeof h->tensors[i]);
        snprintf(c->where, sizeof c->where, "tensor %lld of %lld", (long long)i + 1, (long long)count);
        mo_status s = read_tensor(c, h, &h->tensors[i]);
        if (s != MO_OK) {
            return s;
        }
        h->tensor_count = i + 1;
    }
    return MO_OK;
}

static int by_offset(const void *a, const void *b)
{
    const mo_gguf_tensor *const x = *(const mo_gguf_tensor *const *)a;
    const mo_gguf_tensor *const y = *(const mo_gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static mo_status check_overlap(mo_cursor *c, const mo_gguf_header *h)
{
    bool ordered = true;
    for (int64_t i = 1; i < h->tensor_count && ordered; i++) {
        const mo_gguf_tensor *before = &h->tensors[i - 1];
        ordered = before->offset + before->bytes <= h->tensors[i].offset;
    }
    if (ordered) {
        return MO_OK;
    }
    const mo_gguf_tensor **sorted = calloc((size_t)h->tensor_count, sizeof(void *));
    if (!sorted) {
        return mo_cursor_no_memory(c);
    }
    for (int64_t i = 0; i < h->tensor_count; i++) {
        sorted[i] = &h->tensors[i];
    }
    qsort(sorted, (size_t)h->tensor_count, sizeof(void *), by_offset);
    mo_status s = MO_OK;
    for (int64_t i = 1; i < h->tensor_count && s == MO_OK; i++) {
        if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset) {
            s = mo_fail(c->err, MO_EFORMAT,
                        "%s: tensors %s and %s overlap; the file is damaged or malformed, download or "
                        "convert it again",
                        c->source->name, sorted[i - 1]->name, sorted[i]->name);
        }
    }
    free(sorted);
    return s;
}

/* Converts offsets to positions in the file. For a tensor past the end the error is an incomplete download if
   the layout is otherwise normal, and damage if not. */
static mo_status place_tensors(mo_cursor *c, mo_gguf_header *h)
{
    const int64_t mask = (int64_t)h->alignment - 1;
    h->data_start = ((int64_t)c->at + mask) & ~mask;
    int64_t layout_end = h->data_start, missing = 0;
    bool layout_known = true;
    const mo_gguf_tensor *last = NULL;
    for (int64_t i = 0; i < h->tensor_count; i++) {
        mo_gguf_tensor *t = &h->tensors[i];
        int64_t end;
        snprintf(c->where, sizeof c->where, "tensor %s", t->name);
        if (t->offset & mask) {
            return mo_cursor_damaged(c, "is at an offset that is not aligned");
        }
        if (__builtin_add_overflow(t->offset, h->data_start, &t->offset) ||
            __builtin_add_overflow(t->offset, t->bytes, &end)) {
            return mo_cursor_damaged(c, "is at an invalid offset");
        }
        if (layout_known && (__builtin_add_overflow(layout_end, t->bytes, &layout_end) ||
                             __builtin_add_overflow(layout_end, mask, &layout_end))) {
            layout_known = false;
        }
        layout_end &= ~mask;
        if (end - h->file_bytes > missing) {
            missing = end - h->file_bytes;
            last = t;
        }
    }
    if (!last) {
        return check_overlap(c, h);
    }
    snprintf(c->where, sizeof c->where, "tensor %s", last->name);
    if (!layout_known || last->offset + last->bytes > layout_end) {
        return mo_cursor_damaged(c, "is outside the file, at an offset that no layout has");
    }
    char text[32];
    return mo_fail(
        c->err, MO_EFORMAT,
        "%s: tensor %s ends past the end of the file; the download is probably cut short: %s are missing",
        c->source->name, last->name, mo_size_text((uint64_t)missing, text));
}

/* ---- The whole header ---- */

static mo_status read_count(mo_cursor *c, const char *what, uint64_t least, int64_t *out)
{
    uint64_t n;
    snprintf(c->where, sizeof c->where, "the number of %s", what);
    mo_status s = mo_cursor_read(c, &n, sizeof n);
    if (s != MO_OK) {
        return s;
    }
    if (n > COUNT_LIMIT || n > (uint64_t)c->source->bytes / least) {
        return mo_fail(c->err, MO_EFORMAT,
                       "%s claims to have %llu %s, more than a file of %lld bytes can hold "
                       "or a model needs; it is damaged or truncated, download it again",
                       c->source->name, (unsigned long long)n, what, (long long)c->source->bytes);
    }
    *out = (int64_t)n;
    return MO_OK;
}

static mo_status find_alignment(mo_cursor *c, mo_gguf_header *h)
{
    const mo_gguf_entry *e = mo_gguf_header_find(h, "general.alignment");
    h->alignment = 32;
    if (e) {
        mo_value value;
        int64_t n = 0;
        if (!e->is_array) {
            mo_gguf_header_value(h, e, 0, &value);
        }
        if (e->is_array || !mo_value_integer(&value, &n) || n < 8 || n > ALIGN_LIMIT || (n & (n - 1))) {
            snprintf(c->where, sizeof c->where, "general.alignment");
            return mo_cursor_damaged(c, "is not a power of two between 8 and 1048576");
        }
        h->alignment = (uint32_t)n;
    }
    return MO_OK;
}

static mo_status parse(mo_cursor *c, mo_gguf_header *h)
{
    int64_t tensors = 0, entries = 0;
    mo_status s = read_version(c, h);
    if (s == MO_OK) {
        s = read_count(c, "tensors", TENSOR_BYTES, &tensors);
    }
    if (s == MO_OK) {
        s = read_count(c, "keys", ENTRY_BYTES, &entries);
    }
    if (s == MO_OK) {
        s = read_entries(c, h, entries);
    }
    if (s == MO_OK) {
        h->bytes = c->bytes; /* values are read from it; may still move */
        s = find_alignment(c, h);
    }
    if (s == MO_OK) {
        h->size = c->at;
        s = read_tensors(c, h, tensors);
    }
    return s == MO_OK ? place_tensors(c, h) : s;
}

mo_status mo_gguf_header_parse(const mo_gguf_source *source, mo_gguf_header *out, mo_error *err)
{
    mo_cursor c = {.source = source, .err = err};
    memset(out, 0, sizeof *out);
    out->file_bytes = source->bytes;
    out->arena = mo_arena_create(0);
    mo_status s = out->arena ? parse(&c, out) : mo_cursor_no_memory(&c);
    out->bytes = c.bytes;
    if (s != MO_OK) {
        mo_gguf_header_free(out);
        return s;
    }
    /* Keeps the part with the values and frees the rest. */
    uint8_t *bytes = realloc(out->bytes, out->size);
    out->bytes = bytes ? bytes : out->bytes;
    return MO_OK; /* cppcheck-suppress memleak ; `out` owns it */
}
