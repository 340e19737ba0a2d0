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
    static const char *const under[] = {"", "more/", "iq/"};
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

static void read_ints(char *text, int32_t *out, int limit)
{
    char *rest = NULL;
    int count = 0;
    strtok_r(text, " ", &rest); /* how many follow */
    for (char *word; (word = strtok_r(NULL, " ", &rest)) && count < limit;) {
        out[count++] = (int32_t)strtol(word, NULL, 10);
    }
    if (count != limit) {
        die("too few numbers in", "index.txt");
    }
}

/* One "key values" line into the model being read. */
static bool is_quantized(const char *name)
{
    static const char *const ends[] = {"-q4k", "-mxfp4", "-nvfp4", "-mixq", "-iq"};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        found |= strstr(name, ends[i]) != NULL;
    }
    return found;
}

static void read_line(oracle *o, const char *key, char *values)
{
    char name[256];
    long long a = 0, b = 0, c = 0;
    if (strcmp(key, "file") == 0) {
        if (!find_file(values, o->path, sizeof o->path)) {
            o->path[0] = '\0';
        }
        o->quantized = is_quantized(o->name);
    } else if (strcmp(key, "tokens") == 0) {
        read_ints(values, o->tokens, ORACLE_TOKENS);
    } else if (strcmp(key, "greedy") == 0) {
        read_ints(values, o->greedy, ORACLE_GREEDY);
    } else if (strcmp(key, "logits") == 0 && o->path[0] &&
               sscanf(values, "%255s %lld %lld", name, &a, &b) == 3) {
        if (strcmp(o->name, "gemma4") == 0) {
            snprintf(name, sizeof name, "gemma4.exact.logits.f32"); /* the reference rounds its GELU */
        }
        o->vocab = b;
        o->logits = read_file(name, sizeof(float) * ORACLE_TOKENS * (size_t)b);
    } else if (strcmp(key, "topk") == 0 && o->path[0] &&
               sscanf(values, "%255s %lld %lld %lld", name, &a, &b, &c) == 4) {
        o->moe_layers = (int)a;
        o->used = (int)c;
        o->topk = read_file(name, sizeof(int32_t) * (size_t)(a * b * c));
    } else if (strcmp(key, "moe_layers") == 0) {
        read_ints(values, o->moe_layer, o->moe_layers);
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
    char line[8192];
    int count = 0, absent = 0;
    FILE *f = fopen(MO_TEST_DATA "/oracle/index.txt", "r");
    oracle now = {.path = ""};
    if (!f) {
        die("cannot read", "index.txt");
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *values = strchr(line, ' ');
        if (strcmp(line, "end") == 0) {
            absent += !now.path[0];
            if (now.path[0] && wanted(now.name) && count < ORACLE_MODELS_MAX) {
                out[count++] = now;
            }
        } else if (values) {
            *values++ = '\0';
            if (strcmp(line, "model") == 0) {
                now = (oracle){.path = ""};
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
