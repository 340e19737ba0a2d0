#include "hub/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Accepts one line of printable characters without surrounding blanks, for use in a header. */
static void take(const char *text, char *token, size_t size)
{
    text += strspn(text, " \t\r\n");
    const size_t length = strcspn(text, " \t\r\n");
    token[0] = '\0';
    if (length == 0 || length >= size || text[length + strspn(text + length, " \t\r\n")]) {
        return;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x21 || text[i] > 0x7e) {
            return;
        }
    }
    memcpy(token, text, length);
    token[length] = '\0';
}

void hub_token_find(char *token, size_t size)
{
    const char *named = getenv("HF_TOKEN"), *file = getenv("HF_TOKEN_PATH"), *hf = getenv("HF_HOME"),
               *home = getenv("HOME");
    char path[4096] = "", text[1024] = "";
    token[0] = '\0';
    if (named && *named) {
        take(named, token, size);
        return;
    }
    if (file && *file) {
        snprintf(path, sizeof path, "%s", file);
    } else if (hf && *hf) {
        snprintf(path, sizeof path, "%s/token", hf);
    } else if (home && *home) {
        snprintf(path, sizeof path, "%s/.cache/huggingface/token", home);
    }
    FILE *f = *path ? fopen(path, "re") : NULL;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        take(text, token, size);
    }
}
