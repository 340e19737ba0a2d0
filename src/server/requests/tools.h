/* Tools: the functions a request offers, in OpenAI's form whatever the dialect, and which of them the answer may or must call. */
#ifndef SRV_TOOLS_H
#define SRV_TOOLS_H

#include "server/common/field.h"
#include "server/requests/parameters.h"

enum { SRV_TOOLS_MAX = 1024 };

typedef enum srv_calling {
    SRV_CALLING_AUTO,
    SRV_CALLING_NONE,     /* tools are shown, calls are not looked for */
    SRV_CALLING_REQUIRED, /* at least one */
    SRV_CALLING_NAMED,    /* of one function */
} srv_calling;

typedef struct srv_tools {
    json_t
        *list; /* [{"type":"function","function":{"name","description","parameters","strict"}}]; NULL: none */
    srv_calling calling;
    const char *name; /* of SRV_CALLING_NAMED: the request's */
    bool single;      /* at most one call */
} srv_tools;

/* Reads `tools`, `tool_choice` and whether calls may be parallel from a request; false: something is wrong, or a name is
 * not among the tools. */
bool srv_tools_read(const srv_field *root, srv_dialect dialect, srv_tools *out);
void srv_tools_free(srv_tools *tools);

#endif
