/* Clock: where the time of a layer goes that needs the host. A small step is a row of laps, one for each
 * such layer, from reply to reply:
 *
 *     reply ---- core ---- choice seen ---- turn, CPU's lane, waiting for copies ---- reply
 *                                      `---------------- region ----------------'
 *
 * The host records timestamps, and occasionally the times of a layer's parts on the device; the device reports how long it waited for each reply, and a pair of events how long copies
 * took. Stamps are only looked at when the step has ended well, so taking one is a store. Nothing allocates after
 * opening; quantiles come from a fixed histogram. Stamps are taken by the thread
 * that runs the step; any thread may read. */
#ifndef MO_GPU_CLOCK_H
#define MO_GPU_CLOCK_H

#include "moraine_server.h"
#include "profile/tally.h"

typedef struct mo_gpu_clock mo_gpu_clock;

/* For a model of this many layers. */
mo_status mo_gpu_clock_open(int layers, mo_gpu_clock **out, mo_error *err);
void mo_gpu_clock_close(mo_gpu_clock *c); /* NULL is allowed */

/* ---- Stamps: nanoseconds of one monotonic clock, in the order of a step ---- */

/* A step begins. counts: false when nothing is wanted of its layers: the stamps then only say what was hidden. */
void mo_gpu_clock_begin(mo_gpu_clock *c, bool counts, int64_t now);
void mo_gpu_clock_launched(mo_gpu_clock *c, int64_t now); /* the device has its first work */
void mo_gpu_clock_seen(mo_gpu_clock *c, int layer, int64_t now);
void mo_gpu_clock_listed(mo_gpu_clock *c, int layer, int64_t now); /* who computes what is decided */
void mo_gpu_clock_fetch(mo_gpu_clock *c, int layer, int64_t now);  /* copies begin */
void mo_gpu_clock_fetched(mo_gpu_clock *c, int layer,
                          int64_t took); /* how long they took, when that is known */
/* Of the copies of a layer of this step, what the CPU's lane hid; *total_ns: from the first copy to the end of both. */
int64_t mo_gpu_clock_overlap(const mo_gpu_clock *c, int layer, int64_t *total_ns);
/* The CPU computed experts, or was done with that and waited for the device; several times in a layer is allowed. */
void mo_gpu_clock_computed(mo_gpu_clock *c, int layer, int64_t from, int64_t to);
void mo_gpu_clock_waited(mo_gpu_clock *c, int layer, int64_t from, int64_t to);
/* device: the device computes experts of the layer too, of which this many were fetched. */
void mo_gpu_clock_replied(mo_gpu_clock *c, int layer, bool device, int fetched, int64_t now);
/* The CPU has computed whole layers, from this one on, and handed the stream back: they have no lanes. */
void mo_gpu_clock_hosted(mo_gpu_clock *c, int layer, int64_t now);
/* An expert was meant for the device and was not computed there, or not in parallel with the CPU's work. */
void mo_gpu_clock_fall(mo_gpu_clock *c, int layer, mo_fallback why);

/* What parts of a layer took on the device, in a step that was asked to tell (gpu/marks.h). They stand for the steps after it too, until others come. */
typedef struct mo_gpu_layer_parts {
    int64_t routing_ns, products_ns, merge_ns;
} mo_gpu_layer_parts;
void mo_gpu_clock_parts(mo_gpu_clock *c, int layer, const mo_gpu_layer_parts *parts);

/* The step has ended: waited_ns[layers] is what the device waited for replies, 0 where it had not to. The layer fields of the perf schema go to the tally
 * (NULL: nowhere): walls of both lanes and the join wait; everything: also the region, launches and fallbacks, routing
 * and merge as last measured, and in a step with measured parts those of layers that only the device computes. What copies took and what
 * the CPU hid of that is added to *fetch_ns and *hidden_ns. */
void mo_gpu_clock_end(mo_gpu_clock *c, const uint32_t *waited_ns, mo_tally *tally, bool everything,
                      int64_t now, uint64_t *fetch_ns, uint64_t *hidden_ns);

/* ---- Reading ---- */

/* Adds one sum to another. */
void mo_gpu_clock_add(mo_device_layer *to, const mo_device_layer *sum);
/* Sums since opening of steps that ended well and were counted. */
void mo_gpu_clock_report(mo_gpu_clock *c, mo_device_report *out);
/* Those of layers that were ever served, ascending; returns how many there are, at most `limit` are written. */
int mo_gpu_clock_layers(mo_gpu_clock *c, mo_device_layer *out, int limit);

#endif
