#include "speculate/ngram.h"

#include <stdlib.h>
#include <string.h>

/* Places looked at for the longest match, the latest first; and tokens compared there. */
enum { PLACES = 16, LONGEST = 64 };

struct mo_ngram {
    int64_t space, count; /* tokens entered */
    uint32_t mask;
    int32_t *latest;  /* [mask + 1] by hash: 1 + the last place behind such tokens; 0: none */
    int32_t *earlier; /* [space + 1] by place: 1 + the one before with the same hash; 0: none */
};

static int64_t slots_of(int64_t space)
{
    int64_t slots = 256;
    while (slots < 2 * space) {
        slots *= 2;
    }
    return slots;
}

int64_t mo_ngram_bytes(int64_t space)
{
    const mo_ngram *n = NULL;
    return (int64_t)sizeof *n + slots_of(space) * (int64_t)sizeof *n->latest +
           (space + 1) * (int64_t)sizeof *n->earlier;
}

mo_status mo_ngram_open(int64_t space, mo_ngram **out, mo_error *err)
{
    mo_ngram *n = calloc(1, sizeof *n);
    const int64_t slots = slots_of(space);
    *out = NULL;
    if (n) {
        n->space = space;
        n->mask = (uint32_t)(slots - 1);
        n->latest = calloc((size_t)slots, sizeof *n->latest);
        n->earlier = calloc((size_t)space + 1, sizeof *n->earlier);
    }
    if (!n || !n->latest || !n->earlier) {
        mo_ngram_close(n);
        return mo_fail(err, MO_ENOMEM, "out of memory for the n-grams of a text");
    }
    *out = n;
    return MO_OK;
}

void mo_ngram_close(mo_ngram *n)
{
    if (n) {
        free(n->latest);
        free(n->earlier);
        free(n);
    }
}

void mo_ngram_forget(mo_ngram *n)
{
    memset(n->latest, 0, sizeof *n->latest * ((size_t)n->mask + 1));
    n->count = 0;
}

/* Of the tokens before `end`. */
static uint32_t hash(const mo_ngram *n, const int32_t *end)
{
    uint64_t h = 0;
    for (int i = 1; i <= MO_NGRAM_LEAST; i++) {
        h = (h ^ (uint32_t)end[-i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)h & n->mask;
}

void mo_ngram_extend(mo_ngram *n, const int32_t *text, int64_t count)
{
    /* The place behind the last token is entered when a token follows it: what is found has something to guess. */
    for (int64_t at = n->count; at < count && at <= n->space; at++) {
        if (at >= MO_NGRAM_LEAST) {
            int32_t *latest = &n->latest[hash(n, text + at)];
            n->earlier[at] = *latest;
            *latest = (int32_t)at + 1;
        }
        n->count = at + 1;
    }
}

static int64_t common(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count)
{
    int64_t length = 0;
    while (length < a_count && length < b_count && length < LONGEST && a[-1 - length] == b[-1 - length]) {
        length++;
    }
    return length;
}

int64_t mo_ngram_find(const mo_ngram *n, const int32_t *text, const int32_t *end, int64_t end_count,
                      int64_t *length)
{
    int64_t best = -1;
    *length = MO_NGRAM_LEAST - 1;
    if (end_count < MO_NGRAM_LEAST) {
        return -1;
    }
    int32_t at = n->latest[hash(n, end + end_count)];
    for (int i = 0; i < PLACES && at && *length < LONGEST; i++) {
        const int64_t place = at - 1, same = common(text + place, place, end + end_count, end_count);
        if (same > *length) {
            best = place;
            *length = same;
        }
        at = n->earlier[place];
    }
    return best;
}
