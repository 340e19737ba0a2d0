/* Chat template: a model's template for conversations, with what it was found to need, and the second attempts that are made
 * before a conversation is refused. */
#ifndef MO_TEMPLATE_CHAT_TEMPLATE_H
#define MO_TEMPLATE_CHAT_TEMPLATE_H

#include "moraine_server.h"
#include "template/template.h"

typedef struct mo_chat_template mo_chat_template;

/* Parses and probes a template. bos, eos: texts of the tokens, copied. Constant once open: any thread may render. */
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

/* Variables for what the conversation does not say itself. */
typedef struct mo_chat_settings {
    mo_thinking thinking;
    const char *effort; /* NULL: none */
    const char *clock;  /* as in mo_template_options */
    bool no_prompt;
    bool pictures; /* the model reads some: parts of contents may be pictures, which become MO_IMAGE_MARK */
} mo_chat_settings;

/* A conversation as mo_prompt_open() takes it. Where the template fails, the same is tried with "" for null contents, with a
 * thought under one name, and with system messages merged into the user's; then the first failure is the error. */
mo_status mo_chat_template_render(const mo_chat_template *t, const char *json, size_t length,
                                  const mo_chat_settings *settings, mo_rendering *out, mo_error *err);

/* Messages of a role and a text alone, by a template of our own (text/formats.h): as it is, and without a limit of work. */
mo_status mo_chat_template_plain(const mo_template *t, const mo_message *messages, size_t count,
                                 const mo_chat_settings *settings, mo_rendering *out, mo_error *err);

/* Are there tools in such a conversation? False too where it is none. */
bool mo_conversation_has_tools(const char *json, size_t length);

#endif
