// Runs a kernel over [0, units) on ATen's intra-op threads.
#pragma once

#include <cstdint>

namespace dyncomp::executor {

using KernelFn = void (*)(void* const* pointers, const int64_t* ints, int64_t begin, int64_t end);

// Chunks hold at least `grain` units. Serial when one chunk is enough, when torch has one thread, or when the caller is
// inside a parallel region already.
void parallel_kernel(KernelFn kernel, void* const* pointers, const int64_t* ints, int64_t units, int64_t grain);

}  // namespace dyncomp::executor
