/* "%s" % x and "{}".format(x). */
#include <math.h>
#include <stdio.h>

#include "template/print.h"
#include "template/run.h"
#include "template/texts.h"

/* How a value is formatted. */
typedef struct spec {
    char fill[5]; /* one character */
    char align;   /* < > ^ or 0 */
    char sign;    /* + blank or 0 */
    bool zero, alternate, comma;
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
} spec;

enum { WIDTH_MOST = 100000, PRECISION_MOST = 300 };

static int64_t digits(mo_work *w, const char **p, const char *end)
{
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        n = n * 10 + (**p - '0');
        if (n > WIDTH_MOST) {
            mo_work_fail(w, MO_EINVAL, "a format with a width above %d", WIDTH_MOST);
        }
    }
    return n;
}

static void group(const char *from, char *to)
{
    const size_t whole = strspn(from, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = from[i];
    }
    memcpy(to, from + whole, strlen(from + whole) + 1);
}

static void number_text(mo_work *w, mo_jv v, const spec *s, char *text, size_t size)
{
    char plain[520];
    const int precision = (int)(s->precision < 0                ? 6
                                : s->precision > PRECISION_MOST ? PRECISION_MOST
                                                                : s->precision);
    const char type = s->type ? s->type : v.kind == MO_J_FLOAT ? 'r' : 'd';
    if (strchr("dioxXcb", type)) {
        int64_t i = v.kind == MO_J_FLOAT && fabs(v.as.real) < 9e18 ? (int64_t)v.as.real
                                                                   : mo_jv_integer(w, v, "a number");
        const unsigned long long u = i < 0 ? 0 - (unsigned long long)i : (unsigned long long)i;
        snprintf(plain, sizeof plain,
                 type == 'x'   ? "%llx"
                 : type == 'X' ? "%llX"
                 : type == 'o' ? "%llo"
                               : "%llu",
                 u);
    } else if (type == 'r' && s->precision < 0) {
        mo_float_text(fabs(mo_jv_number(v)), plain);
    } else {
        double real = fabs(mo_jv_number(v)) * (type == '%' ? 100 : 1);
        const char form[] = {'%', '.', '*', type == '%' || type == 'F' ? 'f' : type == 'r' ? 'g' : type, 0};
        if (real > 1e150 && form[3] == 'f') { /* too long for the buffer */
            mo_float_text(real, plain);
        } else {
            snprintf(plain, sizeof plain - 8, form, precision, real); /* NOLINT: one of e f g E G */
        }
        if (type == '%') {
            const size_t end = strlen(plain);
            memcpy(plain + end, "%", 2);
        }
    }
    char grouped[sizeof plain * 2];
    if (s->comma) {
        group(plain, grouped);
    }
    snprintf(text, size, "%s", s->comma ? grouped : plain);
}

static void put_padded(mo_work *w, mo_jbuffer *out, mo_jstring text, const spec *s, char align)
{
    const mo_jstring fill = mo_jstring_literal(w, s->fill[0] ? s->fill : " ");
    mo_jbuffer_add_string(w, out, mo_text_pad(w, text, s->width, fill, align != '<', align != '>'));
}

static void put_number(mo_work *w, mo_jbuffer *out, mo_jv v, const spec *s)
{
    char text[1100], whole[1200];
    const bool minus = v.kind == MO_J_FLOAT ? signbit(v.as.real) != 0 : mo_jv_number(v) < 0;
    number_text(w, v, s, text, sizeof text);
    const char *sign = minus ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    if (s->zero && !s->align) {
        mo_jbuffer_put(w, out, sign);
        spec zeros = *s;
        memcpy(zeros.fill, "0", 2);
        zeros.width -= (int64_t)strlen(sign);
        put_padded(w, out, mo_jstring_literal(w, text), &zeros, '>');
        return;
    }
    snprintf(whole, sizeof whole, "%s%s", sign, text);
    put_padded(w, out, mo_jstring_literal(w, whole), s, s->align ? s->align : '>');
}

static void put_text(mo_work *w, mo_jbuffer *out, mo_jstring text, const spec *s)
{
    if (s->precision >= 0) {
        text = mo_jstring_part(text, 0, mo_jstring_offset(w, text, (size_t)s->precision));
    }
    put_padded(w, out, text, s, s->align ? s->align : '<');
}

static mo_jstring repr_of(mo_work *w, mo_jv v)
{
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    mo_print_repr(w, out, v);
    return mo_jbuffer_view(out);
}

/* ---- % ---- */

static void put_percent(mo_jrun *r, mo_jbuffer *out, mo_jv v, const spec *s)
{
    switch (s->type) {
    case 's': put_text(r->w, out, mo_jv_str(r->w, v), s); break;
    case 'r':
    case 'a': put_text(r->w, out, repr_of(r->w, v), s); break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
        spec number = *s;
        number.type = s->type == 'u' || s->type == 'i' ? 'd' : s->type;
        if (!mo_jv_is_number(v)) {
            mo_work_fail(r->w, MO_EINVAL, "%%%c format: a real number is required, not %s", s->type,
                         mo_jv_type(v));
        }
        put_number(r->w, out, v, &number);
        break;
    }
    default: mo_work_fail(r->w, MO_EINVAL, "unsupported format character '%c'", s->type);
    }
}

/* The next argument: by name in a dict, otherwise in order. */
static mo_jv argument(mo_jrun *r, mo_jv arguments, const mo_jstring *name, uint32_t *next)
{
    if (name) {
        const mo_jv *v =
            arguments.kind == MO_J_DICT ? mo_jdict_find_string(r->w, arguments.as.dict, *name) : NULL;
        if (!v) {
            mo_work_fail(r->w, MO_EINVAL, "the format names an argument that does not exist");
        }
        return *v;
    }
    const bool many = arguments.kind == MO_J_LIST && arguments.as.list->shape == MO_SHAPE_TUPLE;
    if (*next >= (many ? arguments.as.list->count : 1)) {
        mo_work_fail(r->w, MO_EINVAL, "not enough arguments for format string");
    }
    return many ? arguments.as.list->items[(*next)++] : ((*next)++, arguments);
}

mo_jv mo_format_percent(mo_jrun *r, mo_jstring format, mo_jv arguments)
{
    mo_jbuffer *out = mo_jbuffer_new(r->w, format.length);
    const char *begin = mo_jstring_data(format), *end = begin + format.length, *p = begin;
    uint32_t next = 0;
    while (p < end) {
        const char *mark = memchr(p, '%', (size_t)(end - p));
        const char *to = mark ? mark : end;
        mo_jbuffer_add_string(r->w, out, mo_jstring_part(format, (size_t)(p - begin), (size_t)(to - p)));
        if (!mark) {
            break;
        }
        p = mark + 1;
        if (p < end && *p == '%') {
            mo_jbuffer_put(r->w, out, "%");
            p++;
            continue;
        }
        mo_jstring name, *named = NULL;
        if (p < end && *p == '(') {
            const char *close = memchr(p, ')', (size_t)(end - p));
            if (!close) {
                mo_work_fail(r->w, MO_EINVAL, "incomplete format key");
            }
            name = mo_jstring_part(format, (size_t)(p + 1 - begin), (size_t)(close - p - 1));
            named = &name;
            p = close + 1;
        }
        spec s = {.precision = -1};
        for (; p < end && *p && strchr("-+ 0#", *p); p++) {
            s.align = *p == '-' ? '<' : s.align;
            s.sign = *p == '+' || (*p == ' ' && !s.sign) ? *p : s.sign;
            s.zero = s.zero || *p == '0';
        }
        s.width = digits(r->w, &p, end);
        if (p < end && *p == '.') {
            p++;
            s.precision = digits(r->w, &p, end);
        }
        if (p == end) {
            mo_work_fail(r->w, MO_EINVAL, "incomplete format");
        }
        s.type = *p++;
        s.align = s.align ? s.align : s.zero ? 0 : '>';
        put_percent(r, out, argument(r, arguments, named, &next), &s);
    }
    const bool many = arguments.kind == MO_J_LIST && arguments.as.list->shape == MO_SHAPE_TUPLE;
    /* these may have unused arguments */
    const bool one = arguments.kind != MO_J_LIST && arguments.kind != MO_J_DICT;
    if ((many && next < arguments.as.list->count) || (one && next == 0)) {
        mo_work_fail(r->w, MO_EINVAL, "not all arguments converted during string formatting");
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

/* ---- {} ---- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static spec read_spec(mo_work *w, mo_jstring text)
{
    const char *p = mo_jstring_data(text), *end = p + text.length;
    spec s = {.precision = -1};
    size_t first = 0;
    if (text.length > 0) {
        mo_jstring_code(text, 0, &first);
    }
    if (text.length > first && strchr("<>^", p[first])) {
        memcpy(s.fill, p, first);
        s.align = p[first];
        p += first + 1;
    } else if (p < end && *p && strchr("<>^", *p)) {
        s.align = *p++;
    }
    if (p < end && *p && strchr("+- ", *p)) {
        s.sign = *p++;
    }
    s.alternate = p < end && *p == '#';
    p += s.alternate;
    s.zero = p < end && *p == '0';
    s.width = digits(w, &p, end);
    s.comma = p < end && (*p == ',' || *p == '_');
    p += s.comma;
    if (p < end && *p == '.') {
        p++;
        s.precision = digits(w, &p, end);
    }
    s.type = p < end ? *p++ : 0;
    if (p != end || (s.type && !strchr("sdxXoeEfFgG%n", s.type))) {
        mo_work_fail(w, MO_EINVAL, "invalid format specifier");
    }
    s.type = s.type == 'n' ? 'd' : s.type;
    return s;
}

/* name.attribute[item] of a field. */
static mo_jv field_value(mo_jrun *r, mo_jstring field, const mo_jargs *args, uint32_t *next)
{
    const char *p = mo_jstring_data(field), *end = p + field.length, *begin = p;
    while (p < end && *p != '.' && *p != '[') {
        p++;
    }
    const mo_jstring name = mo_jstring_part(field, 0, (size_t)(p - begin));
    mo_jv v;
    const char *d = begin;
    const int64_t index = digits(r->w, &d, p);
    if (d == p) {
        const uint32_t i = name.length ? (uint32_t)index : (*next)++;
        if (i >= args->count) {
            mo_work_fail(r->w, MO_EINVAL, "Replacement index %u out of range for positional args tuple", i);
        }
        v = args->places[i];
    } else {
        const mo_jv *named = args->names ? mo_jdict_find_string(r->w, args->names, name) : NULL;
        if (!named) {
            mo_work_fail(r->w, MO_EINVAL, "format: there is no argument '%.60s'",
                         mo_jstring_text(r->w, name));
        }
        v = *named;
    }
    while (p < end) {
        const bool item = *p == '[';
        const char *from = p + 1;
        for (p = from; p < end && (item ? *p != ']' : *p != '.' && *p != '['); p++) {
        }
        const mo_jstring part = mo_jstring_part(field, (size_t)(from - begin), (size_t)(p - from));
        d = from;
        const int64_t place = digits(r->w, &d, p);
        v = !item                ? mo_access_attribute(r, v, part)
            : d == p && d > from ? mo_access_item(r, v, mo_jv_int(place))
                                 : mo_access_item(r, v, mo_jv_string(part));
        p += item && p < end;
    }
    return v;
}

static void put_field(mo_jrun *r, mo_jbuffer *out, mo_jstring field, const mo_jargs *args, uint32_t *next)
{
    const char *p = mo_jstring_data(field);
    size_t name = 0;
    while (name < field.length && p[name] != '!' && p[name] != ':') {
        name++;
    }
    mo_jv v = field_value(r, mo_jstring_part(field, 0, name), args, next);
    size_t at = name;
    if (at < field.length && p[at] == '!') {
        const char how = at + 1 < field.length ? p[at + 1] : 0;
        if (how != 's' && how != 'r' && how != 'a') {
            mo_work_fail(r->w, MO_EINVAL, "format: an unknown conversion");
        }
        v = mo_jv_string(how == 's' ? mo_jv_str(r->w, v) : repr_of(r->w, v));
        at += 2;
    }
    const size_t from = at < field.length ? at + 1 : field.length;
    const spec s = read_spec(r->w, mo_jstring_part(field, from, field.length - from));
    if (mo_jv_is_number(v) && s.type != 's' && (v.kind != MO_J_BOOL || s.type)) {
        put_number(r->w, out, v, &s);
    } else if (s.type && s.type != 's') {
        mo_work_fail(r->w, MO_EINVAL, "Unknown format code '%c' for object of type '%s'", s.type,
                     mo_jv_type(v));
    } else {
        put_text(r->w, out, mo_jv_str(r->w, v), &s);
    }
}

mo_jv mo_format_braces(mo_jrun *r, mo_jstring format, const mo_jargs *args)
{
    mo_jbuffer *out = mo_jbuffer_new(r->w, format.length);
    const char *p = mo_jstring_data(format);
    uint32_t next = 0;
    for (size_t at = 0; at < format.length;) {
        const bool twice = at + 1 < format.length && p[at + 1] == p[at];
        if ((p[at] == '{' || p[at] == '}') && twice) {
            mo_jbuffer_add_string(r->w, out, mo_jstring_part(format, at, 1));
            at += 2;
        } else if (p[at] == '{') {
            const char *close = memchr(p + at, '}', format.length - at);
            if (!close) {
                mo_work_fail(r->w, MO_EINVAL, "expected '}' before end of string");
            }
            const size_t end = (size_t)(close - p);
            put_field(r, out, mo_jstring_part(format, at + 1, end - at - 1), args, &next);
            at = end + 1;
        } else if (p[at] == '}') {
            mo_work_fail(r->w, MO_EINVAL, "Single '}' encountered in format string");
        } else {
            size_t end = at;
            while (end < format.length && p[end] != '{' && p[end] != '}') {
                end++;
            }
            mo_jbuffer_add_string(r->w, out, mo_jstring_part(format, at, end - at));
            at = end;
        }
    }
    return mo_jv_string(mo_jbuffer_view(out));
}
