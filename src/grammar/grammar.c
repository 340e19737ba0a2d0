#include "grammar/grammar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "grammar/gbnf.h"
#include "grammar/mask.h"

struct mo_grammar {
    mo_lexicon *lexicon;
    mo_program program;
    char *unenforced;     /* NULL: nothing */
    pthread_mutex_t lock; /* protects the following members */
    mo_machine *machine;
    mo_masks *masks;
    mo_constraint *first; /* list of all open constraints */
};

struct mo_constraint {
    mo_grammar *grammar;
    /* protected by the grammar's lock; so is `state`, a state of the grammar's machine */
    mo_constraint *next, *before;
    uint32_t state;
    uint32_t old_state; /* used while the machine is replaced */
    bool ended;         /* an end token was accepted */
    uint32_t masked;    /* the state that `bits` belongs to; MO_STATE_UNKNOWN: none */
    uint32_t *bits;
};

/* ---- Grammars ---- */

static int32_t find_token(const void *user, const char *text)
{
    return mo_token_find(user, text);
}

/* With an opening, an error of the grammar may be reported at a place in the opening. Writes the error of the
   grammar alone into err, if it has one. */
static void blame(const char *gbnf, size_t length, const mo_gbnf_tokens *tokens, mo_error *err)
{
    mo_syntax_grammar syntax;
    mo_error own;
    if (mo_gbnf_parse(gbnf, length, "root", tokens, &syntax, &own) == MO_OK) {
        mo_syntax_free(&syntax);
    } else if (err) {
        *err = own;
    }
}

static mo_status compile(mo_grammar *g, const char *gbnf, size_t length, const mo_grammar_options *options,
                         const mo_answer_form *form, mo_error *err)
{
    const mo_tokenizer *tokenizer = mo_lexicon_tokenizer(g->lexicon);
    const mo_gbnf_tokens tokens = {find_token, tokenizer, mo_tokenizer_size(tokenizer)};
    mo_syntax_grammar syntax;
    mo_bytes w = {0};
    mo_status status = MO_OK;
    const bool opening = options->after || options->trigger_count || form;
    if (opening && length <= MO_GBNF_BYTES) {
        mo_bytes_add(&w, gbnf, length);
        status = mo_opening_write(&w, tokenizer, options, form, err);
    }
    if (status == MO_OK) {
        status = mo_gbnf_parse(w.data ? w.data : gbnf, w.data ? w.length : length,
                               w.data ? MO_OPENING_ROOT : "root", &tokens, &syntax, err);
    }
    if (status != MO_OK && w.data) {
        blame(gbnf, length, &tokens, err);
    }
    if (status == MO_OK) {
        status = mo_program_make(&syntax, &g->program, err);
    }
    free(w.data);
    return status;
}

mo_status mo_grammar_make(mo_lexicon *lexicon, const char *gbnf, size_t length,
                          const mo_grammar_options *options, const mo_answer_form *form, char *unenforced,
                          mo_grammar **out, mo_error *err)
{
    *out = NULL;
    mo_grammar *g = calloc(1, sizeof *g);
    if (!g) {
        free(unenforced);
        return mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    g->lexicon = lexicon;
    g->unenforced = unenforced;
    pthread_mutex_init(&g->lock, NULL);
    mo_status status = compile(g, gbnf, length, options, form, err);
    if (status == MO_OK) {
        status = mo_machine_open(&g->program, &g->machine, err);
    }
    if (status == MO_OK) {
        status = mo_masks_open(lexicon, &g->program, &g->masks, err);
    }
    if (status != MO_OK) {
        mo_grammar_close(g);
        return status;
    }
    *out = g;
    return MO_OK;
}

void mo_grammar_close(mo_grammar *grammar)
{
    if (grammar) {
        mo_masks_close(grammar->masks);
        mo_machine_close(grammar->machine);
        mo_program_free(&grammar->program);
        pthread_mutex_destroy(&grammar->lock);
        free(grammar->unenforced);
        free(grammar);
    }
}

const char *mo_grammar_unenforced(const mo_grammar *grammar)
{
    return grammar->unenforced ? grammar->unenforced : "";
}

/* Replaces a machine that has become large by a new one with the current states of all constraints. When out
   of memory the old one is kept. */
static void renew(mo_grammar *g)
{
    mo_machine *fresh, *old = g->machine;
    if (old->state_count < MO_MACHINE_FULL && old->stacks.frame_count < MO_STACKS_FRAMES / 4 &&
        old->item_count < MO_MACHINE_ITEMS / 4) {
        return;
    }
    if (mo_machine_open(&g->program, &fresh, NULL) != MO_OK) {
        return;
    }
    for (mo_constraint *c = g->first; c; c = c->next) {
        mo_machine_begin(fresh);
        const uint32_t state = mo_machine_import(fresh, old, c->state);
        if (fresh->failed != MO_OK) {
            for (mo_constraint *d = g->first; d != c; d = d->next) {
                d->state = d->old_state;
            }
            mo_machine_close(fresh);
            return;
        }
        c->old_state = c->state;
        c->state = state;
        c->masked = MO_STATE_UNKNOWN;
    }
    mo_masks_clear(g->masks);
    mo_machine_close(old);
    g->machine = fresh;
}

static mo_status failure(mo_machine *m, mo_error *err)
{
    return m->failed == MO_ENOMEM ? mo_fail(err, MO_ENOMEM, "out of memory for a constraint")
                                  : mo_fail(err, MO_ENOSPC,
                                            "the grammar or schema is too ambiguous here; "
                                            "rewrite it so that fewer alternatives start the same way");
}

/* ---- Constraints ---- */

static mo_status open_at(mo_grammar *g, uint32_t state, mo_constraint **out, mo_error *err)
{
    mo_constraint *c = calloc(1, sizeof *c);
    uint32_t *bits = calloc(mo_lexicon_words(g->lexicon) + 1, sizeof *bits);
    if (!c || !bits) {
        free(c);
        free(bits);
        mo_fail(err, MO_ENOMEM, "out of memory for a constraint");
        return MO_ENOMEM;
    }
    c->grammar = g;
    c->bits = bits;
    c->state = state;
    c->next = g->first;
    if (g->first) {
        g->first->before = c;
    }
    g->first = c;
    *out = c;
    return MO_OK;
}

mo_status mo_constraint_open(mo_grammar *grammar, mo_constraint **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, grammar, out)
    *out = NULL;
    pthread_mutex_lock(&grammar->lock);
    const mo_status status = open_at(grammar, grammar->machine->start, out, err);
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

mo_status mo_constraint_copy(const mo_constraint *constraint, mo_constraint **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, constraint, out)
    *out = NULL;
    pthread_mutex_lock(&constraint->grammar->lock);
    const mo_status status = open_at(constraint->grammar, constraint->state, out, err);
    if (status == MO_OK) {
        (*out)->ended = constraint->ended;
    }
    pthread_mutex_unlock(&constraint->grammar->lock);
    return status;
}

void mo_constraint_close(mo_constraint *constraint)
{
    if (!constraint) {
        return;
    }
    mo_grammar *g = constraint->grammar;
    pthread_mutex_lock(&g->lock);
    if (constraint->before) {
        constraint->before->next = constraint->next;
    } else {
        g->first = constraint->next;
    }
    if (constraint->next) {
        constraint->next->before = constraint->before;
    }
    pthread_mutex_unlock(&g->lock);
    free(constraint->bits);
    free(constraint);
}

const uint32_t *mo_constraint_mask(mo_constraint *constraint, mo_error *err)
{
    MO_OWN_ERROR(err)
    if (!mo_required((const void *[]){constraint}, 1, __func__, "constraint", err)) {
        return NULL;
    }
    mo_grammar *g = constraint->grammar;
    mo_status status = MO_OK;
    pthread_mutex_lock(&g->lock);
    if (constraint->ended) {
        memcpy(constraint->bits, mo_lexicon_ends(g->lexicon),
               mo_lexicon_words(g->lexicon) * sizeof *constraint->bits);
        constraint->masked = MO_STATE_UNKNOWN;
    } else if (constraint->masked != constraint->state) {
        renew(g);
        mo_machine *m = g->machine;
        mo_machine_begin(m);
        mo_masks_get(g->masks, m, constraint->state, constraint->bits);
        if (m->failed != MO_OK) {
            status = failure(m, err);
        } else {
            if (m->states[constraint->state].accepts) {
                const uint32_t *ends = mo_lexicon_ends(g->lexicon);
                for (size_t w = 0; w < mo_lexicon_words(g->lexicon); w++) {
                    constraint->bits[w] |= ends[w];
                }
            }
            constraint->masked = constraint->state;
        }
    }
    pthread_mutex_unlock(&g->lock);
    return status == MO_OK ? constraint->bits : NULL;
}

/* The state after the token's bytes, if the token is text. */
static uint32_t after_text(mo_grammar *g, uint32_t state, int32_t token, bool special)
{
    const mo_text piece = mo_token_piece(mo_lexicon_tokenizer(g->lexicon), token, false);
    if (special || piece.length == 0 || piece.length > MO_TRIE_DEPTH) {
        return MO_STATE_DEAD;
    }
    for (size_t i = 0; i < piece.length && state != MO_STATE_DEAD; i++) {
        state = mo_machine_step(g->machine, state, (uint8_t)piece.data[i]);
    }
    return state;
}

static mo_status accept(mo_constraint *c, int32_t token, mo_error *err)
{
    mo_grammar *g = c->grammar;
    const mo_tokenizer *tokenizer = mo_lexicon_tokenizer(g->lexicon);
    if (token < 0 || token >= mo_tokenizer_size(tokenizer)) {
        return mo_fail(err, MO_EINVAL, "token %d is outside the vocabulary of %d", token,
                       mo_tokenizer_size(tokenizer));
    }
    renew(g);
    mo_machine *m = g->machine;
    mo_machine_begin(m);
    const bool end = mo_bit(mo_lexicon_ends(g->lexicon), token);
    const bool special = mo_bit(mo_lexicon_specials(g->lexicon), token);
    uint32_t to = c->ended ? MO_STATE_DEAD : after_text(g, c->state, token, special || end);
    if (!c->ended) {
        to = mo_machine_step_token(m, c->state, token, special, end, to);
    }
    if (m->failed != MO_OK) {
        return failure(m, err);
    }
    if (to == MO_STATE_DEAD && end && (c->ended || m->states[c->state].accepts)) {
        c->ended = true;
        return MO_OK;
    }
    if (to == MO_STATE_DEAD) {
        return mo_fail(err, MO_EINVAL, "the grammar does not allow token %d here", token);
    }
    c->ended = end && m->states[to].accepts; /* an end token that the grammar names */
    c->state = to;
    return MO_OK;
}

mo_status mo_constraint_accept(mo_constraint *constraint, int32_t token, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, constraint)
    pthread_mutex_lock(&constraint->grammar->lock);
    const mo_status status = accept(constraint, token, err);
    pthread_mutex_unlock(&constraint->grammar->lock);
    return status;
}

bool mo_constraint_may_end(const mo_constraint *constraint)
{
    mo_grammar *g = constraint->grammar;
    pthread_mutex_lock(&g->lock);
    const bool may = constraint->ended || g->machine->states[constraint->state].accepts;
    pthread_mutex_unlock(&g->lock);
    return may;
}

bool mo_constraint_ended(const mo_constraint *constraint)
{
    mo_grammar *g = constraint->grammar;
    pthread_mutex_lock(&g->lock);
    const mo_state *s = &g->machine->states[constraint->state];
    const bool ended = constraint->ended || (s->accepts && s->count == 0);
    pthread_mutex_unlock(&g->lock);
    return ended;
}
