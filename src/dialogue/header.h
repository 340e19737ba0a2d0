/* Header: what stands before a message of harmony: role, recipient, channel and kind of contents, in any order that models
 * write.
 *
 *     <|start|>assistant to=functions.N<|channel|>commentary json<|message|>
 *     <|channel|>commentary to=functions.N <|constrain|>json<|message|> */
#ifndef MO_DIALOGUE_HEADER_H
#define MO_DIALOGUE_HEADER_H

#include "base/bytes.h"

typedef struct mo_header {
    mo_bytes text;
    size_t channel_at; /* where the channel's name begins in the text */
    bool has_channel;
    bool begun; /* by a mark */
} mo_header;

void mo_header_clear(mo_header *h, bool begun);
/* The channel's name follows. */
void mo_header_channel(mo_header *h);

/* May the text be a header's although no mark began it? The prompt wrote the beginning. */
bool mo_header_fits(const mo_header *h);

/* The channel's name; empty: none. */
mo_text mo_header_channel_name(const mo_header *h);
/* Recipient of the message; empty: none. */
mo_text mo_header_recipient(const mo_header *h);

#endif
