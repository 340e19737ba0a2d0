#include "cli/kept.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

const char *cli_keep(const char *text)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static kept *all; /* a list, for finding equal texts */
    const size_t bytes = strlen(text) + 1;
    pthread_mutex_lock(&mutex);
    kept *k = all;
    while (k && strcmp(k->text, text) != 0) {
        k = k->next;
    }
    if (!k) {
        k = malloc(sizeof *k + bytes);
        if (k) {
            memcpy(k->text, text, bytes);
            k->next = all;
            all = k;
        }
    }
    pthread_mutex_unlock(&mutex);
    return k ? k->text : NULL;
}
