/* Tools prompt: DeepSeek's models were trained on headings for tools and on marks around calls, gpt-oss on types of functions and a
 * channel for calls; all others get the generic text. */
#include "dialogue/tools_prompt.h"

#include "base/bytes.h"
#include "base/json.h"
#include "dialogue/generic.h"
#include "dialogue/typescript.h"

static void add_tool(mo_bytes *to, const mo_tools *tools, size_t i)
{
    const json_t *schema = mo_tools_schema(tools, i);
    char *text = schema ? mo_json_dump(schema, 0) : NULL;
    mo_bytes_print(to, "### %s\nDescription: %s\n\nParameters: %s\n\n", mo_tools_name(tools, i),
                   mo_tools_description(tools, i), text ? text : "{}");
    to->failed |= schema && !text;
    free(text);
}

static void add_form(mo_bytes *to, const mo_dialogue *d)
{
    const mo_style *s = d->style;
    const bool fenced = d->id == MO_STYLE_DEEPSEEK3;
    mo_bytes_add_text(to, "To call tools, write exactly this, with one part for each call:\n");
    mo_bytes_add_text(to, mo_style_mark(s, MO_ROLE_SECTION_OPEN));
    mo_bytes_add_text(to, mo_style_mark(s, MO_ROLE_CALL_OPEN));
    mo_bytes_add_text(to, fenced ? "function" : "name");
    mo_bytes_add_text(to, mo_style_mark(s, MO_ROLE_NAME_CLOSE));
    mo_bytes_add_text(to, fenced ? "name\n```json\n{arguments}\n```" : "{arguments}");
    mo_bytes_add_text(to, mo_style_mark(s, MO_ROLE_CALL_CLOSE));
    mo_bytes_add_text(to, mo_style_mark(s, MO_ROLE_SECTION_CLOSE));
    mo_bytes_add_text(to, "\nThe name is that of a tool above, and the arguments are JSON that follows its "
                          "parameters.");
}

static void tell_deepseek(mo_bytes *to, const mo_dialogue *d, const mo_tools *tools)
{
    mo_bytes_add_text(to, "## Tools\nYou have access to the following tools:\n\n");
    for (size_t i = 0; i < mo_tools_count(tools); i++) {
        add_tool(to, tools, i);
    }
    add_form(to, d);
}

static void tell_harmony(mo_bytes *to, const mo_tools *tools)
{
    mo_bytes_add_text(to, "# Tools\n\n## functions\n\n");
    mo_typescript_tools(to, tools);
    mo_bytes_add_text(to, "\n\nCalls to these tools must go to the commentary channel: 'functions'.");
}

mo_status mo_tools_prompt_text(const mo_dialogue *d, const mo_tools *tools, bool required, char **text,
                               mo_error *err)
{
    const mo_style_id calls = mo_dialogue_calls(d);
    mo_bytes to = {0};
    *text = NULL;
    switch (calls) {
    case MO_STYLE_DEEPSEEK3:
    case MO_STYLE_DEEPSEEK31: tell_deepseek(&to, d, tools); break;
    case MO_STYLE_HARMONY: tell_harmony(&to, tools); break;
    default: return mo_generic_text(tools, required, text, err);
    }
    mo_bytes_add_text(&to, required ? " You must call a tool now." : "");
    return mo_tools_described(&to, tools, text, err);
}
