/* Store: the experts of a model that do not all fit in RAM. Some experts are in slots, the others on disk. A
 * layer requests the experts it needs, computes the resident ones, and computes the others as their reads
 * land. Residency never changes a result.
 *
 * One thread at a time (the thread that runs a step) makes all calls. Reader threads only write into slots
 * and mark their reads as done. Nothing is allocated after opening. */
#ifndef MO_EXPERTS_STORE_H
#define MO_EXPERTS_STORE_H

#include "disk/disk.h"
#include "experts/expert_table.h"
#include "experts/policy.h"

typedef struct mo_store mo_store;

typedef struct mo_store_options {
    const mo_policy *policy;                /* NULL: the default */
    int32_t class_slots[MO_EXPERT_CLASSES]; /* per class of mo_expert_table, at least its `used` */
    mo_disk_options disk;                   /* the store fills in the regions */
    /* Experts loaded by mo_store_warm() stay until mo_store_exchange(): the static cache of document 001.
     * Misses use the few slots that warming left free. */
    bool static_set;
} mo_store_options;

/* Allocates slots and opens the model's files. The caller owns the expert table, which must outlive the
 * store. */
mo_status mo_store_open(const mo_checkpoint *model, const mo_expert_table *experts,
                        const mo_store_options *options, mo_store **out, mo_error *err);
void mo_store_close(mo_store *store); /* NULL is allowed */

typedef enum mo_store_phase { MO_STORE_PROMPT, MO_STORE_GENERATION, MO_STORE_PHASES } mo_store_phase;

/* One expert that a pass needs in the current layer. */
typedef struct mo_need {
    int32_t expert;
    uint32_t picks;   /* tokens that chose it */
    uint32_t drafted; /* draft tokens among them: the policy learns from these when they are accepted */
    /* Results: */
    bool missing;  /* it was not in RAM when requested */
    bool in, down; /* gate and up are in RAM and their views are set; the same for down */
    /* For the caller: */
    bool in_done, down_done, released;
    /* For the store: */
    int32_t expert_id;
    int8_t state;
} mo_need;

/* Begins a new pass through the model. */
void mo_store_pass(mo_store *store, mo_store_phase phase);

/* `layer` needs these experts (each once). Resident ones are pinned. Reads of the others begin in this order,
 * gate and up before down, as far as slots allow. The caller keeps `needs` valid until mo_store_leave(). */
void mo_store_want(mo_store *store, int layer, mo_need *needs, int count);

/* Checks which reads have landed, fills the results, and begins reads for which slots have become free.
 * `wait`: returns only when a result has changed. A failed read is an error: the caller leaves the layer and
 * fails its step. */
mo_status mo_store_look(mo_store *store, bool wait, mo_error *err);

/* The caller has finished with this expert. */
void mo_store_release(mo_store *store, mo_need *need);

/* The caller skips this expert, which is missing. Call it before the first mo_store_look(). */
void mo_store_skip(mo_store *store, mo_need *need);

/* Ends the layer, computed or aborted, and unpins all its experts. */
void mo_store_leave(mo_store *store);

/* Experts that `layer` will probably need: reads them with the lowest priority, at most max_bytes. Resident
 * ones among them are not evicted for the others. Experts that a device has are not read. Reads of the
 * layer's previous prediction that have not begun and are not in this one are cancelled. `distance`: the
 * number of layers before `layer` whose stream made the prediction, at most MO_PREFETCH_DISTANCE_MAX, for the
 * counters; 0: not predicted by a router. Distances above 1 evict nothing that distance 1 predicted last. */
enum { MO_PREFETCH_DISTANCE_MAX = 2 };
void mo_store_guess(mo_store *store, int layer, const int32_t *experts, int count, int distance,
                    int64_t max_bytes);

/* Experts that `layer` will need in this pass, because its tokens determine them. Treated as predictions
 * without a limit on bytes, and also counted as known. */
void mo_store_known(mo_store *store, int layer, const int32_t *experts, int count);

/* `layer` runs next and will need nearly all of its experts. Missing ones are read at a lower priority than
 * awaited reads, as far as slots allow, and count as read for the pass. */
void mo_store_guess_layer(mo_store *store, int layer);

/* True if the expert is in RAM. For reports, and for skipping missing experts. */
bool mo_store_resident(const mo_store *store, int layer, int expert);

/* ---- Between passes ---- */

/* Loads these experts into free slots, in disk order. progress as in mo_load_options. */
typedef struct mo_store_request {
    int32_t layer, expert;
    uint64_t hits; /* for the policy; 0: none */
    bool keep;     /* the expert is never evicted */
} mo_store_request;
mo_status mo_store_warm(mo_store *store, const mo_store_request *requests, int count, uint64_t most_hits,
                        mo_progress_fn progress, void *user, mo_error *err);

/* Puts `add` into the slot of `evict`, of the same layer, for an exchange decided by another module.
 * MO_EINVAL if evict is not resident or add is. A static store keeps an `add` that was only passing
 * through. */
mo_status mo_store_exchange(mo_store *store, int layer, int evict, int add, mo_error *err);

/* Ensures that the expert is in RAM with its views set until the next call that reads, for an immediate copy.
 * MO_ENOMEM: all slots are kept. */
mo_status mo_store_bring(mo_store *store, int layer, int expert, mo_error *err);

/* Waits until no predicted or prefetched read is in flight. */
void mo_store_settle(mo_store *store);

/* The same for predicted experts of one layer, split in two so that steps can run in between.
 * mo_store_guessing() returns true if one of them is in flight. mo_store_wait(), with *seen, then waits until
 * a read ends or is cancelled. Only mo_store_wait() may be called while another thread uses the store. */
bool mo_store_guessing(mo_store *store, int layer, const int32_t *experts, int count, uint64_t *seen);
void mo_store_wait(mo_store *store, uint64_t seen);

/* Number of slots of a size class; and the expert that is complete in a slot, with its memory (a slot's
 * bytes), -1: none. For copying resident experts. */
int32_t mo_store_class_slots(const mo_store *store, int size_class);
int32_t mo_store_slot(const mo_store *store, int size_class, int32_t slot, const uint8_t **memory);

/* Restores such a copy: the expert gets a free slot, whose memory the caller fills. Slots of a fresh store
 * are consecutive. NULL: no slot is free, or the expert has one. */
uint8_t *mo_store_claim(mo_store *store, int32_t expert_id);
/* Ends a claim: the bytes are valid, or (good false) the slot is freed. MO_EFORMAT: invalid values. */
mo_status mo_store_filled(mo_store *store, int32_t expert_id, bool good, mo_error *err);

/* ---- With a device (exclusive.c) ----
 *
 * An expert in device memory needs no slot here. Called by the thread that runs the step, between layers or
 * steps. */

/* Begins to read an expert that will be needed, with the lowest priority, into a free slot, or with `evict`
 * into the slot of another. THERE: it is in RAM or in flight already. FULL: no slot is free. BUSY: enough
 * reads are in flight. A failed read is forgotten: the next user of the expert reads it again. */
typedef enum mo_store_begun {
    MO_STORE_BEGUN,
    MO_STORE_THERE,
    MO_STORE_FULL,
    MO_STORE_BUSY,
} mo_store_begun;
mo_store_begun mo_store_ahead(mo_store *store, int layer, int expert, bool evict);
/* True if the expert is in RAM or in flight. */
bool mo_store_has(const mo_store *store, int layer, int expert);

/* True if any expert is neither in RAM, nor in flight, nor known to be on the device. */
bool mo_store_absent(const mo_store *store);

/* Input of the policy. seed: hits from a profile, where the most used expert has `most`. touch: the device
 * computed the expert for this many tokens of the pass. */
void mo_store_seed(mo_store *store, int layer, int expert, uint64_t hits, uint64_t most);
void mo_store_touch(mo_store *store, int layer, int expert, uint32_t picks);

/* Pins the expert with its views set until mo_store_return(). False: it is not in RAM, too many are lent, or
 * its bytes are invalid. In that case it is dropped, and its users get the error. */
bool mo_store_lend(mo_store *store, int layer, int expert);
/* True if there are enough slots to prefetch and lend experts of the layer at all. */
bool mo_store_lends(const mo_store *store, int layer);
void mo_store_return(mo_store *store, int layer, int expert);
/* Frees the slot of an expert that the device now has. No effect if it is not in RAM, or if every expert of
 * its size has a slot. It must not be pinned. */
void mo_store_yield(mo_store *store, int layer, int expert);

/* Takes an expert back from the device: it gets a slot, and the caller copies its matrices to `parts` (gate,
 * up, down). False: it has a slot, or none is available. Result of the copy: the bytes have arrived; they
 * have not; or it is unknown whether they are still being written, and then the slot is never reused. */
typedef enum mo_store_arrival { MO_STORE_ARRIVED, MO_STORE_FAILED, MO_STORE_UNSURE } mo_store_arrival;
bool mo_store_take(mo_store *store, int layer, int expert, bool evict, uint8_t *parts[3]);
void mo_store_taken(mo_store *store, int layer, int expert, mo_store_arrival arrival);

/* ---- Instruments ---- */

typedef struct mo_store_phase_counters {
    uint64_t passes;
    uint64_t asked;   /* experts needed by passes */
    uint64_t hits;    /* found in RAM */
    uint64_t landing; /* misses that a prediction, or a prefetch of the whole layer, was already reading */
    uint64_t bytes;   /* read from disk for misses */
    uint64_t wait_ns; /* time with nothing to compute */
} mo_store_phase_counters;

/* Router predictions: experts to be read; needed; needed before their read landed. */
typedef struct mo_prefetch_counters {
    uint64_t made, proven, late;
} mo_prefetch_counters;

typedef struct mo_store_counters {
    mo_store_phase_counters phase[MO_STORE_PHASES];
    uint64_t guessed, useful, late,
        wasted; /* predicted experts: read; needed later; needed before the read landed; never needed */
    uint64_t guessed_bytes;
    /* experts whose reads began because the tokens of a pass determine them; most also count as guessed */
    uint64_t known;
    uint64_t withdrawn; /* predictions that were withdrawn before they were read; not counted above */
    mo_prefetch_counters distance[MO_PREFETCH_DISTANCE_MAX + 1]; /* indexed by distance; [0] is unused */
    uint64_t ahead, ahead_bytes;                                 /* experts prefetched at the start */
    uint64_t yielded, taken;                                     /* experts moved to the device; taken back */
    uint64_t evictions;
    mo_disk_counters disk;
} mo_store_counters;

mo_store_counters mo_store_count(const mo_store *store);

/* Number of slots, and of slots that hold an expert. */
void mo_store_slots(const mo_store *store, int32_t *slots, int32_t *filled, int64_t *bytes);
const mo_disk *mo_store_disk(const mo_store *store);
const mo_policy *mo_store_policy(const mo_store *store);
const mo_expert_table *mo_store_experts(const mo_store *store);

/* The slot memory of size class `number`, page-aligned; NULL: no such class. */
uint8_t *mo_store_region(const mo_store *store, int number, size_t *bytes);

#endif
