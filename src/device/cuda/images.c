#include "device/cuda/images.h"

#include <stddef.h>

#ifdef MO_CUDA_IMAGES /* a generated list of MO_IMAGE(file, image, ptx), and the folder of the fatbins */

/* The assembler reads the files: no compiler has to parse megabytes of numbers. */
#define MO_IMAGE(file, image, ptx)                                                                           \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".balign 64\n"                                                                                   \
            ".global mo_cuda_image_" #file "_" #image "\n"                                                   \
            ".hidden mo_cuda_image_" #file "_" #image "\n"                                                   \
            "mo_cuda_image_" #file "_" #image ":\n"                                                          \
            ".incbin \"" MO_CUDA_FOLDER "/" #file "." #image ".fatbin\"\n"                                   \
            ".global mo_cuda_image_" #file "_" #image "_end\n"                                               \
            ".hidden mo_cuda_image_" #file "_" #image "_end\n"                                               \
            "mo_cuda_image_" #file "_" #image "_end:\n"                                                      \
            ".byte 0\n"                                                                                      \
            ".popsection\n");                                                                                \
    extern const unsigned char mo_cuda_image_##file##_##image[], mo_cuda_image_##file##_##image##_end[];
#include MO_CUDA_IMAGES
#undef MO_IMAGE

#define MO_IMAGE(file, image, ptx)                                                                           \
    {#file, ptx, mo_cuda_image_##file##_##image, mo_cuda_image_##file##_##image##_end},
__attribute__((weak)) const mo_cuda_image mo_cuda_images[] = {
#include MO_CUDA_IMAGES
    {NULL, 0, NULL, NULL},
};

#else

__attribute__((weak)) const mo_cuda_image mo_cuda_images[] = {{NULL, 0, NULL, NULL}};

#endif
