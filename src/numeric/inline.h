/* Inline: how kernels, which are large templates, are put together. */
#ifndef MO_NUMERIC_INLINE_H
#define MO_NUMERIC_INLINE_H

#define MO_INLINE static inline __attribute__((always_inline))
#if defined(__aarch64__) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define MO_UNROLL /* checks between the blocks keep gcc from it, and it says so */
#elif defined(__clang__)
#define MO_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MO_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
