/* Page: what browsers see at /, and the files that it is made of. They are part of the program, load nothing from
 * elsewhere, and know what every client can ask. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "server/status/page_files.h"
#include "server/status/status.h"

/* Scripts, styles and requests of this server alone; styles are set by scripts one by one, which is not "inline". Images
 * that a page makes itself (data:) and nothing of others: an answer cannot make a browser leak the conversation. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static const char unmade[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
    "<meta name=color-scheme content=\"light dark\"><title>Moraine</title>"
    "<h1>Moraine is running</h1><p>This program was built without the web page. The APIs work all "
    "the same; "
    "<a href=\"v1/moraine/status\">see the status</a>.</p><p>The page is included in builds on machines that "
    "have "
    "<code>esbuild</code> and the libraries that <code>tools/setup.sh build</code> installs.</p></html>\n";

static const srv_page_file *find(const char *name)
{
    for (const srv_page_file *f = srv_page_files; f->name; f++) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

static const char *media_type(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot, ".html") == 0  ? "text/html; charset=utf-8"
           : strcmp(dot, ".css") == 0 ? "text/css; charset=utf-8"
           : strcmp(dot, ".js") == 0  ? "text/javascript; charset=utf-8"
           : strcmp(dot, ".txt") == 0 ? "text/plain; charset=utf-8"
                                      : "image/svg+xml";
}

/* Two builds with the same bytes have the same tag. */
static void make_tag(const unsigned char *data, size_t length, char *tag, size_t size)
{
    snprintf(tag, size, "\"%016" PRIx64 "\"", mo_hash(MO_HASH_SEED, data, length));
}

/* Is a word in a list of a header's field? With ";q=0" it is there and not wanted. */
static bool lists(const char *field, const char *word)
{
    const char *at = field ? strstr(field, word) : NULL;
    if (!at) {
        return false;
    }
    const char *after = at + strlen(word);
    after += strspn(after, " ");
    return !(strncmp(after, ";q=0", 4) == 0 && (after[4] == '\0' || after[4] == ',' || after[4] == ' '));
}

static void reply_bytes(srv_request *q, const char *type, const unsigned char *data, size_t length)
{
    char tag[24];
    const char *seen = srv_request_header(q, "If-None-Match");
    make_tag(data, length, tag, sizeof tag);
    srv_reply_header(q, "ETag", tag);
    srv_reply_header(q, "Cache-Control", "no-cache"); /* kept, and asked for again by its tag */
    srv_reply_header(q, "Vary", "Accept, Accept-Encoding");
    srv_reply_header(q, "Content-Security-Policy", policy);
    srv_reply_header(q, "Referrer-Policy", "no-referrer");
    srv_reply_header(q, "Cross-Origin-Opener-Policy", "same-origin");
    if (seen && strstr(seen, tag)) {
        srv_reply(q, 304, type, "", 0);
    } else {
        srv_reply(q, 200, type, (const char *)data, length);
    }
    srv_request_end(q);
}

static void plain_root(void *owner, srv_request *q)
{
    static const char text[] = "Ollama is running";
    (void)owner;
    srv_reply_header(q, "Vary", "Accept");
    srv_reply(q, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
    srv_request_end(q);
}

/* Browsers say that they want a page. Others ask to learn whether Ollama is there, and this is how it answers. */
static void root(void *owner, srv_request *q)
{
    const srv_page_file *page = find("index.html");
    if (!lists(srv_request_header(q, "Accept"), "text/html")) {
        plain_root(owner, q);
    } else if (page) {
        reply_bytes(q, media_type(page->name), page->data, (size_t)(page->end - page->data));
    } else {
        reply_bytes(q, media_type("index.html"), (const unsigned char *)unmade, sizeof unmade - 1);
    }
}

static void part(void *owner, srv_request *q)
{
    const char *name = srv_request_part(q, 0);
    const srv_page_file *file = find(name);
    (void)owner;
    if (!file) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL, "no such file of the web page");
    } else if (strcmp(name, "index.html") == 0) {
        reply_bytes(q, media_type(name), file->data, (size_t)(file->end - file->data));
    } else if (!lists(srv_request_header(q, "Accept-Encoding"), "gzip")) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL,
                          "files of the web page are only available compressed: send Accept-Encoding: gzip");
    } else {
        srv_reply_header(q, "Content-Encoding", "gzip");
        reply_bytes(q, media_type(name), file->data, (size_t)(file->end - file->data));
    }
}

const srv_route srv_page_routes[] = {
    {"GET", "/", root, SRV_QUICK | SRV_PUBLIC},
    {"GET", "/page/{}", part, SRV_QUICK | SRV_PUBLIC},
    {NULL, NULL, NULL, 0},
};

const srv_route srv_no_page_routes[] = {
    {"GET", "/", plain_root, SRV_QUICK | SRV_PUBLIC},
    {NULL, NULL, NULL, 0},
};
