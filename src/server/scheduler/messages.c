/* Messages: what the scheduler has found out, gathered in a round and handed to the emitter at its end. */
#include <stdlib.h>

#include "server/scheduler/scheduler.h"

void srv_messages_send(srv_engine *e)
{
    srv_emitter_emit(e->emitter, e->messages, e->message_count, true);
    e->message_count = 0;
    pthread_mutex_lock(&e->lock);
    if (e->unemitted) {
        e->unemitted = false;
        pthread_cond_broadcast(&e->ended);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Without memory for a list the message goes out by itself. */
void srv_messages_add(srv_engine *e, const srv_message *message)
{
    if (e->message_count == e->message_capacity) {
        const size_t more = 2 * e->message_capacity + 16;
        srv_message *list = realloc(e->messages, more * sizeof *list);
        if (!list) {
            srv_messages_send(e);
            srv_emitter_emit(e->emitter, message, 1, true);
            return;
        }
        e->messages = list;
        e->message_capacity = more;
    }
    e->messages[e->message_count++] = *message;
}
