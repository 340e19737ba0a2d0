/* Web: requests to hubs with libcurl: the common options, answers, and which failures are retried. The token
   is sent only to the hub, not to hosts it redirects to. One thread. */
#ifndef HUB_WEB_H
#define HUB_WEB_H

#include <curl/curl.h>

#include "moraine.h"

typedef struct hub_web {
    const char *endpoint;                        /* the hub's address, without a trailing slash */
    const char *token;                           /* "": none */
    long timeout_s;                              /* without data */
    int tries;                                   /* gives up after this many consecutive failures */
    bool (*goes_on)(void *user);                 /* false: cancel */
    void (*waits)(void *user, const char *text); /* called with the reason before a pause */
    void *user;
    struct curl_slist *headers; /* includes the token; free with hub_web_close() */
} hub_web;

/* The headers of an answer; after redirects, of the last one. */
typedef struct hub_answer {
    long code;
    int64_t from, to, total; /* Content-Range; -1: none */
    int64_t length;          /* Content-Length; -1: none */
    char etag[128];
    bool weak;             /* a weak entity tag: the bytes may differ */
    char linked_etag[128]; /* the hub's entity tag of the content, in its redirect */
    int64_t linked_size;   /* and its size; -1: none */
    char error_code[64];   /* X-Error-Code */
    char next[2048];       /* address of the next page, from Link */
    bool html;
} hub_answer;

/* HUB_UNKNOWN: the host's name cannot be resolved. A download in progress retries; a first request does not. */
typedef enum hub_verdict { HUB_GOOD, HUB_AGAIN, HUB_NEVER, HUB_UNKNOWN } hub_verdict;

mo_status hub_web_open(hub_web *web, mo_error *err);
void hub_web_close(hub_web *web);

/* A handle for one address. *answer gets the headers and must outlive it. NULL: out of memory. */
CURL *hub_web_handle(const hub_web *web, const char *url, hub_answer *answer);

/* Judges the result of a request. If not good: err, and in *wait_s the pause before a retry (0: default). */
hub_verdict hub_web_judge(const hub_web *web, const char *url, CURL *handle, CURLcode result,
                          const hub_answer *answer, double *wait_s, mo_error *err);

/* Seconds until the next try. tries: number of failures. */
double hub_web_pause(int tries, double wait_s);

/* Gets a complete answer of at most `most` bytes: *body is terminated; the caller frees it. */
mo_status hub_web_get(const hub_web *web, const char *url, size_t most, char **body, size_t *length,
                      hub_answer *answer, mo_error *err);
/* Gets count bytes from `from` on, also from a server that sends everything. */
mo_status hub_web_range(const hub_web *web, const char *url, int64_t from, size_t count, void *to,
                        hub_answer *answer, mo_error *err);

/* text escaped for an address, except slashes; the caller frees it. */
char *hub_web_escape(const char *text);

#endif
