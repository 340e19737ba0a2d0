/* Wire: HTTP requests to a server that go on at the same time, by libcurl, and the bytes of their answers as they come. Plain HTTP/1.1,
 * every request on a connection of its own, no proxy, no redirects. One thread. */
#ifndef MO_CLI_WIRE_H
#define MO_CLI_WIRE_H

#include <curl/curl.h>

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

/* Where a server is: "http://host:port/prefix", of which scheme, port and prefix may be missing. */
typedef struct cli_url {
    char server[300], prefix[128]; /* "http://host:port"; no slash at its end */
} cli_url;

/* False: it is none, or wants TLS. */
bool cli_url_read(const char *text, cli_url *out);

typedef struct cli_wire {
    CURLM *all; /* the requests that go on with it */
    CURL *handle;
    int status;      /* of HTTP; 0: the header has not come */
    bool over;       /* nothing more comes ... */
    CURLcode result; /* ... and why */
    mo_bytes body;   /* what came of it and was not yet used */
} cli_wire;

/* Has a request ready: body NULL: GET. *w stays where it is until it is closed. False after saying what is wrong. */
bool cli_wire_open(cli_wire *w, CURLM *all, const char *command, const cli_url *url, const char *path,
                   const char *key, const char *body);
void cli_wire_close(cli_wire *w); /* a zeroed one is allowed */

/* Waits until something has come, gone or ended, for any of them. False: nothing has for so long, or a signal came. */
bool cli_wires_go(CURLM *all, double silence_s);
/* Waits until the answer is whole; the body, which stays the wire's. NULL: it failed. */
const char *cli_wire_whole(cli_wire *w);
/* Of one that is over: was there a connection? False after saying why not. */
bool cli_wire_reached(const cli_wire *w, const char *command, const cli_url *url);
/* Takes the next line of the body that has come whole, without its end: to be freed. NULL: none has. */
char *cli_wire_line(cli_wire *w);

#endif
