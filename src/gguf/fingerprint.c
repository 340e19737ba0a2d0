#include "gguf/fingerprint.h"

#include <string.h>

#include "base/hash.h"
#include "gguf/model.h"

/* Numbers are hashed as eight bytes, lowest first; texts are preceded by their length. */
static uint64_t mix_number(uint64_t hash, uint64_t n)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(n >> (8 * i));
    }
    return mo_hash(hash, bytes, sizeof bytes);
}

static uint64_t mix_text(uint64_t hash, const char *text, size_t length)
{
    return mo_hash(mix_number(hash, length), text, length);
}

static uint64_t mix_value(uint64_t hash, const mo_value *v)
{
    uint64_t bits;
    switch (v->type) {
    case MO_VALUE_F32:
    case MO_VALUE_F64: memcpy(&bits, &v->as.r, sizeof bits); return mix_number(hash, bits);
    case MO_VALUE_STRING: return mix_text(hash, v->as.s.data, v->as.s.length);
    case MO_VALUE_BOOL: return mix_number(hash, v->as.b);
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64: return mix_number(hash, v->as.u);
    default: return mix_number(hash, (uint64_t)v->as.i);
    }
}

/* Is the key part of the model's identity? */
static bool counts(const char *key, const char *arch)
{
    static const char *const general[] = {"general.architecture", "general.name",    "general.basename",
                                          "general.finetune",     "general.version", "general.size_label"};
    for (size_t i = 0; i < sizeof general / sizeof general[0]; i++) {
        if (strcmp(key, general[i]) == 0) {
            return true;
        }
    }
    const size_t length = strlen(arch);
    return length > 0 && strncmp(key, arch, length) == 0 && key[length] == '.';
}

static uint64_t mix_keys(uint64_t hash, const mo_gguf_header *h, const char *arch)
{
    for (int64_t i = 0; i < h->entry_count; i++) {
        const mo_gguf_entry *e = h->by_key[i];
        if (!counts(e->key, arch)) {
            continue;
        }
        hash = mix_text(hash, e->key, strlen(e->key));
        hash = mix_number(hash, e->is_array);
        hash = mix_number(hash, e->count);
        for (uint64_t k = 0; k < e->count; k++) {
            mo_value v;
            mo_gguf_header_value(h, e, k, &v);
            hash = mix_value(hash, &v);
        }
    }
    return hash;
}

static uint64_t mix_tensor(uint64_t hash, const mo_gguf_tensor *t)
{
    hash = mix_text(hash, t->name, strlen(t->name));
    hash = mix_number(hash, (uint64_t)t->format->type);
    for (int i = 0; i < 4; i++) {
        hash = mix_number(hash, (uint64_t)t->size[i]);
    }
    return mix_number(hash, (uint64_t)t->bytes);
}

uint64_t mo_gguf_fingerprint(const mo_gguf *g)
{
    const char *arch;
    uint64_t hash = MO_HASH_SEED;
    if (mo_gguf_string_or(g, "general.architecture", "", &arch, NULL) != MO_OK) {
        arch = "";
    }
    hash = mix_keys(hash, &g->parts[0].header, arch);
    for (int64_t i = 0; i < g->tensor_count; i++) {
        hash = mix_tensor(hash, g->by_name[i]);
    }
    return hash ? hash : 1;
}
