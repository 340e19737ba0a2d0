/* Arena: memory of one lifetime, allocated in slices and freed at once. */
#ifndef MO_BASE_ARENA_H
#define MO_BASE_ARENA_H

#include <stddef.h>

typedef struct mo_arena mo_arena;

/* An arena that grows by blocks of at least block_bytes (0: 64 KiB). NULL when out of memory. */
mo_arena *mo_arena_create(size_t block_bytes);

/* Frees the arena and all its slices. NULL is allowed. */
void mo_arena_destroy(mo_arena *arena);

/* A zeroed slice aligned for any type. NULL when out of memory. One thread at a time. */
void *mo_arena_alloc(mo_arena *arena, size_t bytes);

/* The same for count elements of `bytes` each. NULL also if the product overflows. */
void *mo_arena_array(mo_arena *arena, size_t count, size_t bytes);

/* A terminated copy of length bytes of text. */
char *mo_arena_text(mo_arena *arena, const char *text, size_t length);

#endif
