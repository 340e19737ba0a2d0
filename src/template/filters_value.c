/* Filters of single values: defaults and numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/print.h"
#include "template/run.h"

static mo_jv f_default(MO_JPARAMETERS) /* default_value? boolean? */
{
    if (self.kind == MO_J_UNDEFINED || (mo_jv_true(a[1]) && !mo_jv_true(self))) {
        return mo_jv_is_absent(a[0]) ? mo_jv_text(r->w, "") : a[0];
    }
    return self;
}

static mo_jv f_attr(MO_JPARAMETERS)
{
    return mo_access_own(r, self, mo_jv_need_string(r->w, a[0], "attr's name"));
}

static mo_jv f_abs(MO_JPARAMETERS)
{
    if (!mo_jv_is_number(self)) {
        mo_work_fail(r->w, MO_EINVAL, "bad operand type for abs(): '%s'", mo_jv_type(self));
    }
    return mo_jv_number(self) < 0   ? mo_negate(r, self)
           : self.kind == MO_J_BOOL ? mo_jv_int(self.as.truth)
                                    : self;
}

/* Digits with underscores as in Python, a sign, and surrounding blanks. False: not a number. */
static bool plain_number(mo_jrun *r, mo_jstring s, char **text, bool *whole)
{
    const mo_jstring t = mo_jstring_trim(r->w, s, NULL, MO_TRIM_LEFT | MO_TRIM_RIGHT);
    char *out = *text = mo_work_alloc(r->w, (size_t)t.length + 1);
    const char *p = mo_jstring_data(t), *end = p + t.length;
    bool digits = false;
    *whole = true;
    mo_work_spend(r->w, MO_SCAN_STEPS(t.length));
    for (; p < end; p++) {
        if (*p >= '0' && *p <= '9') {
            digits = true;
        } else if (*p == '_' && digits && p + 1 < end && p[1] >= '0' && p[1] <= '9') {
            continue;
        } else if ((*p == '+' || *p == '-') && (out == *text || (out[-1] | 32) == 'e')) {
        } else if ((*p == '.' || (*p | 32) == 'e') && (digits || *p == '.')) {
            *whole = false;
        } else {
            return false;
        }
        *out++ = *p;
    }
    return digits;
}

static bool to_real(mo_jrun *r, mo_jv v, double *real)
{
    char *text, *end;
    bool whole;
    if (mo_jv_is_number(v)) {
        *real = mo_jv_number(v);
        return true;
    }
    if ((v.kind == MO_J_STRING || v.kind == MO_J_BIG) && plain_number(r, v.as.string, &text, &whole)) {
        (void)strtod(text, &end);
        *real = mo_float_read(text);
        return true;
    }
    return false;
}

static mo_jv f_int(MO_JPARAMETERS) /* default? base? */
{
    if (self.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, self);
    }
    const mo_jv otherwise = mo_jv_is_absent(a[0]) ? mo_jv_int(0) : a[0];
    const int64_t base = mo_jv_is_absent(a[1]) ? 10 : mo_jv_integer(r->w, a[1], "int's base");
    char *text;
    bool whole;
    double real;
    if (self.kind == MO_J_INT || self.kind == MO_J_BIG) {
        return self;
    }
    if (self.kind == MO_J_STRING && base != 10 && base >= 2 && base <= 36) {
        char *end;
        const char *digits =
            mo_jstring_text(r->w, mo_jstring_trim(r->w, self.as.string, NULL, MO_TRIM_LEFT | MO_TRIM_RIGHT));
        const long long value = strtoll(digits, &end, (int)base);
        return *digits && !*end ? mo_jv_int(value) : otherwise;
    }
    if (self.kind == MO_J_STRING && plain_number(r, self.as.string, &text, &whole) && whole) {
        int64_t value = 0;
        bool over = false;
        for (const char *p = text; *p; p++) {
            if (*p >= '0' && *p <= '9') {
                over = over || __builtin_mul_overflow(value, 10, &value) ||
                       /* negative: there is one more value */
                       __builtin_sub_overflow(value, *p - '0', &value);
            }
        }
        over = over || (*text != '-' && value == INT64_MIN);
        if (!over) {
            return mo_jv_int(*text == '-' ? value : -value);
        }
        mo_work_fail(r->w, MO_EINVAL, "an integer of more than 64 bits");
    }
    if (!to_real(r, self, &real) || !(fabs(real) < 9.2e18)) {
        return otherwise;
    }
    return mo_jv_int((int64_t)real);
}

static mo_jv f_float(MO_JPARAMETERS)
{
    double real;
    if (self.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, self);
    }
    return to_real(r, self, &real) ? mo_jv_real(real) : mo_jv_is_absent(a[0]) ? mo_jv_real(0) : a[0];
}

static mo_jv f_round(MO_JPARAMETERS) /* precision? method? */
{
    const int64_t precision = mo_jv_is_absent(a[0]) ? 0 : mo_jv_integer(r->w, a[0], "round's precision");
    const mo_jstring method = mo_jv_is_absent(a[1]) ? mo_jstring_literal(r->w, "common")
                                                    : mo_jv_need_string(r->w, a[1], "round's method");
    char text[400];
    if (!mo_jv_is_number(self)) {
        mo_work_fail(r->w, MO_EINVAL, "type %s doesn't define __round__ method", mo_jv_type(self));
    }
    const double real = mo_jv_number(self);
    if (mo_jstring_is(method, "ceil") || mo_jstring_is(method, "floor")) {
        const double scale = pow(10, (double)precision), scaled = real * scale;
        return mo_jv_real((mo_jstring_is(method, "ceil") ? ceil(scaled) : floor(scaled)) / scale);
    }
    if (self.kind != MO_J_FLOAT && precision >= 0) {
        return mo_jv_int(mo_jv_integer(r->w, self, "it"));
    }
    if (precision < 0) {
        const double scale = pow(10, (double)-precision);
        const double rounded = isfinite(scale) ? nearbyint(real / scale) * scale : 0;
        return self.kind == MO_J_FLOAT ? mo_jv_real(rounded) : mo_jv_int((int64_t)rounded);
    }
    if (precision > 22 || !isfinite(real)) {
        return mo_jv_real(real);
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, real); /* rounds by decimal digits, as Python does */
    return mo_jv_real(strtod(text, NULL));
}

const mo_jfunction mo_filters_value[] = {
    {"default", "default_value? boolean?", f_default},
    {"d", "default_value? boolean?", f_default},
    {"attr", "name", f_attr},
    {"abs", "", f_abs},
    {"int", "default? base?", f_int},
    {"float", "default?", f_float},
    {"round", "precision? method?", f_round},
    {NULL, NULL, NULL},
};
