#include "server/requests/fetch.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/status.h"

/* ---- Addresses ---- */

static const uint8_t translated[16] = {0x00, 0x64, 0xFF, 0x9B}; /* of IPv4, for networks without it */

typedef struct block4 {
    uint8_t start[4];
    int bits;
} block4;

static bool starts_with(const uint8_t *address, const uint8_t *start, int bits)
{
    const uint8_t rest = (uint8_t)(0xFF00 >> bits % 8);
    return memcmp(address, start, (size_t)bits / 8) == 0 &&
           (bits % 8 == 0 || (address[bits / 8] & rest) == (start[bits / 8] & rest));
}

static bool is_public4(const uint8_t *address)
{
    static const block4 others[] = {
        {{0}, 8},                 /* this network */
        {{10}, 8},                /* private */
        {{100, 64}, 10},          /* shared by a provider's customers */
        {{127}, 8},               /* this machine */
        {{168, 63, 129, 16}, 32}, /* a cloud's own service for its machines */
        {{169, 254}, 16},         /* link-local, where clouds tell machines their secrets */
        {{172, 16}, 12},          /* private */
        {{192, 0, 0}, 24},        /* protocols */
        {{192, 0, 2}, 24},        /* documentation */
        {{192, 88, 99}, 24},      /* relays to IPv6 */
        {{192, 168}, 16},         /* private */
        {{198, 18}, 15},          /* measurements */
        {{198, 51, 100}, 24},     /* documentation */
        {{203, 0, 113}, 24},      /* documentation */
        {{224}, 4},
        {{240}, 4} /* groups, reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (starts_with(address, others[i].start, others[i].bits)) {
            return false;
        }
    }
    return true;
}

static bool is_public6(const uint8_t *address)
{
    static const uint8_t global[16] = {0x20}, protocols[16] = {0x20, 0x01},
                         documents[16] = {0x20, 0x01, 0x0D, 0xB8}, new_documents[16] = {0x3F, 0xFF},
                         wrapped[16] = {0x20, 0x02};
    return starts_with(address, global, 3) && !starts_with(address, protocols, 23) &&
           !starts_with(address, documents, 32) && !starts_with(address, new_documents, 20) &&
           !starts_with(address, wrapped, 16); /* an IPv4 address is in it */
}

/* The bytes of an address, and how many there are: 4 also of one of IPv4 that is in one of IPv6; 0: it is of neither. */
static size_t bytes_of(const struct sockaddr *address, uint8_t *bytes)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        memcpy(bytes, &in.sin_addr, 4);
        return 4;
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, address, sizeof in);
        memcpy(bytes, &in.sin6_addr, 16);
        if (starts_with(bytes, translated, 96)) {
            memmove(bytes, bytes + 12, 4);
            return 4;
        }
        return 16;
    }
    return 0;
}

bool srv_address_among(const struct sockaddr *address, const struct ifaddrs *list)
{
    uint8_t bytes[16], other[16];
    const size_t size = bytes_of(address, bytes);
    for (; list; list = list->ifa_next) {
        if (size > 0 && list->ifa_addr && bytes_of(list->ifa_addr, other) == size &&
            memcmp(bytes, other, size) == 0) {
            return true;
        }
    }
    return false;
}

/* Also where that cannot be told. */
static bool is_of_this_machine(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) {
        return true;
    }
    const bool own = srv_address_among(address, list);
    freeifaddrs(list);
    return own;
}

bool srv_address_public(const struct sockaddr *address)
{
    uint8_t bytes[16];
    const size_t size = bytes_of(address, bytes);
    return (size == 4 ? is_public4(bytes) : size == 16 && is_public6(bytes)) && !is_of_this_machine(address);
}

#ifdef MO_PULL

#include <curl/curl.h>

/* ---- One answer ---- */

enum { URL_MOST = 8192, REDIRECTS_MOST = 3, FETCHES_MOST = 8, CONNECT_S = 5, CALL_STEPS = 1 << 20 };

typedef struct answer {
    const srv_fetch_options *o;
    uint8_t *bytes;
    size_t size, space;
    bool refused, too_large, no_memory, cancelled;
} answer;

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    answer *a = user;
    if (purpose != CURLSOCKTYPE_IPCXN || !a->o->allowed(&address->addr)) {
        a->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_body(char *data, size_t one, size_t count, void *user)
{
    answer *a = user;
    const size_t more = one * count;
    if (more > a->o->bytes_most - a->size) {
        a->too_large = true;
        return 0;
    }
    if (a->size + more > a->space) {
        const size_t space = 2 * (a->size + more);
        uint8_t *bytes = realloc(a->bytes, space);
        if (!bytes) {
            a->no_memory = true;
            return 0;
        }
        a->bytes = bytes;
        a->space = space;
    }
    memcpy(a->bytes + a->size, data, more);
    a->size += more;
    return more;
}

/* Is called about once a second while nothing comes. */
static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    answer *a = user;
    (void)total;
    (void)now;
    (void)up_total;
    (void)up_now;
    a->cancelled = a->cancelled || mo_interrupted(CALL_STEPS);
    return a->cancelled;
}

static mo_status why(const answer *a, CURLcode code, mo_error *err)
{
    if (a->cancelled) {
        return mo_interrupt_fail(err);
    }
    if (a->too_large || code == CURLE_FILESIZE_EXCEEDED) {
        return mo_fail(err, MO_ENOSPC, "it is larger than %zu MB", a->o->bytes_most >> 20);
    }
    if (a->no_memory || code == CURLE_OUT_OF_MEMORY) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a picture");
    }
    if (a->refused) {
        return mo_fail(err, MO_EINVAL,
                       "its address is of this machine or a private network, from which nothing is fetched");
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
        return mo_fail(err, MO_EIO, "it took longer than %.0f seconds", a->o->seconds);
    }
    return mo_fail(err, MO_EIO, "%s", curl_easy_strerror(code));
}

/* The address of a redirect on the same host, in place of the one of `at`. */
static mo_status follow(CURL *handle, CURLU *at, mo_error *err)
{
    char *next = NULL, *host = NULL, *other = NULL, *scheme = NULL, *before = NULL;
    CURLU *to = curl_url();
    mo_status s = MO_OK;
    curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &next);
    if (!to || !next || curl_url_set(to, CURLUPART_URL, next, CURLU_DISALLOW_USER) != CURLUE_OK ||
        curl_url_get(at, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(to, CURLUPART_HOST, &other, 0) != CURLUE_OK ||
        curl_url_get(at, CURLUPART_SCHEME, &before, 0) != CURLUE_OK ||
        curl_url_get(to, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) {
        s = mo_fail(err, MO_EIO, "it is redirected to no address that can be fetched");
    } else if (strcasecmp(host, other) != 0) {
        s = mo_fail(err, MO_EINVAL, "it is redirected to another host, %s, which is not followed", other);
    } else if (strcasecmp(before, "https") == 0 && strcasecmp(scheme, "https") != 0) {
        s = mo_fail(err, MO_EINVAL, "it is redirected from https to %s, which is not followed", scheme);
    } else if (curl_url_set(at, CURLUPART_URL, next, CURLU_DISALLOW_USER) != CURLUE_OK) {
        s = mo_fail(err, MO_ENOMEM, "out of memory for a picture");
    }
    curl_free(host);
    curl_free(other);
    curl_free(scheme);
    curl_free(before);
    curl_url_cleanup(to);
    return s;
}

static void set_options(CURL *h, CURLU *at, answer *a, double seconds)
{
    curl_easy_reset(h);
    curl_easy_setopt(h, CURLOPT_CURLU, at);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_PROXY, ""); /* its address would be the one that is checked */
    curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* a name that takes long to resolve is not waited for */
#endif
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(h, CURLOPT_XFERINFODATA, a);
    curl_easy_setopt(h, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(1000 * seconds) + 1);
    curl_easy_setopt(h, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)a->o->bytes_most);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "moraine/" MO_VERSION);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, a);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
}

/* ---- All of it ---- */

static mo_status fetch(CURL *handle, CURLU *at, answer *a, mo_error *err)
{
    const double until = mo_clock_s() + a->o->seconds;
    for (int redirects = 0;; redirects++) {
        const double left = until - mo_clock_s();
        long status = 0;
        a->size = 0;
        set_options(handle, at, a, left > 0 ? left : 0);
        const CURLcode code = curl_easy_perform(handle);
        if (code != CURLE_OK) {
            return why(a, code, err);
        }
        curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200) {
            return MO_OK;
        }
        if (status < 300 || status >= 400 || status == 304) {
            return mo_fail(err, MO_EIO, "its server answered with status %ld", status);
        }
        if (redirects == REDIRECTS_MOST) {
            return mo_fail(err, MO_EIO, "it is redirected more than %d times", REDIRECTS_MOST);
        }
        const mo_status s = follow(handle, at, err);
        if (s != MO_OK) {
            return s;
        }
    }
}

static void begin(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

bool srv_fetch_supported(void)
{
    return true;
}

/* The parts of a URL, which must be one of http or https without a user's name. */
static mo_status parse(const char *url, size_t length, CURLU *at, mo_error *err)
{
    char text[URL_MOST + 1], *scheme = NULL;
    if (length > URL_MOST || memchr(url, '\0', length)) {
        return mo_fail(err, MO_EINVAL, "the address is longer than %d bytes or not a text", URL_MOST);
    }
    memcpy(text, url, length);
    text[length] = '\0';
    const CURLUcode code = curl_url_set(at, CURLUPART_URL, text, CURLU_DISALLOW_USER);
    if (code != CURLUE_OK || curl_url_get(at, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) {
        return mo_fail(err, MO_EINVAL,
                       code == CURLUE_USER_NOT_ALLOWED ? "the address has a user's name, which is not sent"
                                                       : "the address is not a URL");
    }
    const bool good = strcasecmp(scheme, "http") == 0 || strcasecmp(scheme, "https") == 0;
    curl_free(scheme);
    return good ? MO_OK : mo_fail(err, MO_EINVAL, "only http and https addresses are fetched");
}

mo_status srv_fetch(const char *url, size_t length, const srv_fetch_options *options, uint8_t **bytes,
                    size_t *size, bool *busy, mo_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_int running;
    answer a = {.o = options};
    *bytes = NULL;
    *size = 0;
    *busy = false;
    pthread_once(&once, begin);
    if (atomic_fetch_add(&running, 1) >= FETCHES_MOST) { /* those that wait are threads that others need */
        atomic_fetch_sub(&running, 1);
        *busy = true;
        return mo_fail(err, MO_EIO, "too many pictures are being fetched; try again later");
    }
    CURLU *at = curl_url();
    CURL *handle = curl_easy_init();
    mo_status s =
        at && handle ? parse(url, length, at, err) : mo_fail(err, MO_ENOMEM, "out of memory for a picture");
    s = s == MO_OK ? fetch(handle, at, &a, err) : s;
    curl_easy_cleanup(handle);
    curl_url_cleanup(at);
    atomic_fetch_sub(&running, 1);
    if (s != MO_OK) {
        free(a.bytes);
        return s;
    }
    *bytes = a.bytes;
    *size = a.size;
    return MO_OK;
}

#else

bool srv_fetch_supported(void)
{
    return false;
}

mo_status srv_fetch(const char *url, size_t length, const srv_fetch_options *options, uint8_t **bytes,
                    size_t *size, bool *busy, mo_error *err)
{
    (void)url;
    (void)length;
    (void)options;
    *bytes = NULL;
    *size = 0;
    *busy = false;
    return mo_fail(err, MO_EUNSUPPORTED, "this program was built without libcurl");
}

#endif
