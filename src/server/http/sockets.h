/* Sockets: the server's listening sockets: TCP addresses, unix sockets, and those passed by systemd. */
#ifndef SRV_SOCKETS_H
#define SRV_SOCKETS_H

#include "moraine_server.h"

enum { SRV_SOCKETS = 16 };

typedef struct srv_socket {
    int fd;
    bool loopback;  /* only reachable from this machine */
    bool local;     /* a unix socket */
    bool inherited; /* from systemd, which listens on it, too */
    char name[160]; /* for people: "http://127.0.0.1:8080", "unix:/run/moraine.sock" */
    char path[108]; /* of a unix socket of ours, removed when it ends; "" otherwise */
} srv_socket;

/* Listens on every address of a host (a name, an address, "" or "*" for all) and a port (0: a free one; the
 * name contains it). Appends to list[*count]. MO_EIO describes the problem. */
mo_status srv_sockets_tcp(const char *host, int port, bool tls, srv_socket *list, int *count, mo_error *err);
/* Makes a unix socket that only this user's programs may use. One without a listener is replaced. */
mo_status srv_sockets_unix(const char *path, srv_socket *list, int *count, mo_error *err);
/* Takes the sockets that systemd opened for us (LISTEN_FDS), if it did. */
mo_status srv_sockets_inherited(bool tls, srv_socket *list, int *count, mo_error *err);
/* Refuses new clients, except on inherited sockets. The descriptors stay open, because another thread may still use them. */
void srv_sockets_end(srv_socket *list, int count);
void srv_sockets_close(srv_socket *list, int count);

/* Tells systemd (NOTIFY_SOCKET) how we are: "READY=1", "STOPPING=1", "STATUS=...". Nothing happens without it. */
void srv_systemd_notify(const char *state);

#endif
