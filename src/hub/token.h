/* Token: who is asking, for repositories that are private or gated. */
#ifndef HUB_TOKEN_H
#define HUB_TOKEN_H

#include <stddef.h>

/* HF_TOKEN of the environment, or what the file says that HF_TOKEN_PATH names, or HF_HOME/token, or ~/.cache/huggingface/token. "" where
 * there is none. What could not be a token is none. */
void hub_token_find(char *token, size_t size);

#endif
