/* Field: a field of a request's JSON with its path, so that errors can name it. All dialects share the
 * reading rules: null means missing and leaves the default, a wrong type is the client's fault, integers may
 * be written as 1.0. */
#ifndef SRV_FIELD_H
#define SRV_FIELD_H

#include <jansson.h>
#include <string.h>

#include "server/common/fault.h"

typedef struct srv_field {
    const json_t *value; /* NULL: missing or null */
    /* parent object or list; NULL: the request itself. Outlives this field */
    const struct srv_field *in;
    const char *name; /* of a member; NULL: a list element */
    size_t index;     /* of a list element */
    srv_fault *fault; /* receives errors */
} srv_field;

srv_field srv_field_root(const json_t *root, srv_fault *fault);
srv_field srv_member(const srv_field *in, const char *name);
srv_field srv_element(const srv_field *in, size_t index);
/* The first member present among several names (NULL-terminated). */
srv_field srv_member_of(const srv_field *in, const char *const *names);
/* "messages[3].content[0]"; truncated if too long. */
void srv_field_path(const srv_field *f, char *path, size_t size);

/* Reports an error in the field. Returns false. */
bool srv_wrong(const srv_field *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool srv_missing(const srv_field *f);
/* "must be a string, not a list". */
bool srv_wrong_type(const srv_field *f, const char *wanted);

/* Leave *out unchanged if the field is missing. Return false on a wrong type or range. */
bool srv_read_bool(srv_field f, bool *out);
bool srv_read_int(srv_field f, int64_t least, int64_t most, int64_t *out);
bool srv_read_float(srv_field f, double least, double most, float *out);
bool srv_read_text(srv_field f, mo_text *out); /* points into the JSON; terminated */
/* True if the type is right or the field is missing. */
bool srv_is_list(srv_field f);
bool srv_is_object(srv_field f);

static inline size_t srv_count(const srv_field *f)
{
    return json_array_size(f->value);
}
static inline bool srv_text_is(mo_text text, const char *word)
{
    size_t i = 0;
    while (i < text.length && word[i] == text.data[i] && word[i]) {
        i++;
    }
    return i == text.length && !word[i];
}

/* True if the text ends with `end` and is longer than it. */
static inline bool srv_text_ends(mo_text text, const char *end)
{
    const size_t length = strlen(end);
    return text.length > length && memcmp(text.data + text.length - length, end, length) == 0;
}

#endif
