/* Counters: see counters.h. */
#include "server/scheduler/counters.h"

static void add_histogram(srv_histogram *sum, const srv_histogram *h)
{
    for (int i = 0; i < SRV_BUCKETS; i++) {
        sum->buckets[i] += h->buckets[i];
    }
    sum->count += h->count;
    sum->sum += h->sum;
}

void srv_counters_add(srv_engine_report *sum, const srv_engine_report *r)
{
    sum->accepted += r->accepted;
    sum->done += r->done;
    sum->failed += r->failed;
    sum->cancelled += r->cancelled;
    sum->refused += r->refused;
    sum->steps += r->steps;
    sum->step_sequences += r->step_sequences;
    sum->prompt_tokens += r->prompt_tokens;
    sum->cached_tokens += r->cached_tokens;
    sum->predicted_tokens += r->predicted_tokens;
    sum->prompt_s += r->prompt_s;
    sum->predicted_s += r->predicted_s;
    sum->longest = r->longest > sum->longest ? r->longest : sum->longest;
    sum->disk_failures += r->disk_failures;
    add_histogram(&sum->first, &r->first);
    add_histogram(&sum->between, &r->between);
}
