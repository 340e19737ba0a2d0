/* Division: what of a model every rank has, and what tokens and prompts cost then.
 *
 * By layers: every rank has a run of layers with its part of the sessions. A token goes through the ranks one after the other, so
 * what counts for it is the sum of their times; prompts pass them like a pipeline, where the slowest counts. Both are served by the
 * smallest sum of squares: equal ranks get equal parts, a rank that reads memory faster gets more, and one whose memory is full gets
 * no more as long as another has some, since what is beyond comes from disk.
 *
 * By experts: rank 0 has all cores and the sessions; every rank has the same share of each layer's experts. In a layer a token's input
 * goes from rank 0 to the ranks that have experts it picked, and their outputs come back. */
#ifndef MO_PLAN_DIVISION_H
#define MO_PLAN_DIVISION_H

#include "moraine.h"
#include "plan/network.h"

enum { MO_DIVISION_RANKS = 256 }; /* most of them */

typedef struct mo_division_layer {
    int64_t bytes;       /* in memory, with its KV cache */
    int64_t stay_bytes;  /* of those: in RAM even if a device has the layer, like its KV cache */
    int64_t token_bytes; /* that a token reads of them */
    /* Of both the experts' part; 0: the layer has none. */
    int64_t expert_bytes, expert_token_bytes;
    int64_t slot_bytes; /* that the experts take in RAM where not all of a rank's are there; 0: no more */
    int experts, used;  /* how many there are; that a token picks */
    bool joined;        /* it is in the same rank as the layer before it */
} mo_division_layer;

typedef struct mo_division_rank {
    int64_t ram_bytes;                /* its ceiling, */
    int64_t other_bytes;              /* and its memory apart from layers */
    double ram_bytes_s, disk_bytes_s; /* as products read; as it reads files */
    int64_t vram_bytes;               /* for layers, which it uses before RAM; 0: none */
    double vram_bytes_s;
    int64_t
        vram_end_bytes; /* of them: for the output matrix, where experts are divided; by layers RAM alone has it */
    int64_t buffer_bytes; /* of RAM, that it can hold in place of cores which are all in VRAM */
    int64_t
        spared_bytes; /* of what other_bytes leaves of RAM: free because of that; set by mo_division_rest() */
    mo_network_wire lead; /* between it and rank 0; of rank 0 without meaning */
    mo_network_wire next; /* from it to the rank after it, from the last to rank 0 */
} mo_division_rank;

/* What a rank holds of a model. */
typedef struct mo_division_held {
    double bytes, core, stay; /* all of it; of that, what is not experts; of that, what stays in RAM */
    double slots;             /* of experts, as slot_bytes */
} mo_division_held;

/* What there is to divide, and what ranks send each other of it. */
typedef struct mo_division_model {
    const mo_division_layer *layers;
    int count;
    int64_t end_bytes;    /* that rank 0 has and every token reads apart from layers: the output matrix */
    int64_t stream_bytes; /* of a token between two layers */
    int64_t input_bytes;  /* of a token on its way to experts */
    int64_t output_bytes; /* of one expert for a token, on its way back */
    int64_t piece;        /* tokens of a prompt that go together; 0: all of them */
    int64_t prompt;       /* tokens of the prompt that ways are compared by; its answer has a sixteenth */
} mo_division_model;

/* What a way of dividing costs. token_seconds is core + expert + latency + wire. */
typedef struct mo_division_cost {
    bool possible;                       /* false: the rest is 0 */
    double token_seconds;                /* the next token of one sequence */
    double core_seconds, expert_seconds; /* products, and reads from disk where memory is short */
    double disk_seconds;                 /* that part of both, */
    double latency_seconds;              /* waiting for messages to arrive, beyond what products hide */
    double wire_seconds;                 /* waiting for their bytes, likewise */
    double token_messages, token_bytes;  /* between ranks, hidden or not */
    double prompt_seconds;               /* of the model's prompt */
    int slowest;                         /* rank that takes the largest part of a piece of a prompt */
    const char *bound; /* what most of a token's time goes to, as in "the memory of rank 0": a constant */
    const char *prompt_bound; /* likewise of a prompt */
} mo_division_cost;

typedef struct mo_division_choice {
    mo_divide way; /* never AUTO */
    mo_division_cost layers, experts;
    char why[256]; /* one sentence */
} mo_division_choice;

/* Every rank gets at least one layer: rank r those from first[r] to first[r + 1] - 1. MO_EINVAL: there are more ranks than layers. Any
 * thread. */
mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err);

/* upto[rank_count]: the share of every layer's experts, 0 to 1, in ranks up to that one, the last of which has 1. Ranks end together, as
 * far as their memory goes; but every rank other than 0 has an expert of each layer at least, however slow the network: it was started to
 * help. MO_EINVAL: the model has none, or fewer than such ranks. Any thread. */
mo_status mo_division_make_experts(const mo_division_model *model, const mo_division_rank *ranks,
                                   int rank_count, double *upto, mo_error *err);
/* The first expert of a rank in a layer of `experts`; for the rank after the last it is `experts`. */
int mo_division_first_expert(const double *upto, int rank, int experts);

/* What a division costs, with evenly spread routing. */
mo_division_cost mo_division_cost_layers(const mo_division_model *model, const mo_division_rank *ranks,
                                         int rank_count, const int *first);
mo_division_cost mo_division_cost_experts(const mo_division_model *model, const mo_division_rank *ranks,
                                          int rank_count, const double *upto);

/* Decides between the ways: the one with which a prompt and its answer are done first, or the one that is asked for. first
 * [rank_count + 1] and upto [rank_count] are filled as far as that way is possible. MO_EINVAL: neither is, or not the one that is asked
 * for. Any thread. */
mo_status mo_division_choose(const mo_division_model *model, const mo_division_rank *ranks, int rank_count,
                             mo_divide asked, int *first, double *upto, mo_division_choice *out,
                             mo_error *err);

/* Into how many groups ranks that share layers take a step of this many tokens, one of each sequence, so that all of them work at once: the
 * fastest by the bytes that every group reads for itself, at most one for each rank. 1: as a whole. */
int mo_division_groups(const mo_division_model *model, int rank_count, int64_t tokens);

/* What a layer adds without its experts, and what this many experts add. */
void mo_division_hold_core(const mo_division_layer *layer, mo_division_held *held);
void mo_division_hold_experts(const mo_division_layer *layer, int experts, mo_division_held *held);
/* Bytes of it that a rank's memory has no place for. RAM has all of it, or else: VRAM has cores first, then experts, and RAM slots for other
 * experts, and cores as well, so that a device can be lost: all of them, or, where VRAM does, buffers for reading them. */
double mo_division_beyond(const mo_division_rank *rank, const mo_division_held *held);
/* Seconds of products, and of reads from disk, of a rank that holds this and reads this many bytes of it. */
void mo_division_seconds(const mo_division_rank *rank, const mo_division_held *held, double read,
                         double *products, double *disk);
/* What is left in a rank for experts: rank 0 has the cores first. */
mo_division_rank mo_division_rest(const mo_division_rank *rank, int number, const mo_division_held *cores);

#endif
