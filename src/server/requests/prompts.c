/* Prompts: see prompts.h. */
#include "server/requests/prompts.h"

#include <stdlib.h>
#include <string.h>

static bool append(srv_tokens *t, const srv_field *at, const int32_t *ids, size_t count)
{
    int32_t *all = realloc(t->ids, (t->count + count + 1) * sizeof *all);
    if (!all) {
        return srv_fault_set(at->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    memcpy(all + t->count, ids, count * sizeof *all);
    t->ids = all;
    t->count += count;
    return true;
}

bool srv_tokens_append_text(srv_tokens *t, const srv_field *at, const mo_model *model, mo_text text,
                            int flags)
{
    int32_t *ids = NULL;
    size_t count = 0;
    mo_error err;
    if (mo_tokenize_first(model, text.data, text.length, flags, t->most, &ids, &count, &err) != MO_OK) {
        char path[sizeof at->fault->param];
        srv_field_path(at, path, sizeof path);
        return srv_fault_status(at->fault, &err, path);
    }
    const bool good = append(t, at, ids, count);
    mo_free(ids);
    return good;
}

/* The beginning of a text gets the tokens that the vocabulary puts in front; what follows others does not. */
static bool read_text(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    mo_text text = {"", 0};
    return srv_read_text(*f, &text) &&
           srv_tokens_append_text(t, f, model, text, t->count == 0 ? MO_TOKEN_SPECIAL : MO_TOKEN_NAMES);
}

/* A list of tokens and texts. Lists of tokens alone are the long ones: they are read in one go. */
static bool read_mixed(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    const size_t count = srv_count(f);
    int32_t *all = realloc(t->ids, (t->count + count + 1) * sizeof *all);
    if (!all) {
        return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    t->ids = all;
    for (size_t i = 0; i < count; i++) {
        const srv_field element = srv_element(f, i);
        int64_t id = -1;
        if (json_is_string(element.value)) {
            if (!read_text(t, &element, model)) {
                return false;
            }
            int32_t *more = realloc(t->ids, (t->count + count - i) * sizeof *more);
            if (!more) {
                return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
            }
            t->ids = more;
            continue;
        }
        if (!element.value) {
            return srv_wrong_type(&element, "a token or a string");
        }
        if (!srv_read_int(element, 0, info.vocab - 1, &id)) {
            return false;
        }
        t->ids[t->count++] = (int32_t)id;
    }
    return true;
}

static bool read_one(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    bool good;
    if (json_is_string(f->value)) {
        good = read_text(t, f, model);
    } else if (json_is_array(f->value)) {
        good = read_mixed(t, f, model);
    } else if (json_is_object(f->value)) {
        const srv_field text = srv_member(f, "prompt_string");
        good = text.value ? read_text(t, &text, model) : srv_missing(&text);
    } else {
        return f->value ? srv_wrong_type(f, "a string or a list of tokens") : srv_missing(f);
    }
    return good && (t->count > 0 || srv_wrong(f, "must not be empty"));
}

/* A list that has a number in it is one prompt. */
static bool is_one(const srv_field *f)
{
    if (!json_is_array(f->value)) {
        return true;
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        if (json_is_number(json_array_get(f->value, i))) {
            return true;
        }
    }
    return false;
}

bool srv_prompts_read(const srv_field *f, const mo_model *model, srv_tokens *out, size_t most, size_t *count,
                      bool *several)
{
    *count = 0;
    *several = !is_one(f);
    if (!*several) {
        *count = 1;
        return read_one(&out[0], f, model);
    }
    if (srv_count(f) == 0) {
        return srv_wrong(f, "must have at least one prompt");
    }
    if (srv_count(f) > most) {
        return srv_wrong(f, "has more than %zu prompts", most);
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        const srv_field prompt = srv_element(f, i);
        *count = i + 1;
        if (!read_one(&out[i], &prompt, model)) {
            return false;
        }
    }
    return true;
}
