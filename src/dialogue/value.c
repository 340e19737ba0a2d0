/* Value: tried as JSON, kept as it was written. */
#include "dialogue/value.h"

#include <jansson.h>
#include <string.h>

#include "base/nesting.h"
#include "dialogue/json.h"
#include "dialogue/tools.h"

/* What is nested deeper would use up a small stack, and is kept as it was written. */
enum { LEVELS_MAX = 100 };

/* Numbers are read as reals: integers of any length are JSON. */
static json_t *parse(mo_text t)
{
    return mo_nesting_beyond(t.data, t.length, LEVELS_MAX)
               ? NULL
               : json_loadb(t.data, t.length, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                            NULL);
}

static unsigned type_of(const json_t *value)
{
    return json_is_string(value)    ? MO_TYPE_STRING
           : json_is_number(value)  ? MO_TYPE_NUMBER
           : json_is_boolean(value) ? MO_TYPE_BOOLEAN
           : json_is_null(value)    ? MO_TYPE_NULL
           : json_is_object(value)  ? MO_TYPE_OBJECT
                                    : MO_TYPE_ARRAY;
}

static mo_text trimmed(mo_text t)
{
    for (; t.length > 0 && mo_json_is_space(t.data[0]); t.data++, t.length--) {
    }
    for (; t.length > 0 && mo_json_is_space(t.data[t.length - 1]); t.length--) {
    }
    return t;
}

static const char *python_word(mo_text t)
{
    static const struct {
        const char *word, *json;
    } table[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < 3; i++) {
        if (strlen(table[i].word) == t.length && !memcmp(table[i].word, t.data, t.length)) {
            return table[i].json;
        }
    }
    return NULL;
}

void mo_value_add(mo_bytes *to, mo_text text, unsigned types)
{
    const mo_text inner = trimmed(text);
    const bool text_meant = types & MO_TYPE_STRING;
    json_t *value = types == MO_TYPE_STRING ? NULL : parse(inner);
    const bool fits =
        value && (text_meant ? type_of(value) != MO_TYPE_STRING && type_of(value) & types : true);
    const char *word = types && !text_meant && !value ? python_word(inner) : NULL;
    json_decref(value);
    if (fits) {
        mo_bytes_add(to, inner.data, inner.length);
    } else if (word) {
        mo_bytes_add_text(to, word);
    } else {
        mo_json_quote(to, text);
    }
}

void mo_value_add_arguments(mo_bytes *to, mo_text text)
{
    const mo_text inner = trimmed(text);
    json_t *value = inner.length > 0 ? parse(inner) : NULL;
    if (inner.length == 0 || json_is_null(value)) {
        mo_bytes_add_text(to, "{}");
    } else if (json_is_string(value)) {
        const mo_text held = trimmed((mo_text){json_string_value(value), json_string_length(value)});
        json_t *object = parse(held);
        if (json_is_object(object)) {
            mo_bytes_add(to, held.data, held.length);
        } else if (held.length == 0) {
            mo_bytes_add_text(to, "{}");
        } else {
            mo_bytes_add(to, inner.data, inner.length);
        }
        json_decref(object);
    } else if (value) {
        mo_bytes_add(to, inner.data, inner.length);
    } else {
        mo_json_quote(to, text);
    }
    json_decref(value);
}
