/* Prefix way: how owner and adapters of a sequence come before its tokens, in the tree and in files. */
#include <stdlib.h>
#include <string.h>

#include "server/scheduler/prefix_parts.h"

/* A number of 64 bits takes three marks of 22. An owner's come first and are followed by those of adapters, also where there are
 * none; without an owner there are those of adapters alone, or no marks. */
enum { PIECES = 3, PIECE_BITS = 22 };

static void put(int32_t *to, uint64_t number)
{
    for (int i = 0; i < PIECES; i++) {
        to[i] = -1 - (int32_t)(number >> (i * PIECE_BITS) & ((1u << PIECE_BITS) - 1));
    }
}

bool srv_way_open(const srv_prefix_key *key, uint64_t owner, srv_way *out)
{
    *out = (srv_way){.tokens = key->tokens, .count = key->count};
    if (!key->adapters && !owner) {
        return true;
    }
    out->marks = owner ? 2 * PIECES : PIECES;
    out->own = malloc(sizeof *out->own * (size_t)(key->count + out->marks));
    if (!out->own) {
        return false;
    }
    if (owner) {
        put(out->own, owner);
    }
    put(out->own + out->marks - PIECES, key->adapters);
    memcpy(out->own + out->marks, key->tokens, sizeof *out->own * (size_t)key->count);
    out->tokens = out->own;
    out->count += out->marks;
    return true;
}

int srv_way_marks(const int32_t *tokens, int64_t count, uint64_t *owner)
{
    int marks = 0;
    *owner = 0;
    while (marks < count && marks < 2 * PIECES && tokens[marks] < 0) {
        marks++;
    }
    for (int i = 0; i < PIECES && marks == 2 * PIECES; i++) {
        *owner |= (uint64_t)(uint32_t)(-1 - tokens[i]) << (i * PIECE_BITS);
    }
    return marks;
}
