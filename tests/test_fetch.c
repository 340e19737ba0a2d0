/* Pictures from other servers: which addresses are everybody's, and what is fetched from a server that redirects, dawdles and sends too much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "moraine_server.h"
#include "server/requests/pictures.h"

/* ---- Addresses ---- */

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
        six->sin6_family = AF_INET6;
    }
    return address;
}

static bool is_public(const char *text)
{
    const struct sockaddr_storage address = address_of(text);
    return srv_address_public((const struct sockaddr *)&address);
}

static void only_public_addresses_are_allowed(void **state)
{
    static const char *const good[] = {
        "1.1.1.1",          "8.8.8.8",    "9.255.255.255", "11.0.0.0",      "100.63.255.255",  "100.128.0.0",
        "126.1.2.3",        "128.0.0.1",  "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0",
        "172.15.255.255",   "172.32.0.0", "192.167.1.1",   "192.169.0.0",   "198.17.255.255",  "198.20.0.0",
        "223.255.255.255",  "192.0.1.1",  "2606:4700::11", "2a00:1450::1",  "2001:200::1",     "2400:cb00::",
        "64:ff9b::8.8.8.8", "3ffe::1",
    };
    static const char *const bad[] = {
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.1.2",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.1.2.3",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:8.8.8.8",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "2002:7f00:1::",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::168.63.129.16",
        "64:ff9b:1::8.8.8.8",
        "3fff::1",
        "100::1",
        "4000::1",
    };
    const struct sockaddr local = {.sa_family = AF_UNIX};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!is_public(good[i])) {
            fail_msg("%s is public", good[i]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (is_public(bad[i])) {
            fail_msg("%s is not public", bad[i]);
        }
    }
    assert_false(srv_address_public(&local));
}

static void addresses_of_this_machine_are_known(void **state)
{
    struct sockaddr_storage four = address_of("8.8.8.8"), six = address_of("2606:4700::11");
    struct ifaddrs list[3] = {{.ifa_next = &list[1]},
                              {.ifa_next = &list[2], .ifa_addr = (struct sockaddr *)&four},
                              {.ifa_addr = (struct sockaddr *)&six}};
    static const char *const own[] = {"8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700::11"}, *const others[] = {
                                                                                           "8.8.8.9",
                                                                                           "64:ff9b::8.8.8.9",
                                                                                           "2606:4700::12",
                                                                                           "808:808::"};
    const struct sockaddr local = {.sa_family = AF_UNIX};
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const struct sockaddr_storage address = address_of(own[i]);
        assert_true(srv_address_among((const struct sockaddr *)&address, list));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct sockaddr_storage address = address_of(others[i]);
        assert_false(srv_address_among((const struct sockaddr *)&address, list));
    }
    assert_false(srv_address_among(&local, list));
    struct ifaddrs *real = NULL;
    assert_int_equal(getifaddrs(&real), 0);
    for (const struct ifaddrs *at = real; at; at = at->ifa_next) {
        assert_false(at->ifa_addr && srv_address_public(at->ifa_addr));
    }
    freeifaddrs(real);
}

#ifdef MO_PULL

/* ---- A server ---- */

static int listening, silent; /* the second one never answers */
static int port, silent_port;
static pthread_t thread;
static atomic_int connections;

static void write_all(int to, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t n = send(to, text, length, MSG_NOSIGNAL);
        if (n <= 0) {
            return;
        }
        text += n;
        length -= (size_t)n;
    }
}

static void redirect(int to, const char *where)
{
    char text[512];
    snprintf(text, sizeof text, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", where);
    write_all(to, text, strlen(text));
}

static void answer(int to, const char *path)
{
    char text[256], *much = calloc(1, 1 << 16);
    assert_non_null(much);
    if (strcmp(path, "/ok") == 0) {
        write_all(to, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nGIF8", 42);
    } else if (strcmp(path, "/empty") == 0) {
        write_all(to, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
    } else if (strcmp(path, "/slow") == 0) {
        usleep(1500000);
    } else if (strcmp(path, "/declared") == 0) {
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 1 << 30);
        write_all(to, text, strlen(text));
    } else if (strcmp(path, "/endless") == 0) {
        write_all(to, "HTTP/1.1 200 OK\r\n\r\n", 19);
        for (int i = 0; i < 64; i++) {
            write_all(to, much, 1 << 16);
        }
    } else if (strcmp(path, "/cut") == 0) {
        write_all(to, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nGIF8", 42);
    } else if (strcmp(path, "/here") == 0) {
        redirect(to, "/ok");
    } else if (strcmp(path, "/loop") == 0) {
        redirect(to, "/loop");
    } else if (strcmp(path, "/nowhere") == 0) {
        redirect(to, "");
    } else if (strcmp(path, "/file") == 0) {
        redirect(to, "file:///etc/passwd");
    } else if (strcmp(path, "/private") == 0) {
        redirect(to, "http://10.0.0.1/x.png");
    } else if (strcmp(path, "/host") == 0) {
        snprintf(text, sizeof text, "http://localhost:%d/ok", port);
        redirect(to, text);
    } else {
        write_all(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nGIF8", 49);
    }
    free(much);
}

static void *serve(void *user)
{
    (void)user;
    for (int client; (client = accept(listening, NULL, NULL)) >= 0;) {
        char text[2048], path[64] = "";
        const ssize_t n = recv(client, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        atomic_fetch_add(&connections, 1);
        sscanf(text, "GET %63s", path);
        answer(client, path);
        close(client);
    }
    return NULL;
}

/* The socket; its port in *at. */
static int listen_at(int *at)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(s, (struct sockaddr *)&address, sizeof address) != 0 || listen(s, 64) != 0 ||
        getsockname(s, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    *at = ntohs(address.sin_port);
    return s;
}

static int start(void **state)
{
    (void)state;
    listening = listen_at(&port);
    silent = listen_at(&silent_port);
    return listening < 0 || silent < 0 ? -1 : pthread_create(&thread, NULL, serve, NULL);
}

static int stop(void **state)
{
    (void)state;
    shutdown(listening, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(silent);
    return close(listening);
}

/* ---- Fetching ---- */

/* What a test allows, which no server does. */
static bool is_here(const struct sockaddr *address)
{
    struct sockaddr_in in;
    memcpy(&in, address, sizeof in);
    return address->sa_family == AF_INET && in.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

static mo_status fetch(srv_address_rule allowed, const char *url, mo_error *err)
{
    const srv_fetch_options o = {.allowed = allowed, .bytes_most = 1 << 20, .seconds = 0.7};
    uint8_t *bytes;
    size_t size;
    bool busy = true;
    const mo_status s = srv_fetch(url, strlen(url), &o, &bytes, &size, &busy, err);
    assert_false(busy);
    if (s == MO_OK) {
        assert_int_equal(size, 4);
        assert_memory_equal(bytes, "GIF8", 4);
    } else {
        assert_null(bytes);
    }
    free(bytes);
    return s;
}

static const char *url_of(const char *path)
{
    static char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    return url;
}

static void files_are_fetched_within_limits(void **state)
{
    static const struct {
        const char *path;
        mo_status status;
        const char *words;
    } cases[] = {
        {"/ok", MO_OK, ""},
        {"/here", MO_OK, ""},
        {"/absent", MO_EIO, "status 404"},
        {"/loop", MO_EIO, "more than 3 times"},
        {"/nowhere", MO_EIO, "no address"},
        {"/file", MO_EIO, "no address"},
        {"/private", MO_EINVAL, "another host, 10.0.0.1"},
        {"/host", MO_EINVAL, "another host, localhost"},
        {"/declared", MO_ENOSPC, "larger than 1 MB"},
        {"/endless", MO_ENOSPC, "larger than 1 MB"},
        {"/cut", MO_EIO, ""},
        {"/slow", MO_EIO, "longer than"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_error err = {0};
        const double began = mo_clock_s();
        const mo_status s = fetch(is_here, url_of(cases[i].path), &err);
        if (s != cases[i].status) {
            fail_msg("%s: %d, %s", cases[i].path, (int)s, err.detail);
        }
        check_says(&err, cases[i].words);
        assert_true(mo_clock_s() - began < 30);
    }
}

static void others_are_not_asked(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0.0.0.0"};
    static const char *const bad[] = {
        "file:///etc/passwd", "ftp://example.com/a.png",     "gopher://127.0.0.1/", "http://",
        "/etc/passwd",        "http://user:pw@127.0.0.1/ok", "http:// a/",          ""};
    (void)state;
    const int before = atomic_load(&connections);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        mo_error err = {0};
        char url[256];
        snprintf(url, sizeof url, "http://%s:%d/ok", hosts[i], port);
        const mo_status s = fetch(srv_address_public, url, &err);
        if (s != MO_EINVAL) {
            fail_msg("%s: %d, %s", url, (int)s, err.detail);
        }
        check_says(&err, "private network");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mo_error err = {0};
        const mo_status s = fetch(is_here, bad[i], &err);
        if (s != MO_EINVAL) {
            fail_msg("%s: %d, %s", bad[i], (int)s, err.detail);
        }
    }
    assert_int_equal(setenv("http_proxy", url_of(""), 1), 0); /* which would be asked instead */
    mo_error err = {0};
    assert_int_equal(fetch(srv_address_public, "http://127.0.0.1:1/ok", &err), MO_EINVAL);
    unsetenv("http_proxy");
    assert_int_equal(atomic_load(&connections), before);
}

static bool after_one_question(void *user)
{
    int *asked = user;
    return ++*asked > 1;
}

static void fetching_ends_when_nobody_wants_it(void **state)
{
    const srv_fetch_options o = {.allowed = is_here, .bytes_most = 1 << 20, .seconds = 60};
    char url[64];
    uint8_t *bytes;
    size_t size;
    bool busy;
    mo_error err = {0};
    int asked = 0;
    (void)state;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", silent_port);
    const double began = mo_clock_s();
    mo_interrupt_set(after_one_question, &asked);
    const mo_status s = srv_fetch(url, strlen(url), &o, &bytes, &size, &busy, &err);
    mo_interrupt_set(NULL, NULL);
    assert_int_equal(s, MO_ECANCELLED);
    assert_null(bytes);
    assert_true(mo_clock_s() - began < 30);
}

/* ---- In requests ---- */

static void *add_silent(void *user)
{
    srv_fault *fault = user;
    const srv_field root = srv_field_root(NULL, fault);
    srv_pictures p = {.accepted = true, .fetched = is_here, .fetch_until = mo_clock_s() + 1};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", silent_port);
    srv_pictures_add_url(&p, &root, (mo_text){url, strlen(url)});
    srv_pictures_free(&p);
    return NULL;
}

static void too_many_at_once_are_to_be_tried_again(void **state)
{
    enum { THREADS = 24 };
    static srv_fault faults[THREADS];
    pthread_t threads[THREADS];
    int busy = 0;
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_silent, &faults[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        busy += faults[i].kind == SRV_FAULT_QUEUE;
        assert_true(faults[i].kind == SRV_FAULT_QUEUE || faults[i].kind == SRV_FAULT_REQUEST);
        assert_non_null(
            strstr(faults[i].message, faults[i].kind == SRV_FAULT_QUEUE ? "try again later" : "longer than"));
    }
    assert_in_range(busy, 1, THREADS - 8);
}

static void all_of_a_request_have_a_limit(void **state)
{
    srv_fault fault = {0};
    const srv_field root = srv_field_root(NULL, &fault);
    srv_pictures p = {.accepted = true, .fetched = is_here};
    const char *url = url_of("/ok");
    (void)state;
    assert_true(srv_pictures_add_url(&p, &root, (mo_text){url, strlen(url)}));
    assert_int_equal(p.fetched_bytes, 4);
    for (int left = 0; left < 4; left++) {
        const int before = atomic_load(&connections);
        p.fetched_bytes = (64 << 20) - (size_t)left;
        fault.kind = SRV_FAULT_NONE;
        assert_false(srv_pictures_add_url(&p, &root, (mo_text){url, strlen(url)}));
        assert_int_equal(fault.kind, SRV_FAULT_TOO_LARGE);
        assert_non_null(strstr(fault.message, "larger than 64 MB"));
        assert_int_equal(atomic_load(&connections) - before, left > 0);
    }
    p.fetched_bytes = (64 << 20) - 4;
    assert_true(srv_pictures_add_url(&p, &root, (mo_text){url, strlen(url)}));
    srv_pictures_free(&p);
}

static void requests_have_remote_pictures_where_that_is_switched_on(void **state)
{
    srv_fault fault = {0};
    const srv_field root = srv_field_root(NULL, &fault);
    const char *url = url_of("/here");
    (void)state;
    srv_pictures off = {.accepted = true}, on = {.accepted = true, .fetched = is_here},
                 real = {.accepted = true, .fetched = srv_address_public};
    assert_false(srv_pictures_add_url(&off, &root, (mo_text){url, strlen(url)}));
    assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    assert_non_null(strstr(fault.message, "not fetched"));
    assert_true(srv_pictures_add_url(&on, &root, (mo_text){url, strlen(url)}));
    assert_true(srv_pictures_add_remote(&on, &root, (mo_text){url, strlen(url)}));
    assert_int_equal(on.count, 2);
    assert_memory_equal(on.list[0].bytes, "GIF8", 4);
    assert_false(srv_pictures_add_remote(&on, &root, (mo_text){"R0lGOA==", 8}));
    assert_false(srv_pictures_add_data(&on, &root, (mo_text){url, strlen(url)}));
    assert_non_null(strstr(fault.message, "not fetched here"));
    url = url_of("/empty");
    assert_false(srv_pictures_add_url(&on, &root, (mo_text){url, strlen(url)}));
    assert_non_null(strstr(fault.message, "empty"));
    url = url_of("/endless");
    assert_true(srv_pictures_add_url(&on, &root, (mo_text){url, strlen(url)})); /* 4 MB */
    on.fetch_until = 1;                                                         /* all time is used */
    assert_false(srv_pictures_add_url(&on, &root, (mo_text){url, strlen(url)}));
    assert_non_null(strstr(fault.message, "30 seconds"));
    assert_false(srv_pictures_add_url(&real, &root, (mo_text){url, strlen(url)}));
    assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    assert_non_null(strstr(fault.message, "private network"));
    assert_int_equal(on.count, 3);
    assert_int_equal(off.count + real.count, 0);
    srv_pictures_free(&off);
    srv_pictures_free(&on);
    srv_pictures_free(&real);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_public_addresses_are_allowed),
        cmocka_unit_test(addresses_of_this_machine_are_known),
#ifdef MO_PULL
        cmocka_unit_test(files_are_fetched_within_limits),
        cmocka_unit_test(others_are_not_asked),
        cmocka_unit_test(fetching_ends_when_nobody_wants_it),
        cmocka_unit_test(too_many_at_once_are_to_be_tried_again),
        cmocka_unit_test(all_of_a_request_have_a_limit),
        cmocka_unit_test(requests_have_remote_pictures_where_that_is_switched_on),
#endif
    };
#ifdef MO_PULL
    return cmocka_run_group_tests(tests, start, stop);
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
