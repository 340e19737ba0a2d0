/* Products of the instruction set i8mm. */
#define MO_NEON_PRODUCT mo_i8mm_product
#include "numeric/arm/neon_product.h"
