#include "hub/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/status.h"
#include "hub/download.h"
#include "hub/header.h"
#include "hub/identity.h"
#include "hub/label.h"
#include "hub/naming.h"
#include "hub/partial.h"
#include "hub/picture_model.h"
#include "hub/store.h"
#include "hub/token.h"
#include "hub/web.h"

enum { PAGES_MAX = 40, LIST_BYTES_MAX = 16 << 20, FILES_MAX = 512 };

#define HASH_STEP ((int64_t)32 << 20)

typedef struct part {
    char path[PATH_MAX]; /* in the store */
    char *url;
    char etag[128];              /* of a file without a checksum */
    char identity[HUB_IDENTITY]; /* its checksum or strong tag; "": neither is known */
    bool there;
    bool aside;           /* it exists, but a killed run left it with HUB_ASIDE (naming.h) */
    hub_partial *partial; /* NULL: the file exists */
} part;

struct hub_pull {
    hub_reference reference;
    hub_pull_options o;
    char endpoint[HUB_URL], token[1024];
    hub_web web;
    hub_listing listing;
    const hub_choice *choice;
    hub_file *encoder; /* the last of the files; NULL: none */
    char name[3 * HUB_NAME + 8];
    part *parts;         /* the model's files, and the encoder */
    int64_t bytes;       /* of all files, including sizes that the list did not have */
    int64_t done_before; /* of the files before the current one */
};

static int count_of(const hub_pull *p)
{
    return p->choice->count + (p->encoder != NULL);
}

static hub_file *file_of(const hub_pull *p, int i)
{
    return i < p->choice->count ? &p->choice->files[i] : p->encoder;
}

const char *hub_pull_library(void)
{
    static char text[128];
    const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
    snprintf(text, sizeof text, "libcurl %s with %s", v->version, v->ssl_version ? v->ssl_version : "no TLS");
    return text;
}

/* ---- Listing ---- */

static mo_status list_repository(hub_pull *p, mo_error *err)
{
    char url[HUB_URL];
    hub_answer answer;
    mo_status s = MO_OK;
    int page = 0;
    const size_t own = strlen(p->endpoint);
    snprintf(url, sizeof url, "%.2000s/api/models/%s/%s/tree/%s?recursive=1", p->endpoint, p->reference.owner,
             p->reference.repo, p->reference.revision);
    for (; page < PAGES_MAX; page++) {
        char *body = NULL;
        size_t length = 0;
        s = hub_web_get(&p->web, url, LIST_BYTES_MAX, &body, &length, &answer, err);
        if (s == MO_ENOENT && page == 0) {
            const bool main = strcmp(p->reference.revision, "main") == 0;
            s = mo_fail(err, MO_ENOENT, "there is no repository %s/%s at %s%s%s", p->reference.owner,
                        p->reference.repo, p->endpoint, main ? "" : ", or it has no revision ",
                        main ? "" : p->reference.revision);
        }
        s = s == MO_OK ? hub_listing_add(&p->listing, body, length, err) : s;
        free(body);
        if (s != MO_OK || strncmp(answer.next, p->endpoint, own) != 0 || answer.next[own] != '/') {
            break; /* the last page, or a link to another host */
        }
        snprintf(url, sizeof url, "%s", answer.next);
    }
    if (s == MO_OK && (page == PAGES_MAX || p->listing.cut) && p->o.says) {
        p->o.says(p->o.user, "the hub's list of files is too long: the rest was ignored");
    }
    return s;
}

/* Lists a file at any address, with the other parts of its model if its name says so. */
static mo_status list_address(hub_pull *p, mo_error *err)
{
    const hub_reference *r = &p->reference;
    int no, count;
    size_t prefix;
    if (!hub_label_split(r->file, &no, &count, &prefix)) {
        return hub_listing_add_file(&p->listing, r->file, r->url, err);
    }
    if (count > FILES_MAX) {
        return mo_fail(err, MO_EINVAL, "%s is one of %d parts; the limit is %d", r->file, count, FILES_MAX);
    }
    char tail[32], other[32], path[HUB_PATH], url[HUB_URL];
    snprintf(tail, sizeof tail, "-%05d-of-%05d", no, count);
    const char *at = strstr(r->url, tail);
    mo_status s = at ? MO_OK : mo_fail(err, MO_EINVAL, "%s: cannot find the part number", r->url);
    for (int i = 1; i <= count && s == MO_OK; i++) {
        snprintf(other, sizeof other, "-%05d-of-%05d", i, count);
        snprintf(path, sizeof path, "%.*s%s.gguf", (int)prefix, r->file, other);
        snprintf(url, sizeof url, "%.*s%s%s", (int)(at - r->url), r->url, other, at + strlen(tail));
        s = hub_listing_add_file(&p->listing, path, url, err);
    }
    return s;
}

mo_status hub_pull_open(const hub_reference *reference, const hub_pull_options *options, hub_pull **out,
                        mo_error *err)
{
    hub_pull *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) {
        return mo_fail(err, MO_ENOMEM, "out of memory while downloading a model");
    }
    p->reference = *reference;
    p->o = *options;
    snprintf(p->endpoint, sizeof p->endpoint, "%s", options->endpoint ? options->endpoint : HUB_ENDPOINT);
    for (size_t length = strlen(p->endpoint); length > 0 && p->endpoint[length - 1] == '/';) {
        p->endpoint[--length] = '\0';
    }
    hub_token_find(p->token, sizeof p->token);
    p->web = (hub_web){.endpoint = p->endpoint,
                       .token = p->token,
                       .timeout_s = options->timeout_s,
                       .tries = options->tries,
                       .goes_on = options->goes_on,
                       .waits = options->says,
                       .user = options->user};
    mo_status s = hub_web_open(&p->web, err);
    if (s == MO_OK) {
        s = reference->url[0] ? list_address(p, err) : list_repository(p, err);
    }
    s = s == MO_OK ? hub_listing_finish(&p->listing, err) : s;
    if (s != MO_OK) {
        hub_pull_close(p);
        return s;
    }
    *out = p;
    return MO_OK;
}

void hub_pull_close(hub_pull *p)
{
    if (!p) {
        return;
    }
    for (int i = 0; p->parts && i <= p->choice->count; i++) { /* the encoder may have been omitted */
        hub_partial_close(p->parts[i].partial);
        free(p->parts[i].url);
    }
    free(p->parts);
    hub_listing_free(&p->listing);
    hub_web_close(&p->web);
    free(p);
}

const hub_listing *hub_pull_listing(const hub_pull *p)
{
    return &p->listing;
}

/* ---- Choosing ---- */

/* Asks for size, checksum and identity of a file, if the hub's list did not have them. */
static mo_status ask_for(hub_pull *p, part *t, hub_file *f, mo_error *err)
{
    hub_answer a;
    char byte;
    const mo_status s = hub_web_range(&p->web, t->url, 0, 1, &byte, &a, err);
    if (s != MO_OK) {
        return s;
    }
    if (f->bytes < 0) { /* otherwise the size in the list is compared with what is received */
        f->bytes = a.code == 206 ? a.total : a.length;
    }
    if (f->bytes <= 0) {
        return mo_fail(err, MO_EUNSUPPORTED, "%s does not report its size; download it by other means",
                       t->url);
    }
    if (strlen(a.linked_etag) == 64 && strspn(a.linked_etag, "0123456789abcdef") == 64) {
        memcpy(f->sha256, a.linked_etag, sizeof f->sha256);
    }
    snprintf(t->etag, sizeof t->etag, "%s", f->sha256[0] ? "" : a.etag);
    if (t->etag[0] && !a.weak) {
        snprintf(t->identity, sizeof t->identity, "etag:%s", t->etag);
    }
    return MO_OK;
}

typedef struct checking {
    const hub_pull *pull;
    int64_t bytes;
} checking;

static bool on_checked(void *user, int64_t done)
{
    const checking *c = user;
    const hub_pull_options *o = &c->pull->o;
    return (!o->goes_on || o->goes_on(o->user)) &&
           (!o->progress || o->progress(o->user, "checking", done, c->bytes));
}

/* Is the existing file the same as the hub's? Compares the stored identity, otherwise the checksum, or the
   size if the hub has no checksum. */
static mo_status compare(hub_pull *p, part *t, const hub_file *f, mo_error *err)
{
    struct stat st;
    char kept[HUB_IDENTITY], sha256[65], aside[PATH_MAX + 8];
    const char *path = t->path;
    if (stat(path, &st) != 0) {
        snprintf(aside, sizeof aside, "%s" HUB_ASIDE, t->path);
        path = aside;
        t->aside = stat(path, &st) == 0;
    }
    if ((path == aside && !t->aside) || !S_ISREG(st.st_mode)) {
        return MO_OK;
    }
    if (st.st_size != f->bytes) {
        t->there = false;
    } else if (hub_identity_of(path, kept, sizeof kept) && t->identity[0]) {
        t->there = strcmp(kept, t->identity) == 0;
    } else if (!f->sha256[0]) {
        t->there = true;
    } else {
        checking c = {p, f->bytes};
        const mo_status s = hub_identity_hash(path, sha256, on_checked, &c, err);
        if (s != MO_OK) {
            return s;
        }
        t->there = strcmp(sha256, f->sha256) == 0;
        const int fd = t->there ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd >= 0) { /* for the next time */
            hub_identity_keep(fd, t->identity);
            close(fd);
        }
    }
    if (!t->there && p->o.says) {
        char text[PATH_MAX + 64];
        snprintf(text, sizeof text, "%s differs from the hub's current file: downloading it again", t->path);
        p->o.says(p->o.user, text);
    }
    return MO_OK;
}

static mo_status prepare(hub_pull *p, int i, mo_error *err)
{
    const hub_reference *r = &p->reference;
    hub_file *f = file_of(p, i);
    part *t = &p->parts[i];
    if (snprintf(t->path, sizeof t->path, "%s/%s/%s/%s", p->o.directory, r->owner, r->repo, f->path) >=
        (int)sizeof t->path) {
        return mo_fail(err, MO_EINVAL, "%s: the path is too long; name a shorter directory", f->path);
    }
    if (f->url) {
        t->url = strdup(f->url);
    } else {
        char *escaped = hub_web_escape(f->path);
        if (!escaped || asprintf(&t->url, "%s/%s/%s/resolve/%s/%s", p->endpoint, r->owner, r->repo,
                                 r->revision, escaped) < 0) {
            t->url = NULL;
        }
        free(escaped);
    }
    if (!t->url) {
        return mo_fail(err, MO_ENOMEM, "out of memory while downloading a model");
    }
    const mo_status s = f->bytes < 0 || !f->sha256[0] ? ask_for(p, t, f, err) : MO_OK;
    if (f->sha256[0]) {
        snprintf(t->identity, sizeof t->identity, "sha256:%s", f->sha256);
    }
    return s == MO_OK ? compare(p, t, f, err) : s;
}

static mo_status choose_encoder(hub_pull *p, mo_error *err)
{
    const char *named = p->o.encoder;
    char names[700] = "";
    size_t used = 0;
    if (named && strcmp(named, "none") == 0) {
        return MO_OK;
    }
    p->encoder = (hub_file *)hub_listing_encoder(&p->listing, p->choice->files[0].path, named);
    if (p->encoder || !named) {
        return MO_OK;
    }
    for (int i = 0; i < p->listing.encoder_count && used + HUB_NAME < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "", HUB_NAME - 8,
                                 p->listing.encoders[i].path);
    }
    return mo_fail(err, MO_ENOENT, "%s/%s has no encoder %s%s%s", p->reference.owner, p->reference.repo,
                   named, used ? "; it has " : ", and no other", names);
}

/* Omits the encoder for a model without pictures, unless requested. path: of the model or its header. */
static void leave_needless(hub_pull *p, const char *path)
{
    mo_file *file = NULL;
    if (!p->o.encoder && (mo_file_open(path, &file, NULL) != MO_OK || !hub_reads_pictures(file, NULL))) {
        p->encoder = NULL;
    }
    mo_file_close(file);
}

mo_status hub_pull_choose(hub_pull *p, mo_error *err)
{
    mo_status s = hub_listing_choose(&p->listing, &p->reference, &p->choice, err);
    if (s != MO_OK) {
        return s;
    }
    if (p->choice->count >= FILES_MAX) {
        return mo_fail(err, MO_EUNSUPPORTED, "the model has %d parts; the limit is %d", p->choice->count,
                       FILES_MAX - 1);
    }
    snprintf(p->name, sizeof p->name, "%s/%s:%s", p->reference.owner, p->reference.repo, p->choice->label);
    p->parts = calloc((size_t)p->choice->count + 1, sizeof *p->parts);
    if (!p->parts) {
        return mo_fail(err, MO_ENOMEM, "out of memory while downloading a model");
    }
    bool there = true;
    for (int i = 0; i < p->choice->count && s == MO_OK; i++) {
        s = prepare(p, i, err);
        there = there && p->parts[i].there && !p->parts[i].aside;
    }
    s = s == MO_OK ? choose_encoder(p, err) : s;
    if (s == MO_OK && p->encoder && there) {
        leave_needless(p, p->parts[0].path);
    }
    if (s == MO_OK && p->encoder) {
        s = prepare(p, p->choice->count, err);
    }
    return s;
}

/* Free bytes of the disk that contains, or will contain, the directory. */
static int64_t free_bytes(const char *directory)
{
    char path[PATH_MAX];
    struct statvfs st;
    snprintf(path, sizeof path, "%s", directory);
    while (statvfs(path, &st) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) {
            snprintf(path, sizeof path, "%s", slash ? "/" : ".");
            return statvfs(path, &st) == 0 ? (int64_t)(st.f_bavail * st.f_frsize) : -1;
        }
        *slash = '\0';
    }
    return (int64_t)(st.f_bavail * st.f_frsize);
}

void hub_pull_describe(const hub_pull *p, hub_pull_info *out)
{
    *out = (hub_pull_info){.name = p->name,
                           .path = p->parts[0].path,
                           .encoder = p->encoder ? p->encoder->path : NULL,
                           .encoder_bytes = p->encoder ? p->encoder->bytes : 0,
                           .files = count_of(p),
                           .free_bytes = free_bytes(p->o.directory),
                           .there = true};
    for (int i = 0; i < count_of(p); i++) {
        char unfinished[PATH_MAX + 8];
        struct stat st;
        const part *t = &p->parts[i];
        const int64_t bytes = file_of(p, i)->bytes;
        int64_t have = t->there ? bytes : 0;
        snprintf(unfinished, sizeof unfinished, "%s.part", t->path);
        if (!t->there && stat(unfinished, &st) == 0) { /* its space is already reserved */
            have = (int64_t)st.st_blocks * 512;
            have = have < bytes ? have : bytes;
        }
        out->bytes += bytes;
        out->have_bytes += t->there ? bytes : 0;
        out->need_bytes += bytes - have;
        out->there = out->there && t->there && !t->aside;
    }
}

mo_status hub_pull_header(hub_pull *p, char *path, size_t size, mo_error *err)
{
    hub_header_file *files = calloc((size_t)p->choice->count, sizeof *files);
    if (!files) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a plan");
    }
    for (int i = 0; i < p->choice->count; i++) {
        const char *slash = strrchr(p->choice->files[i].path, '/');
        files[i] = (hub_header_file){.name = slash ? slash + 1 : p->choice->files[i].path,
                                     .url = p->parts[i].url,
                                     .bytes = p->choice->files[i].bytes};
    }
    const mo_status s = hub_header_fetch(&p->web, p->o.directory, files, p->choice->count, path, size, err);
    free(files);
    return s;
}

mo_status hub_pull_plan(hub_pull *p, const mo_model_options *options, const mo_plan_extra *extra,
                        mo_plan_report *report, mo_error *err)
{
    char path[PATH_MAX];
    mo_status s = hub_pull_header(p, path, sizeof path, err);
    if (s != MO_OK) {
        return s;
    }
    leave_needless(p, path);
    s = mo_plan_file(path, options, extra, report, sizeof *report, err);
    if (s != MO_OK) {
        hub_header_say(path, err->detail);
    }
    hub_header_remove(path);
    return s;
}

/* ---- Fetching ---- */

static bool on_done(void *user, int64_t done)
{
    const hub_pull *p = user;
    return (!p->o.goes_on || p->o.goes_on(p->o.user)) &&
           (!p->o.progress || p->o.progress(p->o.user, "pulling", p->done_before + done, p->bytes));
}

/* Completes the checksum, which is computed during the download. */
static mo_status check(hub_pull *p, part *t, const hub_file *f, mo_error *err)
{
    for (int64_t hashed = 0; f->sha256[0] && hashed < f->bytes;) {
        hashed = hub_partial_hash(t->partial, HASH_STEP);
        if (hashed < 0) {
            return mo_fail(err, MO_EIO, "cannot read back %s", t->path);
        }
        if ((p->o.goes_on && !p->o.goes_on(p->o.user)) ||
            (p->o.progress && !p->o.progress(p->o.user, "checking", hashed, f->bytes))) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
    }
    const mo_status s = hub_partial_check(t->partial, err);
    if (s == MO_EFORMAT) {
        hub_partial_discard(t->partial);
    }
    return s;
}

static mo_status fetch(hub_pull *p, int i, mo_error *err)
{
    part *t = &p->parts[i];
    const hub_file *f = file_of(p, i);
    bool begun_anew = false;
    if (t->there) {
        return MO_OK;
    }
    mo_status s = hub_store_make_folders(t->path, err);
    if (s != MO_OK) {
        return s;
    }
    const hub_partial_spec spec = {t->path, f->bytes, t->identity, f->sha256, p->o.piece};
    s = hub_partial_open(&spec, &t->partial, &begun_anew, err);
    if (s != MO_OK) {
        return s;
    }
    if (begun_anew && p->o.says) {
        p->o.says(p->o.user, "the partial download is damaged or may be of another file: starting over");
    }
    const hub_download_options o = {.url = t->url,
                                    .bytes = f->bytes,
                                    .etag = t->etag,
                                    .linked = f->sha256,
                                    .connections = p->o.connections,
                                    .progress = on_done,
                                    .user = p};
    s = hub_download(&p->web, &o, t->partial, err);
    return s == MO_OK ? check(p, t, f, err) : s;
}

/* Fetches the files of a model or encoder, and renames them together. */
static mo_status fetch_and_name(hub_pull *p, int first, int count, mo_error *err)
{
    hub_named files[FILES_MAX];
    mo_status s = MO_OK;
    for (int i = 0; i < count && s == MO_OK; i++) {
        const part *t = &p->parts[first + i];
        s = fetch(p, first + i, err);
        p->done_before += file_of(p, first + i)->bytes;
        files[i] = (hub_named){t->path, t->partial, t->aside};
    }
    return s == MO_OK ? hub_names_give(files, count, err) : s;
}

/* The encoder is last: another pull may be fetching it for another model, and the model works without it. */
mo_status hub_pull_run(hub_pull *p, mo_error *err)
{
    const int own = p->choice->count;
    p->done_before = 0;
    p->bytes = 0;
    for (int i = 0; i < count_of(p); i++) {
        p->bytes += file_of(p, i)->bytes;
    }
    const mo_status s = fetch_and_name(p, 0, own, err);
    return s == MO_OK && p->encoder ? fetch_and_name(p, own, 1, err) : s;
}
