/* Head: an MTP head, which guesses tokens from the model's output. It is a small model of one layer with its own engine and KV cache,
 * always in RAM and computed by the CPU. Each guess is fed to it again with the head's own state for the next guess. A head session
 * follows a session of the model step by step and reads its outputs. It may start in the middle of a text, because the cache needs only
 * distances between positions. With a device, or with a small model, it processes only the last positions, unless it guesses in every
 * step: the device would wait for it, or it would be a large part of the work. Guesses never change an answer.
 *
 * A draft model (engine/draft_model.h) replaces a head with the same interface. It reads only tokens.
 *
 * A head has no lock. All functions except open and close run under the lock of the model's engine. */
#ifndef MO_ENGINE_HEAD_H
#define MO_ENGINE_HEAD_H

#include "engine/engine.h"
#include "engine/slice.h"

/* A session defers up to MO_HEAD_LATER positions. Beyond that they are computed, or dropped except for the last MO_HEAD_KEPT if the head is
 * late. The other two limit the tokens of a head's step: a head with experts takes steps as long as its model's, up to
 * MO_HEAD_BATCH_ROUTED, because experts are read once per step. */
enum { MO_HEAD_LATER = 64, MO_HEAD_KEPT = 32, MO_HEAD_BATCH = 128, MO_HEAD_BATCH_ROUTED = 512 };
/* An automatic head follows prompts only of models with at least this many layers: one more layer is then at most 3 % of a prompt. */
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
    /* Implements mo_head_draft() under the lock. */
    bool (*draft)(struct mo_head *head, struct mo_head_wish *wishes, int count, int64_t *behind_ns);
    bool whole;      /* a draft model */
    bool late;       /* processes nothing before it guesses, as with a device */
    mo_tiers tiers;  /* only the embedding */
    float *rows;     /* [batch][D] outputs of the model */
    int32_t *tokens; /* [batch] the tokens that follow them */
    bool failed;     /* a step failed, which was logged */
    /* Calls without guesses after a failure, doubled by each failure, and how many of them remain. */
    int64_t wait, left;
} mo_head;

/* checkpoint: of a head, after mo_checkpoint_borrow() with the trunk's. Not owned, like everything of the trunk. states: sizes of its
 * sessions. late: as above; always false for a draft model. */
mo_status mo_head_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                       bool late, mo_head **out, mo_error *err);
void mo_head_close(mo_head *head); /* NULL is allowed */
/* Memory of a head without its weights, for a model with steps of up to `batch` tokens, and of a session without its KV cache. */
size_t mo_head_bytes(const mo_model_spec *spec, const mo_state_size *states, int64_t batch, bool late,
                     int threads);
size_t mo_head_session_bytes(const mo_model_spec *spec, int64_t context);

typedef struct mo_head_session {
    mo_head *head;
    mo_state state; /* tokens base .. base + state.length - 1 of the text */
    int64_t base;
    /* For a draft model `tokens` [context] are the tokens of the state; of the members below only `logits` is used. */
    /* Deferred positions, the first at base + state.length, each with the model's output at the position before. The token of the last
     * one is not known yet. 0: that token was guessed from and is the last of the state; its row is still there. */
    int64_t later;
    float *rows;     /* [MO_HEAD_LATER][D] */
    int32_t *tokens; /* [MO_HEAD_LATER] */
    bool behind;     /* they come from more than one step of the model */
    int32_t fed;     /* the last token of the state */
    float *own;      /* [D] the head's own state at the last token */
    float *logits;   /* [vocab] of the last guess */
} mo_head_session;

/* context: positions of the text at most. */
mo_status mo_head_session_open(mo_head *head, int64_t context, mo_head_session **out, mo_error *err);
void mo_head_session_close(mo_head_session *session); /* NULL is allowed */

/* Restarts at a text of `at` tokens of which the head knows nothing. */
void mo_head_session_forget(mo_head_session *session, int64_t at);

/* How many of the first of `count` tokens computed by a device a head skips. */
static inline int64_t mo_head_leaves_out(int64_t count)
{
    return count >= MO_HEAD_LATER ? count - (MO_HEAD_LATER - 1) : 0;
}

/* Follows a model with this spec that computed tokens[count] at position `at`. stream: [count][D] outputs of its last layer. */
void mo_head_follow(mo_head_session *session, const mo_model_spec *spec, const int32_t *tokens, int64_t at,
                    int64_t count, const float *stream);

/* Positions of earlier steps that a head must process before it can guess. 0 for a draft model, which limits them itself. For the thread that steps
 * the model's session. */
static inline int64_t mo_head_session_behind(const mo_head_session *session)
{
    return !session->head->whole && session->behind && session->later ? session->later - 1 : 0;
}

/* Request for guesses after a text of `count` tokens, of which the model has computed all but the last. */
typedef struct mo_head_wish {
    mo_head_session *session;
    const int32_t *tokens;
    int64_t count, drafts; /* drafts is set to 0 if a draft model would have to read too much first */
    int32_t *out;          /* [drafts] */
    /* NULL, or set by any thread to cancel: drafts is then set to 0. */
    const atomic_bool *cancel;
} mo_head_wish;

/* Guesses for up to MO_HEAD_TOGETHER sessions; takes the lock of the model's engine. *behind_ns: time for positions of earlier steps,
 * which does not count as time of guesses. False: a step failed and nothing is guessed. */
bool mo_head_draft(mo_engine *trunk, mo_head_wish *wishes, int count, int64_t *behind_ns);

/* ---- For heads and draft models ---- */

/* mo_head_draft() of an MTP head, without taking the lock. */
bool mo_head_guess(mo_head *head, mo_head_wish *wishes, int count, int64_t *behind_ns);
/* Runs a step. A failure changes no answer, so it is only logged, once. */
bool mo_head_step(mo_head *head, const mo_slice *slices, int count);
int32_t mo_head_likeliest(const float *logits, int64_t vocab);

#endif
