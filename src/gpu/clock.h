/* Clock: the time of layers that need the host, by part. A small step is a series of laps, one per such
 * layer, from reply to reply:
 *
 *     reply ---- core ---- choice seen ---- turn, CPU's lane, waiting for copies ---- reply
 *                                      `---------------- region ----------------'
 *
 * The host records timestamps, and occasionally the times of a layer's parts on the device. The device
 * reports how long it waited for each reply, and a pair of events how long copies took. Timestamps are only
 * evaluated after a successful step, so taking one costs a store. Nothing is allocated after opening;
 * quantiles come from a fixed histogram. The thread that runs the step takes timestamps; any thread may
 * read. */
#ifndef MO_GPU_CLOCK_H
#define MO_GPU_CLOCK_H

#include "moraine_server.h"
#include "profile/tally.h"

typedef struct mo_gpu_clock mo_gpu_clock;

/* For a model with this many layers. */
mo_status mo_gpu_clock_open(int layers, mo_gpu_clock **out, mo_error *err);
void mo_gpu_clock_close(mo_gpu_clock *c); /* NULL is allowed */

/* ---- Timestamps: nanoseconds of one monotonic clock, in the order of a step ---- */

/* Begins a step. counts false: its layers are not counted, and timestamps only serve to compute the hidden
 * time. */
void mo_gpu_clock_begin(mo_gpu_clock *c, bool counts, int64_t now);
void mo_gpu_clock_launched(mo_gpu_clock *c, int64_t now); /* the device has its first work */
void mo_gpu_clock_seen(mo_gpu_clock *c, int layer, int64_t now);
void mo_gpu_clock_listed(mo_gpu_clock *c, int layer, int64_t now);   /* the experts are assigned */
void mo_gpu_clock_fetch(mo_gpu_clock *c, int layer, int64_t now);    /* copies begin */
void mo_gpu_clock_fetched(mo_gpu_clock *c, int layer, int64_t took); /* duration of the copies, once known */
/* How much of the copy time of a layer in this step was hidden by the CPU's lane; *total_ns: from the first
 * copy to the end of both. */
int64_t mo_gpu_clock_overlap(const mo_gpu_clock *c, int layer, int64_t *total_ns);
/* The CPU computed experts, or waited for the device after that; may be called several times per layer. */
void mo_gpu_clock_computed(mo_gpu_clock *c, int layer, int64_t from, int64_t to);
void mo_gpu_clock_waited(mo_gpu_clock *c, int layer, int64_t from, int64_t to);
/* device: the device also computes experts of the layer, `fetched` of which were copied. */
void mo_gpu_clock_replied(mo_gpu_clock *c, int layer, bool device, int fetched, int64_t now);
/* The CPU has computed whole layers, from this one on, and returned the stream: these layers have no
 * lanes. */
void mo_gpu_clock_hosted(mo_gpu_clock *c, int layer, int64_t now);
/* An expert assigned to the device was not computed there, or not in parallel with the CPU's work. */
void mo_gpu_clock_fall(mo_gpu_clock *c, int layer, mo_fallback why);

/* Times of a layer's parts on the device, from a step with marks (gpu/marks.h). They are used for later steps
 * until the next measurement. */
typedef struct mo_gpu_layer_parts {
    int64_t routing_ns, products_ns, merge_ns;
} mo_gpu_layer_parts;
void mo_gpu_clock_parts(mo_gpu_clock *c, int layer, const mo_gpu_layer_parts *parts);

/* Ends a step. waited_ns[layers]: time the device waited for replies, or 0. Adds the layer fields of the perf
 * schema to the tally (may be NULL): wall times of both lanes and the join wait; with `everything` also the
 * region, launches and fallbacks, the last measured routing and merge, and, in a step with marks, the parts
 * of layers that only the device computes. Adds the copy time, and the part that the CPU hid, to *fetch_ns
 * and *hidden_ns. */
void mo_gpu_clock_end(mo_gpu_clock *c, const uint32_t *waited_ns, mo_tally *tally, bool everything,
                      int64_t now, uint64_t *fetch_ns, uint64_t *hidden_ns);

/* ---- Reading ---- */

/* Adds one sum to another. */
void mo_gpu_clock_add(mo_device_layer *to, const mo_device_layer *sum);
/* Sums over counted successful steps since opening. */
void mo_gpu_clock_report(mo_gpu_clock *c, mo_device_report *out);
/* Sums by layer, ascending, of layers that were ever served. Returns their number; writes at most `limit`. */
int mo_gpu_clock_layers(mo_gpu_clock *c, mo_device_layer *out, int limit);

#endif
