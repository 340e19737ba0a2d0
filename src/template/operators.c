/* Arithmetic and comparisons. */
#include <math.h>

#include "template/run.h"

static const char *const signs[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

static __attribute__((noreturn)) void unsupported(mo_jrun *r, mo_jop op, mo_jv a, mo_jv b)
{
    if (a.kind == MO_J_UNDEFINED || b.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, a.kind == MO_J_UNDEFINED ? a : b);
    }
    if (op == MO_JOP_ADD && (a.kind == MO_J_STRING || a.kind == MO_J_LIST)) {
        mo_work_fail(r->w, MO_EINVAL, "can only concatenate %s (not \"%s\") to %s", mo_jv_type(a),
                     mo_jv_type(b), mo_jv_type(a));
    }
    mo_work_fail(r->w, MO_EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op],
                 mo_jv_type(a), mo_jv_type(b));
}

static __attribute__((noreturn)) void too_large(mo_jrun *r)
{
    mo_work_fail(r->w, MO_EINVAL, "the result is an integer of more than 64 bits");
}

static mo_jv float_operate(mo_jrun *r, mo_jop op, double a, double b)
{
    if ((op == MO_JOP_DIV || op == MO_JOP_FLOOR_DIV || op == MO_JOP_MOD) && b == 0) {
        mo_work_fail(r->w, MO_EINVAL, "division by zero");
    }
    switch (op) {
    case MO_JOP_ADD: return mo_jv_real(a + b);
    case MO_JOP_SUB: return mo_jv_real(a - b);
    case MO_JOP_MUL: return mo_jv_real(a * b);
    case MO_JOP_DIV: return mo_jv_real(a / b);
    case MO_JOP_FLOOR_DIV: return mo_jv_real(floor(a / b));
    case MO_JOP_MOD: {
        const double rest = fmod(a, b);
        return mo_jv_real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default: return mo_jv_real(pow(a, b));
    }
}

static mo_jv integer_power(mo_jrun *r, int64_t base, int64_t exponent)
{
    if (exponent < 0) {
        return float_operate(r, MO_JOP_POW, (double)base, (double)exponent);
    }
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1) {
        return mo_jv_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
    }
    for (; exponent > 0; exponent--) { /* at most 63 rounds */
        if (__builtin_mul_overflow(result, base, &result)) {
            too_large(r);
        }
    }
    return mo_jv_int(result);
}

static mo_jv integer_operate(mo_jrun *r, mo_jop op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool over = false;
    if ((op == MO_JOP_FLOOR_DIV || op == MO_JOP_MOD) && b == 0) {
        mo_work_fail(r->w, MO_EINVAL, "integer division or modulo by zero");
    }
    switch (op) {
    case MO_JOP_ADD: over = __builtin_add_overflow(a, b, &result); break;
    case MO_JOP_SUB: over = __builtin_sub_overflow(a, b, &result); break;
    case MO_JOP_MUL: over = __builtin_mul_overflow(a, b, &result); break;
    case MO_JOP_DIV: return float_operate(r, op, (double)a, (double)b);
    case MO_JOP_POW: return integer_power(r, a, b);
    default:
        if (b == -1) { /* the smallest number divided by -1 overflows */
            over = op == MO_JOP_FLOOR_DIV && __builtin_sub_overflow((int64_t)0, a, &result);
            break;
        }
        result = op == MO_JOP_MOD ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0)) {
            result += op == MO_JOP_MOD ? b : -1;
        }
    }
    if (over) {
        too_large(r);
    }
    return mo_jv_int(result);
}

static mo_jv repeat(mo_jrun *r, mo_jv v, int64_t times)
{
    const size_t length = v.kind == MO_J_STRING ? v.as.string.length : v.as.list->count;
    times = times < 0 || length == 0 ? 0 : times;
    if (times > 0 && (uint64_t)times > INT32_MAX / length) {
        mo_work_fail(r->w, MO_ENOSPC, "a value repeated %lld times is too long", (long long)times);
    }
    if (v.kind == MO_J_STRING) {
        mo_jbuffer *out = mo_jbuffer_new(r->w, length * (size_t)times);
        for (int64_t i = 0; i < times; i++) {
            mo_jbuffer_add_string(r->w, out, v.as.string);
        }
        return mo_jv_string(mo_jbuffer_view(out));
    }
    mo_jlist *list = mo_jlist_new(r->w, v.as.list->shape, length * (size_t)times);
    for (int64_t i = 0; i < times; i++) {
        for (size_t k = 0; k < length; k++) {
            mo_jlist_add(r->w, list, v.as.list->items[k]);
        }
    }
    return mo_jv_list(list);
}

static mo_jv add_lists(mo_jrun *r, const mo_jlist *a, const mo_jlist *b)
{
    mo_jlist *both = mo_jlist_new(r->w, a->shape, (size_t)a->count + b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        mo_jlist_add(r->w, both, a->items[i]);
    }
    for (uint32_t i = 0; i < b->count; i++) {
        mo_jlist_add(r->w, both, b->items[i]);
    }
    return mo_jv_list(both);
}

static bool is_whole(mo_jv v)
{
    return v.kind == MO_J_INT || v.kind == MO_J_BOOL;
}

static bool is_series(mo_jv v)
{
    return v.kind == MO_J_STRING || (v.kind == MO_J_LIST && v.as.list->shape <= MO_SHAPE_TUPLE);
}

mo_jv mo_operate(mo_jrun *r, mo_jop op, mo_jv a, mo_jv b)
{
    if (is_whole(a) && is_whole(b)) {
        return integer_operate(r, op, mo_jv_integer(r->w, a, "it"), mo_jv_integer(r->w, b, "it"));
    }
    if (mo_jv_is_number(a) && mo_jv_is_number(b)) {
        return float_operate(r, op, mo_jv_number(a), mo_jv_number(b));
    }
    if ((a.kind == MO_J_BIG || b.kind == MO_J_BIG) &&
        (mo_jv_is_number(a) || mo_jv_is_number(b) || a.kind == b.kind)) {
        mo_work_fail(r->w, MO_EINVAL, "arithmetic with an integer of more than 64 bits");
    }
    if (op == MO_JOP_ADD && a.kind == MO_J_STRING && b.kind == MO_J_STRING) {
        return mo_jv_string(mo_jstring_concat(r->w, a.as.string, b.as.string));
    }
    if (op == MO_JOP_ADD && is_series(a) && is_series(b) && a.kind == MO_J_LIST && b.kind == MO_J_LIST &&
        a.as.list->shape == b.as.list->shape) {
        return add_lists(r, a.as.list, b.as.list);
    }
    if (op == MO_JOP_MUL && is_series(a) && is_whole(b)) {
        return repeat(r, a, mo_jv_integer(r->w, b, "it"));
    }
    if (op == MO_JOP_MUL && is_series(b) && is_whole(a)) {
        return repeat(r, b, mo_jv_integer(r->w, a, "it"));
    }
    if (op == MO_JOP_MOD && a.kind == MO_J_STRING) {
        return mo_format_percent(r, a.as.string, b);
    }
    unsupported(r, op, a, b);
}

mo_jv mo_negate(mo_jrun *r, mo_jv v)
{
    if (v.kind == MO_J_FLOAT) {
        return mo_jv_real(-v.as.real);
    }
    if (is_whole(v)) {
        return integer_operate(r, MO_JOP_SUB, 0, mo_jv_integer(r->w, v, "it"));
    }
    if (v.kind == MO_J_BIG) {
        const mo_jstring s = v.as.string;
        const bool minus = mo_jstring_data(s)[0] == '-';
        if (mo_jstring_is(s, "9223372036854775808")) { /* only its negative fits 64 bits */
            return mo_jv_int(INT64_MIN);
        }
        return (mo_jv){.kind = MO_J_BIG,
                       .as.string = minus ? mo_jstring_part(s, 1, s.length - 1)
                                          : mo_jstring_concat(r->w, mo_jstring_literal(r->w, "-"), s)};
    }
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, v);
    }
    mo_work_fail(r->w, MO_EINVAL, "bad operand type for unary -: '%s'", mo_jv_type(v));
}

bool mo_contains(mo_jrun *r, mo_jv container, mo_jv item)
{
    switch (container.kind) {
    case MO_J_STRING:
        if (item.kind != MO_J_STRING) {
            if (item.kind == MO_J_UNDEFINED) {
                mo_jv_fail_undefined(r->w, item);
            }
            mo_work_fail(r->w, MO_EINVAL, "'in <string>' requires string as left operand, not %s",
                         mo_jv_type(item));
        }
        return mo_jstring_find(r->w, container.as.string, item.as.string, 0) >= 0;
    case MO_J_DICT: return item.kind != MO_J_UNDEFINED && mo_jdict_get(r->w, container.as.dict, item) != NULL;
    case MO_J_LIST:
        for (uint32_t i = 0; i < container.as.list->count; i++) {
            if (mo_jv_equal(r->w, container.as.list->items[i], item)) {
                return true;
            }
        }
        return false;
    case MO_J_UNDEFINED: return false;
    default: mo_work_fail(r->w, MO_EINVAL, "argument of type '%s' is not iterable", mo_jv_type(container));
    }
}

bool mo_compare(mo_jrun *r, mo_jop op, mo_jv a, mo_jv b)
{
    switch (op) {
    case MO_JOP_EQ: return mo_jv_equal(r->w, a, b);
    case MO_JOP_NE: return !mo_jv_equal(r->w, a, b);
    case MO_JOP_IN: return mo_contains(r, b, a);
    case MO_JOP_NOT_IN: return !mo_contains(r, b, a);
    default: break;
    }
    const int order = mo_jv_order(r->w, a, b, signs[op]);
    switch (op) {
    case MO_JOP_LT: return order < 0;
    case MO_JOP_LE: return order <= 0;
    case MO_JOP_GT: return order == 1;
    default: return order == 0 || order == 1;
    }
}
