#include "speculate/recent.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "speculate/ngram.h"

/* One of two texts of a client: the newer one grows, and when it is full, takes the place of the other. */
typedef struct half {
    mo_ngram *ngrams;
    int32_t *text; /* [MO_RECENT_TOKENS] */
    int64_t count;
} half;

typedef struct talker {
    uint64_t client, used; /* used: when, counting up; 0: free */
    half halves[2];
    int newer;
} talker;

struct mo_recent {
    uint64_t uses;
    talker talkers[MO_RECENT_CLIENTS];
};

mo_status mo_recent_open(mo_recent **out, mo_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for recent answers");
}

static void drop(talker *t)
{
    for (int i = 0; i < 2; i++) {
        mo_ngram_close(t->halves[i].ngrams);
        free(t->halves[i].text);
    }
    *t = (talker){0};
}

void mo_recent_close(mo_recent *r)
{
    for (int i = 0; r && i < MO_RECENT_CLIENTS; i++) {
        drop(&r->talkers[i]);
    }
    free(r);
}

/* The client's place; if it has none yet, that of the client that has said nothing for the longest time. */
static talker *place_of(mo_recent *r, uint64_t client)
{
    talker *oldest = &r->talkers[0];
    for (int i = 0; i < MO_RECENT_CLIENTS; i++) {
        talker *t = &r->talkers[i];
        if (t->used && t->client == client) {
            return t;
        }
        oldest = t->used < oldest->used ? t : oldest;
    }
    drop(oldest);
    oldest->client = client;
    return oldest;
}

static bool want_half(half *h)
{
    h->text = h->text ? h->text : malloc(sizeof *h->text * MO_RECENT_TOKENS);
    return h->text && (h->ngrams || mo_ngram_open(MO_RECENT_TOKENS, &h->ngrams, NULL) == MO_OK);
}

void mo_recent_add(mo_recent *r, uint64_t client, const int32_t *tokens, int64_t count)
{
    if (count < MO_NGRAM_LEAST) {
        return;
    }
    talker *t = place_of(r, client);
    t->used = ++r->uses;
    while (count > 0) {
        half *h = &t->halves[t->newer];
        if (h->count == MO_RECENT_TOKENS) {
            t->newer = 1 - t->newer;
            h = &t->halves[t->newer];
            h->count = 0;
            if (h->ngrams) {
                mo_ngram_forget(h->ngrams);
            }
        }
        if (!want_half(h)) {
            return; /* less is guessed */
        }
        const int64_t room = MO_RECENT_TOKENS - h->count, some = count < room ? count : room;
        memcpy(h->text + h->count, tokens, sizeof *tokens * (size_t)some);
        h->count += some;
        mo_ngram_extend(h->ngrams, h->text, h->count);
        tokens += some;
        count -= some;
    }
}

int64_t mo_recent_find(const mo_recent *r, uint64_t client, const int32_t *end, int64_t end_count,
                       const int32_t **from, int64_t *length)
{
    int64_t follow = 0;
    *length = 0;
    for (int i = 0; i < MO_RECENT_CLIENTS; i++) {
        const talker *t = &r->talkers[i];
        for (int k = 0; t->used && t->client == client && k < 2; k++) {
            const half *h = &t->halves[k];
            int64_t same = 0;
            const int64_t at = h->count ? mo_ngram_find(h->ngrams, h->text, end, end_count, &same) : -1;
            if (at >= 0 && same > *length) {
                *length = same;
                *from = h->text + at;
                follow = h->count - at;
            }
        }
    }
    return follow;
}
