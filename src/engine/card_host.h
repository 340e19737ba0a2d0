/* Layers of a model on a device that the CPU computes: of those that do not fit there, as many as make CPU and link end
 * together. In steps of few tokens the stream of hidden rows comes to the host, passes through them and goes back; in a
 * batch, where the device is far ahead, they cross the link like the others. Their part of a session's state moves
 * between the two when the kind of step changes. Private to the card's files. */
#ifndef MO_ENGINE_CARD_HOST_H
#define MO_ENGINE_CARD_HOST_H

#include "engine/card.h"

struct mo_card_plan;

typedef struct mo_card_host {
    int count;
    bool *layers; /* [layers of the model] */
} mo_card_host;

/* Decides how many of the `count` layers that do not fit, `candidates` of which lie in RAM, the CPU computes. */
int mo_card_host_share(const mo_card *card, int count, int candidates, int64_t layer_bytes);

/* Before a step: the states of its sessions are where it computes. */
mo_status mo_card_host_bring(mo_card *card, const mo_walk *walk, bool few, mo_error *err);
/* The same for one state: to the device. */
mo_status mo_card_host_return(mo_card *card, const mo_state *state, mo_error *err);

/* Ops: the stream goes to the host before layer `from`; it comes back before layer `to`, and is normed for it. */
void mo_card_hand_over(struct mo_card_plan *p, int from);
void mo_card_take_back(struct mo_card_plan *p, int from, int to);

/* Waits for the stream before layer `from`. */
mo_status mo_card_host_meet(mo_card *card, mo_walk *walk, int from, mo_error *err);
/* Computes layers from .. to - 1 and lets the device go on. */
mo_status mo_card_host_run(mo_card *card, mo_walk *walk, int from, int to, mo_error *err);

#endif
