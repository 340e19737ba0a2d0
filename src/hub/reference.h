/* Reference: the name of a remote model: owner/repo, owner/repo:Q4_K_M, hf.co/owner/repo, or an address.
   Every part is safe as a file name: not hidden, not "..", no unusual characters. */
#ifndef HUB_REFERENCE_H
#define HUB_REFERENCE_H

#include "moraine.h"

enum { HUB_NAME = 128, HUB_PATH = 1024, HUB_URL = 4096 };

#define HUB_ENDPOINT "https://huggingface.co"

typedef struct hub_reference {
    /* for other addresses: the host, and the file's name without .gguf */
    char owner[HUB_NAME], repo[HUB_NAME];
    char revision[HUB_NAME]; /* "main" unless the address has another */
    char quant[HUB_NAME];    /* label of the model in the repository; "": not given */
    char file[HUB_PATH];     /* file in the repository, if the address names one; otherwise "" */
    char url[HUB_URL];       /* of a file that is not in a repository; otherwise "" */
} hub_reference;

/* endpoint: the hub's address, to recognize its pages; NULL: HUB_ENDPOINT. MO_EINVAL says what is valid. */
mo_status hub_reference_parse(const char *text, const char *endpoint, hub_reference *out, mo_error *err);

/* Does this word, which is not an existing file, look like a reference? */
bool hub_reference_like(const char *text);

/* Is this a relative path of safe names that ends in .gguf? */
bool hub_path_safe(const char *path);

#endif
