#include "engine/block_pool.h"

#include <assert.h>
#include <stdlib.h>

#include "base/host.h"

typedef struct layer {
    uint8_t *memory;
    int64_t bytes; /* of a block, with what aligns the next one */
    int64_t count;
    int32_t *holders; /* [count] */
    int32_t *unused;  /* [unused_count] blocks that nobody holds; the last is the next to be acquired */
    int64_t unused_count;
} layer;

struct mo_block_pool {
    uint8_t *memory;
    size_t bytes;
    int32_t *numbers; /* of all layers: holders and unused */
    layer *layers;
};

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t mo_block_pool_bytes(const mo_block_need *needs, int layers, int states)
{
    size_t bytes = 0;
    for (int i = 0; i < layers; i++) {
        bytes += (size_t)(needs[i].count * states * aligned(needs[i].bytes));
    }
    return bytes;
}

static void lay_layers(mo_block_pool *p, const mo_block_need *needs, int layers, int states)
{
    uint8_t *at = p->memory;
    int32_t *numbers = p->numbers;
    for (int i = 0; i < layers; i++) {
        layer *l = &p->layers[i];
        *l = (layer){.memory = at, .bytes = aligned(needs[i].bytes), .count = needs[i].count * states};
        l->holders = numbers;
        l->unused = numbers + l->count;
        l->unused_count = l->count;
        for (int64_t b = 0; b < l->count; b++) {
            l->unused[b] = (int32_t)(l->count - 1 - b);
        }
        numbers += 2 * l->count;
        at += l->count * l->bytes;
    }
}

mo_block_pool *mo_block_pool_open(const mo_block_need *needs, int layers, int states)
{
    int64_t count = 0;
    for (int i = 0; i < layers; i++) {
        count += needs[i].count * states;
    }
    mo_block_pool *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->bytes = mo_block_pool_bytes(needs, layers, states);
    p->layers = calloc((size_t)layers, sizeof *p->layers);
    p->numbers = calloc((size_t)(2 * count + 1), sizeof *p->numbers);
    p->memory = mo_host_alloc_huge(p->bytes);
    if (!p->layers || !p->numbers || !p->memory) {
        mo_block_pool_close(p);
        return NULL;
    }
    lay_layers(p, needs, layers, states);
    return p;
}

void mo_block_pool_close(mo_block_pool *p)
{
    if (p) {
        if (p->memory) {
            mo_host_free_huge(p->memory, p->bytes);
        }
        free(p->numbers);
        free(p->layers);
        free(p);
    }
}

uint8_t *mo_block_pool_memory(const mo_block_pool *pool)
{
    return pool->memory;
}

static int64_t number_of(const layer *l, const uint8_t *block)
{
    const int64_t at = block - l->memory;
    assert(at >= 0 && at % l->bytes == 0 && at / l->bytes < l->count);
    return at / l->bytes;
}

uint8_t *mo_block_acquire(mo_block_pool *pool, int index)
{
    layer *l = &pool->layers[index];
    assert(l->unused_count > 0); /* there is one for everybody */
    const int32_t number = l->unused[--l->unused_count];
    l->holders[number] = 1;
    return l->memory + number * l->bytes;
}

void mo_block_share(mo_block_pool *pool, int index, const uint8_t *block)
{
    layer *l = &pool->layers[index];
    l->holders[number_of(l, block)]++;
}

void mo_block_release(mo_block_pool *pool, int index, const uint8_t *block)
{
    layer *l = &pool->layers[index];
    const int64_t number = number_of(l, block);
    assert(l->holders[number] > 0);
    if (--l->holders[number] == 0) {
        l->unused[l->unused_count++] = (int32_t)number;
    }
}

bool mo_block_is_shared(const mo_block_pool *pool, int index, const uint8_t *block)
{
    const layer *l = &pool->layers[index];
    return l->holders[number_of(l, block)] > 1;
}
