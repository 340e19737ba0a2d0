#include "grammar/schema_array.h"

typedef struct array {
    json_t *first; /* a list of schemas for the first items; NULL: none */
    json_t *rest;  /* the schema of further items; NULL: any value */
    const char *first_key, *rest_key;
    int64_t min, max; /* max -1: none */
} array;

/* Draft 2020 has prefixItems and items. Before, items was one of the two, with additionalItems for further
   items. */
static mo_status read(mo_schema_rules *s, const json_t *schema, array *a)
{
    json_t *items = json_object_get(schema, "items");
    *a = (array){.first = json_object_get(schema, "prefixItems"),
                 .rest = items,
                 .first_key = "prefixItems",
                 .rest_key = "items"};
    if (json_is_array(items)) {
        a->first = items;
        a->first_key = "items";
        a->rest = json_object_get(schema, "additionalItems");
        a->rest_key = "additionalItems";
    }
    if (a->first && !json_is_array(a->first)) {
        return mo_schema_wrong(s, a->first_key, "expected a list of schemas");
    }
    mo_status status = mo_schema_count(s, schema, "minItems", &a->min);
    status = status == MO_OK ? mo_schema_count(s, schema, "maxItems", &a->max) : status;
    a->min = a->min < 0 ? 0 : a->min;
    if (status == MO_OK && a->max >= 0 && a->min > a->max) {
        status = mo_schema_wrong(s, "minItems", "is greater than maxItems");
    }
    return status;
}

/* Writes all items of the tuple, up to the maximum. */
static mo_status write_first(mo_schema_rules *s, const array *a, const char *ws, mo_bytes *out,
                             int64_t *count)
{
    mo_status status = MO_OK;
    *count = (int64_t)json_array_size(a->first);
    *count = a->max >= 0 && a->max < *count ? a->max : *count;
    const size_t before = mo_schema_down(s, a->first_key);
    for (int64_t i = 0; i < *count && status == MO_OK; i++) {
        char rule[MO_RULE_NAME];
        const size_t list = mo_schema_down_index(s, (size_t)i);
        status = mo_schema_rule(s, json_array_get(a->first, (size_t)i), rule);
        mo_schema_up(s, list);
        if (i > 0) {
            mo_bytes_print(out, " \",\" %s", ws);
        }
        mo_bytes_print(out, " %s", rule);
    }
    mo_schema_up(s, before);
    return status;
}

static void write_times(mo_bytes *out, int64_t min, int64_t max)
{
    mo_bytes_print(out, "{%d,", (int)min);
    if (max >= 0) {
        mo_bytes_print(out, "%d", (int)max);
    }
    mo_bytes_print(out, "}");
}

/* Writes what may follow `count` items of a tuple. */
static mo_status write_others(mo_schema_rules *s, const array *a, int64_t count, const char *ws,
                              mo_bytes *out)
{
    char rule[MO_RULE_NAME];
    const int64_t min = a->min > count ? a->min - count : 0;
    int64_t max = a->max >= 0 ? a->max - count : -1;
    if (json_is_false(a->rest) || (a->first && !a->rest)) { /* no further items, or none required */
        if (min > 0 && json_is_false(a->rest)) {
            return mo_schema_wrong(s, "minItems", "is greater than the number of allowed items");
        }
        max = min;
    }
    if (max == 0) {
        return MO_OK;
    }
    const size_t before = mo_schema_down(s, a->rest_key);
    const mo_status status = mo_schema_rule(s, a->rest ? a->rest : json_true(), rule);
    mo_schema_up(s, before);
    if (status != MO_OK) {
        return status;
    }
    if (count > 0) {
        mo_bytes_print(out, " (\",\" %s %s)", ws, rule);
        write_times(out, min, max);
        return MO_OK;
    }
    mo_bytes_print(out, " (%s (\",\" %s %s)", rule, ws, rule);
    write_times(out, min > 0 ? min - 1 : 0, max > 0 ? max - 1 : -1);
    mo_bytes_print(out, " %s)%s", ws, min > 0 ? "" : "?");
    return MO_OK;
}

mo_status mo_schema_array(mo_schema_rules *s, json_t *schema, mo_bytes *out)
{
    char ws[MO_RULE_NAME];
    array a;
    int64_t count = 0;
    mo_schema_common(s, MO_RULE_WS, ws);
    mo_status status = read(s, schema, &a);
    mo_bytes_print(out, "\"[\" %s", ws);
    status = status == MO_OK ? write_first(s, &a, ws, out, &count) : status;
    status = status == MO_OK ? write_others(s, &a, count, ws, out) : status;
    if (count > 0) {
        mo_bytes_print(out, " %s", ws);
    }
    mo_bytes_print(out, " \"]\"");
    return status;
}
