/* Messages: a conversation as a template wants it. Clients write the same thing in several ways, and templates read it in
 * several ways; here the one becomes the other. */
#ifndef MO_TEMPLATE_MESSAGES_H
#define MO_TEMPLATE_MESSAGES_H

#include "moraine_server.h"
#include "template/value.h"

/* What a template needs, as probing found it, or as a second attempt tries. */
typedef struct mo_message_needs {
    bool text_arguments; /* arguments of tool calls as JSON text; otherwise as objects */
    bool parts;          /* it reads lists of content parts; otherwise their texts are joined */
    bool only_parts;     /* it reads nothing else: texts become lists of one part */
    bool no_system;      /* system messages become part of the next user message */
    bool only_objects;   /* arguments that are no object become one that holds them as "input" */
    bool no_null;        /* content is "" where it is null or missing */
    bool described;      /* tools without a description have an empty one */
    bool system_tools;   /* tools are read from the system's message (system_tools.h) */
    bool no_alias;       /* thoughts are not handed over a second time as "thinking" and "reasoning" */
    bool pictures;       /* parts that are pictures become texts of MO_IMAGE_MARK, which are the template's */
} mo_message_needs;

/* What the messages had, so that it is known whether another attempt makes a difference. */
typedef struct mo_message_facts {
    bool system, null, alias, odd_arguments, undescribed;
} mo_message_facts;

/* Changes the messages in place. The work ends for what is no message: "message 3: it has no role". */
void mo_messages_fit(mo_work *w, mo_jlist *messages, const mo_message_needs *needs, mo_message_facts *facts);
/* The same for tools, after the messages. */
void mo_tools_fit(mo_work *w, mo_jlist *tools, const mo_message_needs *needs, mo_message_facts *facts);

#endif
