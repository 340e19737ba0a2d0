#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

enum { CELLS = 64, TABLE = 256, CELLS_MAX = 1 << 15 };

/* ---- Opening ---- */

static uint32_t fail(mo_machine *m, mo_status status)
{
    if (m->failed == MO_OK) {
        m->failed = status;
    }
    return MO_STATE_DEAD;
}

static uint32_t finish(mo_machine *m);
static void add(mo_machine *m, uint32_t node, uint32_t sub, uint32_t stacks);
static void begin(mo_machine *m);

static bool new_cells(mo_machine *m, uint32_t count)
{
    uint32_t *order = realloc(m->order, count * sizeof *order);
    if (!order) {
        return false;
    }
    m->order = order;
    uint32_t *queue = realloc(m->queue, count * sizeof *queue);
    if (!queue) {
        return false;
    }
    m->queue = queue;
    mo_item *gathered = realloc(m->gathered, count * sizeof *gathered);
    if (!gathered) {
        return false;
    }
    m->gathered = gathered;
    mo_cell *cells = calloc(count, sizeof *cells);
    if (!cells) {
        return false;
    }
    free(m->cells);
    m->cells = cells;
    m->cell_mask = count - 1;
    return true;
}

mo_status mo_machine_open(const mo_program *program, mo_machine **out, mo_error *err)
{
    *out = NULL;
    mo_machine *m = calloc(1, sizeof *m);
    if (!m || !mo_stacks_init(&m->stacks) || !new_cells(m, CELLS) ||
        !(m->table = calloc(TABLE, sizeof *m->table))) {
        mo_machine_close(m);
        return mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    m->program = program;
    m->table_mask = TABLE - 1;
    m->state_count = 1; /* 0 means unknown */
    m->states = calloc(64, sizeof *m->states);
    m->state_space = m->states ? 64 : 0;
    if (!m->states) {
        mo_machine_close(m);
        return mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    begin(m);
    finish(m); /* without items it is MO_STATE_DEAD */
    begin(m);
    add(m, program->start, 0, MO_STACKS_BOTTOM);
    m->start = finish(m);
    if (m->failed != MO_OK) {
        const mo_status status = m->failed;
        mo_machine_close(m);
        return mo_fail(err, status, "%s",
                       status == MO_ENOMEM ? "out of memory for a grammar"
                                           : "the grammar or schema can start in too many ways");
    }
    *out = m;
    return MO_OK;
}

void mo_machine_close(mo_machine *m)
{
    if (!m) {
        return;
    }
    for (uint32_t i = 1; i < m->state_count; i++) {
        free(m->states[i].next);
    }
    mo_stacks_free(&m->stacks);
    free(m->states);
    free(m->items);
    free(m->table);
    free(m->cells);
    free(m->order);
    free(m->queue);
    free(m->more);
    free(m->gathered);
    free(m);
}

void mo_machine_begin(mo_machine *m)
{
    m->failed = MO_OK;
    m->stacks.failed = MO_OK;
    m->stacks.work = 0;
}

/* ---- A state under construction ---- */

static void begin(mo_machine *m)
{
    m->stamp++;
    if (m->stamp == 0) { /* the stamp has wrapped: cells of 2^32 states ago would match */
        memset(m->cells, 0, (m->cell_mask + 1) * sizeof *m->cells);
        m->stamp = 1;
    }
    m->cell_count = m->queue_count = m->queue_first = m->more_count = 0;
    m->accepts = false;
}

static uint32_t cell_hash(uint32_t node, uint32_t sub)
{
    const uint64_t h = ((uint64_t)node << 32 | sub) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

static bool grow_cells(mo_machine *m)
{
    const uint32_t count = 2 * (m->cell_mask + 1);
    mo_cell *old = m->cells;
    const uint32_t old_mask = m->cell_mask;
    if (count > 2 * CELLS_MAX) {
        fail(m, MO_ENOSPC);
        return false;
    }
    m->cells = NULL; /* new_cells() must not free the old cells */
    if (!new_cells(m, count)) {
        m->cells = old;
        m->cell_mask = old_mask;
        fail(m, MO_ENOMEM);
        return false;
    }
    for (uint32_t i = 0; i < m->cell_count; i++) {
        const mo_cell cell = old[m->order[i]];
        uint32_t at = cell_hash(cell.item.node, cell.item.sub) & m->cell_mask;
        while (m->cells[at].stamp == m->stamp) {
            at = (at + 1) & m->cell_mask;
        }
        m->cells[at] = cell;
        m->order[i] = at;
    }
    m->queue_count = m->queue_first = 0; /* their positions have changed */
    for (uint32_t i = 0; i < m->cell_count; i++) {
        if (m->cells[m->order[i]].queued) {
            m->queue[m->queue_count++] = m->order[i];
        }
    }
    free(old);
    return true;
}

static bool consumes(mo_node_kind kind)
{
    return kind == MO_NODE_LITERAL || kind == MO_NODE_SET || kind == MO_NODE_TOKEN;
}

/* Adds stacks to a cell. They are united when the cell is followed, so a node that many alternatives reach is
   followed once. */
static bool arrive(mo_machine *m, mo_cell *cell, uint32_t stacks)
{
    if (!mo_array_reserve(&m->more, &m->more_space, m->more_count + 1, sizeof *m->more)) {
        fail(m, MO_ENOMEM);
        return false;
    }
    m->more[m->more_count++] = (mo_arrival){stacks, cell->more};
    cell->more = m->more_count;
    return true;
}

/* Adds a node. For a loop, sub is the number of finished rounds. */
static void add(mo_machine *m, uint32_t node, uint32_t sub, uint32_t stacks)
{
    if (stacks == MO_STACKS_NONE || m->failed != MO_OK) {
        return;
    }
    if (++m->stacks.work > MO_STACKS_WORK) {
        fail(m, MO_ENOSPC);
        return;
    }
    uint32_t at = cell_hash(node, sub) & m->cell_mask;
    while (m->cells[at].stamp == m->stamp &&
           (m->cells[at].item.node != node || m->cells[at].item.sub != sub)) {
        at = (at + 1) & m->cell_mask;
    }
    mo_cell *cell = &m->cells[at];
    if (cell->stamp != m->stamp) {
        if (2 * m->cell_count > m->cell_mask) {
            if (grow_cells(m)) {
                add(m, node, sub, stacks);
            }
            return;
        }
        *cell = (mo_cell){.item = {node, sub, MO_STACKS_NONE}, .stamp = m->stamp};
        m->order[m->cell_count++] = at;
    } else if (cell->item.stacks == stacks || (cell->more && m->more[cell->more - 1].stacks == stacks)) {
        return;
    }
    if (arrive(m, cell, stacks) && !cell->queued && !consumes(m->program->nodes[node].kind)) {
        cell->queued = true;
        m->queue[(m->queue_first + m->queue_count++) & m->cell_mask] = at;
    }
}

/* Returns all stacks added to a cell as one set. */
static uint32_t take(mo_machine *m, mo_cell *cell)
{
    uint32_t i = cell->more;
    const uint32_t first = m->more[i - 1].stacks, second = m->more[i - 1].next;
    cell->more = 0;
    if (second == 0) {
        return first;
    }
    if (m->more[second - 1].next == 0) {
        return mo_stacks_unite(&m->stacks, first, m->more[second - 1].stacks);
    }
    const size_t begin = m->stacks.scratch_used;
    for (; i != 0; i = m->more[i - 1].next) {
        mo_stacks_gather(&m->stacks, m->more[i - 1].stacks);
    }
    return mo_stacks_gathered(&m->stacks, begin);
}

static void enter(mo_machine *m, uint32_t node, uint32_t stacks)
{
    const mo_node *n = &m->program->nodes[node];
    add(m, node, n->kind == MO_NODE_SET ? m->program->characters.starts[n->as.set] : 0, stacks);
}

/* Continues a loop after this many rounds. */
static void loop(mo_machine *m, uint32_t node, uint32_t done, uint32_t stacks)
{
    const mo_node *n = &m->program->nodes[node];
    if (n->as.loop.max == MO_REPEAT_NO_MAX || done < (uint32_t)n->as.loop.max) {
        enter(m, n->as.loop.body, mo_stacks_push(&m->stacks, node, (int32_t)done, stacks));
    }
    if (done >= (uint32_t)n->as.loop.min) {
        enter(m, n->next, stacks);
    }
}

/* Returns to the nodes on top of the stacks. */
static void back(mo_machine *m, uint32_t stacks)
{
    const uint32_t count = m->stacks.sets[stacks].count;
    for (uint32_t i = 0; i < count && m->failed == MO_OK; i++) {
        const mo_frame frame = m->stacks.frames[m->stacks.sets[stacks].at + i];
        if (frame.node == MO_FRAME_END) {
            m->accepts = true;
        } else if (frame.count == MO_FRAME_CALL) {
            enter(m, frame.node, frame.below);
        } else {
            const mo_node *n = &m->program->nodes[frame.node];
            const int32_t done = frame.count + 1;
            const bool enough = n->as.loop.max == MO_REPEAT_NO_MAX && done > n->as.loop.min;
            add(m, frame.node, (uint32_t)(enough ? n->as.loop.min : done), frame.below);
        }
    }
}

static void follow(mo_machine *m, mo_item item)
{
    const mo_program *p = m->program;
    const mo_node *n = &p->nodes[item.node];
    switch (n->kind) {
    case MO_NODE_CALL:
        /* A call followed only by a return needs no frame, so recursion at the end uses no stack. */
        enter(m, p->entries[n->as.call],
              p->nodes[n->next].kind == MO_NODE_RETURN
                  ? item.stacks
                  : mo_stacks_push(&m->stacks, n->next, MO_FRAME_CALL, item.stacks));
        break;
    case MO_NODE_CHOICE:
        for (uint32_t i = 0; i < n->as.choice.count; i++) {
            enter(m, p->targets[n->as.choice.at + i], item.stacks);
        }
        break;
    case MO_NODE_LOOP: loop(m, item.node, item.sub, item.stacks); break;
    case MO_NODE_RETURN: back(m, item.stacks); break;
    default: break;
    }
}

static int by_place(const void *a, const void *b)
{
    const mo_item *x = a, *y = b;
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return (x->sub > y->sub) - (x->sub < y->sub);
}

static uint32_t hash_of(const mo_item *items, uint32_t count, bool accepts)
{
    uint64_t h = 2 * (uint64_t)count + accepts;
    for (uint32_t i = 0; i < count; i++) {
        h = (h ^ items[i].node) * 0x9E3779B97F4A7C15u;
        h = (h ^ items[i].sub) * 0x9E3779B97F4A7C15u;
        h = (h ^ items[i].stacks) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool reserve(mo_machine *m, uint32_t items)
{
    if (!mo_array_reserve(&m->states, &m->state_space, m->state_count + 1, sizeof *m->states) ||
        !mo_array_reserve(&m->items, &m->item_space, m->item_count + items, sizeof *m->items)) {
        return false;
    }
    if (m->state_count >= m->table_mask / 2) {
        const uint32_t size = 2 * (m->table_mask + 1);
        uint32_t *table = calloc(size, sizeof *table);
        if (!table) {
            return false;
        }
        for (uint32_t i = 1; i < m->state_count; i++) {
            uint32_t at = m->states[i].hash & (size - 1);
            while (table[at] != 0) {
                at = (at + 1) & (size - 1);
            }
            table[at] = i;
        }
        free(m->table);
        m->table = table;
        m->table_mask = size - 1;
    }
    return true;
}

/* The number of the state with these items, which are sorted. */
static uint32_t intern(mo_machine *m, const mo_item *items, uint32_t count, bool accepts)
{
    const uint32_t hash = hash_of(items, count, accepts);
    uint32_t at = hash & m->table_mask;
    for (; m->table[at] != 0; at = (at + 1) & m->table_mask) {
        const mo_state *s = &m->states[m->table[at]];
        if (s->hash == hash && s->count == count && s->accepts == accepts &&
            (count == 0 || memcmp(m->items + s->at, items, count * sizeof *items) == 0)) {
            return m->table[at];
        }
    }
    if (m->state_count >= MO_MACHINE_STATES || m->item_count + count > MO_MACHINE_ITEMS) {
        return fail(m, MO_ENOSPC);
    }
    if (!reserve(m, count)) {
        return fail(m, MO_ENOMEM);
    }
    at = hash & m->table_mask;
    while (m->table[at] != 0) {
        at = (at + 1) & m->table_mask;
    }
    if (count > 0) {
        memcpy(m->items + m->item_count, items, count * sizeof *items);
    }
    m->states[m->state_count] =
        (mo_state){.at = m->item_count, .count = count, .hash = hash, .accepts = accepts, .mask = -1};
    m->item_count += count;
    m->table[at] = m->state_count;
    return m->state_count++;
}

/* Follows all nodes that consume nothing, until only consuming ones are left. */
static uint32_t finish(mo_machine *m)
{
    while (m->queue_count > 0 && m->failed == MO_OK) {
        mo_cell *cell = &m->cells[m->queue[m->queue_first]];
        m->queue_first = (m->queue_first + 1) & m->cell_mask;
        m->queue_count--;
        cell->queued = false;
        const uint32_t before = cell->item.stacks, more = take(m, cell);
        cell->item.stacks = before == MO_STACKS_NONE ? more : mo_stacks_unite(&m->stacks, before, more);
        if (cell->item.stacks != before && m->stacks.failed == MO_OK) {
            /* the other stacks were followed before */
            follow(m, (mo_item){cell->item.node, cell->item.sub, more});
        }
        if (m->stacks.failed != MO_OK) {
            fail(m, m->stacks.failed);
        }
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->cell_count && m->failed == MO_OK; i++) {
        mo_cell *cell = &m->cells[m->order[i]];
        if (consumes(m->program->nodes[cell->item.node].kind)) {
            cell->item.stacks = take(m, cell);
            m->gathered[count++] = cell->item;
        }
    }
    if (m->stacks.failed != MO_OK) {
        fail(m, m->stacks.failed);
    }
    if (m->failed != MO_OK) {
        return MO_STATE_DEAD;
    }
    if (count > 1) {
        qsort(m->gathered, count, sizeof *m->gathered, by_place);
    }
    return intern(m, m->gathered, count, m->accepts);
}

/* ---- Steps ---- */

uint32_t mo_machine_step_new(mo_machine *m, uint32_t state, uint8_t byte)
{
    const mo_program *p = m->program;
    const uint32_t at = m->states[state].at, count = m->states[state].count;
    begin(m);
    for (uint32_t i = 0; i < count && m->failed == MO_OK; i++) {
        const mo_item item = m->items[at + i];
        const mo_node *n = &p->nodes[item.node];
        if (n->kind == MO_NODE_LITERAL && p->bytes[n->as.literal.at + item.sub] == byte) {
            if (item.sub + 1 < n->as.literal.length) {
                add(m, item.node, item.sub + 1, item.stacks);
            } else {
                enter(m, n->next, item.stacks);
            }
        } else if (n->kind == MO_NODE_SET) {
            const uint32_t to = mo_byte_states_step(&p->characters, item.sub, byte);
            if (to == MO_CHARACTER_DONE) {
                enter(m, n->next, item.stacks);
            } else if (to != 0) {
                add(m, item.node, to, item.stacks);
            }
        }
    }
    const uint32_t to = finish(m);
    if (m->failed != MO_OK) {
        return MO_STATE_DEAD;
    }
    mo_state *s = &m->states[state];
    if (!s->next) {
        s->next = calloc((size_t)p->class_count, sizeof *s->next);
    }
    if (s->next) { /* NULL: the result is not cached */
        s->next[p->classes[byte]] = to;
    }
    return to;
}

uint32_t mo_machine_step_set(mo_machine *m, uint32_t state, uint32_t set)
{
    const mo_program *p = m->program;
    const uint32_t at = m->states[state].at, count = m->states[state].count;
    begin(m);
    for (uint32_t i = 0; i < count && m->failed == MO_OK; i++) {
        const mo_item item = m->items[at + i];
        const mo_node *n = &p->nodes[item.node];
        if (n->kind == MO_NODE_SET && n->as.set == set && item.sub == p->characters.starts[set]) {
            enter(m, n->next, item.stacks);
        }
    }
    return finish(m);
}

static bool token_matches(const mo_token_match *match, int32_t token, bool special, bool end)
{
    bool named = false;
    for (size_t i = 0; i < match->count && !named; i++) {
        named = match->ids[i] == token;
    }
    switch (match->choice) {
    case MO_TOKEN_THIS: return named;
    case MO_TOKEN_BUT: return !named && !end;
    case MO_TOKEN_SPECIALS: return special && !named && !end;
    }
    return false;
}

uint32_t mo_machine_step_token(mo_machine *m, uint32_t state, int32_t token, bool special, bool end,
                               uint32_t after_text)
{
    const mo_program *p = m->program;
    bool any = false;
    begin(m);
    for (uint32_t i = 0; i < m->states[state].count; i++) {
        const mo_item item = m->items[m->states[state].at + i];
        const mo_node *n = &p->nodes[item.node];
        if (n->kind == MO_NODE_TOKEN && token_matches(n->as.token, token, special, end)) {
            enter(m, n->next, item.stacks);
            any = true;
        }
    }
    if (!any) {
        return after_text;
    }
    for (uint32_t i = 0; i < m->states[after_text].count; i++) {
        const mo_item item = m->items[m->states[after_text].at + i];
        add(m, item.node, item.sub, item.stacks);
    }
    m->accepts |= m->states[after_text].accepts;
    return finish(m);
}

/* ---- Equivalent states, and states of other machines ---- */

typedef struct copying {
    mo_machine *to;
    mo_machine *from; /* may be the same machine */
    uint32_t longest; /* 0: copy loop counts unchanged */
} copying;

static int32_t alike_count(const copying *c, const mo_node *n, int32_t count)
{
    const int64_t longest = c->longest, min = n->as.loop.min, max = n->as.loop.max;
    if (longest == 0) {
        return count;
    }
    if (count >= min) {
        return max != MO_REPEAT_NO_MAX && max - count > longest ? (int32_t)min : count;
    }
    return min - count > longest + 1 ? (int32_t)(min - longest - 1) : count;
}

/* Copies a set of `from`. Its `image` is the set's number in `to`. */
static uint32_t copy_stacks(const copying *c, uint32_t set)
{
    mo_stacks *from = &c->from->stacks, *to = &c->to->stacks;
    if (set == MO_STACKS_BOTTOM || from->sets[set].image != MO_STACKS_NONE || to->failed != MO_OK) {
        return set == MO_STACKS_BOTTOM ? set : from->sets[set].image;
    }
    const uint32_t count = from->sets[set].count;
    mo_frame few[8], *frames = count <= 8 ? few : malloc(count * sizeof *frames);
    if (!frames) {
        to->failed = MO_ENOMEM;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        mo_frame f = from->frames[from->sets[set].at + i];
        if (f.node != MO_FRAME_END) {
            f.below = copy_stacks(c, f.below);
            if (f.count != MO_FRAME_CALL) {
                f.count = alike_count(c, &c->to->program->nodes[f.node], f.count);
            }
        }
        frames[i] = f;
    }
    const uint32_t image = to->failed == MO_OK ? mo_stacks_make(to, frames, count) : 0;
    if (frames != few) {
        free(frames);
    }
    if (to->failed == MO_OK) {
        from->sets[set].image = image;
    }
    return image;
}

static uint32_t copy_state(const copying *c, uint32_t state)
{
    mo_machine *to = c->to, *from = c->from;
    begin(to);
    for (uint32_t i = 0; i < from->states[state].count && to->failed == MO_OK; i++) {
        const mo_item item = from->items[from->states[state].at + i];
        const uint32_t stacks = copy_stacks(c, item.stacks);
        if (to->stacks.failed != MO_OK) {
            fail(to, to->stacks.failed);
        }
        add(to, item.node, item.sub, stacks);
    }
    to->accepts = from->states[state].accepts;
    return finish(to);
}

uint32_t mo_machine_alike(mo_machine *m, uint32_t state, uint32_t longest)
{
    if (!m->program->counts) {
        return state;
    }
    if (m->states[state].mask_of == MO_STATE_UNKNOWN) {
        /* Images stay valid, because a machine is always called with the same `longest`. */
        const uint32_t alike = copy_state(&(copying){m, m, longest}, state);
        m->states[state].mask_of = m->failed == MO_OK ? alike : MO_STATE_UNKNOWN;
        return alike;
    }
    return m->states[state].mask_of;
}

uint32_t mo_machine_import(mo_machine *m, mo_machine *from, uint32_t state)
{
    for (uint32_t i = 0; i < from->stacks.set_count; i++) {
        from->stacks.sets[i].image = MO_STACKS_NONE;
    }
    return copy_state(&(copying){m, from, 0}, state);
}
