#include "cli/print/traffic.h"

#include <stdio.h>

void cli_traffic_subtract(mo_traffic_report *of, const mo_traffic_report *earlier)
{
    of->steps -= earlier->steps;
    of->tokens -= earlier->tokens;
    of->sent_bytes -= earlier->sent_bytes;
    of->received_bytes -= earlier->received_bytes;
    of->wait_ns -= earlier->wait_ns;
    of->work_ns -= earlier->work_ns;
}

/* Clocks of several machines differ, so the difference of short waits may be negative. */
static double messages_us(const mo_traffic_report *t)
{
    return ((double)t->wait_ns - (double)t->work_ns) / (double)t->steps / 1e3;
}

static const char *way(const mo_traffic_report *t)
{
    return t->divide == MO_DIVIDE_EXPERTS ? "experts" : "layers";
}

void cli_traffic_print(const mo_traffic_report *t)
{
    if (t->ranks > 1 && t->steps) {
        const double steps = (double)t->steps;
        printf("ranks            %d: messages %.1f us per step (median %.1f, minimum "
               "%.1f), %.1f us in the other ranks' %s; %.0f bytes sent, %.0f received\n",
               t->ranks, messages_us(t), (double)t->middle_ns / 1e3, (double)t->least_ns / 1e3,
               (double)t->work_ns / steps / 1e3, way(t), (double)t->sent_bytes / steps,
               (double)t->received_bytes / steps);
    }
}

json_t *cli_traffic_json(const mo_traffic_report *t)
{
    return t->ranks < 2
               ? json_null()
               : json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ranks", t->ranks, "divide",
                           way(t), "steps", (json_int_t)t->steps, "sent_bytes", (json_int_t)t->sent_bytes,
                           "received_bytes", (json_int_t)t->received_bytes, "wait_ns", (json_int_t)t->wait_ns,
                           "work_ns", (json_int_t)t->work_ns, "least_ns", (json_int_t)t->least_ns,
                           "middle_ns", (json_int_t)t->middle_ns);
}
