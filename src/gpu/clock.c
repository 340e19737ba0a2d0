#include "gpu/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Histogram -------------------------------------------------------------------------------- */

/* Buckets are 2 % wide, from 100 ns to a minute: quantiles are exact within 1 %. */
enum { BUCKETS = 1024 };
#define FIRST_NS 100.0
#define WIDTH    1.02

static int bucket_of(int64_t ns)
{
    const double at = ns > FIRST_NS ? log((double)ns / FIRST_NS) / log(WIDTH) : 0.0;
    return at < BUCKETS - 1 ? (int)at : BUCKETS - 1;
}

/* The time below which this share of `count` laps is: the middle of its bucket, in seconds. */
static double quantile(const uint64_t *buckets, uint64_t count, double share)
{
    const uint64_t rank = (uint64_t)ceil(share * (double)count);
    uint64_t below = 0;
    for (int i = 0; count > 0 && i < BUCKETS; i++) {
        below += buckets[i];
        if (below >= rank) {
            return FIRST_NS * pow(WIDTH, i + 0.5) * 1e-9;
        }
    }
    return 0.0;
}

/* ---- The clock -------------------------------------------------------------------------------- */

/* One layer of the running step. */
typedef struct lap {
    int64_t seen, replied; /* replied 0: not served */
    int64_t listed;
    int64_t hosted; /* 0: computed by the device */
    int64_t cpu_from, cpu_to, cpu_ns, wait_ns;
    int64_t fetch_at, fetch_ns;
    uint64_t fallbacks[MO_FALLBACKS];
    uint64_t fetched; /* experts */
    bool device;
    bool told; /* its parts were measured */
} lap;

struct mo_gpu_clock {
    int layers;
    bool counts;
    int64_t began, launched;
    lap *laps;                 /* [layers] */
    mo_gpu_layer_parts *parts; /* [layers], as last measured */
    /* protects the following members: a step adds to them at its end, reports read them at any time */
    pthread_mutex_t lock;
    uint64_t step_ns, idle_ns;
    mo_device_layer *sums; /* [layers] */
    uint64_t buckets[BUCKETS];
};

mo_status mo_gpu_clock_open(int layers, mo_gpu_clock **out, mo_error *err)
{
    mo_gpu_clock *c = calloc(1, sizeof *c);
    *out = c;
    if (c) {
        c->layers = layers;
        c->laps = calloc((size_t)layers + 1, sizeof *c->laps);
        c->parts = calloc((size_t)layers + 1, sizeof *c->parts);
        c->sums = calloc((size_t)layers + 1, sizeof *c->sums);
    }
    if (!c || !c->laps || !c->parts || !c->sums) {
        mo_gpu_clock_close(c);
        *out = NULL;
        return mo_fail(err, MO_ENOMEM, "out of memory for the clocks of %d layers; free some and try again",
                       layers);
    }
    for (int i = 0; i < layers; i++) {
        c->sums[i].layer = i;
    }
    pthread_mutex_init(&c->lock, NULL);
    return MO_OK;
}

void mo_gpu_clock_close(mo_gpu_clock *c)
{
    if (c) {
        free(c->laps);
        free(c->parts);
        free(c->sums);
        free(c);
    }
}

/* ---- Timestamps --------------------------------------------------------------------------------- */

void mo_gpu_clock_begin(mo_gpu_clock *c, bool counts, int64_t now)
{
    memset(c->laps, 0, sizeof *c->laps * (size_t)c->layers);
    c->counts = counts;
    c->began = c->launched = now;
}

void mo_gpu_clock_launched(mo_gpu_clock *c, int64_t now)
{
    c->launched = now;
}

void mo_gpu_clock_seen(mo_gpu_clock *c, int layer, int64_t now)
{
    c->laps[layer].seen = now;
}

void mo_gpu_clock_listed(mo_gpu_clock *c, int layer, int64_t now)
{
    c->laps[layer].listed = now;
}

void mo_gpu_clock_fetch(mo_gpu_clock *c, int layer, int64_t now)
{
    c->laps[layer].fetch_at = now;
}

void mo_gpu_clock_fetched(mo_gpu_clock *c, int layer, int64_t took)
{
    c->laps[layer].fetch_ns = took > 0 ? took : 0;
}

void mo_gpu_clock_computed(mo_gpu_clock *c, int layer, int64_t from, int64_t to)
{
    lap *l = &c->laps[layer];
    l->cpu_from = l->cpu_ns > 0 ? l->cpu_from : from;
    l->cpu_to = to;
    l->cpu_ns += to - from;
}

void mo_gpu_clock_waited(mo_gpu_clock *c, int layer, int64_t from, int64_t to)
{
    c->laps[layer].wait_ns += to - from;
}

void mo_gpu_clock_replied(mo_gpu_clock *c, int layer, bool device, int fetched, int64_t now)
{
    c->laps[layer].fetched = (uint64_t)fetched;
    c->laps[layer].device = device;
    c->laps[layer].replied = now;
}

void mo_gpu_clock_hosted(mo_gpu_clock *c, int layer, int64_t now)
{
    c->laps[layer].hosted = now;
}

void mo_gpu_clock_fall(mo_gpu_clock *c, int layer, mo_fallback why)
{
    c->laps[layer].fallbacks[why]++;
}

void mo_gpu_clock_parts(mo_gpu_clock *c, int layer, const mo_gpu_layer_parts *parts)
{
    c->laps[layer].told = true;
    c->parts[layer] = *parts;
}

/* ---- The end of a step ------------------------------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static uint64_t positive(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

/* Copies overlap with the CPU's lane from the later start to the earlier end. */
static int64_t hidden_of(const lap *l)
{
    const int64_t from = l->fetch_at > l->cpu_from ? l->fetch_at : l->cpu_from;
    const int64_t to = smaller(l->fetch_at + l->fetch_ns, l->cpu_to);
    return to > from ? smaller(to - from, l->cpu_ns) : 0;
}

/* Time in which the device only waited for the CPU, without the host's own waits for the device. */
static int64_t join_of(const lap *l, int64_t waited)
{
    const int64_t join = smaller(waited, l->replied - l->seen) - l->wait_ns;
    return join > 0 ? join : 0;
}

/* The host's work other than computing and waiting: assignments, and rows from and to the device. */
static uint64_t turn_of(const lap *l)
{
    return positive(l->replied - l->seen - l->cpu_ns - l->wait_ns);
}

int64_t mo_gpu_clock_overlap(const mo_gpu_clock *c, int layer, int64_t *total_ns)
{
    const lap *l = &c->laps[layer];
    const int64_t copied = l->fetch_at + l->fetch_ns, end = l->cpu_to > copied ? l->cpu_to : copied;
    *total_ns = end - l->fetch_at;
    return hidden_of(l);
}

static void add_lap(mo_device_layer *to, const lap *l, int64_t before, int64_t waited)
{
    const int64_t region = l->replied - l->seen;
    to->served++;
    to->fetched += l->fetched;
    to->core_ns += positive(l->seen - before);
    to->region_ns += positive(region);
    to->turn_ns += turn_of(l);
    to->cpu_ns += positive(l->cpu_ns);
    to->host_wait_ns += positive(l->wait_ns);
    to->device_wait_ns += (uint64_t)join_of(l, waited);
    to->fetch_ns += positive(l->fetch_ns);
    to->hidden_ns += positive(hidden_of(l));
    for (int i = 0; i < MO_FALLBACKS; i++) {
        to->fallbacks[i] += l->fallbacks[i];
    }
}

/* The device's lane (resident and fetched experts) ended when it began to wait for the reply. The CPU's lane
 * is the cold one. */
static void tell(mo_tally_layer *to, const lap *l, const mo_gpu_layer_parts *parts, int64_t waited,
                 bool everything)
{
    const uint64_t region = positive(l->replied - l->seen), join = (uint64_t)join_of(l, waited);
    uint64_t time_ns[MO_TIMES] = {[MO_TIME_HOT] = l->device ? region - join : 0,
                                  [MO_TIME_COLD] = positive(l->cpu_ns),
                                  [MO_TIME_JOIN] = join};
    if (everything) {
        time_ns[MO_TIME_ROUTING] = positive(parts->routing_ns);
        time_ns[MO_TIME_MERGE] = positive(parts->merge_ns);
        time_ns[MO_TIME_REGION] = region;
        time_ns[MO_TIME_MOE] = region + time_ns[MO_TIME_ROUTING] + time_ns[MO_TIME_MERGE];
        time_ns[MO_TIME_WORKLIST] = positive(l->listed - l->seen);
        time_ns[MO_TIME_GATHER] = positive((int64_t)turn_of(l) - (int64_t)time_ns[MO_TIME_WORKLIST]);
        if (l->device) { /* the device's part */
            time_ns[MO_TIME_HOT_PRODUCTS] = time_ns[MO_TIME_HOT_BRANCH] = positive(parts->products_ns);
        }
        if (l->cpu_ns > 0) {
            time_ns[MO_TIME_COLD_PRODUCTS] = positive(l->cpu_ns);
            time_ns[MO_TIME_COLD_GATHER] = time_ns[MO_TIME_GATHER];
            time_ns[MO_TIME_COLD_BRANCH] = positive(l->replied - l->seen - l->wait_ns);
        }
        time_ns[MO_TIME_PRODUCTS] = time_ns[MO_TIME_HOT_PRODUCTS] + time_ns[MO_TIME_COLD_PRODUCTS];
        mo_tally_lanes(to, l->device, l->cpu_ns > 0, l->fallbacks);
    }
    mo_tally_time(to, time_ns);
}

/* For a layer that only the device computes. */
static void tell_alone(mo_tally_layer *to, const mo_gpu_layer_parts *parts)
{
    const uint64_t none[MO_FALLBACKS] = {0}, routing = positive(parts->routing_ns),
                   products = positive(parts->products_ns), merge = positive(parts->merge_ns);
    mo_tally_lanes(to, true, false, none);
    mo_tally_time(to, (const uint64_t[MO_TIMES]){[MO_TIME_MOE] = routing + products + merge,
                                                 [MO_TIME_ROUTING] = routing,
                                                 [MO_TIME_HOT] = products,
                                                 [MO_TIME_REGION] = products,
                                                 [MO_TIME_PRODUCTS] = products,
                                                 [MO_TIME_HOT_BRANCH] = products,
                                                 [MO_TIME_HOT_PRODUCTS] = products,
                                                 [MO_TIME_MERGE] = merge});
}

void mo_gpu_clock_end(mo_gpu_clock *c, const uint32_t *waited_ns, mo_tally *tally, bool everything,
                      int64_t now, uint64_t *fetch_ns, uint64_t *hidden_ns)
{
    int64_t before = c->launched;
    uint64_t idle = positive(c->launched - c->began);
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->layers; i++) {
        const lap *l = &c->laps[i];
        idle += waited_ns[i];
        before = l->hosted ? l->hosted : before;
        mo_tally_layer *counts = tally && c->counts ? mo_tally_find(tally, i) : NULL;
        if (!l->replied) {
            if (counts && everything && l->told) {
                tell_alone(counts, &c->parts[i]);
            }
            continue;
        }
        *fetch_ns += positive(l->fetch_ns);
        *hidden_ns += positive(hidden_of(l));
        if (c->counts) {
            add_lap(&c->sums[i], l, before, waited_ns[i]);
            c->buckets[bucket_of(l->replied - before)]++;
        }
        if (counts) {
            tell(counts, l, &c->parts[i], waited_ns[i], everything);
        }
        before = l->replied;
    }
    if (c->counts) {
        c->step_ns += positive(now - c->began);
        c->idle_ns += idle;
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- Reading ---------------------------------------------------------------------------------- */

void mo_gpu_clock_add(mo_device_layer *to, const mo_device_layer *l)
{
    to->served += l->served;
    to->fetched += l->fetched;
    to->core_ns += l->core_ns;
    to->turn_ns += l->turn_ns;
    to->cpu_ns += l->cpu_ns;
    to->fetch_ns += l->fetch_ns;
    to->hidden_ns += l->hidden_ns;
    to->host_wait_ns += l->host_wait_ns;
    to->device_wait_ns += l->device_wait_ns;
    to->region_ns += l->region_ns;
    for (int i = 0; i < MO_FALLBACKS; i++) {
        to->fallbacks[i] += l->fallbacks[i];
    }
}

void mo_gpu_clock_report(mo_gpu_clock *c, mo_device_report *out)
{
    pthread_mutex_lock(&c->lock);
    out->step_ns = c->step_ns;
    out->idle_ns = c->idle_ns;
    out->lanes = (mo_device_layer){.layer = -1};
    for (int i = 0; i < c->layers; i++) {
        mo_gpu_clock_add(&out->lanes, &c->sums[i]);
    }
    out->layer_p50_s = quantile(c->buckets, out->lanes.served, 0.50);
    out->layer_p99_s = quantile(c->buckets, out->lanes.served, 0.99);
    pthread_mutex_unlock(&c->lock);
}

int mo_gpu_clock_layers(mo_gpu_clock *c, mo_device_layer *out, int limit)
{
    int count = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->layers; i++) {
        if (c->sums[i].served > 0) {
            if (count < limit) {
                out[count] = c->sums[i];
            }
            count++;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return count;
}
