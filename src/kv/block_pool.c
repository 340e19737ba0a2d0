#include "kv/block_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/status.h"

/* A block. Free blocks are in a list of their class. */
typedef struct block {
    uint64_t address;
    int32_t holders, keepers; /* states; snapshots */
    int32_t next, prev;       /* in the list; -1: none */
    int32_t piece, chunk;     /* location; chunk -1: none */
    int16_t size_class;
    bool at_home; /* in the home of a state */
} block;

/* A list of free blocks: those in a home come last. */
typedef struct size_class {
    int64_t bytes; /* of a block, including the alignment */
    int32_t first, last;
    int kind; /* of its chunks; if kinds are apart, of all its blocks */
} size_class;

/* Memory for blocks of any class. */
typedef struct chunk {
    uint64_t address;
    int32_t first; /* its first block number; it has as many as blocks of the smallest class fit */
    int32_t used;
    int32_t next;   /* next unused chunk of its kind; -1: none */
    int size_class; /* -1: unused */
    int kind;
} chunk;

/* Memory from the source, starting with the blocks of `homes` states. */
typedef struct piece {
    bool there;                       /* false: freed; its numbers wait for another piece */
    uint64_t address[MO_BLOCK_KINDS]; /* 0: none of that kind */
    int64_t bytes[MO_BLOCK_KINDS];
    int32_t first, count; /* range of its block numbers */
    int32_t used;         /* blocks in use */
    int home, homes;      /* first home, and their number */
    bool planned;
    int64_t *at, *length; /* [layers] of a home: number of the layer's first block, and block count */
} piece;

typedef struct home {
    int piece;
    int32_t first;
    bool owned;
} home;

struct mo_block_pool {
    pthread_mutex_t lock; /* protects all members below */
    mo_block_source source;
    int layers, class_count;
    int *class_of; /* [layers] */
    size_class *classes;
    int64_t chunk_bytes;     /* the largest block */
    int32_t chunk_blocks;    /* maximum blocks of a chunk */
    mo_block_share planned;  /* needs and total belong to the pool */
    mo_block_need *needs;    /* [layers] */
    int64_t *total;          /* [layers], or NULL */
    bool has_plan, has_made; /* a share is planned; its memory is allocated */
    bool closed, alive;
    bool grows; /* allocates more memory if no block is free */
    int64_t users, states;
    block *blocks;
    int32_t block_count;
    piece *pieces;
    int piece_count;
    home *homes;
    int home_count;
    chunk *chunks;
    int32_t chunk_count;
    int32_t unused_chunk[MO_BLOCK_KINDS]; /* first unused chunk; -1: none */
    mo_block_counts counts;
};

/* ---- Memory ------------------------------------------------------------------------------------ */

static mo_status take_ram(void *owner, int kind, int64_t bytes, uint64_t *address, mo_error *err)
{
    (void)owner;
    (void)kind;
    void *memory = mo_host_alloc_huge((size_t)bytes);
    *address = (uint64_t)(uintptr_t)memory;
    return memory ? MO_OK
                  : mo_fail(err, MO_ENOMEM,
                            "the state of sessions needs %.1f MiB, which are not "
                            "available; choose a smaller `context` or `kv` format",
                            (double)bytes / (1 << 20));
}

static void give_ram(void *owner, int kind, uint64_t address, int64_t bytes)
{
    (void)owner;
    (void)kind;
    mo_host_free_huge((void *)(uintptr_t)address, (size_t)bytes);
}

static void discard_ram(void *owner, int kind, uint64_t address, int64_t bytes)
{
    (void)owner;
    (void)kind;
    mo_host_discard((void *)(uintptr_t)address, (size_t)bytes);
}

const mo_block_source mo_block_source_ram = {.take = take_ram, .give = give_ram, .discard = discard_ram};

/* ---- Lists ------------------------------------------------------------------------------------- */

static void list_remove(mo_block_pool *p, int32_t number)
{
    block *b = &p->blocks[number];
    size_class *c = &p->classes[b->size_class];
    *(b->prev >= 0 ? &p->blocks[b->prev].next : &c->first) = b->next;
    *(b->next >= 0 ? &p->blocks[b->next].prev : &c->last) = b->prev;
    b->next = b->prev = -1;
}

static void list_add(mo_block_pool *p, int32_t number)
{
    block *b = &p->blocks[number];
    size_class *c = &p->classes[b->size_class];
    b->prev = b->at_home ? c->last : -1;
    b->next = b->at_home ? -1 : c->first;
    *(b->prev >= 0 ? &p->blocks[b->prev].next : &c->first) = number;
    *(b->next >= 0 ? &p->blocks[b->next].prev : &c->last) = number;
}

static bool nobody_holds(const block *b)
{
    return b->holders == 0 && b->keepers == 0;
}

/* ---- Pieces ------------------------------------------------------------------------------------ */

static bool grow(void **list, size_t count, size_t more, size_t size)
{
    void *grown = realloc(*list, (count + more + 1) * size);
    if (!grown) {
        return false;
    }
    *list = grown;
    return true;
}

/* A piece entry with numbers: those of a freed piece, or new ones. NULL: out of memory for the lists. */
static piece *find_piece(mo_block_pool *p, int64_t count, int64_t homes, int64_t chunks)
{
    for (int i = 0; i < p->piece_count && chunks == 0; i++) {
        piece *old = &p->pieces[i];
        if (!old->there && old->homes == homes && old->count >= count) {
            return old;
        }
    }
    if (count > INT32_MAX / 2 - p->block_count ||
        !grow((void **)&p->blocks, (size_t)p->block_count, (size_t)count, sizeof *p->blocks) ||
        !grow((void **)&p->pieces, (size_t)p->piece_count, 1, sizeof *p->pieces) ||
        !grow((void **)&p->homes, (size_t)p->home_count, (size_t)homes, sizeof *p->homes) ||
        !grow((void **)&p->chunks, (size_t)p->chunk_count, (size_t)chunks, sizeof *p->chunks)) {
        return NULL;
    }
    piece *made = &p->pieces[p->piece_count];
    *made =
        (piece){.first = p->block_count, .count = (int32_t)count, .home = p->home_count, .homes = (int)homes};
    made->at = calloc(2 * (size_t)p->layers + 1, sizeof *made->at);
    if (!made->at) {
        return NULL;
    }
    made->length = made->at + p->layers;
    for (int64_t h = 0; h < homes; h++) {
        p->homes[p->home_count + h] = (home){.piece = p->piece_count};
    }
    p->piece_count++;
    p->block_count += (int32_t)count;
    p->home_count += (int)homes;
    return made;
}

static int32_t lay_block(mo_block_pool *p, int index, int32_t number, int c, bool at_home, uint64_t *address)
{
    p->blocks[number] = (block){.address = *address,
                                .next = -1,
                                .prev = -1,
                                .piece = index,
                                .chunk = -1,
                                .size_class = (int16_t)c,
                                .at_home = at_home};
    *address += (uint64_t)p->classes[c].bytes;
    list_add(p, number);
    return number + 1;
}

static int kind_of(const mo_block_pool *p, int layer)
{
    return p->source.kind ? p->source.kind[layer] : 0;
}

static int kinds_of(const mo_block_pool *p)
{
    return p->source.kinds > 1 ? p->source.kinds : 1;
}

static void keep_chunk(mo_block_pool *p, int32_t index)
{
    chunk *k = &p->chunks[index];
    k->size_class = -1;
    k->next = p->unused_chunk[k->kind];
    p->unused_chunk[k->kind] = index;
}

static void lay_chunks(mo_block_pool *p, int index, int kind, int64_t chunks, int32_t *number, uint64_t *at)
{
    for (int64_t k = 0; k < chunks; k++) {
        p->chunks[p->chunk_count] = (chunk){.address = *at, .first = *number, .kind = kind};
        keep_chunk(p, p->chunk_count);
        for (int32_t b = 0; b < p->chunk_blocks; b++) {
            p->blocks[(*number)++] = (block){.piece = index, .chunk = p->chunk_count, .next = -1, .prev = -1};
        }
        p->chunk_count++;
        *at += (uint64_t)p->chunk_bytes;
    }
}

/* Bytes of the share's blocks by kind, and of its chunks. */
static void split_share(const mo_block_pool *p, const mo_block_share *s, int64_t *bytes, int64_t *kept)
{
    int64_t all = 0;
    for (int k = 0; k < MO_BLOCK_KINDS; k++) {
        bytes[k] = kept[k] = 0;
    }
    for (int i = 0; i < p->layers; i++) {
        bytes[kind_of(p, i)] += mo_block_share_layer(s, i);
        all += mo_block_share_layer(s, i);
    }
    for (int k = 0; k < kinds_of(p); k++) {
        const int64_t part = p->source.apart ? bytes[k] : k == 0 ? all : 0;
        kept[k] = mo_block_share_kept(s->kept_bytes, p->chunk_bytes, part, all);
    }
}

static void lay_piece(mo_block_pool *p, int index, const mo_block_share *s, int64_t homes,
                      const int64_t *kept)
{
    piece *e = &p->pieces[index];
    uint64_t at[MO_BLOCK_KINDS];
    int32_t number = e->first;
    memcpy(at, e->address, sizeof at);
    for (int64_t h = 0; h < homes; h++) {
        p->homes[e->home + h] = (home){.piece = index, .first = number};
        for (int i = 0; i < p->layers; i++) {
            e->at[i] = number - p->homes[e->home + h].first;
            e->length[i] = s->needs[i].count;
            for (int64_t b = 0; b < s->needs[i].count; b++) {
                number = lay_block(p, index, number, p->class_of[i], true, &at[kind_of(p, i)]);
            }
        }
    }
    for (int i = 0; i < p->layers; i++) {
        for (int64_t b = homes * s->needs[i].count; b < mo_block_share_total(s, i); b++) {
            number = lay_block(p, index, number, p->class_of[i], false, &at[kind_of(p, i)]);
        }
    }
    for (int k = 0; k < kinds_of(p); k++) {
        lay_chunks(p, index, k, kept[k] / p->chunk_bytes, &number, &at[k]);
    }
}

static int64_t piece_bytes(const piece *e)
{
    int64_t bytes = 0;
    for (int k = 0; k < MO_BLOCK_KINDS; k++) {
        bytes += e->bytes[k];
    }
    return bytes;
}

static void give_piece(mo_block_pool *p, piece *e)
{
    for (int k = 0; k < MO_BLOCK_KINDS; k++) {
        if (e->address[k]) {
            p->source.give(p->source.owner, k, e->address[k], e->bytes[k]);
        }
        e->address[k] = 0;
    }
    e->there = false;
}

/* Allocates the piece's memory, of all kinds or none. */
static mo_status take_piece(mo_block_pool *p, const int64_t *bytes, const int64_t *kept, piece *e,
                            mo_error *err)
{
    mo_status status = MO_OK;
    for (int k = 0; k < MO_BLOCK_KINDS; k++) {
        e->address[k] = 0;
        e->bytes[k] = bytes[k] + kept[k];
    }
    for (int k = 0; k < kinds_of(p) && status == MO_OK; k++) {
        if (e->bytes[k] > 0) {
            uint64_t address = 0;
            status = p->source.take(p->source.owner, k, e->bytes[k], &address, err);
            e->address[k] = status == MO_OK ? address : 0;
        }
    }
    if (status != MO_OK) {
        give_piece(p, e);
    }
    e->there = status == MO_OK;
    return status;
}

/* Allocates memory for a share. *first: its first home, -1: none. */
static mo_status add_piece(mo_block_pool *p, const mo_block_share *s, bool planned, int *first, mo_error *err)
{
    const int64_t homes = mo_block_share_homes(s), bytes = mo_block_share_bytes(s);
    int64_t of_kind[MO_BLOCK_KINDS] = {0}, kept[MO_BLOCK_KINDS] = {0}, chunks = 0;
    if (bytes < INT64_MAX) {
        split_share(p, s, of_kind, kept);
    }
    for (int k = 0; k < kinds_of(p); k++) {
        chunks += kept[k] / p->chunk_bytes;
    }
    int64_t count = chunks * p->chunk_blocks;
    for (int i = 0; i < p->layers; i++) {
        const int64_t total = mo_block_share_total(s, i);
        count += total < INT32_MAX && count < INT32_MAX ? total : INT32_MAX; /* more is rejected */
    }
    piece *e = bytes < INT64_MAX ? find_piece(p, count, homes, chunks) : NULL;
    if (!e) {
        return mo_fail(err, MO_ENOMEM,
                       "out of memory for the lists of a session's state; choose a smaller `context`");
    }
    const mo_status status = take_piece(p, of_kind, kept, e, err);
    if (status != MO_OK) {
        return status;
    }
    e->planned = planned;
    lay_piece(p, (int)(e - p->pieces), s, homes, kept);
    p->counts.total += piece_bytes(e);
    *first = homes ? e->home : -1;
    return MO_OK;
}

static void drop_piece(mo_block_pool *p, piece *e)
{
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const block *b = &p->blocks[i];
        if (b->address && nobody_holds(b)) {
            list_remove(p, i);
        }
        p->blocks[i].address = 0;
    }
    p->counts.total -= piece_bytes(e);
    give_piece(p, e);
}

/* ---- Opening and closing ----------------------------------------------------------------------- */

static void sort_classes(mo_block_pool *p, const mo_block_need *needs)
{
    int64_t least = INT64_MAX;
    p->chunk_bytes = mo_block_aligned(1);
    for (int i = 0; i < p->layers; i++) {
        const int64_t bytes = mo_block_aligned(needs[i].bytes > 0 ? needs[i].bytes : 1);
        int c = 0;
        const int kind = p->source.apart ? kind_of(p, i) : 0;
        while (c < p->class_count && (p->classes[c].bytes != bytes || p->classes[c].kind != kind)) {
            c++;
        }
        if (c == p->class_count) {
            p->classes[p->class_count++] =
                (size_class){.bytes = bytes, .first = -1, .last = -1, .kind = kind};
        }
        p->class_of[i] = c;
        p->needs[i] = needs[i];
        least = bytes < least ? bytes : least;
        p->chunk_bytes = bytes > p->chunk_bytes ? bytes : p->chunk_bytes;
    }
    p->chunk_blocks = least > 0 && least < p->chunk_bytes ? (int32_t)(p->chunk_bytes / least) : 1;
}

static void free_pool(mo_block_pool *p)
{
    for (int i = 0; i < p->piece_count; i++) {
        give_piece(p, &p->pieces[i]);
        free(p->pieces[i].at);
    }
    pthread_mutex_destroy(&p->lock);
    free(p->class_of);
    free(p->classes);
    free(p->needs);
    free(p->total);
    free(p->blocks);
    free(p->pieces);
    free(p->homes);
    free(p->chunks);
    free(p);
}

mo_block_pool *mo_block_pool_open(const mo_block_need *needs, int layers, const mo_block_source *source,
                                  const mo_block_share *planned)
{
    mo_block_pool *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    const size_t n = (size_t)layers;
    const int64_t *const total = planned ? planned->total : NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->source = *source;
    p->layers = layers;
    p->users = 1;
    p->alive = true;
    p->grows = !planned || !planned->fixed;
    for (int k = 0; k < MO_BLOCK_KINDS; k++) {
        p->unused_chunk[k] = -1;
    }
    p->class_of = calloc(n + 1, sizeof *p->class_of);
    p->classes = calloc(n + 1, sizeof *p->classes);
    p->needs = calloc(n + 1, sizeof *p->needs);
    p->total = total ? calloc(n + 1, sizeof *p->total) : NULL;
    if (!p->class_of || !p->classes || !p->needs || (total && !p->total)) {
        free_pool(p);
        return NULL;
    }
    sort_classes(p, needs);
    if (planned) {
        p->has_plan = true;
        p->planned = *planned;
        p->planned.needs = p->needs;
        p->planned.total = p->total;
        if (total) {
            memcpy(p->total, total, n * sizeof *p->total);
        }
    }
    return p;
}

void mo_block_pool_part(mo_block_pool *p)
{
    pthread_mutex_lock(&p->lock);
    const bool last = --p->users == 0;
    pthread_mutex_unlock(&p->lock);
    if (last) {
        free_pool(p);
    }
}

void mo_block_pool_join(mo_block_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->users++;
    pthread_mutex_unlock(&p->lock);
}

void mo_block_pool_close(mo_block_pool *p, bool keep)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    for (int i = 0; i < p->piece_count && !keep; i++) {
        give_piece(p, &p->pieces[i]);
    }
    p->alive = keep;
    pthread_mutex_unlock(&p->lock);
    mo_block_pool_part(p);
}

/* ---- States ------------------------------------------------------------------------------------ */

/* A free home: of the planned piece, or left by another state and long enough. */
static int free_home(const mo_block_pool *p, const mo_block_need *needs)
{
    for (int i = 0; i < p->home_count; i++) {
        const home *h = &p->homes[i];
        const piece *e = &p->pieces[h->piece];
        bool fits = !h->owned && e->there;
        for (int l = 0; l < p->layers && fits; l++) {
            fits = needs[l].count <= e->length[l];
        }
        if (fits) {
            return i;
        }
    }
    return -1;
}

static mo_status enter(mo_block_pool *p, const mo_block_need *needs, int *out, mo_error *err)
{
    if (p->has_plan && !p->has_made) {
        int first;
        const mo_status status = add_piece(p, &p->planned, true, &first, err);
        if (status != MO_OK) {
            return status;
        }
        p->has_made = true;
    }
    *out = free_home(p, needs);
    const int64_t planned = p->has_plan ? mo_block_share_states(&p->planned) : 0;
    if (*out < 0 && p->states >= planned) {
        const mo_block_share own = {.needs = needs, .layers = p->layers};
        return add_piece(p, &own, false, out, err);
    }
    return MO_OK;
}

mo_status mo_block_pool_enter(mo_block_pool *p, const mo_block_need *needs, int *out, mo_error *err)
{
    pthread_mutex_lock(&p->lock);
    const mo_status status = enter(p, needs, out, err);
    if (status == MO_OK) {
        p->states++;
        if (*out >= 0) {
            p->homes[*out].owned = true;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

void mo_block_pool_leave(mo_block_pool *p, int number)
{
    pthread_mutex_lock(&p->lock);
    p->states--;
    if (number >= 0) {
        p->homes[number].owned = false;
    }
    pthread_mutex_unlock(&p->lock);
}

void mo_block_pool_sweep(mo_block_pool *p)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->piece_count && !p->closed; i++) {
        piece *e = &p->pieces[i];
        if (e->there && !e->planned && e->used == 0 && !p->homes[e->home].owned) {
            drop_piece(p, e);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

typedef struct range {
    int kind;
    uint64_t address;
    int64_t bytes;
} range;

/* The free memory of this block number; an unused chunk belongs to its first number. */
static range free_memory(const mo_block_pool *p, int32_t number)
{
    const block *b = &p->blocks[number];
    const chunk *k = b->chunk >= 0 ? &p->chunks[b->chunk] : NULL;
    if (k && k->size_class < 0) {
        return number == k->first ? (range){k->kind, k->address, p->chunk_bytes} : (range){0};
    }
    if (!b->address || !nobody_holds(b)) {
        return (range){0};
    }
    const size_class *c = &p->classes[b->size_class];
    return (range){p->source.apart ? c->kind : 0, b->address, c->bytes};
}

/* Discards the first run of free memory from `number` on, at most a few MiB. Returns the number after it. */
static int32_t discard_run(mo_block_pool *p, int32_t number)
{
    enum { AT_ONCE = 16 << 20 };
    range run = {0};
    for (; number < p->block_count && run.bytes < AT_ONCE; number++) {
        if (!p->pieces[p->blocks[number].piece].there) {
            continue;
        }
        const range r = free_memory(p, number);
        if (run.bytes > 0 && r.bytes > 0 &&
            (r.kind != run.kind || r.address != run.address + (uint64_t)run.bytes)) {
            break;
        }
        if (run.bytes > 0 && r.bytes == 0 && p->blocks[number].address) {
            break; /* in use */
        }
        run = run.bytes > 0 ? (range){run.kind, run.address, run.bytes + r.bytes} : r;
    }
    if (run.bytes > 0) {
        p->source.discard(p->source.owner, run.kind, run.address, run.bytes);
    }
    return number;
}

void mo_block_pool_trim(mo_block_pool *p)
{
    bool more = p->source.discard != NULL;
    for (int32_t number = 0; more;) {
        pthread_mutex_lock(&p->lock);
        if (p->alive) {
            number = discard_run(p, number);
        }
        more = p->alive && number < p->block_count;
        pthread_mutex_unlock(&p->lock);
    }
}

/* Blocks of a kind in a piece, and its chunks, have moved by this many bytes. */
static void move_blocks(mo_block_pool *p, int index, int kind, uint64_t by)
{
    const piece *e = &p->pieces[index];
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        block *b = &p->blocks[i];
        if (b->address && p->classes[b->size_class].kind == kind) {
            b->address += by;
        }
    }
    for (int32_t i = 0; i < p->chunk_count; i++) {
        chunk *k = &p->chunks[i];
        if (k->kind == kind && p->blocks[k->first].piece == index) {
            k->address += by;
        }
    }
}

mo_status mo_block_pool_renew(mo_block_pool *p, int kind, mo_error *err)
{
    mo_status status = MO_OK;
    pthread_mutex_lock(&p->lock);
    assert(p->source.apart);
    for (int i = 0; i < p->piece_count && status == MO_OK; i++) {
        piece *e = &p->pieces[i];
        const uint64_t old = e->address[kind];
        uint64_t fresh = 0;
        if (!e->there || !old) {
            continue;
        }
        status = p->source.take(p->source.owner, kind, e->bytes[kind], &fresh, err);
        if (status == MO_OK) {
            p->source.give(p->source.owner, kind, old, e->bytes[kind]);
            move_blocks(p, i, kind, fresh - old);
            e->address[kind] = fresh;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

mo_block_counts mo_block_pool_count(mo_block_pool *p)
{
    pthread_mutex_lock(&p->lock);
    mo_block_counts c = p->counts;
    c.states = p->states;
    for (int i = 0; i < p->piece_count; i++) {
        c.pieces += p->pieces[i].there;
    }
    pthread_mutex_unlock(&p->lock);
    c.free = c.total - c.held - c.kept;
    return c;
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

void mo_block_pool_lock(mo_block_pool *p)
{
    pthread_mutex_lock(&p->lock);
}

void mo_block_pool_unlock(mo_block_pool *p)
{
    pthread_mutex_unlock(&p->lock);
}

/* Converts a chunk to blocks of the class. */
static void use_chunk(mo_block_pool *p, int c)
{
    chunk *k = &p->chunks[p->unused_chunk[p->classes[c].kind]];
    p->unused_chunk[k->kind] = k->next;
    k->size_class = c;
    for (int32_t b = (int32_t)(p->chunk_bytes / p->classes[c].bytes) - 1; b >= 0; b--) {
        block *of = &p->blocks[k->first + b];
        of->size_class = (int16_t)c;
        of->address = k->address + (uint64_t)(b * p->classes[c].bytes);
        list_add(p, k->first + b);
    }
}

/* The chunk is unused now, and available to any class. */
static void drop_chunk(mo_block_pool *p, int32_t index)
{
    chunk *k = &p->chunks[index];
    for (int32_t b = 0; b < (int32_t)(p->chunk_bytes / p->classes[k->size_class].bytes); b++) {
        list_remove(p, k->first + b);
        p->blocks[k->first + b].address = 0;
    }
    keep_chunk(p, index);
}

static int32_t choose_block(mo_block_pool *p, int layer, int number, int64_t entry)
{
    const int c = p->class_of[layer];
    if (number >= 0) {
        const home *h = &p->homes[number];
        const piece *e = &p->pieces[h->piece];
        const int32_t own = (int32_t)(h->first + e->at[layer] + entry);
        if (entry < e->length[layer] && nobody_holds(&p->blocks[own])) {
            return own;
        }
    }
    const int32_t first = p->classes[c].first;
    if ((first < 0 || p->blocks[first].at_home) && p->unused_chunk[p->classes[c].kind] >= 0) {
        use_chunk(p, c);
    }
    return p->classes[c].first;
}

/* Adds the block to the counts, or subtracts it. */
static void count_block(mo_block_pool *p, const block *b, int64_t sign)
{
    const int64_t bytes = p->classes[b->size_class].bytes;
    p->counts.held += b->holders > 0 ? sign * bytes : 0;
    p->counts.kept += b->holders == 0 && b->keepers > 0 ? sign * bytes : 0;
}

void mo_block_hold(mo_block_pool *p, int32_t number, mo_block_holder who)
{
    block *b = &p->blocks[number];
    count_block(p, b, -1);
    *(who == MO_HOLDS ? &b->holders : &b->keepers) += 1;
    count_block(p, b, 1);
}

/* Allocates memory for one more state, without a home. */
static bool add_more(mo_block_pool *p)
{
    const mo_block_share more = {.needs = p->needs, .layers = p->layers};
    int first;
    return p->grows && !p->closed && add_piece(p, &more, false, &first, NULL) == MO_OK;
}

int32_t mo_block_acquire(mo_block_pool *p, int layer, int number, int64_t entry, mo_block_holder who)
{
    int32_t chosen = p->alive ? choose_block(p, layer, number, entry) : -1;
    if (chosen < 0 && p->alive && add_more(p)) {
        chosen = choose_block(p, layer, number, entry);
    }
    if (chosen >= 0) {
        const block *b = &p->blocks[chosen];
        list_remove(p, chosen);
        mo_block_hold(p, chosen, who);
        p->pieces[b->piece].used++;
        if (b->chunk >= 0) {
            p->chunks[b->chunk].used++;
        }
    }
    return chosen;
}

void mo_block_release(mo_block_pool *p, int32_t number, mo_block_holder who)
{
    block *b = &p->blocks[number];
    int32_t *count = who == MO_HOLDS ? &b->holders : &b->keepers;
    assert(*count > 0);
    count_block(p, b, -1);
    *count -= 1;
    count_block(p, b, 1);
    if (nobody_holds(b)) {
        p->pieces[b->piece].used--;
        list_add(p, number);
        if (b->chunk >= 0 && --p->chunks[b->chunk].used == 0) {
            drop_chunk(p, b->chunk);
        }
    }
}

bool mo_block_is_shared(const mo_block_pool *p, int32_t number)
{
    return p->blocks[number].holders + p->blocks[number].keepers > 1;
}

uint64_t mo_block_address(const mo_block_pool *p, int32_t number)
{
    return p->blocks[number].address;
}

int64_t mo_block_bytes(const mo_block_pool *p, int32_t number)
{
    return p->classes[p->blocks[number].size_class].bytes;
}
