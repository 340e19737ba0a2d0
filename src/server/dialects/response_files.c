/* Response files: see response_files.h. */
#include "server/dialects/response_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "server/common/log.h"

/* Of all files together; they are looked through again when an eighth of it was written. */
#define FILES_BYTES ((int64_t)512 << 20)

struct srv_response_files {
    char *path;
    pthread_mutex_t mutex; /* of: */
    int fd;                /* of the directory; -1: it is not there yet */
    int64_t written;       /* since the files were looked through */
    bool told;             /* that writing fails */
};

/* "resp_..." with ".json": an id from a client never becomes another path. */
static bool file_name(const char *id, const char *end, char *name, size_t size)
{
    const size_t length = strlen(id);
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return length > 0 && length < SRV_RESPONSE_ID && strspn(id, letters) == length &&
           snprintf(name, size, "%s%s", id, end) < (int)size;
}

static void tell(srv_response_files *f, const char *what)
{
    pthread_mutex_lock(&f->mutex);
    const bool first = !f->told;
    f->told = true;
    pthread_mutex_unlock(&f->mutex);
    if (first) {
        srv_say(MO_LOG_WARN, "responses", "cannot store answers on disk: %s", what);
    }
}

/* The directory, made if that is wanted; -1: it is not there. */
static int open_directory(srv_response_files *f, bool make)
{
    pthread_mutex_lock(&f->mutex);
    if (f->fd < 0) {
        if (make) {
            mkdir(f->path, 0700); /* what is wrong shows when it is opened */
        }
        f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    const int fd = f->fd;
    pthread_mutex_unlock(&f->mutex);
    return fd;
}

/* ---- The oldest go ---- */

typedef struct listed {
    char name[SRV_RESPONSE_ID + 8];
    int64_t bytes;
    struct timespec time;
} listed;

static int by_time(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (x->time.tv_sec != y->time.tv_sec) {
        return x->time.tv_sec < y->time.tv_sec ? -1 : 1;
    }
    return (x->time.tv_nsec > y->time.tv_nsec) - (x->time.tv_nsec < y->time.tv_nsec);
}

/* All of them, to be freed; also what an unfinished write left. */
static listed *list(int dir_fd, size_t *count, int64_t *bytes)
{
    size_t capacity = 0;
    listed *all = NULL;
    const int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    *count = 0;
    *bytes = 0;
    if (!dir && fd >= 0) {
        close(fd);
    }
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat info;
        if (strncmp(entry->d_name, "resp_", 5) != 0 || strlen(entry->d_name) >= sizeof all->name ||
            fstatat(dir_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        if (!mo_array_reserve(&all, &capacity, *count + 1, sizeof *all)) {
            break;
        }
        listed *one = &all[(*count)++];
        memcpy(one->name, entry->d_name, strlen(entry->d_name) + 1);
        one->bytes = info.st_size;
        one->time = info.st_mtim;
        *bytes += one->bytes;
    }
    if (dir) {
        closedir(dir);
    }
    if (*count > 0) {
        qsort(all, *count, sizeof *all, by_time);
    }
    return all;
}

static void trim(srv_response_files *f)
{
    size_t count;
    int64_t bytes;
    const int fd = open_directory(f, false);
    listed *all = list(fd, &count, &bytes);
    for (size_t i = 0; i < count && bytes > FILES_BYTES; i++) {
        if (unlinkat(fd, all[i].name, 0) == 0) {
            bytes -= all[i].bytes;
        }
    }
    free(all);
}

/* ---- Open and close ---- */

srv_response_files *srv_response_files_open(const char *directory)
{
    srv_response_files *f = calloc(1, sizeof *f);
    const size_t size = strlen(directory) + sizeof "/responses";
    if (f && !(f->path = malloc(size))) {
        free(f);
        f = NULL;
    }
    if (f) {
        snprintf(f->path, size, "%s/responses", directory);
        f->fd = -1;
        pthread_mutex_init(&f->mutex, NULL);
        if (open_directory(f, false) >= 0) {
            trim(f);
        }
    }
    return f;
}

void srv_response_files_close(srv_response_files *f)
{
    if (f) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        pthread_mutex_destroy(&f->mutex);
        free(f->path);
        free(f);
    }
}

/* ---- Files ---- */

static bool write_all(int fd, const char *text, size_t length)
{
    for (size_t done = 0; done < length;) {
        const ssize_t n = write(fd, text + done, length - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

bool srv_response_files_write(srv_response_files *f, const char *id, const char *owner,
                              const srv_kept_response *kept)
{
    char name[SRV_RESPONSE_ID + 8], draft[SRV_RESPONSE_ID + 16];
    if (!file_name(id, ".json", name, sizeof name) || !file_name(id, ".part", draft, sizeof draft)) {
        return false;
    }
    json_t *root = json_pack("{s:s, s:I, s:O, s:O}", "owner", owner, "bytes", (json_int_t)kept->bytes,
                             "response", kept->response, "input", kept->input);
    char *text = root ? mo_json_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    const size_t length = text ? strlen(text) : 0;
    const int dir = open_directory(f, true);
    const int fd = text && dir >= 0 ? openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    bool good = fd >= 0 && write_all(fd, text, length);
    good = fd >= 0 && close(fd) == 0 && good;
    good = good && renameat(dir, draft, dir, name) == 0;
    const char *why = text ? strerror(errno) : "they cannot be encoded as JSON, or out of memory";
    free(text);
    if (!good) {
        tell(f, why);
        if (dir >= 0) {
            unlinkat(dir, draft, 0);
        }
        return false;
    }
    pthread_mutex_lock(&f->mutex);
    f->written += (int64_t)length;
    f->told = false;
    const bool due = f->written > FILES_BYTES / 8;
    f->written = due ? 0 : f->written;
    pthread_mutex_unlock(&f->mutex);
    if (due) {
        trim(f);
    }
    return true;
}

bool srv_response_files_read(srv_response_files *f, const char *id, const char *owner, srv_kept_response *out)
{
    char name[SRV_RESPONSE_ID + 8];
    const int dir = open_directory(f, false);
    const int fd = dir >= 0 && file_name(id, ".json", name, sizeof name)
                       ? openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                       : -1;
    json_t *root = fd >= 0 ? json_loadfd(fd, JSON_ALLOW_NUL, NULL) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    const char *whose = json_string_value(json_object_get(root, "owner"));
    json_t *response = json_object_get(root, "response"), *input = json_object_get(root, "input");
    const bool good = whose && strcmp(whose, owner) == 0 && json_is_object(response) && json_is_array(input);
    if (good) {
        const json_int_t bytes = json_integer_value(json_object_get(root, "bytes"));
        *out = (srv_kept_response){.response = json_incref(response),
                                   .input = json_incref(input),
                                   .bytes = bytes > 0 ? (size_t)bytes : 0};
    }
    json_decref(root);
    return good;
}

bool srv_response_files_remove(srv_response_files *f, const char *id)
{
    char name[SRV_RESPONSE_ID + 8];
    const int dir = open_directory(f, false);
    return dir >= 0 && file_name(id, ".json", name, sizeof name) && unlinkat(dir, name, 0) == 0;
}
