/* Rehearsal: the first steps of a device load kernels and prepare programs, which takes longer than the steps themselves. They are taken
 * before the first request: a short prompt, and tokens of several sequences at once. It is always the same token, which chooses few
 * experts: little is moved for it, and nothing is learned from it. */
#include "server/scheduler/scheduler.h"

enum {
    PROMPT = 16,  /* tokens: more than a small step has */
    TOGETHER = 8, /* sequences: larger steps are as prompts are */
};

typedef struct warmup {
    srv_engine *engine;
    const _Atomic bool *stopping;
    int64_t length[TOGETHER]; /* of the sequences */
    int steps;
} warmup;

/* The first `count` sequences go on by so many tokens. False: it failed, as it will in a request, which says so. */
static bool feed(warmup *r, int count, int64_t tokens)
{
    const srv_engine *e = r->engine;
    for (int i = 0; i < count; i++) {
        const srv_sequence *s = &e->sequences[i];
        for (int64_t t = 0; t < tokens; t++) {
            s->tokens[r->length[i]++] = 0;
        }
        e->feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                .session = s->session,
                                .tokens = s->tokens,
                                .count = r->length[i],
                                .uncounted = true};
    }
    const bool good = mo_session_feed_all(e->feeds, count, NULL) == MO_OK;
    r->steps += good;
    return good;
}

static void run(void *user)
{
    warmup *r = user;
    srv_engine *e = r->engine;
    bool good = !*r->stopping && e->context > 2 * PROMPT && feed(r, 1, PROMPT);
    for (int count = 1; good && !*r->stopping && count <= e->parallel && count <= TOGETHER; count *= 2) {
        good = feed(r, count, 1);
    }
    for (int i = 0; i < e->parallel && i < TOGETHER; i++) {
        srv_sequence_restore(e, &e->sequences[i], e->empty);
    }
}

int srv_engine_warmup(srv_engine *e, const _Atomic bool *stopping)
{
    warmup r = {.engine = e, .stopping = stopping};
    srv_engine_between_steps(e, run, &r);
    return r.steps;
}
