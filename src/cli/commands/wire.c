#include "cli/commands/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/signals.h"

enum { BODY_MAX = 32 << 20 };
#define ANSWER_S  30.0  /* without data while an answer is expected */
#define CONNECT_S 300.0 /* the kernel gives up earlier, with a reason */

bool cli_url_read(const char *text, cli_url *out)
{
    char whole[512], *scheme = NULL, *host = NULL, *port = NULL, *path = NULL;
    CURLU *u = curl_url();
    snprintf(whole, sizeof whole, "%s%s", strstr(text, "://") ? "" : "http://", text);
    bool ok = u && curl_url_set(u, CURLUPART_URL, whole, CURLU_DISALLOW_USER) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK && strcmp(scheme, "http") == 0 &&
              curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PATH, &path, 0) == CURLUE_OK;
    if (ok) {
        size_t length = strlen(path);
        length -= path[length - 1] == '/';
        const int server = snprintf(out->server, sizeof out->server, "http://%s:%s", host, port);
        const int prefix = snprintf(out->prefix, sizeof out->prefix, "%.*s", (int)length, path);
        ok = server < (int)sizeof out->server && prefix < (int)sizeof out->prefix;
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_url_cleanup(u);
    return ok;
}

static size_t on_body(char *bytes, size_t one, size_t count, void *user)
{
    cli_wire *w = user;
    const size_t n = one * count;
    long status = 0;
    if (n >= BODY_MAX - w->body.length || !mo_bytes_reserve(&w->body, n)) {
        return 0; /* aborts the request */
    }
    mo_bytes_add(&w->body, bytes, n);
    curl_easy_getinfo(w->handle, CURLINFO_RESPONSE_CODE, &status);
    w->status = (int)status;
    return n;
}

bool cli_wire_open(cli_wire *w, CURLM *all, const char *command, const cli_url *url, const char *path,
                   const char *key, const char *body)
{
    static struct curl_slist fields[] = {{"Content-Type: application/json", fields + 1},
                                         {"Connection: close", fields + 2},
                                         {"Expect:", NULL}}; /* send long prompts at once */
    char address[sizeof *url + 64];
    snprintf(address, sizeof address, "%s%s%s", url->server, url->prefix, path);
    *w = (cli_wire){.all = all, .handle = curl_easy_init()};
    CURL *h = w->handle;
    bool ok = h && curl_easy_setopt(h, CURLOPT_URL, address) == CURLE_OK;
    if (ok) {
        curl_easy_setopt(h, CURLOPT_PRIVATE, w);
        curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(h, CURLOPT_PROXY, "");
        curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(h, CURLOPT_FORBID_REUSE, 1L);
        curl_easy_setopt(h, CURLOPT_HTTPHEADER, fields);
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, w);
        if (key) {
            curl_easy_setopt(h, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
            ok = curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, key) == CURLE_OK;
        }
        if (body) {
            ok = ok && curl_easy_setopt(h, CURLOPT_COPYPOSTFIELDS, body) == CURLE_OK;
        }
    }
    if (!ok || curl_multi_add_handle(all, h) != CURLM_OK) {
        fprintf(stderr, "moraine %s: out of memory\n", command);
        cli_wire_close(w);
        return false;
    }
    return true;
}

void cli_wire_close(cli_wire *w)
{
    if (w->handle) {
        curl_multi_remove_handle(w->all, w->handle);
        curl_easy_cleanup(w->handle);
    }
    mo_bytes_free(&w->body);
    *w = (cli_wire){0};
}

bool cli_wires_go(CURLM *all, double silence_s)
{
    const double until = mo_clock_s() + silence_s;
    int running, left, events = 0, ended = 0;
    for (double rest = silence_s; rest > 0 && !events && !ended && !cli_interrupted();
         rest = until - mo_clock_s()) { /* libcurl has its own timers, and a signal ends a wait */
        if (curl_multi_poll(all, NULL, 0, (int)(rest * 1e3) + 1, &events) != CURLM_OK ||
            curl_multi_perform(all, &running) != CURLM_OK) {
            return false;
        }
        for (const CURLMsg *m; (m = curl_multi_info_read(all, &left)); ended++) {
            cli_wire *w = NULL;
            long status = 0;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&w);
            curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
            w->status = (int)status;
            w->result = m->data.result;
            w->over = true;
        }
    }
    return events || ended;
}

const char *cli_wire_whole(cli_wire *w)
{
    while (!w->over) {
        curl_off_t connected = 0;
        curl_easy_getinfo(w->handle, CURLINFO_CONNECT_TIME_T, &connected);
        if (!cli_wires_go(w->all, connected ? ANSWER_S : CONNECT_S)) {
            return NULL;
        }
    }
    return w->result != CURLE_OK ? NULL : mo_bytes_text(&w->body).data;
}

bool cli_wire_reached(const cli_wire *w, const char *command, const cli_url *url)
{
    const bool unknown = w->result == CURLE_COULDNT_RESOLVE_HOST;
    long why = EHOSTUNREACH;
    if (!unknown && w->result != CURLE_COULDNT_CONNECT) {
        return true;
    }
    if (!unknown) {
        curl_easy_getinfo(w->handle, CURLINFO_OS_ERRNO, &why);
    }
    fprintf(stderr, "moraine %s: cannot connect to %s: %s\n", command, url->server, strerror((int)why));
    return false;
}

char *cli_wire_line(cli_wire *w)
{
    char *body = w->body.data, *end = body ? memchr(body, '\n', w->body.length) : NULL;
    if (!end) {
        return NULL;
    }
    const size_t length = (size_t)(end - body), used = length + 1;
    char *line = strndup(body, length);
    memmove(body, body + used, w->body.length - used + 1);
    w->body.length -= used;
    if (line && length > 0 && line[length - 1] == '\r') {
        line[length - 1] = '\0';
    }
    return line;
}
