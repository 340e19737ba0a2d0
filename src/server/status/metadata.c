/* Metadata: see metadata.h. */
#include "server/status/metadata.h"

#include <math.h>
#include <string.h>

#include "server/common/json_text.h"

/* The index of a key; -1: there is none. */
static int64_t find(const mo_file *file, const char *key)
{
    mo_metadata_info info;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        if (strcmp(info.key, key) == 0) {
            return i;
        }
    }
    return -1;
}

static json_t *value_json(const mo_value *v)
{
    switch (v->type) {
    case MO_VALUE_STRING: return srv_json_text(v->as.s.data, v->as.s.length);
    case MO_VALUE_BOOL: return json_boolean(v->as.b);
    case MO_VALUE_F32:
    case MO_VALUE_F64: return isfinite(v->as.r) ? json_real(v->as.r) : json_null();
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64: return json_integer((json_int_t)v->as.u);
    default: return json_integer((json_int_t)v->as.i);
    }
}

json_t *srv_metadata_json(const mo_file *file, int64_t index, bool arrays)
{
    mo_metadata_info info;
    mo_value value;
    if (!mo_file_metadata(file, index, &info, sizeof info)) {
        return json_null();
    }
    if (!info.is_array) {
        return mo_file_metadata_value(file, index, 0, &value) ? value_json(&value) : json_null();
    }
    json_t *list = json_array();
    for (uint64_t i = 0; arrays && i < info.count && mo_file_metadata_value(file, index, i, &value); i++) {
        json_array_append_new(list, value_json(&value));
    }
    return list;
}

json_t *srv_metadata_text(const mo_file *file, const char *key)
{
    mo_value value;
    const int64_t index = find(file, key);
    return index >= 0 && mo_file_metadata_value(file, index, 0, &value) && value.type == MO_VALUE_STRING
               ? srv_json_text(value.as.s.data, value.as.s.length)
               : NULL;
}

json_t *srv_metadata_token(const mo_file *file, const char *key)
{
    mo_value id, token;
    const int64_t index = find(file, key);
    const int64_t tokens = find(file, "tokenizer.ggml.tokens");
    if (index < 0 || tokens < 0 || !mo_file_metadata_value(file, index, 0, &id) ||
        (id.type != MO_VALUE_U32 && id.type != MO_VALUE_U64) ||
        !mo_file_metadata_value(file, tokens, id.as.u, &token) || token.type != MO_VALUE_STRING) {
        return json_string("");
    }
    return srv_json_text(token.as.s.data, token.as.s.length);
}
