#include "template/print.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/unicode.h"

double mo_float_read(const char *text)
{
    const char *point = strchr(text, '.');
    const char local = localeconv()->decimal_point[0];
    char stack[64], *copy = stack;
    const size_t length = strlen(text);
    if (!point || local == '.') {
        return strtod(text, NULL);
    }
    if (length >= sizeof stack && !(copy = malloc(length + 1))) {
        return 0;
    }
    memcpy(copy, text, length + 1);
    copy[point - text] = local;
    const double number = strtod(copy, NULL);
    if (copy != stack) {
        free(copy);
    }
    return number;
}

void mo_float_text(double number, char text[MO_FLOAT_TEXT])
{
    char form[40], digits[24] = "0";
    int count = 0;
    if (isnan(number) || isinf(number)) {
        snprintf(text, MO_FLOAT_TEXT, "%s", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(form, sizeof form, "%.*e", precision, number);
        if (strtod(form, NULL) == number) {
            break;
        }
    }
    const char *p = form + (form[0] == '-');
    for (; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') { /* skips the point, which depends on the locale */
            digits[count++] = *p;
        }
    }
    const int exponent = atoi(p + 1);
    char *out = text;
    if (signbit(number)) {
        *out++ = '-';
    }
    if (exponent < -4 || exponent >= 16) {
        *out++ = digits[0];
        if (count > 1) {
            *out++ = '.';
            memcpy(out, digits + 1, (size_t)count - 1);
            out += count - 1;
        }
        snprintf(out, 16, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        *out++ = '0';
        *out++ = '.';
        for (int i = -1; i > exponent; i--) {
            *out++ = '0';
        }
    }
    for (int i = 0; i < count || i <= exponent; i++) {
        *out++ = i < count ? digits[i] : '0';
        if (i == exponent) {
            *out++ = '.';
        }
    }
    if (out[-1] == '.') {
        *out++ = '0';
    }
    *out = 0;
}

static void repr_string(mo_work *w, mo_jbuffer *out, mo_jstring s)
{
    const char *data = mo_jstring_data(s);
    const bool input = mo_jstring_is_input(w, s);
    const bool single = memchr(data, '\'', s.length) != NULL, twice = memchr(data, '"', s.length) != NULL;
    const char quote = single && !twice ? '"' : '\'';
    char escape[16];
    mo_work_spend(w, MO_SCAN_STEPS(s.length));
    mo_jbuffer_add(w, out, &quote, 1, false);
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        if (code == (uint32_t)quote || code == '\\') {
            snprintf(escape, sizeof escape, "\\%c", (char)code);
        } else if (code == '\n' || code == '\r' || code == '\t') {
            snprintf(escape, sizeof escape, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        } else if (mo_code_is_printable(code)) {
            mo_jbuffer_add_string(w, out, mo_jstring_part(s, at, bytes));
            continue;
        } else {
            snprintf(escape, sizeof escape,
                     code < 0x100     ? "\\x%02x"
                     : code < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                     code);
        }
        mo_jbuffer_add(w, out, escape, strlen(escape), input);
    }
    mo_jbuffer_add(w, out, &quote, 1, false);
}

static void repr_list(mo_work *w, mo_jbuffer *out, const mo_jlist *list)
{
    static const char *const open[] = {"[", "(", "[", "dict_keys([", "dict_values([", "dict_items([", "["};
    static const char *const close[] = {"]", ")", "]", "])", "])", "])", "]"};
    mo_jbuffer_put(w, out, open[list->shape]);
    for (uint32_t i = 0; i < list->count; i++) {
        mo_jbuffer_put(w, out, i ? ", " : "");
        mo_print_repr(w, out, list->items[i]);
    }
    mo_jbuffer_put(w, out, list->shape == MO_SHAPE_TUPLE && list->count == 1 ? "," : "");
    mo_jbuffer_put(w, out, close[list->shape]);
}

static void repr_dict(mo_work *w, mo_jbuffer *out, const mo_jdict *dict)
{
    mo_jbuffer_put(w, out, "{");
    for (uint32_t i = 0; i < dict->count; i++) {
        mo_jbuffer_put(w, out, i ? ", " : "");
        mo_print_repr(w, out, dict->entries[i].key);
        mo_jbuffer_put(w, out, ": ");
        mo_print_repr(w, out, dict->entries[i].value);
    }
    mo_jbuffer_put(w, out, "}");
}

void mo_print_repr(mo_work *w, mo_jbuffer *out, mo_jv v)
{
    char number[MO_FLOAT_TEXT];
    mo_work_spend(w, 1);
    switch (v.kind) {
    case MO_J_UNDEFINED: mo_jbuffer_put(w, out, "Undefined"); return;
    case MO_J_NONE: mo_jbuffer_put(w, out, "None"); return;
    case MO_J_BOOL: mo_jbuffer_put(w, out, v.as.truth ? "True" : "False"); return;
    case MO_J_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.as.integer);
        mo_jbuffer_put(w, out, number);
        return;
    case MO_J_FLOAT:
        mo_float_text(v.as.real, number);
        mo_jbuffer_put(w, out, number);
        return;
    case MO_J_BIG: mo_jbuffer_add_string(w, out, v.as.string); return;
    case MO_J_STRING: repr_string(w, out, v.as.string); return;
    case MO_J_LIST:
        mo_work_down(w);
        repr_list(w, out, v.as.list);
        mo_work_up(w);
        return;
    case MO_J_DICT:
        mo_work_down(w);
        repr_dict(w, out, v.as.dict);
        mo_work_up(w);
        return;
    case MO_J_NAMESPACE:
        mo_work_down(w);
        mo_jbuffer_put(w, out, "<Namespace ");
        repr_dict(w, out, v.as.dict);
        mo_jbuffer_put(w, out, ">");
        mo_work_up(w);
        return;
    default:
        mo_jbuffer_put(w, out, "<");
        mo_jbuffer_put(w, out, mo_jv_type(v));
        mo_jbuffer_put(w, out, ">");
    }
}

void mo_print_str(mo_work *w, mo_jbuffer *out, mo_jv v)
{
    if (v.kind == MO_J_STRING) {
        mo_jbuffer_add_string(w, out, v.as.string);
    } else if (v.kind != MO_J_UNDEFINED) {
        mo_print_repr(w, out, v);
    }
}

mo_jstring mo_jv_str(mo_work *w, mo_jv v)
{
    if (v.kind == MO_J_STRING) {
        return v.as.string;
    }
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    mo_print_str(w, out, v);
    return mo_jbuffer_view(out);
}
