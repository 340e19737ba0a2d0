/* Token: identifies the user, for private and gated repositories. */
#ifndef HUB_TOKEN_H
#define HUB_TOKEN_H

#include <stddef.h>

/* Reads HF_TOKEN from the environment, or the file named by HF_TOKEN_PATH, or HF_HOME/token, or
   ~/.cache/huggingface/token. "": none, or invalid. */
void hub_token_find(char *token, size_t size);

#endif
