/* Generic: the system text that asks a model without a format of its own for calls as JSON. */
#include "dialogue/generic.h"

#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "dialogue/json.h"
#include "dialogue/tools.h"

static void add_tool(mo_bytes *to, const mo_tools *tools, size_t i)
{
    const json_t *schema = mo_tools_schema(tools, i);
    char *text = schema ? mo_json_dump(schema, JSON_COMPACT) : NULL;
    const char *name = mo_tools_name(tools, i), *description = mo_tools_description(tools, i);
    mo_bytes_add_text(to, "{\"name\": ");
    mo_json_quote(to, (mo_text){name, strlen(name)});
    if (description[0]) {
        mo_bytes_add_text(to, ", \"description\": ");
        mo_json_quote(to, (mo_text){description, strlen(description)});
    }
    mo_bytes_print(to, ", \"parameters\": %s}\n", text ? text : "{}");
    to->failed |= schema && !text;
    free(text);
}

mo_status mo_generic_text(const mo_tools *tools, bool required, char **text, mo_error *err)
{
    mo_bytes to = {0};
    mo_bytes_add_text(&to, "You can call these functions:\n\n");
    for (size_t i = 0; i < mo_tools_count(tools); i++) {
        add_tool(&to, tools, i);
    }
    mo_bytes_add_text(
        &to,
        "\nAnswer with one JSON object and nothing else. To call a function, with arguments that follow its "
        "parameters:\n{\"tool_call\": {\"name\": \"the function\", \"arguments\": {}}}\n");
    mo_bytes_add_text(&to, required ? "You must call a function now."
                                    : "To answer without calling one:\n{\"response\": \"your answer\"}");
    return mo_tools_described(&to, tools, text, err);
}
