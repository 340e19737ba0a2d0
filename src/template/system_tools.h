/* System tools: templates that read tools from the system's message, as JSON, and know of calls and their results nothing but texts and
 * roles. Phi-4-mini's is one; no client writes a conversation so. */
#ifndef MO_TEMPLATE_SYSTEM_TOOLS_H
#define MO_TEMPLATE_SYSTEM_TOOLS_H

#include "template/value.h"

/* Changes the messages in place; tools NULL: none are offered. */
void mo_system_tools_fit(mo_work *w, mo_jlist *messages, const mo_jlist *tools);

#endif
