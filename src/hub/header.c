#include "hub/header.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "gguf/header.h"
#include "hub/store.h"

#define FOLDER ".plan-"

typedef struct remote {
    const hub_web *web;
    const hub_header_file *file;
    int fd;
} remote;

static mo_status read_remote(void *ctx, int64_t offset, void *to, size_t bytes, mo_error *err)
{
    const remote *r = ctx;
    hub_answer answer;
    mo_status s = hub_web_range(r->web, r->file->url, offset, bytes, to, &answer, err);
    if (s == MO_OK && pwrite(r->fd, to, bytes, (off_t)offset) != (ssize_t)bytes) {
        s = mo_fail(err, MO_EIO, "cannot write a file for the plan: %s", strerror(errno));
    }
    return s;
}

static mo_status fetch(const hub_web *web, const char *folder, const hub_header_file *file, mo_error *err)
{
    char path[PATH_MAX];
    mo_gguf_header header;
    if (snprintf(path, sizeof path, "%s/%s", folder, file->name) >= (int)sizeof path) {
        return mo_fail(err, MO_EINVAL, "%s: the path is too long", file->name);
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)file->bytes) != 0) {
        const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        const mo_status s =
            mo_fail(err, full ? MO_ENOSPC : MO_EIO, "%s: cannot create a file for the plan: %s%s", path,
                    strerror(errno), full ? "; free some space, or choose another directory" : "");
        if (fd >= 0) {
            close(fd);
        }
        return s;
    }
    remote r = {web, file, fd};
    const mo_gguf_source source = {file->name, file->bytes, read_remote, &r};
    const mo_status s = mo_gguf_header_parse(&source, &header, err);
    if (s == MO_OK) {
        mo_gguf_header_free(&header);
    }
    close(fd);
    return s;
}

static void remove_folder(const char *folder)
{
    char path[PATH_MAX];
    DIR *directory = opendir(folder);
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path) {
            unlink(path);
        }
    }
    if (directory) {
        closedir(directory);
    }
    rmdir(folder);
}

/* Messages name the file without its temporary folder. */
static void name_files(char *text, const char *folder)
{
    const size_t length = strlen(folder) + 1;
    for (char *at; (at = strstr(text, folder)) && at[length - 1] == '/';) {
        memmove(at, at + length, strlen(at + length) + 1);
    }
}

/* Removes files of a killed run: no plan takes an hour. */
static void remove_old(const char *directory)
{
    DIR *d = opendir(directory);
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        char path[PATH_MAX];
        struct stat st;
        if (strncmp(entry->d_name, FOLDER, sizeof FOLDER - 1) == 0 &&
            snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < (int)sizeof path &&
            lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_mtim.tv_sec + 3600 < time(NULL)) {
            remove_folder(path);
        }
    }
    if (d) {
        closedir(d);
    }
}

mo_status hub_header_fetch(const hub_web *web, const char *directory, const hub_header_file *files, int count,
                           char *path, size_t size, mo_error *err)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s/" FOLDER "XXXXXX", directory) >= (int)sizeof folder) {
        return mo_fail(err, MO_EINVAL, "%s: the path is too long", directory);
    }
    mo_status s = hub_store_make_folders(folder, err);
    if (s != MO_OK) {
        return s;
    }
    remove_old(directory);
    if (!mkdtemp(folder)) {
        return mo_fail(err, MO_EIO, "%s: cannot create files there: %s", directory, strerror(errno));
    }
    for (int i = 0; i < count && s == MO_OK; i++) {
        s = fetch(web, folder, &files[i], err);
    }
    if (s == MO_OK && snprintf(path, size, "%s/%s", folder, files[0].name) >= (int)size) {
        s = mo_fail(err, MO_EINVAL, "%s: the path is too long", directory);
    }
    if (s != MO_OK) {
        name_files(err->detail, folder);
        remove_folder(folder);
    }
    return s;
}

/* The temporary folder of a file in it. */
static bool folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    return slash && snprintf(folder, size, "%.*s", (int)(slash - path), path) < (int)size;
}

void hub_header_remove(const char *path)
{
    char folder[PATH_MAX];
    if (folder_of(path, folder, sizeof folder)) {
        remove_folder(folder);
    }
}

void hub_header_say(const char *path, char *text)
{
    char folder[PATH_MAX];
    if (folder_of(path, folder, sizeof folder)) {
        name_files(text, folder);
    }
}
