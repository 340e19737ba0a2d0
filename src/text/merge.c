/* Merge: a linear scan for short rows, a heap for long ones, windows for long texts. */
#include "text/merge.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/interrupt.h"
#include "base/status.h"

/* SHORT: up to this length a scan of all pairs is faster than a heap. WINDOW: symbols merged at a time, about
   three megabytes of scratch. CUTS: number of boundaries between two windows that are tried before windows
   grow. */
enum { SHORT = 48, WINDOW = 1 << 16, CUTS = 8 };

struct mo_merge_link {
    /* neighbours; `after` is the count for the last symbol, and its own index for a removed one */
    uint32_t before, after;
    mo_pair pair; /* of this symbol and the one after it */
};

void mo_merge_free(mo_merge *m)
{
    free(m->symbols);
    free(m->links);
    free(m->heap);
    *m = (mo_merge){0};
}

bool mo_merge_add(mo_merge *m, uint32_t id, uint32_t at, uint32_t length)
{
    const bool grown = m->count < m->capacity ||
                       mo_array_reserve(&m->symbols, &m->capacity, m->count + 1, sizeof *m->symbols);
    if (grown) {
        m->symbols[m->count++] = (mo_symbol){id, at, length};
    }
    return grown;
}

static void merge_short(mo_merge *m, mo_pair_fn pair, const void *rules, const uint8_t *text)
{
    mo_symbol *s = m->symbols;
    mo_pair pairs[SHORT];
    size_t n = m->count;
    for (size_t i = 0; i + 1 < n; i++) {
        pairs[i] = pair(rules, text, &s[i], &s[i + 1]);
    }
    while (n > 1) {
        size_t first = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (pairs[i].order < pairs[first].order) {
                first = i;
            }
        }
        if (pairs[first].order == MO_SYMBOL_NONE) {
            break;
        }
        s[first].id = pairs[first].id;
        s[first].length += s[first + 1].length;
        n--;
        for (size_t i = first + 1; i < n; i++) {
            s[i] = s[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (first + 1 < n) {
            pairs[first] = pair(rules, text, &s[first], &s[first + 1]);
        }
        if (first > 0) {
            pairs[first - 1] = pair(rules, text, &s[first - 1], &s[first]);
        }
    }
    m->count = n;
}

/* ---- The heap: order in the high half, position in the low half, smallest first ---- */

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    const uint64_t key = heap[at];
    for (size_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= key) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static void sift_up(uint64_t *heap, size_t at)
{
    const uint64_t key = heap[at];
    for (size_t parent = (at - 1) / 2; at > 0 && heap[parent] > key; at = parent, parent = (at - 1) / 2) {
        heap[at] = heap[parent];
    }
    heap[at] = key;
}

static bool make_links(mo_merge *m, mo_pair_fn pair, const void *rules, const uint8_t *text)
{
    const size_t n = m->count;
    /* Each merge removes one entry and adds at most two: there are never more than two per symbol. */
    if (!mo_array_reserve(&m->links, &m->link_capacity, n, sizeof *m->links) ||
        !mo_array_reserve(&m->heap, &m->heap_capacity, 2 * n, sizeof *m->heap)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        m->links[i] = (mo_merge_link){
            i ? (uint32_t)i - 1 : MO_SYMBOL_NONE, (uint32_t)i + 1, {MO_SYMBOL_NONE, MO_SYMBOL_NONE}};
        if (i + 1 < n) {
            m->links[i].pair = pair(rules, text, &m->symbols[i], &m->symbols[i + 1]);
        }
    }
    return true;
}

static bool merge_long(mo_merge *m, mo_pair_fn pair, const void *rules, const uint8_t *text)
{
    const uint32_t n = (uint32_t)m->count;
    size_t waiting = 0;
    if (!make_links(m, pair, rules, text)) {
        return false;
    }
    mo_symbol *s = m->symbols;
    mo_merge_link *links = m->links;
    for (uint32_t i = 0; i < n; i++) {
        if (links[i].pair.order != MO_SYMBOL_NONE) {
            m->heap[waiting++] = (uint64_t)links[i].pair.order << 32 | i;
        }
    }
    for (size_t i = waiting / 2; i-- > 0;) {
        sift_down(m->heap, waiting, i);
    }
    while (waiting > 0) {
        const uint32_t i = (uint32_t)m->heap[0], order = (uint32_t)(m->heap[0] >> 32);
        m->heap[0] = m->heap[--waiting];
        sift_down(m->heap, waiting, 0);
        if (links[i].pair.order != order) { /* one of the two symbols has changed or was removed */
            continue;
        }
        const uint32_t gone = links[i].after, after = links[gone].after, before = links[i].before;
        s[i].id = links[i].pair.id;
        s[i].length += s[gone].length;
        links[i].after = after;
        links[gone] = (mo_merge_link){i, gone, {MO_SYMBOL_NONE, MO_SYMBOL_NONE}};
        links[i].pair = (mo_pair){MO_SYMBOL_NONE, MO_SYMBOL_NONE};
        if (after < n) {
            links[after].before = i;
            links[i].pair = pair(rules, text, &s[i], &s[after]);
        }
        if (before != MO_SYMBOL_NONE) {
            links[before].pair = pair(rules, text, &s[before], &s[i]);
        }
        const uint32_t renewed[2] = {i, before};
        for (int k = 0; k < 2; k++) {
            if (renewed[k] != MO_SYMBOL_NONE && links[renewed[k]].pair.order != MO_SYMBOL_NONE) {
                m->heap[waiting] = (uint64_t)links[renewed[k]].pair.order << 32 | renewed[k];
                sift_up(m->heap, waiting++);
            }
        }
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i = links[i].after) {
        s[kept++] = s[i];
    }
    m->count = kept;
    return true;
}

static bool merge_row(mo_merge *m, const mo_merge_rules *r, const uint8_t *text)
{
    if (m->count <= SHORT) {
        merge_short(m, r->pair, r->rules, text);
        return true;
    }
    return merge_long(m, r->pair, r->rules, text);
}

/* ---- Windows ---- */

void mo_merge_windows_free(mo_merge_windows *w)
{
    mo_merge_free(&w->now);
    mo_merge_free(&w->next);
    mo_merge_free(&w->joint);
}

/* Merges at most `most` symbols of text[from, length). *end: where they end. */
static bool merge_window(mo_merge *m, const mo_merge_rules *r, const uint8_t *text, size_t from,
                         size_t length, size_t most, size_t *end)
{
    size_t at = from;
    for (m->count = 0; at < length && m->count < most; at += m->symbols[m->count - 1].length) {
        const mo_symbol s = r->first(r->rules, text, at, length);
        if (!mo_merge_add(m, s.id, s.at, s.length)) {
            return false;
        }
    }
    *end = at;
    return merge_row(m, r, text);
}

/* Does merging the text of two neighbours give the same two symbols? -1: out of memory. */
static int stay_apart(mo_merge *m, const mo_merge_rules *r, const uint8_t *text, const mo_symbol *left,
                      const mo_symbol *right)
{
    size_t end;
    if (!merge_window(m, r, text, left->at, (size_t)right->at + right->length, SIZE_MAX, &end)) {
        return -1;
    }
    return m->count == 2 && m->symbols[0].length == left->length;
}

/* Sets w->next to the window after w->now, and *count to the symbols of w->now before it. 0: no boundary
   fits. The windows overlap, because symbols near the end of a window may depend on the text after it. */
static bool follow(mo_merge_windows *w, const mo_merge_rules *r, const uint8_t *text, size_t length,
                   size_t window, size_t *count, size_t *end)
{
    const mo_merge *now = &w->now;
    *count = 0;
    for (size_t cut = 1; cut <= CUTS; cut++) {
        const size_t at = now->count - now->count * cut / (2 * CUTS);
        if (at == 0 || at >= now->count) {
            continue;
        }
        if (!merge_window(&w->next, r, text, now->symbols[at].at, length, window, end)) {
            return false;
        }
        const int fits = stay_apart(&w->joint, r, text, &now->symbols[at - 1], &w->next.symbols[0]);
        if (fits != 0) {
            *count = at;
            return fits > 0;
        }
    }
    return true;
}

/* *met: a boundary was found between all windows. Otherwise the symbols that fn received may be wrong, and
   larger windows are needed. */
static mo_status merge_in_windows(mo_merge_windows *w, const mo_merge_rules *r, const uint8_t *text,
                                  size_t length, size_t window, mo_merge_fn fn, void *user, bool *met,
                                  mo_error *err)
{
    size_t end = 0, next_end = 0, count = 1;
    mo_status status = MO_OK;
    bool good = merge_window(&w->now, r, text, 0, length, window, &end);
    while (good && end < length && count > 0 && status == MO_OK) {
        if (mo_interrupted(w->now.count + window)) {
            return mo_interrupt_fail(err);
        }
        good = follow(w, r, text, length, window, &count, &next_end);
        if (good && count > 0) {
            status = fn(user, text, w->now.symbols, count, err);
            const mo_merge done = w->now;
            w->now = w->next;
            w->next = done;
            end = next_end;
        }
    }
    *met = count > 0;
    if (!good) {
        return mo_fail(err, MO_ENOMEM, "out of memory while tokenizing %zu bytes", length);
    }
    return status == MO_OK && *met ? fn(user, text, w->now.symbols, w->now.count, err) : status;
}

mo_status mo_merge_text(mo_merge_windows *w, const mo_merge_rules *r, const uint8_t *text, size_t length,
                        mo_merge_fn fn, void *user, mo_error *err)
{
    mo_status status = MO_OK;
    bool met = false;
    for (size_t window = w->window ? w->window : WINDOW; !met && status == MO_OK; window *= 2) {
        fn(user, text, NULL, 0, err);
        status = merge_in_windows(w, r, text, length, window, fn, user, &met, err);
    }
    return status;
}
