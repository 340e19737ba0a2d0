/* Fuzzing vocabularies: whatever a file says about its tokens, making a tokenizer and using it does not
 * crash, leak or leave the vocabulary's range. */
#include <stdlib.h>
#include <string.h>

#include "text/formats.h"
#include "text/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void use(const mo_tokenizer *t)
{
    static const char text[] =
        "Hello  wor\xFFld\n\n <|im_end|><s> 1234 \xE4\xB8\xAD the the the \xCC\x81 <0x41> "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (unsigned flags = 0; flags < 8; flags++) {
        int32_t *ids;
        size_t count, length;
        char *back;
        mo_error err;
        require(mo_tokenizer_encode(t, text, sizeof text - 1, flags, &ids, &count, &err) == MO_OK);
        require(mo_detokenize(t, ids, count, flags % 4, &back, &length, &err) == MO_OK);
        free(back);
        free(ids);
    }
    for (int32_t id = -1; id <= mo_tokenizer_size(t); id++) {
        const mo_text piece = mo_token_piece(t, id, true), name = mo_token_text(t, id);
        require(piece.length <= name.length);
        (void)mo_token_is_end(t, id);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mo_gguf *g;
    mo_tokenizer *t = NULL;
    mo_error err;
    if (mo_gguf_open_memory(data, size, "fuzz.gguf", &g, &err) != MO_OK) {
        return 0;
    }
    err.detail[0] = 0;
    if (mo_tokenizer_create(g, &t, &err) == MO_OK) {
        use(t);
    } else {
        require(!t && err.detail[0]);
    }
    (void)mo_chat_detect(g, t);
    mo_tokenizer_destroy(t);
    mo_gguf_close(g);
    return 0;
}
