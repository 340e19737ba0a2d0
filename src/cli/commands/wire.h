/* Wire: concurrent HTTP requests with libcurl, and the bytes of their answers as they arrive. HTTP/1.1
   without TLS, one connection per request, no proxy, no redirects. One thread. */
#ifndef MO_CLI_WIRE_H
#define MO_CLI_WIRE_H

#include <curl/curl.h>

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

/* The address of a server: "http://host:port/prefix"; scheme, port and prefix are optional. */
typedef struct cli_url {
    char server[300], prefix[128]; /* "http://host:port"; without trailing slash */
} cli_url;

/* False: invalid, or TLS. */
bool cli_url_read(const char *text, cli_url *out);

typedef struct cli_wire {
    CURLM *all; /* all concurrent requests */
    CURL *handle;
    int status;      /* HTTP status; 0: no header yet */
    bool over;       /* the request has ended */
    CURLcode result; /* with this result */
    mo_bytes body;   /* received data that was not read yet */
} cli_wire;

/* Prepares a request. body NULL: GET. *w must not move until it is closed. False after printing the error. */
bool cli_wire_open(cli_wire *w, CURLM *all, const char *command, const cli_url *url, const char *path,
                   const char *key, const char *body);
void cli_wire_close(cli_wire *w); /* a zeroed one is allowed */

/* Waits for progress of any request. False: none in this time, or a signal. */
bool cli_wires_go(CURLM *all, double silence_s);
/* Waits for the complete body, which belongs to the wire. NULL: failed. */
const char *cli_wire_whole(cli_wire *w);
/* For an ended request: was there a connection? False after printing the reason. */
bool cli_wire_reached(const cli_wire *w, const char *command, const cli_url *url);
/* Takes the next complete line of the body, without its end; free() it. NULL: none yet. */
char *cli_wire_line(cli_wire *w);

#endif
