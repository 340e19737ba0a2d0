#include "text/conversation.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/nesting.h"
#include "base/status.h"

/* The position that errors name. */
typedef struct place {
    const char *format;
    bool pictures;
    size_t number;    /* number of the message, from 1; 0: not in a message */
    const char *role; /* as written in the JSON; NULL: not read yet */
} place;

void mo_conversation_free(mo_conversation *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free((char *)c->messages[i].content);
    }
    free(c->messages);
    *c = (mo_conversation){0};
}

/* "message 3 (assistant)", "message 3" or "the conversation". */
static const char *name_of(const place *at, char *text, size_t size)
{
    if (at->number == 0) {
        return "the conversation";
    }
    if (at->role) {
        snprintf(text, size, "message %zu (%.40s)", at->number, at->role);
    } else {
        snprintf(text, size, "message %zu", at->number);
    }
    return text;
}

static mo_status no_place(const place *at, const char *what, const char *which, mo_error *err)
{
    char name[96];
    return mo_fail(err, MO_EINVAL, "%s: the chat format %s does not support %s%.60s",
                   name_of(at, name, sizeof name), at->format, what, which);
}

static mo_status wrong(const place *at, const char *what, mo_error *err)
{
    char name[96];
    return mo_fail(err, MO_EINVAL, "%s: %s", name_of(at, name, sizeof name), what);
}

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory for a conversation");
}

/* Is the value null or an empty string, list or object? Such a value has the same meaning as none. */
static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* ---- Parsing ---- */

static mo_status parse(const char *json, size_t length, json_t **out, mo_error *err)
{
    json_error_t e;
    bool memory_out;
    if (length > MO_CONVERSATION_BYTES) {
        return mo_fail(err, MO_EINVAL, "the conversation has %zu bytes of JSON; the limit is %d", length,
                       MO_CONVERSATION_BYTES);
    }
    const size_t deep = mo_nesting_beyond(json, length, MO_CONVERSATION_DEPTH);
    if (deep) {
        return mo_fail(err, MO_EINVAL,
                       "the conversation has more than %d levels of lists and objects at byte %zu",
                       MO_CONVERSATION_DEPTH, deep);
    }
    /* also rejects a NUL in a string */
    *out = mo_json_load(json, length, JSON_REJECT_DUPLICATES, &e, &memory_out);
    if (!*out) {
        if (memory_out) {
            return no_memory(err);
        }
        return mo_fail(err, MO_EINVAL, "the conversation is not JSON: line %d, column %d (byte %d): %s",
                       e.line, e.column, e.position, e.text);
    }
    return MO_OK;
}

/* ---- Messages ---- */

static const char picture[] = {(char)MO_MESSAGE_PICTURE, 0};

static bool is_picture(const char *type)
{
    return strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0 || strcmp(type, "input_image") == 0;
}

static mo_status part_text(const place *at, const json_t *part, const char **text, mo_error *err)
{
    const char *type = json_string_value(json_object_get(part, "type")), *key;
    json_t *value;
    *text = json_string_value(json_object_get(part, "text"));
    if (!type) {
        return wrong(at, "a content part is not an object with a type", err);
    }
    if (at->pictures && is_picture(type)) {
        *text = picture;
        return MO_OK;
    }
    if (strcmp(type, "text") != 0) {
        return no_place(at, "a content part of type ", type, err);
    }
    if (!*text) {
        return wrong(at, "a content part of type text has no text", err);
    }
    json_object_foreach((json_t *)part, key, value)
    {
        if (strcmp(key, "type") != 0 && strcmp(key, "text") != 0 && !says_nothing(value)) {
            return no_place(at, "a content part's ", key, err);
        }
    }
    return MO_OK;
}

/* A string, or the texts of all parts joined. The caller frees *text. */
static mo_status read_content(const place *at, const json_t *content, char **text, mo_error *err)
{
    const size_t parts = json_is_array(content) ? json_array_size(content) : 0;
    const char *piece = json_string_value(content);
    size_t length = piece ? strlen(piece) : 0;
    if (content && !json_is_null(content) && !piece && !json_is_array(content)) {
        return wrong(at, "the content is neither a string nor a list of parts", err);
    }
    for (size_t i = 0; i < parts; i++) {
        const mo_status status = part_text(at, json_array_get(content, i), &piece, err);
        if (status != MO_OK) {
            return status;
        }
        length += strlen(piece);
    }
    char *end = *text = malloc(length + 1);
    if (!end) {
        return no_memory(err);
    }
    *end = 0;
    if (parts == 0 && piece) {
        memcpy(end, piece, length + 1);
    }
    for (size_t i = 0; i < parts; i++) {
        part_text(at, json_array_get(content, i), &piece, err); /* cannot fail: read above */
        end = stpcpy(end, piece);
    }
    return MO_OK;
}

const char *mo_conversation_role(const char *name)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(name, roles[i]) == 0) {
            return roles[i];
        }
    }
    return NULL;
}

static mo_status read_message(place *at, const json_t *message, mo_message *out, mo_error *err)
{
    const char *key;
    json_t *value;
    char *content = NULL;
    at->role = NULL;
    if (!json_is_object(message)) {
        return wrong(at, "not an object", err);
    }
    at->role = json_string_value(json_object_get(message, "role"));
    if (!at->role) {
        return wrong(at, "missing role", err);
    }
    out->role = mo_conversation_role(at->role);
    if (!out->role) {
        return no_place(at, "this role", "; it supports system, user and assistant", err);
    }
    json_object_foreach((json_t *)message, key, value)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && !says_nothing(value)) {
            return no_place(at, "", key, err);
        }
    }
    const mo_status status = read_content(at, json_object_get(message, "content"), &content, err);
    out->content = content;
    return status;
}

static mo_status read_messages(place *at, const json_t *list, mo_conversation *out, mo_error *err)
{
    const size_t count = json_array_size(list);
    mo_status status = MO_OK;
    if (!json_is_array(list)) {
        return wrong(at, "messages is not a list", err);
    }
    if (count > MO_CONVERSATION_MESSAGES) {
        return mo_fail(err, MO_EINVAL, "the conversation has %zu messages; the limit is %d", count,
                       MO_CONVERSATION_MESSAGES);
    }
    out->messages = calloc(count ? count : 1, sizeof *out->messages);
    if (!out->messages) {
        return no_memory(err);
    }
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        at->number = i + 1;
        out->count = i + 1;
        status = read_message(at, json_array_get(list, i), &out->messages[i], err);
    }
    for (size_t i = 1; i < count && status == MO_OK; i++) {
        if (strcmp(out->messages[i].role, "system") == 0) {
            status = mo_fail(err, MO_EINVAL,
                             "message %zu is a system message; only the first message can be one", i + 1);
        }
    }
    return status;
}

mo_status mo_conversation_read(const char *format, const char *json, size_t length, bool pictures,
                               mo_conversation *out, mo_error *err)
{
    json_t *root = NULL, *value;
    const char *key;
    place at = {.format = format, .pictures = pictures};
    *out = (mo_conversation){0};
    mo_status status = parse(json, length, &root, err);
    if (status == MO_OK && json_is_object(root)) {
        json_object_foreach(root, key, value)
        {
            if (status == MO_OK && strcmp(key, "messages") != 0 && !says_nothing(value)) {
                status = no_place(&at, "", key, err);
            }
        }
    }
    if (status == MO_OK) {
        status =
            read_messages(&at, json_is_object(root) ? json_object_get(root, "messages") : root, out, err);
    }
    if (status != MO_OK) {
        mo_conversation_free(out);
    }
    json_decref(root);
    return status;
}
