/* The state of a store, private to its files: the slots of each size class with their memory, and the reads
 * that fill them. A slot has one span for each matrix of its expert. A span begins on a page. The bytes begin
 * inside it at the same page offset as in the file, so that a direct read lands where it is used. */
#ifndef MO_EXPERTS_STATE_H
#define MO_EXPERTS_STATE_H

#include "experts/slots.h"
#include "experts/store.h"

/* Matrices of an expert. */
enum { MO_STORE_MATRICES = 3 }; /* maximum per expert */

/* Maximum experts per submission. */
enum { MO_STORE_AT_ONCE = 64 };

/* How an expert came into its slot; mo_slots does not know this. */
enum {
    MO_GUESS_NONE,
    MO_GUESS_UNDER_WAY,
    MO_GUESS_LANDED,
    MO_GUESS_FILLING, /* in flight, but not predicted: prefetched at the start, or skipped */
    MO_GUESS_LAYER,   /* in flight with the whole next layer; counted as read for the pass */
    MO_GUESS_LAYER_LANDED
};

typedef struct mo_store_slot_reads {
    mo_read reads[MO_STORE_MATRICES];
    int count; /* number of reads: gate if present, up, and down last */
    uint8_t guess;
    uint8_t distances; /* of an unused prediction: bit r is set if distance r predicted it */
} mo_store_slot_reads;

typedef struct mo_store_class {
    mo_slots *slots;
    mo_store_slot_reads *slot; /* [slot_count] */
    int32_t slot_count;
    uint8_t *memory;
    size_t memory_bytes;
    int64_t slot_bytes;
    int32_t lent;             /* pinned for a copy to a device */
    int32_t on_device;        /* experts that a device is known to have */
    const int32_t *expert_id; /* index in the class -> expert */
} mo_store_class;

struct mo_store {
    const mo_expert_table *experts;
    const char *path; /* path of the model */
    const mo_policy *policy;
    bool static_set;
    mo_disk *disk;
    mo_store_class classes[MO_EXPERT_CLASSES];
    int class_count;
    bool *checked;   /* [experts] their bytes were validated, or need no validation */
    bool *on_device; /* [experts] a device is known to have it, so prefetching it is useless */
    uint64_t now;    /* steps */
    mo_store_phase phase;

    mo_need *needs; /* needs of the current layer */
    int need_count;
    int32_t *guesses; /* experts with predicted reads in flight */
    int guess_count, guess_limit;
    int32_t near[MO_EXPERTS_MAX]; /* experts of the last prediction with distance 1, and their layer */
    int near_layer, near_count;
    mo_store_counters counters;
};

/* ---- An expert's slot (needs.c) ---- */

mo_store_class *mo_store_class_of(const mo_store *s, int32_t expert_id);
int32_t mo_store_slot_number(const mo_store *s, int32_t expert_id); /* -1: it has no slot */
mo_store_slot_reads *mo_store_slot_of(const mo_store *s, int32_t expert_id);
void mo_store_pin(mo_store *s, int32_t expert_id);
void mo_store_unpin(mo_store *s, int32_t expert_id);

/* Gives the expert a slot, pinned, and prepares its reads. False: all slots are in use. */
bool mo_store_acquire(mo_store *s, int32_t expert_id, mo_urgency urgency);
/* Removes the expert from its slot, and clears its views. */
void mo_store_drop(mo_store *s, int32_t expert_id);
/* Records whether a device has the expert. */
void mo_store_set_on_device(mo_store *s, int32_t expert_id, bool on_device);

/* ---- Its reads (needs.c) ---- */

bool mo_read_landed(const mo_read *r);

/* True if all reads have ended; if all have landed. */
bool mo_store_slot_ended(const mo_store_slot_reads *slot);
bool mo_store_slot_landed(const mo_store_slot_reads *slot);

/* Begins the reads of at most MO_STORE_AT_ONCE experts: all gates and ups before any down. */
void mo_store_submit(mo_store *s, const int32_t *experts, int count);

/* MO_OK, or the error of one of the expert's reads. */
mo_status mo_store_read_failure(const mo_store *s, int32_t expert_id, const mo_store_slot_reads *slot,
                                mo_error *err);

/* Points the expert's view of a matrix at the bytes read. */
void mo_store_show(const mo_store *s, int32_t expert_id, int matrix, const mo_read *r);

/* Validates bytes on their first read from disk, for formats that can hold invalid values. */
mo_status mo_store_check(mo_store *s, int32_t expert_id, mo_error *err);

/* Unpins predicted experts that have landed, and forgets predictions whose reads failed. */
void mo_store_settle_guesses(mo_store *s);

#endif
