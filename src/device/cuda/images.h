/* Images: the compiled kernels that are part of this program. Each .cu file is there several times: once as machine
 * code for the GPUs that the build names, and once as PTX for each virtual architecture, which the driver compiles
 * for whatever GPU it has. */
#ifndef MO_DEVICE_CUDA_IMAGES_H
#define MO_DEVICE_CUDA_IMAGES_H

typedef struct mo_cuda_image {
    const char *file;          /* "product" for product.cu; the images of a file stand together */
    int ptx;                   /* 0: machine code; 75: PTX of compute_75 */
    const unsigned char *data; /* a fatbin, as cuModuleLoadData() takes it */
    const unsigned char *end;
} mo_cuda_image;

/* A list that ends with a NULL file: only that in a build without nvcc. Weak: a test has a list of its own. */
extern const mo_cuda_image mo_cuda_images[];

#endif
