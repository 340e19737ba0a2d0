/* Experts: a model whose routed experts are divided among ranks. Rank 0 has everything else; every rank has the same run of each routed
 * layer's experts. For a layer rank 0 asks those ranks whose experts were chosen, computes its own meanwhile, and merges when all
 * outputs are there, in the router's order: no bit depends on who computed what.
 *
 * A question is a head and a body: which experts, which of the body's tokens each has, and the tokens' activations, as codes where the
 * matrices read these. The answer is a head and the rows, or a result that says why there are none. */
#ifndef MO_CLUSTER_EXPERTS_H
#define MO_CLUSTER_EXPERTS_H

#include "cluster/link.h"
#include "engine/engine.h"

typedef enum mo_experts_kind {
    MO_EXPERTS_ASK = 1,
    MO_EXPERTS_CLOSE,
    MO_EXPERTS_AHEAD, /* picks follow that the layer will probably want, without rows: nothing is answered */
} mo_experts_kind;

/* From rank 0 to any other. */
typedef struct mo_experts_head {
    uint32_t order; /* MO_WIRE_ORDER */
    int32_t kind;   /* mo_experts_kind */
    int32_t layer;
    int32_t experts; /* that are asked for */
    int32_t codes;   /* activations are codes and scales, and not floats */
    int32_t prompt;
    int64_t rows, tokens; /* of all these experts; whose activations follow */
    int32_t adapted;      /* some of the tokens have adapters that change experts */
    int32_t reserved;
} mo_experts_head;

/* An adapter of a token, as mo_wire_use; adapter -1: it has no more. */
typedef struct mo_experts_use {
    int32_t adapter;
    float scale;
} mo_experts_use;

/* In the body: experts in their order, then int32_t rows (numbers of tokens, expert by expert), then the tokens' activations; where some are
 * adapted, as floats, and MO_ADAPTERS_USED mo_experts_use of every token behind them. */
typedef struct mo_experts_pick {
    int32_t expert, rows;
    int32_t drafts; /* of the rows, those of guesses: they count in no statistic of the rank */
} mo_experts_pick;

typedef struct mo_experts_answer {
    int32_t status;  /* MO_OK: `rows` of the model's width follow; else a mo_wire_result */
    int32_t listens; /* some of its experts are on disk: it wants to know what will be wanted */
    int64_t rows;
    int64_t work_ns; /* that it took to compute them, and to read what was on disk */
} mo_experts_answer;

/* As in cluster/wire.h. */
_Static_assert(sizeof(mo_experts_head) == 48, "the layout of a message");
_Static_assert(sizeof(mo_experts_pick) == 12, "the layout of a message");
_Static_assert(sizeof(mo_experts_use) == 8, "the layout of a message");
_Static_assert(sizeof(mo_experts_answer) == 24, "the layout of a message");

/* A token's activations in a body; of a body. */
size_t mo_experts_token_bytes(int64_t width, bool codes);
size_t mo_experts_body_bytes(const mo_experts_head *head, int64_t width);
size_t mo_experts_uses_bytes(const mo_experts_head *head); /* at the end of a body */
/* Do all of the layer's experts read codes alone? */
bool mo_experts_read_codes(const mo_moe *moe, int64_t width);
/* What bodies take for each token of a batch, at most, in a rank that communicates with this many others. */
int64_t mo_experts_message_bytes(int64_t width, int64_t used, int peers);

typedef struct mo_experts_leader mo_experts_leader;

/* For rank 0's engine; first[ranks + 1]: where every rank's experts begin. Becomes a worker of the engine. The link stays the caller's, the
 * engine outlives the leader. */
mo_status mo_experts_lead(mo_link *link, mo_engine *engine, const int *first, mo_experts_leader **out,
                          mo_error *err);
/* The others close the model too. NULL is allowed. */
void mo_experts_leave(mo_experts_leader *leader);
/* The same without one: not all could open the model. */
void mo_experts_close(mo_link *link);
void mo_experts_traffic(mo_experts_leader *leader, mo_traffic_report *out); /* any thread */

/* Any other rank: answers until rank 0 closes the model (MO_OK) or the link is lost. engine NULL: it could not be opened here, and nothing is
 * asked. What a question needs and this rank cannot do is rank 0's to bear. */
mo_status mo_experts_follow(mo_link *link, mo_engine *engine, mo_error *err);

#endif
