#include "cli/print/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/print/exit_code.h"

json_t *cli_json_text(const char *data, size_t length)
{
    json_t *whole = json_stringn(data, length);
    if (whole || length > SIZE_MAX / 4) {
        return whole;
    }
    char *repaired = malloc(3 * length + 1);
    size_t used = 0;
    if (!repaired) {
        return NULL;
    }
    for (size_t i = 0; i < length;) {
        size_t n = mo_utf8_length((const uint8_t *)data + i, length - i);
        memcpy(repaired + used, n ? data + i : "\xef\xbf\xbd", n ? n : 3);
        used += n ? n : 3;
        i += n ? n : 1;
    }
    whole = json_stringn(repaired, used);
    free(repaired);
    return whole;
}

json_t *cli_json_string(const char *text)
{
    return cli_json_text(text, strlen(text));
}

json_t *cli_json_value(const mo_value *v)
{
    char digits[32];
    switch (v->type) {
    case MO_VALUE_I8:
    case MO_VALUE_I16:
    case MO_VALUE_I32:
    case MO_VALUE_I64: return json_integer(v->as.i);
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64:
        if (v->as.u <= INT64_MAX) {
            return json_integer((json_int_t)v->as.u);
        }
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)v->as.u);
        return json_string(digits);
    case MO_VALUE_F32:
    case MO_VALUE_F64:
        if (isfinite(v->as.r)) {
            return json_real(v->as.r);
        }
        return json_string(isnan(v->as.r) ? "nan" : v->as.r > 0 ? "inf" : "-inf");
    case MO_VALUE_BOOL: return json_boolean(v->as.b);
    case MO_VALUE_STRING: return cli_json_text(v->as.s.data, v->as.s.length);
    }
    return json_null();
}

int cli_json_print(json_t *root)
{
    if (!root) {
        fprintf(stderr, "moraine: out of memory for the JSON output; omit --json\n");
        return CLI_FAILED;
    }
    json_dumpf(root, stdout, JSON_INDENT(2)); /* finishing stdout reports a failed write */
    putchar('\n');
    json_decref(root);
    return CLI_OK;
}
