/* Store: the experts of a model that do not all fit into RAM. Some experts are in slots, the others on disk; a layer
 * says which ones it needs, computes those that are there, and takes the rest as they land. Which experts are
 * there never changes a result.
 *
 * One thread at a time (the one that runs a step) calls everything here; readers only write into slots and
 * mark their reads as done. Nothing allocates after opening. */
#ifndef MO_EXPERTS_STORE_H
#define MO_EXPERTS_STORE_H

#include "disk/disk.h"
#include "experts/expert_table.h"
#include "experts/policy.h"

typedef struct mo_store mo_store;

typedef struct mo_store_options {
    const mo_policy *policy;                /* NULL: the default */
    int32_t class_slots[MO_EXPERT_CLASSES]; /* of each class of mo_expert_table, at least its `used` */
    mo_disk_options disk;                   /* regions are filled in by the store */
    bool
        static_set; /* what mo_store_warm() brought stays until mo_store_exchange(): the static cache of document
                   001. Misses pass through the few slots that warming left free */
} mo_store_options;

/* Takes slots and opens the model's files. The experts belong to the caller and outlive the store. */
mo_status mo_store_open(const mo_checkpoint *model, const mo_expert_table *experts,
                        const mo_store_options *options, mo_store **out, mo_error *err);
void mo_store_close(mo_store *store); /* NULL is allowed */

typedef enum mo_store_phase { MO_STORE_PROMPT, MO_STORE_GENERATION, MO_STORE_PHASES } mo_store_phase;

/* One expert that a pass needs in the current layer. */
typedef struct mo_need {
    int32_t expert;
    uint32_t picks;   /* tokens that chose it */
    uint32_t drafted; /* of them drafts: the policy learns of these when they are accepted */
    /* Answers: */
    bool missing;  /* it was not in RAM when it was asked for */
    bool in, down; /* its gate and up matrices are there and their views point at them; its down matrix */
    /* The caller's own: */
    bool in_done, down_done, released;
    /* The store's own: */
    int32_t expert_id;
    int8_t state;
} mo_need;

/* A new pass through the model begins. */
void mo_store_pass(mo_store *store, mo_store_phase phase);

/* Layer `layer` needs these experts (each once). Those in RAM are pinned; reads of the others begin, in this
 * order, gate and up before down, as far as there are slots. needs stay the caller's until mo_store_leave(). */
void mo_store_want(mo_store *store, int layer, mo_need *needs, int count);

/* Looks what has landed and fills the answers; begins reads for which slots have become free. With `wait` it
 * returns only when some answer has changed. A read that failed is an error: the caller leaves the layer and
 * fails its step. */
mo_status mo_store_look(mo_store *store, bool wait, mo_error *err);

/* The caller has finished with this expert. */
void mo_store_release(mo_store *store, mo_need *need);

/* The caller will do without this expert, which is missing and for which mo_store_look() has not been asked
 * yet. */
void mo_store_skip(mo_store *store, mo_need *need);

/* The layer is done, or given up: nothing of it is pinned any more when this returns. */
void mo_store_leave(mo_store *store);

/* Experts that `layer` will probably need: read with the lowest priority, at most max_bytes. Those of
 * them that are resident are not evicted for the others, what a device has is not read, and what was guessed for the layer
 * before, is not among them and has not been begun is not read either. `distance`: made from the stream this many layers before it, at
 * most MO_PREFETCH_DISTANCE_MAX, and counted as such; 0: not by a router's guess. Further ones evict nothing that distance 1 named last. */
enum { MO_PREFETCH_DISTANCE_MAX = 2 };
void mo_store_guess(mo_store *store, int layer, const int32_t *experts, int count, int distance,
                    int64_t max_bytes);

/* Experts that `layer` will need in this pass, because its tokens say so: the same as guesses, however many there are, which count as
 * known, too. */
void mo_store_known(mo_store *store, int layer, const int32_t *experts, int count);

/* The pass comes to `layer` next and will need nearly all of its experts: what is missing is read behind everything that
 * is waited for, as far as there are slots, and counts as read for the pass. */
void mo_store_guess_layer(mo_store *store, int layer);

/* Is it in RAM? For instruments, and for leaving out what is missing. */
bool mo_store_resident(const mo_store *store, int layer, int expert);

/* ---- Between passes ---- */

/* Brings these experts in (as long as there are slots that hold nothing), in the order of their places on disk.
 * progress as in mo_load_options. */
typedef struct mo_store_request {
    int32_t layer, expert;
    uint64_t hits; /* hits for the policy; 0: none */
    bool keep;     /* stays for good */
} mo_store_request;
mo_status mo_store_warm(mo_store *store, const mo_store_request *requests, int count, uint64_t most_hits,
                        mo_progress_fn progress, void *user, mo_error *err);

/* Puts `add` into the slot of `evict`, both of the same layer: an exchange decided by another module. MO_EINVAL
 * when evict is not resident or add is; a still store keeps an `add` that is only passing through. */
mo_status mo_store_exchange(mo_store *store, int layer, int evict, int add, mo_error *err);

/* Makes sure that the expert is in RAM, where its views point at it until the next call that reads: for who copies it
 * at once. MO_ENOMEM when every slot is kept. */
mo_status mo_store_bring(mo_store *store, int layer, int expert, mo_error *err);

/* Waits until nothing that was guessed or is read ahead is under way. */
void mo_store_settle(mo_store *store);

/* The same for guesses of some experts of a layer, in two parts, so that steps may run meanwhile: is one of them under way? Then
 * mo_store_wait(), with *seen, waits for the end of a read, or for one that is withdrawn. It alone may be called while another thread
 * uses the store. */
bool mo_store_guessing(mo_store *store, int layer, const int32_t *experts, int count, uint64_t *seen);
void mo_store_wait(mo_store *store, uint64_t seen);

/* Slots of a size class, and the expert that is whole in one of them with its memory (a slot's bytes); -1: none.
 * For copying what is resident. */
int32_t mo_store_class_slots(const mo_store *store, int size_class);
int32_t mo_store_slot(const mo_store *store, int size_class, int32_t slot, const uint8_t **memory);

/* Bringing such a copy back: the expert gets a free slot, whose memory the caller fills (slots of a fresh store are
 * one behind the other); NULL when none is free or the expert has one. */
uint8_t *mo_store_claim(mo_store *store, int32_t expert_id);
/* Ends a claim: the bytes are there, or not and the slot is free again. MO_EFORMAT when they make no sense. */
mo_status mo_store_filled(mo_store *store, int32_t expert_id, bool good, mo_error *err);

/* ---- With a device (exclusive.c) ----
 *
 * What lies in a device's memory needs no slot here. Called by the thread that has the step, between layers or steps. */

/* Begins to read an expert that will be needed, with the lowest priority: into a free slot, or with `evict` into
 * that of another. There: it is here or on its way already; full: no slot is free; busy: enough is on its way. A read that
 * fails is forgotten: whoever needs the expert reads it again. */
typedef enum mo_store_begun {
    MO_STORE_BEGUN,
    MO_STORE_THERE,
    MO_STORE_FULL,
    MO_STORE_BUSY,
} mo_store_begun;
mo_store_begun mo_store_ahead(mo_store *store, int layer, int expert, bool evict);
/* It is here, or on its way. */
bool mo_store_has(const mo_store *store, int layer, int expert);

/* Is any expert neither here nor, as far as is known, on the device? */
bool mo_store_absent(const mo_store *store);

/* Input of the policy: a profile has this many hits of the expert, `most` of its most used one; the device computed it for
 * this many tokens of the pass. */
void mo_store_seed(mo_store *store, int layer, int expert, uint64_t hits, uint64_t most);
void mo_store_touch(mo_store *store, int layer, int expert, uint32_t picks);

/* The expert is pinned, and its views point at it, until it is returned. False: it is not here, or too many
 * are lent, or its bytes make no sense and it leaves: its users get the error. */
bool mo_store_lend(mo_store *store, int layer, int expert);
/* Are there slots enough that any expert of the layer is ever read ahead and lent? */
bool mo_store_lends(const mo_store *store, int layer);
void mo_store_return(mo_store *store, int layer, int expert);
/* The device has it: its slot is free. Without effect where it is not here, or where every expert of its size has a slot;
 * it must not be pinned. */
void mo_store_yield(mo_store *store, int layer, int expert);

/* The device gives an expert back: it gets a slot, and the caller copies its matrices to `parts` (gate, up, down). False: it
 * has one, or there is none to be had. Result: the bytes have arrived; or not; or it is unknown whether they are still
 * being written, and then the slot is never used again. */
typedef enum mo_store_arrival { MO_STORE_ARRIVED, MO_STORE_FAILED, MO_STORE_UNSURE } mo_store_arrival;
bool mo_store_take(mo_store *store, int layer, int expert, bool evict, uint8_t *parts[3]);
void mo_store_taken(mo_store *store, int layer, int expert, mo_store_arrival arrival);

/* ---- Instruments ---- */

typedef struct mo_store_phase_counters {
    uint64_t passes;
    uint64_t asked;   /* experts that passes needed */
    uint64_t hits;    /* of them in RAM */
    uint64_t landing; /* of the others already under way by a guess, or read ahead with their layer */
    uint64_t bytes;   /* read because of them */
    uint64_t wait_ns; /* nothing could be computed meanwhile */
} mo_store_phase_counters;

/* Guesses of routers: experts that were to be read; of them needed; of those, too soon. */
typedef struct mo_prefetch_counters {
    uint64_t made, proven, late;
} mo_prefetch_counters;

typedef struct mo_store_counters {
    mo_store_phase_counters phase[MO_STORE_PHASES];
    uint64_t guessed, useful, late,
        wasted; /* experts: read by guess; needed later; needed too soon; never needed */
    uint64_t guessed_bytes;
    uint64_t
        known; /* experts whose reads began because the tokens of a pass say them; most are among those guessed */
    uint64_t withdrawn; /* experts: guessed, and known to be wrong before they were read; not counted above */
    mo_prefetch_counters distance[MO_PREFETCH_DISTANCE_MAX + 1]; /* by how far they looked; [0] is unused */
    uint64_t ahead, ahead_bytes;                                 /* experts read ahead at the start */
    uint64_t yielded, taken; /* experts given to the device, and taken back */
    uint64_t evictions;
    mo_disk_counters disk;
} mo_store_counters;

mo_store_counters mo_store_count(const mo_store *store);

/* How many slots there are, and how many hold an expert. */
void mo_store_slots(const mo_store *store, int32_t *slots, int32_t *filled, int64_t *bytes);
const mo_disk *mo_store_disk(const mo_store *store);
const mo_policy *mo_store_policy(const mo_store *store);
const mo_expert_table *mo_store_experts(const mo_store *store);

/* The memory of the slots of size class `number`, page-aligned; NULL when there is no such class. */
uint8_t *mo_store_region(const mo_store *store, int number, size_t *bytes);

#endif
