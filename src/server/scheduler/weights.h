/* Weights: tells the contents of model files apart, weights included, without reading all of them. */
#ifndef SRV_WEIGHTS_H
#define SRV_WEIGHTS_H

#include <stdint.h>

/* Of the file's size and of pieces all over it; 0: it cannot be read. Of a split model the first part stands for all. */
uint64_t srv_weights(const char *path);

#endif
