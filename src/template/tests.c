/* Tests: the names after `is`. */
#include "template/print.h"
#include "template/run.h"
#include "template/texts.h"

#define TEST(name, expression)                                                                               \
    static mo_jv t_##name(MO_JPARAMETERS)                                                                    \
    {                                                                                                        \
        return mo_jv_bool(expression);                                                                       \
    }

static bool is_integer(mo_jv v)
{
    return v.kind == MO_J_INT || v.kind == MO_J_BIG;
}

static bool is_callable(mo_jv v)
{
    return v.kind >= MO_J_LOOP;
}

static bool leaves(mo_jrun *r, mo_jv v, mo_jv by, double wanted)
{
    const mo_jv rest = mo_operate(r, MO_JOP_MOD, v, by);
    return mo_jv_is_number(rest) && mo_jv_number(rest) == wanted;
}

static bool has_case(mo_jrun *r, mo_jv v, mo_jcase which)
{
    const mo_jstring s = mo_jv_str(r->w, v);
    const mo_jcase other = which == MO_CASE_LOWER ? MO_CASE_UPPER : MO_CASE_LOWER;
    return mo_jstring_equal(r->w, s, mo_text_case(r->w, s, which)) &&
           !mo_jstring_equal(r->w, s, mo_text_case(r->w, s, other));
}

/* Identical, not only equal. */
static bool is_same(mo_jrun *r, mo_jv a, mo_jv b)
{
    if (a.kind != b.kind) {
        return false;
    }
    return a.kind == MO_J_LIST   ? a.as.list == b.as.list
           : a.kind == MO_J_DICT ? a.as.dict == b.as.dict
                                 : mo_jv_equal(r->w, a, b);
}

TEST(defined, self.kind != MO_J_UNDEFINED)
TEST(undefined, self.kind == MO_J_UNDEFINED)
TEST(none, self.kind == MO_J_NONE)
TEST(boolean, self.kind == MO_J_BOOL)
TEST(true, self.kind == MO_J_BOOL && self.as.truth)
TEST(false, self.kind == MO_J_BOOL && !self.as.truth)
TEST(integer, is_integer(self))
TEST(float, self.kind == MO_J_FLOAT)
TEST(number, mo_jv_is_number(self) || self.kind == MO_J_BIG)
TEST(string, self.kind == MO_J_STRING)
TEST(mapping, self.kind == MO_J_DICT)
/* As in jinja2, undefined can be iterated and has a length. */
TEST(iterable, self.kind == MO_J_STRING || self.kind == MO_J_LIST || self.kind == MO_J_DICT ||
                   self.kind == MO_J_UNDEFINED)
TEST(sequence, self.kind == MO_J_STRING || self.kind == MO_J_DICT || self.kind == MO_J_UNDEFINED ||
                   (self.kind == MO_J_LIST && self.as.list->shape <= MO_SHAPE_RANGE))
TEST(callable, is_callable(self))
TEST(even, leaves(r, self, mo_jv_int(2), 0))
TEST(odd, leaves(r, self, mo_jv_int(2), 1))
TEST(divisibleby, leaves(r, self, a[0], 0))
TEST(lower, has_case(r, self, MO_CASE_LOWER))
TEST(upper, has_case(r, self, MO_CASE_UPPER))
TEST(eq, mo_compare(r, MO_JOP_EQ, self, a[0]))
TEST(ne, mo_compare(r, MO_JOP_NE, self, a[0]))
TEST(lt, mo_compare(r, MO_JOP_LT, self, a[0]))
TEST(le, mo_compare(r, MO_JOP_LE, self, a[0]))
TEST(gt, mo_compare(r, MO_JOP_GT, self, a[0]))
TEST(ge, mo_compare(r, MO_JOP_GE, self, a[0]))
TEST(in, mo_contains(r, a[0], self))
TEST(sameas, is_same(r, self, a[0]))
TEST(filter, self.kind == MO_J_STRING && (mo_function_find(mo_filters_text, self.as.string) ||
                                          mo_function_find(mo_filters_sequence, self.as.string) ||
                                          mo_function_find(mo_filters_value, self.as.string)))
TEST(test, self.kind == MO_J_STRING && mo_function_find(mo_tests, self.as.string))
TEST(escaped, false)

const mo_jfunction mo_tests[] = {
    {"defined", "", t_defined},
    {"undefined", "", t_undefined},
    {"none", "", t_none},
    {"boolean", "", t_boolean},
    {"true", "", t_true},
    {"false", "", t_false},
    {"integer", "", t_integer},
    {"float", "", t_float},
    {"number", "", t_number},
    {"string", "", t_string},
    {"mapping", "", t_mapping},
    {"iterable", "", t_iterable},
    {"sequence", "", t_sequence},
    {"callable", "", t_callable},
    {"even", "", t_even},
    {"odd", "", t_odd},
    {"divisibleby", "num", t_divisibleby},
    {"lower", "", t_lower},
    {"upper", "", t_upper},
    {"eq", "other", t_eq},
    {"==", "other", t_eq},
    {"equalto", "other", t_eq},
    {"ne", "other", t_ne},
    {"!=", "other", t_ne},
    {"lt", "other", t_lt},
    {"<", "other", t_lt},
    {"lessthan", "other", t_lt},
    {"le", "other", t_le},
    {"<=", "other", t_le},
    {"gt", "other", t_gt},
    {">", "other", t_gt},
    {"greaterthan", "other", t_gt},
    {"ge", "other", t_ge},
    {">=", "other", t_ge},
    {"in", "seq", t_in},
    {"sameas", "other", t_sameas},
    {"filter", "", t_filter},
    {"test", "", t_test},
    {"escaped", "", t_escaped},
    {NULL, NULL, NULL},
};
