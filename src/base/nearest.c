#include "base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 48 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of letters to change, add, remove or swap with a neighbour to get from one word to the other. */
static size_t distance(const char *a, size_t la, const char *b, size_t lb)
{
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= lb; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= la; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least(before[j - 1] + (x != y), least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y) {
                now[j] = least(now[j], earlier[j - 2] + 1);
            }
        }
    }
    return rows[la % 3][lb];
}

void mo_nearest_offer(mo_nearest *n, const char *candidate)
{
    const size_t length = strlen(candidate);
    if (n->length == 0 || n->length > WORD_MAX || length > WORD_MAX) {
        return;
    }
    const size_t shorter = least(n->length, length);
    size_t d = distance(n->word, n->length, candidate, length);
    if (d > 1 && shorter >= 3 && strncmp(n->word, candidate, shorter) == 0) {
        d = 1; /* one is a prefix of the other, as in --temperature */
    }
    /* At most a third of the letters may differ. */
    if (d <= shorter / 3 && (!n->best || d < n->distance)) {
        n->best = candidate;
        n->distance = d;
    }
}
