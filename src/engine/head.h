/* Head: an MTP head, which guesses tokens from what its model gives out. It is a small model of one layer with an engine and a KV cache of
 * its own, always in RAM and computed by the CPU; a guess is fed to it again with the head's own state, so that it can guess
 * further. A session of it follows one of the model, step by step, and reads what was computed there; it may begin in the middle of a
 * text, because the cache only needs to know how far apart positions are: beside a device it takes in the last positions
 * alone, unless it guesses all the time, because the device would wait for it. So does one of a small model, of which it would be a large part. What it
 * guesses changes no answer.
 *
 * A draft model (engine/draft_model.h) guesses in the place of a head, and has the same interface; it reads tokens alone.
 *
 * A head has no lock: its functions are called under that of the model's engine, but for opening and closing. */
#ifndef MO_ENGINE_HEAD_H
#define MO_ENGINE_HEAD_H

#include "engine/engine.h"
#include "engine/slice.h"

/* Positions that a session leaves for later, in RAM their states: where there are more they are computed, or, beside a device, which would
 * wait for that, forgotten but for the last so many. And tokens of a step of a head: with experts as many as its model's has, up to the
 * last, because experts are read once for a step. */
enum { MO_HEAD_LATER = 64, MO_HEAD_KEPT = 32, MO_HEAD_BATCH = 128, MO_HEAD_BATCH_ROUTED = 512 };
/* Where a head must not cost much, it follows models of so many layers at least: a layer more is then at most 3 % of a prompt. */
enum { MO_HEAD_LAYERS_FOLLOWED = 32 };
static inline bool mo_head_is_late(const mo_model_spec *model, bool automatic)
{
    return automatic && mo_spec_layers(model) < MO_HEAD_LAYERS_FOLLOWED;
}
/* Sessions that are drafted for at once. */
enum { MO_HEAD_TOGETHER = 16 };

struct mo_head_wish;

typedef struct mo_head {
    mo_engine *trunk; /* its model's */
    mo_engine *engine;
    /* mo_head_draft() under the lock: of MTP heads, or of draft models. */
    bool (*draft)(struct mo_head *head, struct mo_head_wish *wishes, int count, int64_t *behind_ns);
    bool whole;      /* a draft model */
    bool late;       /* it takes in nothing before it guesses, as beside a device */
    mo_tiers tiers;  /* of it: the embedding alone */
    float *rows;     /* [batch][D] what the model gave out, and */
    int32_t *tokens; /* [batch] the tokens behind, of a step that follows a text */
    bool failed;     /* a step has failed, as was logged */
    int64_t wait,
        left; /* calls without guesses after a failure, twice as many after each, and those that remain */
} mo_head;

/* checkpoint: a head, for which mo_checkpoint_borrow() was called with the trunk's; kept and used, not owned, as everything that the trunk has. states: what
 * its sessions are made for. late: as above; a draft model is not. */
mo_status mo_head_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                       bool late, mo_head **out, mo_error *err);
void mo_head_close(mo_head *head); /* NULL is allowed */
/* Memory of a head but for its weights, for a model with steps of up to `batch` tokens, and what a session of it has beside the KV cache. */
size_t mo_head_bytes(const mo_model_spec *spec, const mo_state_size *states, int64_t batch, bool late,
                     int threads);
size_t mo_head_session_bytes(const mo_model_spec *spec, int64_t context);

typedef struct mo_head_session {
    mo_head *head;
    mo_state state; /* of tokens base .. base + state.length - 1 of the text */
    int64_t base;
    /* Of a draft model `tokens` are those of the state, [context], and of what follows `logits` alone is there. */
    /* Of the positions behind those: states that the model gave out at the position before, the first of them at base + state.length. The
     * token of the last is not known yet. None: that token was guessed from; it is the last of the state, and the row is still there. */
    int64_t later;
    float *rows;     /* [MO_HEAD_LATER][D] */
    int32_t *tokens; /* [MO_HEAD_LATER] */
    bool behind;     /* more than one step of the model is among them */
    int32_t fed;     /* the last token of the state */
    float *own;      /* [D] the head's own state at the last token */
    float *logits;   /* [vocab] of the last guess */
} mo_head_session;

/* context: positions of the text at most. */
mo_status mo_head_session_open(mo_head *head, int64_t context, mo_head_session **out, mo_error *err);
void mo_head_session_close(mo_head_session *session); /* NULL is allowed */

/* The model's session has another text of this many tokens, whatever it had. */
void mo_head_session_forget(mo_head_session *session, int64_t at);

/* Of so many tokens that a device has computed, those at the beginning that a head does not take in. */
static inline int64_t mo_head_leaves_out(int64_t count)
{
    return count >= MO_HEAD_LATER ? count - (MO_HEAD_LATER - 1) : 0;
}

/* A model with this spec has computed tokens[count] at position `at`: stream: [count][D] what came out of its last layer. */
void mo_head_follow(mo_head_session *session, const mo_model_spec *spec, const int32_t *tokens, int64_t at,
                    int64_t count, const float *stream);

/* Guesses for a text of `count` tokens, of which the model has computed all but the last. */
typedef struct mo_head_wish {
    mo_head_session *session;
    const int32_t *tokens;
    int64_t count, drafts; /* drafts become 0 where a draft model has to read too much of the text first */
    int32_t *out;          /* [drafts] */
    const atomic_bool
        *cancel; /* NULL: never. Set by any thread: no drafts are wanted any more, and they become 0 */
} mo_head_wish;

/* For several sessions at once, up to MO_HEAD_TOGETHER; takes the lock of the model's engine. *behind_ns: the time of what was left of earlier
 * steps, which is no part of a guess's. False: nothing is guessed, because a step failed. */
bool mo_head_draft(mo_engine *trunk, mo_head_wish *wishes, int count, int64_t *behind_ns);

/* ---- For those that guess ---- */

/* The same without the lock, and as heads do. */
bool mo_head_guess(mo_head *head, mo_head_wish *wishes, int count, int64_t *behind_ns);
/* A step of it. Whether it fails changes no answer, so it is only said, once. */
bool mo_head_step(mo_head *head, const mo_slice *slices, int count);
int32_t mo_head_likeliest(const float *logits, int64_t vocab);

#endif
