#include "grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

enum { MOST = UINT32_MAX / 4 }; /* maximum bytes of literals, and targets of choices */

typedef struct compiler {
    mo_program *p;
    uint32_t *waiting; /* entries that are referenced but not compiled yet */
    uint32_t waiting_count;
    bool *wanted; /* one flag per entry */
    mo_status status;
    mo_error *err;
} compiler;

void mo_program_free(mo_program *p)
{
    mo_syntax_free(&p->syntax);
    free(p->nodes);
    free(p->targets);
    free(p->bytes);
    free(p->entries);
    mo_byte_states_free(&p->characters);
    *p = (mo_program){0};
}

static uint32_t failed(compiler *c, mo_status status)
{
    if (c->status == MO_OK) {
        c->status = mo_fail(c->err, status, "%s",
                            status == MO_ENOMEM ? "out of memory for a grammar"
                                                : "the compiled grammar is too large");
    }
    return 0;
}

static uint32_t add_node(compiler *c, mo_node node)
{
    mo_program *p = c->p;
    if (c->status != MO_OK) {
        return 0;
    }
    if (p->node_count == MO_PROGRAM_NODES) {
        return failed(c, MO_EINVAL);
    }
    if (!mo_array_reserve(&p->nodes, &p->node_space, p->node_count + 1, sizeof node)) {
        return failed(c, MO_ENOMEM);
    }
    p->nodes[p->node_count] = node;
    return p->node_count++;
}

/* ---- Nodes ---- */

static uint32_t compile(compiler *c, const mo_syntax *x, uint32_t next);
static uint32_t compile_some(compiler *c, const mo_syntax *x, uint32_t next);

static uint32_t literal(compiler *c, mo_text text, uint32_t next)
{
    mo_program *p = c->p;
    if (text.length == 0) {
        return next;
    }
    if (text.length > MOST - p->byte_count ||
        !mo_array_reserve(&p->bytes, &p->byte_space, p->byte_count + text.length, 1)) {
        return failed(c, MO_ENOMEM);
    }
    const uint32_t at = p->byte_count;
    memcpy(p->bytes + at, text.data, text.length);
    p->byte_count += (uint32_t)text.length;
    return add_node(
        c, (mo_node){MO_NODE_LITERAL, next, {.literal = {.at = at, .length = (uint32_t)text.length}}});
}

static uint32_t choice(compiler *c, const uint32_t *to, size_t count)
{
    mo_program *p = c->p;
    if (count == 1) {
        return to[0];
    }
    if (count > MOST - p->target_count ||
        !mo_array_reserve(&p->targets, &p->target_space, p->target_count + count, sizeof *to)) {
        return failed(c, MO_ENOMEM);
    }
    const uint32_t at = p->target_count;
    if (count > 0) {
        memcpy(p->targets + at, to, count * sizeof *to);
    }
    p->target_count += (uint32_t)count;
    return add_node(c, (mo_node){MO_NODE_CHOICE, 0, {.choice = {.at = at, .count = (uint32_t)count}}});
}

static uint32_t call(compiler *c, uint32_t entry, uint32_t next)
{
    if (!c->wanted[entry]) {
        c->wanted[entry] = true;
        c->waiting[c->waiting_count++] = entry;
    }
    return add_node(c, (mo_node){MO_NODE_CALL, next, {.call = entry}});
}

static uint32_t set(compiler *c, uint32_t number, uint32_t next)
{
    return add_node(c, (mo_node){MO_NODE_SET, next, {.set = number}});
}

/* A repetition of the item's non-empty matches. This matches the same texts, and the machine cannot loop
   without consuming input. */
static uint32_t repeat(compiler *c, const mo_syntax *item, int32_t min, int32_t max, uint32_t next)
{
    if (max == 1) {
        const uint32_t one = compile_some(c, item, next);
        const uint32_t to[2] = {one, next};
        return min == 1 ? one : choice(c, to, 2);
    }
    const uint32_t back = add_node(c, (mo_node){.kind = MO_NODE_RETURN});
    const uint32_t body = compile_some(c, item, back);
    c->p->counts |= min > 1 || max != MO_REPEAT_NO_MAX;
    return add_node(c, (mo_node){MO_NODE_LOOP, next, {.loop = {.body = body, .min = min, .max = max}}});
}

static uint32_t alternatives(compiler *c, const mo_syntax *x, uint32_t next,
                             uint32_t (*each)(compiler *, const mo_syntax *, uint32_t))
{
    uint32_t few[16];
    const size_t count = x->as.list.count;
    uint32_t *to = count <= 16 ? few : malloc(count * sizeof *to);
    if (!to) {
        return failed(c, MO_ENOMEM);
    }
    for (size_t i = 0; i < count && c->status == MO_OK; i++) {
        to[i] = each(c, x->as.list.items[i], next);
    }
    const uint32_t entry = c->status == MO_OK ? choice(c, to, count) : 0;
    if (to != few) {
        free(to);
    }
    return entry;
}

/* The first node of x when `next` follows. */
static uint32_t compile(compiler *c, const mo_syntax *x, uint32_t next)
{
    if (c->status != MO_OK) {
        return 0;
    }
    switch (x->kind) {
    case MO_SYNTAX_LITERAL: return literal(c, x->as.literal, next);
    case MO_SYNTAX_SET: return set(c, x->as.set, next);
    case MO_SYNTAX_TOKEN: return add_node(c, (mo_node){MO_NODE_TOKEN, next, {.token = x->as.token}});
    case MO_SYNTAX_RULE: return call(c, 2 * x->as.rule, next);
    case MO_SYNTAX_SEQUENCE:
        for (size_t i = x->as.list.count; i > 0; i--) {
            next = compile(c, x->as.list.items[i - 1], next);
        }
        return next;
    case MO_SYNTAX_CHOICE: return alternatives(c, x, next, compile);
    case MO_SYNTAX_REPEAT:
        return x->as.repeat.max == 0
                   ? next
                   : repeat(c, x->as.repeat.item, x->nullable ? 0 : x->as.repeat.min, x->as.repeat.max, next);
    }
    return 0;
}

/* A sequence that must not match the empty text. `full` follows after something was matched, `some` while
   nothing was. */
static uint32_t sequence_some(compiler *c, const mo_syntax *x, uint32_t next)
{
    uint32_t full = next, some = choice(c, NULL, 0); /* dead end */
    for (size_t i = x->as.list.count; i > 0; i--) {
        const mo_syntax *item = x->as.list.items[i - 1];
        const uint32_t here = compile_some(c, item, full);
        const uint32_t to[2] = {here, some};
        some = item->nullable ? choice(c, to, 2) : here;
        full = compile(c, item, full);
    }
    return some;
}

/* The first node of x without its empty match. */
static uint32_t compile_some(compiler *c, const mo_syntax *x, uint32_t next)
{
    if (c->status != MO_OK) {
        return 0;
    }
    if (!x->nullable) {
        return compile(c, x, next);
    }
    switch (x->kind) {
    case MO_SYNTAX_RULE: return call(c, 2 * x->as.rule + 1, next);
    case MO_SYNTAX_SEQUENCE: return sequence_some(c, x, next);
    case MO_SYNTAX_CHOICE: return alternatives(c, x, next, compile_some);
    case MO_SYNTAX_REPEAT:
        if (x->as.repeat.max != 0) {
            return repeat(c, x->as.repeat.item, 1, x->as.repeat.max, next);
        }
        break;
    default: break; /* an empty literal */
    }
    return choice(c, NULL, 0);
}

/* ---- The whole program ---- */

/* Two bytes are in one class if no literal and no set distinguishes them. */
static void find_classes(mo_program *p)
{
    bool begins[257] = {true};
    for (uint32_t i = 0; i < p->byte_count; i++) {
        begins[p->bytes[i]] = begins[p->bytes[i] + 1] = true;
    }
    for (uint32_t i = 0; i < p->characters.arc_count; i++) {
        begins[p->characters.arcs[i].low] = begins[p->characters.arcs[i].high + 1] = true;
    }
    p->class_count = 0;
    for (int b = 0; b < 256; b++) {
        if (begins[b]) {
            p->class_bytes[p->class_count++] = (uint8_t)b;
        }
        p->classes[b] = (uint8_t)(p->class_count - 1);
    }
}

static void compile_rules(compiler *c)
{
    mo_program *p = c->p;
    const uint32_t back = add_node(c, (mo_node){.kind = MO_NODE_RETURN});
    p->start = call(c, 2 * p->syntax.root, back);
    while (c->waiting_count > 0 && c->status == MO_OK) {
        const uint32_t entry = c->waiting[--c->waiting_count];
        const mo_syntax *body = p->syntax.rules[entry / 2].body;
        p->entries[entry] = entry % 2 ? compile_some(c, body, back) : compile(c, body, back);
    }
}

mo_status mo_program_make(mo_syntax_grammar *syntax, mo_program *out, mo_error *err)
{
    *out = (mo_program){.syntax = *syntax};
    *syntax = (mo_syntax_grammar){0};
    const size_t entries = 2 * (size_t)out->syntax.rule_count;
    compiler c = {.p = out, .err = err};
    out->entries = calloc(entries + 1, sizeof *out->entries);
    c.waiting = calloc(entries + 1, sizeof *c.waiting);
    c.wanted = calloc(entries + 1, sizeof *c.wanted);
    if (!out->entries || !c.waiting || !c.wanted) {
        failed(&c, MO_ENOMEM);
    } else {
        compile_rules(&c);
    }
    if (c.status == MO_OK) {
        c.status = mo_byte_states_make(out->syntax.sets, out->syntax.set_count, &out->characters, err);
    }
    if (c.status == MO_OK) {
        find_classes(out);
    }
    free(c.waiting);
    free(c.wanted);
    if (c.status != MO_OK) {
        mo_program_free(out);
    }
    return c.status;
}
