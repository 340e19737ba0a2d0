/* Most tokens can follow inside a JSON string, and testing them all takes milliseconds. But tokens that
   contain only harmless characters stay inside the string, whatever encloses it. These are found once for
   each set of characters (lexicon.h), and only the other tokens are tested. */
#include "grammar/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

enum {
    BYTES = 8 << 20, /* for cached masks */
    WIDE = 200,      /* a set of more characters than this gets a run */
};

typedef struct kept {
    uint32_t *bits;
    uint32_t state;
    uint64_t used;
} kept;

struct mo_masks {
    mo_lexicon *lexicon;
    const mo_program *program;
    const mo_run **runs; /* run of each set; NULL: none yet */
    uint64_t *sizes;     /* number of characters in each set */
    kept *kept;
    uint32_t count, space; /* cached masks, and their maximum */
    uint64_t clock;
};

mo_status mo_masks_open(mo_lexicon *lexicon, const mo_program *program, mo_masks **out, mo_error *err)
{
    *out = NULL;
    mo_masks *c = calloc(1, sizeof *c);
    const size_t bytes = mo_lexicon_words(lexicon) * sizeof(uint32_t), sets = program->syntax.set_count;
    if (c) {
        c->lexicon = lexicon;
        c->program = program;
        c->space = (uint32_t)(BYTES / (bytes + 1) < 4096 ? BYTES / (bytes + 1) : 4096) + 4;
        c->kept = calloc(c->space, sizeof *c->kept);
        c->runs = calloc(sets + 1, sizeof(void *));
        c->sizes = calloc(sets + 1, sizeof *c->sizes);
    }
    if (!c || !c->kept || !c->runs || !c->sizes) {
        mo_masks_close(c);
        return mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    for (size_t i = 0; i < sets; i++) {
        c->sizes[i] = mo_charset_size(&program->syntax.sets[i]);
    }
    *out = c;
    return MO_OK;
}

void mo_masks_clear(mo_masks *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        c->kept[i].state = MO_STATE_UNKNOWN;
        c->kept[i].used = 0;
    }
}

void mo_masks_close(mo_masks *c)
{
    if (!c) {
        return;
    }
    for (uint32_t i = 0; i < c->program->syntax.set_count && c->runs; i++) {
        mo_lexicon_release(c->lexicon, c->runs[i]);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->kept[i].bits);
    }
    free(c->kept);
    free(c->runs);
    free(c->sizes);
    free(c);
}

/* ---- Testing tokens ---- */

static void walk(mo_machine *m, const mo_trie *t, uint32_t state, uint32_t *bits)
{
    uint32_t path[MO_TRIE_DEPTH + 1];
    path[0] = state;
    for (uint32_t i = 0; i < t->count;) {
        const uint32_t depth = t->depths[i];
        const uint32_t to = mo_machine_step(m, path[depth], t->bytes[i]);
        if (to == MO_STATE_DEAD) {
            if (m->failed != MO_OK) {
                return;
            }
            i = t->skips[i];
            continue;
        }
        path[depth + 1] = to;
        for (uint32_t k = t->firsts[i]; k < t->firsts[i + 1]; k++) {
            mo_bit_set(bits, t->tokens[k]);
        }
        i++;
    }
}

/* ---- Runs ---- */

/* The largest set that the state's items wait for at the beginning of a character. UINT32_MAX: none is
   large. */
static uint32_t widest_set(const mo_masks *c, const mo_machine *m, uint32_t state)
{
    const mo_state *s = &m->states[state];
    uint32_t widest = UINT32_MAX;
    for (uint32_t i = 0; i < s->count; i++) {
        const mo_item *item = &m->items[s->at + i];
        const mo_node *n = &c->program->nodes[item->node];
        if (n->kind == MO_NODE_SET && item->sub == c->program->characters.starts[n->as.set] &&
            c->sizes[n->as.set] >= WIDE && (widest == UINT32_MAX || c->sizes[n->as.set] > c->sizes[widest])) {
            widest = n->as.set;
        }
    }
    return widest;
}

/* Do characters of the set match nothing in the state except the set itself? */
static bool only_set(const mo_masks *c, const mo_machine *m, uint32_t state, uint32_t set)
{
    const mo_program *p = c->program;
    const mo_charset *chars = &p->syntax.sets[set];
    const mo_state *s = &m->states[state];
    for (uint32_t i = 0; i < s->count; i++) {
        const mo_item *item = &m->items[s->at + i];
        const mo_node *n = &p->nodes[item->node];
        if (n->kind == MO_NODE_SET) {
            if (item->sub != p->characters.starts[n->as.set] ||
                (n->as.set != set && mo_charset_meets(&p->syntax.sets[n->as.set], chars))) {
                return false;
            }
        } else if (n->kind == MO_NODE_LITERAL) {
            const uint8_t *text = p->bytes + n->as.literal.at + item->sub;
            const size_t length = mo_utf8_length(text, n->as.literal.length - item->sub);
            if (length == 0 || mo_charset_has(chars, mo_utf8_decode(text, length))) {
                return false;
            }
        }
    }
    return true;
}

/* How many characters of the set may follow each other, at most MO_RUN_LONGEST. -1: other text may begin with
   the same characters, so longer tokens must be tested. */
static int run_length(const mo_masks *c, mo_machine *m, uint32_t state, uint32_t set)
{
    bool alone = true;
    for (int n = 0; n < MO_RUN_LONGEST; n++) {
        alone = alone && only_set(c, m, state, set);
        const uint32_t next = mo_machine_step_set(m, state, set);
        if (next == MO_STATE_DEAD) {
            return alone ? n : -1;
        }
        if (next == state) {
            break;
        }
        state = next;
    }
    return MO_RUN_LONGEST;
}

static void add_run(const mo_run *run, int length, size_t words, uint32_t *bits)
{
    if (length < MO_RUN_SHORT) {
        memcpy(bits, run->shorter[length], words * sizeof *bits);
        return;
    }
    memcpy(bits, run->bits, words * sizeof *bits);
    for (uint32_t i = 0; i < run->longer_count && run->lengths[i] > length; i++) {
        bits[run->longer[i] / 32] &= ~(1u << run->longer[i] % 32);
    }
}

/* Sets the bits of text tokens. All bits were 0. */
static void add_text(mo_masks *c, mo_machine *m, uint32_t state, uint32_t *bits)
{
    const uint32_t set = widest_set(c, m, state);
    if (set != UINT32_MAX) {
        const int length = run_length(c, m, state, set);
        if (length > 0 && !c->runs[set]) {
            c->runs[set] = mo_lexicon_run(c->lexicon, &c->program->syntax.sets[set]);
        }
        if (length > 0 && c->runs[set]) {
            add_run(c->runs[set], length, mo_lexicon_words(c->lexicon), bits);
            walk(m, &c->runs[set]->others, state, bits);
            return;
        }
    }
    walk(m, mo_lexicon_trie(c->lexicon), state, bits);
}

/* ---- Tokens by name ---- */

static void add_tokens(const mo_masks *c, const mo_token_match *match, uint32_t *bits)
{
    const uint32_t *ends = mo_lexicon_ends(c->lexicon);
    const uint32_t *from =
        match->choice == MO_TOKEN_SPECIALS ? mo_lexicon_specials(c->lexicon) : mo_lexicon_all(c->lexicon);
    if (match->choice == MO_TOKEN_THIS) {
        for (size_t i = 0; i < match->count; i++) {
            mo_bit_set(bits, match->ids[i]);
        }
        return;
    }
    for (size_t w = 0; w < mo_lexicon_words(c->lexicon); w++) {
        uint32_t word = from[w] & ~ends[w];
        for (size_t i = 0; i < match->count; i++) {
            if ((size_t)match->ids[i] / 32 == w) {
                word &= ~(1u << match->ids[i] % 32);
            }
        }
        bits[w] |= word;
    }
}

static void compute(mo_masks *c, mo_machine *m, uint32_t state, uint32_t *bits)
{
    memset(bits, 0, mo_lexicon_words(c->lexicon) * sizeof *bits);
    add_text(c, m, state, bits);
    for (uint32_t i = 0; i < m->states[state].count; i++) {
        const mo_node *n = &c->program->nodes[m->items[m->states[state].at + i].node];
        if (n->kind == MO_NODE_TOKEN) {
            add_tokens(c, n->as.token, bits);
        }
    }
}

/* ---- Cache ---- */

/* A cache entry: a new one, or the least recently used. NULL: do not cache. */
static kept *place(mo_masks *c, mo_machine *m)
{
    if (c->count < c->space) {
        kept *k = &c->kept[c->count];
        k->bits = malloc((mo_lexicon_words(c->lexicon) + 1) * sizeof *k->bits);
        c->count += k->bits != NULL;
        return k->bits ? k : NULL;
    }
    kept *oldest = &c->kept[0];
    for (uint32_t i = 1; i < c->count; i++) {
        oldest = c->kept[i].used < oldest->used ? &c->kept[i] : oldest;
    }
    if (oldest->state != MO_STATE_UNKNOWN) {
        m->states[oldest->state].mask = -1;
    }
    return oldest;
}

void mo_masks_get(mo_masks *c, mo_machine *m, uint32_t state, uint32_t *bits)
{
    const size_t bytes = mo_lexicon_words(c->lexicon) * sizeof *bits;
    state = mo_machine_alike(m, state, mo_lexicon_trie(c->lexicon)->longest);
    if (m->failed != MO_OK) {
        return;
    }
    if (m->states[state].mask >= 0) {
        kept *k = &c->kept[m->states[state].mask];
        memcpy(bits, k->bits, bytes);
        k->used = ++c->clock;
        return;
    }
    compute(c, m, state, bits);
    if (m->failed != MO_OK) {
        return;
    }
    kept *k = place(c, m);
    if (k) {
        memcpy(k->bits, bits, bytes);
        k->state = state;
        k->used = ++c->clock;
        m->states[state].mask = (int32_t)(k - c->kept);
    }
}
