#include "hub/download.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"

enum { LANES_MAX = 16 };

#define SAVE_S        5.0
#define HASH_BYTES    ((int64_t)16 << 20) /* between checks of the network: about ten milliseconds */
#define GOOD_PROGRESS ((int64_t)16 << 10) /* a request that fetched this much resets the count of failures */

typedef struct download download;

/* A connection and the range it fetches. After a failure the lane continues its range where it stopped. */
typedef struct lane {
    download *all;
    CURL *handle; /* NULL: idle */
    hub_answer answer;
    int64_t begin, at, to; /* begin < 0: no range */
    bool seen;             /* the headers were checked */
    bool stop;             /* and rejected: */
    bool no_ranges;        /* because the whole file arrived instead of a range; not a failure */
    hub_verdict verdict;
    mo_error wrong;
} lane;

struct download {
    const hub_web *web;
    const hub_download_options *o;
    hub_partial *partial;
    CURLM *multi;
    lane lanes[LANES_MAX];
    bool whole;   /* the server does not support ranges: one lane fetches everything */
    int failures; /* consecutive */
    int64_t got, got_at_failure;
    int64_t furthest; /* of a whole file: bytes received again are not progress */
    double not_before, saved_at;
    mo_error *err;
};

/* ---- Receiving ---- */

/* Rejects the server's answer and ends the lane's request. */
static bool refuse(lane *l, hub_verdict verdict, mo_status status, const char *what)
{
    l->stop = true;
    l->verdict = verdict;
    mo_fail(&l->wrong, status, "%s %s", l->all->o->url, what);
    return false;
}

/* Are these the requested bytes of the same file? */
static bool check_headers(lane *l)
{
    download *d = l->all;
    const hub_answer *a = &l->answer;
    if (a->html) {
        return refuse(l, HUB_NEVER, MO_EFORMAT, "is an HTML page, not a model");
    }
    if ((d->o->etag[0] && strcmp(a->etag, d->o->etag) != 0) ||
        (d->o->linked[0] && a->linked_etag[0] && strcmp(a->linked_etag, d->o->linked) != 0)) {
        return refuse(l, HUB_NEVER, MO_EFORMAT, "changed during the download; pull again");
    }
    if (a->linked_size >= 0 && a->linked_size != d->o->bytes) {
        return refuse(l, HUB_NEVER, MO_EFORMAT, "has another size than announced; pull again");
    }
    if (a->code == 206) {
        if (a->total >= 0 && a->total != d->o->bytes) {
            return refuse(l, HUB_NEVER, MO_EFORMAT, "has another size than announced; pull again");
        }
        return (a->from == l->at && a->to < l->to) ||
               refuse(l, HUB_AGAIN, MO_EIO, "sent other bytes than requested");
    }
    if (a->length >= 0 && a->length != d->o->bytes) {
        return refuse(l, HUB_NEVER, MO_EFORMAT, "has another size than announced; pull again");
    }
    if (!d->whole || l->at != 0) { /* one lane starts again when the others have ended */
        d->whole = l->no_ranges = true;
        return refuse(l, HUB_AGAIN, MO_EIO, "sent the whole file instead of the requested part");
    }
    return true;
}

/* n bytes have arrived, up to `at`. */
static void count_progress(download *d, int64_t at, int64_t n)
{
    if (d->whole) {
        n = at > d->furthest ? at - d->furthest : 0;
        d->furthest += n;
    }
    d->got += n;
}

static size_t on_body(char *bytes, size_t one, size_t count, void *user)
{
    lane *l = user;
    const size_t n = one * count;
    if (l->answer.code != 200 && l->answer.code != 206) {
        return n; /* the page of an error */
    }
    if (!l->seen && !check_headers(l)) {
        return 0;
    }
    l->seen = true;
    if ((int64_t)n > l->to - l->at) {
        refuse(l, HUB_AGAIN, MO_EIO, "sent more bytes than requested");
        return 0;
    }
    const mo_status s = hub_partial_write(l->all->partial, l->at, bytes, n, &l->wrong);
    if (s != MO_OK) {
        l->stop = true;
        l->verdict = HUB_NEVER;
        return 0;
    }
    l->at += (int64_t)n;
    count_progress(l->all, l->at, (int64_t)n);
    return n;
}

/* ---- Lanes ---- */

static bool is_taken(const download *d, int64_t piece)
{
    for (int i = 0; i < LANES_MAX; i++) {
        if (d->lanes[i].begin == piece) {
            return true;
        }
    }
    return false;
}

/* Gives the lane the next piece that is missing and not assigned. */
static bool take_piece(download *d, lane *l)
{
    const int64_t size = hub_partial_piece(d->partial);
    int64_t at = hub_partial_missing(d->partial, 0);
    while (at >= 0 && is_taken(d, at)) {
        at = hub_partial_missing(d->partial, at + 1);
    }
    if (at < 0) {
        return false;
    }
    l->begin = l->at = at;
    l->to = d->o->bytes - at < size ? d->o->bytes : at + size;
    return true;
}

static mo_status start(download *d, lane *l)
{
    char range[64];
    l->handle = hub_web_handle(d->web, d->o->url, &l->answer);
    if (!l->handle) {
        return mo_fail(d->err, MO_ENOMEM, "out of memory for a request");
    }
    l->seen = l->stop = l->no_ranges = false;
    curl_easy_setopt(l->handle, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(l->handle, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(l->handle, CURLOPT_PRIVATE, l);
    if (!d->whole) {
        snprintf(range, sizeof range, "%lld-%lld", (long long)l->at, (long long)l->to - 1);
        curl_easy_setopt(l->handle, CURLOPT_RANGE, range);
    }
    return curl_multi_add_handle(d->multi, l->handle) == CURLM_OK
               ? MO_OK
               : mo_fail(d->err, MO_ENOMEM, "out of memory for a request");
}

static void stop(download *d, lane *l)
{
    if (l->handle) {
        curl_multi_remove_handle(d->multi, l->handle);
        curl_easy_cleanup(l->handle);
        l->handle = NULL;
    }
}

/* Starts requests for missing pieces, up to the requested number at once. */
static mo_status start_lanes(download *d)
{
    mo_status s = MO_OK;
    int running = 0;
    for (int i = 0; i < LANES_MAX; i++) {
        running += d->lanes[i].handle != NULL;
    }
    if (d->whole) { /* one lane from the beginning, when the others have ended */
        lane *l = &d->lanes[0];
        if (running == 0) {
            for (int i = 0; i < LANES_MAX; i++) {
                d->lanes[i].begin = -1;
            }
            l->begin = l->at = 0;
            l->to = d->o->bytes;
            s = hub_partial_forget(d->partial, d->err); /* all its bytes are written again */
            s = s == MO_OK ? start(d, l) : s;
        }
        return s;
    }
    for (int i = 0; i < d->o->connections && s == MO_OK; i++) {
        lane *l = &d->lanes[i];
        if (!l->handle && (l->begin >= 0 || take_piece(d, l))) {
            s = start(d, l);
        }
    }
    return s;
}

/* A request has failed: sets a pause before the next one, unless too many have failed. */
static mo_status failed(download *d, hub_verdict verdict, double wait_s, const mo_error *why)
{
    const bool first = d->not_before <= mo_clock_s(); /* concurrent failures count once */
    if (first) {
        d->failures = d->got - d->got_at_failure >= GOOD_PROGRESS ? 1 : d->failures + 1;
        d->got_at_failure = d->got;
    }
    if (verdict == HUB_NEVER || d->failures >= d->web->tries) {
        *d->err = *why;
        return why->status;
    }
    const double pause = hub_web_pause(d->failures, wait_s);
    if (d->web->waits && pause >= 1 && first) {
        char text[sizeof why->detail + 64];
        snprintf(text, sizeof text, "%s; retrying in %.0f s", why->detail, pause);
        d->web->waits(d->web->user, text);
    }
    d->not_before = first || mo_clock_s() + pause > d->not_before ? mo_clock_s() + pause : d->not_before;
    return MO_OK;
}

static mo_status ended(download *d, lane *l, CURLcode result)
{
    mo_error why = {MO_OK, {0}};
    double wait_s = 0;
    hub_verdict v;
    if (l->stop) {
        v = l->verdict;
        why = l->wrong;
    } else {
        v = hub_web_judge(d->web, d->o->url, l->handle, result, &l->answer, &wait_s, &why);
        if (v == HUB_GOOD && l->at < l->to) {
            v = HUB_AGAIN;
            mo_fail(&why, MO_EIO, "%s sent fewer bytes than requested", d->o->url);
        }
    }
    stop(d, l);
    hub_partial_mark(d->partial, l->begin, l->at);
    if (l->at >= l->to) {
        l->begin = -1;
    }
    return v == HUB_GOOD || l->no_ranges ? MO_OK : failed(d, v, wait_s, &why);
}

/* ---- The whole download ---- */

/* Bytes received, including unfinished pieces. */
static int64_t done(const download *d)
{
    int64_t bytes = hub_partial_done(d->partial);
    for (int i = 0; i < LANES_MAX && !d->whole; i++) {
        bytes += d->lanes[i].begin >= 0 ? d->lanes[i].at - d->lanes[i].begin : 0;
    }
    return d->whole && d->lanes[0].begin == 0 && d->lanes[0].at > bytes ? d->lanes[0].at : bytes;
}

static mo_status save(download *d, mo_error *err)
{
    for (int i = 0; i < LANES_MAX; i++) {
        if (d->lanes[i].begin >= 0) {
            hub_partial_mark(d->partial, d->lanes[i].begin, d->lanes[i].at);
        }
    }
    d->saved_at = mo_clock_s();
    return hub_partial_save(d->partial, err);
}

static mo_status step(download *d)
{
    int running, left;
    mo_status s = d->not_before <= mo_clock_s() ? start_lanes(d) : MO_OK;
    if (s != MO_OK) {
        return s;
    }
    if (curl_multi_perform(d->multi, &running) != CURLM_OK) {
        return mo_fail(d->err, MO_EIO, "libcurl cannot continue");
    }
    for (const CURLMsg *m; s == MO_OK && (m = curl_multi_info_read(d->multi, &left));) {
        char *own = NULL;
        if (m->msg == CURLMSG_DONE && curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &own) == CURLE_OK &&
            own) {
            s = ended(d, (lane *)(void *)own, m->data.result);
        }
    }
    if (s == MO_OK && mo_clock_s() - d->saved_at >= SAVE_S) {
        s = save(d, d->err);
    }
    if (s == MO_OK && d->o->progress && !d->o->progress(d->o->user, done(d))) {
        s = mo_fail(d->err, MO_ECANCELLED, "cancelled");
    }
    return s;
}

mo_status hub_download(const hub_web *web, const hub_download_options *o, hub_partial *partial, mo_error *err)
{
    download *d = calloc(1, sizeof *d);
    mo_status s = MO_OK;
    if (!d || !(d->multi = curl_multi_init())) {
        free(d);
        return mo_fail(err, MO_ENOMEM, "out of memory for a download");
    }
    d->web = web;
    d->o = o;
    d->partial = partial;
    d->err = err;
    d->saved_at = mo_clock_s();
    for (int i = 0; i < LANES_MAX; i++) {
        d->lanes[i].all = d;
        d->lanes[i].begin = -1;
    }
    while (s == MO_OK && !hub_partial_complete(partial)) {
        s = step(d);
        if (s == MO_OK && !hub_partial_complete(partial)) {
            const int64_t before = hub_partial_hash(partial, 0),
                          hashed = hub_partial_hash(partial, HASH_BYTES);
            if (hashed < 0) {
                s = mo_fail(err, MO_EIO, "cannot read back the downloaded part of %s", o->url);
            } else if (hashed == before) {
                curl_multi_poll(d->multi, NULL, 0, 50, NULL); /* waits for data */
            }
        }
    }
    for (int i = 0; i < LANES_MAX; i++) {
        stop(d, &d->lanes[i]);
    }
    curl_multi_cleanup(d->multi);
    mo_error own;
    const mo_status saved = save(d, s == MO_OK ? err : &own); /* keeps what was received */
    free(d);
    return s == MO_OK ? saved : s;
}
