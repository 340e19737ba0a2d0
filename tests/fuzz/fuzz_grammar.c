/* Fuzzing grammars: any bytes as GBNF or as a JSON schema, by the first byte, and then a walk through what was made of them. The mask
 * and what is accepted must agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static mo_tokenizer *tokenizer;
static mo_lexicon *lexicon;

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    mo_gguf *g;
    mo_error err;
    (void)argc;
    (void)argv;
    require(mo_gguf_open(MO_TEST_DATA "/text/synth-qwen2.gguf", &g, &err) == MO_OK);
    require(mo_tokenizer_create(g, &tokenizer, &err) == MO_OK);
    mo_gguf_close(g);
    require(mo_lexicon_open(tokenizer, mo_tokenizer_size(tokenizer), &lexicon, &err) == MO_OK);
    require(mo_lexicon_fill(lexicon, &err) == MO_OK);
    return 0;
}

/* Takes allowed tokens, chosen by the text itself. */
static void walk(mo_grammar *g, const uint8_t *data, size_t size)
{
    mo_constraint *c;
    mo_error err;
    const int32_t count = mo_tokenizer_size(tokenizer);
    require(mo_constraint_open(g, &c, &err) == MO_OK);
    for (size_t i = 0; i < size && i < 24; i++) {
        const uint32_t *mask = mo_constraint_mask(c, &err);
        int32_t token = data[i] * 7 % count;
        if (!mask) {
            require(err.status == MO_ENOSPC);
            break;
        }
        for (int32_t k = 0; k < count && !mo_bit(mask, token); k++) {
            token = (token + 1) % count;
        }
        const bool allowed = mo_bit(mask, token);
        const mo_status status = mo_constraint_accept(c, token, &err);
        require(status == MO_ENOSPC || (status == MO_OK) == allowed);
        if (status != MO_OK) {
            break;
        }
    }
    mo_constraint_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mo_grammar_options options = {.size = sizeof options};
    char *gbnf = NULL, *notes = NULL;
    mo_grammar *g = NULL;
    mo_error err;
    mo_status status;
    if (size == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    if (data[0] == 's') {
        status = mo_schema_write(text, size - 1, "root", false, &gbnf, &notes, &err);
        if (status == MO_OK) {
            status = mo_grammar_make(lexicon, gbnf, strlen(gbnf), &options, NULL, notes, &g, &err);
            require(status == MO_OK || status == MO_ENOSPC ||
                    strstr(err.detail, "too large")); /* rules are well-formed */
        }
    } else {
        status = mo_grammar_make(lexicon, text, size - 1, &options, NULL, NULL, &g, &err);
    }
    if (status == MO_OK) {
        walk(g, data, size);
    }
    free(gbnf);
    mo_grammar_close(g);
    return 0;
}
