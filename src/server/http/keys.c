/* Keys: see keys.h. */
#include "server/http/keys.h"

#include <errno.h>
#include <nettle/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "server/http/salt.h"

#define MARK "\xef\xbb\xbf" /* the byte order mark that some editors write */
enum { KEY_BYTES = 256, KEYS_MAX = 4096, LINE_BYTES = 1024 };

/* What may follow a key, each once. */
enum { HAS_NAME = 1, HAS_PRIORITY = 2, HAS_ADMIN = 4 };

/* Where a key is, for messages: "keys.txt: line 3". */
typedef struct key_place {
    const char *file, *unit;
    int number;
} key_place;

typedef struct key {
    char text[KEY_BYTES]; /* zeros behind it, so that all are compared alike */
    srv_key_owner holder;
} key;

typedef struct key_list {
    key *item;
    int count;
    const uint8_t *salt;
    bool share_prefixes;
} key_list;

struct srv_keys {
    char *path;
    uint8_t salt[SRV_SALT_BYTES];
    pthread_mutex_t mutex; /* of the lists */
    key_list given, read;
};

/* kind: tells a name from a key of the same letters. */
static void identify(const key_list *list, char kind, const char *text, srv_key_owner *out)
{
    struct hmac_sha256_ctx hash;
    uint8_t sum[SHA256_DIGEST_SIZE];
    hmac_sha256_set_key(&hash, SRV_SALT_BYTES, list->salt);
    hmac_sha256_update(&hash, 1, (const uint8_t *)&kind);
    hmac_sha256_update(&hash, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&hash, sizeof sum, sum);
    for (size_t i = 0; i < sizeof sum; i++) {
        snprintf(out->owner + 2 * i, sizeof out->owner - 2 * i, "%02x", sum[i]);
    }
    memcpy(&out->caller.owner, sum, sizeof out->caller.owner);
    out->caller.owner = list->share_prefixes ? 0 : out->caller.owner | 1;
}

/* Which of the things that may follow a key a word is; 0: none. */
static unsigned kind_of(const char *word)
{
    return strncmp(word, "name=", 5) == 0 && word[5]       ? HAS_NAME
           : strncmp(word, "priority=", 9) == 0 && word[9] ? HAS_PRIORITY
           : strcmp(word, "admin") == 0                    ? HAS_ADMIN
                                                           : 0;
}

/* What follows a key; *seen: the kinds of words before it. */
static mo_status read_word(key_list *list, key *k, const char *word, const key_place *at, unsigned *seen,
                           mo_error *err)
{
    char *end;
    const unsigned kind = kind_of(word);
    if (kind & *seen) {
        return mo_fail(err, MO_EINVAL, "%s: %s %d: %.*s is given twice; remove one", at->file, at->unit,
                       at->number, (int)strcspn(word, "="), word);
    }
    *seen |= kind;
    if (kind == HAS_NAME) {
        snprintf(k->holder.name, sizeof k->holder.name, "%.*s", (int)sizeof k->holder.name - 1, word + 5);
        identify(list, 'n', word + 5, &k->holder);
    } else if (kind == HAS_ADMIN) {
        k->holder.caller.admin = true;
    } else if (kind == HAS_PRIORITY) {
        const long priority = strtol(word + 9, &end, 10);
        if (*end || priority < -100 || priority > 100) {
            return mo_fail(err, MO_EINVAL, "%s: %s %d: priority must be a number from -100 to 100", at->file,
                           at->unit, at->number);
        }
        k->holder.priority = (int)priority;
    } else {
        return mo_fail(err, MO_EINVAL,
                       "%s: %s %d: a key can only be followed by name=NAME, priority=N and admin", at->file,
                       at->unit, at->number);
    }
    return MO_OK;
}

static bool has_key(const key_list *list, const char *text)
{
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->item[i].text, text) == 0) {
            return true;
        }
    }
    return false;
}

/* A word and what may follow it. number: of the key, for a name. */
static mo_status add(key_list *list, const char *text, const key_place *at, int number, mo_error *err)
{
    char words[LINE_BYTES], *rest = words;
    snprintf(words, sizeof words, "%s", text);
    char *word = strtok_r(words, " \t\r\n", &rest);
    if (!word) {
        return MO_OK;
    }
    if (strlen(word) >= KEY_BYTES || list->count == KEYS_MAX) {
        return mo_fail(err, MO_EINVAL,
                       "%s: a key can have at most %d characters, and there can be at most %d keys", at->file,
                       KEY_BYTES - 1, KEYS_MAX);
    }
    if (has_key(list, word)) { /* which of the two would decide about its rights? */
        return mo_fail(err, MO_EINVAL, "%s: %s %d: this key was given before; remove one", at->file, at->unit,
                       at->number);
    }
    key *item = realloc(list->item, (size_t)(list->count + 1) * sizeof *item);
    if (!item) {
        return mo_fail(err, MO_ENOMEM, "out of memory");
    }
    list->item = item;
    key *k = &item[list->count++];
    memset(k, 0, sizeof *k);
    memcpy(k->text, word, strlen(word));
    identify(list, 'k', word, &k->holder);
    snprintf(k->holder.name, sizeof k->holder.name, "key%d", number);
    mo_status status = MO_OK;
    unsigned seen = 0;
    while (status == MO_OK && (word = strtok_r(NULL, " \t\r\n", &rest))) {
        status = read_word(list, k, word, at, &seen, err);
    }
    return status;
}

static void clear(key_list *list)
{
    if (list->item) {
        memset(list->item, 0, (size_t)list->count * sizeof *list->item);
    }
    free(list->item);
    list->item = NULL;
    list->count = 0;
}

static mo_status read_file(const char *path, int first, key_list *out, mo_error *err)
{
    char line[LINE_BYTES];
    key_place at = {.file = path, .unit = "line"};
    mo_status status = MO_OK;
    FILE *f = fopen(path, "re");
    if (!f) {
        return mo_fail(err, errno == ENOENT ? MO_ENOENT : MO_EIO, "%s: %s", path, strerror(errno));
    }
    while (memset(line, 1, sizeof line), status == MO_OK && fgets(line, sizeof line, f)) {
        const char *text =
            ++at.number == 1 && strncmp(line, MARK, strlen(MARK)) == 0 ? line + strlen(MARK) : line;
        if (memrchr(line, 0, sizeof line) !=
            line + strlen(line)) { /* or the beginning of a key would be one */
            status =
                mo_fail(err, MO_EINVAL, "%s: contains NUL bytes; expected text with one key per line", path);
        } else if (strlen(line) + 1 == sizeof line) {
            status = mo_fail(err, MO_EINVAL, "%s: a line is too long", path);
        } else if (text[strspn(text, " \t")] != '#') {
            status = add(out, text, &at, first + out->count, err);
        }
    }
    if (status == MO_OK && ferror(f)) {
        status = mo_fail(err, MO_EIO, "%s: %s", path, strerror(errno));
    }
    fclose(f);
    if (status == MO_OK && out->count == 0) {
        status = mo_fail(err, MO_EINVAL, "%s: contains no key", path);
    }
    if (status != MO_OK) {
        clear(out);
    }
    return status;
}

static mo_status read_list(const char *list, key_list *out, mo_error *err)
{
    char *words = strdup(list), *rest = words;
    mo_status status = words ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory");
    for (char *word; status == MO_OK && (word = strtok_r(rest, ",", &rest));) {
        const key_place at = {"API key list", "key", out->count + 1};
        status = add(out, word, &at, at.number, err);
        if (status == MO_OK && out->count > 0) {
            out->item[out->count - 1].holder.caller.admin = true;
        }
    }
    free(words);
    if (status == MO_OK && out->count == 0) {
        status = mo_fail(err, MO_EINVAL, "the API key list is empty");
    }
    return status;
}

mo_status srv_keys_open(const srv_keys_options *o, srv_keys **out, mo_error *err)
{
    mo_status status = MO_OK;
    srv_keys *k = calloc(1, sizeof *k);
    *out = NULL;
    if (!k) {
        return mo_fail(err, MO_ENOMEM, "out of memory");
    }
    pthread_mutex_init(&k->mutex, NULL);
    k->given.salt = k->read.salt = k->salt;
    k->given.share_prefixes = k->read.share_prefixes = o->share_prefixes;
    if (o->list || o->path) {
        srv_salt_get(o->salt_directory, k->salt);
    }
    if (o->list) {
        status = read_list(o->list, &k->given, err);
    }
    if (status == MO_OK && o->path) {
        k->path = strdup(o->path);
        status = k->path ? srv_keys_reload(k, err) : mo_fail(err, MO_ENOMEM, "out of memory");
    }
    if (status != MO_OK) {
        srv_keys_close(k);
        return status;
    }
    *out = k;
    return MO_OK;
}

void srv_keys_close(srv_keys *keys)
{
    if (keys) {
        clear(&keys->given);
        clear(&keys->read);
        free(keys->path);
        pthread_mutex_destroy(&keys->mutex);
        free(keys);
    }
}

mo_status srv_keys_reload(srv_keys *keys, mo_error *err)
{
    key_list fresh = {.salt = keys->salt, .share_prefixes = keys->read.share_prefixes};
    if (!keys->path) {
        return MO_OK;
    }
    const mo_status status = read_file(keys->path, keys->given.count + 1, &fresh, err);
    if (status != MO_OK) {
        return status;
    }
    pthread_mutex_lock(&keys->mutex);
    clear(&keys->read);
    keys->read = fresh;
    pthread_mutex_unlock(&keys->mutex);
    return MO_OK;
}

int srv_keys_count(srv_keys *keys)
{
    pthread_mutex_lock(&keys->mutex);
    const int count = keys->given.count + keys->read.count;
    pthread_mutex_unlock(&keys->mutex);
    return count;
}

/* Every byte of every key is looked at, whatever was shown. */
static void compare(const key_list *list, const char *shown, srv_key_owner *out, bool *found)
{
    for (int i = 0; i < list->count; i++) {
        volatile unsigned char differ = 0;
        for (int b = 0; b < KEY_BYTES; b++) {
            differ = (unsigned char)(differ | (list->item[i].text[b] ^ shown[b]));
        }
        if (differ == 0) {
            *out = list->item[i].holder;
            *found = true;
        }
    }
}

bool srv_keys_check(srv_keys *keys, const char *shown, srv_key_owner *out)
{
    char padded[KEY_BYTES] = {0};
    bool found = false;
    *out = (srv_key_owner){0};
    if (srv_keys_count(keys) == 0) {
        out->caller.admin = true;
        return true;
    }
    if (!shown || strlen(shown) >= KEY_BYTES) {
        return false;
    }
    snprintf(padded, sizeof padded, "%s", shown);
    pthread_mutex_lock(&keys->mutex);
    compare(&keys->given, padded, out, &found);
    compare(&keys->read, padded, out, &found);
    pthread_mutex_unlock(&keys->mutex);
    return found;
}
