/* Sockets: see sockets.h. */
#include "server/http/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"

enum { BACKLOG = 1024, FIRST_INHERITED = 3 };

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    }
    return address->sa_family == AF_UNIX;
}

/* Fills what is known of a socket that listens. */
static void describe(srv_socket *s, bool tls)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "0";
    getsockname(s->fd, (struct sockaddr *)&address, &length);
    s->loopback = is_loopback((struct sockaddr *)&address);
    s->local = address.ss_family == AF_UNIX;
    if (s->local) {
        const struct sockaddr_un *un = (struct sockaddr_un *)&address;
        snprintf(s->name, sizeof s->name, "unix:%.*s", (int)sizeof un->sun_path,
                 un->sun_path[0] ? un->sun_path : "@");
        return;
    }
    getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    const bool six = address.ss_family == AF_INET6;
    snprintf(s->name, sizeof s->name, "%s://%s%s%s:%s", tls ? "https" : "http", six ? "[" : "", host,
             six ? "]" : "", port);
}

static int listen_at(const struct addrinfo *a)
{
    const int on = 1;
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

mo_status srv_sockets_tcp(const char *host, int port, bool tls, srv_socket *list, int *count, mo_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const bool all = *host == '\0' || strcmp(host, "*") == 0;
    struct addrinfo *found = NULL;
    char service[8];
    int opened = 0, why = 0;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(all ? NULL : host, service, &hints, &found);
    if (code != 0) {
        return mo_fail(err, MO_EIO, "cannot resolve host %s: %s", host, gai_strerror(code));
    }
    for (const struct addrinfo *a = found; a && *count < SRV_SOCKETS; a = a->ai_next) {
        const int fd = listen_at(a);
        if (fd < 0) {
            why = errno; /* a machine without IPv6 still has the other address */
            continue;
        }
        list[*count] = (srv_socket){.fd = fd};
        describe(&list[(*count)++], tls);
        opened++;
        if (port == 0) { /* a second one would get another port */
            break;
        }
    }
    freeaddrinfo(found);
    if (opened == 0) {
        return mo_fail(err, MO_EIO, "cannot listen on %s port %d: %s%s", all ? "*" : host, port,
                       strerror(why), why == EADDRINUSE ? "; choose another port" : "");
    }
    return MO_OK;
}

/* Is there a socket file without a listener? */
static bool is_left_over(const struct sockaddr_un *address)
{
    struct stat file;
    if (lstat(address->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) {
        return false;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                         errno == ECONNREFUSED;
    if (fd >= 0) {
        close(fd);
    }
    return refused;
}

mo_status srv_sockets_unix(const char *path, srv_socket *list, int *count, mo_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return mo_fail(err, MO_EIO, "%s: the path of a unix socket can have at most %zu characters", path,
                       sizeof address.sun_path - 1);
    }
    if (*count == SRV_SOCKETS) {
        return mo_fail(err, MO_EIO, "too many sockets");
    }
    memcpy(address.sun_path, path, strlen(path));
    if (is_left_over(&address)) {
        unlink(path);
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t before = umask(0177);
    const bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    const int why = errno;
    umask(before);
    if (!bound || listen(fd, BACKLOG) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return mo_fail(err, MO_EIO, "%s: %s", path, strerror(bound ? errno : why));
    }
    srv_socket *s = &list[(*count)++];
    *s = (srv_socket){.fd = fd};
    describe(s, false);
    memcpy(s->path, path, strlen(path) + 1);
    return MO_OK;
}

mo_status srv_sockets_inherited(bool tls, srv_socket *list, int *count, mo_error *err)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || strtol(pid, NULL, 10) != (long)getpid()) {
        return MO_OK;
    }
    const long given = strtol(fds, NULL, 10);
    unsetenv("LISTEN_PID"); /* not for programs that we start */
    unsetenv("LISTEN_FDS");
    for (int fd = FIRST_INHERITED; fd < FIRST_INHERITED + given; fd++) {
        int listens = 0;
        socklen_t length = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens) {
            return mo_fail(err, MO_EIO, "descriptor %d of LISTEN_FDS is not a listening socket", fd);
        }
        if (*count == SRV_SOCKETS) {
            return mo_fail(err, MO_EIO, "LISTEN_FDS has too many sockets");
        }
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        list[*count] = (srv_socket){.fd = fd, .inherited = true};
        describe(&list[(*count)++], tls);
    }
    return MO_OK;
}

void srv_sockets_end(srv_socket *list, int count)
{
    for (int i = 0; i < count; i++) {
        if (list[i].fd >= 0 && !list[i].inherited) {
            shutdown(list[i].fd, SHUT_RDWR);
        }
        if (list[i].path[0]) {
            unlink(list[i].path);
            list[i].path[0] = '\0';
        }
    }
}

void srv_sockets_close(srv_socket *list, int count)
{
    srv_sockets_end(list, count);
    for (int i = 0; i < count; i++) {
        if (list[i].fd >= 0) {
            close(list[i].fd);
            list[i].fd = -1;
        }
    }
}

void srv_systemd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof address.sun_path) {
        return;
    }
    memcpy(address.sun_path, path, strlen(path));
    if (*path == '@') { /* a name that is no file */
        address.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
        const ssize_t sent =
            sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, length);
        (void)sent; /* there may be no reader: then do not wait */
        close(fd);
    }
}
