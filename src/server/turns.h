/* Turns: which conversation an answer that called tools continued, by the ids of its calls: a number made of the messages before it
 * and of what else decides how they are rendered. The oldest are forgotten.
 *
 * Any thread. */
#ifndef SRV_TURNS_H
#define SRV_TURNS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_turns srv_turns;

srv_turns *srv_turns_open(void); /* NULL: out of memory */
void srv_turns_close(srv_turns *turns);

void srv_turns_add(srv_turns *turns, const char *call_id, uint64_t conversation);
/* Did a call of that id continue this conversation? */
bool srv_turns_know(srv_turns *turns, const char *call_id, uint64_t conversation);

#endif
