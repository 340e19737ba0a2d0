#include "sampling/sequences.h"

#include <stdlib.h>

#include "base/array.h"

void mo_sequences_free(mo_sequences *s)
{
    free(s->matches);
    *s = (mo_sequences){0};
}

size_t mo_sequences_window(const int32_t *recent, size_t count, int64_t last)
{
    size_t window = 0;
    if (last < 0 || (uint64_t)last >= count) {
        return count;
    }
    for (int64_t tokens = 0; window < count && tokens < last; window++) {
        tokens += recent[count - 1 - window] >= 0;
    }
    return window;
}

/* Rows of pictures also end a sequence, because they are not tokens. */
static bool breaks(const uint32_t *breakers, int32_t token)
{
    return token < 0 || (breakers && breakers[token / 32] >> (token % 32) & 1);
}

/* The maximum length of a sequence at the end. */
static size_t longest(const int32_t *recent, size_t count, const uint32_t *breakers)
{
    size_t length = 0;
    while (length < count && !breaks(breakers, recent[count - 1 - length])) {
        length++;
    }
    return length;
}

/* matches[j] is the number of tokens before position count - 1 - j, inclusive, that equal the last tokens.
   The Z function, backwards, in linear time. */
static void match(const int32_t *recent, size_t count, int32_t *matches)
{
    const int32_t *last = recent + count - 1;
    size_t left = 0, right = 0; /* the farthest match: [left, right) equals the beginning */
    matches[0] = (int32_t)count;
    for (size_t j = 1; j < count; j++) {
        size_t length = 0;
        if (j < right) {
            const size_t known = (size_t)matches[j - left];
            length = known < right - j ? known : right - j;
        }
        while (j + length < count && *(last - length) == *(last - (j + length))) {
            length++;
        }
        matches[j] = (int32_t)length;
        if (j + length > right) {
            left = j;
            right = j + length;
        }
    }
}

bool mo_sequences_find(mo_sequences *s, const int32_t *recent, size_t count, const uint32_t *breakers,
                       int64_t vocab, int32_t *lengths)
{
    const size_t most = longest(recent, count, breakers);
    if (count < 2 || most == 0) {
        return true;
    }
    if (!mo_array_reserve(&s->matches, &s->space, count, sizeof *s->matches)) {
        return false;
    }
    match(recent, count, s->matches);
    for (size_t j = 1; j < count; j++) {
        const int32_t next = recent[count - j]; /* the token that followed there */
        const int32_t length = (size_t)s->matches[j] < most ? s->matches[j] : (int32_t)most;
        if (length > 0 && next >= 0 && next < vocab && !breaks(breakers, next) && length > lengths[next]) {
            lengths[next] = length;
        }
    }
    return true;
}
