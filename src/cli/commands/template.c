/* moraine template: renders Jinja templates, one for each line of JSON. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

/* ---- Members of an object, as they are written ---- */

static size_t skip_blanks(const char *text, size_t at, size_t length)
{
    while (at < length && strchr(" \t\r\n", text[at]) && text[at]) {
        at++;
    }
    return at;
}

/* The end of the value that begins at `at`. The parser checks later whether it is valid. */
static size_t skip_value(const char *text, size_t at, size_t length)
{
    int depth = 0;
    for (; at < length; at++) {
        const char c = text[at];
        if (c == '"') {
            for (at++; at < length && text[at] != '"'; at++) {
                at += text[at] == '\\';
            }
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0 || --depth < 0) {
                return at;
            }
        } else if (c == ',' && depth == 0) {
            return at;
        }
        if (depth == 0 && (c == '"' || c == '}' || c == ']')) {
            return at < length ? at + 1 : length;
        }
    }
    return length;
}

/* The text of a member's value, unparsed, so that numbers keep their form. If a member is repeated, the last
   one counts. Empty: missing. */
static mo_text member(const char *line, size_t length, const char *name)
{
    mo_text found = {"", 0};
    size_t at = skip_blanks(line, 0, length);
    if (at >= length || line[at] != '{') {
        return found;
    }
    at = skip_blanks(line, at + 1, length);
    while (at < length && line[at] == '"') {
        const size_t key = at, key_end = skip_value(line, at, length);
        at = skip_blanks(line, key_end, length);
        if (at >= length || line[at] != ':') {
            break;
        }
        at = skip_blanks(line, at + 1, length);
        const size_t end = skip_value(line, at, length);
        if (key_end - key == strlen(name) + 2 && memcmp(line + key + 1, name, strlen(name)) == 0) {
            found = (mo_text){line + at, end - at};
        }
        at = skip_blanks(line, end, length);
        at = at < length && line[at] == ',' ? skip_blanks(line, at + 1, length) : length;
    }
    return found;
}

/* The string of a member, which the caller frees. NULL: not a string. */
static char *text_member(const char *line, size_t length, const char *name)
{
    const mo_text value = member(line, length, name);
    json_t *json = json_loadb(value.data, value.length, JSON_DECODE_ANY, NULL);
    char *text = json_is_string(json) ? strdup(json_string_value(json)) : NULL;
    json_decref(json);
    return text;
}

/* ---- */

static mo_status render(const char *line, size_t length, char **text, size_t *text_length, mo_error *err)
{
    mo_template *t = NULL;
    mo_template_options o = mo_template_options_default();
    char *source = text_member(line, length, "template"), *clock = text_member(line, length, "clock");
    const mo_text context = member(line, length, "context");
    mo_status status = MO_EINVAL;
    o.clock = clock;
    if (!source) {
        snprintf(err->detail, sizeof err->detail,
                 "expected a JSON object with a string \"template\" and an object \"context\"");
    } else {
        status = mo_template_open(source, strlen(source), &t, err);
    }
    if (status == MO_OK) {
        status = mo_template_render(t, context.length ? context.data : "{}",
                                    context.length ? context.length : 2, &o, text, text_length, err);
    }
    mo_template_close(t);
    free(source);
    free(clock);
    return status;
}

static bool answer(const char *line, size_t length)
{
    mo_error err;
    char *text = NULL;
    size_t text_length = 0;
    const bool ok = render(line, length, &text, &text_length, &err) == MO_OK;
    json_t *out = ok ? json_pack("{s:o}", "text", cli_json_text(text, text_length))
                     : json_pack("{s:o}", "error", cli_json_string(err.detail));
    mo_free(text);
    if (!out) {
        fprintf(stderr, "moraine template: out of memory\n");
        return false;
    }
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(out);
    return cli_stdout_flush(); /* a client that sends line by line waits for the result */
}

int cli_template(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "template",
        .description = "Renders chat templates (Jinja). Reads JSON lines "
                       "from stdin, each an object with \"template\" (the "
                       "source), \"context\" (its variables, such as "
                       "messages, tools, add_generation_prompt, bos_token) "
                       "and optionally \"clock\" (the time returned by "
                       "strftime_now, as 2026-01-15T10:20:30; default: the "
                       "current time). Writes one line for each: {\"text\": "
                       "...}, or {\"error\": ...} with the template's own "
                       "error, or the problem and its line in the template.",
        .examples = "  echo '{\"template\": \"{{ x | tojson }}\", \"context\": {\"x\": [1, 2]}}' | moraine "
                    "template\n",
        .options = NULL,
        .option_count = 0,
        .min_arguments = 0,
        .max_arguments = 0,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    char *line = NULL;
    size_t capacity = 0;
    bool ok = true;
    for (ssize_t length; ok && !cli_interrupted() && (length = getline(&line, &capacity, stdin)) >= 0;) {
        if (skip_blanks(line, 0, (size_t)length) < (size_t)length) {
            ok = answer(line, (size_t)length);
        }
    }
    free(line);
    return ok ? CLI_OK : CLI_FAILED;
}
