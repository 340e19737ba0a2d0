#include "cli/print/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/print/measured.h"

bool cli_lanes_read(const char *command, mo_model *model, cli_lanes *out)
{
    *out = (cli_lanes){.count = mo_model_device_layers(model, NULL, sizeof *out->layers, 0)};
    mo_model_device(model, &out->device, sizeof out->device);
    if (out->count > 0) {
        out->layers = calloc((size_t)out->count, sizeof *out->layers);
        if (!out->layers) {
            fprintf(stderr, "moraine %s: out of memory for the times of %d layers\n", command, out->count);
            return false;
        }
        mo_model_device_layers(model, out->layers, sizeof *out->layers, out->count);
    }
    return true;
}

void cli_lanes_drop(cli_lanes *l)
{
    free(l->layers);
    *l = (cli_lanes){0};
}

/* ---- Figures ---------------------------------------------------------------------------------- */

/* The parts of a pass through a layer, in microseconds. The device's part of a round trip is known only from
   probing; the host counts it as part of the core. */
enum { LAYER, CORE, TRIP, CPU, COPY_WAIT, FETCH, HIDDEN, DEVICE_WAIT, FIGURES };
static const char *const keys[FIGURES] = {"layer_us",     "core_us",       "round_trip_us", "cpu_lane_us",
                                          "copy_wait_us", "fetch_lane_us", "hidden_us",     "device_wait_us"};

static double figure(const mo_device_report *r, const mo_device_layer *l, int which)
{
    const double pass = l->served ? 1e-3 / (double)l->served : 0.0;
    const double core = (double)l->core_ns * pass, probed = r->round_trip_s * 1e6;
    const double trip = probed < core ? probed : core;
    switch (which) {
    case LAYER: return core + (double)l->region_ns * pass;
    case CORE: return core - trip;
    case TRIP: return (double)l->turn_ns * pass + trip;
    case CPU: return (double)l->cpu_ns * pass;
    case COPY_WAIT: return (double)l->host_wait_ns * pass;
    case FETCH: return (double)l->fetch_ns * pass;
    case HIDDEN: return (double)l->hidden_ns * pass;
    default: return (double)l->device_wait_ns * pass;
    }
}

/* The median of each value over the layers, and the slowest layer. */
typedef struct summary {
    double median[FIGURES];
    const mo_device_layer *slowest;
} summary;

static bool summarize(const cli_lanes *l, summary *out)
{
    double *values = calloc((size_t)l->count, sizeof *values);
    if (!values) {
        return false;
    }
    for (int f = 0; f < FIGURES; f++) {
        for (int i = 0; i < l->count; i++) {
            values[i] = figure(&l->device, &l->layers[i], f);
        }
        out->median[f] = cli_quantile(values, l->count, 0.5);
    }
    out->slowest = &l->layers[0];
    for (int i = 1; i < l->count; i++) {
        if (figure(&l->device, &l->layers[i], LAYER) > figure(&l->device, out->slowest, LAYER)) {
            out->slowest = &l->layers[i];
        }
    }
    free(values);
    return true;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

static double busy(const mo_device_report *r)
{
    return r->step_ns > r->idle_ns ? 1.0 - share(r->idle_ns, r->step_ns) : 0.0;
}

/* The number of experts that the CPU computed instead of copying them, including unpinned copies. */
static uint64_t fell_back(const mo_device_layer *l)
{
    uint64_t all = 0;
    for (int i = 0; i < MO_FALLBACKS; i++) {
        all += i == MO_FALLBACK_UNPINNED ? 0 : l->fallbacks[i];
    }
    return all;
}

/* ---- Telling ---------------------------------------------------------------------------------- */

static void print_fallbacks(const mo_device_layer *all)
{
    const uint64_t fell = fell_back(all);
    const char *between = ":";
    if (all->fetched + fell == 0) {
        return;
    }
    printf("  fallbacks      %.2f %% of %" PRIu64 " experts scheduled for copying",
           100.0 * share(fell, all->fetched + fell), all->fetched + fell);
    for (int i = 0; i < MO_FALLBACKS; i++) {
        if (all->fallbacks[i]) {
            printf("%s %s %" PRIu64, between, mo_fallback_text((mo_fallback)i), all->fallbacks[i]);
            between = ",";
        }
    }
    printf("\n");
}

static void print_row(const char *name, const double *figures)
{
    printf("    %-13s", name);
    for (int f = 0; f < FIGURES; f++) {
        printf("%10.1f", figures[f]);
    }
    printf("\n");
}

void cli_lanes_print(const cli_lanes *l)
{
    const mo_device_report *r = &l->device;
    summary s;
    char name[32];
    double worst[FIGURES];
    if (l->count == 0 || !summarize(l, &s)) {
        return;
    }
    for (int f = 0; f < FIGURES; f++) {
        worst[f] = figure(r, s.slowest, f);
    }
    printf("  layers, us %16s%10s%10s%10s%10s%10s%10s%10s\n", "wall", "core", "trip", "CPU", "copy wait",
           "copies", "overlap", "GPU wait");
    snprintf(name, sizeof name, "median of %d", l->count);
    print_row(name, s.median);
    snprintf(name, sizeof name, "layer %d", (int)s.slowest->layer);
    print_row(name, worst);
    printf("    p50 %.1f, p99 %.1f; GPU busy %.0f %%; %.0f %% of the copies overlap CPU work%s\n",
           r->layer_p50_s * 1e6, r->layer_p99_s * 1e6, 100.0 * busy(r),
           100.0 * share(r->lanes.hidden_ns, r->lanes.fetch_ns),
           r->round_trip_s > 0.0 ? "" : "; trip: host part only, the device part was not probed");
    print_fallbacks(&r->lanes);
}

static json_t *fallbacks_json(const mo_device_layer *all)
{
    json_t *object = json_object();
    for (int i = 0; i < MO_FALLBACK_OTHER; i++) {
        json_object_set_new(object, mo_fallback_text((mo_fallback)i),
                            json_integer((json_int_t)all->fallbacks[i]));
    }
    return object;
}

/* Rows without names, so that searching for a value's name finds the summary. */
static json_t *each_json(const cli_lanes *l)
{
    json_t *list = json_array(), *columns = json_array();
    json_array_append_new(columns, json_string("layer"));
    json_array_append_new(columns, json_string("passes"));
    for (int f = 0; f < FIGURES; f++) {
        json_array_append_new(columns, json_string(keys[f]));
    }
    json_array_append_new(list, columns);
    for (int i = 0; i < l->count; i++) {
        json_t *row = json_pack("[iI]", (int)l->layers[i].layer, (json_int_t)l->layers[i].served);
        for (int f = 0; f < FIGURES; f++) {
            json_array_append_new(row, json_real(figure(&l->device, &l->layers[i], f)));
        }
        json_array_append_new(list, row);
    }
    return list;
}

json_t *cli_lanes_json(const cli_lanes *l)
{
    const mo_device_report *r = &l->device;
    const uint64_t fell = fell_back(&r->lanes);
    summary s;
    if (l->count == 0 || !summarize(l, &s)) {
        return json_null();
    }
    json_t *root =
        json_pack("{s:i,s:I,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o}", "layers", l->count, "passes",
                  (json_int_t)r->lanes.served, "slowest_layer", (int)s.slowest->layer, "layer_p50_us",
                  r->layer_p50_s * 1e6, "layer_p99_us", r->layer_p99_s * 1e6, "gpu_busy", busy(r), "overlap",
                  share(r->lanes.hidden_ns, r->lanes.fetch_ns), "fallback_rate",
                  share(fell, r->lanes.fetched + fell), "probed_trip_us", r->round_trip_s * 1e6, "fallbacks",
                  fallbacks_json(&r->lanes), "each", each_json(l));
    for (int f = 0; f < FIGURES; f++) {
        json_object_set_new(root, keys[f], json_real(s.median[f]));
    }
    return root;
}
