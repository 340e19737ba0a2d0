/* Envelope: the grammar of a whole answer made of the grammar that a client gave for its text. What the model's format puts
 * around the text (a thought before it, the header of a channel) stays free, or there would be no thinking. */
#ifndef SRV_ENVELOPE_H
#define SRV_ENVELOPE_H

#include "server/writer.h"

/* Writes GBNF rules in which every name `root` of the given ones is `answer`. */
void srv_envelope_rename(const char *gbnf, size_t length, srv_writer *out);

/* The rule `root` of a whole answer of the model, whose text is the rule `answer`. in_thought: the prompt ended inside a
 * thought. */
void srv_envelope_root(const mo_model *model, bool in_thought, srv_writer *out);

#endif
