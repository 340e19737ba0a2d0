#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what, const char *which)
{
    fprintf(stderr, "oracle data: %s %s\n", what, which);
    exit(1);
}

/* A file of the tree, or of the folder that MO_TEST_ORACLE names. False when neither has it. */
static bool find_file(const char *name, char *path, size_t bytes)
{
    static const char *const under[] = {"", "more/", "iq/", "2026/"};
    const char *more = getenv("MO_TEST_ORACLE");
    snprintf(path, bytes, "%s/oracle/%s", MO_TEST_DATA, name);
    bool found = access(path, R_OK) == 0;
    for (size_t i = 0; !found && more && i < sizeof under / sizeof *under; i++) {
        snprintf(path, bytes, "%s/%s%s", more, under[i], name);
        found = access(path, R_OK) == 0;
    }
    return found;
}

static void *read_file(const char *name, size_t bytes)
{
    char path[1024];
    if (!find_file(name, path, sizeof path)) {
        die("cannot find", name);
    }
    FILE *f = fopen(path, "rb");
    void *data = malloc(bytes);
    if (!f || !data || fread(data, 1, bytes, f) != bytes) {
        die("cannot read", path);
    }
    fclose(f);
    return data;
}

/* How many numbers a line has, and those. */
static int read_ints(char *text, int32_t *out, int least, int most)
{
    char *rest = NULL;
    const char *first = strtok_r(text, " ", &rest);
    const long told = first ? strtol(first, NULL, 10) : 0;
    int count = 0;
    for (char *word; (word = strtok_r(NULL, " ", &rest)) && count < most;) {
        out[count++] = (int32_t)strtol(word, NULL, 10);
    }
    if (count != told || count < least) {
        die("too few or too many numbers in", "index.txt");
    }
    return count;
}

static bool is_quantized(const char *name)
{
    static const char *const ends[] = {"-q4k", "-mxfp4", "-nvfp4", "-mixq", "-iq"};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        found |= strstr(name, ends[i]) != NULL;
    }
    return found;
}

static void read_file_of(oracle *o, const char *key, const char *values)
{
    char name[256];
    long long a = 0, b = 0, c = 0;
    if (!o->path[0] || sscanf(values, "%255s %lld %lld %lld", name, &a, &b, &c) < 3) {
        return;
    }
    const bool rows = strcmp(key, "logits") == 0;
    if ((rows ? a : b) != o->prompt) {
        die("not as many rows as tokens in", name);
    }
    if (rows) {
        if (strcmp(o->name, "gemma4") == 0) {
            snprintf(name, sizeof name, "gemma4.exact.logits.f32"); /* the reference rounds its GELU */
        }
        o->vocab = b;
        o->logits = read_file(name, sizeof(float) * (size_t)(a * b));
    } else if (strcmp(key, "topk") == 0) {
        o->moe_layers = (int)a;
        o->used = (int)c;
        o->topk = read_file(name, sizeof(int32_t) * (size_t)(a * b * c));
    } else if (strcmp(key, "index") == 0) {
        o->kept_layers = (int)a;
        o->kept_most = (int)c;
        o->kept = read_file(name, sizeof(int32_t) * (size_t)(a * b * c));
    } else {
        o->mtp_heads = (int)a;
        o->mtp_logits = read_file(name, sizeof(float) * (size_t)(a * b * c));
    }
}

/* One "key values" line into the model being read. */
static void read_line(oracle *o, const char *key, char *values)
{
    static const char *const files[] = {"logits", "topk", "index", "mtp_logits"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(key, files[i]) == 0) {
            read_file_of(o, key, values);
        }
    }
    if (strcmp(key, "file") == 0) {
        if (!find_file(values, o->path, sizeof o->path)) {
            o->path[0] = '\0';
        }
        o->quantized = is_quantized(o->name);
    } else if (strcmp(key, "tokens") == 0) {
        o->prompt = read_ints(values, o->tokens, ORACLE_TOKENS, ORACLE_PROMPT_MAX);
    } else if (strcmp(key, "greedy") == 0) {
        read_ints(values, o->greedy, ORACLE_GREEDY, ORACLE_GREEDY);
    } else if (strcmp(key, "moe_layers") == 0) {
        read_ints(values, o->moe_layer, o->moe_layers, 64);
    } else if (strcmp(key, "index_layers") == 0) {
        read_ints(values, o->kept_layer, o->kept_layers, 64);
    } else if (strcmp(key, "mtp_draft") == 0) {
        o->mtp_drafts = read_ints(values, o->mtp_draft, 1, ORACLE_DRAFT_MAX);
    }
}

/* MO_TEST_MODEL names one of them, for whoever works on a family. */
static bool wanted(const char *name)
{
    const char *only = getenv("MO_TEST_MODEL");
    return !only || strcmp(only, name) == 0;
}

int oracle_read(oracle *out)
{
    return oracle_read_list("index.txt", out);
}

int oracle_read_list(const char *list, oracle *out)
{
    char line[8192];
    int count = 0, absent = 0;
    snprintf(line, sizeof line, "%s/oracle/%s", MO_TEST_DATA, list);
    FILE *f = fopen(line, "r");
    oracle now = {.path = ""};
    if (!f) {
        die("cannot read", list);
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *values = strchr(line, ' ');
        if (strcmp(line, "end") == 0) {
            absent += !now.path[0];
            if (now.path[0] && wanted(now.name)) {
                if (count == ORACLE_MODELS_MAX) {
                    die("more models than ORACLE_MODELS_MAX in", list);
                }
                out[count++] = now;
            } else {
                oracle_free(&now, 1);
            }
        } else if (values) {
            *values++ = '\0';
            if (strcmp(line, "model") == 0) {
                now = (oracle){.path = "", .cpu_only = strncmp(list, "cpu", 3) == 0};
                snprintf(now.name, sizeof now.name, "%s", values);
            } else {
                read_line(&now, line, values);
            }
        }
    }
    fclose(f);
    if (absent) {
        printf(
            "%d of %d oracle models are not in the tree and skipped; MO_TEST_ORACLE may name their folder\n",
            absent, absent + count);
    }
    return count;
}

void oracle_free(oracle *o, int count)
{
    for (int i = 0; i < count; i++) {
        free(o[i].logits);
        free(o[i].topk);
        free(o[i].kept);
        free(o[i].mtp_logits);
    }
}

double oracle_nmse(const float *got, const float *want, size_t n)
{
    double difference = 0.0, power = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i];
        difference += d * d;
        power += (double)want[i] * (double)want[i];
    }
    return difference / power;
}
