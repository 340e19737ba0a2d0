#include "grammar/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { TABLE = 256, UNITED = 4096 };

bool mo_stacks_init(mo_stacks *s)
{
    *s = (mo_stacks){0};
    s->table = malloc(TABLE * sizeof *s->table);
    s->united = malloc(UNITED * sizeof *s->united);
    if (!s->table || !s->united) {
        mo_stacks_free(s);
        return false;
    }
    memset(s->table, 0xFF, TABLE * sizeof *s->table);
    memset(s->united, 0xFF, UNITED * sizeof *s->united);
    s->table_mask = TABLE - 1;
    mo_frame end = {MO_FRAME_END, MO_FRAME_CALL, 0};
    mo_stacks_make(s, &end, 1);
    return s->failed == MO_OK;
}

void mo_stacks_free(mo_stacks *s)
{
    free(s->frames);
    free(s->sets);
    free(s->table);
    free(s->united);
    free(s->scratch);
    *s = (mo_stacks){0};
}

static uint32_t fail(mo_stacks *s, mo_status status)
{
    if (s->failed == MO_OK) {
        s->failed = status;
    }
    return 0;
}

static uint32_t hash_of(const mo_frame *frames, uint32_t count)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++) {
        h = (h ^ frames[i].node) * 0x9E3779B97F4A7C15u;
        h = (h ^ (uint32_t)frames[i].count) * 0x9E3779B97F4A7C15u;
        h = (h ^ frames[i].below) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_table(mo_stacks *s)
{
    const uint32_t size = 2 * (s->table_mask + 1);
    uint32_t *table = malloc(size * sizeof *table);
    if (!table) {
        return false;
    }
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < s->set_count; i++) {
        uint32_t at = s->sets[i].hash & (size - 1);
        while (table[at] != MO_STACKS_NONE) {
            at = (at + 1) & (size - 1);
        }
        table[at] = i;
    }
    free(s->table);
    s->table = table;
    s->table_mask = size - 1;
    return true;
}

static bool reserve(mo_stacks *s, uint32_t frames)
{
    return mo_array_reserve(&s->frames, &s->frame_space, s->frame_count + frames, sizeof *s->frames) &&
           mo_array_reserve(&s->sets, &s->set_space, s->set_count + 1, sizeof *s->sets) &&
           (s->set_count < s->table_mask / 2 || grow_table(s));
}

/* The number of the set of these frames, which are sorted and distinct. */
static uint32_t intern(mo_stacks *s, const mo_frame *frames, uint32_t count)
{
    const uint32_t hash = hash_of(frames, count);
    uint32_t at = hash & s->table_mask, depth = 0;
    for (; s->table[at] != MO_STACKS_NONE; at = (at + 1) & s->table_mask) {
        const mo_stack_set *set = &s->sets[s->table[at]];
        if (set->hash == hash && set->count == count &&
            memcmp(s->frames + set->at, frames, count * sizeof *frames) == 0) {
            return s->table[at];
        }
    }
    if (s->frame_count + count > MO_STACKS_FRAMES) {
        return fail(s, MO_ENOSPC);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (frames[i].node != MO_FRAME_END && s->sets[frames[i].below].depth >= depth) {
            depth = s->sets[frames[i].below].depth + 1;
        }
    }
    if (!reserve(s, count)) {
        return fail(s, MO_ENOMEM);
    }
    at = hash & s->table_mask; /* the table may have been replaced */
    while (s->table[at] != MO_STACKS_NONE) {
        at = (at + 1) & s->table_mask;
    }
    memcpy(s->frames + s->frame_count, frames, count * sizeof *frames);
    s->sets[s->set_count] = (mo_stack_set){s->frame_count, count, hash, depth, MO_STACKS_NONE};
    s->frame_count += count;
    s->table[at] = s->set_count;
    return s->set_count++;
}

uint32_t mo_stacks_push(mo_stacks *s, uint32_t node, int32_t count, uint32_t below)
{
    const mo_frame frame = {node, count, below};
    s->work++;
    if (s->failed != MO_OK || s->sets[below].depth >= MO_STACKS_DEPTH) {
        return MO_STACKS_NONE;
    }
    const uint32_t set = intern(s, &frame, 1);
    return s->failed == MO_OK ? set : MO_STACKS_NONE;
}

static int compare(const mo_frame *a, const mo_frame *b)
{
    if (a->node != b->node) {
        return a->node < b->node ? -1 : 1;
    }
    return (a->count > b->count) - (a->count < b->count);
}

static bool scratch_add(mo_stacks *s, mo_frame frame)
{
    if (!mo_array_reserve(&s->scratch, &s->scratch_space, s->scratch_used + 1, sizeof *s->scratch)) {
        fail(s, MO_ENOMEM);
        return false;
    }
    s->scratch[s->scratch_used++] = frame;
    return true;
}

uint32_t mo_stacks_unite(mo_stacks *s, uint32_t a, uint32_t b)
{
    if (a == b || s->failed != MO_OK) {
        return a;
    }
    if (a > b) {
        const uint32_t c = a;
        a = b;
        b = c;
    }
    if (++s->work > MO_STACKS_WORK) {
        return fail(s, MO_ENOSPC);
    }
    const uint32_t memo = (uint32_t)(((uint64_t)a * 0x9E3779B97F4A7C15u + b) * 0xC2B2AE3D27D4EB4Fu >> 52);
    if (s->united[memo].a == a && s->united[memo].b == b) {
        return s->united[memo].both;
    }
    const size_t begin = s->scratch_used;
    uint32_t i = 0, k = 0;
    /* The recursion may move the arrays, so frames are copied. */
    while (s->failed == MO_OK && (i < s->sets[a].count || k < s->sets[b].count)) {
        const mo_frame *x = &s->frames[s->sets[a].at + i], *y = &s->frames[s->sets[b].at + k];
        const int order = i == s->sets[a].count ? 1 : k == s->sets[b].count ? -1 : compare(x, y);
        mo_frame frame = order <= 0 ? *x : *y;
        i += order <= 0;
        k += order >= 0;
        if (order == 0) {
            frame.below = mo_stacks_unite(s, x->below, y->below);
        }
        scratch_add(s, frame);
        s->work++;
    }
    uint32_t both = 0;
    if (s->failed == MO_OK) {
        both = intern(s, s->scratch + begin, (uint32_t)(s->scratch_used - begin));
        s->united[memo].a = a;
        s->united[memo].b = b;
        s->united[memo].both = both;
    }
    s->scratch_used = begin;
    return both;
}

static int by_place(const void *a, const void *b)
{
    const mo_frame *x = a, *y = b;
    const int order = compare(x, y);
    return order ? order : (x->below > y->below) - (x->below < y->below);
}

void mo_stacks_gather(mo_stacks *s, uint32_t set)
{
    for (uint32_t i = 0; i < s->sets[set].count && s->failed == MO_OK; i++) {
        scratch_add(s, s->frames[s->sets[set].at + i]);
        s->work++;
    }
    if (s->work > MO_STACKS_WORK) {
        fail(s, MO_ENOSPC);
    }
}

uint32_t mo_stacks_gathered(mo_stacks *s, size_t begin)
{
    const size_t end = s->scratch_used;
    size_t kept = begin;
    if (s->failed == MO_OK && end - begin > 1) {
        qsort(s->scratch + begin, end - begin, sizeof *s->scratch, by_place);
    }
    for (size_t i = begin; i < end && s->failed == MO_OK;) {
        mo_frame frame = s->scratch[i];
        const size_t inner = s->scratch_used;
        for (i++; i < end && compare(&frame, &s->scratch[i]) == 0; i++) {
            const uint32_t below = s->scratch[i].below;
            if (below != s->scratch[i - 1].below && frame.node != MO_FRAME_END) {
                if (s->scratch_used == inner) { /* the first difference also adds the frame before */
                    mo_stacks_gather(s, frame.below);
                }
                mo_stacks_gather(s, below);
            }
        }
        if (s->scratch_used > inner) {
            frame.below = mo_stacks_gathered(s, inner);
        }
        s->scratch[kept++] = frame;
    }
    const uint32_t set = s->failed == MO_OK ? intern(s, s->scratch + begin, (uint32_t)(kept - begin)) : 0;
    s->scratch_used = begin;
    return set;
}

uint32_t mo_stacks_make(mo_stacks *s, mo_frame *frames, uint32_t count)
{
    uint32_t kept = 0;
    if (count > 1) {
        qsort(frames, count, sizeof *frames, by_place);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && compare(&frames[kept - 1], &frames[i]) == 0) {
            frames[kept - 1].below = mo_stacks_unite(s, frames[kept - 1].below, frames[i].below);
        } else {
            frames[kept++] = frames[i];
        }
    }
    return s->failed == MO_OK ? intern(s, frames, kept) : 0;
}
