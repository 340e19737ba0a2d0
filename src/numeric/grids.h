/* Grids: the tables in which IQ1, IQ2 and IQ3 look up their codes, eight or four at a time. numeric/grids/ has each
 * once, as levels of two or three bits; here they are expanded to a byte for each value, the first lowest. The
 * GPU's kernels expand them themselves (device/cuda/grid.cuh). Their values are facts of the format, as the specification of GGUF's IQ types gives them. */
#ifndef MO_NUMERIC_GRIDS_H
#define MO_NUMERIC_GRIDS_H

#include <stdint.h>

extern const uint64_t mo_grid_iq1s[2048];  /* -8, 0, 8: eight times the grid's -1, 0, 1 */
extern const uint64_t mo_grid_iq2xxs[256]; /* 8, 25, 43 */
extern const uint64_t mo_grid_iq2xs[512];
extern const uint64_t mo_grid_iq2s[1024];
extern const uint32_t mo_grid_iq3xxs[256]; /* 2, 6, 10, 14, 18, 22, 26, 31: half of the grid's 4 to 62 */
extern const uint32_t mo_grid_iq3s[512];   /* 1, 3, 5, ..., 15 */

#ifdef __aarch64__
/* The same with the negative values after each entry's, for table lookups that choose between them. */
extern const uint64_t mo_grid_iq2xxs_both[256][2], mo_grid_iq2s_both[1024][2];
extern const uint64_t mo_grid_iq3xxs_both[256], mo_grid_iq3s_both[512];
/* The same with every choice of four signs, a set bit for minus, the first lowest. */
extern const uint32_t mo_grid_iq3xxs_signed[16][256], mo_grid_iq3s_signed[16][512];
#endif

/* The signs of eight values as 1 and -1: by the byte that has a bit for each, and by the seven bits of formats whose
 * eighth makes their number even. */
extern const uint64_t mo_signs_of_byte[256];
extern const uint64_t mo_signs_of_seven[128];
#ifdef __x86_64__
extern const uint8_t mo_sign_bits_of_seven[128]; /* as bits */
extern const uint64_t mo_grid_iq1s_levels[2048]; /* 0, 1, 2: the grid's values and 1 */
#endif

#endif
