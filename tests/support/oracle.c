#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *which)
{
    fprintf(stderr, "oracle data: %s %s\n", what, which);
    exit(1);
}

/* The tree's models, or all of those in the folder MO_ORACLE names. */
static const char *folder(void)
{
    const char *other = getenv("MO_ORACLE");
    return other ? other : MO_TEST_DATA "/oracle";
}

static void *read_file(const char *name, size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
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
    static const char *const ends[] = {"-q4k", "-mxfp4", "-nvfp4", "-mixq"};
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
        snprintf(o->path, sizeof o->path, "%s/%s", folder(), values);
        FILE *f = fopen(o->path, "rb");
        if (f) {
            fclose(f);
        } else {
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

int oracle_read(oracle *out)
{
    char line[8192];
    int count = 0;
    snprintf(line, sizeof line, "%s/index.txt", folder());
    FILE *f = fopen(line, "r");
    oracle now = {.path = ""};
    if (!f) {
        die("cannot read", line);
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *values = strchr(line, ' ');
        if (strcmp(line, "end") == 0) {
            const bool later = strcmp(now.name, "glm4moe") == 0 || strcmp(now.name, "deepseek2") == 0;
            if (now.path[0] && !later && count < ORACLE_MODELS_MAX) { /* families yet to come */
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
