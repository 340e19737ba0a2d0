/* System tools: for templates that read tools as JSON from the system message and support only texts and
   roles for calls and results. Phi-4-mini has such a template. Clients do not write conversations this
   way. */
#ifndef MO_TEMPLATE_SYSTEM_TOOLS_H
#define MO_TEMPLATE_SYSTEM_TOOLS_H

#include "template/value.h"

/* Changes the messages in place. tools NULL: no tools. */
void mo_system_tools_fit(mo_work *w, mo_jlist *messages, const mo_jlist *tools);

#endif
