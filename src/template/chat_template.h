/* Chat template: a model's template for conversations, its needs found by probing, and further attempts
   before a conversation is rejected. */
#ifndef MO_TEMPLATE_CHAT_TEMPLATE_H
#define MO_TEMPLATE_CHAT_TEMPLATE_H

#include "moraine_server.h"
#include "template/template.h"

typedef struct mo_chat_template mo_chat_template;

/* Parses and probes a template. bos, eos: copied. Constant after opening: any thread may render. */
mo_status mo_chat_template_open(const char *text, size_t length, const char *bos, const char *eos,
                                mo_chat_template **out, mo_error *err);
void mo_chat_template_close(mo_chat_template *t); /* NULL is allowed */

/* What a template does with something of a conversation, as probing found it. */
typedef enum mo_shown {
    MO_SHOWN_UNKNOWN,
    MO_SHOWN_NOT,
    MO_SHOWN
} mo_shown; /* unknown: it rendered no probe */

/* Does it write the tools, and calls of the assistant? */
mo_shown mo_chat_template_tools(const mo_chat_template *t);
mo_shown mo_chat_template_calls(const mo_chat_template *t);

/* Variables that the conversation does not set itself. */
typedef struct mo_chat_settings {
    mo_thinking thinking;
    const char *effort; /* NULL: none */
    const char *clock;  /* as in mo_template_options */
    bool no_prompt;
    /* the model reads pictures: parts of contents may be pictures, which become MO_IMAGE_MARK */
    bool pictures;
} mo_chat_settings;

/* Renders a conversation as mo_prompt_open() takes it. If the template fails, three changes are tried: "" for
   null contents, reasoning under one name only, system messages merged into the user's. If these fail too,
   the error is that of the first attempt. */
mo_status mo_chat_template_render(const mo_chat_template *t, const char *json, size_t length,
                                  const mo_chat_settings *settings, mo_rendering *out, mo_error *err);

/* Renders messages that have only a role and a text, with one of our own templates (text/formats.h), without
   changes and without a limit of work. */
mo_status mo_chat_template_plain(const mo_template *t, const mo_message *messages, size_t count,
                                 const mo_chat_settings *settings, mo_rendering *out, mo_error *err);

/* Does the conversation have tools? False if it is not valid. */
bool mo_conversation_has_tools(const char *json, size_t length);

#endif
