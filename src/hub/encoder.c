#include "hub/encoder.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool hub_encoder_named(const char *path)
{
    const char *name = name_of(path);
    const size_t length = strlen(name);
    return strcasestr(name, "mmproj") && length > 5 && strcasecmp(name + length - 5, ".gguf") == 0;
}

/* ---- Choosing ---- */

static bool ends_word(char c)
{
    return c == '\0' || c == '-' || c == '_' || c == '.';
}

/* The number of letters in the leading words that the name shares with the model's, ignoring a leading
   "mmproj-". */
static size_t likeness(const char *name, const char *model)
{
    size_t words = 0;
    if (strncasecmp(name, "mmproj", 6) == 0) {
        name += 6 + strspn(name + 6, "-_.");
    }
    for (size_t i = 0;; i++) {
        if (ends_word(name[i]) && ends_word(model[i])) {
            words = i;
        }
        if (!name[i] || tolower((unsigned char)name[i]) != tolower((unsigned char)model[i])) {
            return words;
        }
    }
}

/* Formats by preference: the default one first. */
static int format_of(const char *name)
{
    static const struct {
        const char *word;
        int order;
    } formats[] = {{"bf16", 1}, {"f16", 0}, {"q8_0", 2}, {"f32", 3}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcasestr(name, formats[i].word)) {
            return formats[i].order;
        }
    }
    return 4;
}

bool hub_encoder_better(const char *a, const char *b, const char *model)
{
    const char *of = name_of(model);
    const size_t la = likeness(name_of(a), of), lb = likeness(name_of(b), of);
    const int fa = format_of(name_of(a)), fb = format_of(name_of(b));
    return la != lb ? la > lb : fa != fb ? fa < fb : strcmp(a, b) < 0;
}

/* ---- Searching ---- */

bool hub_encoder_above(const char *model, size_t *length)
{
    const char *name = name_of(model);
    if (name == model) {
        return false;
    }
    const char *folder = name - 1;
    while (folder > model && folder[-1] != '/') {
        folder--;
    }
    const size_t letters = (size_t)(name - 1 - folder);
    *length = (size_t)(folder - model);
    for (const char *at = name; letters > 1 && *at; at++) {
        if (strncasecmp(at, folder, letters) == 0) {
            return true;
        }
    }
    return false;
}

bool hub_encoder_beside(const char *path, const char *model)
{
    const size_t folder = (size_t)(name_of(path) - path), own = (size_t)(name_of(model) - model);
    size_t above;
    return (folder == own && strncmp(path, model, own) == 0) ||
           (hub_encoder_above(model, &above) && folder == above && strncmp(path, model, above) == 0);
}
