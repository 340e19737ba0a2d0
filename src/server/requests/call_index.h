/* Turns: which conversation an answer that called tools continued, by the ids of its calls: a number made of the messages before it
 * and of what else decides how they are rendered. The oldest are forgotten.
 *
 * Any thread. */
#ifndef SRV_CALL_INDEX_H
#define SRV_CALL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_call_index srv_call_index;

srv_call_index *srv_call_index_open(void); /* NULL: out of memory */
void srv_call_index_close(srv_call_index *call_index);

void srv_call_index_add(srv_call_index *call_index, const char *call_id, uint64_t conversation);
/* Did a call of that id continue this conversation? */
bool srv_call_index_has(srv_call_index *call_index, const char *call_id, uint64_t conversation);

#endif
