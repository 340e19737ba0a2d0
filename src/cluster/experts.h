/* Experts: a model whose routed experts are divided among ranks. Rank 0 has everything else. Every rank has
   the same range of experts in each routed layer. For a layer rank 0 sends requests to the ranks whose
   experts were chosen, computes its own experts meanwhile, and merges all outputs in the router's order, so
   the result does not depend on who computed what.

   A request is a head and a body: the experts, the tokens of each, and the tokens' activations (as codes, if
   the matrices read codes). A reply is a head and the rows, or an error. */
#ifndef MO_CLUSTER_EXPERTS_H
#define MO_CLUSTER_EXPERTS_H

#include "cluster/link.h"
#include "engine/engine.h"

typedef enum mo_experts_kind {
    MO_EXPERTS_ASK = 1,
    MO_EXPERTS_CLOSE,
    MO_EXPERTS_AHEAD, /* a prediction of the next picks follows; no reply */
} mo_experts_kind;

/* From rank 0 to another rank. */
typedef struct mo_experts_head {
    uint32_t order; /* MO_WIRE_ORDER */
    int32_t kind;   /* mo_experts_kind */
    int32_t layer;
    int32_t experts; /* number of requested experts */
    int32_t codes;   /* activations are codes and scales, not floats */
    int32_t prompt;
    int64_t rows, tokens; /* rows of all these experts; tokens in the body */
    int32_t adapted;      /* some tokens have adapters that change experts */
    int32_t reserved;
} mo_experts_head;

/* An adapter of a token, as mo_wire_use. adapter -1: no more. */
typedef struct mo_experts_use {
    int32_t adapter;
    float scale;
} mo_experts_use;

/* In the body: experts in order; int32_t rows (token numbers, expert by expert); the tokens' activations. If
   some tokens have adapters: activations as floats, followed by MO_ADAPTERS_USED mo_experts_use for each
   token. */
typedef struct mo_experts_pick {
    int32_t expert, rows;
    int32_t drafts; /* rows of drafts, which the rank's statistics exclude */
} mo_experts_pick;

typedef struct mo_experts_answer {
    int32_t status;  /* MO_OK: `rows` of the model's width follow; otherwise a mo_wire_result */
    int32_t listens; /* some of its experts are on disk, so it wants predictions */
    int64_t rows;
    int64_t work_ns; /* time to compute them and to read experts from disk */
} mo_experts_answer;

/* See cluster/wire.h. */
_Static_assert(sizeof(mo_experts_head) == 48, "the layout of a message");
_Static_assert(sizeof(mo_experts_pick) == 12, "the layout of a message");
_Static_assert(sizeof(mo_experts_use) == 8, "the layout of a message");
_Static_assert(sizeof(mo_experts_answer) == 24, "the layout of a message");

/* Bytes of a token's activations, and of a whole body. */
size_t mo_experts_token_bytes(int64_t width, bool codes);
size_t mo_experts_body_bytes(const mo_experts_head *head, int64_t width);
size_t mo_experts_uses_bytes(const mo_experts_head *head); /* bytes at the end of a body */
/* Do all of the layer's experts read only codes? */
bool mo_experts_read_codes(const mo_moe *moe, int64_t width);
/* Maximum bytes of bodies for each token of a batch, in a rank that communicates with this many others. */
int64_t mo_experts_message_bytes(int64_t width, int64_t used, int peers);

typedef struct mo_experts_leader mo_experts_leader;

/* For rank 0's engine. first[ranks + 1]: the first expert of every rank. Becomes a worker of the engine. The
   caller keeps the link; the engine outlives the leader. */
mo_status mo_experts_lead(mo_link *link, mo_engine *engine, const int *first, mo_experts_leader **out,
                          mo_error *err);
/* Also closes the model in the other ranks. NULL is allowed. */
void mo_experts_leave(mo_experts_leader *leader);
/* The same without a leader: not all ranks could open the model. */
void mo_experts_close(mo_link *link);
void mo_experts_traffic(mo_experts_leader *leader, mo_traffic_report *out); /* any thread */

/* For the other ranks: answers requests until rank 0 closes the model (MO_OK) or the link is lost. engine
   NULL: the model could not be opened here, and no requests come. Errors of this rank are returned to rank
   0. */
mo_status mo_experts_follow(mo_link *link, mo_engine *engine, mo_error *err);

#endif
