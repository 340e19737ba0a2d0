#include "cluster/traffic.h"

#include <stdlib.h>
#include <string.h>

void mo_traffic_open(mo_traffic *t, mo_divide divide, int ranks)
{
    *t = (mo_traffic){.sum = {.ranks = ranks, .divide = divide}};
    pthread_mutex_init(&t->lock, NULL);
}

void mo_traffic_close(mo_traffic *t)
{
    pthread_mutex_destroy(&t->lock);
}

void mo_traffic_count(mo_traffic *t, const mo_traffic_step *s)
{
    const uint64_t messages_ns = s->wait_ns > s->work_ns ? s->wait_ns - s->work_ns : 0;
    pthread_mutex_lock(&t->lock);
    mo_traffic_report *r = &t->sum;
    t->recent_ns[r->steps % MO_TRAFFIC_RECENT] = messages_ns;
    r->least_ns = r->least_ns && r->least_ns < messages_ns ? r->least_ns : messages_ns;
    r->tokens += s->tokens;
    r->sent_bytes += s->sent_bytes;
    r->received_bytes += s->received_bytes;
    r->wait_ns += s->wait_ns;
    r->work_ns += s->work_ns;
    r->steps++;
    pthread_mutex_unlock(&t->lock);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void mo_traffic_read(mo_traffic *t, mo_traffic_report *out)
{
    uint64_t recent[MO_TRAFFIC_RECENT];
    pthread_mutex_lock(&t->lock);
    *out = t->sum;
    memcpy(recent, t->recent_ns, sizeof recent);
    pthread_mutex_unlock(&t->lock);
    const size_t count = out->steps < MO_TRAFFIC_RECENT ? (size_t)out->steps : MO_TRAFFIC_RECENT;
    qsort(recent, count, sizeof *recent, by_size);
    out->middle_ns = count ? recent[count / 2] : 0;
}
