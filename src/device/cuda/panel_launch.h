/* Panels for launch_grouped.c, which has the table of formats. */
#ifndef MO_DEVICE_CUDA_PANEL_LAUNCH_H
#define MO_DEVICE_CUDA_PANEL_LAUNCH_H

#include "device/cuda/launch.h"

typedef enum mo_panel_shape { MO_PANEL_OF_WIDE, MO_PANEL_OF_SMALL, MO_PANEL_SHAPES } mo_panel_shape;

/* Kernels of products that formats share: all such matrices of an op are one launch. */
typedef struct mo_panel_family {
    const char *kernel[MO_PANEL_SHAPES];
} mo_panel_family;

/* Which kernels multiply a format. */
typedef struct mo_product_row {
    int32_t type;
    int32_t strips; /* tokens of a group, on average, up to which strips are faster than panels */
    const char *grouped;
    const char *narrow; /* for groups of few tokens, or NULL */
    const mo_panel_family *family;
} mo_product_row;

/* The row of a format; NULL: it has no panels. */
const mo_product_row *mo_cuda_product_row(int32_t type);

/* For a format that has panels. average: tokens of a group. */
void mo_cuda_launch_panel_grouped(const mo_op_grouped *op, int64_t average, mo_cuda_launch *out);
/* The quantized matrices of an op, if all of them have panels; how many launches. */
int mo_cuda_launch_panel_product(const mo_op_product *op, int sms, mo_cuda_launch *out);

#endif
