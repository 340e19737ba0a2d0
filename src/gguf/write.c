#include "gguf/write.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"
#include "gguf/header.h"

#define ARRAY 9 /* GGUF's number for arrays, which mo_value_type does not include */

typedef struct buffer {
    uint8_t *bytes;
    size_t size, capacity;
} buffer;

struct mo_gguf_writer {
    mo_error error; /* the first failure; MO_OK until then */
    mo_arena *arena;
    uint32_t alignment;
    bool laid_out;

    buffer entries; /* keys and values as in the file */
    const char **keys;
    int64_t key_count;
    size_t key_capacity;

    mo_gguf_tensor *tensors;
    int64_t tensor_count;
    size_t tensor_capacity;

    mo_gguf_layout file; /* set by mo_gguf_writer_layout() */
};

/* ---- Collecting ---- */

static bool healthy(const mo_gguf_writer *w)
{
    return w && w->error.status == MO_OK && !w->laid_out;
}

static void no_memory(mo_gguf_writer *w)
{
    mo_fail(&w->error, MO_ENOMEM, "out of memory for the header of a model file; free some and try again");
}

static bool append(buffer *b, const void *bytes, size_t n)
{
    if (n > SIZE_MAX - b->size || !mo_array_reserve(&b->bytes, &b->capacity, b->size + n, 1)) {
        return false;
    }
    if (n) {
        memcpy(b->bytes + b->size, bytes, n);
    }
    b->size += n;
    return true;
}

static bool append_u32(buffer *b, uint32_t value)
{
    return append(b, &value, sizeof value);
}

static bool append_u64(buffer *b, uint64_t value)
{
    return append(b, &value, sizeof value);
}

static bool append_text(buffer *b, const char *text, size_t length)
{
    return append_u64(b, length) && append(b, text, length);
}

mo_gguf_writer *mo_gguf_writer_create(uint32_t alignment)
{
    mo_gguf_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->arena = mo_arena_create(0))) {
        free(w);
        return NULL;
    }
    w->alignment = alignment ? alignment : 32;
    if (w->alignment < 8 || w->alignment > (1u << 20) || (w->alignment & (w->alignment - 1))) {
        mo_fail(&w->error, MO_EINVAL, "an alignment of %u is not a power of two between 8 and 1048576",
                alignment);
    }
    if (alignment) {
        mo_gguf_put_u32(w, "general.alignment", alignment);
    }
    return w;
}

void mo_gguf_writer_destroy(mo_gguf_writer *w)
{
    if (!w) {
        return;
    }
    free((void *)w->file.header);
    free(w->tensors);
    free(w->keys);
    free(w->entries.bytes);
    mo_arena_destroy(w->arena);
    free(w);
}

/* Begins an entry. False after a failure. */
static bool put_key(mo_gguf_writer *w, const char *key, uint32_t type)
{
    if (!healthy(w)) {
        return false;
    }
    size_t length = strlen(key);
    if (length == 0 || length > 65535) {
        mo_fail(&w->error, MO_EINVAL, "a key of %zu bytes cannot be written; use 1 to 65535", length);
        return false;
    }
    if (!mo_array_reserve(&w->keys, &w->key_capacity, (size_t)w->key_count + 1, sizeof *w->keys) ||
        !(w->keys[w->key_count] = mo_arena_text(w->arena, key, length)) ||
        !append_text(&w->entries, key, length) || !append_u32(&w->entries, type)) {
        no_memory(w);
        return false;
    }
    w->key_count++;
    return true;
}

static void put_scalar(mo_gguf_writer *w, const char *key, mo_value_type type, const void *value)
{
    if (put_key(w, key, type) && !append(&w->entries, value, mo_value_type_bytes(type))) {
        no_memory(w);
    }
}

#define SCALAR(name, ctype, type)                                                                            \
    void mo_gguf_put_##name(mo_gguf_writer *w, const char *key, ctype value)                                 \
    {                                                                                                        \
        put_scalar(w, key, type, &value);                                                                    \
    }
SCALAR(u8, uint8_t, MO_VALUE_U8)
SCALAR(i8, int8_t, MO_VALUE_I8)
SCALAR(u16, uint16_t, MO_VALUE_U16)
SCALAR(i16, int16_t, MO_VALUE_I16)
SCALAR(u32, uint32_t, MO_VALUE_U32)
SCALAR(i32, int32_t, MO_VALUE_I32)
SCALAR(u64, uint64_t, MO_VALUE_U64)
SCALAR(i64, int64_t, MO_VALUE_I64)
SCALAR(f32, float, MO_VALUE_F32)
SCALAR(f64, double, MO_VALUE_F64)

void mo_gguf_put_bool(mo_gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    put_scalar(w, key, MO_VALUE_BOOL, &byte);
}

void mo_gguf_put_string(mo_gguf_writer *w, const char *key, const char *value)
{
    mo_gguf_put_text(w, key, (mo_text){value, strlen(value)});
}

void mo_gguf_put_text(mo_gguf_writer *w, const char *key, mo_text value)
{
    if (put_key(w, key, MO_VALUE_STRING) && !append_text(&w->entries, value.data, value.length)) {
        no_memory(w);
    }
}

void mo_gguf_put_array(mo_gguf_writer *w, const char *key, mo_value_type type, const void *elements,
                       uint64_t count)
{
    size_t bytes;
    if (!put_key(w, key, ARRAY)) {
        return;
    }
    if (type == MO_VALUE_STRING || __builtin_mul_overflow(mo_value_type_bytes(type), (size_t)count, &bytes)) {
        mo_fail(&w->error, MO_EINVAL, "key %.200s: this array cannot be written", key);
    } else if (!append_u32(&w->entries, type) || !append_u64(&w->entries, count) ||
               !append(&w->entries, elements, bytes)) {
        no_memory(w);
    }
}

void mo_gguf_put_texts(mo_gguf_writer *w, const char *key, const mo_text *elements, uint64_t count)
{
    if (!put_key(w, key, ARRAY)) {
        return;
    }
    bool fine = append_u32(&w->entries, MO_VALUE_STRING) && append_u64(&w->entries, count);
    for (uint64_t i = 0; i < count && fine; i++) {
        fine = append_text(&w->entries, elements[i].data, elements[i].length);
    }
    if (!fine) {
        no_memory(w);
    }
}

static bool append_value(buffer *b, const mo_value *value)
{
    float real;
    uint8_t flag;
    switch (value->type) {
    case MO_VALUE_STRING: return append_text(b, value->as.s.data, value->as.s.length);
    case MO_VALUE_F32:
        real = (float)value->as.r; /* exact: it was a float */
        return append(b, &real, sizeof real);
    case MO_VALUE_BOOL: flag = value->as.b; return append(b, &flag, sizeof flag);
    default: /* little endian: low bytes first */
        return append(b, &value->as, mo_value_type_bytes(value->type));
    }
}

void mo_gguf_put_entry(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry)
{
    mo_metadata_info info;
    mo_gguf_entry_info(entry, &info);
    mo_gguf_put_first(w, g, entry, info.count);
}

void mo_gguf_put_first(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry, uint64_t count)
{
    mo_metadata_info info;
    mo_value value;
    mo_gguf_entry_info(entry, &info);
    if (!put_key(w, info.key, info.is_array ? ARRAY : info.type)) {
        return;
    }
    bool fine = !info.is_array || (append_u32(&w->entries, info.type) && append_u64(&w->entries, count));
    for (uint64_t i = 0; i < count && fine; i++) {
        fine = mo_gguf_entry_value(g, entry, i, &value) && append_value(&w->entries, &value);
    }
    if (!fine) {
        no_memory(w);
    }
}

/* Computes the number of values and bytes. False if the sizes are invalid. */
static bool measure(mo_gguf_writer *w, mo_gguf_tensor *t, const char *name)
{
    t->values = 1;
    for (int d = 0; d < 4; d++) {
        if (t->size[d] < 1 || __builtin_mul_overflow(t->values, t->size[d], &t->values)) {
            mo_fail(&w->error, MO_EINVAL, "tensor %s: its dimensions cannot be written", name);
            return false;
        }
    }
    if (t->size[0] % t->format->block_values != 0) {
        mo_fail(&w->error, MO_EINVAL,
                "tensor %s: rows of %lld values are not a multiple of the %d of a %s block", name,
                (long long)t->size[0], t->format->block_values, t->format->name);
        return false;
    }
    if (__builtin_mul_overflow(t->values / t->format->block_values, (int64_t)t->format->block_bytes,
                               &t->bytes)) {
        mo_fail(&w->error, MO_EINVAL, "tensor %s: its dimensions cannot be written", name);
        return false;
    }
    return true;
}

int64_t mo_gguf_put_tensor(mo_gguf_writer *w, const char *name, mo_type type, int dims, const int64_t *size)
{
    size_t length = strlen(name);
    const mo_format *format = mo_format_of((uint32_t)type);
    if (!healthy(w)) {
        return -1;
    }
    if (!format || dims < 1 || dims > 4 || length == 0 || length >= MO_GGUF_NAME) {
        mo_fail(&w->error, MO_EINVAL,
                "tensor %.80s: its name, type or number of dimensions cannot be written", name);
        return -1;
    }
    if (!mo_array_reserve(&w->tensors, &w->tensor_capacity, (size_t)w->tensor_count + 1,
                          sizeof *w->tensors)) {
        no_memory(w);
        return -1;
    }
    mo_gguf_tensor *t = &w->tensors[w->tensor_count];
    *t = (mo_gguf_tensor){.format = format, .dims = dims, .size = {1, 1, 1, 1}};
    memcpy(t->size, size, (size_t)dims * sizeof *size);
    if (!measure(w, t, name)) {
        return -1;
    }
    t->name = mo_arena_text(w->arena, name, length);
    if (!t->name) {
        no_memory(w);
        return -1;
    }
    return w->tensor_count++;
}

/* ---- Layout ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fails if a name occurs twice. Sorts the names. */
static void check_unique(mo_gguf_writer *w, const char **names, int64_t count, const char *what)
{
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (int64_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            mo_fail(&w->error, MO_EINVAL, "%s %.200s was added twice", what, names[i]);
            return;
        }
    }
}

static void check_names(mo_gguf_writer *w)
{
    const char **names = calloc((size_t)w->tensor_count + 1, sizeof *names);
    if (!names) {
        no_memory(w);
        return;
    }
    for (int64_t i = 0; i < w->tensor_count; i++) {
        names[i] = w->tensors[i].name;
    }
    check_unique(w, names, w->tensor_count, "tensor");
    free(names);
    if (w->key_count) {
        check_unique(w, w->keys, w->key_count, "key");
    }
}

static int64_t align_up(const mo_gguf_writer *w, int64_t n)
{
    return (n + w->alignment - 1) & ~((int64_t)w->alignment - 1);
}

static bool append_info(buffer *b, const mo_gguf_tensor *t, int64_t relative)
{
    return append_text(b, t->name, strlen(t->name)) && append_u32(b, (uint32_t)t->dims) &&
           append(b, t->size, (size_t)t->dims * sizeof *t->size) && append_u32(b, t->format->type) &&
           append_u64(b, (uint64_t)relative);
}

static void lay_out(mo_gguf_writer *w)
{
    static const uint8_t zeros[64];
    buffer b = {0};
    int64_t relative = 0;
    bool fine = append(&b, "GGUF", 4) && append_u32(&b, 3) && append_u64(&b, (uint64_t)w->tensor_count) &&
                append_u64(&b, (uint64_t)w->key_count) && append(&b, w->entries.bytes, w->entries.size);
    for (int64_t i = 0; i < w->tensor_count && fine; i++) {
        mo_gguf_tensor *t = &w->tensors[i];
        t->offset = relative;
        fine = append_info(&b, t, relative);
        if (INT64_MAX / 2 - relative < t->bytes) {
            mo_fail(&w->error, MO_EINVAL, "the tensors are larger than a file can be");
            fine = false;
        } else {
            relative = align_up(w, relative + t->bytes);
        }
    }
    while (fine && (b.size & (w->alignment - 1))) {
        size_t missing = w->alignment - (b.size & (w->alignment - 1));
        fine = append(&b, zeros, missing < sizeof zeros ? missing : sizeof zeros);
    }
    for (int64_t i = 0; i < w->tensor_count; i++) {
        w->tensors[i].offset += (int64_t)b.size;
    }
    w->file = (mo_gguf_layout){b.bytes, b.size, (int64_t)b.size + relative};
    if (!fine && w->error.status == MO_OK) {
        no_memory(w);
    }
}

mo_status mo_gguf_writer_layout(mo_gguf_writer *w, mo_error *err)
{
    if (!w) {
        return mo_fail(err, MO_ENOMEM, "out of memory while writing a model file; free some and try again");
    }
    if (healthy(w)) {
        check_names(w);
    }
    if (healthy(w)) {
        lay_out(w);
        w->laid_out = true;
    }
    return w->error.status == MO_OK ? MO_OK : mo_fail(err, w->error.status, "%s", w->error.detail);
}

const mo_gguf_tensor *mo_gguf_writer_tensor(const mo_gguf_writer *w, int64_t index)
{
    return index >= 0 && index < w->tensor_count ? &w->tensors[index] : NULL;
}

const mo_gguf_layout *mo_gguf_writer_file(const mo_gguf_writer *w)
{
    return w->laid_out && w->error.status == MO_OK ? &w->file : NULL;
}
