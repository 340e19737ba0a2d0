/* Wire: one HTTP request to a server, and the bytes of its answer as they come. Enough for a measurement, not a client for
 * every server: plain HTTP/1.1, answers with a length, in chunks, or until the end. */
#ifndef MO_CLI_WIRE_H
#define MO_CLI_WIRE_H

#include <stdbool.h>
#include <stddef.h>

/* Where a server is: "http://host:port/prefix", of which scheme, port and prefix may be missing. */
typedef struct cli_url {
    char host[256], port[8], prefix[128];
} cli_url;

/* False: it is none, or wants TLS. */
bool cli_url_read(const char *text, cli_url *out);

typedef struct cli_wire {
    int fd;
    char *out; /* what is still to be sent: from `sent` on */
    size_t out_length, sent;
    char *in; /* what was received and not yet taken */
    size_t in_length, in_capacity;
    int status; /* of HTTP; 0: the header has not come */
    bool chunked, over;
    size_t left;    /* of the body, or of this chunk */
    bool until_end; /* of the connection */
    char *body;     /* what was taken of it and not yet used */
    size_t body_length, body_capacity;
} cli_wire;

/* Connects and has a request ready: body NULL: GET. False after saying what is wrong. */
bool cli_wire_open(cli_wire *w, const char *command, const cli_url *url, const char *path, const char *key,
                   const char *body);
void cli_wire_close(cli_wire *w); /* a zeroed one is allowed */

/* Is there something to send? */
bool cli_wire_sends(const cli_wire *w);
/* Sends or receives what can be without waiting. False: the connection failed, or what came is no HTTP. */
bool cli_wire_go(cli_wire *w);
/* Waits until the answer is whole; the body, which stays the wire's. NULL: it failed. */
const char *cli_wire_whole(cli_wire *w);
/* Takes the next line of the body that has come whole, without its end: to be freed. NULL: none has. */
char *cli_wire_line(cli_wire *w);

#endif
