#include "hints.h"

#include <stdio.h>
#include <string.h>

void cli_say_with_hint(const char *command, const mo_error *err)
{
    static const struct {
        const char *words, *option;
    } known[] = {
        {"RAM ceiling", "--ram"}, {"of device memory", "--vram"}, {"leave the device out", "--device none"},
        {"context", "--ctx"},     {"batch", "--batch"},
    };
    bool any = false;
    fprintf(stderr, "moraine %s: %s", command, err->detail);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(err->detail, known[i].words)) {
            fprintf(stderr, "%s%s", any ? ", " : " (options: ", known[i].option);
            any = true;
        }
    }
    fputs(any ? ")\n" : "\n", stderr);
}
