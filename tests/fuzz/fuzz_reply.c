/* Fuzzing answers: any bytes in any style of calls, chosen by the first byte; the second says how they are cut. What comes out
 * must not depend on the cuts, be valid UTF-8, and have its pieces in an order that makes sense. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "dialogue/reply.h"
#include "support/dialogues.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] = "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": "
                            "\"string\"}, \"n\": {\"type\": \"integer\"}, \"o\": "
                            "{\"type\": \"object\"}, \"u\": {\"type\": [\"string\", \"null\"]}}}}, "
                            "{\"name\": \"get_weather\"}, {\"name\": \"edit\"}, {\"name\": "
                            "\"now\"}]";

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* The pieces as one text, in which calls are between brackets of control characters. */
typedef struct record {
    mo_bytes text;
    int open;
} record;

static void keep(record *r, const mo_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const mo_piece *p = &pieces[i];
        const bool plain = p->kind == MO_PIECE_TEXT || p->kind == MO_PIECE_THOUGHT;
        require(p->text.data[p->text.length] == 0);
        for (size_t at = 0, n; at < p->text.length; at += n) {
            n = mo_utf8_length((const uint8_t *)p->text.data + at, p->text.length - at);
            require(n > 0);
        }
        require(plain == (p->call < 0));
        require(r->open == (p->kind == MO_PIECE_ARGUMENTS || p->kind == MO_PIECE_CALL_END));
        if (p->kind == MO_PIECE_CALL || p->kind == MO_PIECE_CALL_END) {
            r->open = p->kind == MO_PIECE_CALL;
            mo_bytes_add(&r->text, r->open ? "\1" : "\2", 1);
        }
        for (size_t k = 0; k < p->text.length; k++) { /* the kind with every byte: cuts do not show */
            const char pair[2] = {(char)('0' + (int)p->kind), p->text.data[k]};
            mo_bytes_add(&r->text, pair, 2);
        }
    }
}

static void read(record *r, const uint8_t *data, size_t size, size_t step)
{
    static const char *const thoughts[] = {"", "think", "gemma4", "mistral", "granite", "seed"};
    const mo_dialogue d = dialogue_of((mo_style_id)(data[0] % MO_STYLES), thoughts[data[0] / MO_STYLES % 6]);
    const mo_reply_options o = {.size = sizeof o,
                                .in_thought = data[1] & 1,
                                .keep_thought = (data[1] & 6) == 6,
                                .single = data[1] & 8,
                                .tools = (data[1] & 48) == 48 ? NULL : tools,
                                .tools_length = sizeof tools - 1};
    mo_reply reply;
    const mo_piece *pieces;
    size_t count;
    mo_error err;
    require(mo_reply_init(&reply, NULL, d, &o, &err) == MO_OK);
    for (size_t at = 2; at < size; at += step) {
        const size_t n = size - at < step ? size - at : step;
        require(mo_reply_put_text(&reply, (const char *)data + at, n, &pieces, &count, &err) == MO_OK);
        keep(r, pieces, count);
    }
    require((data[1] & 64 ? mo_reply_cut : mo_reply_flush)(&reply, &pieces, &count, &err) == MO_OK);
    keep(r, pieces, count);
    require(!r->open);
    mo_reply_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    record whole = {0}, cut = {0};
    mo_tools *t;
    mo_error err;
    if (size < 2) {
        return 0;
    }
    read(&whole, data, size, size);
    read(&cut, data, size, 1 + data[1] % 7u);
    require(whole.text.length == cut.text.length);
    require(whole.text.length == 0 || !memcmp(whole.text.data, cut.text.data, cut.text.length));
    mo_bytes_free(&whole.text);
    mo_bytes_free(&cut.text);
    if (mo_tools_open((const char *)data, size, &t, &err) == MO_OK) {
        mo_tools_close(t);
    }
    return 0;
}
