#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    struct block *next;
    size_t used, size; /* bytes, of data */
    alignas(max_align_t) unsigned char data[];
} block;

struct mo_arena {
    block *head; /* the block slices are cut from; older ones follow */
    size_t block_bytes;
};

mo_arena *mo_arena_create(size_t block_bytes)
{
    mo_arena *arena = calloc(1, sizeof *arena);
    if (arena) {
        arena->block_bytes = block_bytes ? block_bytes : (size_t)64 << 10;
    }
    return arena;
}

void mo_arena_destroy(mo_arena *arena)
{
    if (!arena) {
        return;
    }
    for (block *b = arena->head; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

void *mo_arena_alloc(mo_arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    block *b = arena->head;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > arena->block_bytes ? bytes : arena->block_bytes;
        b = calloc(1, sizeof *b + size);
        if (!b) {
            return NULL;
        }
        b->size = size;
        b->next = arena->head;
        arena->head = b;
    }
    void *slice = b->data + b->used;
    b->used += bytes;
    return slice;
}

void *mo_arena_array(mo_arena *arena, size_t count, size_t bytes)
{
    size_t total;
    return __builtin_mul_overflow(count, bytes, &total) ? NULL : mo_arena_alloc(arena, total);
}

char *mo_arena_text(mo_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? mo_arena_alloc(arena, length + 1) : NULL;
    if (copy) {
        memcpy(copy, text, length);
    }
    return copy;
}
