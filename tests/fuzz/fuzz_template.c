/* Fuzzing templates: any text as a template, and after a NUL byte any text as its context. What is accepted renders within
 * limits, and what it renders is UTF-8. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "moraine_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"a b\"}, {\"role\": "
                              "\"user\", \"content\": \"\\u00e9 <x>\"}, "
                              "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": "
                              "{\"name\": \"f\", \"arguments\": {\"x\": "
                              "1.5}}}]}], \"tools\": [{\"type\": \"function\"}], \"add_generation_prompt\": "
                              "true, \"bos_token\": \"<s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    const size_t length = nul ? (size_t)(nul - data) : size;
    mo_template_options o = mo_template_options_default();
    mo_template *t;
    char *text;
    size_t text_length;
    o.steps = 1 << 20;
    o.bytes = 32 << 20;
    o.clock = "2026-01-15T10:20:30";
    if (mo_template_open((const char *)data, length, &t, NULL) != MO_OK) {
        return 0;
    }
    const mo_status status =
        nul ? mo_template_render(t, (const char *)nul + 1, size - length - 1, &o, &text, &text_length, NULL)
            : mo_template_render(t, context, strlen(context), &o, &text, &text_length, NULL);
    if (status == MO_OK) {
        for (size_t at = 0, n; at < text_length; at += n) {
            n = mo_utf8_length((const uint8_t *)text + at, text_length - at);
            if (n == 0) {
                abort();
            }
        }
        free(text);
    }
    mo_template_close(t);
    return 0;
}
