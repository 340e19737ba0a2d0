/* Messages: converts a conversation from the forms that clients write to the form that a template reads. */
#ifndef MO_TEMPLATE_MESSAGES_H
#define MO_TEMPLATE_MESSAGES_H

#include "moraine_server.h"
#include "template/value.h"

/* What a template needs: found by probing, or assumed in a further attempt. */
typedef struct mo_message_needs {
    bool text_arguments; /* arguments of tool calls as JSON text; otherwise as objects */
    bool parts;          /* lists of content parts are supported; otherwise their texts are joined */
    bool only_parts;     /* only lists are supported: a text becomes a list of one part */
    bool no_system;      /* system messages are moved into the next user message */
    bool only_objects;   /* arguments that are not an object become an object with the member "input" */
    bool no_null;        /* null or missing content becomes "" */
    bool described;      /* tools without a description get an empty one */
    bool system_tools;   /* tools are read from the system message (system_tools.h) */
    bool no_alias;       /* reasoning is not passed a second time as "thinking" and "reasoning" */
    /* parts that are pictures become the text MO_IMAGE_MARK, which counts as the template's */
    bool pictures;
} mo_message_needs;

/* Properties of the messages, which show whether another attempt would differ. */
typedef struct mo_message_facts {
    bool system, null, alias, odd_arguments, undescribed;
} mo_message_facts;

/* Changes the messages in place. An invalid message fails the work: "message 3: it has no role". */
void mo_messages_fit(mo_work *w, mo_jlist *messages, const mo_message_needs *needs, mo_message_facts *facts);
/* The same for tools. Call after mo_messages_fit(). */
void mo_tools_fit(mo_work *w, mo_jlist *tools, const mo_message_needs *needs, mo_message_facts *facts);

#endif
