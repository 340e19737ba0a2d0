#include "server/common/json_text.h"

#include <string.h>

#include "server/common/writer.h"

json_t *srv_json_text(const char *bytes, size_t length)
{
    json_t *value = json_stringn(bytes ? bytes : "", length);
    if (!value) {
        srv_writer w = {0};
        srv_put_string(&w, bytes, length);
        value = w.failed ? NULL : json_loadb(w.data, w.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        srv_writer_free(&w);
    }
    return value ? value : json_string("");
}

json_t *srv_json_ctext(const char *text)
{
    return srv_json_text(text, text ? strlen(text) : 0);
}
