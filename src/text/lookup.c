/* Lookup: open addressing, at most half full. */
#include "text/lookup.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

static uint64_t hash(const uint8_t *key, size_t length)
{
    uint64_t h = length * 0x9E3779B97F4A7C15u, word;
    for (; length >= 8; key += 8, length -= 8) {
        memcpy(&word, key, 8);
        h = mix(h ^ word);
    }
    word = 0;
    for (size_t i = 0; i < length; i++) {
        word |= (uint64_t)key[i] << 8 * i;
    }
    return mix(h ^ word);
}

/* The cell that has the key, or the empty cell for it. */
static mo_lookup_cell *cell_of(const mo_lookup *t, const uint8_t *key, size_t length)
{
    size_t at = (size_t)hash(key, length) & t->mask;
    while (t->cells[at].key &&
           (t->cells[at].length != length || memcmp(t->cells[at].key, key, length) != 0)) {
        at = (at + 1) & t->mask;
    }
    return &t->cells[at];
}

static bool resize(mo_lookup *t, size_t cells)
{
    mo_lookup bigger = {.cells = calloc(cells, sizeof *bigger.cells),
                        .mask = cells - 1,
                        .used = t->used,
                        .longest = t->longest};
    if (!bigger.cells) {
        return false;
    }
    for (size_t i = 0; t->cells && i <= t->mask; i++) {
        if (t->cells[i].key) {
            *cell_of(&bigger, t->cells[i].key, t->cells[i].length) = t->cells[i];
        }
    }
    free(t->cells);
    *t = bigger;
    return true;
}

bool mo_lookup_init(mo_lookup *t, size_t count)
{
    size_t cells = 16;
    while (cells / 2 < count) {
        cells *= 2;
    }
    *t = (mo_lookup){0};
    return resize(t, cells);
}

void mo_lookup_free(mo_lookup *t)
{
    free(t->cells);
    *t = (mo_lookup){0};
}

bool mo_lookup_put(mo_lookup *t, const uint8_t *key, size_t length, uint32_t value)
{
    if (length > UINT32_MAX || (t->used + 1 > t->mask / 2 && !resize(t, 2 * (t->mask + 1)))) {
        return false;
    }
    mo_lookup_cell *cell = cell_of(t, key, length);
    t->used += cell->key == NULL;
    *cell = (mo_lookup_cell){key, (uint32_t)length, value};
    t->longest = t->longest > length ? t->longest : (uint32_t)length;
    return true;
}

uint32_t mo_lookup_get(const mo_lookup *t, const uint8_t *key, size_t length)
{
    if (length > t->longest) {
        return MO_LOOKUP_NONE;
    }
    const mo_lookup_cell *cell = cell_of(t, key, length);
    return cell->key ? cell->value : MO_LOOKUP_NONE;
}
