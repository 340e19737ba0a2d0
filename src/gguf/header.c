#include "gguf/header.h"

#include <stdlib.h>
#include <string.h>

void mo_gguf_header_free(mo_gguf_header *h)
{
    free(h->bytes);
    free(h->entries);
    free(h->by_key);
    free(h->tensors);
    mo_arena_destroy(h->arena);
    memset(h, 0, sizeof *h);
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const mo_gguf_entry *const *)a)->key, (*(const mo_gguf_entry *const *)b)->key);
}

const mo_gguf_entry *mo_gguf_header_find(const mo_gguf_header *h, const char *key)
{
    const mo_gguf_entry wanted = {.key = key}, *pointer = &wanted;
    const mo_gguf_entry **found =
        h->entry_count ? bsearch(&pointer, h->by_key, (size_t)h->entry_count, sizeof(void *), by_key) : NULL;
    return found ? *found : NULL;
}

/* ---- Values ---- */

size_t mo_value_type_bytes(mo_value_type type)
{
    switch (type) {
    case MO_VALUE_U8:
    case MO_VALUE_I8:
    case MO_VALUE_BOOL: return 1;
    case MO_VALUE_U16:
    case MO_VALUE_I16: return 2;
    case MO_VALUE_U32:
    case MO_VALUE_I32:
    case MO_VALUE_F32: return 4;
    case MO_VALUE_U64:
    case MO_VALUE_I64:
    case MO_VALUE_F64: return 8;
    case MO_VALUE_STRING: return 0;
    }
    return 0;
}

static int64_t load_signed(const uint8_t *p, size_t bytes)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (bytes) {
    case 1: memcpy(&i8, p, 1); return i8;
    case 2: memcpy(&i16, p, 2); return i16;
    case 4: memcpy(&i32, p, 4); return i32;
    default: memcpy(&i64, p, 8); return i64;
    }
}

void mo_gguf_header_value(const mo_gguf_header *h, const mo_gguf_entry *e, uint64_t index, mo_value *out)
{
    const size_t bytes = mo_value_type_bytes(e->type);
    const size_t at = e->string_at ? e->string_at[index] : e->at + (size_t)index * bytes;
    const uint8_t *p = h->bytes + at;
    float f;
    memset(out, 0, sizeof *out);
    out->type = e->type;
    switch (e->type) {
    case MO_VALUE_I8:
    case MO_VALUE_I16:
    case MO_VALUE_I32:
    case MO_VALUE_I64: out->as.i = load_signed(p, bytes); break;
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64: memcpy(&out->as.u, p, bytes); break; /* little endian; the other bytes are zero */
    case MO_VALUE_F32:
        memcpy(&f, p, sizeof f);
        out->as.r = (double)f;
        break;
    case MO_VALUE_F64: memcpy(&out->as.r, p, sizeof out->as.r); break;
    case MO_VALUE_BOOL: out->as.b = *p != 0; break;
    case MO_VALUE_STRING: {
        uint64_t length;
        memcpy(&length, p, sizeof length);
        out->as.s.length = (size_t)length;
        out->as.s.data = e->text ? e->text : (const char *)p + sizeof length;
        break;
    }
    }
}

bool mo_value_integer(const mo_value *v, int64_t *out)
{
    switch (v->type) {
    case MO_VALUE_I8:
    case MO_VALUE_I16:
    case MO_VALUE_I32:
    case MO_VALUE_I64: *out = v->as.i; return true;
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64:
        if (v->as.u > INT64_MAX) {
            return false;
        }
        *out = (int64_t)v->as.u;
        return true;
    default: return false;
    }
}
