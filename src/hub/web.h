/* Web: requests to hubs by libcurl: options of every request, their responses, and which failures are retried. The token
 * goes to the hub alone, not to where it redirects. One thread. */
#ifndef HUB_WEB_H
#define HUB_WEB_H

#include <curl/curl.h>

#include "moraine.h"

typedef struct hub_web {
    const char *endpoint;                        /* the hub's address, without a slash at its end */
    const char *token;                           /* "": none */
    long timeout_s;                              /* without a byte */
    int tries;                                   /* gives up after this many failures in a row */
    bool (*goes_on)(void *user);                 /* false: cancel */
    void (*waits)(void *user, const char *text); /* why the next try comes later */
    void *user;
    struct curl_slist *headers; /* with the token; hub_web_close() */
} hub_web;

/* What the answer to one request said before its body; of several, after redirects, the last one. */
typedef struct hub_answer {
    long code;
    int64_t from, to, total; /* of Content-Range; -1: none */
    int64_t length;          /* Content-Length; -1: none */
    char etag[128];
    bool weak;             /* it does not promise the same bytes */
    char linked_etag[128]; /* the hub's word on the content, which the redirect has ... */
    int64_t linked_size;   /* ... and on its size; -1: none */
    char error_code[64];   /* X-Error-Code */
    char next[2048];       /* the next page, of a Link */
    bool html;
} hub_answer;

/* HUB_UNKNOWN: the host's name cannot be resolved. A download that has begun tries again; before that there is no use in it. */
typedef enum hub_verdict { HUB_GOOD, HUB_AGAIN, HUB_NEVER, HUB_UNKNOWN } hub_verdict;

mo_status hub_web_open(hub_web *web, mo_error *err);
void hub_web_close(hub_web *web);

/* A handle for one address; its answer's headers go to *answer, which outlives it. NULL: no memory. */
CURL *hub_web_handle(const hub_web *web, const char *url, hub_answer *answer);

/* What has become of a request. What is not good is in err, and *wait_s says how long to wait before the next try (0: as usual). */
hub_verdict hub_web_judge(const hub_web *web, const char *url, CURL *handle, CURLcode result,
                          const hub_answer *answer, double *wait_s, mo_error *err);

/* Seconds until the next try; tries: how many failed already. */
double hub_web_pause(int tries, double wait_s);

/* Gets a whole answer of at most `most` bytes: *body is terminated, the caller frees it. */
mo_status hub_web_get(const hub_web *web, const char *url, size_t most, char **body, size_t *length,
                      hub_answer *answer, mo_error *err);
/* Gets bytes from..from + count - 1, also from a server that sends everything. */
mo_status hub_web_range(const hub_web *web, const char *url, int64_t from, size_t count, void *to,
                        hub_answer *answer, mo_error *err);

/* text as it is written in an address, slashes left alone; the caller frees it. */
char *hub_web_escape(const char *text);

#endif
