/* The state of a store, private to its files: the slots of each size class with their memory, and the reads that fill
 * them. A slot's memory has a span for each matrix of its expert; a span begins on a page and the bytes begin inside it
 * where they begin inside their page of the file, so that a direct read lands where it is used. */
#ifndef MO_EXPERTS_STATE_H
#define MO_EXPERTS_STATE_H

#include "experts/slots.h"
#include "experts/store.h"

/* An expert's matrices. */
enum { MO_STORE_MATRICES = 3 }; /* most of an expert */

/* Experts of one submission. */
enum { MO_STORE_AT_ONCE = 64 };

/* How an expert came into its slot, in addition to what mo_slots knows. */
enum {
    MO_GUESS_NONE,
    MO_GUESS_UNDER_WAY,
    MO_GUESS_LANDED,
    MO_GUESS_FILLING, /* in flight, but not predicted: prefetched at the start, or skipped */
    MO_GUESS_LAYER, /* under way with all of its layer, which the pass comes to next: counted as read for the pass */
    MO_GUESS_LAYER_LANDED
};

typedef struct mo_store_slot_reads {
    mo_read reads[MO_STORE_MATRICES];
    int count; /* of them: an expert's gate, where it has one, its up and its down, which is the last */
    uint8_t guess;
    uint8_t distances; /* of an unused prediction: bit r: one of distance r named it */
} mo_store_slot_reads;

typedef struct mo_store_class {
    mo_slots *slots;
    mo_store_slot_reads *slot; /* [slot_count] */
    int32_t slot_count;
    uint8_t *memory;
    size_t memory_bytes;
    int64_t slot_bytes;
    int32_t lent;             /* pinned for a device to copy */
    int32_t on_device;        /* experts that a device has, as far as is known */
    const int32_t *expert_id; /* number in the class -> expert */
} mo_store_class;

struct mo_store {
    const mo_expert_table *experts;
    const char *path; /* of the model */
    const mo_policy *policy;
    bool static_set;
    mo_disk *disk;
    mo_store_class classes[MO_EXPERT_CLASSES];
    int class_count;
    bool *checked;   /* [experts] their bytes were found to be well formed, or cannot be otherwise */
    bool *on_device; /* [experts] a device has it, as far as is known: reading it ahead would be in vain */
    uint64_t now;    /* steps */
    mo_store_phase phase;

    mo_need *needs; /* of the current layer */
    int need_count;
    int32_t *guesses; /* experts whose guessed reads are under way */
    int guess_count, guess_limit;
    int32_t near[MO_EXPERTS_MAX]; /* experts that the last guess of reach 1 named, and their layer */
    int near_layer, near_count;
    mo_store_counters counters;
};

/* ---- An expert's slot (needs.c) ---- */

mo_store_class *mo_store_class_of(const mo_store *s, int32_t expert_id);
int32_t mo_store_slot_number(const mo_store *s, int32_t expert_id); /* -1: it has none */
mo_store_slot_reads *mo_store_slot_of(const mo_store *s, int32_t expert_id);
void mo_store_pin(mo_store *s, int32_t expert_id);
void mo_store_unpin(mo_store *s, int32_t expert_id);

/* Gives the expert a slot, pinned, and prepares its reads. False when every slot is in use. */
bool mo_store_acquire(mo_store *s, int32_t expert_id, mo_urgency urgency);
/* The expert leaves its slot, and its views point nowhere. */
void mo_store_drop(mo_store *s, int32_t expert_id);
/* A device has it, as far as is known, or has it no more. */
void mo_store_set_on_device(mo_store *s, int32_t expert_id, bool on_device);

/* ---- Its reads (needs.c) ---- */

bool mo_read_landed(const mo_read *r);

/* Have all ended, and have all landed? */
bool mo_store_slot_ended(const mo_store_slot_reads *slot);
bool mo_store_slot_landed(const mo_store_slot_reads *slot);

/* Begins the reads of at most MO_STORE_AT_ONCE experts: every gate and up before any down. */
void mo_store_submit(mo_store *s, const int32_t *experts, int count);

/* MO_OK, or the failure of one of the expert's reads. */
mo_status mo_store_read_failure(const mo_store *s, int32_t expert_id, const mo_store_slot_reads *slot,
                                mo_error *err);

/* The expert's view of a matrix points at what was read. */
void mo_store_show(const mo_store *s, int32_t expert_id, int matrix, const mo_read *r);

/* Bytes that came from disk for the first time: formats that can hold nonsense are checked once. */
mo_status mo_store_check(mo_store *s, int32_t expert_id, mo_error *err);

/* Guesses that have landed may leave again; those that failed were none. */
void mo_store_settle_guesses(mo_store *s);

#endif
