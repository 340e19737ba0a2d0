#include "numeric/kv.h"

typedef struct vector {
    uint8_t *codes, *scale;
    int u, length; /* of the block */
    int low;       /* from the plane of high bytes to that of low ones */
    bool value;
} vector;

static vector find(const mo_kv_head *kv, int64_t u, bool value)
{
    uint8_t *block = mo_kv_block(kv, u);
    const int at = (int)(u % MO_KV_BLOCK), length = (int)(value ? kv->v_len : kv->k_len);
    return (vector){.codes = block + (value ? kv->v_at : kv->k_at),
                    .scale = block + (value ? kv->vs_at : kv->ks_at) + sizeof(float) * (size_t)at,
                    .u = at,
                    .length = length,
                    .low = MO_KV_BLOCK * mo_kv_padded(length),
                    .value = value};
}

static uint8_t *code_of(const vector *v, int i)
{
    return v->codes + (v->value ? mo_kv_value_code(v->u, i, v->length) : mo_kv_key_code(v->u, i));
}

/* Channels that follow each other in the cache from i on. */
static int run_of(const vector *v, int i)
{
    const int left = v->length - i;
    return v->value ? 1 : left < MO_KV_UNIT ? left : MO_KV_UNIT;
}

void mo_kv_codes_in(const mo_kv_head *kv, int64_t u, bool value, const uint8_t *row)
{
    const vector v = find(kv, u, value);
    for (int i = 0, some; i < v.length; i += some) {
        uint8_t *to = code_of(&v, i);
        some = run_of(&v, i);
        memcpy(to, row + i, (size_t)some);
        memcpy(to + v.low, row + v.length + i, (size_t)some);
    }
    memcpy(v.scale, row + (ptrdiff_t)2 * v.length, sizeof(float));
}

void mo_kv_codes_out(const mo_kv_head *kv, int64_t u, bool value, uint8_t *row)
{
    const vector v = find(kv, u, value);
    for (int i = 0, some; i < v.length; i += some) {
        const uint8_t *from = code_of(&v, i);
        some = run_of(&v, i);
        memcpy(row + i, from, (size_t)some);
        memcpy(row + v.length + i, from + v.low, (size_t)some);
    }
    memcpy(row + (ptrdiff_t)2 * v.length, v.scale, sizeof(float));
}
