/* Sockets: the server's listening sockets: TCP addresses, unix sockets, and those passed by systemd. */
#ifndef SRV_SOCKETS_H
#define SRV_SOCKETS_H

#include "moraine_server.h"

enum { SRV_SOCKETS = 16 };

typedef struct srv_socket {
    int fd;
    bool loopback;  /* reachable only from this machine */
    bool local;     /* a unix socket */
    char name[160]; /* for messages: "http://127.0.0.1:8080", "unix:/run/moraine.sock" */
    char path[108]; /* of a unix socket created here, removed on close; "" otherwise */
} srv_socket;

/* Listens on every address of a host (a name, an address, "" or "*" for all) and a port (0: a free one; the
 * name contains it). Appends to list[*count]. MO_EIO describes the problem. */
mo_status srv_sockets_tcp(const char *host, int port, bool tls, srv_socket *list, int *count, mo_error *err);
/* Creates a unix socket accessible only to this user. An existing one without a listener is replaced. */
mo_status srv_sockets_unix(const char *path, srv_socket *list, int *count, mo_error *err);
/* Takes the sockets passed by systemd (LISTEN_FDS), if any. */
mo_status srv_sockets_inherited(bool tls, srv_socket *list, int *count, mo_error *err);
void srv_sockets_close(srv_socket *list, int count);

/* Notifies systemd (NOTIFY_SOCKET): "READY=1", "STOPPING=1", "STATUS=...". No effect without it. */
void srv_systemd_notify(const char *state);

#endif
