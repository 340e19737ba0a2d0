/* Fuzzing the container: any bytes may be opened, summarized and printed without a crash, a leak, or more
 * memory than their size covers; what opens must keep the promises of gguf/read.h. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/read.h"
#include "gguf/summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void check_entries(const mo_gguf *g)
{
    for (int64_t i = 0; i < mo_gguf_entry_count(g); i++) {
        const mo_gguf_entry *e = mo_gguf_entry_at(g, i);
        mo_metadata_info info;
        mo_value v;
        mo_error err;
        char text[256];
        int64_t n;
        float f;
        bool b;
        const char *s;
        mo_gguf_entry_info(e, &info);
        require(mo_gguf_find(g, info.key) == e);
        require(mo_gguf_entry_value(g, e, 0, &v) == (info.count > 0));
        require(!mo_gguf_entry_value(g, e, info.count, &v));
        size_t whole = mo_gguf_entry_text(g, e, UINT64_MAX, NULL, 0);
        char *full = malloc(whole + 1);
        require(mo_gguf_entry_text(g, e, UINT64_MAX, full, whole + 1) == whole && strlen(full) == whole);
        free(full);
        mo_gguf_entry_text(g, e, 4, text, sizeof text);
        mo_gguf_i64_or(g, info.key, 0, &n, &err);
        mo_gguf_f32(g, info.key, &f, &err);
        mo_gguf_bool_or(g, info.key, false, &b, &err);
        mo_gguf_string_or(g, info.key, "", &s, &err);
        mo_gguf_i64_of(g, info.key, info.count / 2, &n, &err);
    }
}

static void check_tensors(const mo_gguf *g, size_t size)
{
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        require(mo_gguf_tensor_find(g, t->name) == t);
        require(t->offset > 0 && t->bytes > 0 && t->bytes <= (int64_t)size);
        require(t->offset + t->bytes <= (int64_t)size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mo_gguf *g;
    mo_error err;
    mo_file_info s;
    if (mo_gguf_open_memory(data, size, "fuzz.gguf", &g, &err) != MO_OK) {
        require(g == NULL && err.detail[0] != 0);
        return 0;
    }
    check_entries(g);
    check_tensors(g, size);
    mo_file_format formats[MO_TYPE_LIMIT];
    if (mo_gguf_summarize(g, &s, formats, &err) == MO_OK) {
        require(s.tensor_bytes <= (int64_t)size && s.expert_bytes_total <= s.tensor_bytes);
        require(s.token_expert_bytes <= s.expert_bytes_total && s.token_bytes >= 0);
        require(s.expert_bytes_min <= s.expert_bytes_max);
    }
    mo_gguf_close(g);
    return 0;
}
