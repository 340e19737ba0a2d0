#include "model_draft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/input.h"
#include "gguf/write.h"
#include "gguf_file.h"

bool model_path(const char *name, char path[512])
{
    static const char *const under[] = {"", "more/", "iq/", "2026/"};
    const char *more = getenv("MO_TEST_ORACLE");
    snprintf(path, 512, "%s/oracle/%s.gguf", MO_TEST_DATA, name);
    if (access(path, R_OK) != 0) {
        snprintf(path, 512, "%s/%s.gguf", MO_TEST_DATA, name);
    }
    for (int i = 0; i < 4 && access(path, R_OK) != 0 && more; i++) {
        snprintf(path, 512, "%s/%s%s.gguf", more, under[i], name);
    }
    return access(path, R_OK) == 0;
}

mo_checkpoint *model_load(const char *path, bool map, int interleave, mo_pool *pool)
{
    const mo_load_options options = {.map = map, .interleave = interleave, .pool = pool};
    mo_checkpoint *model = NULL;
    mo_error err = {0};
    if (mo_checkpoint_load(path, &options, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

mo_checkpoint *model_load_named(const char *name, bool map, int interleave)
{
    char path[512];
    assert_true(model_path(name, path));
    return model_load(path, map, interleave, NULL);
}

void model_refused(const char *path, mo_status status, const char *const *words)
{
    for (int map = 0; map < 2; map++) {
        const mo_load_options options = {.map = map};
        mo_checkpoint *model = NULL;
        mo_error err = {0};
        const mo_status found = mo_checkpoint_load(path, &options, &model, &err);
        assert_null(model);
        if (found != status || err.status != status) {
            fail_msg("status %d instead of %d: %s", found, status, err.detail);
        }
        for (int i = 0; words[i]; i++) {
            if (!strstr(err.detail, words[i])) {
                fail_msg("\"%s\" does not say \"%s\"", err.detail, words[i]);
            }
        }
    }
}

draft *draft_open(const char *name)
{
    char path[512];
    mo_input *input;
    draft *d = calloc(1, sizeof *d);
    assert_true(model_path(name, path));
    assert_int_equal(mo_gguf_open(path, &d->gguf, NULL), MO_OK);
    assert_int_equal(mo_input_open(path, &input, NULL), MO_OK);
    for (int64_t i = 0; i < mo_gguf_tensor_count(d->gguf); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(d->gguf, i);
        entry *e = &d->tensors[d->count++];
        snprintf(e->name, sizeof e->name, "%s", t->name);
        e->type = t->format->type;
        memcpy(e->size, t->size, sizeof e->size);
        e->bytes = t->bytes;
        e->data = malloc((size_t)t->bytes);
        assert_int_equal(mo_input_read_at(input, e->data, (size_t)t->bytes, (uint64_t)t->offset, NULL),
                         MO_OK);
    }
    mo_input_close(input);
    return d;
}

void draft_close(draft *d)
{
    for (int i = 0; i < d->count; i++) {
        free(d->tensors[i].data);
    }
    mo_gguf_close(d->gguf);
    free(d);
}

entry *draft_find(draft *d, const char *name)
{
    for (int i = 0; i < d->count; i++) {
        if (strcmp(d->tensors[i].name, name) == 0) {
            return &d->tensors[i];
        }
    }
    fail_msg("the test wants tensor %s", name);
    return NULL;
}

void draft_drop(draft *d, const char *name)
{
    entry *e = draft_find(d, name);
    free(e->data);
    *e = d->tensors[--d->count];
}

entry *draft_add(draft *d, const char *name, mo_type type, int64_t n0, int64_t n1, int64_t n2)
{
    entry *e = &d->tensors[d->count++];
    *e = (entry){.type = type, .size = {n0, n1, n2, 1}};
    snprintf(e->name, sizeof e->name, "%s", name);
    e->bytes = mo_format_row_bytes(mo_format_of(type), n0) * n1 * n2;
    e->data = calloc(1, (size_t)e->bytes);
    return e;
}

static void put_key(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *e)
{
    mo_metadata_info info;
    mo_value v = {0};
    mo_gguf_entry_info(e, &info);
    if (info.is_array && info.type == MO_VALUE_STRING) {
        mo_text *texts = calloc(info.count + 1, sizeof *texts);
        for (uint64_t i = 0; i < info.count; i++) {
            assert_true(mo_gguf_entry_value(g, e, i, &v));
            texts[i] = v.as.s;
        }
        mo_gguf_put_texts(w, info.key, texts, info.count);
        free(texts);
        return;
    }
    if (info.is_array && info.type == MO_VALUE_F32) {
        mo_gguf_put_entry(w, g, e);
        return;
    }
    if (info.is_array) { /* families read whole numbers and flags from arrays; scores are floats */
        int64_t *numbers = calloc(info.count + 1, sizeof *numbers);
        for (uint64_t i = 0; i < info.count; i++) {
            assert_true(mo_gguf_entry_value(g, e, i, &v));
            numbers[i] = v.type == MO_VALUE_BOOL ? v.as.b : v.as.i;
        }
        mo_gguf_put_array(w, info.key, MO_VALUE_I64, numbers, info.count);
        free(numbers);
        return;
    }
    assert_true(mo_gguf_entry_value(g, e, 0, &v));
    switch (v.type) {
    case MO_VALUE_STRING: mo_gguf_put_text(w, info.key, v.as.s); break;
    case MO_VALUE_F32:
    case MO_VALUE_F64: mo_gguf_put_f32(w, info.key, (float)v.as.r); break;
    case MO_VALUE_BOOL: mo_gguf_put_bool(w, info.key, v.as.b); break;
    default: mo_gguf_put_i64(w, info.key, v.as.i); break;
    }
}

const char *draft_write(draft *d, const char *path)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_error err = {0};
    const void *data[1024] = {NULL};
    for (int64_t i = 0; i < mo_gguf_entry_count(d->gguf); i++) {
        const mo_gguf_entry *e = mo_gguf_entry_at(d->gguf, i);
        mo_metadata_info info;
        mo_gguf_entry_info(e, &info);
        if (!d->key || strcmp(info.key, d->key) != 0) {
            put_key(w, d->gguf, e);
        }
    }
    if (d->other_key) { /* files have no such key */
        mo_gguf_put_i64(w, d->other_key, d->other_number);
    }
    if (d->key && !d->leave_out && d->text) {
        mo_gguf_put_string(w, d->key, d->text);
    } else if (d->key && !d->leave_out) {
        mo_gguf_put_i64(w, d->key, d->number);
    }
    for (int i = 0; i < d->count; i++) {
        const entry *e = &d->tensors[i];
        const int dims = e->size[3] > 1 ? 4 : e->size[2] > 1 ? 3 : e->size[1] > 1 ? 2 : 1;
        mo_gguf_put_tensor(w, e->name, e->type, dims, e->size);
        data[i] = e->data;
    }
    if (mo_gguf_writer_layout(w, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_true(gguf_save(w, path, data));
    mo_gguf_writer_destroy(w);
    return path;
}
