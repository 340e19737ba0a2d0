/* Products: the fast versions of mo_kernels.product, one per instruction set. Each is compiled with its
 * own instruction set and may only be called where mo_host_cpu() says so. */
#ifndef MO_NUMERIC_PRODUCTS_H
#define MO_NUMERIC_PRODUCTS_H

#include "numeric/kernels.h"
#include "numeric/tell.h"

#define MO_PRODUCT_PARAMETERS                                                                                \
    const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts, const int32_t *pick,       \
        int64_t count, float *y, int64_t y_stride, mo_scratch *scratch
#define MO_PRODUCT_ARGUMENTS w, row_begin, row_end, acts, pick, count, y, y_stride, scratch
#define MO_PRODUCT(name)     void name(MO_PRODUCT_PARAMETERS)

typedef MO_PRODUCT(mo_product_function);

MO_PRODUCT(mo_avx2_product);
MO_PRODUCT(mo_avxvnni_product);
MO_PRODUCT(mo_avx512_product);
MO_PRODUCT(mo_amx_product);
MO_PRODUCT(mo_dotprod_product);
MO_PRODUCT(mo_i8mm_product);

extern const mo_kernels mo_kernels_avx2;
extern const mo_kernels mo_kernels_avxvnni;
extern const mo_kernels mo_kernels_avx512;
extern const mo_kernels mo_kernels_amx;
extern const mo_kernels mo_kernels_dotprod;
extern const mo_kernels mo_kernels_i8mm;

#endif
