// The float functions of the generated kernels' math header, over arrays: compiled as the kernels are.
#include "vec_math.h"

typedef vec<float, VECTOR_BYTES / 4> F;

#define KERNEL(name)                                                                              \
  extern "C" __attribute__((visibility("default"))) void sweep_##name(const float *x, float *y, long n) { \
    for (long i = 0; i + lanes<F> <= n; i += lanes<F>) {                                          \
      F v;                                                                                        \
      __builtin_memcpy(&v, x + i, sizeof(F));                                                     \
      v = v_##name(v);                                                                            \
      __builtin_memcpy(y + i, &v, sizeof(F));                                                     \
    }                                                                                             \
  }
#include "functions.inc"
