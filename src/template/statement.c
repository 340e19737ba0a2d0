/* The statements of run.h. */
#include "template/print.h"
#include "template/run.h"

static void execute(mo_jrun *r, const mo_jnode *n);

void mo_run_body(mo_jrun *r, const mo_jnodes *body)
{
    mo_work_down(r->w);
    for (uint32_t i = 0; i < body->count && r->leave == MO_LEAVE_NOT; i++) {
        execute(r, body->items[i]);
    }
    mo_work_up(r->w);
}

mo_jstring mo_run_capture(mo_jrun *r, const mo_jnodes *body)
{
    mo_jbuffer *outer = r->out;
    r->out = mo_jbuffer_new(r->w, 0);
    mo_run_body(r, body);
    const mo_jstring text = mo_jbuffer_view(r->out);
    r->out = outer;
    return text;
}

/* Runs the body in its own scope. */
static mo_jstring capture_inside(mo_jrun *r, const mo_jnodes *body)
{
    mo_jframe *outer = r->frame;
    r->frame = mo_frame_enter(r, outer);
    const mo_jstring text = mo_run_capture(r, body);
    r->frame = outer;
    return text;
}

/* ---- Assignment ---- */

static void assign(mo_jrun *r, const mo_jnode *target, mo_jv v);

static void unpack(mo_jrun *r, const mo_jnode *target, mo_jv v)
{
    const mo_jlist *items = mo_jv_iterate(r->w, v);
    const uint32_t count = target->list.count;
    if (items->count != count) {
        mo_work_fail(r->w, MO_EINVAL, "%s values to unpack (expected %u, got %u)",
                     items->count < count ? "not enough" : "too many", count, items->count);
    }
    for (uint32_t i = 0; i < count; i++) {
        assign(r, target->list.items[i], items->items[i]);
    }
}

static void assign(mo_jrun *r, const mo_jnode *target, mo_jv v)
{
    r->w->line = target->line;
    if (target->kind == MO_NODE_NAME) {
        mo_frame_set(r, r->frame, target->symbol, v);
    } else if (target->kind == MO_NODE_ATTRIBUTE) {
        const mo_jv space = mo_run_eval(r, target->a);
        if (space.kind != MO_J_NAMESPACE) {
            mo_work_fail(r->w, MO_EINVAL, "cannot assign attribute on non-namespace object");
        }
        mo_jdict_set(r->w, space.as.dict, target->value, v);
    } else {
        unpack(r, target, v);
    }
}

/* ---- Loops ---- */

/* The items that satisfy the loop's condition. */
static mo_jlist *chosen(mo_jrun *r, const mo_jnode *n, mo_jlist *all)
{
    mo_jlist *kept = mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
    mo_jframe *outer = r->frame;
    r->frame = mo_frame_enter(r, outer);
    for (uint32_t i = 0; i < all->count; i++) {
        const mo_jv item = all->items[i];
        assign(r, n->b, item);
        if (mo_jv_true(mo_run_eval(r, n->c))) {
            mo_jlist_add(r->w, kept, item);
        }
    }
    r->frame = outer;
    return kept;
}

static void rounds(mo_jrun *r, const mo_jnode *n, mo_jv over, int depth)
{
    mo_jlist *items = mo_jv_iterate(r->w, over);
    mo_jframe *outer = r->frame;
    items = n->c ? chosen(r, n, items) : items;
    if (items->count == 0) {
        r->frame = mo_frame_enter(r, outer);
        mo_run_body(r, &n->others);
        r->frame = outer;
        return;
    }
    mo_jloop *loop = mo_work_alloc(r->w, sizeof *loop);
    *loop = (mo_jloop){
        .node = n, .frame = outer, .items = items, .depth = depth, .changed = {.kind = MO_J_ABSENT}};
    r->frame = mo_frame_enter(r, outer);
    for (; loop->at < items->count && r->leave != MO_LEAVE_BREAK; loop->at++) {
        mo_work_spend(r->w, 1);
        r->leave = MO_LEAVE_NOT;
        r->frame->count = 0;
        mo_frame_set(r, r->frame, r->tree->loop, (mo_jv){.kind = MO_J_LOOP, .as.loop = loop});
        assign(r, n->b, items->items[loop->at]);
        mo_run_body(r, &n->list);
    }
    loop->at = items->count - 1; /* a reference to the loop object sees the last iteration */
    r->leave = MO_LEAVE_NOT;
    r->frame = outer;
}

mo_jv mo_run_loop(mo_jrun *r, const mo_jnode *n, mo_jv over, mo_jframe *around, int depth, bool capture)
{
    mo_jframe *frame = r->frame;
    mo_jbuffer *out = r->out;
    r->frame = around;
    r->out = capture ? mo_jbuffer_new(r->w, 0) : out;
    mo_work_down(r->w);
    rounds(r, n, over, depth);
    mo_work_up(r->w);
    const mo_jv text = capture ? mo_jv_string(mo_jbuffer_view(r->out)) : MO_JV_NONE;
    r->frame = frame;
    r->out = out;
    return text;
}

/* ---- Other statements ---- */

/* Evaluates conditions in order: an elif is the only statement in the else branch of the previous one. */
static void choose(mo_jrun *r, const mo_jnode *n)
{
    while (!mo_jv_true(mo_run_eval(r, n->a))) {
        if (n->others.count != 1 || n->others.items[0]->kind != MO_NODE_IF) {
            mo_run_body(r, &n->others);
            return;
        }
        n = n->others.items[0];
    }
    mo_run_body(r, &n->list);
}

/* Applies a block's filters to a text. The first filter has no operand. */
static mo_jv filtered(mo_jrun *r, const mo_jnode *n, mo_jv text)
{
    const mo_jv v = n->a ? filtered(r, n->a, text) : text;
    const mo_jargs args = mo_call_arguments(r, n);
    r->w->line = n->line;
    return mo_call_filter(r, n->value.as.string, v, &args);
}

static mo_jv macro_of(mo_jrun *r, const mo_jnode *n)
{
    mo_jmacro *m = mo_work_alloc(r->w, sizeof *m);
    *m = (mo_jmacro){n, r->frame};
    return (mo_jv){.kind = MO_J_MACRO, .as.macro = m};
}

static void call_with_body(mo_jrun *r, const mo_jnode *n)
{
    const mo_jv callee = mo_run_eval(r, n->a->a);
    const mo_jargs args = mo_call_arguments(r, n->a);
    r->w->line = n->line;
    if (callee.kind != MO_J_MACRO) {
        mo_work_fail(r->w, MO_EINVAL, "{%% call %%} needs a macro, not '%s'", mo_jv_type(callee));
    }
    mo_print_str(r->w, r->out, mo_call_macro(r, callee.as.macro, &args, macro_of(r, n)));
}

static void with(mo_jrun *r, const mo_jnode *n)
{
    mo_jframe *outer = r->frame, *inner = mo_frame_enter(r, outer);
    for (uint32_t i = 0; i + 1 < n->others.count; i += 2) { /* values are evaluated in the outer scope */
        r->frame = outer;
        const mo_jv v = mo_run_eval(r, n->others.items[i + 1]);
        r->frame = inner;
        assign(r, n->others.items[i], v);
    }
    r->frame = inner;
    mo_run_body(r, &n->list);
    r->frame = outer;
}

static void execute(mo_jrun *r, const mo_jnode *n)
{
    mo_jframe *outer = r->frame;
    mo_work_spend(r->w, 1);
    r->w->line = n->line;
    switch (n->kind) {
    case MO_NODE_DATA: mo_jbuffer_add_string(r->w, r->out, n->value.as.string); break;
    case MO_NODE_PRINT: mo_print_str(r->w, r->out, mo_run_eval(r, n->a)); break;
    case MO_NODE_IF: choose(r, n); break;
    case MO_NODE_FOR: mo_run_loop(r, n, mo_run_eval(r, n->a), r->frame, 0, false); break;
    case MO_NODE_SET: assign(r, n->b, mo_run_eval(r, n->a)); break;
    case MO_NODE_SET_BLOCK: {
        const mo_jv text = mo_jv_string(capture_inside(r, &n->list));
        assign(r, n->b, n->a ? filtered(r, n->a, text) : text);
        break;
    }
    case MO_NODE_MACRO: mo_frame_set(r, r->frame, n->symbol, macro_of(r, n)); break;
    case MO_NODE_CALL_BLOCK: call_with_body(r, n); break;
    case MO_NODE_FILTER_BLOCK: {
        const mo_jv text = mo_jv_string(capture_inside(r, &n->list));
        mo_print_str(r->w, r->out, filtered(r, n->a, text));
        break;
    }
    case MO_NODE_WITH: with(r, n); break;
    case MO_NODE_SCOPE:
        r->frame = mo_frame_enter(r, outer);
        mo_run_body(r, &n->list);
        r->frame = outer;
        break;
    case MO_NODE_BREAK: r->leave = MO_LEAVE_BREAK; break;
    case MO_NODE_CONTINUE: r->leave = MO_LEAVE_CONTINUE; break;
    default: break;
    }
}
