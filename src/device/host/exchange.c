/* What device and host say to each other while a step runs: publications and replies in pinned memory. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "device/host/ops.h"

mo_status mo_op_host_publish(mo_op_job *job, const mo_op_publish *o)
{
    void *from[MO_OP_RANGES], *to[MO_OP_RANGES];
    for (int i = 0; i < o->ranges; i++) {
        from[i] = o->bytes[i] ? mo_op_part(job, "from", o->from[i], o->bytes[i]) : NULL;
        to[i] = o->bytes[i] ? mo_op_part(job, "to", o->to[i], o->bytes[i]) : NULL;
    }
    const uint32_t *sequence = mo_op_part(job, "sequence", o->sequence, 4);
    uint32_t *flag = mo_op_part(job, "flag", o->flag, 4);
    if (job->status != MO_OK) {
        return job->status;
    }
    for (int i = 0; i < o->ranges; i++) {
        if (o->bytes[i]) {
            memcpy(to[i], from[i], (size_t)o->bytes[i]);
        }
    }
    __atomic_store_n(flag, *sequence, __ATOMIC_RELEASE);
    return MO_OK;
}

/* True when the host has answered; false when it will not. Looks often at first: answers mostly come soon. */
static bool answered(const mo_op_job *job, const mo_dreply *reply, uint32_t sequence, int64_t began,
                     int64_t limit_ns)
{
    enum { LOOKS = 200 };
    for (int64_t look = 0;; look++) {
        if (__atomic_load_n(&reply->flag, __ATOMIC_ACQUIRE) == sequence) {
            return true;
        }
        if (__atomic_load_n(&reply->abort, __ATOMIC_ACQUIRE) != 0 ||
            (job->host->stopped && job->host->stopped(job->host->user)) || mo_clock_ns() - began > limit_ns) {
            return false;
        }
        if (look < LOOKS) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
}

static void copy_rows(mo_op_job *job, const mo_op_await *o, const mo_dreply *reply)
{
    const int64_t n = o->n;
    const int64_t head = (int64_t)offsetof(mo_dreply, row);
    if (reply->count < 0 || reply->count > o->most) {
        mo_op_refuse(job, "received %d rows; the limit is %d", reply->count, o->most);
        return;
    }
    const mo_dreply *whole = mo_op_part(job, "reply", o->reply, head + reply->count * INT64_C(4));
    for (int i = 0; whole && i < reply->count; i++) {
        const int64_t row = whole->row[i];
        if (row < 0) {
            mo_op_refuse(job, "received row %lld, which does not exist", (long long)row);
            return;
        }
        const float *from = mo_op_floats(job, "from", o->from, (row + 1) * n);
        float *to = mo_op_floats(job, "to", o->to, (row + 1) * n);
        if (job->status != MO_OK) {
            return;
        }
        memcpy(to + row * n, from + row * n, sizeof(float) * (size_t)n);
    }
}

mo_status mo_op_host_await(mo_op_job *job, const mo_op_await *o, int64_t limit_ns)
{
    const mo_dreply *reply = mo_op_part(job, "reply", o->reply, (int64_t)offsetof(mo_dreply, row));
    const uint32_t *sequence = mo_op_part(job, "sequence", o->sequence, 4);
    uint32_t *bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    uint32_t *waited = mo_op_part_or_none(job, "waited", o->waited, 4);
    if (job->status != MO_OK) {
        return job->status;
    }
    const int64_t began = mo_clock_ns();
    const bool good = answered(job, reply, *sequence, began, limit_ns);
    if (waited) {
        const int64_t ns = mo_clock_ns() - began;
        *waited = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    }
    if (good) {
        copy_rows(job, o, reply);
    } else {
        mo_op_set_bad(bad, 2);
    }
    return job->status;
}
