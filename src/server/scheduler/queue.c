#include "server/scheduler/queue.h"

#include <stddef.h>

enum {
    SHORT_PROMPT = 256, /* tokens of a prompt that may overtake one of LONG_PROMPT */
    LONG_PROMPT = 1024,
    OVERTAKEN_MAX = 4,
    SERVED = sizeof((srv_queue *)0)->served / sizeof((srv_queue *)0)->served[0],
};

void srv_queue_add(srv_queue *q, srv_task *task)
{
    task->next = NULL;
    if (q->last) {
        q->last->next = task;
    } else {
        q->first = task;
    }
    q->last = task;
    q->count++;
}

bool srv_queue_remove(srv_queue *q, srv_task *task)
{
    srv_task *before = NULL;
    for (srv_task *t = q->first; t; before = t, t = t->next) {
        if (t != task) {
            continue;
        }
        if (before) {
            before->next = t->next;
        } else {
            q->first = t->next;
        }
        if (q->last == t) {
            q->last = before;
        }
        t->next = NULL;
        q->count--;
        return true;
    }
    return false;
}

/* The turn that the task's client had last; 0: none that is remembered. */
static uint64_t last_turn(const srv_queue *q, const srv_task *task)
{
    for (int i = 0; task->client && i < SERVED; i++) {
        if (q->served[i].client == task->client) {
            return q->served[i].turn;
        }
    }
    return 0;
}

/* In the place of the client itself, or of the one served longest ago. */
static void note_turn(srv_queue *q, const srv_task *task)
{
    int entry = 0;
    q->turns++;
    if (!task->client) {
        return;
    }
    for (int i = 0; i < SERVED; i++) {
        if (q->served[i].client == task->client) {
            entry = i;
            break;
        }
        if (q->served[i].turn < q->served[entry].turn) {
            entry = i;
        }
    }
    q->served[entry].client = task->client;
    q->served[entry].turn = q->turns;
}

/* Is it a's turn before b's, which came earlier? */
static bool precedes(const srv_queue *q, const srv_task *a, const srv_task *b)
{
    if (a->priority != b->priority) {
        return a->priority > b->priority;
    }
    return last_turn(q, a) < last_turn(q, b);
}

static bool overtakes(const srv_task *a, const srv_task *b)
{
    return a->priority == b->priority && a->prompt <= SHORT_PROMPT && b->prompt >= LONG_PROMPT &&
           b->overtaken < OVERTAKEN_MAX;
}

srv_task *srv_queue_take(srv_queue *q, bool (*may)(void *user, srv_task *task), void *user)
{
    srv_task *best = NULL, *quick = NULL;
    for (srv_task *t = q->first; t; t = t->next) {
        if ((!best || precedes(q, t, best)) && may(user, t)) {
            best = t;
        }
    }
    for (srv_task *t = q->first; best && t; t = t->next) {
        if (overtakes(t, best) && (!quick || precedes(q, t, quick)) && may(user, t)) {
            quick = t;
        }
    }
    if (quick) {
        best->overtaken++;
        best = quick;
    }
    if (best) {
        srv_queue_remove(q, best);
        note_turn(q, best);
    }
    return best;
}
