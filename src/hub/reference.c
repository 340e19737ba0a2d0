#include "hub/reference.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "base/utf8.h"

static const char *const hosts[] = {"huggingface.co", "www.huggingface.co", "hf.co"};

/* ---- Names ---- */

/* Characters that affect a terminal or are invisible: control characters (C1 too), line separators, and
   changes of text direction. */
static bool is_deceptive(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
           code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

/* Valid UTF-8, not empty, not hidden, not too long, without slashes and deceptive characters. */
static bool name_safe(const char *name, size_t length)
{
    if (length == 0 || length > 240 || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (size_t i = 0, bytes; i < length; i += bytes) {
        const uint8_t *at = (const uint8_t *)name + i;
        bytes = mo_utf8_length(at, length - i);
        if (bytes == 0 || is_deceptive(mo_utf8_decode(at, bytes)) || *at == '/' || *at == '\\') {
            return false;
        }
    }
    return true;
}

static bool ends_gguf(const char *text, size_t length)
{
    return length > 5 && strncasecmp(text + length - 5, ".gguf", 5) == 0;
}

bool hub_path_safe(const char *path)
{
    const size_t length = strlen(path);
    if (length >= HUB_PATH || !ends_gguf(path, length)) {
        return false;
    }
    for (const char *at = path;;) {
        const size_t name = strcspn(at, "/");
        if (!name_safe(at, name)) {
            return false;
        }
        if (!at[name]) {
            return true;
        }
        at += name + 1;
    }
}

/* Reads a word of the characters that the hub allows in names; labels allow the same. */
static bool take_word(const char *text, size_t length, char *out)
{
    if (length >= HUB_NAME || !name_safe(text, length)) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i])) {
            return false;
        }
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

/* ---- Addresses ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? tolower(c) - 'a' + 10 : -1;
}

/* Decodes %20 etc. False if the result does not fit or contains NUL. */
static bool decode(const char *text, size_t length, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < length && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
            c = (char)(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
            i += 2;
        }
        if (!c || used + 1 >= size) {
            return false;
        }
        out[used++] = c;
    }
    out[used] = '\0';
    return true;
}

static const char *behind_scheme(const char *text)
{
    return strncasecmp(text, "https://", 8) == 0  ? text + 8
           : strncasecmp(text, "http://", 7) == 0 ? text + 7
                                                  : NULL;
}

static bool same_host(const char *host, size_t length, const char *other)
{
    const char *at = behind_scheme(other);
    at = at ? at : other;
    return strcspn(at, "/") == length && strncasecmp(host, at, length) == 0;
}

static bool is_hub(const char *host, size_t length, const char *endpoint)
{
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        if (same_host(host, length, hosts[i])) {
            return true;
        }
    }
    return endpoint && same_host(host, length, endpoint);
}

static mo_status refuse(const char *text, mo_error *err)
{
    return mo_fail(err, MO_EINVAL,
                   "%.200s is not a model name: expected owner/repo, "
                   "owner/repo:Q4_K_M, hf.co/owner/repo or the URL of a .gguf file",
                   text);
}

/* "owner/repo[:quant][/resolve/main/file]" */
static bool take_repository(const char *text, hub_reference *out)
{
    const size_t owner = strcspn(text, "/");
    if (!text[owner] || !take_word(text, owner, out->owner)) {
        return false;
    }
    const char *at = text + owner + 1;
    const size_t repo = strcspn(at, "/:?#");
    if (!take_word(at, repo, out->repo)) {
        return false;
    }
    at += repo;
    if (*at == ':') {
        const size_t quant = strcspn(++at, "/?#");
        if (!take_word(at, quant, out->quant)) {
            return false;
        }
        at += quant;
    }
    if (*at == '/' && at[1] && at[1] != '?' && at[1] != '#') {
        const size_t verb = strcspn(at + 1, "/");
        const bool page = verb == 4 && (strncmp(at + 1, "tree", 4) == 0 || strncmp(at + 1, "blob", 4) == 0);
        if ((!page && strncmp(at + 1, "resolve/", 8) != 0) || at[1 + verb] != '/') {
            return false;
        }
        at += verb + 2;
        const size_t revision = strcspn(at, "/?#");
        if (!take_word(at, revision, out->revision)) {
            return false;
        }
        at += revision;
        if (*at == '/' && at[1]) {
            const size_t file = strcspn(++at, "?#");
            if (!decode(at, file, out->file, sizeof out->file)) {
                return false;
            }
            if (!hub_path_safe(out->file)) { /* a folder: treated like a label */
                const char *slash = strrchr(out->file, '/');
                const char *last = slash ? slash + 1 : out->file;
                if (out->quant[0] || ends_gguf(last, strlen(last)) ||
                    !take_word(last, strlen(last), out->quant)) {
                    return false;
                }
                out->file[0] = '\0';
            }
        }
    }
    return true;
}

/* Reads the address of a file on any host. It is stored under the host's name. */
static bool take_address(const char *text, const char *host, hub_reference *out)
{
    const char *at = strchr(host, '@'); /* a password in the address would appear in lists and messages */
    const size_t host_length = strcspn(host, "/:?#"), path_end = strcspn(text, "?#");
    char name[HUB_PATH] = "";
    const char *slash = text + path_end;
    while (slash > text && slash[-1] != '/') {
        slash--;
    }
    if ((at && at < host + strcspn(host, "/")) || strlen(text) >= sizeof out->url || slash <= host ||
        !take_word(host, host_length, out->owner) ||
        !decode(slash, (size_t)(text + path_end - slash), name, sizeof name) || !hub_path_safe(name) ||
        strchr(name, '/')) {
        return false;
    }
    size_t stem = strlen(name) - 5;
    const char *part = stem > 15 ? name + stem - 15 : NULL; /* -00001-of-00002 */
    if (part && part[0] == '-' && strspn(part + 1, "0123456789") == 5 && strncmp(part + 6, "-of-", 4) == 0) {
        stem -= 15;
    }
    if (!take_word(name, stem, out->repo)) {
        return false;
    }
    snprintf(out->file, sizeof out->file, "%s", name);
    snprintf(out->url, sizeof out->url, "%s", text);
    return true;
}

mo_status hub_reference_parse(const char *text, const char *endpoint, hub_reference *out, mo_error *err)
{
    *out = (hub_reference){.revision = "main"};
    const char *host = behind_scheme(text);
    const char *rest = host ? host : text;
    const size_t length = strcspn(rest, "/");
    bool good;
    if (rest[length] && is_hub(rest, length, endpoint)) {
        good = take_repository(rest + length + 1, out);
    } else {
        good = host ? take_address(text, host, out) : take_repository(text, out);
    }
    return good ? MO_OK : refuse(text, err);
}

bool hub_reference_like(const char *text)
{
    hub_reference r;
    mo_error err;
    if (hub_reference_parse(text, NULL, &r, &err) != MO_OK) {
        return false;
    }
    return behind_scheme(text) || !ends_gguf(text, strlen(text));
}
