/* Division: divides a model among ranks and computes the cost of tokens and prompts.
 *
 * By layers: every rank has a range of layers with their part of the sessions. A token goes through the ranks
 * one after the other, so it takes the sum of their times. Prompts are pipelined, so the slowest rank limits
 * them. Minimizing the sum of squares serves both: equal ranks get equal parts, a rank that reads memory
 * faster gets more, and a full rank gets no more while another has memory left, since the excess would come
 * from disk.
 *
 * By experts: rank 0 has all cores and the sessions; every rank has the same share of the experts in each
 * layer. In each layer, rank 0 sends a token's input to the ranks with the chosen experts and receives their
 * outputs. */
#ifndef MO_PLAN_DIVISION_H
#define MO_PLAN_DIVISION_H

#include "moraine.h"
#include "plan/network.h"

enum { MO_DIVISION_RANKS = 256 }; /* maximum ranks */

typedef struct mo_division_layer {
    int64_t bytes; /* in memory, including its KV cache */
    /* part of bytes that stays in RAM even if a device has the layer, such as its KV cache */
    int64_t stay_bytes;
    int64_t token_bytes; /* part of bytes that a token reads */
    /* The experts' part of bytes and token_bytes; 0: no experts. */
    int64_t expert_bytes, expert_token_bytes;
    /* expert bytes in RAM slots, for a rank that does not hold all of its experts there; 0: as
     * expert_bytes */
    int64_t slot_bytes;
    int experts, used; /* total; chosen per token */
    bool joined;       /* must be on the same rank as the layer before it */
} mo_division_layer;

typedef struct mo_division_rank {
    int64_t ram_bytes;                /* ceiling */
    int64_t other_bytes;              /* memory other than layers */
    double ram_bytes_s, disk_bytes_s; /* RAM rate of products; rate of file reads */
    int64_t vram_bytes;               /* for layers, used before RAM; 0: no device */
    double vram_bytes_s;
    /* part of vram_bytes for the output matrix if experts are divided; by layers it is only in RAM */
    int64_t vram_end_bytes;
    int64_t buffer_bytes; /* RAM for layer buffers instead of cores that are all in VRAM */
    /* RAM that other_bytes leaves free because of buffer_bytes; set by mo_division_rest() */
    int64_t spared_bytes;
    mo_network_wire lead; /* link to rank 0; unused for rank 0 */
    mo_network_wire next; /* link to the next rank; the last rank's leads to rank 0 */
} mo_division_rank;

/* The part of a model that a rank holds. */
typedef struct mo_division_held {
    double bytes, core, stay; /* all bytes; without experts; part of core that stays in RAM */
    double slots;             /* experts, counted by slot_bytes */
} mo_division_held;

/* The model to divide and the sizes of messages between ranks. */
typedef struct mo_division_model {
    const mo_division_layer *layers;
    int count;
    int64_t end_bytes;    /* the output matrix on rank 0, read by every token */
    int64_t stream_bytes; /* per token between two layers */
    int64_t input_bytes;  /* per token, sent to experts */
    int64_t output_bytes; /* per expert and token, sent back */
    int64_t piece;        /* tokens per piece of a prompt; 0: whole prompts */
    int64_t prompt;       /* tokens of the prompt that the ways are compared by; the answer has a sixteenth */
} mo_division_model;

/* Cost of a division. token_seconds is core + expert + latency + wire. */
typedef struct mo_division_cost {
    bool possible;                       /* false: all other fields are 0 */
    double token_seconds;                /* next token of one sequence */
    double core_seconds, expert_seconds; /* products, and disk reads if memory is short */
    double disk_seconds;                 /* the disk part of both */
    double latency_seconds;              /* waiting for messages, beyond what products hide */
    double wire_seconds;                 /* waiting for their bytes, likewise */
    double token_messages, token_bytes;  /* between ranks, hidden or not */
    double prompt_seconds;               /* the model's prompt */
    int slowest;                         /* the rank with the largest part of a prompt piece */
    const char *bound; /* what most of a token's time goes to, such as "the memory of rank 0"; a constant */
    const char *prompt_bound; /* the same for a prompt */
} mo_division_cost;

typedef struct mo_division_choice {
    mo_divide way; /* never AUTO */
    mo_division_cost layers, experts;
    char why[256]; /* one sentence */
} mo_division_choice;

/* Rank r gets the layers first[r] to first[r + 1] - 1, at least one. MO_EINVAL: more ranks than layers. Any
 * thread. */
mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err);

/* upto[rank_count]: cumulative share of every layer's experts, 0 to 1; the last is 1. Ranks finish together
 * as far as their memory allows. Every rank other than 0 gets at least one expert per layer, however slow the
 * network: it was started to help. MO_EINVAL: the model has no experts, or fewer than such ranks. Any
 * thread. */
mo_status mo_division_make_experts(const mo_division_model *model, const mo_division_rank *ranks,
                                   int rank_count, double *upto, mo_error *err);
/* A rank's first expert in a layer of `experts`; for the rank after the last it is `experts`. */
int mo_division_first_expert(const double *upto, int rank, int experts);

/* Cost of a division with evenly spread routing. */
mo_division_cost mo_division_cost_layers(const mo_division_model *model, const mo_division_rank *ranks,
                                         int rank_count, const int *first);
mo_division_cost mo_division_cost_experts(const mo_division_model *model, const mo_division_rank *ranks,
                                          int rank_count, const double *upto);

/* Chooses between layers and experts: the way asked for, or the one that finishes a prompt and its answer
 * first. Fills first[rank_count + 1] and upto[rank_count] for each way that is possible. MO_EINVAL: no way is
 * possible, or not the one asked for. Any thread. */
mo_status mo_division_choose(const mo_division_model *model, const mo_division_rank *ranks, int rank_count,
                             mo_divide asked, int *first, double *upto, mo_division_choice *out,
                             mo_error *err);

/* Number of groups that ranks sharing layers split a step into, so that all ranks work at once. The step has
 * one token of each of `tokens` sequences. Returns the fastest by the bytes that each group reads, at most
 * one group per rank; 1: no split. */
int mo_division_groups(const mo_division_model *model, int rank_count, int64_t tokens);

/* Adds a layer without its experts; adds this many of its experts. */
void mo_division_hold_core(const mo_division_layer *layer, mo_division_held *held);
void mo_division_hold_experts(const mo_division_layer *layer, int experts, mo_division_held *held);
/* Bytes that do not fit into a rank's memory. Either RAM holds everything, or VRAM holds cores first, then
 * experts. In the second case RAM holds slots for the other experts, and the cores too, so that losing the
 * device is not fatal: all of them or, if VRAM has them all, buffers for reading them. */
double mo_division_beyond(const mo_division_rank *rank, const mo_division_held *held);
/* Seconds of products and of disk reads on a rank that holds this and reads this many bytes of it. */
void mo_division_seconds(const mo_division_rank *rank, const mo_division_held *held, double read,
                         double *products, double *disk);
/* The memory of a rank left for experts; rank 0 holds the cores first. */
mo_division_rank mo_division_rest(const mo_division_rank *rank, int number, const mo_division_held *cores);

#endif
