/* The writer of json.h. */
#include <math.h>
#include <stdio.h>

#include "template/json.h"
#include "template/print.h"

mo_json_style mo_json_style_default(mo_work *w)
{
    return (mo_json_style){.indent = -1,
                           .indent_text = mo_jstring_literal(w, ""),
                           .item = mo_jstring_literal(w, ", "),
                           .key = mo_jstring_literal(w, ": ")};
}

typedef struct writer {
    mo_work *w;
    mo_jbuffer *out;
    const mo_json_style *style;
} writer;

static void write_string(writer *o, mo_jstring s)
{
    const bool input = mo_jstring_is_input(o->w, s);
    mo_work_spend(o->w, s.length / 16);
    char escape[16];
    size_t kept = 0;
    mo_jbuffer_put(o->w, o->out, "\"");
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *p = code > 0 && code < 0x80 ? strchr(from, (int)code) : NULL;
        if (p) {
            snprintf(escape, sizeof escape, "\\%c", to[p - from]);
        } else if (code < 0x20 || (o->style->ascii && code >= 0x7F && code < 0x10000)) {
            snprintf(escape, sizeof escape, "\\u%04x", code);
        } else if (code >= 0x10000 && o->style->ascii) {
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                     0xDC00 + ((code - 0x10000) & 0x3FF));
        } else {
            continue;
        }
        mo_jbuffer_add_string(o->w, o->out, mo_jstring_part(s, kept, at - kept));
        mo_jbuffer_add(o->w, o->out, escape, strlen(escape), input);
        kept = at + bytes;
    }
    mo_jbuffer_add_string(o->w, o->out, mo_jstring_part(s, kept, s.length - kept));
    mo_jbuffer_put(o->w, o->out, "\"");
}

static bool is_spread(const mo_json_style *s)
{
    return s->indent >= 0 || s->indent_text.length > 0;
}

static void new_line(writer *o, int depth)
{
    if (!is_spread(o->style)) {
        return;
    }
    mo_jbuffer_put(o->w, o->out, "\n");
    for (int i = 0; i < depth; i++) {
        if (o->style->indent_text.length > 0) {
            mo_jbuffer_add_string(o->w, o->out, o->style->indent_text);
        }
        for (int64_t k = 0; k < o->style->indent; k++) {
            mo_jbuffer_put(o->w, o->out, " ");
        }
    }
}

static void write_value(writer *o, mo_jv v, int depth);

/* Keys are strings. Numbers, booleans and none are written as in JSON. */
static void write_key(writer *o, mo_jv key)
{
    if (key.kind == MO_J_STRING) {
        write_string(o, key.as.string);
    } else if (mo_jv_is_number(key) || key.kind == MO_J_NONE || key.kind == MO_J_BIG) {
        mo_jbuffer_put(o->w, o->out, "\"");
        write_value(o, key, 0);
        mo_jbuffer_put(o->w, o->out, "\"");
    } else {
        mo_work_fail(o->w, MO_EINVAL, "keys must be str, int, float, bool or None, not %s", mo_jv_type(key));
    }
}

static void write_dict(writer *o, const mo_jdict *dict, int depth)
{
    mo_jlist *entries = mo_jlist_new(o->w, MO_SHAPE_LIST, dict->count);
    mo_jv *keys = mo_work_array(o->w, dict->count, sizeof *keys);
    for (uint32_t i = 0; i < dict->count; i++) {
        keys[i] = dict->entries[i].key;
        mo_jlist_add(o->w, entries, mo_jv_int(i));
    }
    if (o->style->sorted) {
        mo_jlist_sort(o->w, entries, keys, false);
    }
    mo_jbuffer_put(o->w, o->out, "{");
    for (uint32_t i = 0; i < entries->count; i++) {
        const mo_jentry *e = &dict->entries[entries->items[i].as.integer];
        if (i) {
            mo_jbuffer_add_string(o->w, o->out, o->style->item);
        }
        new_line(o, depth + 1);
        write_key(o, e->key);
        mo_jbuffer_add_string(o->w, o->out, o->style->key);
        write_value(o, e->value, depth + 1);
    }
    if (dict->count) {
        new_line(o, depth);
    }
    mo_jbuffer_put(o->w, o->out, "}");
}

static void write_list(writer *o, const mo_jlist *list, int depth)
{
    mo_jbuffer_put(o->w, o->out, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i) {
            mo_jbuffer_add_string(o->w, o->out, o->style->item);
        }
        new_line(o, depth + 1);
        write_value(o, list->items[i], depth + 1);
    }
    if (list->count) {
        new_line(o, depth);
    }
    mo_jbuffer_put(o->w, o->out, "]");
}

static void write_value(writer *o, mo_jv v, int depth)
{
    mo_work_spend(o->w, 1);
    mo_work_down(o->w);
    switch (v.kind) {
    case MO_J_NONE: mo_jbuffer_put(o->w, o->out, "null"); break;
    case MO_J_BOOL: mo_jbuffer_put(o->w, o->out, v.as.truth ? "true" : "false"); break;
    case MO_J_INT:
    case MO_J_BIG: mo_print_repr(o->w, o->out, v); break;
    case MO_J_FLOAT:
        if (isfinite(v.as.real)) {
            mo_print_repr(o->w, o->out, v);
        } else {
            mo_jbuffer_put(o->w, o->out, isnan(v.as.real) ? "NaN" : v.as.real > 0 ? "Infinity" : "-Infinity");
        }
        break;
    case MO_J_STRING: write_string(o, v.as.string); break;
    case MO_J_LIST: write_list(o, v.as.list, depth); break;
    case MO_J_DICT: write_dict(o, v.as.dict, depth); break;
    case MO_J_UNDEFINED: mo_jv_fail_undefined(o->w, v);
    default: mo_work_fail(o->w, MO_EINVAL, "Object of type %s is not JSON serializable", mo_jv_type(v));
    }
    mo_work_up(o->w);
}

void mo_json_write(mo_work *w, mo_jbuffer *out, mo_jv v, const mo_json_style *style)
{
    writer o = {w, out, style};
    mo_json_style spread = *style;
    if (is_spread(style) && !style->separated) {
        spread.item = mo_jstring_literal(w, ",");
        o.style = &spread;
    }
    write_value(&o, v, 0);
}
