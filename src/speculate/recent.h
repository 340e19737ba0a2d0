/* Recent: what the answers of every client said lately, for guesses in its next ones. A client never gets another's. Bounded: of a
 * client the last MO_RECENT_TOKENS at least are known, of clients those that answered last. One thread at a time. */
#ifndef MO_SPECULATE_RECENT_H
#define MO_SPECULATE_RECENT_H

#include "moraine_server.h"

enum { MO_RECENT_CLIENTS = 16, MO_RECENT_TOKENS = 8192 };

/* Where what ends with end[end_count] was said by the client's answers, with the longest match: *length tokens of it. Returns how many
 * tokens follow at *from, until the next mo_recent_add(); 0: nowhere. */
int64_t mo_recent_find(const mo_recent *recent, uint64_t client, const int32_t *end, int64_t end_count,
                       const int32_t **from, int64_t *length);

#endif
