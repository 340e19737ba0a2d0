/* Reference: the name of a remote model: owner/repo, owner/repo:Q4_K_M, hf.co/owner/repo, or an address. Every part
 * of one is fit to be a file's name: nothing that is hidden, leads upwards or has odd characters. */
#ifndef HUB_REFERENCE_H
#define HUB_REFERENCE_H

#include "moraine.h"

enum { HUB_NAME = 128, HUB_PATH = 1024, HUB_URL = 4096 };

#define HUB_ENDPOINT "https://huggingface.co"

typedef struct hub_reference {
    char owner[HUB_NAME], repo[HUB_NAME]; /* of another address: its machine, its file's name without .gguf */
    char revision[HUB_NAME];              /* "main" unless an address names another */
    char quant[HUB_NAME];                 /* which of the repository's models; "": not said */
    char file[HUB_PATH];                  /* of the repository, where an address names one; otherwise "" */
    char url[HUB_URL];                    /* of a file that is in no repository; otherwise "" */
} hub_reference;

/* endpoint: the hub's address, so that addresses of its pages are known; NULL: HUB_ENDPOINT. MO_EINVAL says what is needed. */
mo_status hub_reference_parse(const char *text, const char *endpoint, hub_reference *out, mo_error *err);

/* Could this word, which is no file, be meant as one? */
bool hub_reference_like(const char *text);

/* A relative path of safe names with slashes between them, which ends in .gguf. */
bool hub_path_safe(const char *path);

#endif
