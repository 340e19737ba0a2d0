/* Card: a model on a device. The output matrix and the core of as many layers as fit lie in its memory, so do the states of
 * sessions that sit on it and as many experts as its slots hold. Other layers pass through or are computed by the CPU,
 * other experts are computed by the CPU or fetched while it works. Whatever lies where, the bits are the same.
 *
 * RAM keeps everything it would hold without a device: a device that is lost costs speed and the states on it, which
 * are made again from the tokens. */
#ifndef MO_ENGINE_CARD_H
#define MO_ENGINE_CARD_H

#include "base/pool.h"
#include "device/device.h"
#include "engine/hot_set.h"
#include "engine/postfetch.h"
#include "engine/tiers.h"
#include "engine/walk.h"
#include "model/load.h"
#include "store/exchange.h"
#include "store/tally.h"
#include "store/vram.h"

typedef struct mo_card mo_card;

typedef struct mo_card_options {
    mo_device *device;       /* kept and used, not owned */
    int64_t batch, context;  /* of the engine */
    mo_kv_type kv;           /* of sessions */
    int64_t vram_bytes;      /* hard ceiling for everything the card takes; 0: what is free, less a reserve */
    bool cpu_moe;            /* no expert stays on the device, but for the hot cache */
    const mo_policy *policy; /* of the slots; NULL: the default */
    mo_tiers *tiers; /* what does not lie in RAM for good; kept and used, not owned. NULL: everything does */
    /* The cache of document 001 has the slots; NULL or without a file: the policy does. Read while opening. */
    const mo_hot_request *hot;
    const mo_store_wish
        *wishes; /* fill the slots first, in this order, where the policy has them; likewise */
    int32_t wish_count;
    bool serial;                      /* lanes run one after the other, for comparison */
    const mo_postfetch *postfetch;    /* NULL: off */
    double cpu_bytes_s, link_bytes_s; /* first guess of the lanes' rates; 0: defaults */
    double round_trip_s;              /* as probed, for reports; 0: not known */
    mo_progress_fn progress;
    void *user;
    /* Room for experts that pass through (0: a sixteenth of the ceiling, at most 1 GiB), and whole pages of the weights
     * that are pinned at once (0: 1 GiB). */
    int64_t stage_bytes;
    size_t pin_bytes;
} mo_card_options;

/* Uploads the core, as far as it fits (the other layers will pass through a ring), and takes the slots; fills them with the
 * hot cache's experts, or with those that are in RAM, as far as they go: first the wishes, then by number. MO_ENOMEM says
 * how much the device would have to have. */
mo_status mo_card_open(const mo_checkpoint *model, const mo_card_options *options, mo_card **out,
                       mo_error *err);
void mo_card_close(mo_card *card); /* no session sits on it any more; NULL is allowed */

/* Bytes of device memory that a card of this model takes, without slots and states: for plans. */
typedef struct mo_card_needs {
    int64_t core;       /* matrices, vectors, output */
    int64_t work;       /* activations, flags, logits */
    int64_t stage_room; /* of an expert that passes through, as it lies in RAM and in the file */
    int64_t map;        /* of the table of experts */
    int64_t seat;       /* of a session, beside its state */
} mo_card_needs;
mo_card_needs mo_card_measure(const mo_frame *frame, int64_t batch, int64_t context);

/* The step of walk->slices, all of whose states sit on the card. The caller holds the engine's lock; tokens are placed
 * and embedded in the workspace. MO_EDEVICE: the card is lost. */
mo_status mo_card_step(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err);

/* ---- Seats: the state of a session on the card ---- */

mo_status mo_seat_take(mo_card *card, mo_state *state, mo_error *err);
void mo_seat_leave(mo_state *state); /* one that has none is allowed */
/* The session's row of logits (page-aligned, `bytes` a multiple of a page) may be written by the device directly. */
void mo_seat_adopt(mo_state *state, float *logits, size_t bytes);
/* Between the state's own memory and its seat; nothing where there is none. */
mo_status mo_seat_pull(const mo_state *state, mo_error *err);
mo_status mo_seat_push(mo_state *state, mo_error *err);

/* ---- The cache of document 001 (card_exchange.c) ----
 * The caller holds the engine's lock, and no step runs. */

bool mo_card_has_slots(const mo_card *card);

/* Exchanges experts in slots for those of their layers that the profile ranks higher, at most the rate's share of them,
 * and waits until they are there. The next update looks at what is counted from now on (tally may be NULL). A copy that
 * fails ends it and loses nothing: *stats tells what was done. */
mo_status mo_card_apply(mo_card *card, const mo_profile *profile, const mo_weighting_options *weighting,
                        double rate, const mo_tally *tally, mo_exchange_stats *stats, mo_error *err);

/* A request has ended: a hot cache with a rate plans its exchanges, and the copies begin. */
mo_status mo_card_request_done(mo_card *card, const mo_tally *tally, mo_error *err);

/* ---- Instruments ---- */

/* Fills everything but name and lost. */
void mo_card_report(const mo_card *card, mo_device_report *out);
/* As mo_model_device_layers(). */
int mo_card_report_layers(const mo_card *card, mo_device_layer *out, int room);

#endif
