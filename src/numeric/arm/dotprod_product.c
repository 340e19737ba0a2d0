/* Products of the instruction set dotprod. */
#define MO_NEON_PRODUCT mo_dotprod_product
#include "numeric/arm/neon_product.h"
