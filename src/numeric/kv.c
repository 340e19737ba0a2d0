#include "numeric/kv.h"

/* Where a vector's codes are: runs of `run` bytes, `step` bytes apart, in the plane of high bytes; where there are low ones, they are
 * `low` further. */
typedef struct places {
    uint8_t *codes, *scale, *other; /* other: the same scale once more, of a shared row; NULL: none */
    int64_t length, run, step, low;
} places;

static places find(const mo_kv_head *kv, int64_t u, bool value)
{
    uint8_t *block = mo_kv_block(kv, u);
    if (kv->tail) {
        const int first = value ? 0 : mo_kv_padded((int)kv->v_len), in_block = (int)(u % MO_KV_BLOCK);
        return (places){.codes = block + kv->k_at + mo_kv_key_code(in_block, first),
                        .scale = block + (value ? kv->vs_at : kv->ks_at) + sizeof(float) * (size_t)in_block,
                        .length = value ? kv->v_len : kv->tail,
                        .run = MO_KV_UNIT,
                        .step = MO_KV_UNIT * MO_KV_BLOCK,
                        .low = (int64_t)MO_KV_BLOCK * mo_kv_plane((int)kv->k_len, (int)kv->tail)};
    }
    const int at = (int)(u % MO_KV_BLOCK), length = (int)(value ? kv->v_len : kv->k_len);
    if (kv->shared) {
        value = false;
    }
    const int first = value ? mo_kv_value_code(at, 0, length) : mo_kv_key_code(at, 0);
    return (places){.codes = block + (value ? kv->v_at : kv->k_at) + first,
                    .scale = block + (value ? kv->vs_at : kv->ks_at) + sizeof(float) * (size_t)at,
                    .other = kv->shared ? block + kv->vs_at + sizeof(float) * (size_t)at : NULL,
                    .length = length,
                    .run = value ? 1 : MO_KV_UNIT,
                    .step = value ? MO_KV_UNIT : MO_KV_UNIT * MO_KV_BLOCK,
                    .low = (int64_t)MO_KV_BLOCK * mo_kv_padded(length)};
}

/* One plane between its places and a row. */
static void write_plane(const places *p, uint8_t *to, const uint8_t *row)
{
    int64_t i = 0;
    for (; p->run == 1 && i < p->length; i++) {
        to[i * MO_KV_UNIT] = row[i];
    }
    for (; i + MO_KV_UNIT <= p->length; i += MO_KV_UNIT, to += p->step) {
        memcpy(to, row + i, MO_KV_UNIT);
    }
    memcpy(to, row + i, (size_t)(p->length - i));
}

static void read_plane(const places *p, const uint8_t *from, uint8_t *row)
{
    int64_t i = 0;
    for (; p->run == 1 && i < p->length; i++) {
        row[i] = from[i * MO_KV_UNIT];
    }
    for (; i + MO_KV_UNIT <= p->length; i += MO_KV_UNIT, from += p->step) {
        memcpy(row + i, from, MO_KV_UNIT);
    }
    memcpy(row + i, from, (size_t)(p->length - i));
}

void mo_kv_codes_in(const mo_kv_head *kv, int64_t u, bool value, const uint8_t *row)
{
    const places p = find(kv, u, value);
    const int planes = mo_kv_planes(kv->type);
    for (int i = 0; i < planes; i++, row += p.length) {
        write_plane(&p, p.codes + i * p.low, row);
    }
    memcpy(p.scale, row, sizeof(float));
    if (p.other) {
        memcpy(p.other, row, sizeof(float));
    }
}

void mo_kv_codes_out(const mo_kv_head *kv, int64_t u, bool value, uint8_t *row)
{
    const places p = find(kv, u, value);
    const int planes = mo_kv_planes(kv->type);
    for (int i = 0; i < planes; i++, row += p.length) {
        read_plane(&p, p.codes + i * p.low, row);
    }
    memcpy(row, p.scale, sizeof(float));
}
