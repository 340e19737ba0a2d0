#include "hub/web.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/status.h"

#define PAUSE_S       0.5   /* before the second try; doubled before each further one */
#define PAUSE_MOST_S  30.0  /* maximum */
#define RETRY_MOST_S  600.0 /* a server that asks for a longer pause is given up */
#define CONNECT_S     30L
#define REDIRECTS_MAX 10L

mo_status hub_web_open(hub_web *web, mo_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        return mo_fail(err, MO_ENOMEM, "cannot start libcurl");
    }
    web->headers = NULL;
    if (web->token[0]) {
        char line[1200];
        snprintf(line, sizeof line, "Authorization: Bearer %s", web->token);
        web->headers = curl_slist_append(NULL, line);
        if (!web->headers) {
            return mo_fail(err, MO_ENOMEM, "out of memory for a request");
        }
    }
    return MO_OK;
}

void hub_web_close(hub_web *web)
{
    curl_slist_free_all(web->headers);
    web->headers = NULL;
    curl_global_cleanup();
}

/* ---- Reading answers ---- */

/* The value of a header, or NULL. Not terminated: *length. */
static const char *value_of(const char *line, size_t bytes, const char *name, size_t *length)
{
    const size_t n = strlen(name);
    if (bytes <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') {
        return NULL;
    }
    const char *at = line + n + 1, *end = line + bytes;
    while (at < end && (*at == ' ' || *at == '\t')) {
        at++;
    }
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) {
        end--;
    }
    *length = (size_t)(end - at);
    return at;
}

static void take(char *to, size_t size, const char *from, size_t length)
{
    snprintf(to, size, "%.*s", (int)(length < size ? length : size - 1), from);
}

/* "W/"abc"" to "abc" */
static void take_tag(char *to, size_t size, const char *from, size_t length)
{
    if (length > 2 && strncmp(from, "W/", 2) == 0) {
        from += 2;
        length -= 2;
    }
    if (length >= 2 && from[0] == '"' && from[length - 1] == '"') {
        from++;
        length -= 2;
    }
    take(to, size, from, length);
}

/* "<https://...>; rel="next"" */
static void take_next(hub_answer *a, const char *from, size_t length)
{
    char text[4096];
    take(text, sizeof text, from, length);
    const char *rel = strstr(text, "rel=\"next\"");
    const char *begin = NULL;
    for (const char *at = text; rel && at < rel; at++) {
        begin = *at == '<' ? at + 1 : begin;
    }
    if (begin) {
        take(a->next, sizeof a->next, begin, strcspn(begin, ">"));
    }
}

static size_t on_header(char *line, size_t one, size_t count, void *user)
{
    hub_answer *a = user;
    const size_t bytes = one * count;
    size_t length;
    const char *value;
    long long from, to, total;
    char text[128];
    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0) { /* the next answer begins */
        char linked[sizeof a->linked_etag];
        const int64_t size = a->linked_size;
        memcpy(linked, a->linked_etag, sizeof linked);
        *a = (hub_answer){.from = -1, .to = -1, .total = -1, .length = -1, .linked_size = size};
        memcpy(a->linked_etag, linked, sizeof linked);
        take(text, sizeof text, line, bytes);
        const char *space = strchr(text, ' ');
        a->code = space ? strtol(space, NULL, 10) : 0;
    } else if ((value = value_of(line, bytes, "content-range", &length))) {
        take(text, sizeof text, value, length);
        if (sscanf(text, "bytes %lld-%lld/%lld", &from, &to, &total) == 3) {
            a->from = from;
            a->to = to;
            a->total = total;
        }
    } else if ((value = value_of(line, bytes, "content-length", &length))) {
        take(text, sizeof text, value, length);
        a->length = strtoll(text, NULL, 10);
    } else if ((value = value_of(line, bytes, "etag", &length))) {
        take_tag(a->etag, sizeof a->etag, value, length);
        a->weak = length >= 2 && strncmp(value, "W/", 2) == 0;
    } else if ((value = value_of(line, bytes, "x-linked-etag", &length))) {
        take_tag(a->linked_etag, sizeof a->linked_etag, value, length);
    } else if ((value = value_of(line, bytes, "x-linked-size", &length))) {
        take(text, sizeof text, value, length);
        a->linked_size = strtoll(text, NULL, 10);
    } else if ((value = value_of(line, bytes, "x-error-code", &length))) {
        take(a->error_code, sizeof a->error_code, value, length);
    } else if ((value = value_of(line, bytes, "link", &length))) {
        take_next(a, value, length);
    } else if ((value = value_of(line, bytes, "content-type", &length))) {
        a->html = length >= 9 && strncasecmp(value, "text/html", 9) == 0;
    }
    return bytes;
}

/* ---- Requests ---- */

static bool is_of_hub(const hub_web *web, const char *url)
{
    const size_t length = strlen(web->endpoint);
    return strncasecmp(url, web->endpoint, length) == 0 && (url[length] == '/' || !url[length]);
}

CURL *hub_web_handle(const hub_web *web, const char *url, hub_answer *answer)
{
    CURL *h = curl_easy_init();
    if (!h) {
        return NULL;
    }
    const bool safe = strncasecmp(url, "https://", 8) == 0;
    *answer = (hub_answer){.from = -1, .to = -1, .total = -1, .length = -1, .linked_size = -1};
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR,
                     safe ? "https" : "http,https"); /* a redirect must not be less secure */
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, REDIRECTS_MAX);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, web->timeout_s < CONNECT_S ? web->timeout_s : CONNECT_S);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, web->timeout_s);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "moraine/" MO_VERSION);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, answer);
    if (web->headers && is_of_hub(web, url)) { /* libcurl does not send it to other hosts after a redirect */
        curl_easy_setopt(h, CURLOPT_HTTPHEADER, web->headers);
    }
    return h;
}

static mo_status refused(const hub_web *web, const char *url, const hub_answer *a, mo_error *err)
{
    const char *with = web->token[0] ? "the given token has no access"
                                     : "set HF_TOKEN to your token, or log in with the hub's own program";
    if (strcasecmp(a->error_code, "GatedRepo") == 0) {
        return mo_fail(err, MO_EINVAL, "%s is gated (%ld): accept its conditions on the hub's page; %s", url,
                       a->code, with);
    }
    return mo_fail(err, MO_EINVAL,
                   "%s returned %ld: there is no such repository, or it is private or gated; %s", url,
                   a->code, with);
}

static hub_verdict judge_code(const hub_web *web, const char *url, const hub_answer *a, mo_error *err)
{
    switch (a->code) {
    case 200:
    case 206: return HUB_GOOD;
    case 401:
    case 403: refused(web, url, a, err); return HUB_NEVER;
    case 404: mo_fail(err, MO_ENOENT, "%s was not found (404)", url); return HUB_NEVER;
    case 416:
        mo_fail(err, MO_EFORMAT, "%s is shorter than announced (416); pull again", url);
        return HUB_NEVER;
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: mo_fail(err, MO_EIO, "%s returned %ld", url, a->code); return HUB_AGAIN;
    default: mo_fail(err, MO_EIO, "%s returned %ld", url, a->code); return HUB_NEVER;
    }
}

hub_verdict hub_web_judge(const hub_web *web, const char *url, CURL *handle, CURLcode result,
                          const hub_answer *a, double *wait_s, mo_error *err)
{
    curl_off_t retry = 0;
    *wait_s = 0;
    switch (result) {
    case CURLE_OK: break;
    case CURLE_ABORTED_BY_CALLBACK: mo_fail(err, MO_ECANCELLED, "cancelled"); return HUB_NEVER;
    case CURLE_OUT_OF_MEMORY: mo_fail(err, MO_ENOMEM, "out of memory for a request"); return HUB_NEVER;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        mo_fail(err, MO_EIO, "%s: %s", url, curl_easy_strerror(result));
        return HUB_NEVER;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        mo_fail(err, MO_EIO, "%s: the host's name cannot be resolved; check the address and the network",
                url);
        return HUB_UNKNOWN;
    default: mo_fail(err, MO_EIO, "%s: %s", url, curl_easy_strerror(result)); return HUB_AGAIN;
    }
    const hub_verdict v = judge_code(web, url, a, err);
    if (v == HUB_AGAIN && curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &retry) == CURLE_OK && retry > 0) {
        *wait_s = (double)retry;
        if (*wait_s > RETRY_MOST_S) {
            mo_fail(err, MO_EIO, "%s returned %ld and asks to retry in %lld seconds", url, a->code,
                    (long long)retry);
            return HUB_NEVER;
        }
    }
    return v;
}

double hub_web_pause(int tries, double wait_s)
{
    double pause = PAUSE_S;
    for (int i = 1; i < tries && pause < PAUSE_MOST_S; i++) {
        pause *= 2;
    }
    pause = pause < PAUSE_MOST_S ? pause : PAUSE_MOST_S;
    return wait_s > pause ? wait_s : pause;
}

/* Waits and checks for cancellation: MO_ECANCELLED. */
static mo_status wait_for_next(const hub_web *web, int tries, double wait_s, const mo_error *why,
                               mo_error *err)
{
    const double pause = hub_web_pause(tries, wait_s);
    char text[sizeof why->detail + 64];
    if (web->waits && pause >= 1) {
        snprintf(text, sizeof text, "%s; retrying in %.0f s", why->detail, pause);
        web->waits(web->user, text);
    }
    for (double waited = 0; waited < pause; waited += 0.05) {
        if (web->goes_on && !web->goes_on(web->user)) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return MO_OK;
}

/* ---- Whole answers ---- */

/* curl_easy_perform() with more frequent checks for cancellation. */
static CURLcode perform(const hub_web *web, CURL *h)
{
    CURLM *multi = curl_multi_init();
    CURLcode result = CURLE_OUT_OF_MEMORY;
    int running = 1, left;
    if (!multi || curl_multi_add_handle(multi, h) != CURLM_OK) {
        curl_multi_cleanup(multi);
        return result;
    }
    while (running && curl_multi_perform(multi, &running) == CURLM_OK) {
        for (const CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            result = m->data.result;
        }
        if (running && web->goes_on && !web->goes_on(web->user)) {
            result = CURLE_ABORTED_BY_CALLBACK;
            break;
        }
        if (running) {
            curl_multi_poll(multi, NULL, 0, 50, NULL);
        }
    }
    curl_multi_remove_handle(multi, h);
    curl_multi_cleanup(multi);
    return result;
}

typedef struct buffer {
    const hub_answer *answer;
    char *bytes;
    size_t used, most;
    int64_t skip; /* number of bytes to skip, if the server ignores ranges */
    bool range;   /* `bytes` has space for the range, and the rest is not needed */
    bool enough, too_much;
} buffer;

static size_t on_body(char *bytes, size_t one, size_t count, void *user)
{
    buffer *b = user;
    size_t n = one * count, taken = n;
    if (b->answer->code != 200 && b->answer->code != 206) {
        return n; /* the page of an error */
    }
    if (b->range) {
        if (b->answer->code == 200 && b->skip > 0) {
            const size_t over = (int64_t)n < b->skip ? n : (size_t)b->skip;
            b->skip -= (int64_t)over;
            bytes += over;
            n -= over;
        }
        n = n < b->most - b->used ? n : b->most - b->used;
        memcpy(b->bytes + b->used, bytes, n);
        b->used += n;
        b->enough = b->used == b->most;
        return b->enough && b->answer->code == 200 ? 0 : taken; /* 0 stops a server that sends everything */
    }
    if (b->used + n > b->most) {
        b->too_much = true;
        return 0;
    }
    char *more = realloc(b->bytes, b->used + n + 1);
    if (!more) {
        return 0;
    }
    b->bytes = more;
    memcpy(b->bytes + b->used, bytes, n);
    b->used += n;
    b->bytes[b->used] = '\0';
    return taken;
}

mo_status hub_web_get(const hub_web *web, const char *url, size_t most, char **body, size_t *length,
                      hub_answer *answer, mo_error *err)
{
    mo_status s = MO_OK;
    *body = NULL;
    for (int tries = 1;; tries++) {
        buffer b = {.answer = answer, .most = most};
        double wait_s = 0;
        CURL *h = hub_web_handle(web, url, answer);
        if (!h) {
            return mo_fail(err, MO_ENOMEM, "out of memory for a request");
        }
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, &b);
        curl_easy_setopt(h, CURLOPT_ACCEPT_ENCODING, "");
        const CURLcode result = perform(web, h);
        const hub_verdict v = hub_web_judge(web, url, h, result, answer, &wait_s, err);
        curl_easy_cleanup(h);
        if (v == HUB_GOOD && b.bytes) {
            *body = b.bytes;
            *length = b.used;
            return MO_OK;
        }
        free(b.bytes);
        if (v == HUB_GOOD) {
            mo_fail(err, MO_EIO, "%s returned nothing", url);
        }
        if (b.too_much) {
            return mo_fail(err, MO_EFORMAT, "%s sent a response that is too large", url);
        }
        if (v == HUB_NEVER || v == HUB_UNKNOWN || tries >= web->tries) {
            return err->status;
        }
        const mo_error why = *err;
        s = wait_for_next(web, tries, wait_s, &why, err);
        if (s != MO_OK) {
            return s;
        }
    }
}

mo_status hub_web_range(const hub_web *web, const char *url, int64_t from, size_t count, void *to,
                        hub_answer *answer, mo_error *err)
{
    char range[64];
    snprintf(range, sizeof range, "%lld-%lld", (long long)from, (long long)(from + (int64_t)count - 1));
    for (int tries = 1;; tries++) {
        buffer b = {.answer = answer, .bytes = to, .most = count, .skip = from, .range = true};
        double wait_s = 0;
        CURL *h = hub_web_handle(web, url, answer);
        if (!h) {
            return mo_fail(err, MO_ENOMEM, "out of memory for a request");
        }
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, &b);
        curl_easy_setopt(h, CURLOPT_RANGE, range);
        CURLcode result = perform(web, h);
        result = b.enough ? CURLE_OK : result;
        hub_verdict v = hub_web_judge(web, url, h, result, answer, &wait_s, err);
        curl_easy_cleanup(h);
        if (v == HUB_GOOD && answer->html) {
            return mo_fail(err, MO_EFORMAT, "%s is an HTML page, not a model", url);
        }
        if (v == HUB_GOOD && (!b.enough || (answer->code == 206 && answer->from != from))) {
            mo_fail(err, MO_EIO, "%s sent other bytes than requested", url);
            v = HUB_AGAIN;
        }
        if (v == HUB_GOOD) {
            return MO_OK;
        }
        if (v == HUB_NEVER || v == HUB_UNKNOWN || tries >= web->tries) {
            return err->status;
        }
        const mo_error why = *err;
        const mo_status s = wait_for_next(web, tries, wait_s, &why, err);
        if (s != MO_OK) {
            return s;
        }
    }
}

char *hub_web_escape(const char *text)
{
    char *out = malloc(3 * strlen(text) + 1), *at = out;
    for (; out && *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
            strchr("-._~/", c)) {
            *at++ = (char)c;
        } else {
            at += sprintf(at, "%%%02X", c);
        }
    }
    if (out) {
        *at = '\0';
    }
    return out;
}
