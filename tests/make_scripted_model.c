/* make_scripted_model OUT.gguf TEMPLATE SCRIPT [WORD SCRIPT]...: writes a model that answers with the script whose word is in
 * the prompt, or else with the first (support/scripted.h). TEMPLATE and scripts are texts, or @FILE. In scripts \n is a newline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scripted.h"

/* The argument's text, or its file's; the caller frees it. */
static char *text_of(const char *argument)
{
    FILE *f = argument[0] == '@' && argument[1] ? fopen(argument + 1, "rb") : NULL;
    if (!f) {
        return strdup(argument);
    }
    char *text = calloc(1, 1 << 20);
    if (text && fread(text, 1, (1 << 20) - 1, f) == 0) {
        fprintf(stderr, "make_scripted_model: %s is empty\n", argument + 1);
    }
    fclose(f);
    return text;
}

static char *newlines(char *text)
{
    char *to = text;
    for (const char *from = text; from && *from; from++) {
        const bool newline = from[0] == '\\' && from[1] == 'n';
        *to++ = newline ? '\n' : *from;
        from += newline;
    }
    if (to) {
        *to = 0;
    }
    return text;
}

int main(int argc, char **argv)
{
    scripted_script scripts[SCRIPTED_SCRIPTS];
    char *texts[SCRIPTED_SCRIPTS];
    mo_error err;
    int count = 0;
    if (argc < 4 || argc % 2 != 0 || argc > 4 + 2 * (SCRIPTED_SCRIPTS - 1)) {
        fprintf(stderr, "usage: make_scripted_model OUT.gguf TEMPLATE SCRIPT [WORD SCRIPT]...\n");
        return 2;
    }
    for (int i = 3; i < argc; i += 2, count++) {
        texts[count] = newlines(text_of(argv[i]));
        scripts[count] = (scripted_script){count ? argv[i - 1] : NULL, texts[count]};
    }
    char *template = text_of(argv[2]);
    const mo_status status = scripted_write(argv[1], template, scripts, count, &err);
    if (status != MO_OK) {
        fprintf(stderr, "make_scripted_model: %s\n", err.detail);
    }
    free(template);
    for (int i = 0; i < count; i++) {
        free(texts[i]);
    }
    return status == MO_OK ? 0 : 1;
}
