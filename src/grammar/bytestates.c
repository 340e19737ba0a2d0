/* A block is the set of code points that share the bytes read so far: 64, 4096 or 262144 code points, by the
   number of bytes to come. Blocks that are completely in a set share their states. There are few partial
   blocks, because a range has only two ends. */
#include "grammar/bytestates.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"

typedef struct builder {
    mo_byte_states *p;
    uint32_t full[3]; /* states followed by this many arbitrary continuation bytes; [0] is unused */
    mo_status status;
    mo_error *err;
} builder;

static uint32_t failed(builder *b, mo_status status)
{
    if (b->status == MO_OK) {
        b->status =
            mo_fail(b->err, status, "%s",
                    status == MO_ENOMEM ? "out of memory for a grammar"
                                        : "the character classes of the grammar are too large in total");
    }
    return 0;
}

static uint32_t new_state(builder *b, const mo_byte_arc *arcs, uint32_t count)
{
    mo_byte_states *p = b->p;
    if (b->status != MO_OK) {
        return 0;
    }
    if (p->arc_count + count > MO_BYTE_ARCS) {
        return failed(b, MO_EINVAL);
    }
    if (!mo_array_reserve(&p->states, &p->space, p->count + 1, sizeof *p->states) ||
        !mo_array_reserve(&p->arcs, &p->arc_space, p->arc_count + count, sizeof *p->arcs)) {
        return failed(b, MO_ENOMEM);
    }
    p->states[p->count] = (mo_byte_state){p->arc_count, count};
    for (uint32_t i = 0; i < count; i++) {
        p->arcs[p->arc_count++] = arcs[i];
    }
    return p->count++;
}

static void add_arc(mo_byte_arc *arcs, uint32_t *count, uint8_t byte, uint32_t to)
{
    if (*count > 0 && arcs[*count - 1].high + 1 == byte && arcs[*count - 1].to == to) {
        arcs[*count - 1].high = byte;
    } else {
        arcs[(*count)++] = (mo_byte_arc){byte, byte, to};
    }
}

/* Is any or all of low to high in the set? 0: none, 1: some, 2: all. */
static int share(const mo_charset *s, uint32_t low, uint32_t high)
{
    size_t a = 0, z = s->count;
    while (a < z) { /* the first range that does not end before `low` */
        const size_t middle = a + (z - a) / 2;
        if (s->ranges[middle].high < low) {
            a = middle + 1;
        } else {
            z = middle;
        }
    }
    if (a == s->count || s->ranges[a].low > high) {
        return 0;
    }
    return s->ranges[a].low <= low && s->ranges[a].high >= high ? 2 : 1;
}

/* The state for the code points from `first` on, but at least `least`, of which `bytes` continuation bytes
   are still to come. MO_CHARACTER_DONE if none are. 0: the set has none of these code points. */
static uint32_t block(builder *b, const mo_charset *s, uint32_t first, int bytes, uint32_t least)
{
    const uint32_t size = 1u << (6 * bytes);
    const int in = share(s, first, first + size - 1);
    if (in == 0 || bytes == 0) {
        return in == 0 ? 0 : MO_CHARACTER_DONE;
    }
    if (in == 2 && first >= least && bytes < 3) {
        return b->full[bytes];
    }
    mo_byte_arc arcs[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t inner = first + i * (size >> 6);
        const uint32_t to = inner < least ? 0 : block(b, s, inner, bytes - 1, 0);
        if (to != 0) {
            add_arc(arcs, &count, (uint8_t)(0x80 + i), to);
        }
    }
    return count == 0 ? 0 : new_state(b, arcs, count);
}

static uint32_t set_start(builder *b, const mo_charset *s)
{
    mo_byte_arc arcs[256];
    uint32_t count = 0;
    for (uint32_t byte = 0; byte < 0xF5; byte++) {
        uint32_t to = 0;
        if (byte < 0x80) {
            to = mo_charset_has(s, byte) ? MO_CHARACTER_DONE : 0;
        } else if (byte >= 0xC2 && byte < 0xE0) {
            to = block(b, s, (byte & 0x1F) << 6, 1, 0x80);
        } else if (byte >= 0xE0 && byte < 0xF0) {
            to = block(b, s, (byte & 0x0F) << 12, 2, 0x800);
        } else if (byte >= 0xF0) {
            to = block(b, s, (byte & 0x07) << 18, 3, 0x10000);
        }
        if (to != 0) {
            add_arc(arcs, &count, (uint8_t)byte, to);
        }
    }
    return new_state(b, arcs, count);
}

mo_status mo_byte_states_make(const mo_charset *sets, uint32_t count, mo_byte_states *out, mo_error *err)
{
    builder b = {.p = out, .err = err};
    *out = (mo_byte_states){0};
    new_state(&b, NULL, 0);
    b.full[1] = new_state(&b, &(mo_byte_arc){0x80, 0xBF, MO_CHARACTER_DONE}, 1);
    b.full[2] = new_state(&b, &(mo_byte_arc){0x80, 0xBF, b.full[1]}, 1);
    out->starts = calloc(count + 1u, sizeof *out->starts);
    if (!out->starts) {
        failed(&b, MO_ENOMEM);
    }
    for (uint32_t i = 0; i < count && b.status == MO_OK; i++) {
        out->starts[i] = set_start(&b, &sets[i]);
    }
    if (b.status != MO_OK) {
        mo_byte_states_free(out);
    }
    return b.status;
}

void mo_byte_states_free(mo_byte_states *b)
{
    free(b->arcs);
    free(b->states);
    free(b->starts);
    *b = (mo_byte_states){0};
}

uint32_t mo_byte_states_step(const mo_byte_states *b, uint32_t state, uint8_t byte)
{
    const mo_byte_state *s = &b->states[state];
    uint32_t low = 0, high = s->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (b->arcs[s->at + middle].high < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == s->count || b->arcs[s->at + low].low > byte) {
        return 0;
    }
    return b->arcs[s->at + low].to;
}
