// Compiles TARGET_INCLUDE, the file that includes this one, once more for each wider instruction
// set, in a namespace of that name; the file itself then goes on as `baseline`. The flags stay
// those of the oldest machine: nothing outside of these namespaces needs a newer one.
//
// TARGET is the namespace, TARGET_BYTES the width of its vector registers.

#if defined(__x86_64__)

#define TARGET avx2
#define TARGET_BYTES 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include TARGET_INCLUDE
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef TARGET
#undef TARGET_BYTES

#define TARGET avx512
#define TARGET_BYTES 64
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx2,fma")
#endif
#include TARGET_INCLUDE
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef TARGET
#undef TARGET_BYTES

// Calls FUNCTION from the namespace of the best instruction set at hand.
#define ON_BEST_ISA(FUNCTION, ...)                           \
  switch (best_isa()) {                                      \
    case Isa::avx512: return avx512::FUNCTION(__VA_ARGS__);  \
    case Isa::avx2: return avx2::FUNCTION(__VA_ARGS__);      \
    default: return baseline::FUNCTION(__VA_ARGS__);         \
  }

#else
#define ON_BEST_ISA(FUNCTION, ...) return baseline::FUNCTION(__VA_ARGS__);
#endif

#define TARGET baseline
#define TARGET_BYTES 16
