#include "hub/label.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool hub_label_split(const char *path, int *no, int *count, size_t *prefix)
{
    const size_t length = strlen(path);
    const char *tail = length > 20 ? path + length - 20 : NULL; /* -00001-of-00003.gguf */
    if (!tail || tail[0] != '-' || strspn(tail + 1, "0123456789") != 5 || strncmp(tail + 6, "-of-", 4) != 0 ||
        strspn(tail + 10, "0123456789") != 5 || strcasecmp(tail + 15, ".gguf") != 0) {
        return false;
    }
    *no = atoi(tail + 1);
    *count = atoi(tail + 10);
    *prefix = length - 20;
    return *no >= 1 && *no <= *count;
}

/* Q4_K_M, IQ2_XXS, TQ1_0, F16, BF16, MXFP4_MOE ... */
static bool is_label(const char *word, size_t length)
{
    static const char *const whole[] = {"F16", "F32", "BF16", "FP16", "FP32"};
    static const char *const begin[] = {"MXFP4", "NVFP4"};
    const char *at = word;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (length == strlen(whole[i]) && strncasecmp(word, whole[i], length) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) {
        if (strncasecmp(word, begin[i], strlen(begin[i])) == 0) {
            return true;
        }
    }
    at += *at == 'I' || *at == 'i' || *at == 'T' || *at == 't';
    return length >= 2 && (*at == 'Q' || *at == 'q') && isdigit((unsigned char)at[1]);
}

void hub_label_of(const char *path, char *label, size_t size)
{
    int no, count;
    size_t end;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!hub_label_split(path, &no, &count, &end)) {
        end = strlen(path) - 5; /* .gguf */
    }
    const char *last = path + end, *word = last;
    while (word > name) {
        const char *begin = word;
        while (begin > name && begin[-1] != '-' && begin[-1] != '.') {
            begin--;
        }
        const size_t length = (size_t)(word - begin);
        if (length > 0 && is_label(begin, length)) {
            begin -= begin - name >= 3 && strncasecmp(begin - 3, "UD-", 3) == 0 ? 3 : 0;
            snprintf(label, size, "%.*s", (int)(word - begin), begin);
            return;
        }
        word = begin > name ? begin - 1 : name;
    }
    snprintf(label, size, "%.*s", (int)(last - name), name);
}

bool hub_label_same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        const int x = *a == '-' ? '_' : toupper((unsigned char)*a);
        const int y = *b == '-' ? '_' : toupper((unsigned char)*b);
        if (x != y) {
            return false;
        }
    }
    return *a == *b;
}

void hub_label_stem(const char *path, char *stem, size_t size)
{
    int no, count;
    size_t end;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!hub_label_split(path, &no, &count, &end)) {
        end = strlen(path) - 5; /* .gguf */
    }
    snprintf(stem, size, "%.*s", (int)(path + end - name), name);
}

static bool is_file_of(const char *path, const char *file)
{
    int no, count, other_no, other_count;
    size_t prefix, other;
    return strcmp(path, file) == 0 ||
           (hub_label_split(path, &no, &count, &prefix) &&
            hub_label_split(file, &other_no, &other_count, &other) && prefix == other &&
            count == other_count && strncmp(path, file, prefix) == 0);
}

static bool has_stem(const char *path, const char *word)
{
    char stem[NAME_MAX + 1];
    hub_label_stem(path, stem, sizeof stem);
    return hub_label_same(stem, word);
}

static bool has_label(const char *path, const char *word)
{
    char label[NAME_MAX + 1];
    hub_label_of(path, label, sizeof label);
    return hub_label_same(label, word);
}

bool hub_label_means(const char *path, const char *file, const char *quant)
{
    return (!file[0] || is_file_of(path, file)) &&
           (!quant[0] || has_label(path, quant) || has_stem(path, quant));
}

/* Finds the only model with this label, or with this stem. */
static int only_one(const char *const *paths, int count, bool (*has)(const char *path, const char *word),
                    const char *word)
{
    int found = HUB_NONE;
    for (int i = 0; i < count; i++) {
        if (has(paths[i], word)) {
            found = found == HUB_NONE ? i : HUB_SEVERAL;
        }
    }
    return found;
}

int hub_label_choose(const char *const *paths, int count, const char *file, const char *quant)
{
    static const char *const usual[] = {"Q4_K_M", "UD-Q4_K_XL", "MXFP4", "MXFP4_MOE"};
    if (file[0]) {
        return only_one(paths, count, is_file_of, file);
    }
    if (quant[0]) {
        const int exact = only_one(paths, count, has_stem, quant);
        return exact >= 0 ? exact : only_one(paths, count, has_label, quant);
    }
    if (count <= 1) {
        return count - 1;
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const int found = only_one(paths, count, has_label, usual[i]);
        if (found != HUB_NONE) {
            return found;
        }
    }
    return HUB_SEVERAL;
}
