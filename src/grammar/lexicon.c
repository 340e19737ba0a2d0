#include "grammar/lexicon.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "base/utf8.h"

enum { RUNS_KEPT = 16 };

struct mo_lexicon {
    const mo_tokenizer *tokenizer;
    int64_t size;
    size_t words;
    mo_trie trie;
    uint32_t *ends, *specials, *all;
    pthread_mutex_t lock; /* held while the lexicon is filled; protects the following members */
    bool filled;
    mo_run **runs;
    size_t run_count, run_space;
    uint64_t clock;
};

/* ---- Opening ---- */

/* A user-defined token may be a run of blanks, which is text, or a mark of the chat format, which is not. */
static bool is_mark(mo_text t)
{
    return t.length >= 3 && ((t.data[0] == '<' && t.data[t.length - 1] == '>') ||
                             (t.data[0] == '[' && t.data[t.length - 1] == ']'));
}

static bool is_special(const mo_tokenizer *t, int32_t id)
{
    return mo_token_is_control(t, id) || (mo_token_is_user(t, id) && is_mark(mo_token_text(t, id)));
}

typedef struct entry {
    mo_text piece;
    int32_t id;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const size_t n = x->piece.length < y->piece.length ? x->piece.length : y->piece.length;
    const int order = memcmp(x->piece.data, y->piece.data, n);
    if (order != 0 || x->piece.length != y->piece.length) {
        return order != 0 ? order : x->piece.length < y->piece.length ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static bool make_trie(mo_lexicon *l)
{
    const int32_t size = mo_tokenizer_size(l->tokenizer);
    entry *entries = malloc(((size_t)size + 1) * sizeof *entries);
    int32_t *sorted = malloc(((size_t)size + 1) * sizeof *sorted);
    uint32_t count = 0;
    bool ok = entries && sorted;
    for (int32_t id = 0; id < size && ok; id++) {
        const mo_text piece = mo_token_piece(l->tokenizer, id, false);
        mo_bit_set(l->all, id);
        if (mo_token_is_end(l->tokenizer, id)) {
            mo_bit_set(l->ends, id);
        }
        if (is_special(l->tokenizer, id)) {
            mo_bit_set(l->specials, id);
        } else if (!mo_token_is_end(l->tokenizer, id) && piece.length > 0 && piece.length <= MO_TRIE_DEPTH) {
            entries[count++] = (entry){piece, id};
        }
    }
    if (ok) {
        if (count > 1) {
            qsort(entries, count, sizeof *entries, by_bytes);
        }
        for (uint32_t i = 0; i < count; i++) {
            sorted[i] = entries[i].id;
        }
        ok = mo_trie_make(&l->trie, l->tokenizer, sorted, count);
    }
    free(entries);
    free(sorted);
    return ok;
}

mo_status mo_lexicon_open(const mo_tokenizer *tokenizer, int64_t vocab, mo_lexicon **out, mo_error *err)
{
    *out = NULL;
    mo_lexicon *l = calloc(1, sizeof *l);
    if (!l) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a vocabulary");
    }
    l->tokenizer = tokenizer;
    l->size = vocab > mo_tokenizer_size(tokenizer) ? vocab : mo_tokenizer_size(tokenizer);
    l->words = (size_t)(l->size + 31) / 32;
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return MO_OK;
}

static void empty(mo_lexicon *l)
{
    mo_trie_free(&l->trie);
    free(l->ends);
    free(l->specials);
    free(l->all);
    l->ends = l->specials = l->all = NULL;
}

mo_status mo_lexicon_fill(mo_lexicon *l, mo_error *err)
{
    mo_status status = MO_OK;
    pthread_mutex_lock(&l->lock);
    if (!l->filled) {
        l->ends = calloc(l->words + 1, sizeof *l->ends);
        l->specials = calloc(l->words + 1, sizeof *l->specials);
        l->all = calloc(l->words + 1, sizeof *l->all);
        l->filled = l->ends && l->specials && l->all && make_trie(l);
        if (!l->filled) {
            empty(l);
            status =
                mo_fail(err, MO_ENOMEM, "out of memory for a vocabulary of %lld tokens", (long long)l->size);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

static void free_run(mo_run *run)
{
    if (!run) {
        return;
    }
    mo_charset_free(&run->set);
    mo_trie_free(&run->others);
    for (int i = 0; i < MO_RUN_SHORT; i++) {
        free(run->shorter[i]);
    }
    free(run->bits);
    free(run->longer);
    free(run->lengths);
    free(run);
}

void mo_lexicon_close(mo_lexicon *l)
{
    if (!l) {
        return;
    }
    for (size_t i = 0; i < l->run_count; i++) {
        free_run(l->runs[i]);
    }
    free(l->runs);
    empty(l);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

const mo_tokenizer *mo_lexicon_tokenizer(const mo_lexicon *l)
{
    return l->tokenizer;
}

const mo_trie *mo_lexicon_trie(const mo_lexicon *l)
{
    return &l->trie;
}

size_t mo_lexicon_words(const mo_lexicon *l)
{
    return l->words;
}

const uint32_t *mo_lexicon_ends(const mo_lexicon *l)
{
    return l->ends;
}

const uint32_t *mo_lexicon_specials(const mo_lexicon *l)
{
    return l->specials;
}

const uint32_t *mo_lexicon_all(const mo_lexicon *l)
{
    return l->all;
}

/* ---- Runs ---- */

/* The number of characters if the text contains only characters of the set and is not too long, otherwise
   0. */
static size_t characters(const mo_charset *set, mo_text t)
{
    size_t count = 0;
    for (size_t at = 0, n; at < t.length; at += n, count++) {
        const uint8_t *p = (const uint8_t *)t.data + at;
        n = mo_utf8_length(p, t.length - at);
        if (n == 0 || count == MO_RUN_LONGEST || !mo_charset_has(set, mo_utf8_decode(p, n))) {
            return 0;
        }
    }
    return count;
}

/* Sorts the tokens of more than MO_RUN_SHORT characters, the longest first. */
static bool sort_longer(mo_run *run, const uint8_t *lengths, const mo_trie *trie, uint32_t tokens)
{
    uint32_t counts[MO_RUN_LONGEST + 2] = {0}, total = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        counts[lengths[i]] += lengths[i] > MO_RUN_SHORT;
    }
    for (int n = MO_RUN_LONGEST; n > MO_RUN_SHORT; n--) { /* where the tokens of each length begin */
        const uint32_t count = counts[n];
        counts[n] = total;
        total += count;
    }
    run->longer = malloc((total + 1) * sizeof *run->longer);
    run->lengths = malloc(total + 1);
    if (!run->longer || !run->lengths) {
        return false;
    }
    for (uint32_t i = 0; i < tokens; i++) {
        if (lengths[i] > MO_RUN_SHORT) {
            const uint32_t at = counts[lengths[i]]++;
            run->longer[at] = trie->tokens[i];
            run->lengths[at] = lengths[i];
        }
    }
    run->longer_count = total;
    return true;
}

static bool fill_run(const mo_lexicon *l, mo_run *run, uint8_t *lengths, int32_t *others)
{
    const mo_trie *trie = &l->trie;
    const uint32_t tokens = trie->firsts[trie->count];
    uint32_t other_count = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        const int32_t id = trie->tokens[i];
        const size_t n = characters(&run->set, mo_token_piece(l->tokenizer, id, false));
        lengths[i] = (uint8_t)n;
        if (n == 0) {
            others[other_count++] = id;
            continue;
        }
        mo_bit_set(run->bits, id);
        for (size_t k = n; k < MO_RUN_SHORT; k++) {
            mo_bit_set(run->shorter[k], id);
        }
    }
    return sort_longer(run, lengths, trie, tokens) &&
           mo_trie_make(&run->others, l->tokenizer, others, other_count);
}

static mo_run *make_run(const mo_lexicon *l, const mo_charset *set)
{
    const uint32_t tokens = l->trie.firsts[l->trie.count];
    mo_run *run = calloc(1, sizeof *run);
    uint8_t *lengths = malloc(tokens + 1u);
    int32_t *others = malloc((tokens + 1u) * sizeof *others);
    bool ok = run && lengths && others && mo_charset_copy(&run->set, set);
    if (ok) {
        run->bits = calloc(l->words + 1, sizeof *run->bits);
        ok = run->bits != NULL;
    }
    for (int i = 0; i < MO_RUN_SHORT && ok; i++) {
        run->shorter[i] = calloc(l->words + 1, sizeof *run->bits);
        ok = run->shorter[i] != NULL;
    }
    ok = ok && fill_run(l, run, lengths, others);
    free(lengths);
    free(others);
    if (!ok) {
        free_run(run);
        return NULL;
    }
    return run;
}

/* Frees the least recently used run that is not in use. */
static void forget_one(mo_lexicon *l)
{
    size_t oldest = l->run_count;
    for (size_t i = 0; i < l->run_count; i++) {
        if (l->runs[i]->users == 0 && (oldest == l->run_count || l->runs[i]->used < l->runs[oldest]->used)) {
            oldest = i;
        }
    }
    if (oldest < l->run_count) {
        free_run(l->runs[oldest]);
        l->runs[oldest] = l->runs[--l->run_count];
    }
}

static mo_run *find_or_make(mo_lexicon *l, const mo_charset *set)
{
    for (size_t i = 0; i < l->run_count; i++) {
        if (mo_charset_equal(&l->runs[i]->set, set)) {
            return l->runs[i];
        }
    }
    if (l->run_count >= RUNS_KEPT) {
        forget_one(l);
    }
    if (!mo_array_reserve(&l->runs, &l->run_space, l->run_count + 1, sizeof(void *))) {
        return NULL;
    }
    mo_run *run = make_run(l, set);
    if (run) {
        l->runs[l->run_count++] = run;
    }
    return run;
}

const mo_run *mo_lexicon_run(mo_lexicon *l, const mo_charset *set)
{
    pthread_mutex_lock(&l->lock);
    mo_run *run = find_or_make(l, set);
    if (run) {
        run->users++;
        run->used = ++l->clock;
    }
    pthread_mutex_unlock(&l->lock);
    return run;
}

void mo_lexicon_release(mo_lexicon *l, const mo_run *run)
{
    if (run) {
        pthread_mutex_lock(&l->lock);
        ((mo_run *)run)->users--;
        pthread_mutex_unlock(&l->lock);
    }
}
