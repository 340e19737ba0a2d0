/* Special: candidates in a heap, longest first. */
#include "text/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

/* ---- Sets ---- */

static int compare(const void *a, const void *b, void *vocab)
{
    const mo_text x = mo_vocab_text(vocab, *(const int32_t *)a),
                  y = mo_vocab_text(vocab, *(const int32_t *)b);
    const int order = memcmp(x.data, y.data, x.length < y.length ? x.length : y.length);
    if (order || x.length != y.length) {
        return order ? order : x.length < y.length ? -1 : 1;
    }
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static bool fill(mo_special_set *set, const mo_vocab *v, bool all)
{
    set->ids = malloc((size_t)v->count * sizeof *set->ids);
    if (!set->ids) {
        return false;
    }
    for (int32_t i = 0; i < v->count; i++) {
        const bool user = mo_vocab_found_anywhere(v, i);
        const bool other = v->kinds[i] == MO_TOKEN_CONTROL || v->kinds[i] == MO_TOKEN_UNKNOWN ||
                           v->kinds[i] == MO_TOKEN_USER;
        const mo_text t = mo_vocab_text(v, i);
        if (t.length > 0 && (user || (all && other))) {
            set->ids[set->count++] = i;
            set->begins += !set->first[(uint8_t)t.data[0]];
            set->first[(uint8_t)t.data[0]] = true;
        }
    }
    qsort_r(set->ids, set->count, sizeof *set->ids, compare, (void *)v);
    return true;
}

mo_status mo_special_init(mo_special *s, const mo_vocab *v, mo_error *err)
{
    *s = (mo_special){.vocab = v};
    if (!fill(&s->user, v, false) || !fill(&s->all, v, true)) {
        mo_special_free(s);
        return mo_fail(err, MO_ENOMEM, "out of memory for the special tokens");
    }
    return MO_OK;
}

void mo_special_free(mo_special *s)
{
    free(s->user.ids);
    free(s->all.ids);
    *s = (mo_special){0};
}

/* ---- Search ---- */

/* The longest token of the set at the beginning of the text (length bytes), -1: none. The set is sorted, so
   each further byte narrows the range of matching tokens. */
static int32_t longest_at(const mo_vocab *v, const mo_special_set *set, const uint8_t *text, size_t length)
{
    size_t low = 0, high = set->count;
    int32_t found = -1;
    for (size_t depth = 0; depth < length && low < high; depth++) {
        size_t a = low, b = high;
        while (a < b) { /* the first token whose byte here is not smaller; shorter tokens are before it */
            const size_t middle = a + (b - a) / 2;
            const mo_text t = mo_vocab_text(v, set->ids[middle]);
            if (t.length <= depth || (uint8_t)t.data[depth] < text[depth]) {
                a = middle + 1;
            } else {
                b = middle;
            }
        }
        low = a;
        b = high;
        while (a < b) { /* the first token whose byte here is greater */
            const size_t middle = a + (b - a) / 2;
            if ((uint8_t)mo_vocab_text(v, set->ids[middle]).data[depth] <= text[depth]) {
                a = middle + 1;
            } else {
                b = middle;
            }
        }
        high = a;
        if (low < high && mo_vocab_text(v, set->ids[low]).length == depth + 1) {
            found = set->ids[low];
        }
    }
    return found;
}

typedef struct search {
    const mo_vocab *vocab;
    const mo_special_set *set, *user;
    const uint8_t *text, *input;
    size_t length;
    uint64_t *heap; /* ordered by greatest length, then smallest position */
    size_t waiting, capacity;
    uint64_t *taken; /* one bit per byte of the text */
    mo_special_hit *hits;
    size_t hit_count, hit_capacity;
} search;

/* The longest token at a position, of at most `length` bytes, that may be chosen there. */
static int32_t token_at(const search *s, size_t at, size_t length)
{
    if (!s->input) {
        return longest_at(s->vocab, s->set, s->text + at, length);
    }
    if (s->input[at]) {
        return longest_at(s->vocab, s->user, s->text + at, length);
    }
    for (;;) {
        const int32_t id = longest_at(s->vocab, s->set, s->text + at, length);
        if (id < 0 || mo_vocab_found_anywhere(s->vocab, id)) {
            return id;
        }
        length = mo_vocab_text(s->vocab, id).length - 1;
        if (!s->input[at + length]) {
            return id;
        }
    }
}

/* Lengths have 24 bits, positions 40. */
static uint64_t key_of(size_t length, size_t at)
{
    return (uint64_t)(0xFFFFFF - length) << 40 | at;
}

static bool push(search *s, uint64_t key)
{
    if (!mo_array_reserve(&s->heap, &s->capacity, s->waiting + 1, sizeof *s->heap)) {
        return false;
    }
    size_t at = s->waiting++;
    for (size_t parent = (at - 1) / 2; at > 0 && s->heap[parent] > key; at = parent, parent = (at - 1) / 2) {
        s->heap[at] = s->heap[parent];
    }
    s->heap[at] = key;
    return true;
}

static uint64_t pop(search *s)
{
    const uint64_t top = s->heap[0], key = s->heap[--s->waiting];
    size_t at = 0;
    for (size_t child = 1; child < s->waiting; at = child, child = 2 * at + 1) {
        child += child + 1 < s->waiting && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= key) {
            break;
        }
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = key;
    return top;
}

static bool is_taken(const search *s, size_t at)
{
    return s->taken[at / 64] >> at % 64 & 1;
}

static bool take(search *s, size_t at, int32_t id, size_t length)
{
    if (!mo_array_reserve(&s->hits, &s->hit_capacity, s->hit_count + 1, sizeof *s->hits)) {
        return false;
    }
    s->hits[s->hit_count++] = (mo_special_hit){at, length, id};
    for (size_t i = at; i < at + length; i++) {
        s->taken[i / 64] |= (uint64_t)1 << i % 64;
    }
    return true;
}

static bool find_candidates(search *s)
{
    for (size_t i = 0; i < s->length; i++) {
        if (s->set->begins == 1) { /* usually '<': memchr() finds it */
            const int first = (uint8_t)mo_vocab_text(s->vocab, s->set->ids[0]).data[0];
            const uint8_t *p = memchr(s->text + i, first, s->length - i);
            if (!p) {
                break;
            }
            i = (size_t)(p - s->text);
        } else if (!s->set->first[s->text[i]]) {
            continue;
        }
        const int32_t id = token_at(s, i, s->length - i);
        if (id >= 0 && !push(s, key_of(mo_vocab_text(s->vocab, id).length, i))) {
            return false;
        }
    }
    return true;
}

/* All tokens chosen so far are at least as long as the current candidate, so a candidate is free if both its
   ends are. If only its end is taken, a shorter token may still fit. */
static bool choose(search *s)
{
    while (s->waiting > 0) {
        const uint64_t key = pop(s);
        const size_t at = key & 0xFFFFFFFFFF, length = 0xFFFFFF - (size_t)(key >> 40);
        if (is_taken(s, at)) {
            continue;
        }
        size_t fits = length;
        if (is_taken(s, at + length - 1)) {
            for (fits = 1; !is_taken(s, at + fits); fits++) {
            }
        }
        const int32_t id = token_at(s, at, fits);
        const size_t now = id >= 0 ? mo_vocab_text(s->vocab, id).length : 0;
        if (now > 0 && !(now == length ? take(s, at, id, now) : push(s, key_of(now, at)))) {
            return false;
        }
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const mo_special_hit *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

mo_status mo_special_find(const mo_special *special, const uint8_t *text, size_t length, bool all,
                          const uint8_t *input, mo_special_hit **hits, size_t *count, mo_error *err)
{
    search s = {.vocab = special->vocab,
                .set = all ? &special->all : &special->user,
                .user = &special->user,
                .text = text,
                .input = all ? input : NULL,
                .length = length};
    *hits = NULL;
    *count = 0;
    if (s.set->count == 0 || length == 0) {
        return MO_OK;
    }
    bool done = find_candidates(&s);
    if (done && s.waiting > 0) {
        s.taken = calloc(length / 64 + 1, sizeof *s.taken);
        done = s.taken && choose(&s);
    }
    free(s.heap);
    free(s.taken);
    if (!done) {
        free(s.hits);
        return mo_fail(err, MO_ENOMEM, "out of memory while looking for special tokens in %zu bytes", length);
    }
    if (s.hit_count > 0) {
        qsort(s.hits, s.hit_count, sizeof *s.hits, by_place);
    }
    *hits = s.hits;
    *count = s.hit_count;
    return MO_OK;
}
