/* Place: a place in a request's JSON, which knows its path, so that an error can name it. Reading follows the rules of all
 * dialects: null equals missing and leaves the default, a wrong type is the client's fault, whole numbers may come as 1.0. */
#ifndef SRV_FIELD_H
#define SRV_FIELD_H

#include <jansson.h>
#include <string.h>

#include "server/common/fault.h"

typedef struct srv_field {
    const json_t *value; /* NULL: missing, or null */
    const struct srv_field
        *in;          /* the object or the list that has it; NULL: the request itself. Outlives this one */
    const char *name; /* of a member; NULL: an element */
    size_t index;     /* of an element */
    srv_fault *fault; /* where the error is reported */
} srv_field;

srv_field srv_field_root(const json_t *root, srv_fault *fault);
srv_field srv_member(const srv_field *in, const char *name);
srv_field srv_element(const srv_field *in, size_t index);
/* The first of several names that is there; a list that ends with NULL. */
srv_field srv_member_of(const srv_field *in, const char *const *names);
/* "messages[3].content[0]"; shortened where it does not fit. */
void srv_field_path(const srv_field *f, char *path, size_t size);

/* Tells what is wrong with it. Returns false. */
bool srv_wrong(const srv_field *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool srv_missing(const srv_field *f);
/* "must be a string, not a list". */
bool srv_wrong_type(const srv_field *f, const char *wanted);

/* Leave *out alone when there is nothing; false when it is something else. */
bool srv_read_bool(srv_field f, bool *out);
bool srv_read_int(srv_field f, int64_t least, int64_t most, int64_t *out);
bool srv_read_float(srv_field f, double least, double most, float *out);
bool srv_read_text(srv_field f, mo_text *out); /* the JSON's; terminated */
/* Its type is right, or it is missing. */
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

/* And is longer than that. */
static inline bool srv_text_ends(mo_text text, const char *end)
{
    const size_t length = strlen(end);
    return text.length > length && memcmp(text.data + text.length - length, end, length) == 0;
}

#endif
